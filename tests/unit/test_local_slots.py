"""llama-server's own ``-c``: the cells of all slots, of which each request has its slot's share."""

from __future__ import annotations

import json

import pytest

from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, Setup
from kvreport.accounting.engines.llama_cpp.search import longest_of_slots
from kvreport.catalog.load import Catalog
from kvreport.cli import main
from kvreport.estimation import estimate
from kvreport.estimation.home_answer import LocalEstimate

MODEL = "Qwen/Qwen3-30B-A3B"


def started(catalog: Catalog, **options: object) -> LocalEstimate:
    found = estimate(
        MODEL, gpu="rtx-pro-6000-ws", engine="llama-cpp", weights="q4_k_m", catalog=catalog, **options
    )
    assert isinstance(found, LocalEstimate)
    return found


def test_slots_that_divide_the_cells_have_their_share(catalog: Catalog) -> None:
    """A start of 64K cells with four slots was answered as requests of 64K, which the model does not have."""
    found = started(catalog, ctx_size="64K", parallel=4)
    assert (found.request.context_tokens, found.max_concurrent_requests, found.verdict) == (16384, 4, "fits")
    assert "-c 65536 -np 4" in found.to_dict()["command"]


def test_slots_that_share_the_cells_run_as_many_as_find_room(catalog: Catalog) -> None:
    found = started(catalog, ctx_size="16K")
    assert found.request.context_tokens == 16384
    rows = {row.context_tokens: row.max_concurrent_requests for row in found.by_context}
    assert [rows[tokens] for tokens in (4096, 8192, 16384)] == [4, 2, 1]
    assert max(rows) == 16384


def test_no_slot_is_longer_than_the_model(catalog: Catalog) -> None:
    found = started(catalog, ctx_size="128K")
    assert (found.request.context_tokens, found.verdict) == (40960, "fits")
    assert found.case.options.context == 131072
    assert found.max_concurrent_requests == 3


@pytest.mark.parametrize("parallel", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("cells", [4096, 10_000, 32768, 65536, 100_000])
def test_what_runs_at_once_finds_room_in_the_cells(
    catalog: Catalog, cells: int, parallel: int | None
) -> None:
    found = started(catalog, ctx_size=cells, parallel=parallel)
    for row in found.by_context:
        assert row.max_concurrent_requests * row.context_tokens <= cells
    counts = [row.max_concurrent_requests for row in found.by_context]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize(
    "options", [{}, {"parallel": 4}, {"parallel": 2, "kv_unified": True}, {"parallel": 1}]
)
def test_the_printed_command_runs_what_the_headline_says(
    catalog: Catalog, options: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """``--context 16K`` said four requests, and the command printed with it ran one when pasted back."""
    found = started(catalog, context_tokens=16384, **options)
    command = found.to_dict()["command"].replace("MODEL.gguf", MODEL)
    asked = ["estimate", command, "--gpu", "rtx-pro-6000-ws", "--weights", "q4_k_m", "--format", "json"]
    assert main(asked) == 0
    again = json.loads(capsys.readouterr().out)
    names = ("context_tokens", "max_concurrent_requests", "limited_by", "verdict", "budget", "kv_cache_bytes")
    told = found.to_dict()
    assert [again[name] for name in names] == [told[name] for name in names]
    assert told["max_concurrent_requests"] * 16384 <= told["cells"]["context"]


def pasted(line: str, gpu: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    main(["estimate", line, "--gpu", gpu, "--format", "json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("flags", "layers"),
    [("", "54"), ("-fit on", "54"), ("--fit=1", "54"), ("--fit off", ""), ("-ngl 99", "99")],
)
def test_a_pasted_server_changes_what_it_was_not_told_until_it_fits(
    flags: str, layers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """llama.cpp's ``--fit`` is on unless it is turned off, and leaves alone what was stated."""
    line = f"llama-server -hf Qwen/Qwen3-32B-GGUF:Q4_K_M -c 32768 {flags}"
    found = pasted(line, "rtx-4090", capsys)
    assert found["max_concurrent_requests"] == (layers == "54")
    assert str(found["command"]).partition("-ngl ")[2].partition(" ")[0] == layers


@pytest.mark.parametrize(("context", "end"), [(8192, "8192"), (16384, "--fit off"), (32768, "--fit off")])
def test_the_printed_server_starts_as_it_was_answered(
    context: int, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With less than 1 GiB left ``--fit`` would move layers that the answer has on the GPU: the command says so."""
    given = {"gpu": "rtx-3060", "engine": "llama-cpp", "weights": "q4_k_m", "context_tokens": context}
    asked = estimate("Qwen/Qwen3-14B", **given).to_dict()
    line = asked["command"].replace("-m MODEL.gguf", "-hf Qwen/Qwen3-14B-GGUF:Q4_K_M")
    assert line.endswith(end)
    again = pasted(line, "rtx-3060", capsys)
    assert again["command"] == line
    assert again["max_concurrent_requests"] == asked["max_concurrent_requests"]
    assert again["budget"] == asked["budget"]


def test_the_longest_context_of_slots_takes_a_few_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 63 contexts was laid out, one after another."""
    case = estimate("Qwen/Qwen3-8B", gpu="rtx-4090", engine="llama-cpp", weights="bf16").case
    asked: list[LocalLayout] = []
    lay_out = Setup.lay_out

    def counted(self: Setup, **changes: object) -> LocalLayout:
        asked.append(lay_out(self, **changes))
        return asked[-1]

    monkeypatch.setattr(Setup, "lay_out", counted)
    longest = longest_of_slots(case, 4)
    assert 8192 < longest < 40960
    assert len(asked) < 10
    assert lay_out(case, context=4 * longest, parallel=4, unified=False).fits
    assert not lay_out(case, context=4 * (longest + 256), parallel=4, unified=False).fits
