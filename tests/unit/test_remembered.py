"""What was read off a record is remembered by the record itself."""

from __future__ import annotations

from kvreport.accounting import remembered as module
from kvreport.accounting.remembered import remembered


def test_the_same_objects_are_read_once_and_equal_ones_again():
    read = []

    @remembered
    def length(record: list[int]) -> int:
        read.append(record)
        return len(record)

    first = [1, 2]
    assert [length(first), length(first)] == [2, 2]
    assert len(read) == 1
    assert length([1, 2, 3]) == 3
    assert len(read) == 2


def test_it_forgets_and_never_mistakes_a_new_object_for_one_that_is_gone(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 3)

    @remembered
    def first(record: list[int]) -> int:
        return record[0]

    # Each list is thrown away at once, so that the next one could have its identity.
    assert [first([number]) for number in range(50)] == list(range(50))
