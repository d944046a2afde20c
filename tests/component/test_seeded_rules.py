"""A wrong value of a rule moves the published figures: five are seeded, one at a time, and logs are judged again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvreport.catalog import engine_records, release
from kvreport.catalog.load import load_catalog
from kvreport.catalog.observation import Observation, load_observations
from kvreport.evidence.judgment import judge
from kvreport.resources import data_dir

CACHES = (
    release._rules, release._traits, release.release_at, release.release_number, release._release_of,
    engine_records.fields_at,
)  # fmt: skip
"""What remembers values of rules by the release alone."""

SEEDED = [
    ("graphs_reserved", {"0": False, "0.20": True}, {"0": False, "0.30": True}),
    (
        "sampler",
        {"0": "probabilities", "0.11": "sort", "0.17": "probabilities"},
        {"0": "probabilities", "0.11": "sort", "0.30": "probabilities"},
    ),
    ("token_line", {"0": "blocks", "0.20.1": "concurrency"}, {"0": "blocks", "0.30": "concurrency"}),
    ("loads_unsplit", {"0": False, "0.22": True}, {"0": False, "0.33": True}),
    ("steps_in_flight", {"0": 1, "0.26": 2}, {"0": 1, "0.33": 2}),
]


def forget() -> None:
    for one in CACHES:
        getattr(one, "cache_clear", lambda: None)()


@pytest.fixture
def seeding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    whole = release.public_rules("vllm")
    assert whole is not None

    def seed(name: str, stated: dict[str, Any], wrong: dict[str, Any]) -> None:
        (rule,) = (one for one in whole.rules if one.rule == name)
        assert rule.values == stated, "the seeded rule has changed: seed another value"
        rules = tuple(one.model_copy(update={"values": wrong}) if one is rule else one for one in whole.rules)
        changed = whole.model_copy(update={"rules": rules})
        for module in (release, engine_records):
            monkeypatch.setattr(module, "public_rules", lambda family: changed if family == "vllm" else None)
        forget()

    yield seed
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="module")
def logs() -> list[Observation]:
    every = load_observations(data_dir())
    return [one for one in every if one.engine == "vllm" and one.complete and one.printed.kv_tokens]


def figures(logs: list[Observation]) -> dict[str, Any]:
    found: dict[str, Any] = judge(load_catalog(data_dir()), logs)["summary"]["complete"]
    return found


def test_five_wrong_rules_move_the_published_figures(seeding: Any, logs: list[Observation]) -> None:
    right = figures(logs)
    assert right["logs"] > 200
    for name, stated, wrong in SEEDED:
        seeding(name, stated, wrong)
        moved = figures(logs)
        assert moved != right, name
        assert moved["median_error"] >= right["median_error"] or moved["p90_error"] >= right["p90_error"], (
            name
        )
