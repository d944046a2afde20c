"""Parameters that follow from a config alone, against counts that nobody here worked out.

The expected totals were counted on the meta device with transformers 5.23.0, which builds every
tensor of the class and adds up their sizes (tests/counted.yaml); what comes from elsewhere says so.
"""

from __future__ import annotations

import pytest
from huggingface_configs import CLASSES, COUNTED, DEEPSEEK_V3, LLAMA_3_1_8B, dims, nested, plain
from reading import read, total
from reading import read_trimmed as read_config

from kvreport.catalog.model import Model


def parameters(model: Model, *components: str) -> int:
    return sum(
        row.parameters
        for row in model.weights
        if (row.component in components if components else row.component != "mtp")
    )


@pytest.mark.parametrize("model_id", COUNTED)
def test_parameters_come_out_exact(model_id: str) -> None:
    config, expected = COUNTED[model_id]
    assert parameters(read_config(config, id="a/b")) == expected


@pytest.mark.parametrize(("architecture", "keys", "expected"), CLASSES)
def test_parameters_equal_those_of_the_class_itself(
    architecture: str, keys: dict[str, object], expected: int
) -> None:
    assert total(read(architecture, **keys)) == expected


def test_a_model_with_tied_embeddings_has_no_output_head() -> None:
    tied = read_config({**LLAMA_3_1_8B, "tie_word_embeddings": True}, id="a/b")
    assert not [row for row in tied.weights if row.component == "output_head"]
    # 128,256 x 4,096 less than with a head of its own.
    assert parameters(tied) == 8_030_261_248 - 525_336_576


def test_layers_for_prediction_are_kept_apart_and_not_loaded() -> None:
    model = read_config({**DEEPSEEK_V3, "num_nextn_predict_layers": 1}, id="a/b")
    assert parameters(model) == 671_026_419_200
    # The published checkpoint holds 684,531,386,000 or so with them: one more layer of experts
    # (11.5e9), and copies of embedding and head (2 x 0.93e9).
    assert parameters(model, "mtp") == pytest.approx(13.5e9, rel=0.01)
    assert "mtp" in model.not_loaded


def test_kimi_k3_as_the_engine_that_runs_it_builds_it() -> None:
    # vLLM 0.33.0 builds 2,779,484,476,000 parameters of text model.
    text = dims(
        7168,
        93,
        96,
        96,
        33792,
        163840,
        1048576,
        attn_res_block_size=12,
        first_k_dense_replace=1,
        kv_lora_rank=512,
        latent_moe_use_norm=True,
        linear_attn_config={
            "full_attn_layers": [*range(4, 93, 4), 93],
            "head_dim": 128,
            "num_heads": 96,
            "short_conv_kernel_size": 4,
            "use_full_rank_gate": True,
        },
        mla_use_output_gate=True,
        moe_intermediate_size=3072,
        num_experts=896,
        num_experts_per_token=16,
        num_shared_experts=2,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        routed_expert_hidden_size=3584,
        v_head_dim=128,
    )
    model = read_config(nested("KimiK3ForConditionalGeneration", text, {}), id="a/b")
    assert parameters(model) - parameters(model, "vision") == 2_779_484_476_000


def test_a_head_that_divides_unevenly_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size: found 4097; allowed: a multiple of"):
        read_config(plain("LlamaForCausalLM", 4097, 2, 32, 8, 64, 100, 100), id="a/b")
