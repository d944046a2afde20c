"""The translator: what it makes of its subset, and that it refuses the rest."""

from __future__ import annotations

import math

import pytest
from javascript import call

from kvreport import words
from kvreport.publish.browser import declarations, script
from kvreport.publish.javascript import PRELUDE, TranslationError, translate

SIGNATURE = "def f(x: int) -> int:\n"


def run(source: str, *calls: tuple[str, list[object]]) -> list[object]:
    made = translate(source)
    return call(f"{PRELUDE}{made.body}\nglobalThis.kvKernel = {{ {', '.join(made.names)} }};", calls)


@pytest.mark.parametrize(
    "body",
    [
        "    a, b = x, x\n    a += b\n    return a",
        "    return x if x else 1",  # a number is no condition: 0 and NaN differ
        "    return x and 1",
        "    return x << 2",
        "    return x @ x",
        "    return str(x)[0]",
        "    return [y for y in [x] if y > 0][0]",
        "    return lambda: x",
        "    return f(x=x)",
        "    return math.sin(x)",
        "    return x is None",
        "    with x:\n        return 1",
        "    try:\n        return 1\n    finally:\n        pass",
        "    for y in [x]:\n        pass\n    return y",
        "    raise ValueError(x)",
        "    del x",
        "    x.y = 1\n    return x",
    ],
)
def test_what_is_outside_the_subset_is_refused_with_its_line(body):
    with pytest.raises(TranslationError, match=r"^line \d+: .* cannot be translated$"):
        translate(f"{SIGNATURE}{body}\n")


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: int = 1) -> int:\n    return x\n",
        "def f(*x: int) -> int:\n    return 1\n",
        "@cache\ndef f(x: int) -> int:\n    return x\n",
        "class A(Base):\n    x: int\n",
        "X: Final = len([1])\n",
        "def f(x: set[int]) -> int:\n    return 1\n",
        "print(1)\n",
        "async def f(x: int) -> int:\n    return 1\n",
    ],
)
def test_a_module_outside_the_subset_is_refused(source):
    with pytest.raises(TranslationError):
        translate(source)


def test_an_argument_without_a_type_is_refused():
    with pytest.raises(ValueError, match="without an annotation"):
        translate("def f(x) -> int:\n    return x\n")


def test_division_and_remainder_round_as_python_rounds():
    source = """
def floor(a: int, b: int) -> int:
    return a // b

def rest(a: int, b: int) -> int:
    return a % b

def near(x: float) -> int:
    return round(x)

def share(x: float) -> float:
    return round(x, 3)
"""
    pairs = [(a, b) for a in (-7, -6, 0, 5, 7, 2**52 - 1) for b in (-4, 3, 4)]
    answers = run(source, *(("floor", [a, b]) for a, b in pairs), *(("rest", [a, b]) for a, b in pairs))
    assert answers == [a // b for a, b in pairs] + [a % b for a, b in pairs]
    halves = [-2.5, -1.5, -0.5, 0.49999999999999994, 0.5, 1.5, 2.5, 3.49, 2.0**52 + 1]
    assert run(source, *(("near", [x]) for x in halves)) == [round(x) for x in halves]
    shares = [0.8125, 0.6875, 0.9625, 0.8875, 0.0005, 0.12345, 1.0, *(n / 1024 for n in range(0, 1024, 7))]
    assert run(source, *(("share", [x]) for x in shares)) == [round(x, 3) for x in shares]


def test_statements_mean_what_they_mean_in_python():
    source = """
def path(xs: Sequence[tuple[int, int]], flag: bool) -> list[int]:
    total = 0
    for a, b in xs:
        if a < b <= 10 and not flag:
            total += b - a
        elif a == b:
            total -= 1
        else:
            seen = a
            total += seen
    while total > 100:
        total = total // 2
    for n in range(3):
        total += n
    return [total, len(xs)]
"""

    def path(xs, flag):
        space = {}
        exec(source.replace("Sequence", "list"), space)  # noqa: S102 - the same source, run as Python
        return space["path"](xs, flag)

    cases = [([[1, 5], [2, 2], [7, 3]], False), ([[1, 5]], True), ([[500, 1]], False), ([], False)]
    assert run(source, *(("path", list(case)) for case in cases)) == [path(*case) for case in cases]


def test_infinity_and_unknown_pass_through():
    source = """
def seen(x: float) -> float:
    return math.inf if math.isnan(x) else x
"""
    assert run(source, ("seen", [math.nan]), ("seen", [2.5])) == [math.inf, 2.5]


def test_the_script_has_the_words_and_no_module_of_its_own():
    text = script()
    assert '"serving_verdicts":["fits","tight"]' in text
    for word in ("import ", "require(", "eval(", "new Function"):
        assert word not in text
    assert "readonly words:" in declarations()
    assert set(words.NO_REQUEST) < set(words.VERDICTS) == set(words.ALL["verdict_labels"])
