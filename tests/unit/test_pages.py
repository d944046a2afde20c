"""How layers of different caches share one pool.

Expected figures: vLLM 0.33.0's own planner, run without a GPU, for these layers.
"""

from dataclasses import replace

import pytest

from kvreport.accounting.engines.vllm.groups import (
    CacheSpec,
    Group,
    block_bytes,
    group_layers,
    promote_windows,
    terms_of,
    tuple_block_bytes,
)
from kvreport.accounting.profile import CacheProfile
from kvreport.units import GIB

IN_FLIGHT = 2 * 8192


def attention(heads: int, key: int, value: int, *, tokens: int = 16, window: int | None = None) -> CacheSpec:
    return CacheSpec(
        growth="full" if window is None else "sliding",
        kind="full" if window is None else "sliding",
        layout=(heads, key, value),
        block_tokens=tokens,
        content_bytes=tokens * heads * (key + value) * 2,
        window=None if window is None else window - 1 + IN_FLIGHT,
    )


def blocks_at(groups: tuple[Group, ...], size: int, context: int) -> list[int]:
    return [int(CacheProfile.of(terms_of(group, size)).request_bytes(context)) // size for group in groups]


def test_equal_layers_make_one_group() -> None:
    groups = group_layers([(attention(8, 128, 128), 32)])
    assert [group.layers for group in groups] == [32]
    assert block_bytes(groups) == 32 * 65_536


def test_windows_are_split_into_groups_as_large_as_the_full_layers() -> None:
    # Gemma-3-27B: 10 full and 52 sliding layers; the last groups have 8 of 10 real layers.
    groups = group_layers([(attention(16, 128, 128, window=1024), 52), (attention(16, 128, 128), 10)])
    assert [group.layers for group in groups] == [9, 9, 9, 9, 8, 8, 10]
    size = block_bytes(groups)
    assert size == 1_310_720
    assert blocks_at(groups, size, 2048) == [129] * 6 + [128]
    assert blocks_at(groups, size, 131_072) == [1089] * 6 + [8192]


def test_smaller_pages_hold_more_tokens_so_that_all_pages_are_equal() -> None:
    # MiMo-V2-Flash: 9 full layers of 4 KV heads, 39 sliding of 8, keys 192 and values 128 wide.
    groups = group_layers([(attention(4, 192, 128), 9), (attention(8, 192, 128, window=128), 39)])
    assert [(group.first.block_tokens, group.layers) for group in groups] == [
        (32, 9),
        (16, 8),
        (16, 8),
        (16, 8),
        (16, 8),
        (16, 7),
    ]
    assert block_bytes(groups) == 737_280
    assert blocks_at(groups, 737_280, 32_768) == [1024, 1033, 1033, 1033, 1033, 1033]


def test_nearly_equal_counts_take_the_larger_group() -> None:
    # 13 full and 12 sliding layers (one draft layer more): 13 < 1.5 * 12.
    groups = group_layers([(attention(8, 64, 64, window=128), 12), (attention(8, 64, 64), 13)])
    assert [group.layers for group in groups] == [12, 13]


def test_layers_that_grow_alike_share_a_group_though_their_pages_differ() -> None:
    # DeepSeek-V3.2: a latent and index keys on each of 61 layers, blocks of 64 tokens.
    latent = CacheSpec("full", "latent", ("latent",), 64, 64 * 1152, latent=True)
    index = CacheSpec("full", "indexer", ("index",), 64, 64 * 132, latent=True)
    groups = group_layers([(index, 61), (latent, 61)])
    assert [group.layers for group in groups] == [122]
    assert block_bytes(groups) == 5_012_736


def test_a_page_that_does_not_divide_is_padded_unless_it_is_a_latent() -> None:
    small, large = attention(3, 128, 128, window=512), attention(4, 128, 128)
    groups = group_layers([(small, 4), (large, 4)])
    assert {group.first.page_bytes for group in groups} == {large.page_bytes}
    assert groups[0].first.block_tokens == 16
    latent = CacheSpec("full", "latent", ("latent",), 16, 10_000, latent=True)
    with pytest.raises(ValueError, match="cannot be padded"):
        group_layers([(latent, 4), (attention(8, 128, 128, window=512), 4)])


def packed(kind: str, name: str, tokens: int, content: int, window: int | None = None) -> CacheSpec:
    return CacheSpec(
        growth="full" if window is None else "sliding",
        kind=kind,  # type: ignore[arg-type]
        layout=(name,),
        block_tokens=tokens,
        content_bytes=content,
        padded_bytes=-(-content // 576) * 576,
        window=None if window is None else window - 1 + IN_FLIGHT,
        latent=True,
    )


def test_deepseek_v4_packs_unequal_pages_side_by_side() -> None:
    # DeepSeek-V4-Pro: 61 windows, 31 layers compressed 128 to 1, 30 compressed 4 to 1 with index
    # keys, and the compressors' rings.
    layers = [
        (packed("latent", "window", 64, 37_376, 128), 61),
        (packed("latent", "c128", 256, 1_168), 31),
        (packed("ring", "c128", 8, 32_768, 128), 31),
        (packed("indexer", "c4", 256, 8_448), 30),
        (packed("ring", "index", 4, 8_192, 8), 30),
        (packed("latent", "c4", 256, 37_376), 30),
        (packed("ring", "c4", 4, 32_768, 8), 30),
    ]
    groups = group_layers(layers, interleaved=True)
    assert [group.page_bytes for group in groups] == [1_160_640, 1_123_200, 1_435_968, 1_017_792, 1_244_160]
    size = block_bytes(groups, interleaved=True)
    assert size == 1_435_968
    assert blocks_at(groups, size, 2048) == [33, 33, 8, 257, 513]
    assert blocks_at(groups, size, 131_072) == [259, 259, 512, 2065, 4099]


def test_until_023_packed_layers_lie_in_tuples_of_one_page_of_every_size() -> None:
    # DeepSeek-V4-Flash, 43 layers. A log of 0.22 needs 6.66 GiB for 30,000 tokens with steps of 16,384
    # and fits 13,528 into 5.44 GiB (data/observations: obs-105); blocks of the widest group would need
    # 6.35 GiB and fit 14,192.
    step = 16_384
    layers = [
        (replace(packed("latent", "window", 64, 37_376, 128), window=127 + step), 43),
        (packed("latent", "c4", 256, 37_376), 21),
        (packed("indexer", "c4", 256, 8_448), 21),
        (replace(packed("ring", "c4", 4, 32_768, 8), window=7 + step), 21),
        (replace(packed("ring", "index", 4, 8_192, 8), window=7 + step), 21),
        (packed("latent", "c128", 256, 1_168), 20),
        (replace(packed("ring", "c128", 8, 32_768, 128), window=127 + step), 20),
    ]
    groups = group_layers(layers, interleaved=True)
    size = tuple_block_bytes(groups)
    assert size == (37_440 + 8_640 + 1_728) * 22
    profile = CacheProfile.of(term for group in groups for term in terms_of(group, size))
    assert round(int(profile.request_bytes(30_000)) / GIB, 2) == 6.66
    free = (int(5.44 * GIB) // size - 1) * size
    assert int(profile.longest_context(free, 30_000)) == pytest.approx(13_528, rel=0.01)


def test_without_the_hybrid_manager_windows_cost_like_full_attention() -> None:
    layers = promote_windows([(attention(8, 64, 64, window=128), 12), (attention(8, 64, 64), 12)])
    groups = group_layers(layers)
    assert len(groups) == 1
    assert blocks_at(groups, block_bytes(groups), 131_072) == [8192]


def test_without_full_attention_windows_stay_windows() -> None:
    layers = [(attention(8, 128, 128, window=4096), 32)]
    assert promote_windows(layers) == layers


def test_terms_add_up_to_whole_blocks_at_every_length() -> None:
    groups = group_layers([(attention(16, 128, 128, window=1024), 52), (attention(16, 128, 128), 10)])
    size = block_bytes(groups)
    profile = CacheProfile.of(term for group in groups for term in terms_of(group, size))
    held = profile.request_bytes([1, 15, 16, 17, 5000, 17_407, 17_408, 200_000])
    assert (held % size == 0).all()


def test_a_promoted_page_is_at_least_as_large_as_its_content() -> None:
    layers = [
        (packed("latent", "window", 64, 37_376, 128), 4),
        (packed("latent", "c4", 256, 37_376), 4),
    ]
    window = promote_windows(layers)[0][0]
    assert (window.block_tokens, window.page_bytes) == (256, 4 * 37_376)
