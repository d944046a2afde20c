"""Functions for numbers and arrays alike: what is written anew for speed says what the library's own says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kvreport.accounting import numeric as xp

SHAPES = st.sampled_from(
    [((3, 4), (3, 4)), ((3, 1), (1, 4)), ((4,), (3, 4)), ((), (2, 5)), ((2, 1, 3), (4, 1))]
)


@given(st.data(), SHAPES)
def test_select_takes_the_first_condition_that_holds(data, shapes):
    conditions = [data.draw(arrays.arrays(np.bool_, shape)) for shape in shapes]
    found = xp.select(conditions, [7, -2], 5)
    assert np.array_equal(found, np.select(conditions, [7, -2], 5))


@given(st.lists(st.booleans(), min_size=2, max_size=2))
def test_select_of_numbers_is_a_number(conditions):
    assert xp.select(conditions, [7, -2], 5) == int(np.select(conditions, [7, -2], 5))
