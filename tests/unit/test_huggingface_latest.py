"""Mistral Large 4, A.X K1, Mellum 2, LFM3: counted on the meta device with transformers 5.23.0."""

from reading import kinds, read, total

from kvreport.accounting.demand import demand
from kvreport.accounting.kv_cache import held
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model


def large(**text: object) -> Model:
    config = {"model_type": "mistral_large4_text", "hidden_size": 6144, **text}
    return read("MistralLarge4ForConditionalGeneration", text_config=config)


def test_every_fourth_layer_of_mistral_large_4_keeps_a_latent_without_a_rotary_part() -> None:
    model = large()
    assert kinds(model) == ["latent+indexer"] * 72
    # 54 layers x (512 + 64) x 2 B, 18 x 512 x 2 B, and an index key of 132 B on each of the 72.
    rate = 54 * 1152 + 18 * 1024 + 72 * 132
    assert int(held(model).request_bytes(1000)) == 1000 * rate


def test_layers_of_mistral_large_4_may_read_an_earlier_layers_latent() -> None:
    sources = list(range(72))
    sources[5], sources[9] = 4, 4
    model = large(kv_source_layers=sources)
    assert kinds(model)[5] == kinds(model)[9] == "shared+indexer"
    # They have no down projection to a latent of 576 and no norm of it.
    assert total(large()) - total(model) == 2 * (576 * 6144 + 512)
    assert int(held(model).request_bytes(1)) == int(held(large()).request_bytes(1)) - 2 * 1152
    # What they read is read all the same: 2,048 picked latents on every layer.
    asked = demand(model, None, open_catalog().weight_formats)
    assert float(asked.cache_bytes_read(100_000)) == 2048 * (54 * 1152 + 18 * 1024) + 72 * 132 * 100_000


def test_mellum_says_of_each_layer_what_it_is() -> None:
    words = ["sliding_attention", "full_attention"] * 14
    model = read(
        "MellumForCausalLM", hidden_size=2304, layer_types=words, mlp_layer_types=["dense"] + ["sparse"] * 27
    )
    assert kinds(model) == ["sliding", "full"] * 14
    # A dense MLP of 7,168 instead of 64 experts of 896 and their router.
    plain = total(read("MellumForCausalLM", hidden_size=2304))
    assert plain - total(model) == 64 * 3 * 896 * 2304 + 64 * 2304 - 3 * 7168 * 2304


def test_lfm3_mixes_convolutions_windows_and_full_attention() -> None:
    model = read("Lfm3ForCausalLM", hidden_size=2048)
    assert kinds(model)[:8] == ["state", "state", "full", "state", "sliding", "state", "full", "state"]
    bare = read("Lfm3ForCausalLM", hidden_size=2048, use_attention_gate=False, use_sandwich_norm=False)
    # A gate of 16 x 2,048 on 11 layers of attention, and two norms on all 24.
    assert total(model) - total(bare) == 11 * 16 * 2048 + 24 * 2 * 2048
    # Windows of 256 on 5 layers, full attention on 6, 4 heads x 256 x 2 B; 6 columns of 2,048 on 13.
    assert int(held(model).request_bytes(1000)) == 2048 * (5 * 256 + 6 * 1000) + 13 * 6 * 2048 * 2


def test_a_model_may_have_no_shared_expert() -> None:
    without = large(n_shared_experts=0)
    assert not any(row.component == "shared_experts" for row in without.weights)
    assert total(without) < total(large())
