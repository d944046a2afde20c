"""What is looked for before a pattern is tried stands in everything that the pattern matches."""

from __future__ import annotations

import random
import re

import pytest
from fuzzing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from startup_logs import LINES

from kvreport.catalog.safe_patterns import fault_of, needed
from kvreport.startup_log.patterns import patterns
from kvreport.startup_log.reading import read_log

ALL = patterns()


@pytest.mark.parametrize("pattern", ALL, ids=lambda pattern: pattern.name)
def test_a_text_of_every_pattern_stands_in_what_it_matches(pattern) -> None:
    texts = needed(pattern.expression)
    compiled = re.compile(pattern.expression, re.ASCII)

    @given(st.from_regex(compiled))
    @settings(max_examples=examples(15), deadline=None, derandomize=True, database=None)
    def holds(line: str) -> None:
        assert any(text in line for text in texts)

    holds()
    assert all(texts)


def test_published_lines_are_matched_as_without_it() -> None:
    for line in LINES:
        for pattern in ALL:
            found = re.search(pattern.expression, line, re.ASCII)
            assert found is None or any(text in line for text in pattern.texts)


def test_a_file_that_is_no_log_costs_next_to_nothing() -> None:
    """5 MB of random bytes took 14 seconds: every pattern was searched in every line."""
    draw = random.Random(3)  # noqa: S311
    lines = [draw.randbytes(240).decode("utf-8", "replace") for _ in range(1000)]
    lines += [
        " ".join(draw.choices(("the", "server", "cost", "12.5", "GPU", "x=1"), k=20)) for _ in range(1000)
    ]
    tried = sum(any(text in line for text in one.texts) for line in lines for one in ALL)
    assert tried < 0.02 * len(lines) * len(ALL)


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        (r"abc(?:de)?f", ("abc",)),
        (r"(?:cat|horse) x", ("cat", "horse")),
        (r"(?i)abc", ("",)),
        (r"a|b*", ("",)),
        (r"x+(?P<n>[0-9]+) tokens", (" tokens",)),
        (r"\bab\b", ("ab",)),
        (r"(?!no)yes", ("yes",)),
    ],
)
def test_what_is_needed(expression: str, texts: tuple[str, ...]) -> None:
    assert needed(expression) == texts


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        (r"abc(?P<model>[a-z]+)", None),
        (r"begins: (?:(?!begins: ).)*? ends", None),
        (r"(?:abc,?){0,300} tokens", None),
        (r"(?:a+b){1,9} tokens", "inside another repeat"),
        (r"(?:[a-z]+,)* tokens", "more than one character"),
        (r"begins .* ends", "any character"),
        (r"(?:[0-9]{1,300},){1,300} tokens", "up to 90,000 times"),
        (r"(?P<model>a) (?P=model) tokens", "a reference"),
        (r"[0-9]{1,9}|b", "no text"),
        (r"tokens(", "missing )"),
        ("a" * 1501, "1,501 characters"),
    ],
)
def test_expressions_whose_time_may_grow_faster_than_the_line_are_refused(expression: str, fault) -> None:
    found = fault_of(expression)
    assert found is None if fault is None else fault in found


@pytest.mark.parametrize("version", ["0.33.0", "0.11.0rc2.dev14+g1a2b3c4", "0.31.0.post1", "dev"])
@pytest.mark.parametrize(
    "around",
    [
        '{{"log": "{}\\n", "stream": "stderr", "time": "2026-11-28T03:00:01Z"}}',
        '{{"ts": 1, "level": "info", "message": "{}"}}',
        '{{"message":"{}","level":"info"}}',
        "vllm-1  | {}",
        "{}",
    ],
)
def test_a_release_ends_where_the_containers_log_goes_on(version: str, around: str) -> None:
    """Docker's own files gave the release 0.33.0\\n", to the reader."""
    for line in (
        f"INFO 11-28 03:00:00 [api_server.py:1] vLLM API server version {version}",
        f"[TensorRT-LLM] TensorRT-LLM version: {version}",
        f"[TensorRT-LLM] TensorRT LLM version: {version}",
    ):
        assert read_log(around.format(line)).facts.get("engine_version") == version
