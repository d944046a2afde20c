"""What was read off a record is remembered by the record itself."""

from __future__ import annotations

import pytest

from kvreport.accounting import kernel
from kvreport.accounting.allocation import reserve_on
from kvreport.accounting.case import Memo
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang import settings
from kvreport.accounting.engines.step import EngineStep
from kvreport.accounting.engines.vllm.reserve import rates_of
from kvreport.accounting.parallel import Layout
from kvreport.catalog import release as release_module
from kvreport.catalog import remembered as module
from kvreport.catalog.load import open_catalog
from kvreport.catalog.release import release_at
from kvreport.catalog.remembered import remembered
from kvreport.publish import device_columns
from kvreport.publish.kept_values import Parts
from kvreport.publish.page_data import facts_alone


def test_the_same_objects_are_read_once_and_equal_ones_again():
    read = []

    @remembered
    def length(record: list[int]) -> int:
        read.append(record)
        return len(record)

    first = [1, 2]
    assert [length(first), length(first)] == [2, 2]
    assert len(read) == 1
    assert length([1, 2, 3]) == 3
    assert len(read) == 2


def test_it_forgets_and_never_mistakes_a_new_object_for_one_that_is_gone(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 3)

    @remembered
    def first(record: list[int]) -> int:
        return record[0]

    # Each list is thrown away at once, so that the next one could have its identity.
    assert [first([number]) for number in range(50)] == list(range(50))


def test_records_are_told_apart_by_identity_and_plain_values_by_what_they_say() -> None:
    read: list[tuple[object, ...]] = []

    @remembered
    def of(record: object, name: str, number: int) -> int:
        read.append((record, name, number))
        return len(read)

    one, two = [1], [1]
    assert of(one, "NVIDIA", 1000) == of(one, "nvidia".upper(), int("1000")) == 1
    assert of(two, "NVIDIA", 1000) == 2
    assert of(one, "AMD", 1000) == 3
    assert of(one, "NVIDIA", 1001) == 4
    assert len(read) == 4


def test_rates_are_read_once_for_a_maker_whose_name_is_put_together() -> None:
    """Each reserve read its rates again, more than half of what a search for deployments took."""
    catalog = open_catalog()
    model, engine = catalog.model("meta-llama/Llama-3.1-8B-Instruct"), catalog.engine("vllm")
    told = (2, False, True, True, False, False, "nvidia", False, False, 1, 1)
    first, again = (
        rates_of(model, engine, *(one.upper() if isinstance(one, str) else one for one in told))
        for _ in range(2)
    )
    assert isinstance(first, kernel.ReserveRates)
    assert first is again


def test_lists_of_a_range_of_releases_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build read all names of lists 30,000 times for each model."""
    engine = open_catalog().engine("mlx")
    kind = next(name.partition("@")[0] for name in engine.architectures if "@" in name)
    before = engine.lists(kind, "64", release_at("mlx", (0, 32, 1)))
    monkeypatch.setattr(release_module, "version_number", lambda _: pytest.fail("read again"))
    assert engine.lists(kind, "64", release_at("mlx", (0, 32, 1))) == before


def test_a_reserve_of_sglang_resolves_no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and slots were resolved for each of 1,700 reserves of a model's file, and thrown away."""
    catalog = open_catalog()
    model, engine = catalog.model("meta-llama/Llama-3.1-8B-Instruct"), catalog.engine("sglang")
    for name in ("page_size", "states_per_request"):
        monkeypatch.setattr(settings, name, lambda *_, **__: pytest.fail("resolved"))
    step = EngineStep(max_batched_tokens=8192, max_seqs=256, layout=Layout(tensor=2))
    assert rules(engine).reserve(model, catalog.accelerator("h100-sxm-80gb"), step).total > 0


def test_what_is_reserved_for_is_laid_out_once_for_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case of 28 fields was made for each of 97 devices' classes in each of 54 columns, twice for SGLang."""
    catalog = open_catalog()
    parts = Parts(None)
    site = facts_alone(catalog, models="meta-llama/Llama-3.1-8B-Instruct", gpus="*", version="", parts=parts)
    other = site.under("sglang")
    work = device_columns.Columns(other, other.models[0], device_columns.places(other, further=False))
    made = []
    case = device_columns._case
    monkeypatch.setattr(device_columns, "_case", lambda *given: made.append(given) or case(*given))
    kept = [work.kept(gpu, number) for gpu in other.gpus for number in range(len(work.columns))]
    assert all(kept)
    assert len(made) == len(work.columns)
    for place, gpu in ((0, other.gpus[0]), (1, other.gpus[-1])):
        one = work.case(place, gpu, None)
        alone = reserve_on(one, gpu, one.serving, Memo())
        assert work.kept(gpu, place)[:2] == [alone.total, alone.uncertainty]
