"""What images take of a device under SGLang beside weights and pools, by release, class and device."""

from __future__ import annotations

import pytest

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang import settings
from kvreport.catalog.load import Catalog
from kvreport.catalog.release import engine_for_version

VISION, SPARSE, OTHER, TEXT = (
    "Qwen/Qwen3-VL-8B-Instruct",
    "Qwen/Qwen3-VL-30B-A3B-Instruct",
    "Qwen/Qwen3.5-27B",
    "Qwen/Qwen3-8B",
)


def taken(
    catalog: Catalog,
    release: str,
    model: str,
    gpu: str,
    *,
    nodes: int = 1,
    requests: int | None = None,
    through: str = "",
) -> int:
    engine = engine_for_version(catalog.engines.values(), "sglang", release)
    assert engine is not None
    engine = rules(engine).at_release(release)
    device = catalog.accelerator(gpu)
    return settings.images_mib(
        catalog.model(model), engine, device, nodes=nodes, max_requests=requests, through=through
    )


@pytest.mark.parametrize(
    ("release", "model", "gpu", "mib"),
    [
        # mm_runtime_reservation_gb since 0.5.18: 100 MiB, for any device.
        ("0.5.16", OTHER, "h100-sxm-80gb", 0),
        ("0.5.18", OTHER, "h100-sxm-80gb", 100),
        ("0.5.23", OTHER, "h100-sxm-80gb", 100),
        ("0.5.23", TEXT, "h100-sxm-80gb", 0),
        # 0.5.17 alone sends images through a pool on the device; not on AMD GPUs.
        ("0.5.17", OTHER, "h100-sxm-80gb", 1024),
        ("0.5.17", OTHER, "mi355x", 0),
        ("0.5.17", TEXT, "h100-sxm-80gb", 0),
        # model_overrides/qwen3_vl.py since 0.5.20: Hopper GPUs of 60 GiB and more, instead of the cache of embeddings.
        ("0.5.19", VISION, "h100-sxm-80gb", 100),
        ("0.5.20", VISION, "h100-sxm-80gb", 1024),
        ("0.5.23", SPARSE, "h200-sxm-141gb", 1024),
        ("0.5.23", VISION, "b200-sxm-180gb", 100),
        ("0.5.23", VISION, "rtx-4090", 100),
    ],
)
def test_what_images_take(catalog: Catalog, release: str, model: str, gpu: str, mib: int) -> None:
    assert taken(catalog, release, model, gpu) == mib


def test_many_requests_and_several_nodes(catalog: Catalog) -> None:
    assert taken(catalog, "0.5.23", VISION, "h100-sxm-80gb", requests=399) == 1024
    assert taken(catalog, "0.5.23", VISION, "h100-sxm-80gb", requests=400) == 3072
    assert taken(catalog, "0.5.23", VISION, "h100-sxm-80gb", nodes=2) == 0
    assert taken(catalog, "0.5.17", OTHER, "h100-sxm-80gb", nodes=2) == 0


def test_images_go_where_they_are_told(catalog: Catalog) -> None:
    # mm_runtime_reservation_gb adds the pool to the cache of embeddings, which two classes have none of.
    assert taken(catalog, "0.5.17", OTHER, "h100-sxm-80gb", through="cpu") == 0
    assert taken(catalog, "0.5.23", OTHER, "h100-sxm-80gb", through="cuda_ipc") == 1124
    assert taken(catalog, "0.5.23", VISION, "h100-sxm-80gb", through="cpu") == 0


def test_decode_graphs_of_two_classes_are_captured_for_all_requests(catalog: Catalog) -> None:
    device = catalog.accelerator("h100-sxm-80gb")
    vision, text = catalog.model(VISION), catalog.model(TEXT)
    captured = {
        (model.id, requests): settings.settings(
            model, catalog.engine("sglang"), device, settings.SglangFlags(max_requests=requests)
        ).captured_requests
        for model in (vision, text)
        for requests in (64, 400, 600)
    }
    # expand_multimodal_decode_graph_to_running_limit: up to 512, where the default of the device is 256.
    assert captured == {
        (VISION, 64): 64, (VISION, 400): 400, (VISION, 600): 256,
        (TEXT, 64): 64, (TEXT, 400): 256, (TEXT, 600): 256,
    }  # fmt: skip
