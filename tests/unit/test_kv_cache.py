"""Bytes of every cache kind, against figures worked by hand or read off an engine."""

import pytest

from kvreport.accounting.kv_cache import (
    cache_terms,
    index_bytes,
    latent_bytes,
    state_bytes,
    state_tensor_bytes,
    vector_bytes,
)
from kvreport.accounting.profile import CacheProfile
from kvreport.catalog.caches import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Ring,
    Shared,
    SlidingWindow,
    StateTensor,
)
from kvreport.catalog.formats import KvFormat
from kvreport.errors import InputError

ALL = ("full", "sliding", "chunked", "latent", "cross")
FP8 = KvFormat(name="fp8", label="FP8", bits=8, stores=ALL)
MLA = Latent(latent_dim=512, rope_dim=64)


def kv(name: str, **fields: object) -> KvFormat:
    return KvFormat.model_validate({"name": name, "label": name, "stores": ALL, **fields})


def request(cache: object, tokens: int, kv_format: KvFormat | None = None, tp: int = 1) -> int:
    terms = cache_terms(cache, kv_format, tensor_parallel=tp)  # type: ignore[arg-type]
    return int(CacheProfile.of(terms).request_bytes(tokens))


def test_grouped_query_attention_keeps_one_key_and_value_per_kv_head() -> None:
    # Llama 3.1 8B: 8 KV heads x (128 + 128) x 2 B = 4,096 B per layer; x 32 layers = 131,072.
    cache = FullAttention(kv_heads=8, key_dim=128, value_dim=128)
    assert request(cache, 1) * 32 == 131_072
    assert request(cache, 1, FP8) * 32 == 65_536


def test_keys_and_values_may_differ_in_width() -> None:
    # MiMo-V2: K 192, V 128.
    assert request(FullAttention(kv_heads=4, key_dim=192, value_dim=128), 1) == 4 * 320 * 2


def test_kv_heads_divide_by_tensor_parallel_until_one_is_left() -> None:
    cache = FullAttention(kv_heads=8, key_dim=128, value_dim=128)
    assert [request(cache, 1, tp=tp) for tp in (1, 2, 4, 8, 16, 32)] == [
        4096,
        2048,
        1024,
        512,
        512,
        512,
    ]


def test_a_latent_is_whole_on_every_rank() -> None:
    # DeepSeek-V3: 61 layers x (512 + 64) x 2 B = 70,272 B on each of 8 ranks.
    assert {request(MLA, 1, tp=tp) * 61 for tp in (1, 2, 4, 8)} == {70_272}


def test_sparse_latents_keep_their_rotary_part_wide() -> None:
    # vLLM's fp8_ds_mla: 512 FP8 + 4 scales x 4 B + 64 x 2 B = 656 B.
    ds_mla = kv("fp8-ds-mla", bits=8, scale_bytes=4, scale_every=128, wide_rope_bytes=2)
    assert latent_bytes(MLA, ds_mla) == 656
    assert latent_bytes(MLA, FP8) == 576
    assert latent_bytes(MLA) == 1152


def test_padded_latents_of_compressed_attention() -> None:
    # DeepSeek-V4: 448 FP8 + 7 one-byte scales + 64 x 2 B = 583 B, kept as 584.
    v4 = kv("v4", bits=8, scale_bytes=1, scale_every=64, wide_rope_bytes=2, align_bytes=8)
    assert latent_bytes(Latent(latent_dim=448, rope_dim=64), v4) == 584


def test_compressed_latents_grow_once_per_stride() -> None:
    cache = Latent(latent_dim=448, rope_dim=64, stride=4)
    assert [request(cache, n) for n in (1, 4, 5, 8)] == [1024, 1024, 2048, 2048]


def test_index_keys_carry_a_scale_per_128_elements() -> None:
    assert index_bytes(Indexer(index_dim=128)) == 132
    assert index_bytes(Indexer(index_dim=128, scaled=False)) == 256


def test_windows_and_chunks_stop_growing() -> None:
    window = SlidingWindow(kv_heads=8, key_dim=64, value_dim=64, window=128)
    chunk = ChunkedAttention(kv_heads=8, key_dim=128, value_dim=128, chunk=8192)
    assert request(window, 100_000) == 128 * 8 * 128 * 2
    assert request(chunk, 100_000) == 8192 * 8 * 256 * 2


def test_the_gated_deltanet_state_of_one_layer() -> None:
    # Qwen3.6-27B: conv (2*16*128 + 48*128) x 3 x 2 B + recurrent 48 x 128 x 128 x 4 B
    # = 61,440 + 3,145,728 = 3,207,168 B, the Mamba page of vLLM; x 48 layers = 153,944,064 B.
    cache = RecurrentState(
        mechanism="gated_deltanet",
        tensors=(
            StateTensor(name="conv", channels=10_240, columns=3),
            StateTensor(name="recurrent", channels=48 * 128, columns=128, precision="float32"),
        ),
    )
    assert state_bytes(cache) == 3_207_168
    assert state_bytes(cache) * 48 == 153_944_064
    assert request(cache, 1) == request(cache, 10**6)
    assert state_bytes(cache, tensor_parallel=4) * 4 == 3_207_168


def test_mamba2_groups_are_extended_to_one_per_rank() -> None:
    # 8 groups of 2 x 128 channels on 16 ranks: one group each, twice the conv channels in all.
    conv = StateTensor(name="conv", channels=4096, columns=3, groups=8, channels_per_group=256)
    assert state_tensor_bytes(conv) == (4096 + 8 * 256) * 3 * 2
    assert state_tensor_bytes(conv, 16) == (256 + 256) * 3 * 2


def test_rings_and_encoder_tokens_are_bounded() -> None:
    assert request(Ring(elements_per_token=2048, window=8), 1_000) == 2048 * 4 * 8
    cross = CrossAttention(kv_heads=8, key_dim=128, value_dim=128, encoder_tokens=6404)
    assert request(cross, 1) == 8 * 256 * 2 * 6404


def test_a_shared_layer_holds_nothing() -> None:
    assert request(Shared(reads="full"), 10_000) == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"bits": 8}, 128),
        ({"bits": 8, "scale_bytes": 4}, 132),
        ({"bits": 4, "scale_bytes": 4}, 68),
        ({"bits": 4, "scale_bytes": 1, "scale_every": 16}, 72),
        ({"bits": 8, "scale_bytes": 2, "scale_every": 32}, 136),
        ({"bits": 4, "scale_bytes": 2, "scale_every": 32}, 72),
    ],
)
def test_scales_are_part_of_a_vector(fields: dict[str, object], expected: int) -> None:
    assert vector_bytes(128, kv("x", **fields)) == expected


def test_a_format_that_cannot_store_a_cache_is_refused_by_name() -> None:
    only_latent = kv("fp8-ds-mla", bits=8, stores=("latent",))
    with pytest.raises(InputError, match="'fp8-ds-mla' cannot store a full cache; it stores: latent"):
        request(FullAttention(kv_heads=1, key_dim=64, value_dim=64), 1, only_latent)


def test_context_parallel_ranks_share_the_tokens_of_full_caches_only() -> None:
    full = cache_terms(FullAttention(kv_heads=1, key_dim=64, value_dim=64), context_parallel=4)
    window = cache_terms(SlidingWindow(kv_heads=1, key_dim=64, value_dim=64, window=512), context_parallel=4)
    assert CacheProfile.of(full).request_bytes(1000) == 250 * 256
    assert CacheProfile.of(window).request_bytes(1000) == 512 * 256
