"""What `make fuzz` says it tried is what hypothesis tried."""

import importlib
import sys
from types import SimpleNamespace

import fuzz_targets
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


def test_the_page_shows_what_is_recorded(repository):
    """The tables of the page are those of data/trials.yaml, and its counts add up."""
    sys.path.append(str(repository / "scripts"))
    trials = importlib.import_module("trials")
    known = trials.read()
    page = (repository / "docs/about/reliability.md").read_text(encoding="utf-8")
    assert page == trials.filled(page, known)
    total = sum(one["inputs"] for run in known["fuzz"] for one in run["targets"].values())
    assert f"{total:,}" in page
    text, words = (
        " ".join(page.split()),
        [
            "No",
            "One",
            "Two",
            "Three",
            "Four",
            "Five",
            "Six",
            "Seven",
            "Eight",
            "Nine",
            "Ten",
            "Eleven",
            "Twelve",
            "Thirteen",
            "Fourteen",
        ],
    )
    for day in {run["date"] for run in known["fuzz"]}:  # what broke is said with what became of it
        broke = sum(
            one["broken"] for run in known["fuzz"] if run["date"] == day for one in run["targets"].values()
        )
        assert not broke or f"{words[broke]} inputs broke kvreport on {day}." in text
        assert not broke or "which are now fixed." in text
    assert len({one["digest"] for one in known["variation"][-1]["builds"]}) == 1
    assert sum(known["kills"][-1]["counts"].values()) >= 100
    assert known["kills"][-1]["wrong"] == 0
    assert {one for run in known["fuzz"] for one in run["targets"]} == set(fuzz_targets.TARGETS)
