"""What must hold for every printed figure and every value."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from kvreport.book.expressions import PARTNER, UNITS, PrintedFigure, evaluate, unit_factor

values = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)


@given(values, st.sampled_from(sorted(UNITS)), st.integers(0, 4))
@example(134.84765625, "µs", 1)  # exactly between 134,847,656.2 and .3, and neither is a double
def test_a_value_matches_what_it_is_printed_as(value, unit, digits):
    figure = PrintedFigure(f"{value / unit_factor(unit):,.{digits}f}", unit)
    assert figure.matches(value)


@given(st.floats(min_value=1, max_value=1e9), st.integers(0, 3))
def test_a_figure_is_missed_by_more_than_half_its_last_digit(value, digits):
    figure = PrintedFigure(f"{value:.{digits}f}", "")
    step = 10.0**-digits
    assert not figure.matches(figure.number + 0.51 * step)
    assert not figure.matches(figure.number - 0.51 * step)


@given(st.integers(10, 10**12))
def test_an_approximate_figure_accepts_at_least_what_an_exact_one_does(number):
    exact, about = PrintedFigure(str(number), "GB"), PrintedFigure(str(number), "GB", about=True)
    assert about.half_step >= exact.half_step


def test_every_partner_is_mutual_and_within_a_tenth():
    for unit, partner in PARTNER.items():
        assert PARTNER[partner] in (unit, "KB")
        assert 0.9 < unit_factor(unit) / unit_factor(partner) < 1.1


@given(st.integers(1, 200), st.integers(1, 128), st.sampled_from([64, 128, 256]), st.integers(1, 10**6))
def test_an_expression_is_what_python_computes(layers, heads, width, tokens):
    text = f"2 * {layers} * {heads} * {width} * 2 * {tokens}"
    assert math.isclose(evaluate(text, {}), 2 * layers * heads * width * 2 * tokens)
