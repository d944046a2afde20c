"""A log with several starts one after the other: figures of two starts do not mix."""

import pytest

from kvreport.startup_log import diagnose
from kvreport.startup_log.reading import read_log

START = """\
INFO 08-07 16:58:50 [api_server.py:1] vLLM API server version 0.30.0
INFO 08-07 16:58:54 [core.py:184] Initializing a V1 LLM engine (v0.30.0) with config: model='Qwen/Qwen3-8B', data_parallel_size=1, x
(EngineCore pid=1) INFO 08-07 16:59:20 [gpu_worker.py:1] Available KV cache memory: {pool} GiB
(EngineCore pid=1) INFO 08-07 16:59:28 [kv.py:1] GPU KV cache size: {tokens} tokens, Maximum concurrency for 8,192 tokens per request: {fits}x
"""
SMALL = START.format(pool="4.0", tokens="29,120", fits="3.55")
LARGE = START.format(pool="8.0", tokens="58,240", fits="7.11")
CUT = "".join(START.format(pool=1, tokens=1, fits=1).splitlines(keepends=True)[:2])
SERVE = "$ VLLM_LOGGING_LEVEL=INFO vllm serve Qwen/Qwen3-4B --max-num-seqs 7\n"
TAIL = "Maximum concurrency for 8,192 tokens per request: 9.00x\n"
SGLANG = """\
[2026-08-20] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1)
[2026-08-20] KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: 10.08 GB, V size: 10.08 GB
"""


@pytest.mark.parametrize(("text", "fits", "starts"), [
    (SMALL, 3.55, 1),
    (SMALL + LARGE, 7.11, 2),
    (LARGE + SMALL, 3.55, 2),
    (SMALL + SMALL + LARGE, 7.11, 3),
    (LARGE + CUT, 7.11, 2),
    (CUT + LARGE, 7.11, 1),
    (SMALL + SERVE + LARGE, 7.11, 2),
    (SMALL + SERVE + TAIL, 9.0, 2),
    (SMALL + SERVE, 3.55, 1),
    (SERVE + SMALL, 3.55, 1),
])  # fmt: skip
def test_the_last_start_that_ends_is_read(text, fits, starts):
    found = read_log(text)
    assert found.facts["concurrency"] == fits
    assert found.starts == starts
    assert any(f"The log contains {starts} starts." in note for note in diagnose(text).notes) == (starts > 1)


def test_lines_of_services_beside_each_other_do_not_mix():
    """``docker compose logs``: the context of one server was divided by the pool of another."""
    pairs = zip(SMALL.splitlines(), LARGE.splitlines(), strict=True)
    text = "\n".join(f"chat-1  | {small}\ncode-1  | {large}" for small, large in pairs)
    found, alone = read_log(text), read_log(LARGE)
    assert (found.facts, found.starts) == (alone.facts, 2)
    assert {line.number % 2 for line in found.recognised} == {0}


def test_a_command_line_belongs_to_the_start_that_follows():
    found = read_log(SMALL + SERVE + LARGE)
    assert (found.recognised[0].number, found.facts["max_seqs"]) == (5, 7)
    # One that is only quoted below a log belongs to that log.
    assert read_log(SMALL + SERVE).facts["max_seqs"] == 7


def test_numbers_of_lines_stay_those_of_the_log():
    found = read_log(SMALL + LARGE)
    assert {line.number for line in found.recognised} <= set(range(5, 9))
    assert found.recognised[0].number == 5


def test_a_refusal_after_a_start_is_the_answer():
    refused = CUT + (
        "ValueError: To serve at least one request with the models's max seq len (8192), (1.12 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (0.5 GiB).\n"
    )
    assert read_log(LARGE + refused).facts["kv_pool"] < 1 << 30


def test_data_ranks_are_no_starts():
    ranks = SMALL.replace("data_parallel_size=1", "data_parallel_size=2")
    other = "\n".join(ranks.splitlines()[1:]).replace("29,120", "29,000").replace("pid=1", "pid=2")
    found = read_log(ranks + other)
    assert found.starts == 1
    assert found.facts["kv_tokens"] == 29_000
    assert diagnose(ranks + other).headline.endswith("fit at once on each of 2 data-parallel ranks.")


def test_a_log_of_two_models_gives_no_number():
    """Without the prefixes of services, the pool of one was divided by the context of the other."""
    other = LARGE.replace("Qwen3-8B", "Qwen3-32B").splitlines()
    mixed = "\n".join(line for pair in zip(SMALL.splitlines(), other, strict=True) for line in pair)
    assert diagnose(mixed).headline == (
        "The log is of two servers, one with Qwen/Qwen3-8B and one with Qwen/Qwen3-32B. Paste the lines of one of them."
    )


def test_sglang_s_starts_are_told_apart():
    found = read_log(SGLANG.format(tokens=1000) + SGLANG.format(tokens=9000))
    assert (found.facts["kv_tokens"], found.starts) == (9000, 2)
