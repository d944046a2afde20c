"""Every flag that takes a number, of every command: absurd values are refused, odd ones are answered or refused.

The flags are read from the parser, so a new one is tried as soon as it exists; a new way to write a value
(a metavar) that is in none of the tables here fails the test. Each flag is tried with every fifth value, in turns; with
every one when fuzzing.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import product
from pathlib import Path

import pytest
import tiny
from fuzzing import thinned

from kvreport.cli import main, parser

WHOLE = {"N", "SIZES", "I/N", "N,N"}
SIZES = {"SIZE", "TOKENS"}
REALS = {"F", "NUMBER", "R", "RATE", "S", "TIME"}
PAIRS = {"KIND=N": "image=", "GPU=PRICE": "H100="}
LISTS = {"LIST"}
"""Numbers for some flags, names for others."""
NAMES = {"ID",
    None, "DIR", "FILE", "FORMAT", "FORMATS", "GLOB", "GPU", "MODEL", "NAME", "NAMES", "ORG/NAME", "REV", "TYPE",
    "ADDRESS", "KEYS", "PATTERN=BUFFER", "PYTHON", "UNIT", "URL",
}  # fmt: skip

ABSURD = (
    "nan", "inf", "-inf", "1e300", "99999999999999999999999", "1" * 400, "٣", "１", "½", "", "0x10", "10^15", "1/0", "--1",
    "1000000000000000", "__1", "1 2", "1;2", "\u202e1",
)  # fmt: skip
"""No number, or one that nothing has: refused by every flag for a number."""
ABSURD_SIZES = ("1000TB", "1000000000GiB", "0GB", "-1GiB", "1QB")
ODD = (" 8 ", "8\n", "+8", "0", "-0", "-1", "0.0000001", "1.0000001", "1e3", "1_000", "1__", "1000000")
"""A number, or none, by the flag: one sentence, or an answer that is finite."""
ODD_NAMES = ("", " ", "\0", "a" * 3000, "*", "../..", "\u202e", "\ud800", "=", "@", "-", "nan")

COMMANDS = {
    "estimate": ["llama-3.1-8b", "--gpu", "H100", "--format", "json"],
    "size": ["llama-3.1-8b", "--gpu", "H100", "--context", "8K", "--concurrent", "4", "--format", "json"],
    "replay": ["trace.jsonl", "llama-3.1-8b", "--gpu", "H100", "--limit", "5", "--order-only", "--format", "json"],
    "diff": ["vllm@0.19.0", "vllm@0.27.0", "--model", "qwen/qwen3-8b", "--gpu", "H100", "--format", "json"],
    "log": ["start.log", "--format", "json"],
    "preflight": ["server.sh", "--gpu", "H100", "--format", "json"],
    "claim": [
        "--model", "qwen3-8b", "--quantity", "kv_request", "--value", "1.2", "--unit", "GB", "--context", "8K",
        "--format", "json",
    ],
    "matrix": ["--models", "nosuch", "--out", "matrix", "--data", "catalog"],
}  # fmt: skip
"""Commands with numbers, and what makes each of them answer; a matrix is refused for its model where nothing else is wrong."""


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def flags(command: str) -> list[argparse.Action]:
    return [
        action
        for action in commands()[command]._actions
        if action.option_strings and action.nargs != 0 and not action.choices
    ]


def test_every_flag_is_of_a_kind_that_is_tried():
    known = WHOLE | SIZES | REALS | set(PAIRS) | LISTS | NAMES
    for command in commands():
        for action in flags(command):
            assert action.metavar in known, (command, action.option_strings)
            if action.metavar not in NAMES:
                assert command in COMMANDS, (command, action.option_strings)
            assert action.type not in (int, float), (
                f"{action.option_strings[0]}: kvreport.cli.numbers has bounds"
            )


@pytest.fixture
def answering(tmp_path: Path, repository: Path, monkeypatch, capsys):
    """Return what a command says: its status, after holding what it printed."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"timestamp": n, "input_length": 1000 + n, "output_length": 100, "hash_ids": [1, n]} for n in range(9)
    ]
    Path("trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tiny.copy_catalog(repository, Path("catalog"))
    Path("server.sh").write_text("vllm serve Qwen/Qwen3-8B --max-model-len 8192\n", encoding="utf-8")
    Path("start.log").write_text("INFO Available KV cache memory: 10.0 GiB\n", encoding="utf-8")

    def answer(command: str, flag: str, value: str) -> int:
        words = [command, *COMMANDS[command]]
        if flag in words:
            place = words.index(flag)
            del words[place : place + 2]
        status = main([*words, f"{flag}={value}"])
        out, err = capsys.readouterr()
        said = (command, flag, value, err[:300])
        assert status in (0, 2, 3), said
        if status == 2:
            assert err.startswith("kvreport: error: "), said
            assert err.count("\n") == 1, said
            assert err.strip().isprintable(), said
            assert len(err) < 700, said
        else:
            assert finite(json.loads(out)), said
        return status

    return answer


def finite(found: object) -> bool:
    if isinstance(found, dict):
        return all(map(finite, found.values()))
    if isinstance(found, list):
        return all(map(finite, found))
    return not isinstance(found, float) or math.isfinite(found)


def numbers(command: str) -> list[tuple[str, str]]:
    """Flags for numbers, and what stands before the number."""
    # What replay shares with estimate is read by the same code from the same table.
    shared = {action.option_strings[0] for action in flags("estimate")} if command == "replay" else set()
    return [
        (action.option_strings[0], PAIRS.get(action.metavar, ""))
        for action in flags(command)
        if action.metavar in WHOLE | SIZES | REALS | set(PAIRS)
        and (action.option_strings[0] not in shared or action.option_strings[0] == "--host-memory")
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_absurd_value_is_refused_in_one_sentence(command: str, answering) -> None:
    kinds = {action.option_strings[0]: action.metavar for action in flags(command)}
    every = [
        (flag, before + value)
        for flag, before in numbers(command)
        for value in (*ABSURD, *(ABSURD_SIZES if kinds[flag] in SIZES else ()))
    ]
    for flag, value in thinned(every, 5):
        assert answering(command, flag, value) == 2, (flag, value)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_odd_value_is_refused_or_answered(command: str, answering) -> None:
    every = [(flag, before + value) for flag, before in numbers(command) for value in ODD]
    for flag, value in thinned(every, 5):
        answering(command, flag, value)


@pytest.mark.parametrize("command", ["estimate", "diff", "log", "claim"])
def test_an_absurd_name_is_refused_or_answered(command: str, answering) -> None:
    tried = {action.option_strings[0] for action in flags(command)} - {one for one, _ in numbers(command)}
    for flag, value in thinned(list(product(sorted(tried - {"--data", "--revision"}), ODD_NAMES)), 5):
        answering(command, flag, value)


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("estimate --memory 1000TB", "at most 16 TiB"),
        ("estimate --kv-pool 17TiB", "at most 16 TiB"),
        ("estimate --kv-offload 1000TB", "at most 128 TiB"),
        ("replay --host-memory 1000TB", "at most 128 TiB"),
        ("estimate --require 99999999999999999999999", "from 1 to 1,073,741,824"),
        ("size --available 99999999999999999999999", "from 1 to 1,073,741,824"),
        ("size --max-seqs 99999999999999999999999", "from 1 to 1,073,741,824"),
        ("size --top -1", "from 1"),
        ("replay --rate inf", "a number from 0 to 1,000,000,000"),
        ("size --tensor-parallel ,", "one or several"),
    ],
)
def test_the_sentence_says_the_bound(line: str, most: str, tmp_path: Path, monkeypatch, capsys) -> None:
    command, flag, value = line.split()
    monkeypatch.chdir(tmp_path)
    Path("trace.jsonl").write_text(
        '{"timestamp": 0, "input_length": 1000, "output_length": 100, "hash_ids": [1, 2]}\n', encoding="utf-8"
    )
    assert main([command, *COMMANDS[command], f"{flag}={value}"]) == 2
    assert most in capsys.readouterr().err


def test_a_replay_has_a_host_tier_of_the_size_asked_for(tmp_path: Path, monkeypatch, capsys) -> None:
    """Its flag had the name of another command's, and stopped every replay with a traceback."""
    monkeypatch.chdir(tmp_path)
    Path("trace.jsonl").write_text(
        '{"timestamp": 0, "input_length": 1000, "output_length": 100, "hash_ids": [1, 2]}\n', encoding="utf-8"
    )
    assert main(["replay", *COMMANDS["replay"], "--host-memory", "64GiB"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 63 << 30 < found["host_bytes"] <= 64 << 30
