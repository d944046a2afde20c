"""Every memory size that is sold: names find machines that the matrix does not have."""

from __future__ import annotations

import pytest

from kvreport.catalog.home import home_accelerators
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.size import size


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog()


@pytest.mark.parametrize(
    ("name", "id_", "usable_mib"),
    [
        ("m4-max-64", "m4-max-64", 53084),
        ("M4 Max 64GB", "m4-max-64", 53084),
        ("m4-pro-48", "m4-pro-48", 38338),
        ("M1 Pro 16GB", "m1-pro-16", 10922),
        ("rtx-4070-12gb", "rtx-4070-12gb", 11866),
    ],
)
def test_a_size_is_a_name(catalog: Catalog, name: str, id_: str, usable_mib: int) -> None:
    """By id or by words, with the memory that logs of that size show."""
    found = catalog.accelerator(name)
    assert found.id == id_
    assert found.usable_bytes == usable_mib << 20
    assert found.memory.usable.evidence == "observed"


def test_records_of_their_own_come_first(catalog: Catalog) -> None:
    """No size is listed twice: data/accelerators has the ones with logs."""
    assert not set(home_accelerators()) & set(catalog.accelerators)


def test_sizes_from_small_to_large() -> None:
    """Cards from 6 GB, Macs from 8 to 256 GB beside the 512 GB record; more memory is never less usable."""
    found = home_accelerators().values()
    cards = {one.memory.advertised.value >> 30 for one in found if one.vendor == "NVIDIA"}
    assert {6, 8, 10, 11, 12, 16, 24} <= cards
    macs = sorted((one.memory.advertised.value, one.usable_bytes) for one in found if one.vendor == "Apple")
    assert macs[0][0] == 8 << 30
    assert macs[-1][0] == 256 << 30
    assert [usable for _, usable in macs] == sorted(usable for _, usable in macs)
    assert all(one.usable_bytes < one.memory.advertised.value for one in found)


def test_an_unknown_size_names_the_nearest(catalog: Catalog) -> None:
    """The message names sizes that exist."""
    with pytest.raises(InputError, match="m4-max-48"):
        catalog.accelerator("m4-max-47")


def test_memory_states_any_other_size(catalog: Catalog) -> None:
    """``--memory`` is what ``iogpu.wired_limit_mb`` was set to."""
    answer = estimate(
        "Qwen/Qwen3-8B",
        gpu="m4-max-64",
        engine="llama-cpp",
        memory="60GiB",
        context_tokens=4096,
        catalog=catalog,
    )
    assert answer.budget.total_bytes == 60 << 30


def test_sizing_knows_every_size(catalog: Catalog) -> None:
    """``size --gpu`` takes names that the matrix does not have."""
    found = size(
        "Qwen/Qwen3-8B", context=4096, gpus=["rtx-4070-12gb"], weights=["q4_k_m"], engine="llama-cpp",
        concurrent=1, catalog=catalog,
    ).to_dict()  # fmt: skip
    assert found["deployments"][0]["gpu"] == "rtx-4070-12gb"
