"""Prediction layers that a config states: counted as vLLM's classes build them, and used where no draft is named."""

from __future__ import annotations

import pytest

from kvreport.accounting.extras import own_prediction_layer
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.estimation import estimate


def predicting(model: Model) -> int:
    return sum(row.parameters for row in model.weights if row.component == "mtp")


def test_hunyuan_3_has_the_published_layer(catalog: Catalog) -> None:
    """vLLM's recipe states 3.8B besides the 295B: a mixture of 192 experts, three norms, and what joins two states."""
    found = predicting(catalog.model("tencent/Hy3-preview"))
    hidden, experts, width = 4096, 192, 1536
    attention = 2 * hidden * 64 * 128 + 2 * hidden * 8 * 128 + 2 * 128
    mixture = (experts + 1) * 3 * hidden * width + experts * hidden + experts
    assert found == attention + mixture + 2 * hidden + 3 * hidden + 2 * hidden**2
    assert found == pytest.approx(3.8e9, rel=0.02)


@pytest.mark.parametrize(
    ("name", "hidden", "heads", "width"),
    [("baidu/ERNIE-4.5-21B-A3B-PT", 2560, 20, 12_288), ("baidu/ERNIE-4.5-300B-A47B-PT", 8192, 64, 28_672)],
)
def test_ernie_s_layer_is_dense(catalog: Catalog, name: str, hidden: int, heads: int, width: int) -> None:
    """vLLM 0.33, ernie_mtp.py: Llama's decoder layer, two norms, and what joins two states; none before the head."""
    model = catalog.model(name)
    kv_heads = 4 if heads == 20 else 8
    attention = 2 * hidden * heads * 128 + 2 * hidden * kv_heads * 128
    assert predicting(model) == attention + 3 * hidden * width + 4 * hidden + 2 * hidden**2


def test_exaone_s_first_layer_has_a_window(catalog: Catalog) -> None:
    """vLLM 0.33, exaone4_5_mtp.py: its layer is number 0 of a module of its own, and ``layer_types[0]`` slides."""
    model = catalog.model("LGAI-EXAONE/EXAONE-4.5-33B")
    (group,) = own_prediction_layer(model).layers
    assert [(cache.kind, cache.window) for cache in group.caches] == [("sliding", 4096)]
    # The last layer of the same model, whose cache a layer behind the others would have.
    assert model.layers[-1].caches[0].kind == "full"


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("tencent/Hy3-preview", 8),
        ("baidu/ERNIE-4.5-21B-A3B-PT", 1),
        ("LGAI-EXAONE/EXAONE-4.5-33B", 2),
        ("XiaomiMiMo/MiMo-V2-Flash", 8),
    ],
)
def test_published_commands_with_one_token_are_answered(name: str, ranks: int) -> None:
    asked = {"gpu": "h200", "context_tokens": 8192, "tensor_parallel": ranks}
    plain = estimate(name, **asked)
    drafted = estimate(name, num_speculative_tokens=1, **asked)
    assert drafted.to_dict()["weight_bytes_per_gpu"] > plain.to_dict()["weight_bytes_per_gpu"]
    assert drafted.to_dict()["verdict"] == "fits"
