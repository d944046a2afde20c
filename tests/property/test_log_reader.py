"""What must hold for the log reader at its limits; that any log is facts or one sentence, ``fuzz_targets.log_mutation`` tries."""

from __future__ import annotations

import math
import time

import pytest
from fuzzing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from startup_logs import LOGS

from kvreport.errors import InputError
from kvreport.startup_log import diagnose, read_log
from kvreport.startup_log import reading as log_reading
from kvreport.startup_log.reading import MAX_LINE, MAX_LINES

SECONDS = 2.0
"""Processor time that 200,000 characters may take. They take up to 1.0 s on a slow and busy machine."""


NO_LENGTH = (
    "ValueError: To serve at least one request with the model's max seq len (0), (5.00 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (3.20 GiB)."
)
NO_MEMORY = "Free memory on device (78.50/{} GiB) on startup."


@pytest.mark.parametrize("text", [NO_LENGTH, NO_MEMORY.format("0"), NO_MEMORY.format("0.000001")])
def test_a_log_that_states_no_length_or_no_memory_has_a_diagnosis(text: str) -> None:
    for gpu in (None, "h100-sxm-80gb"):
        found = diagnose(text, model="meta-llama/Llama-3.1-8B-Instruct", gpu=gpu)
        assert found.to_dict()["headline"]
        assert found.concurrency is None or math.isfinite(found.concurrency)


@settings(max_examples=examples(40))
@given(
    beginning=st.sampled_from(sorted({line for text in LOGS.values() for line in text.splitlines()})),
    cut=st.integers(0, 400),
    repeated=st.sampled_from(("", "1", "1,", "a", " ", "'", "=", "-", "\x1b[", "--model ")),
)
def test_the_time_grows_no_faster_than_the_log(beginning: str, cut: int, repeated: str) -> None:
    # A beginning without its end, again and again; or once, with something that never ends.
    part = beginning[: cut % (len(beginning) + 1)]
    line = part + repeated * MAX_LINE if repeated else (part or "x") * MAX_LINE
    text = f"{line[:MAX_LINE]}\n" * 10

    def seconds() -> float:
        start = time.process_time()
        read_log(text + "end")
        return time.process_time() - start

    # A busy machine may lose a second to its neighbors, but hardly three times in a row.
    assert any(seconds() < SECONDS for _ in range(3))


def test_a_line_of_a_megabyte_is_read_to_its_limit() -> None:
    line = "GPU KV cache size: 21,360 tokens" + " x" * 500_000
    reading = read_log(line)
    assert reading.facts == {"kv_tokens": 21_360}
    assert len(reading.recognised[0].text) == MAX_LINE
    assert read_log("x" * 1_000_000 + line).facts == {}


@pytest.mark.parametrize("digits", [16, 19, 40, 400, 15_000])
def test_a_number_that_no_machine_has_is_not_understood(digits: int) -> None:
    for line in (f"max_total_num_tokens={'9' * digits}", f"Model loading took {'9' * digits}.0 GiB"):
        reading = read_log(line)
        assert (reading.facts, reading.recognised) == ({}, ())
        assert reading.unknown == ((1, line),)


def test_the_lines_of_every_kind_of_line_end_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for end in ("\n", "\r", "\r\n"):
        with pytest.raises(InputError, match=f"{MAX_LINES:,} lines"):
            read_log(f"x{end}" * (MAX_LINES + 1))
    # One line fewer is read, at a limit that takes a moment.
    monkeypatch.setattr(log_reading, "MAX_LINES", 500)
    with pytest.raises(InputError, match="500 lines"):
        read_log("x\r\n" * 501)
    assert len(read_log("x\r\n" * 500).unknown) == 500
