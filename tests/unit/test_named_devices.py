"""Several accelerators in one name: ``8xH100``, ``4090*2``, ``rtx-5090*2+rtx-3090``."""

from __future__ import annotations

import pytest

import kvreport
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation.hardware import listed


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("H100", [("H100", 1)]),
        ("mi300x", [("mi300x", 1)]),
        ("8xH100", [("H100", 8)]),
        ("2x4090", [("4090", 2)]),
        ("2 × RTX 4090", [("RTX 4090", 2)]),
        ("2xmi300x", [("mi300x", 2)]),
        ("H100*8", [("H100", 8)]),
        ("4090 x2", [("4090", 2)]),
        ("4090x2", [("4090", 2)]),
        ("rtx-5090*2 + rtx-3090", [("rtx-5090", 2), ("rtx-3090", 1)]),
        (["H100", "2xL40S"], [("H100", 1), ("L40S", 2)]),
        ("RX 7900 XTX", [("RX 7900 XTX", 1)]),
        ("7900xtx", [("7900xtx", 1)]),
        ("H100x8", [("H100", 8)]),
        ("8 H100", [("H100", 8)]),
        ("MI300Xx8", [("MI300X", 8)]),
        ("Ryzen AI Max+ 395", [("Ryzen AI Max+ 395", 1)]),
        ("Ryzen AI Max+ 395 + 4090", [("Ryzen AI Max+ 395", 1), ("4090", 1)]),
        ("M4 Max+3090", [("M4 Max", 1), ("3090", 1)]),
        ("gfx942", [("gfx942", 1)]),
        ("RTX4090", [("RTX4090", 1)]),
        ("orin nx16", [("orin nx16", 1)]),
    ],
)
def test_a_name_says_how_many(asked, found):
    assert listed(asked) == found


def test_every_name_of_the_catalog_is_read_alone_and_with_a_number():
    """A name's own x, + and digits are no signs: ``RX 7900 XTX``, ``Ryzen AI Max+ 395``, ``B300-SXM6-AC``."""
    names = {
        name
        for gpu in kvreport.load_catalog().accelerators.values()
        for name in (gpu.id, gpu.name, *gpu.aliases)
        if name
    }
    spellings = {
        "{}": 1,
        "2x{}": 2,
        "2 x {}": 2,
        "2 × {}": 2,
        "2*{}": 2,
        "{} x2": 2,
        "{} x 16": 16,
        "{}x2": 2,
        "{}*2": 2,
    }
    for name in names:
        for spelled, number in spellings.items():
            assert listed(spelled.format(name)) == [(name, number)], spelled.format(name)
        assert listed(f"{name}+{name}") == [(name, 1), (name, 1)]


@pytest.mark.parametrize("asked", ["", None, "0xH100", "H100*0", "H100*", "H100*1025", "H100*²", "rtx-5090+"])
def test_a_number_out_of_range_is_refused(asked):
    with pytest.raises(InputError, match="gpu: found"):
        listed(asked)


@pytest.mark.parametrize("asked", ["1xH100", "H100*1", "8xH100"])
def test_a_number_that_is_not_the_layout_s_is_refused(asked):
    with pytest.raises(InputError, match="for a layout of 4"):
        kvreport.estimate("Qwen/Qwen3-8B", gpu=asked, tensor_parallel=4)


def test_every_door_reads_it_alike():
    asked = {"context_tokens": 8192}
    two = kvreport.estimate("qwen3-8b", gpu="rtx-4090", tensor_parallel=2, **asked)
    assert kvreport.estimate("qwen3-8b", gpu="2x4090", **asked).max_concurrent_requests == (
        two.max_concurrent_requests
    )
    found = kvreport.size("qwen3-14b", gpus=["2x4090"], context="8K", concurrent=4)
    assert {one["devices"] for one in found.to_dict()["deployments"]} == {2}
    local = kvreport.estimate("llama3.1:8b", gpu="2x3090", context_tokens=8192, engine="llama.cpp")
    assert local.to_dict()["layout"]["gpus"] == 2


@pytest.mark.parametrize(
    ("printed", "known"),
    [
        ("NVIDIA H20Z", "h20z-141gb"),
        ("NVIDIA L20Y", "l20y-80gb"),
        ("NVIDIA A800-SXM4-40GB", "a800-sxm4-40gb"),
        ("NVIDIA A800-SXM4-80GB", "a800-sxm4-80gb"),
        ("Intel(R) Arc(TM) Pro B70 Graphics", "arc-pro-b70"),
        ("Intel(R) Arc(TM) Pro B65 Graphics", "arc-pro-b65"),
        ("NVIDIA RTX PRO 4500 Blackwell Server Edition", "rtx-pro-4500-server"),
        ("NVIDIA RTX PRO 4500 Blackwell", "rtx-pro-4500"),
        ("AMD Instinct MI350P", "mi350p"),
    ],
)
def test_devices_of_this_year_are_known_as_their_drivers_print_them(printed: str, known: str) -> None:
    assert open_catalog().accelerator(printed).id == known


@pytest.mark.parametrize(
    "words",
    ["foo bar Qwen/Qwen3-8B", "vllm bench latency --max-model-len 4096 --model Qwen/Qwen3-8B"],
)
def test_words_that_end_in_a_model_are_no_model(words: str) -> None:
    """A command that starts no server was answered as its last word, and its flags were forgotten."""
    with pytest.raises(
        InputError, match="which is several words; allowed: a model's name, or the start command"
    ):
        kvreport.estimate(words, gpu="l4")
    assert kvreport.estimate("/models/my dir/Qwen3-8B", gpu="l4").request.model.id == "Qwen/Qwen3-8B"
