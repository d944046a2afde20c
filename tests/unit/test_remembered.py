"""What was read off a record is remembered by the record itself."""

from __future__ import annotations

from kvreport.accounting import remembered as module
from kvreport.accounting.engines.vllm.reserve import ReserveRates, rates_of
from kvreport.accounting.remembered import remembered
from kvreport.catalog.load import open_catalog


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


def test_records_are_told_apart_by_identity_and_plain_values_by_what_they_say() -> None:
    read: list[tuple[object, ...]] = []

    @remembered
    def of(record: object, name: str, number: int) -> int:
        read.append((record, name, number))
        return len(read)

    one, two = [1], [1]
    assert of(one, "NVIDIA", 1000) == of(one, "nvidia".upper(), int("1000")) == 1
    assert of(two, "NVIDIA", 1000) == 2
    assert of(one, "AMD", 1000) == 3
    assert of(one, "NVIDIA", 1001) == 4
    assert len(read) == 4


def test_rates_are_read_once_for_a_maker_whose_name_is_put_together() -> None:
    """Each reserve read its rates again, more than half of what a search for deployments took."""
    catalog = open_catalog()
    model, engine = catalog.model("meta-llama/Llama-3.1-8B-Instruct"), catalog.engine("vllm")
    told = (False, True, True, False, False, "nvidia", False, False, 1, 1)
    first, again = (
        rates_of(model, engine, 2, *(one.upper() if isinstance(one, str) else one for one in told))
        for _ in range(2)
    )
    assert isinstance(first, ReserveRates)
    assert first is again
