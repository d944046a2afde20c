"""A server that runs is never told that a request does not fit, whatever part of its log is pasted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from fuzzing import thinned
from record_files import each, observed

from kvreport.catalog.load import open_catalog
from kvreport.catalog.observation import Observation
from kvreport.catalog.release import version_number
from kvreport.startup_log import Diagnosis, diagnose
from kvreport.startup_log.observed import find_model

CATALOG = open_catalog()


@cache
def running() -> tuple[Observation, ...]:
    """Observations of servers that started, and printed a length and the tokens of their cache."""
    return tuple(
        one
        for one in observed()
        if one.engine in ("vllm", "sglang")
        and one.printed.fits is not False
        and one.printed.kv_tokens
        and one.context_tokens
    )


def lines_of(one: Observation, *, named: bool, release: bool) -> str:
    """A log reduced to the lines of its length, its pool and its tokens: what people paste."""
    tokens, pool, length = one.printed.kv_tokens, one.printed.available_kv_gib, one.context_tokens
    name = one.model_id or one.shapes_of
    model = name if named and name else "no/model"
    if one.engine == "sglang":
        text = f"server_args=ServerArgs(model_path='{model}', tp_size={one.tensor_parallel or 1})\n"
        text += f"max_total_num_tokens={tokens}, chunked_prefill_size=8192, context_len={length}\n"
        return text
    version = version_number(one.engine_version or "")
    text = f"vLLM API server version {'.'.join(map(str, version))}\n" if release and version else ""
    text += f"vllm serve {model} --max-model-len {length} --max-num-seqs {one.max_seqs or 256}"
    text += f" --tensor-parallel-size {one.tensor_parallel or 1}\n"
    text += f"Available KV cache memory: {pool:.2f} GiB\n" if pool else ""
    return text + f"GPU KV cache size: {tokens:,} tokens\n"


def told(one: Observation) -> Iterator[Diagnosis]:
    known = one.gpu is not None and find_model(CATALOG, one)[0] is not None
    yield diagnose(lines_of(one, named=True, release=True), gpu=one.gpu if known else None)
    yield diagnose(lines_of(one, named=True, release=False))
    yield diagnose(lines_of(one, named=False, release=False))


def test_there_are_logs_of_every_kind() -> None:
    releases = {version_number(one.engine_version or "")[:2] for one in running() if one.engine == "vllm"}
    assert len(running()) >= 300
    assert {(0, 11), (0, 19), (0, 21)} <= releases


@each(lambda: thinned(running(), 3))
def test_no_running_server_is_told_that_a_request_does_not_fit(one: Observation) -> None:
    for found in told(one):
        assert "not fit" not in found.headline
        assert "not start" not in found.headline
        for change in found.changes:
            assert change.name != "max_seqs"
            assert change.name != "max_model_len" or change.value < (one.context_tokens or 0)
        assert all(fits > 0 for _, fits in found.shorter), found.shorter
