"""Slices of a device (multi-instance GPU) as devices of their own."""

import pytest

from kvreport.catalog.load import Catalog, open_catalog
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog()


@pytest.mark.parametrize(("name", "listed"), [("1g.10gb", 9.75), ("2g.20gb", 19.62), ("3g.40gb", 39.50)])
def test_a_slice_has_at_most_the_memory_that_the_driver_lists(
    catalog: Catalog, name: str, listed: float
) -> None:
    # nvidia-smi mig -lgip on an H100 80GB: 9.75, 19.62 and 39.50 GiB
    found = catalog.accelerator(f"h100-{name}")
    assert listed - 0.15 < found.usable_bytes / GIB <= listed


@pytest.mark.parametrize(
    "name", ["h100-sxm-80gb-1g.10gb", "H100:1g.10gb", "H100 MIG 1g.10gb", "h100/1g.10gb"]
)
def test_a_slice_goes_by_several_names(catalog: Catalog, name: str) -> None:
    found = catalog.accelerator(name)
    assert (found.id, found.slice_of) == ("h100-sxm-80gb-1g.10gb", "h100-sxm-80gb")
    whole = catalog.accelerator("h100")
    assert found.bandwidth_bytes_per_s.value == whole.bandwidth_bytes_per_s.value // 8
    assert found.rates.bf16.value == whole.rates.bf16.value // 7


def test_a_model_is_served_on_a_slice(catalog: Catalog) -> None:
    found = estimate("Qwen/Qwen2.5-3B-Instruct", gpu="h100:1g.20gb", context_tokens=8192, catalog=catalog)
    whole = estimate("Qwen/Qwen2.5-3B-Instruct", gpu="h100", context_tokens=8192, catalog=catalog)
    assert 0 < found.max_concurrent_requests < whole.max_concurrent_requests / 4


def test_slices_are_not_joined_and_unknown_ones_are_named(catalog: Catalog) -> None:
    with pytest.raises(InputError, match=r"allowed: one, because slices have no link.*h100-sxm-80gb whole"):
        estimate("llama-3.1-8b", gpu="h100:1g.10gb", tensor_parallel=2, catalog=catalog)
    with pytest.raises(
        InputError, match=r"found slice '1g\.11gb' of h100-sxm-80gb; allowed: 1g\.10gb, 1g\.20gb"
    ):
        catalog.accelerator("h100:1g.11gb")
    with pytest.raises(InputError, match=r"it has no slices that are known"):
        catalog.accelerator("rtx-4090:1g.10gb")


def test_every_slice_is_a_part_of_its_device(catalog: Catalog) -> None:
    for device in catalog.accelerators.values():
        for one in device.slices:
            assert one.memory[0] <= one.memory[1]
            assert one.instances * one.memory[0] <= one.memory[1]
            assert device.sliced(one.name).usable_bytes < device.usable_bytes
