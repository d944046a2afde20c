"""What must hold for every profile, whatever the architecture."""

from hypothesis import given
from hypothesis import strategies as st

from kvreport.accounting.kv_cache import cache_terms
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.catalog.caches import (
    Cache,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    SlidingWindow,
    StateTensor,
)
from kvreport.catalog.formats import KvFormat

FP8 = KvFormat(name="fp8", label="FP8", bits=8, stores=("full", "sliding", "chunked", "latent", "cross"))

terms = st.builds(
    Term,
    kind=st.sampled_from(["full", "sliding", "latent", "state"]),
    rate_bytes=st.integers(0, 1 << 20),
    step_tokens=st.integers(1, 4096),
    cap_tokens=st.one_of(st.just(UNBOUNDED), st.integers(0, 1 << 20)),
    constant_bytes=st.integers(0, 1 << 30),
)
profiles = st.lists(terms, max_size=6).map(CacheProfile.of)
contexts = st.integers(0, 1 << 24)
sizes = st.integers(1, 256)
caches: st.SearchStrategy[Cache] = st.one_of(
    st.builds(FullAttention, kv_heads=sizes, key_dim=sizes, value_dim=sizes),
    st.builds(SlidingWindow, kv_heads=sizes, key_dim=sizes, value_dim=sizes, window=st.integers(1, 1 << 16)),
    st.builds(Latent, latent_dim=sizes, rope_dim=sizes, stride=st.sampled_from([1, 4, 128])),
    st.builds(Indexer, index_dim=sizes, scaled=st.booleans()),
    st.builds(
        StateTensor, name=st.just("recurrent"), channels=sizes, columns=sizes, precision=st.just("float32")
    ).map(lambda tensor: RecurrentState(mechanism="mamba2", tensors=(tensor,))),
)


@given(profiles, contexts, contexts)
def test_a_longer_context_never_holds_less(profile: CacheProfile, a: int, b: int) -> None:
    short, long = sorted((a, b))
    assert profile.request_bytes(short) <= profile.request_bytes(long)


@given(profiles, contexts)
def test_the_terms_sum_to_the_request(profile: CacheProfile, context: int) -> None:
    alone = sum(int(CacheProfile((term,)).request_bytes(context)) for term in profile.terms)
    assert alone == profile.request_bytes(context)


@given(st.lists(terms, max_size=6), contexts)
def test_merging_terms_changes_no_byte(parts: list[Term], context: int) -> None:
    assert CacheProfile(tuple(parts)).request_bytes(context) == CacheProfile.of(parts).request_bytes(context)


@given(profiles, st.integers(0, 1 << 40), st.integers(1, 1 << 24))
def test_the_longest_context_fits_and_the_next_does_not(profile: CacheProfile, pool: int, limit: int) -> None:
    longest = int(profile.longest_context(pool, limit))
    if longest:
        assert profile.request_bytes(longest) <= pool
    if longest < limit:
        assert profile.request_bytes(longest + 1) > pool


@given(caches, st.integers(1, 64), st.integers(1, 200), contexts)
def test_bytes_are_linear_in_layers(cache: Cache, tp: int, layers: int, context: int) -> None:
    one = CacheProfile.of(cache_terms(cache, tensor_parallel=tp))
    many = CacheProfile.of(term.scaled(layers) for term in cache_terms(cache, tensor_parallel=tp))
    assert many.request_bytes(context) == layers * one.request_bytes(context)


@given(caches, st.sampled_from([1, 2, 4, 8, 16, 32]), contexts)
def test_more_ranks_never_raise_the_bytes_of_one(cache: Cache, tp: int, context: int) -> None:
    one = CacheProfile.of(cache_terms(cache, tensor_parallel=tp)).request_bytes(context)
    two = CacheProfile.of(cache_terms(cache, tensor_parallel=2 * tp)).request_bytes(context)
    assert two <= one


@given(caches, contexts)
def test_eight_bits_never_hold_more_than_sixteen(cache: Cache, context: int) -> None:
    narrow = CacheProfile.of(cache_terms(cache, FP8)).request_bytes(context)
    assert narrow <= CacheProfile.of(cache_terms(cache)).request_bytes(context)
