"""Formats that store keys and values unlike each other, against the slot sizes that vLLM 0.33.0's code computes."""

import pytest

from kvreport.accounting.kv_cache import pair_bytes
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.estimation import estimate


@pytest.mark.parametrize(
    ("name", "width", "slot"),
    [
        # turboquant/config.py: key_packed_size + value_packed_size, to an even number
        ("turboquant_k8v4", 128, 128 + 64 + 4),
        ("turboquant_4bit_nc", 128, 64 + 2 + 64 + 4),
        ("turboquant_k3v4_nc", 128, 48 + 2 + 64 + 4),
        ("turboquant_3bit_nc", 128, 48 + 2 + 48 + 4),
        ("turboquant_3bit_nc", 64, 24 + 2 + 24 + 4),
        # ultraquant/format.py: 136 bytes for 128 elements, 272 for 256
        ("ultraquant_4bit", 128, 136),
        ("ultraquant_4bit", 256, 272),
        # a scale for each of key and value
        ("int4_per_token_head", 128, 2 * (64 + 4)),
        ("int8_per_token_head", 128, 2 * (128 + 4)),
        ("nvfp4", 128, 2 * (64 + 8)),
    ],
)
def test_a_slot_has_the_bytes_that_the_engine_gives_it(
    catalog: Catalog, name: str, width: int, slot: int
) -> None:
    assert pair_bytes(width, width, catalog.kv_format(name)) == slot


def test_the_first_and_last_two_layers_stay_in_16_bits() -> None:
    # Qwen3-32B: 64 layers of 8 heads; 60 packed with 134 bytes a head, 4 with 512.
    found = estimate("Qwen/Qwen3-32B", gpu="h100", kv="turboquant_4bit_nc", context_tokens=8192)
    assert found.plan.block_tokens == 64  # 16 tokens of 512 bytes fit in 64 of 134
    assert found.plan.block_bytes == 64 * 8 * (60 * 134 + 4 * 512)
    assert any("layers 0, 1, 62, 63 stay in 16 bits" in note for note in found.plan.notes)


def test_a_hybrid_keeps_all_its_layers_packed() -> None:
    found = estimate("Qwen/Qwen3.6-27B", gpu="h100", kv="turboquant_4bit_nc", context_tokens=8192)
    assert found.kv_bytes_per_token_per_gpu == 16 * 4 * (128 + 2 + 128 + 4)


def test_a_model_without_a_cache_has_no_edges() -> None:
    found = estimate("BAAI/bge-large-en", gpu="h100", kv="turboquant_4bit_nc", context_tokens=512)
    assert found.plan is not None


def test_latents_are_refused_in_a_packed_format() -> None:
    with pytest.raises(InputError, match="cannot store a latent cache"):
        estimate("openbmb/MiniCPM3-4B-GPTQ-Int4", gpu="h100", kv="turboquant_4bit_nc", context_tokens=512)
