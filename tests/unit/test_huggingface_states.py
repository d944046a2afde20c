"""Models that keep a state: Mamba, RWKV, Falcon-H1, Jamba, Bamba, Zamba2, LFM2, RecurrentGemma.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, unless a comment
names another source. State shapes follow vLLM 0.33 (``layers/mamba/mamba_utils.py``).
"""

from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.accounting.kv_cache import state_tensor_bytes
from kvreport.catalog.caches import FullAttention, RecurrentState
from kvreport.catalog.model import Model

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


def test_falcon_h1_keeps_both_caches_in_every_layer() -> None:
    model = read("FalconH1ForCausalLM", **FALCON_H1_HALF_B)
    assert kinds(model) == ["full+state"] * 36
    attention, mamba = model.layers[0].caches
    assert attention == FullAttention(kv_heads=2, key_dim=64, value_dim=64)
    assert isinstance(mamba, RecurrentState)
    # 24 heads of 64 with a state of 128, one group: (1,536 + 256) x 3 and 1,536 x 128 elements.
    assert [state_tensor_bytes(t) for t in mamba.tensors] == [(1_536 + 256) * 3 * 2, 1_536 * 128 * 2]


def test_zamba2_keeps_a_cache_for_every_call_of_its_shared_block() -> None:
    model = read("Zamba2ForCausalLM", hidden_size=2560)
    found = kinds(model)
    assert [i for i, kind in enumerate(found) if kind != "state"] == [6, 12, 18, 24, 30, 36, 42, 47, 51]
    # The block works on twice the width: 2 x 2,560 / 32 heads.
    assert model.layers[1].caches[0] == FullAttention(kv_heads=32, key_dim=160, value_dim=160)
    # One block: queries, keys and values of 5,120 x 5,120, and 2,560 x 5,120 out.
    assert parts(model)["attention"] == 3 * 5_120 * 5_120 + 2_560 * 5_120


def test_a_quantiser_reaches_the_shared_block_of_zamba2() -> None:
    keys = {
        "hidden_size": 2560,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    }
    model = read("Zamba2ForCausalLM", **keys)
    formats = {row.name.rsplit(".", 2)[-2]: row.released for row in model.weights}
    assert formats["q_proj"] == formats["gate_up_proj"] == formats["out_proj"] == "gptq4-g128"
    assert formats["embed_tokens"] is None
