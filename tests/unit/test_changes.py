"""The data changelog: what two snapshots say when they are compared."""

from __future__ import annotations

from kvreport.publish.changes import compare

BEFORE = {
    "version": "2026.01.01",
    "engine": "vLLM 0.32",
    "models": {
        "a/one": {"parameters": 8_030_261_248, "token_bytes": 131_072},
        "a/two": {"parameters": 10},
    },
    "gpus": {"h100": 84_943_715_697, "old": 1},
}
AFTER = {
    "version": "2026.02.01",
    "engine": "vLLM 0.33",
    "models": {
        "a/one": {"parameters": 8_030_261_248, "token_bytes": 65_536},
        "a/three": {"parameters": 10},
    },
    "gpus": {"h100": 85_899_345_920},
}


def test_a_release_without_changes_says_nothing():
    assert list(compare(BEFORE, BEFORE)) == []


def test_every_kind_of_change_is_a_sentence():
    assert list(compare(BEFORE, AFTER)) == [
        "New models (1): a/three.",
        "Removed models (1): a/two.",
        "Removed accelerators (1): old.",
        "Engine: vLLM 0.32 became vLLM 0.33.",
        "Changed bytes per additional token at 8K (1): a/one (131,072 → 65,536).",
        "Changed usable memory (1): h100 (79.11 → 80.00 GiB).",  # 2^30 x 80 and the log's 79.11
    ]


def test_a_long_list_is_named_in_part_and_counted():
    many = {**AFTER, "models": {**AFTER["models"], **{f"b/{n:02}": {"parameters": 1} for n in range(20)}}}
    first = next(iter(compare(BEFORE, many)))
    assert first.startswith("New models (21): a/three, b/00, b/01")
    assert first.endswith("b/10 and 9 more.")
