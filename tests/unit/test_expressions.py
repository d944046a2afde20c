import math

import pytest

from kvreport.book.expressions import PrintedFigure, evaluate, unit_factor
from kvreport.errors import InputError

WORDS = {
    "double": lambda x: 2 * x,
    "add": lambda a, *, b=0: a + b,
    "GiB": 2**30,
    "name": len,
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("2 * 32 * 8 * 128 * 2", 131_072),
        ("double(3) + 1", 7),
        ("add(1, b=double(2))", 5),
        ("-(2 ** 3) // 3", -3),
        ("1.5 * GiB", 1.5 * 2**30),
        ('name("llama-3.1-8b")', 12),
    ],
)
def test_an_expression_is_arithmetic_over_known_words(expression, expected):
    assert evaluate(expression, WORDS) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "double.__globals__",
        "(1).__class__",
        "[1, 2][0]",
        "{'a': 1}",
        "lambda: 1",
        "1 if True else 2",
        "1 < 2",
        "double(*[1])",
        "double(**{'x': 1})",
        "unknown(1)",
        "GiB(1)",
        "double",
        "'text' * 3",
        "1 / 0",
        "10 ** 10 ** 10",
        "f'{1}'",
        "a := 1",
        "1; 2",
        "",
        "(" * 200 + "1" + ")" * 200,
        "1 + " * 200 + "1",
    ],
)
def test_nothing_else_is_an_expression(expression):
    with pytest.raises(InputError):
        evaluate(expression, WORDS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("131,072 bytes", 131_072),
        ("1.20 GB", 1.2e9),
        ("2.5 GiB", 2.5 * 2**30),
        ("≈ 40 GB", 4e10),
        ("4×", 4),
        ("85%", 0.85),
        ("57,344 bytes/token", 57_344),
        ("9 requests", 9),
        ("719 ms", 0.719),
    ],
)
def test_a_figure_is_a_number_with_its_unit(text, value):
    assert math.isclose(PrintedFigure.parse(text).value, value)


@pytest.mark.parametrize("text", ["", "GB", "12 furlongs", "1.2.3 GB", "about 3 GB"])
def test_a_figure_without_number_or_known_unit_is_refused(text):
    with pytest.raises(InputError, match="allowed"):
        PrintedFigure.parse(text)


@pytest.mark.parametrize(
    ("figure", "computed", "matches"),
    [
        ("16.06 GB", 16_060_522_496, True),  # 16.0605 prints as 16.06
        ("16.07 GB", 16_060_522_496, False),
        ("1.20 GB", 1_198_759_526, True),  # 585,331.8 B × 2,048
        ("1.20 GB", 268_435_456, False),
        ("504 requests", 504, True),
        ("504 requests", 505, False),
        ("160 KB", 163_840, False),
        ("≈ 160 KB", 163_840, True),  # "roughly 160": the zero is no exact digit
        ("≈ 40 GB", 20_971_520_000, False),
        ("88%", 0.875, True),  # a half may be rounded either way
        ("87%", 0.875, True),
    ],
)
def test_a_figure_is_held_to_its_own_digits(figure, computed, matches):
    assert PrintedFigure.parse(figure).matches(computed) is matches


def test_units_of_1000_and_1024_are_told_apart():
    assert unit_factor("KB") == 1000
    assert unit_factor("KiB") == 1024
    assert unit_factor("GB") == 10**9
    assert unit_factor("GiB") == 2**30
