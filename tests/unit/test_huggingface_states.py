"""Models that keep a state: Mamba, RWKV, Falcon-H1, Jamba, Bamba, Zamba2, LFM2, RecurrentGemma.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, unless a comment
names another source. State shapes follow vLLM 0.33 (``layers/mamba/mamba_utils.py``).
"""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.accounting.kv_cache import state_tensor_bytes
from kvreport.catalog.caches import FullAttention, RecurrentState, SlidingWindow, StateTensor
from kvreport.catalog.model import Model
from kvreport.errors import InputError

SMALL = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
FALCON_H1_HALF_B = CONFIGS["huggingface_states"]["FALCON_H1_HALF_B"]


def state(model: Model, group: int = 0) -> RecurrentState:
    return next(c for c in model.layers[group].caches if isinstance(c, RecurrentState))


def test_jambas_state_has_the_bytes_that_vllm_plans() -> None:
    model = read("JambaForCausalLM", hidden_size=4096)
    # vLLM 0.33 for ai21labs/Jamba-v0.1: (3, 8192) and (8192, 16) in bfloat16, 311,296 bytes a layer.
    assert sum(state_tensor_bytes(tensor) for tensor in state(model).tensors) == 311_296
    assert [i for i, kind in enumerate(kinds(model)) if kind == "full"] == [4, 12, 20, 28]
    # Half of the layers are mixtures: 16 x 16 experts x 3 x 14,336 x 4,096.
    assert parts(model)["routed_experts"] == 16 * 16 * 3 * 14_336 * 4_096


def test_falcon_mamba_means_its_intermediate_size_and_not_its_expansion() -> None:
    # As tiiuae/falcon-mamba-7b has it: expand 16 and intermediate_size 8192; 7,272,665,088 parameters.
    model = read(
        "FalconMambaForCausalLM",
        hidden_size=4096,
        intermediate_size=8192,
        expand=16,
        time_step_rank=256,
        num_hidden_layers=64,
        vocab_size=65024,
        tie_word_embeddings=False,
    )
    assert total(model) == 7_272_665_088
    assert model.attention_heads == 0
    assert [(t.channels, t.columns) for t in state(model).tensors] == [(8192, 3), (8192, 16)]


def test_mamba_2_convolves_its_groups_too() -> None:
    conv, recurrent = state(read("Mamba2ForCausalLM", hidden_size=4096)).tensors
    # 128 heads of 64, 8 groups of 128: (8,192 + 2 x 8 x 128) x 3 and 128 x 64 x 128, two bytes each.
    assert state_tensor_bytes(conv) == (8_192 + 2 * 8 * 128) * 3 * 2
    assert state_tensor_bytes(recurrent) == 128 * 64 * 128 * 2


def test_rwkv_4_keeps_two_inputs_and_three_floats_per_channel() -> None:
    model = read("RwkvForCausalLM", hidden_size=4096, context_length=1024)
    # transformers 5.23: five states per layer, the last three in float32.
    assert [state_tensor_bytes(t) for t in state(model).tensors] == [4096 * 2 * 2, 4096 * 3 * 4]
    assert set(kinds(model)) == {"state"}
    assert model.context_tokens == 1024


def test_rwkv_5_keeps_a_matrix_per_head_and_has_its_published_parameters() -> None:
    model = read(
        "RwkvForCausalLM",
        model_type="rwkv5",
        hidden_size=2560,
        attention_hidden_size=2560,
        head_size=64,
        num_hidden_layers=32,
        vocab_size=65536,
        context_length=4096,
    )
    assert state(model).tensors[1] == StateTensor(
        name="recurrent", channels=40, columns=64 * 64, precision="float32"
    )
    # RWKV-5 World 3B: 3.06 billion.
    assert round(total(model) / 1e7) == 306


def test_falcon_h1_keeps_both_caches_in_every_layer() -> None:
    model = read("FalconH1ForCausalLM", **FALCON_H1_HALF_B)
    assert kinds(model) == ["full+state"] * 36
    attention, mamba = model.layers[0].caches
    assert attention == FullAttention(kv_heads=2, key_dim=64, value_dim=64)
    assert isinstance(mamba, RecurrentState)
    # 24 heads of 64 with a state of 128, one group: (1,536 + 256) x 3 and 1,536 x 128 elements.
    assert [state_tensor_bytes(t) for t in mamba.tensors] == [(1_536 + 256) * 3 * 2, 1_536 * 128 * 2]


def test_bamba_names_only_its_attention_layers() -> None:
    model = read("BambaForCausalLM", hidden_size=4096, mamba_d_state=128, attn_layer_indices=[9, 18, 27])
    assert [i for i, kind in enumerate(kinds(model)) if kind == "full"] == [9, 18, 27]
    # Counted on the meta device with transformers 5.23.0 for ibm-ai-platform/Bamba-9B.
    assert parts(model)["recurrent"] == 2_966_322_304
    assert total(model) == 9_778_138_240


def test_zamba2_keeps_a_cache_for_every_call_of_its_shared_block() -> None:
    model = read("Zamba2ForCausalLM", hidden_size=2560)
    found = kinds(model)
    assert [i for i, kind in enumerate(found) if kind != "state"] == [6, 12, 18, 24, 30, 36, 42, 47, 51]
    # The block works on twice the width: 2 x 2,560 / 32 heads.
    assert model.layers[1].caches[0] == FullAttention(kv_heads=32, key_dim=160, value_dim=160)
    # One block: queries, keys and values of 5,120 x 5,120, and 2,560 x 5,120 out.
    assert parts(model)["attention"] == 3 * 5_120 * 5_120 + 2_560 * 5_120


def test_lfm2_rounds_two_thirds_of_the_stated_width_up() -> None:
    model = read(
        "Lfm2ForCausalLM",
        hidden_size=1024,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=8,
        block_ff_dim=6656,
        full_attn_idxs=[2, 5, 8, 10, 12, 14],
    )
    # 2/3 of 6,656 is 4,437, and 4,608 is the next multiple of 256; LiquidAI/LFM2-350M counts 354,483,968.
    assert model.intermediate_size == 4608
    assert total(model) == 354_483_968
    assert state(model).tensors == (StateTensor(name="conv", channels=1024, columns=2),)


def test_recurrentgemma_stops_growing_at_its_window() -> None:
    # The published config of google/recurrentgemma-2b, which writes its pattern with an underscore.
    model = read(
        "RecurrentGemmaForCausalLM",
        _block_types=["recurrent", "recurrent", "attention"],
        attention_window_size=2048,
        conv1d_width=4,
        hidden_size=2560,
        intermediate_size=15360,
        lru_width=2560,
        num_attention_heads=10,
        num_hidden_layers=26,
        num_key_value_heads=1,
        vocab_size=256000,
    )
    assert kinds(model) == (["state", "state", "sliding"] * 9)[:26]
    assert model.layers[1].caches == (SlidingWindow(kv_heads=1, key_dim=256, value_dim=256, window=2048),)
    assert [state_tensor_bytes(t) for t in state(model).tensors] == [2560 * 3 * 2, 2560 * 4]
    assert total(model) == 2_682_862_080


@pytest.mark.parametrize(
    ("architecture", "keys", "field"),
    [
        ("Mamba2ForCausalLM", {"hidden_size": 4096, "num_heads": 100}, "num_heads"),
        ("FalconH1ForCausalLM", {**FALCON_H1_HALF_B, "mamba_d_ssm": 1000}, "mamba_n_heads"),
        ("FalconH1ForCausalLM", {**FALCON_H1_HALF_B, "mamba_d_ssm": 768}, "mamba_d_head"),
        ("BambaForCausalLM", {**SMALL, "mamba_n_heads": 16, "attn_layer_indices": [6]}, "attn_layer_indices"),
        ("Lfm2MoeForCausalLM", {"num_hidden_layers": 24}, "layer_types"),
        ("Lfm2ForCausalLM", {**SMALL, "block_ffn_dim_multiplier": "x"}, "block_ffn_dim_multiplier"),
        ("Zamba2ForCausalLM", {"hidden_size": 2560, "num_hidden_layers": 10}, "layers_block_type"),
        ("RecurrentGemmaForCausalLM", {"hidden_size": 2560, "block_types": []}, "block_types"),
        ("JambaForCausalLM", {"hidden_size": 4096, "attn_layer_period": 0}, "attn_layer_period"),
        ("RwkvForCausalLM", {"hidden_size": 100, "head_size": 64}, "attention_hidden_size"),
    ],
)
def test_a_bad_value_is_refused_by_name(architecture: str, keys: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read(architecture, **keys)


def test_a_quantiser_reaches_the_shared_block_of_zamba2() -> None:
    keys = {
        "hidden_size": 2560,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    }
    model = read("Zamba2ForCausalLM", **keys)
    formats = {row.name.rsplit(".", 2)[-2]: row.released for row in model.weights}
    assert formats["q_proj"] == formats["gate_up_proj"] == formats["out_proj"] == "gptq4-g128"
    assert formats["embed_tokens"] is None
