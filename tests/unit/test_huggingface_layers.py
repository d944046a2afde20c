"""What each layer keeps, read from configs; checked against engines that were run on them.

Layer specs of vLLM 0.33.0's own planner and the caches that transformers 5.23.0 holds after a
prefill agree with these records for every reference config that they can run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from huggingface_configs import (
    COUNTED,
    GEMMA_3_27B,
    QWEN3_6_27B,
    dims,
)
from reading import read_trimmed as read_config

from kvreport.architectures.attention import indexed_layers
from kvreport.architectures.keys import Keys
from kvreport.catalog.caches import Cache, RecurrentState, Ring, Shared
from kvreport.catalog.model import Model


def model(config: dict[str, Any]) -> Model:
    return read_config(config, id="a/b")


def counted(model_id: str) -> Model:
    return model(COUNTED[model_id][0])


def caches(of: Model) -> list[tuple[int, Cache]]:
    return [(group.count, cache) for group in of.layers for cache in group.caches]


def kinds(of: Model) -> dict[str, int]:
    found: dict[str, int] = {}
    for count, cache in caches(of):
        found[cache.kind] = found.get(cache.kind, 0) + count
    return found


def elements(state: RecurrentState) -> dict[str, int]:
    return {
        tensor.name: (tensor.channels + tensor.groups * tensor.channels_per_group) * tensor.columns
        for tensor in state.tensors
    }


def only(of: Iterable[tuple[int, Cache]], kind: str) -> Any:
    found = [cache for _, cache in of if cache.kind == kind]
    assert len(found) == 1
    return found[0]


def test_gemma_3_reads_everything_in_every_sixth_layer() -> None:
    read = model(GEMMA_3_27B)
    assert kinds(read) == {"sliding": 52, "full": 10}
    full = next(group for group in read.layers if group.name == "full attention")
    assert full.indices == (5, 11, 17, 23, 29, 35, 41, 47, 53, 59)


def test_the_state_of_qwen3_6_27b() -> None:
    # 48 layers x (10,240 x 3 x 2 B + 48 x 128 x 128 x 4 B) = 153,944,064 B per request.
    read = model(QWEN3_6_27B)
    assert kinds(read) == {"state": 48, "full": 16}
    state = only(caches(read), "state")
    assert elements(state) == {"conv": 30_720, "recurrent": 786_432}
    assert [tensor.precision for tensor in state.tensors] == ["model", "float32"]
    assert 48 * (30_720 * 2 + 786_432 * 4) == 153_944_064


def test_qwen3_next_keeps_its_state_in_the_model_type() -> None:
    state = only(caches(counted("Qwen/Qwen3-Next-80B-A3B-Instruct")), "state")
    assert {tensor.precision for tensor in state.tensors} == {"model"}


def test_deepseek_v4_keeps_a_window_everywhere_and_rings_where_it_compresses() -> None:
    # vLLM 0.33.0 on V4-Pro: 61 windows, 31 of 128:1, 30 of 4:1 with index keys; rings of 2,048 and
    # 512 elements over 8 tokens, of 1,024 over 128. V4-Flash has 43, 20 and 21.
    read = counted("deepseek-ai/DeepSeek-V4-Flash")
    assert kinds(read) == {"latent": 43 + 41, "indexer": 21, "ring": 20 + 2 * 21}
    rings = {
        (ring.elements_per_token, ring.window): count
        for count, ring in caches(read)
        if isinstance(ring, Ring)
    }
    assert rings == {(2048, 8): 21, (512, 8): 21, (1024, 128): 20}
    assert read.kv_format == "fp8_ds_mla_v4"


def test_mimo_has_other_heads_in_its_windows_and_narrower_values() -> None:
    read = counted("XiaomiMiMo/MiMo-V2-Flash")
    full, window = only(caches(read), "full"), only(caches(read), "sliding")
    assert (full.kv_heads, full.key_dim, full.value_dim) == (4, 192, 128)
    assert (window.kv_heads, window.key_dim, window.value_dim, window.window) == (8, 192, 128, 128)
    assert kinds(read) == {"full": 9, "sliding": 39}


def test_gemma_4_full_layers_have_wider_and_fewer_heads() -> None:
    read = counted("google/gemma-4-26B-A4B")
    full, window = only(caches(read), "full"), only(caches(read), "sliding")
    assert (full.kv_heads, full.key_dim, full.value_dim) == (2, 512, 512)
    assert (window.kv_heads, window.key_dim, window.window) == (8, 256, 1024)
    assert kinds(read) == {"sliding": 25, "full": 5}


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [
        # 35 layers, the last 15 without keys and values of their own.
        ("google/gemma-3n-E4B-it, text only", {"sliding": 16, "full": 4, "shared": 15}),
        # 42 layers, the last 18 shared.
        ("google/gemma-4-E4B-it", {"sliding": 20, "full": 4, "shared": 18}),
    ],
)
def test_the_last_layers_share_the_caches_of_earlier_ones(model_id: str, expected: dict[str, int]) -> None:
    read = counted(model_id)
    assert kinds(read) == expected
    assert {cache.reads for _, cache in caches(read) if isinstance(cache, Shared)} == {"sliding", "full"}


def test_nemotron_layers_are_one_thing_each() -> None:
    read = counted("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert kinds(read) == {"state": 23, "full": 6}
    empty = [group for group in read.layers if not group.caches]
    assert sum(group.count for group in empty) == 23
    # 64 heads x 64 + 2 x 8 groups x 128 = 6,144 channels x 3; 64 x 64 x 128 in float32.
    state = only(caches(read), "state")
    assert elements(state) == {"conv": 18_432, "recurrent": 524_288}
    assert [tensor.precision for tensor in state.tensors] == ["model", "float32"]


def test_linear_attention_layers_are_counted_from_one() -> None:
    # Kimi Linear's lists name layer 4 for index 3.
    text = dims(2304, 8, 32, 32, 9216, 163840) | {
        "linear_attn_config": {
            "full_attn_layers": [4, 8],
            "kda_layers": [1, 2, 3, 5, 6, 7],
            "head_dim": 128,
            "num_heads": 32,
            "short_conv_kernel_size": 4,
        }
    }
    read = model({"architectures": ["KimiLinearForCausalLM"], **text})
    full = next(group for group in read.layers if "latent" in group.name)
    assert full.indices == (3, 7)


def test_every_record_covers_all_layers() -> None:
    for model_id, (config, _) in COUNTED.items():
        read = model(config)
        assert sorted(index for group in read.layers for index in group.indices) == list(
            range(read.layer_count)
        ), model_id


@pytest.mark.parametrize(
    ("config", "own"),
    [
        ({"index_topk_freq": 4}, [0, 1, 5, 9]),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, [0, 1, 2, 6, 10]),
        ({"index_topk_freq": 3, "index_skip_topk_offset": 0}, [2, 5, 8, 11]),
        ({}, list(range(12))),
        ({"index_topk_pattern": "FSSSFSSSFSSS"}, [0, 4, 8]),
    ],
)
def test_layers_that_choose_anew_are_those_of_the_engines_schedule(
    config: dict[str, object], own: list[int]
) -> None:
    """vLLM 0.33 ``models/deepseek_v2.py``: a layer skips where ``max(layer_id - offset + 1, 0) % freq != 0``; the offset is 2."""
    chosen = indexed_layers(Keys(config, "config.json"), 12)
    assert [index for index, one in enumerate(chosen) if one] == own
