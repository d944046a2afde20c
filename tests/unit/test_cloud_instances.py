"""Machine types of clouds: each names an accelerator of the catalog and how many it has."""

from __future__ import annotations

from collections import Counter

import pytest

import kvreport
from kvreport.catalog.cloud_instances import CloudInstances, plain, published
from kvreport.catalog.load import Catalog
from kvreport.estimation.hardware import listed


def test_each_name_stands_once_for_a_known_accelerator(catalog: Catalog) -> None:
    every = CloudInstances.need().instances
    counted = Counter(plain(name) for one in every for name in one.names)
    assert counted.most_common(1)[0][1] == 1
    assert len(published()) == counted.total() > 80
    assert {one.gpu for one in every} <= set(catalog.accelerators)
    # One that a machine of the vendor's does not hold is written wrong.
    assert not [one for one in every if one.devices > 2 * catalog.accelerator(one.gpu).most_per_machine]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("p5.48xlarge", [("h100-sxm-80gb", 8)]),
        ("G6e.XLARGE", [("l40s", 1)]),
        ("2x p5en.48xlarge", [("h200-sxm-141gb", 16)]),
        ("a3-highgpu-8g", [("h100-sxm-80gb", 8)]),
        ("ND H100 v5", [("h100-sxm-80gb", 8)]),
        ("Standard_NC80adis_H100_v5", [("h100-nvl-94gb", 2)]),
        ("ml.g5.12xlarge", [("a10g", 4)]),
        ("h100-sxm-80gb", [("h100-sxm-80gb", 1)]),
    ],
)
def test_a_machine_type_is_its_accelerators(asked: str, found: list[tuple[str, int]]) -> None:
    assert listed(asked) == found


def test_an_answer_for_a_machine_type_is_that_for_its_accelerators() -> None:
    asked, plainly = (
        kvreport.estimate("llama-3.1-8b", gpu=name) for name in ("p4de.24xlarge", "8xa100-sxm4-80gb")
    )
    assert asked.to_dict() == plainly.to_dict()
    sizes = [
        kvreport.size("llama-3.1-8b", gpus=[name], context="8K", concurrent=40).to_dict()
        for name in ("g6e.12xlarge", "4xl40s")
    ]
    assert sizes[0] == sizes[1]
