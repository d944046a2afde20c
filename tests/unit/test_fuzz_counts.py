"""What `make fuzz` says it tried is what hypothesis tried."""

from types import SimpleNamespace

import fuzzing
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.statistics import collector, describe_statistics


def test_inputs_are_counted_as_the_installed_hypothesis_words_them():
    seen, stats = [], []

    @settings(max_examples=37, database=None, derandomize=True)
    @given(st.integers())
    def property_of_numbers(number):
        seen.append(number)

    with collector.with_value(stats.append):
        property_of_numbers()
    item = SimpleNamespace(hypothesis_statistics=describe_statistics(stats[0]))
    assert fuzzing.take_counts(item)["inputs"] == len(seen) == 37
