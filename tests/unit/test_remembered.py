"""Answers that are remembered by the records that they are of."""

from __future__ import annotations

from kvreport.accounting.remembered import remembered


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
    """Each reserve read its rates again, three quarters of what a search for deployments took."""
    from kvreport.accounting.engines.vllm.reserve import ReserveRates, rates_of
    from kvreport.catalog.load import open_catalog

    catalog = open_catalog()
    model, engine = catalog.model("meta-llama/Llama-3.1-8B-Instruct"), catalog.engine("vllm")
    told = (False, True, True, False, False, "nvidia", False, False, 1, 1)
    first, again = (
        rates_of(model, engine, 2, *(one.upper() if isinstance(one, str) else one for one in told))
        for _ in range(2)
    )
    assert isinstance(first, ReserveRates)
    assert first is again
