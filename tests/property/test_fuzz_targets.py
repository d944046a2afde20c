"""Each fuzz target on a few inputs, the same in every build; `make fuzz` gives them many more."""

from __future__ import annotations

import random

import fuzz_targets
import fuzzing
import mutants
import pytest

from kvreport.dataset import grid
from kvreport.dataset.matrix import matrix

INPUTS = 2000
"""Inputs of all targets together in an ordinary build."""
LEAST = 20
"""Inputs of each target at least, and as many more as it takes until one is answered."""


@pytest.mark.parametrize("target", fuzz_targets.TARGETS)
def test_a_target_breaks_nothing(target: str) -> None:
    wanted = max(LEAST, fuzzing.examples(INPUTS) * fuzz_targets.SHARES[target] // 1000)
    first = 0 if fuzzing.TIMES == 1 else random.SystemRandom().randrange(1 << 32)
    tried = answered = 0
    for seed in range(first, first + 4 * wanted):
        what, inputs = fuzz_targets.tried(target, seed)
        tried += inputs
        answered += inputs if what == "answered" else 0
        if tried >= wanted and answered:
            break
    fuzzing.counted("inputs", tried)
    assert answered, "a target whose every input is refused tries nothing"


@pytest.mark.parametrize(
    ("target", "seed"),
    [
        ("estimate relation", 11_000_000_882),  # a pipeline stage without caches: a pool of -1 tokens
        (
            "estimate relation",
            12_000_001_388,
        ),  # less memory than SGLang's ranks take: graphs of negative bytes
        ("estimate relation", 22_000_001_311),  # the same: activations of negative bytes
        (
            "record mutation",
            12_010_000_382,
        ),  # SGLang's pool of states held no request, and the verdict was tight
        ("size relation", 6_000_000_063),  # more sequences than states, but for the limit in the command
    ],
)
def test_what_broke_something_stays_mended(target: str, seed: int) -> None:
    fuzz_targets.tried(target, seed)


def test_every_target_has_its_share() -> None:
    assert fuzz_targets.SHARES.keys() == fuzz_targets.TARGETS.keys()
    assert sum(fuzz_targets.SHARES.values()) == 1000


def test_a_seed_is_one_input() -> None:
    """The same for the same target and seed, another for another."""
    draws = [[fuzz_targets.drawn(name, seed).random() for seed in (1, 1, 2)] for name in ("one", "two")]
    assert draws[0][0] == draws[0][1] != draws[0][2]
    assert draws[0][0] != draws[1][0]


def test_a_wrong_answer_is_found_and_its_seed_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that cannot fail holds nothing: an estimate that promises too much is told by its seed."""
    ask = fuzz_targets.kvreport.estimate

    def too_many(*words: object, **named: object) -> object:
        class Told:
            def to_dict(self) -> dict[str, object]:
                found = ask(*words, **named).to_dict()
                return found | {"max_concurrent_requests": 1 << 41}

        return Told()

    monkeypatch.setattr(fuzz_targets.kvreport, "estimate", too_many)
    told = []
    for seed in range(20):
        try:
            fuzz_targets.tried("estimate relation", seed)
        except AssertionError as error:
            told.append(str(error))
    assert told
    assert all(line.startswith("fuzz target 'estimate relation', seed ") for line in told)


@pytest.mark.parametrize("seed", range(50))
def test_mutations_keep_what_they_are_given_readable(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - examples, no secrets
    assert mutants.misspelled(draw, "hidden_size")
    assert isinstance(mutants.octets(draw, b"GGUF" * 20), bytes)
    document = {"a": [1, 2, {"b": 3}], "c": "text"}
    assert list(mutants.places(document)) == [("a",), ("a", 0), ("a", 1), ("a", 2), ("a", 2, "b"), ("c",)]
    mutants.tree(draw, document)
    assert isinstance(mutants.text(draw, "GPU KV cache size: 21,360 tokens"), str)


@pytest.mark.parametrize("model", ["nvidia/Qwen3.5-122B-A10B-NVFP4", "Qwen/Qwen3-8B"])
def test_a_row_of_one_machine_agrees_with_an_estimate_of_several(model: str) -> None:
    """Every accelerator of which a machine holds one, at sizes that need several machines."""
    known, draw = fuzz_targets.catalog(), fuzz_targets.drawn("rows of one machine", 7)
    alone = [one.id for one in known.accelerators.values() if one.most_per_machine == 1]
    axes = grid.axes(
        known, models=model, gpus=",".join(alone), contexts=[4096, 65536], tensor_parallel=[2, 4, 8]
    )
    cubes = list(matrix(axes))
    compared = sum(fuzz_targets.compare_cell(draw, cube) for cube in cubes for _ in range(15))
    assert compared == 15 * len(cubes) > 0
