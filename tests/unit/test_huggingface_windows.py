"""OLMo, Command and EXAONE: which layers slide, and their parameters."""

from reading import read

from kvreport.catalog.caches import SlidingWindow


def test_olmo_3_reads_everything_on_every_fourth_layer() -> None:
    model = read("Olmo3ForCausalLM", hidden_size=4096)
    # vLLM 0.33 plans 24 windows of 4,096 and 8 full layers, the first of them layer 3.
    assert [(g.count, g.layers) for g in model.layers][1] == (8, "3,7,11,15,19,23,27,31")
    assert model.layers[0].caches == (SlidingWindow(kv_heads=32, key_dim=128, value_dim=128, window=4096),)
