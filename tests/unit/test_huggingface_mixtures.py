"""Mixtures of experts with classes of their own, and those of ERNIE, OLMo, Command, EXAONE, Hunyuan.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, unless a comment
names another source.
"""

from huggingface_configs import CONFIGS
from reading import parts, read, total

from kvreport.catalog.caches import FullAttention, Shared

HUNYUAN_LARGE = CONFIGS["huggingface_mixtures"]["HUNYUAN_LARGE"]


def test_hunyuan_large_keeps_every_second_layers_keys_only() -> None:
    model = read("HunYuanForCausalLM", **HUNYUAN_LARGE)
    assert [(group.count, group.layers[:5]) for group in model.layers] == [(32, "0,2,4"), (32, "1,3,5")]
    assert model.layers[0].caches == (FullAttention(kv_heads=8, key_dim=80, value_dim=80),)
    assert model.layers[1].caches == (Shared(reads="full"),)
    # Keys and values are projected in 32 layers, queries in 64.
    rows = {row.name.split(".")[-2]: row.count for row in model.weights if "self_attn" in row.name}
    assert (rows["q_proj"], rows["k_proj"], rows["v_proj"]) == (64, 32, 32)


def test_hunyuan_large_has_the_389_billion_parameters_that_were_published() -> None:
    # 64 layers x (16 routed + 1 shared) experts x 3 x 6,400 x 18,304 are 382.4 billion of them.
    model = read("HunYuanForCausalLM", **HUNYUAN_LARGE)
    found = parts(model)
    assert found["routed_experts"] + found["shared_experts"] == 64 * 17 * 3 * 6_400 * 18_304
    assert round(total(model) / 1e9) == 389
