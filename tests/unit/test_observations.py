"""The observed logs: every one with a source, and its figures in the lines it quotes."""

import re
from pathlib import Path

import pytest
import yaml
from record_files import each, observed
from record_files import observation as recorded

from kvreport.catalog import shelf
from kvreport.catalog.load import open_catalog
from kvreport.catalog.observation import Observation, load_observations
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError
from kvreport.estimation.named_copies import by_name
from kvreport.evidence.validation import compare
from kvreport.resources import data_dir
from kvreport.startup_log.observed import drafts_itself, find_model

MINIMAL = """
schema_version: 1
observations:
  - {id: one, engine: vllm, model: some/model, gpu_named: H100, completeness: full,
     printed: {kv_tokens: 1000}, origin: {kind: issue}}
"""


def test_there_are_logs_of_several_engines() -> None:
    assert len(observed()) >= 100
    assert {"vllm", "sglang", "llama.cpp"} <= {observation.engine for observation in observed()}


@each(observed)
def test_an_observation_has_figures_and_an_origin(observation: Observation) -> None:
    assert observation.printed.model_fields_set
    assert observation.origin.url or observation.origin.kind
    assert observation.origin.lines or observation.notes


def test_searches_name_records_and_why_other_finds_are_none() -> None:
    searches = yaml.safe_load((data_dir() / "log_searches.yaml").read_text())["searches"]
    found = [name for search in searches for name in search["found"]]
    assert len(set(found)) == len(found)
    assert set(found) <= {observation.id for observation in observed()}
    assert all(search["not_usable"] for search in searches)


@each(observed)
def test_token_counts_stand_in_a_quoted_line(observation: Observation) -> None:
    printed = observation.printed
    # A rounded count is in somebody's words; a table's may be in another of its rows.
    if printed.kv_tokens is None or printed.kv_tokens % 1000 == 0:
        return
    if observation.origin.kind == "published table":
        return
    digits = re.sub(r"[,_\s]", "", "".join(observation.origin.lines))
    # Older engines print blocks of 16 tokens.
    in_blocks = printed.gpu_blocks is not None and printed.gpu_blocks * 16 == printed.kv_tokens
    assert str(printed.gpu_blocks if in_blocks else printed.kv_tokens) in digits


def test_no_start_is_recorded_twice() -> None:
    """The same tokens from the same pool in one month are one start; a source is quoted in several places."""
    seen: dict[object, str] = {}
    for observation in observed():
        printed, date = observation.printed, str(observation.origin.date)[:7]
        if printed.kv_tokens is None or printed.kv_tokens % 1000 == 0:
            continue
        start = (
            observation.engine,
            printed.kv_tokens,
            observation.model_id or observation.shapes_of,
            printed.available_kv_gib or observation.static_share,
            date,
        )
        assert start not in seen, (seen[start], observation.id)
        seen[start] = observation.id


def test_accelerators_and_formats_are_the_catalogs() -> None:
    catalog = open_catalog()
    for observation in observed():
        assert observation.gpu is None or observation.gpu in catalog.accelerators, observation.id
        kernels = observation.kernels_of
        assert kernels is None or (kernels in catalog.accelerators and observation.gpu is None)
        named = observation.gpu is not None or bool(observation.gpus)
        assert named == (observation.gpu_certainty is not None), observation.id
        assert not observation.gpus or observation.gpu is None, observation.id
        assert set(observation.gpus) <= set(catalog.accelerators), observation.id
        assert len(observation.gpus) in (0, observation.devices), observation.id
        known = {None, "released", *catalog.weight_formats}
        assert observation.weight_format in known, observation.id
        assert observation.kv_format in {None, "auto", *catalog.kv_formats}, observation.id


def test_what_a_log_calls_the_devices_total_is_what_the_catalog_says() -> None:
    # Driver versions differ by about 0.1 GiB on the same device, images of a DGX Spark by 2 GiB. Under Windows a
    # process is told what the driver sees.
    catalog = open_catalog()
    seen = 0
    for observation in observed():
        total = observation.printed.total_gpu_gib
        if total is not None and observation.gpu is not None and "memory" not in observation.needs:
            memory = catalog.accelerators[observation.gpu].memory
            windows = observation.wsl or "WSL" in (observation.gpu_named or "")
            told = memory.driver_visible if windows and memory.driver_visible else memory.usable
            if ", a slice of " in (observation.gpu_named or ""):
                assert total < told.value / 2**30 / 2, observation.id
                continue
            assert told.value / 2**30 == pytest.approx(total, abs=2.1 if memory.free_at_start else 0.15), (
                observation.id
            )
            seen += 1
    assert seen >= 10


def test_nothing_to_read_is_nothing(tmp_path: Path) -> None:
    assert load_observations(tmp_path) == ()


def test_a_file_that_does_not_change_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build read all logs six times."""
    folder = tmp_path / "observations"
    folder.mkdir()
    (folder / "a.yaml").write_text(MINIMAL)
    (folder / "b.yaml").write_text(MINIMAL.replace("id: one", "id: two"))
    before, read = load_observations(tmp_path), []
    monkeypatch.setattr(shelf, "read_yaml", lambda path, where: read.append(where) or read_yaml(path, where))
    assert load_observations(tmp_path) == before
    assert read == []
    (folder / "b.yaml").write_text(MINIMAL.replace("id: one", "id: another"))
    assert [one.id for one in load_observations(tmp_path)] == ["one", "another"]
    assert read == ["observations/b.yaml"]


def test_all_faults_of_all_files_are_named_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "observations"
    folder.mkdir()
    (folder / "a.yaml").write_text(MINIMAL)
    (folder / "b.yaml").write_text(MINIMAL)
    (folder / "c.yaml").write_text(MINIMAL.replace("kv_tokens: 1000", "kv_tokens: many"))
    (folder / "d.yaml").write_text(MINIMAL.replace("completeness: full", "completness: full"))
    with pytest.raises(CatalogError) as caught:
        load_observations(tmp_path)
    text = str(caught.value)
    assert "observations/b.yaml: observations.0.id: found 'one'; allowed: an id that no other has" in text
    assert "observations/c.yaml: observations.0.printed.kv_tokens: found 'many'" in text
    assert "observations/d.yaml: observations.0.completness" in text


def test_an_encoder_that_is_not_measured_reserves_nothing_and_is_loaded_all_the_same() -> None:
    catalog = open_catalog()
    told = recorded("fresh-014")
    assert "skip-mm-profiling" in (told.flags or "")
    measured = told.model_copy(update={"flags": "attention-backend TRITON_ATTN"})
    without, usual = (compare(catalog, one) for one in (told, measured))
    pools, weights = (
        [row.predicted for case in (without, usual) for row in case.comparisons if row.quantity == quantity]
        for quantity in ("pool", "weights")
    )
    assert pools[0] > pools[1]
    assert weights[0] == weights[1]


def test_a_copy_by_its_name_is_judged_as_the_range_that_an_answer_gives() -> None:
    """No point is compared where the source does not say which layers are wider; a stated format is one."""
    catalog = open_catalog()
    log = recorded("fen-008")
    found = compare(catalog, log)
    assert not any(one.quantity in ("weights", "pool", "tokens", "concurrency") for one in found.comparisons)
    assert found.starts_predicted
    assert found.within_band
    assert any("3.28 to 8.51 GiB, and the log's is inside" in reason for reason in found.excluded)
    # More tokens than with every layer in 4 bits are as far outside as fewer than with the experts alone.
    for tokens in (log.printed.kv_tokens or 0) * 4, 40_000:
        printed = log.printed.model_copy(update={"kv_tokens": tokens, "max_concurrency": None})
        assert compare(catalog, log.model_copy(update={"printed": printed})).within_band is False
    # Where the ends differ in whether it starts, nothing is claimed.
    assert compare(catalog, log.model_copy(update={"utilization": 0.78})).starts_predicted is None
    stated = compare(catalog, log.model_copy(update={"mix_open": None}))
    assert any(one.quantity == "tokens" for one in stated.comparisons)


@pytest.mark.parametrize(
    ("flags", "starts"),
    [
        ("VLLM_PLE_CPU_OFFLOAD=1", True),
        ('--engram-config {"cpu_offload": true}', True),
        ("the table of embeddings kept on the host", True),
        ("VLLM_PLE_CPU_OFFLOAD=0", False),
        ('--engram-config {"cpu_offload": false}', False),
        ("MTP 3", False),
    ],
)
def test_a_table_that_the_flags_keep_on_the_host_takes_no_memory_of_the_device(
    flags: str, starts: bool
) -> None:
    log = recorded("fen-025")
    assert compare(open_catalog(), log.model_copy(update={"flags": flags})).starts_predicted is starts


@pytest.mark.parametrize(
    ("flags", "concurrency"),
    [
        ("max-num-seqs 4, prefix caching", 2.9368),
        ("prefix caching and chunked prefill on", 2.9368),
        ("max-num-seqs 4, no prefix caching", 2.9883),
        ("max-num-seqs 4", 2.9883),
    ],
)
def test_prefix_caching_among_the_flags_keeps_a_second_state(flags: str, concurrency: float) -> None:
    """The log of vLLM 0.26, where recurrent models cache no prefixes by default, prints 2.94."""
    judged = compare(open_catalog(), recorded("finch-084").model_copy(update={"flags": flags}))
    found = next(one for one in judged.comparisons if one.quantity == "concurrency given pool")
    assert found.predicted == pytest.approx(concurrency, abs=1e-4)


@pytest.mark.parametrize("name", ["dunlin-006", "dunlin-007"])
def test_a_start_that_compiles_nothing_needs_no_copy_of_a_table(name: str) -> None:
    """Half a table of n-grams of 95 GiB was counted twice, as a compiled lookup is measured on a copy of it."""
    log = recorded(name)
    assert compare(open_catalog(), log).within_band
    compiled = log.model_copy(update={"flags": (log.flags or "").replace("compilation mode 0", "")})
    assert compare(open_catalog(), compiled).starts_predicted is False


def test_eight_bits_beside_16_bit_layers_are_read_in_a_name() -> None:
    found = by_name("x/Qwen3.5-9B-AWQ-BF16-INT8", open_catalog())
    assert found is not None
    assert found[0].by_name
    assert found[0].weight_format == "int8-g128-zp"


def test_the_layers_of_dspark_that_a_checkpoint_brings_are_loaded() -> None:
    catalog = open_catalog()
    log = recorded("held-009")
    assert log.speculative == "dspark, num_speculative_tokens 7"
    drafting, alone = (
        next(row.predicted for row in compare(catalog, one).comparisons if row.quantity == "weights")
        for one in (log, log.model_copy(update={"speculative": None}))
    )
    assert drafting == pytest.approx(log.printed.model_load_gib, rel=0.005)
    assert drafting - alone > 8
    # Qwen3.8's own layers predict tokens; DSpark is another model's there.
    another = recorded("lark-101")
    model = find_model(catalog, another)[0]
    assert model is not None
    assert any(row.component == "mtp" for row in model.weights)
    assert not drafts_itself(another, model)
