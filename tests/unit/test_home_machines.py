"""Every memory size that is sold: names find machines that the matrix does not have."""

from __future__ import annotations

from typing import Any

import pytest

from kvreport.catalog.home_machines import home_accelerators
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.conclusion import headline
from kvreport.estimation.home_size import size_home
from kvreport.estimation.size import size


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


def test_a_computer_is_a_name_where_its_words_leave_one_chip(catalog: Catalog) -> None:
    """ "mac studio" was an unknown name, without a word about its chips."""
    for name in ("Mac Studio 512GB", "mac studio m3 ultra 512gb", "mac-studio-m3-ultra-512"):
        assert catalog.accelerator(name).id == "m3-ultra-512"
    assert catalog.accelerator("MacBook Pro M4 Pro 24 GB").id == "m4-pro-24"
    with pytest.raises(
        InputError, match=r"'mac studio': means m1-max-32, .*, m3-ultra-512, .*; allowed: one of"
    ):
        catalog.accelerator("mac studio")
    with pytest.raises(InputError, match="allowed: a known name"):
        catalog.accelerator("mac studio 47gb")


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


@pytest.mark.parametrize(
    ("printed", "id_"),
    [
        ("Tesla P40", "p40-24gb"),
        ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),
        ("NVIDIA GeForce RTX 4090 D", "rtx-4090-d-24gb"),
        ("RTX 4090 48GB", "rtx-4090-48gb"),
        ("4090 48GB", "rtx-4090-48gb"),
        ("4090D 48GB", "rtx-4090-d-48gb"),
        ("2080 Ti 22GB", "rtx-2080ti-22gb"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "rtx-5090-laptop-24gb"),
        ("NVIDIA GeForce RTX 5090 D V2", "rtx-5090-d-v2-24gb"),
        ("NVIDIA RTX A2000 12GB", "rtx-a2000-12gb"),
        ("NVIDIA RTX 4500 Ada Generation", "rtx-4500-ada-24gb"),
        ("AMD Radeon RX 7900 GRE", "rx-7900-gre-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX 3080", "rtx-3080-10gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q-96gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-ws"),
        ("NVIDIA RTX PRO 4000 Blackwell", "rtx-pro-4000-24gb"),
        ("AMD Instinct MI60", "mi60-32gb"),
        ("V620", "pro-v620-32gb"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("Radeon RX 9070 XT", "rx-9070-xt-16gb"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "arc-pro-b60"),
        ("DGX Station", "gb300-dgx-station"),
    ],
)
def test_names_are_found_as_drivers_and_shops_print_them(catalog: Catalog, printed: str, id_: str) -> None:
    """Words of a maker or a driver change nothing; a modified card is not what its plain name means."""
    assert catalog.accelerator(printed).id == id_


def test_a_name_of_two_sizes_names_both(catalog: Catalog) -> None:
    """A driver's name without its size does not choose one."""
    with pytest.raises(InputError, match="mi50-16gb, mi50-32gb"):
        catalog.accelerator("AMD Instinct MI50")


def test_an_unknown_size_names_the_nearest(catalog: Catalog) -> None:
    """The message names sizes that exist."""
    with pytest.raises(InputError, match="m4-max-48"):
        catalog.accelerator("m4-max-47")


def test_memory_states_any_other_size() -> None:
    """``--memory`` is what ``iogpu.wired_limit_mb`` was set to."""
    answer = estimate(
        "Qwen/Qwen3-8B", gpu="m4-max-64", engine="llama-cpp", memory="60GiB", context_tokens=4096
    )
    assert answer.budget.total_bytes == 60 << 30


@pytest.mark.parametrize(
    ("gpu", "memory", "most"),
    [("m4-16", "600GiB", "16 GiB"), ("dgx-spark-gb10", "400GiB", "128 GiB"), ("ryzen-ai-max-395", "129GiB", "128 GiB"),
     ("H100", "400GiB", "320 GiB, 4 times the 80 GiB"), ("h100-1g.10gb", "40GiB", "10 GiB")],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["llama-cpp", "vllm"])
def test_no_device_has_more_memory_than_it_can_have(gpu: str, memory: str, most: str, engine: str) -> None:
    with pytest.raises(InputError, match=f"memory: found .*allowed: at most {most}"):
        estimate("Qwen/Qwen3-8B", gpu=gpu, engine=engine, memory=memory, context_tokens=8192)


def test_the_headline_says_that_a_card_is_modified() -> None:
    """``--memory 48GiB`` is an RTX 4090 of 48 GiB, and less than is installed is any card's."""
    asked: dict[str, Any] = {"context_tokens": 8192}
    more = estimate("Qwen/Qwen3-8B", gpu="rtx-4090", memory="48GiB", **asked)
    assert "RTX 4090 with 48 GiB instead of the 24 GiB that it is sold with" in headline(more)
    less = estimate("Qwen/Qwen3-8B", gpu="rtx-4090", memory="22GiB", **asked)
    assert "instead of" not in headline(less)


def test_memory_says_nothing_of_the_engine() -> None:
    """A machine at home stays one with ``--memory`` or ``--held-by-others``; a server's flag means a server."""
    engines = {
        name: estimate("openai/gpt-oss-120b", gpu="strix halo", **flag).request.engine.name
        for name, flag in {
            "memory": {"memory": "110GiB"}, "held": {"held_by_others": "2GiB"}, "none": {}, "share": {"max_seqs": 8},
        }.items()
    }  # fmt: skip
    assert engines == {"memory": "llama-cpp", "held": "llama-cpp", "none": "llama-cpp", "share": "vllm"}


@pytest.mark.parametrize("engine", ["llama-cpp", "ollama", "mlx"])
@pytest.mark.parametrize("gpu", ["2xm3-ultra-96", "2xm3-ultra-256", "m4-max-64+m4-max-128"])
def test_an_engine_of_one_machine_is_not_answered_on_two(gpu: str, engine: str) -> None:
    with pytest.raises(InputError, match=r"gpu: found 2 for .*, and one machine holds 1 of M[34]"):
        estimate("Qwen/Qwen3-235B-A22B", gpu=gpu, engine=engine, context_tokens=8192)


@pytest.mark.parametrize("gpu", ["m4-max-64+rtx-4090", "rtx-4090+m3-ultra-96"])
def test_an_engine_computes_on_a_mac_s_own_gpu_alone(gpu: str) -> None:
    with pytest.raises(InputError, match=r"gpu: found GeForce RTX 4090 with M[34] .* on a Mac with Metal"):
        estimate("Qwen/Qwen3-32B", gpu=gpu, engine="llama-cpp", context_tokens=8192)


@pytest.mark.parametrize("gpu", ["12xrtx-3090", "8xh100-sxm-80gb", "ryzen-ai-max-395+rtx-4090"])
def test_devices_of_one_machine_share_the_layers(gpu: str) -> None:
    """A rig holds as many cards as somebody put there, a board its own number, and a computer may have a card."""
    found = estimate("Qwen/Qwen3-32B", gpu=gpu, engine="llama-cpp", weights="q4_k_m", context_tokens=8192)
    assert found.verdict == "fits"
    assert " machines" not in headline(found)


def test_a_computer_is_no_card(catalog: Catalog) -> None:
    """Machines at home compute in their own memory, so that a machine holds one of them."""
    for machine in catalog.home_accelerators.values():
        assert machine.is_card != machine.is_unified
        assert (machine.most_per_machine == 1) == machine.is_unified


def test_sizing_knows_every_size() -> None:
    """``size --gpu`` takes names that the matrix does not have."""
    (home,) = size_home("Qwen/Qwen3-8B", context=4096, gpus=["rtx-4070-12gb"], weights=["q4_k_m"])
    assert home.machine == "rtx-4070-12gb"
    served = size(
        "Qwen/Qwen3-8B", context=4096, gpus=["rtx-4070-12gb"], weights=["int4"], concurrent=1
    ).to_dict()
    assert served["deployments"][0]["gpu"] == "rtx-4070-12gb"
