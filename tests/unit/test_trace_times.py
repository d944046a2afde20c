"""Arrival times under every name and clock, in every form, read by the command and by the browser alike."""

from __future__ import annotations

import gzip
import json
import shlex
import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from traces import CLOCKS, FORMS, TIME_NAMES, in_browser, written

import kvreport
from kvreport.budgets import TRACE
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.traffic import readers
from kvreport.traffic.fields import line_counts, moment
from kvreport.traffic.readers import read_lines, read_trace

MODEL, GPU = "Qwen/Qwen2.5-7B-Instruct", "h100-sxm-80gb"
MOMENTS = (0.0, 0.5, 2.25, 3.0, 61.125)
CASES = [(name, clock, form) for name, clock, form in product(TIME_NAMES, CLOCKS, FORMS)]


def rows(name: str, clock: str) -> list[dict]:
    return [
        {
            "id": f"r{n}",
            name: at,
            "usage": {"prompt_tokens": 100 + n, "completion_tokens": 10},
            "user": "u, v",
        }
        for n, at in enumerate(written(name, clock, MOMENTS))
    ]


def read(text: str, **options):
    return read_lines(text.splitlines(keepends=True), "trace", **options)


def test_every_name_and_clock_in_every_form_is_read_alike() -> None:
    """They were all read as second 0: 500 requests at once, and 19 GPUs instead of 1."""
    texts = [FORMS[form](rows(name, clock)) for name, clock, form in CASES]
    for case, text, theirs in zip(CASES, texts, in_browser(texts), strict=True):
        trace = read(text)
        assert list(trace.arrival_s) == pytest.approx(MOMENTS, abs=2e-3), case
        assert trace.arrivals == theirs["arrivals"] == "recorded", case
        assert theirs["times"] == pytest.approx(list(trace.arrival_s), abs=1e-9), case
        assert theirs["prompts"] == list(trace.prompt_tokens) == [100, 101, 102, 103, 104]
        assert theirs["outputs"] == list(trace.output_tokens)


@pytest.mark.parametrize("form", FORMS)
def test_without_times_all_come_at_once_and_the_trace_says_so(form: str) -> None:
    text = FORMS[form](
        [{"when": "at noon", "usage": {"prompt_tokens": 9, "completion_tokens": n}} for n in range(4)]
    )
    trace = read(text)
    assert trace.arrivals == "at_once"
    assert list(trace.arrival_s) == [0.0] * 4
    assert list(trace.output_tokens) == [0, 1, 2, 3]
    (theirs,) = in_browser([text])
    assert theirs["arrivals"] == "at_once"
    spread = read(text, rate=2.0)
    assert (spread.arrivals, list(spread.arrival_s)) == ("rate", [0.0, 0.5, 1.0, 1.5])


MIXED = [
    '{"ts": 1, "prompt_tokens": 5, "completion_tokens": 6}\n{"prompt_tokens": 5, "completion_tokens": 6}\n',
    "ts,prompt_tokens\n1,5\n,5\n",
    '{"ts": 1, "input_length": 5}\n{"input_length": 5}\n',
    '{"timestamp": 1, "input_length": 600, "hash_ids": [1, 2]}\n{"input_length": 600, "hash_ids": [1, 2]}\n',
    '{"created": "yesterday", "input_length": 5}\n',
]


@pytest.mark.parametrize("text", MIXED)
def test_times_of_some_requests_only_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"time|created|ts") as caught:
        read(text)
    assert "\n" not in str(caught.value)
    assert in_browser([text])[0].get("error")


def test_the_likeliest_of_two_times_counts() -> None:
    """Of a proxy's startTime and endTime, of a server's created and its log's timestamp."""
    usage = {"prompt_tokens": 5, "completion_tokens": 6}
    texts = [
        "".join(
            json.dumps({"endTime": 50 - n, "timestamp": 1e9, "nested": {"startTime": n}, "usage": usage})
            + "\n"
            for n in range(3)
        ),
        "request_id,endTime,startTime,prompt_tokens\na,9,1,5\nb,8,3,5\n",
        "request_id,created,timestamp,prompt_tokens\na,,1,5\nb,,3,5\n",
    ]
    for text, theirs, expected in zip(texts, in_browser(texts), ([0, 1, 2], [0, 2], [0, 2]), strict=True):
        assert list(read(text).arrival_s) == theirs["times"] == expected


@pytest.mark.parametrize(
    ("value", "name", "seconds"),
    [
        ("2026-11-20T10:00:00Z", "", 1795168800),
        ("2026-11-20 12:00:00,250+02:00", "", 1795168800.25),
        ("2026/11/20 10:00", "", 1795168800),
        (1795168800123, "", 1795168800.123),
        ("1795168800123456", "", 1795168800.123456),
        (1795168800123456789, "starttimeunixnano", 1795168800.1234567),
        (3500, "timestampms", 3.5),
        (1e6, "tus", 1.0),
        (3.5, "ts", 3.5),
    ],
)
def test_moments(value: object, name: str, seconds: float) -> None:
    assert moment(value, name) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "noon",
        "nan",
        "1e999",
        10**400,
        float("inf"),
        True,
        None,
        "2026-02-30 10:00",
        "1_000",
        "2026-11-20 25:00",
        [1],
        "9" * 50,
    ],
)
def test_what_is_no_moment(value: object) -> None:
    assert moment(value) is None


def spend_log(file: Path, *, times: bool = True) -> Path:
    """The columns that a proxy's spend log has; 120 requests, one a second."""
    head = "request_id,startTime,endTime,model,prompt_tokens,completion_tokens,total_tokens,user\n"
    lines = [
        f"r{n},2026-11-20 10:{n // 60:02}:{n % 60:02}.000,2026-11-20 10:{n // 60:02}:{n % 60:02}.900,m,{2000 + 37 * n},400,0,u\n"
        for n in range(120)
    ]
    text = head + "".join(lines)
    if not times:
        text = "".join(
            ",".join(line.split(",")[:1] + line.split(",")[3:]) for line in text.splitlines(keepends=True)
        )
    file.write_text(text, encoding="utf-8")
    return file


def test_a_spend_log_needs_one_gpu_and_nobody_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = spend_log(tmp_path / "spend.csv")
    assert (
        main(
            [
                "size",
                "Qwen/Qwen3-32B",
                "--trace",
                str(file),
                *shlex.split("--gpu h200-sxm-141gb --top 1 --format json"),
            ]
        )
        == 0
    )
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["gpus"], found["preemptions"], found["notes"]) == (1, 0, [])
    assert found["wait_p95_s"] < 0.1
    plain = spend_log(tmp_path / "plain.csv", times=False)
    asked = ["size", "Qwen/Qwen3-32B", "--trace", str(plain), "--gpu", "h200-sxm-141gb", "--top", "1"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "no arrival times found: all 120 requests at once; --rate R spreads them, R a second\n"
    )
    assert main([*asked, "--rate", "1"]) == 0
    assert "no arrival times" not in capsys.readouterr().out


def test_a_replay_without_times_says_so_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = spend_log(tmp_path / "plain.csv", times=False)
    assert main(["replay", str(file), MODEL, "--gpu", GPU]) == 0
    assert capsys.readouterr().out.startswith("no arrival times found: all 120 requests at once; --rate R")
    assert main(["replay", str(file), MODEL, "--gpu", GPU, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trace"]["arrivals"] == "at_once"
    assert found["notes"] == [
        "no arrival times found: all 120 requests at once; --rate R spreads them, R a second"
    ]
    assert main(["replay", str(file), MODEL, "--gpu", GPU, "--rate", "2"]) == 0
    assert capsys.readouterr().out.startswith("120 requests over 1 min of plain.csv")


@pytest.mark.parametrize("trace", ["times", "mooncake-synthetic"])
def test_a_rate_for_recorded_times_is_refused(tmp_path: Path, trace: str) -> None:
    name = str(spend_log(tmp_path / "times.csv")) if trace == "times" else trace
    with pytest.raises(
        InputError, match=r"rate: found 2 for .*, which states arrival times; allowed: .* speed"
    ):
        kvreport.replay(name, "meta-llama/Llama-3.1-8B-Instruct", gpu=GPU, rate=2.0, limit=5)


def test_sessions_that_all_begin_at_once_are_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        turns = [{"t": 0.0, "in": 130, "out": 9, "hash_ids": [1, 2]}]
        (tmp_path / f"{name}.json").write_text(json.dumps({"id": name, "block_size": 64, "requests": turns}))
    assert read_trace(tmp_path).arrivals == "sessions_at_once"
    assert read_trace(tmp_path, rate=1.0).arrivals == "rate"
    assert read_trace(tmp_path / "a.json").arrivals == "recorded"
    answer = kvreport.replay(tmp_path, MODEL, gpu=GPU)
    assert answer.notes[0].startswith("no times between sessions found: all 2 sessions begin at once")


def test_what_is_left_out_stands_in_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["replay", "mooncake-conversation", MODEL, "--gpu", GPU, "--limit", "2000", "--order-only"]) == 0
    )
    first = capsys.readouterr().out.splitlines()[0]
    answer = kvreport.replay("mooncake-conversation", MODEL, gpu=GPU, limit=2000, order_only=True)
    long = [tokens for tokens in answer.trace.prompt_tokens if tokens >= 32_768]
    share = sum(long) / sum(answer.trace.prompt_tokens)
    assert 0 < len(long) < 200
    assert first == (
        f"{len(long)} of 2,000 requests ({len(long) / 2000:.1%}) left out, {share:.1%} of the prompt tokens: prompts of "
        "32,768 tokens or more"
    )
    found = answer.to_dict()
    assert found["trace"]["left_out_too_long"] == len(long)
    assert found["trace"]["left_out_share"] == len(long) / 2000


@pytest.mark.parametrize("command", ["replay", "size"])
def test_another_trace_than_the_stated_one_is_not_answered(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """97 % of the coding agent's prompts are beyond 32K: their hit rate was that of the other 3 %."""
    asked = {
        "replay": ["replay", "claude-code-sessions", MODEL, "--gpu", GPU, "--order-only"],
        "size": ["size", MODEL, "--trace", "claude-code-sessions", "--gpu", GPU],
    }
    assert main(asked[command]) == 2
    said = capsys.readouterr().err
    assert "1,940 of 2,000 requests (97.0%) left out" in said
    named = said.rpartition("such as ")[2].split(" ")[0]
    assert open_catalog().model(named).context_tokens > 203_526
    if command == "replay":
        assert main(["replay", "claude-code-sessions", named, "--gpu", "h200-sxm-141gb", "--order-only"]) == 0


def test_a_context_below_the_trace_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "replay",
                "mooncake-synthetic",
                "meta-llama/Llama-3.1-8B-Instruct",
                "--gpu",
                GPU,
                "--context",
                "4K",
                "--limit",
                "200",
            ]
        )
        == 2
    )
    assert "allowed: a context above" in capsys.readouterr().err


# --- budgets and guards --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"timestamp": 1' + "0" * 400 + ', "input_length": 5, "hash_ids": [1]}\n',
        '{"timestamp": 1, "input_length": 5, "hash_ids": [1], "think_time": 1' + "0" * 400 + "}\n",
        '{"timestamp": 1, "input_length": 1500, "hash_ranges": [[0, Infinity]], "block_size": 512}\n',
        '{"timestamp": 1, "input_length": 1500, "hash_ranges": [[0, NaN]], "block_size": 512}\n',
        '{"timestamp": 1, "input_length": 1500, "hash_ranges": [[0, 300000000]], "block_size": 512}\n',
        '{"timestamp": 1, "input_length": 1500, "hash_ranges": [[0, 300000000]]}\n',
        '{"timestamp": 1, "input_length": 1500, "hash_ranges": 7, "block_size": 512}\n',
        '{"timestamp": 1, "input_length": 1500, "hash_ranges": [7], "block_size": 512}\n',
        '{"chat_id": [1], "timestamp": 1, "input_length": 5, "hash_ids": [1]}\n',
        '{"timestamp": 1, "input_length": 1' + "0" * 400 + ', "hash_ids": [1]}\n',
        '{"created": 1' + "0" * 400 + ', "prompt_tokens": 5, "completion_tokens": 1' + "0" * 400 + "}\n",
        '{"requests": [{"t": 1' + "0" * 400 + ', "in": 5, "hash_ids": [1]}]}\n',
        '{"requests": [{"t": 0, "in": 5, "hash_ids": [1]}]}\n[1]\n',
        "ts,prompt_tokens\n" + "9" * 400 + ",5\n",
        'prompt_tokens,x\n5,"' + "a" * 200_000 + '"\n',
        "[{}]",
        "[\n1]",
        '{\n"input_length": 5,\n"hash_ids": 7}\n',
        "kvreport-trace 1 block=16 time=ms\n" + "9" * 12 + ",20,1;+0\n" * 2,
    ],
)  # fmt: skip
def test_no_text_gets_anything_but_an_answer_or_a_sentence(text: str) -> None:
    began = time.monotonic()
    said = ""
    try:
        assert len(read(text))
    except InputError as error:
        said = str(error)
    assert len(said) < 500
    assert "\n" not in said
    assert time.monotonic() - began < 2
    (theirs,) = in_browser([text])
    assert theirs.get("name", "Error") == "Error", theirs


def test_ranges_are_counted_before_they_are_written_out() -> None:
    line = '{"timestamp": 1, "input_length": 1500, "hash_ranges": [[0, 300000000]], "block_size": 512}\n'
    with pytest.raises(
        InputError, match=r"request 1: found 300,000,001 block ids; allowed: at most 1,048,576"
    ):
        read(line)


def test_paths_of_all_requests_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvreport.traffic.trace.MAX_PATHS", 1000)
    line = '{"timestamp": 1, "input_length": 51200, "hash_ranges": [[0, 99]], "block_size": 512}\n'
    assert len(read(line * 10)) == 10
    with pytest.raises(InputError, match="more than 1,000 block ids"):
        read(line * 11)


@pytest.mark.parametrize("place", [3, 20, 40, -9, -5])
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, place: int) -> None:
    packed = bytearray(gzip.compress(b"".join(b"%d,7\n" % n for n in range(5000))))
    packed[place] ^= 0x55
    file = tmp_path / "trace.gz"
    file.write_bytes(packed)
    said = []
    for limit in (None, 4000):
        with suppress(InputError):
            said.append(len(read_trace(file, limit=limit)))
    # What is read all the same is what was written: a flag or a name in the archive's head was changed.
    assert set(said) <= {5000, 4000}


def test_a_trace_beyond_its_budget_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 MB of gzip held 2 GB of blank lines and were read for minutes; ten million rows were refused after 74 s."""
    blank = tmp_path / "blank.gz"
    with gzip.open(blank, "wb", compresslevel=1) as out:
        for _ in range(TRACE.bytes // (1 << 22) + 2):
            out.write(b" " * 4095 * 1024 + b"\n" * 1024)
    rows = tmp_path / "rows.csv"
    with rows.open("wb") as out:
        out.write(b"10,1\n" * (TRACE.rows + 1))
    monkeypatch.setattr(readers, "_checked", None)  # no line may be read
    for file, what in ((blank, "536,870,912 bytes"), (rows, "8,388,608 lines")):
        began = time.process_time()
        with pytest.raises(
            InputError, match=f"found more than {what}; allowed: a part of it, or the first N"
        ):
            read_trace(file)
        assert time.process_time() - began < 10


def test_lines_are_counted_where_only_the_first_requests_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "TRACE", TRACE.__class__(bytes=4000, rows=300, row_bytes=1000))
    file = tmp_path / "rows.csv"
    file.write_text("10,1\n" * 5000)
    assert len(read_trace(file, limit=50)) == 50
    with pytest.raises(InputError, match="more than 300 lines"):
        read_trace(file, limit=400)


@pytest.mark.parametrize(
    ("times", "blocks", "seconds"),
    [
        ((0, 3000, 6000), True, (0, 3, 6)),
        ((0, 3000, 6000), False, (0, 3, 6)),
        ((0.5, 3.25, 6.0), False, (0.5, 3.25, 6.0)),
        ((0.5, 3000.25, 6000), True, (0.0005, 3.00025, 6)),
    ],
)
def test_parts_of_a_timestamp_are_those_of_seconds(
    times: tuple[float, ...], blocks: bool, seconds: tuple[float, ...]
) -> None:
    """With the names of Mooncake's fields they were milliseconds: eleven GPUs instead of one."""
    more = {"hash_ids": [1]} if blocks else {}
    text = "\n".join(
        json.dumps({"timestamp": at, "input_length": 9, "output_length": 2, **more}) for at in times
    )
    assert list(read(text).arrival_s) == pytest.approx(seconds)
    assert in_browser([text])[0]["times"] == pytest.approx(seconds)


CACHED = {
    "timestamp": 1,
    "input_tokens": 100,
    "cache_read_input_tokens": 3000,
    "cache_creation_input_tokens": 50,
}


@pytest.mark.parametrize(
    "text",
    [
        ",".join(CACHED) + ",output_tokens\n" + ",".join(map(str, CACHED.values())) + ",7\n",
        json.dumps({**CACHED, "output_tokens": 7}),
        json.dumps({"at": 1, "usage": {**CACHED, "output_tokens": 7}}),
    ],
)
def test_a_prompt_has_what_a_cache_held_of_it(text: str) -> None:
    """Usage that states cached tokens apart was read as prompts of what is left: one GPU instead of sixteen."""
    trace = read(text)
    assert list(trace.prompt_tokens) == in_browser([text])[0]["prompts"] == [3150]


def test_cached_tokens_alone_are_no_prompt_of_a_line() -> None:
    assert line_counts("cache_read_input_tokens=3000 input_tokens=100 output_tokens=7") == (100, 7)


SEPARATED = [
    # German and French spreadsheets write semicolons between columns and decimal commas in numbers.
    "timestamp;prompt_tokens;completion_tokens\n0,5;2000;200\n1,25;2000;300\n",
    '"timestamp";"prompt_tokens";"completion_tokens"\n"0.5";"2000";"200"\n"1.25";"2000";"300"\n',
    '"Zeit in s";prompt_tokens;output_tokens;"time"\nx;2000;200;"0,5"\ny;2000;300;"1,25"\n',
    "0,5;2000;200\n1,25;2000;300\n",
    '"0,5";2000;200\n"1,25";2000;300\n',
    "timestamp\tprompt_tokens\tcompletion_tokens\n0.5\t2000\t200\n1.25\t2000\t300\n",
]


@pytest.mark.parametrize("text", SEPARATED)
def test_semicolons_and_tabs_separate_columns(text: str) -> None:
    trace, (theirs,) = read(text), in_browser([text])
    assert list(trace.prompt_tokens) == theirs["prompts"] == [2000, 2000]
    assert list(trace.output_tokens) == theirs["outputs"] == [200, 300]
    assert list(trace.arrival_s) == theirs["times"] == [0, 0.75]


@pytest.mark.parametrize(
    "text",
    [
        "timestamp;prompt_tokens;completion_tokens\n0,5;2,000;200\n",  # two tokens, or two thousand
        "timestamp\tprompt_tokens\tcompletion_tokens\n0,5\t2000\t200\n",
        "timestamp;prompt_tokens;completion_tokens\n0,5,1;2000;200\n",
    ],
)
def test_a_comma_that_may_be_either_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"found '(2,000|0,5|0,5,1)'"):
        read(text)
    assert in_browser([text])[0].get("error")
