"""Up to vLLM 0.23 every layer of GLM-5.2 has an indexer and a cache for its keys; since 0.24, those that choose have."""

from __future__ import annotations

import pytest
from record_files import observation

from kvreport.accounting.allocation import allocate
from kvreport.catalog.load import open_catalog
from kvreport.evidence.validation import engine_of
from kvreport.startup_log.judge import diagnose_start
from kvreport.startup_log.observed import find_model, published_start

CATALOG = open_catalog()
LATENT, KEYS = (
    656,
    132,
)  # Bytes of a token in FP8: 512 values, 4 scales, 64 rotary ones of 16 bits; 128 values and a scale.


@pytest.mark.parametrize(
    ("release", "token"),
    [("0.23.0", 78 * (LATENT + KEYS)), ("0.24.0", 78 * LATENT + 21 * KEYS)],
)
def test_a_token_of_glm_5_2_has_as_many_index_keys_as_the_release_has_indexers(
    release: str, token: int
) -> None:
    """Two starts print what 78 make: 502,016 tokens of 28.74 GiB, and 60.79 GiB for 1,048,576 tokens with a drafting layer."""
    log = observation("finch-103").model_copy(update={"engine_version": release})
    engine, (model, own) = engine_of(CATALOG, log), find_model(CATALOG, log)
    assert engine is not None
    assert model is not None
    start = published_start(CATALOG, log, engine, model, own=own)
    laid = start.laid_out()
    assert laid is not None
    assert int(laid.plan.profile.request_bytes(64)) == 64 * token
    unread = allocate(start.case()).overhead[0].get("idle_indexers", 0)
    # 57 layers: queries of 4,096 x 2,048 in FP8, keys of 128 x 6,144, and a weight of each of 32 heads in 16 bits.
    assert unread == pytest.approx(
        57 * (4096 * 2048 + 128 * 6144 + 32 * 6144 * 2) * (release == "0.23.0"), rel=0.01
    )
    found = {one.quantity: one for one in diagnose_start(start).comparisons}
    if release == "0.23.0":
        assert found["tokens given pool"].predicted == found["tokens given pool"].observed == 502_016
