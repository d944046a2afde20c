"""DeepSeek-V4.1: a published checkpoint to the byte, and the cache that its makers state."""

from __future__ import annotations

from typing import Any

import pytest

from kvreport.accounting.weights import released_bytes
from kvreport.architectures import read_config
from kvreport.catalog.caches import Indexer, Latent, Ring, Shared
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate

TEXT: dict[str, Any] = {
    "compress_ratios": [0, 0, *[2] * 18, *[1] * 20, 0, 0, 0],
    "dspark_markov_rank": 256,
    "dspark_n_routed_experts": 128,
    "dspark_num_experts_per_tok": 3,
    "dspark_target_layer_ids": [37, 38, 39],
    "engram_head_dim": 256,
    "engram_layer_ids": [1, 14],
    "engram_max_ngram_size": 4,
    "engram_n_heads": 8,
    "engram_num_embeddings": [384006168, 384016682],
    "hc_mult": 4,
    "head_dim": 512,
    "hidden_size": 5120,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
    "index_topk": 512,
    "kv_source_layer_ids": [2, 8, 14, 20],
    "max_position_embeddings": 1048576,
    "model_type": "deepseek_v41_text",
    "moe_intermediate_size": 2304,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 40,
    "num_key_value_heads": 1,
    "num_nextn_predict_layers": 3,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1280,
    "qk_rope_head_dim": 64,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 129280,
}
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
    "quantization_config": {
        "activation_scheme": "dynamic",
        "expert_dtype": "fp4",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "scale_fmt": "ue8m0",
        "weight_block_size": [32, 32],
    },
    "text_config": TEXT,
    "vision_config": {
        "downsample_ratio": 3,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_hidden_layers": 32,
        "patch_size": 14,
    },
}


def with_text(**changed: object) -> dict[str, Any]:
    return CONFIG | {"text_config": TEXT | changed}


@pytest.fixture(scope="module")
def model() -> Model:
    return read_config(CONFIG)


def test_the_tensors_make_the_published_checkpoint(model: Model) -> None:
    # The headers of its 48 files hold 96,085 tensors and 510,286,023,000 bytes. Scales of the dense FP8
    # matrices count four bytes here and have one there: three more for each block of 32 x 32.
    formats = open_catalog().weight_formats
    dense = sum(
        row.count * row.shape[0] * row.shape[1] for row in model.weights if row.released == "fp8-block-32x32"
    )
    assert released_bytes(model, formats) - 3 * dense // 1024 == 510_286_023_000
    engrams = [row for row in model.weights if row.name.endswith("engram.embed.weight")]
    assert sum(row.parameters for row in engrams) == 196_613_849_600
    assert {row.released for row in engrams} == {"mxfp8"}


def test_four_layers_keep_what_the_others_read(model: Model) -> None:
    kept = {index: group.caches for group in model.layers for index in group.indices}
    sources = [index for index, caches in kept.items() if any(isinstance(c, Indexer) for c in caches)]
    assert sources == [2, 8, 14, 20]
    assert [index for index, caches in kept.items() if len(caches) == 1] == [0, 1]
    assert sum(any(isinstance(cache, Shared) for cache in caches) for caches in kept.values()) == 34
    assert all(isinstance(caches[0], Latent) and caches[0].window == 128 for caches in kept.values())
    assert [any(isinstance(c, Ring) for c in kept[index]) for index in sources] == [True, True, True, False]
    # Three layers keep one latent and one key for two tokens, one layer for each. In the narrowest formats of
    # vLLM 0.33, 288 and 68 bytes, that makes the 890 bytes per token that the makers state.
    strides = [cache.stride for index in sources for cache in kept[index] if isinstance(cache, Indexer)]
    assert strides == [2, 2, 2, 1]
    assert sum((288 + 68) / stride for stride in strides) == 890


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"compress_ratios": [0, 0, 2]}, "a list of 40 or some more"),
        ({"compress_ratios": [4] * 40}, "0, 1 or 2"),
        ({"kv_source_layer_ids": None}, "kv_source_layer_ids"),
        ({"kv_source_layer_ids": [0]}, "the layer is a source"),
        ({"kv_source_layer_ids": [8]}, "a layer below 2"),
        ({"engram_num_embeddings": [5]}, "engram_num_embeddings"),
    ],
)
def test_layers_that_do_not_fit_together_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(with_text(**changed))


def test_pools_that_are_not_known_are_not_guessed() -> None:
    with pytest.raises(InputError, match="are not computed here; allowed: vllm"):
        estimate("deepseek-v4.1-flash", gpu="h200", tensor_parallel=8, engine="sglang")


def test_tables_of_n_grams_lie_in_host_memory() -> None:
    # vLLM 0.33, config/engram.py: cpu_offload is the default. 203 GB of 510 are not on the GPUs.
    answer = estimate("deepseek-v4.1-flash", gpu="h200", tensor_parallel=8)
    assert 8 * answer.budget.weights < 430e9
    older = estimate("deepseek-v4.1-flash", gpu="h200", tensor_parallel=8, engine="vllm 0.25")
    assert older.verdict == "engine_does_not_run"


def test_drafts_without_the_layers_that_they_read_are_refused() -> None:
    text = {key: value for key, value in TEXT.items() if key != "dspark_target_layer_ids"}
    with pytest.raises(InputError, match="dspark_target_layer_ids: found nothing"):
        read_config({**CONFIG, "text_config": text})
