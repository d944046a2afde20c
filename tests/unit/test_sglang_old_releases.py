"""What SGLang kept before 0.5.15: compressed pools by the log of 0.5.13, and nothing for graphs of prefill."""

from __future__ import annotations

import pytest

from kvreport.accounting.engines.sglang.compressed import compressed_sizes
from kvreport.accounting.engines.sglang.settings import (
    SglangFlags,
    left_uncaptured,
    prefill_captured,
    settings,
)
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.release import at_release, engine_for_version


@pytest.mark.parametrize(("release", "printed"), [("0.5.13", 32_781.44), ("0.5.15", 13_735.04)])
def test_deepseek_v4_takes_what_two_releases_print(catalog: Catalog, release: str, printed: float) -> None:
    # bytes_per_full_token of 0.5.13 and 0.5.15 on MI355X with a window share of 0.15.
    engine = engine_for_version(catalog.engines.values(), "sglang", release)
    assert engine is not None
    found = compressed_sizes(
        catalog.model("deepseek-ai/DeepSeek-V4-Pro"),
        engine,
        max_requests=256,
        page_tokens=256,
        window_share=0.15,
    )
    assert found.token_bytes == pytest.approx(printed, abs=0.01)
    assert (found.fixed_bytes == 0) is (release == "0.5.13")


def test_prefill_is_not_captured_up_to_0_5_9(catalog: Catalog) -> None:
    model, device = catalog.model("Qwen/Qwen2.5-7B"), catalog.accelerator("rtx-4090")
    old, new = (engine_for_version(catalog.engines.values(), "sglang", one) for one in ("0.5.9", "0.5.10"))
    assert old is not None
    assert new is not None
    assert not prefill_captured(model, old)
    assert prefill_captured(model, new)
    assert settings(model, old, device).share > settings(model, new, device).share


def test_releases_before_0_5_3_have_no_rules(catalog: Catalog) -> None:
    assert engine_for_version(catalog.engines.values(), "sglang", "0.5.2") is None


def test_context_ranks_divide_a_token_s_bytes_but_not_its_index_keys(catalog: Catalog) -> None:
    from kvreport.accounting.engines.sglang.pools import PoolFlags, index_bytes, token_bytes

    engine = catalog.engine("sglang")
    latent, grouped = catalog.model("deepseek-ai/DeepSeek-V3"), catalog.model("Qwen/Qwen3-8B")
    one, eight = PoolFlags(2, attention_ranks=8), PoolFlags(2, attention_ranks=8, context_ranks=8)
    assert token_bytes(latent, engine, eight) == token_bytes(latent, engine, one) / 8
    # Eight KV heads on one group of eight ranks: each rank holds all of them for an eighth of the tokens.
    assert token_bytes(grouped, engine, eight) == token_bytes(grouped, engine, one)
    sparse = catalog.model("deepseek-ai/DeepSeek-V3.2")
    kept = index_bytes(sparse, engine, one) * sparse.layer_count
    assert token_bytes(sparse, engine, eight) - kept == (token_bytes(sparse, engine, one) - kept) / 8


def of_release(catalog: Catalog, release: str) -> Engine:
    engine = engine_for_version(catalog.engines.values(), "sglang", release)
    assert engine is not None
    return at_release(engine, release)


def graphs_of_decode(requests: int, data: int = 1) -> float:
    kept: float = 2 * requests
    if data > 1:
        kept += requests * data * (4.5 if requests > 300 else 3)
    return kept


@pytest.mark.parametrize(
    ("name", "captured"),
    [
        # server_args.py of each: 0.5.14 captures piece by piece, 0.5.15 and 0.5.16 leave all latent attention out,
        # 0.5.17 all but the sparse and Nemotron-H, and 0.5.18 nothing of these.
        ("deepseek-ai/DeepSeek-V3", ("0.5.14", "0.5.18")),
        ("deepseek-ai/DeepSeek-V3.2", ("0.5.14", "0.5.17", "0.5.18")),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ("0.5.14", "0.5.15", "0.5.16", "0.5.18")),
        ("Qwen/Qwen3-8B", ("0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.18")),
    ],
)
def test_releases_leave_the_prefill_of_some_attention_uncaptured(
    catalog: Catalog, name: str, captured: tuple[str, ...]
) -> None:
    for release in ("0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.18"):
        engine = of_release(catalog, release)
        assert prefill_captured(catalog.model(name), engine) is (release in captured), release


def test_nemotron_with_images_is_not_among_the_classes_left_uncaptured(catalog: Catalog) -> None:
    # model_config.py::is_nemotron_h of 0.5.17 names three classes, and no composite of them.
    engine = of_release(catalog, "0.5.17")
    assert left_uncaptured(catalog.model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"), engine)
    assert not left_uncaptured(catalog.model("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16"), engine)


def test_dp_attention_leaves_prefill_uncaptured_up_to_0_5_16(catalog: Catalog) -> None:
    model, device = catalog.model("Qwen/Qwen3-30B-A3B"), catalog.accelerator("h100-sxm-80gb")
    for release, kept in (("0.5.16", False), ("0.5.17", True)):
        engine = of_release(catalog, release)
        found = settings(model, engine, device, SglangFlags(tensor_parallel=4, data_attention=4))
        assert (found.graphs_mib > graphs_of_decode(found.captured_requests, 4)) is kept, release


@pytest.mark.parametrize("release", ["0.5.13", "0.5.17", "0.5.21", "0.5.23"])
def test_prefill_is_captured_on_nvidia_s_gpus_alone(catalog: Catalog, release: str) -> None:
    # default_prefill_backend: up to 0.5.21 pieces elsewhere, which HIP turns off; disabled since 0.5.22.
    engine = of_release(catalog, release)
    model = catalog.model("Qwen/Qwen3-8B")
    for name, captured in (("mi300x", False), ("h200-sxm-141gb", True)):
        found = settings(model, engine, catalog.accelerator(name))
        assert (found.graphs_mib > graphs_of_decode(found.captured_requests)) is captured, name
