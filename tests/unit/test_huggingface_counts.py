"""Parameters that follow from a config alone, against counts that nobody here worked out.

The expected totals were counted on the meta device with transformers 5.23.0, which builds every
tensor of the class and adds up their sizes (tests/counted.yaml); what comes from elsewhere says so.
"""

from __future__ import annotations

import pytest
from huggingface_configs import CLASSES, COUNTED, DEEPSEEK_V3, GEMMA_3_27B, LLAMA_3_1_8B, dims, nested, plain
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


def test_components_of_deepseek_v3_come_out_exact() -> None:
    # transformers 5.23.0, by module: the router counts its learned offsets, every norm is a norm.
    model = read_config(DEEPSEEK_V3, id="a/b")
    assert parameters(model, "embedding") == parameters(model, "output_head") == 926_679_040
    assert parameters(model, "attention") == 11_413_422_080
    assert parameters(model, "dense_mlp") == 1_189_085_184
    assert parameters(model, "routed_experts") == 653_908_770_816
    assert parameters(model, "shared_experts") == 2_554_331_136
    assert parameters(model, "norms") == 1_006_592
    assert parameters(model, "router") == 106_445_312


def test_a_vision_tower_is_a_component_of_its_own() -> None:
    # transformers 5.23.0: SigLIP 400M with Gemma 3's projector.
    assert parameters(read_config(GEMMA_3_27B, id="a/b"), "vision") == 423_060_336


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


def test_an_explicit_head_dim_is_never_derived() -> None:
    # Mistral Nemo: 5,120 / 32 would be 160; the config says 128.
    nemo = plain("MistralForCausalLM", 5120, 40, 32, 8, 14336, 131072, 131072, head_dim=128)
    model = read_config({**nemo, "sliding_window": None}, id="a/b")
    assert model.layers[0].caches[0].key_dim == 128  # type: ignore[union-attr]
    assert parameters(model) == 12_247_782_400
