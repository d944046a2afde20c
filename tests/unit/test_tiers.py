"""Offload and prefix reuse, against sums worked by hand."""

import numpy as np
import pytest

from kvreport.accounting.demand import demand
from kvreport.accounting.kv_cache import held
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.tiers import (
    LINKS,
    Tier,
    offload,
    prefix_reuse,
    requests_kept,
    restore_seconds,
)
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError

CATALOG = open_catalog()
LLAMA = CATALOG.model("meta-llama/Llama-3.1-8B-Instruct")
PROFILE = held(LLAMA)
DEMAND = demand(LLAMA, None, CATALOG.weight_formats)
H100 = Peaks.of(CATALOG.accelerator("h100-sxm-80gb"))
HOST = Tier("host memory", 256 * 10**9, LINKS["PCIe 5.0 x16"])


def test_host_memory_keeps_conversations() -> None:
    # Llama 3.1 8B: 131,072 B per token; 32K tokens are 4.295 GB; 256 GB keep 59 of them.
    assert int(requests_kept(HOST, PROFILE, 32_768)) == 59


def test_bringing_back_takes_bytes_over_bandwidth() -> None:
    # 4.295 GB / 63 GB/s = 68.2 ms.
    assert float(restore_seconds(HOST, PROFILE, 32_768)) == pytest.approx(0.0682, rel=0.01)


def test_bringing_back_beats_prefilling_again() -> None:
    # 32K tokens: 2 x 6.979e9 x 32,768 = 4.574e14, attention 32 x 16,384 x 32,768^2 / 2 = 2.815e14;
    # 7.389e14 / 989e12 = 747 ms, eleven times as long as over PCIe 5.
    table = offload(HOST, PROFILE, DEMAND, H100, [32_768])
    assert table.prefill_s[0] == pytest.approx(0.747, rel=0.05)
    assert table.speedup[0] == pytest.approx(10.95, rel=0.05)


def test_a_shared_prefix_is_held_and_computed_once() -> None:
    # 100 requests of 4,096 tokens that share 3,072: 99 x 3,072 x 131,072 B are saved of 100 x 4,096 x 131,072.
    saved = prefix_reuse(PROFILE, DEMAND, H100, prompt_tokens=4096, prefix_tokens=[0, 3072], requests=100)
    assert saved.saved_share.tolist() == pytest.approx([0.0, 0.99 * 0.75])
    assert saved.prefill_shared_s[1] < saved.prefill_alone_s[1] / 3
    assert saved.prefill_shared_s[0] == pytest.approx(saved.prefill_alone_s[0])


def test_only_whole_blocks_of_a_prefix_are_neither_held_nor_computed_again() -> None:
    # 3,000 tokens are 187 blocks of 16, or 2,992 tokens.
    blocks = CacheProfile.of([Term("full", 16 * 131_072, 16)])
    saved = prefix_reuse(blocks, DEMAND, H100, prompt_tokens=4000, prefix_tokens=[2992, 3000], requests=100)
    assert saved.shared_bytes[0] == saved.shared_bytes[1]
    assert saved.prefill_shared_s[0] == saved.prefill_shared_s[1]


def test_windows_and_states_save_nothing() -> None:
    profile = CacheProfile.of([Term("sliding", 100, cap_tokens=128), Term("state", constant_bytes=9999)])
    saved = prefix_reuse(profile, DEMAND, H100, prompt_tokens=4096, prefix_tokens=2048, requests=8)
    assert float(saved.saved_share) == 0


def test_impossible_tiers_and_prefixes_are_refused() -> None:
    with pytest.raises(InputError, match="a size and a speed"):
        Tier("nothing", 0, 1e9)
    with pytest.raises(InputError, match=r"0 to the prompt of 4,096"):
        prefix_reuse(PROFILE, DEMAND, H100, prompt_tokens=4096, prefix_tokens=np.array([5000]), requests=2)
