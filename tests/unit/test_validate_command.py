"""``kvreport validate``: records in, judgments out, one clear error for a record that is none."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.observation import Observation
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.evidence.observation_files import read_observations
from kvreport.evidence.validation import compare
from kvreport.resources import data_dir
from kvreport.startup_log.judge import Judgment
from kvreport.startup_log.start import Comparison
from tests.startup_logs import LOGS

RECORD = {
    "id": "mine-1",
    "engine": "vllm",
    "engine_version": "0.19.1",
    "model": "Qwen/Qwen3-8B",
    "model_id": "Qwen/Qwen3-8B",
    "weight_format": "released",
    "kv_format": "auto",
    "gpu_named": "A100 40GB",
    "gpu": "a100-sxm4-40gb",
    "gpu_certainty": "named",
    "tensor_parallel": 1,
    "utilization": 0.9,
    "context_tokens": 40960,
    "printed": {"kv_tokens": 140960, "max_concurrency": 3.44, "available_kv_gib": 19.36},
    "completeness": "full",
    "origin": {"kind": "log", "lines": ["GPU KV cache size: 140,960 tokens"]},
}


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[dict[str, object]]]:
    assert main(["validate", *arguments, "--format", "json"]) == 0
    found: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("wrapped", [False, True])
def test_lines_of_json_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrapped: bool) -> None:
    file = tmp_path / "logs.jsonl"
    record = {"id": "mine-1", "observation": RECORD} if wrapped else RECORD
    file.write_text(json.dumps(record) + "\n\n")
    found = judged(capsys, str(file))
    rows = {row["quantity"]: row for row in found["comparisons"]}
    assert set(rows) >= {"tokens given pool", "pool", "tokens", "concurrency"}
    tokens = rows["tokens"]
    assert (tokens["id"], tokens["complete"], tokens["observed"]) == ("mine-1", True, 140960)
    case = compare(open_catalog(), Observation.model_validate_json(json.dumps(RECORD)))
    expected = next(one.error for one in case.comparisons if one.quantity == "tokens")
    assert tokens["error"] == pytest.approx(expected, abs=1e-6)
    assert 0 < abs(expected) < 0.05
    assert found["starts"] == [
        {"id": "mine-1", "complete": True, "rules": "vllm 0.19.1", "observed": True, "predicted": True}
    ]


def test_the_catalogs_own_files_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    found = judged(capsys, str(data_dir() / "observations" / "vllm-3.yaml"))
    assert {row["id"] for row in found["comparisons"]} >= {"new-008", "new-016", "new-017"}
    assert any(row["id"] == "new-019" for row in found["not_compared"])


def test_a_refusal_is_a_judgment_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "logs.json"
    refused = RECORD | {"context_tokens": 1_000_000, "printed": {"fits": False}}
    file.write_text(json.dumps([refused]))
    (start,) = judged(capsys, str(file))["starts"]
    assert (start["observed"], start["predicted"]) == (False, False)


def test_text_names_the_headline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "logs.jsonl"
    file.write_text(json.dumps(RECORD))
    assert main(["validate", str(file)]) == 0
    assert "Logs that state all flags: 1 end to end, median error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", r"logs.jsonl: line 1: .*the field is required"),
        ('{"id": 3}', r"logs.jsonl: line 1: id: found 3"),
        ("[1]", r"logs.jsonl: line 1: found a list"),
        ("no json", r"logs.jsonl: line 1: found 'no json'.*allowed: a JSON object"),
        ("", r"found no record"),
        (json.dumps(RECORD | {"colour": "red"}), r"line 1 \(mine-1\): colour: found"),
        (json.dumps(RECORD | {"utilization": 7}), r"line 1 \(mine-1\): utilization: found 7"),
    ],
)
def test_a_malformed_record_is_one_clear_error(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "logs.jsonl"
    file.write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        read_observations(file)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.yaml: found No such file"):
        read_observations(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_log_is_told_from_a_file_of_observations(tmp_path: Path, name: str) -> None:
    file = tmp_path / "start.log"
    file.write_text(LOGS[name], encoding="utf-8")
    with pytest.raises(InputError, match=r"start-up log; .*kvreport log FILE reads a log"):
        read_observations(file)


def test_a_broken_file_of_observations_is_no_log(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("observations:\n- id: [mine", encoding="utf-8")
    with pytest.raises(InputError, match="YAML"):
        read_observations(file)


@pytest.mark.parametrize(
    ("observed", "inside"), [(8.95, False), (9.02, True), (10.0, True), (10.98, True), (11.05, False)]
)
def test_a_pool_lies_in_its_band_by_bytes_on_both_sides(observed: float, inside: bool) -> None:
    """10 GiB are predicted, give or take 1 GiB; a log that prints tokens only is held to the pool that they stand for."""
    laid: Any = SimpleNamespace(pool_bytes=10 << 30, uncertainty_bytes=1 << 30)
    pool = Comparison("pool", 10.0, observed, "GiB")
    tokens = Comparison("tokens", 10.0 * 8192, observed * 8192, "tokens")
    for comparisons in ((pool,), (tokens,), (tokens, pool)):
        assert Judgment(comparisons, laid, predicted=True).within_band is inside
    assert Judgment((pool,), laid, predicted=False).within_band is None
