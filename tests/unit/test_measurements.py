"""The measurements that we publish, and the configs that the experiments build from."""

import json
from pathlib import Path

import pytest

from experiments import theory
from experiments.models import SMALL_LENGTHS, SMALL_WINDOW, Subject, known, narrow, subject, with_heads
from kvreport.catalog.load import open_catalog
from kvreport.catalog.measurement import MeasuredQuantity, load_measurements, read_measurement
from kvreport.catalog.model import Model
from kvreport.errors import CatalogError
from kvreport.resources import data_dir

FOLDER = data_dir() / "measurements"
IN_CACHE = [
    (measurement, reading)
    for measurement in load_measurements(FOLDER)
    for reading in measurement.readings
    if reading.quantity == "cache"
]


def layers(model: Model) -> list[object]:
    return [[cache.model_dump() for cache in model.layers[group].caches] for group in model.pattern]


@pytest.mark.parametrize("model_id", known())
def test_a_restated_config_describes_the_catalogs_model(model_id):
    ours, record = subject(model_id).record, open_catalog().model(model_id)
    assert layers(ours) == layers(record)
    text = [
        {c: sum(w.parameters for w in m.weights if w.component == c) for c in ("attention", "routed_experts")}
        for m in (ours, record)
    ]
    assert text[0] == text[1]


@pytest.mark.parametrize("model_id", known())
def test_narrowing_keeps_the_layer_pattern_and_what_attention_caches(model_id):
    full, small = subject(model_id), narrow(subject(model_id))
    count = small.record.layer_count
    kept = [
        [cache for cache in layer if cache["kind"] != "state"]
        for model in (full, small)
        for layer in layers(model.record)[:count]
    ]
    assert kept[:count] == kept[count:]
    assert count == full.record.layer_count or "first" in small.narrowed


def subject_of(experiment: str, reading: MeasuredQuantity, device: str) -> Subject:
    model = subject(reading.model)
    if "kv_heads" in reading.at:
        model = with_heads(model, reading.at["kv_heads"])
    if device == "cpu":
        every = experiment == "e1-cache-bytes" and reading.at["context_tokens"] in SMALL_LENGTHS
        model = narrow(model, window=SMALL_WINDOW if every else None)
    return model


def test_there_are_measurements_to_check():
    assert len(IN_CACHE) > 100
    assert len({reading.model for _, reading in IN_CACHE}) >= 25


def test_every_published_cache_is_still_what_we_compute():
    """A changed formula must not leave an old figure beside a measurement."""
    for measurement, reading in IN_CACHE:
        model = subject_of(measurement.experiment, reading, measurement.device)
        now = theory.cache_bytes(model, reading.at["context_tokens"], reading.at.get("batch", 1))
        assert now == reading.computed, (measurement.name, reading)


def test_no_published_reading_disagrees_with_an_exact_figure():
    wrong = [
        (m.name, r)
        for m in load_measurements(FOLDER)
        for r in m.readings
        if r.relation == "equals" and r.holds is False
    ]
    assert wrong == []


def test_measurements_name_a_class_of_machine_and_nothing_of_the_one_they_ran_on():
    for path in FOLDER.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "/home" not in text
        assert "/root" not in text
        assert '"/' not in text


def reading(**changes: object) -> MeasuredQuantity:
    plain = {"case": "a", "quantity": "cache", "unit": "bytes", "measured": 110, "computed": 100}
    return MeasuredQuantity.model_validate(plain | changes)


@pytest.mark.parametrize(
    ("relation", "measured", "holds"),
    [
        ("equals", 100, True),
        ("equals", 101, False),
        ("at_least", 101, True),
        ("at_least", 99, False),
        ("at_most", 99, True),
        ("at_most", 101, False),
        ("none", 7, None),
        ("equals", None, None),
    ],
)
def test_a_reading_is_held_against_what_the_arithmetic_says_of_it(relation, measured, holds):
    assert reading(relation=relation, measured=measured).holds is holds


def test_the_error_is_measured_over_computed():
    assert reading().error == pytest.approx(0.1)
    assert reading(measured=None).error is None
    assert reading(computed=None, relation="none").error is None


def test_a_broken_file_is_refused_with_its_name_and_field(tmp_path: Path):
    whole = json.loads(next(FOLDER.glob("*.json")).read_text(encoding="utf-8"))
    (tmp_path / "other.json").write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(CatalogError, match=r"other\.json: name"):
        read_measurement(tmp_path / "other.json")
    whole["readings"][0]["unit"] = "apples"
    whole["name"] = "other"
    (tmp_path / "other.json").write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(CatalogError, match=r"other\.json: readings\.0\.unit"):
        load_measurements(tmp_path)


def test_no_folder_means_no_measurements(tmp_path: Path):
    assert load_measurements(tmp_path / "nothing") == ()
