"""Waste of pages and of stretches, against hand-worked sums and the PagedAttention paper."""

import numpy as np
import pytest

from kvreport.accounting.paging import (
    Lengths,
    Occupancy,
    Reservation,
    last_page_waste,
    occupancy,
    page_steps,
    pages,
    reserved_tokens,
)
from kvreport.errors import InputError

# ShareGPT as the PagedAttention paper describes it (Kwon et al., arXiv 2309.06180, section 6.1):
# 161.31 tokens in and 337.99 out on average; its models were limited to 2,048 tokens.
SHAREGPT_PROMPTS = Lengths.spread(161.31, 1024).draw(4096, base=2)
SHAREGPT_OUTPUTS = np.minimum(Lengths.spread(337.99, 2047).draw(4096, base=3), 2048 - SHAREGPT_PROMPTS)


def sharegpt(reservation: Reservation, page_tokens: int = 16) -> Occupancy:
    return occupancy(
        SHAREGPT_PROMPTS,
        SHAREGPT_OUTPUTS,
        reservation,
        maximum_tokens=2048,
        page_tokens=page_tokens,
    )


def test_a_request_needs_every_started_page() -> None:
    assert pages([0, 1, 16, 17, 6000], 16).tolist() == [0, 1, 1, 2, 375]


def test_page_steps_sum_the_pages_of_a_growing_request() -> None:
    # 4 tokens per page, 10 tokens: 1+1+1+1 + 2+2+2+2 + 3+3 = 18.
    assert int(page_steps(10, 4)) == 18
    by_hand = sum(-(-t // 16) for t in range(1, 1001))
    assert int(page_steps(1000, 16)) == by_hand


def test_reservations_of_one_request() -> None:
    # 100 in, 300 out, at most 2,048: the next power of two above 300 is 512; 400 / 16 = 25 pages.
    def reserved(reservation: Reservation) -> int:
        return int(reserved_tokens(100, 300, reservation, maximum_tokens=2048))

    assert reserved("maximum") == 2048
    assert reserved("power_of_two") == 612
    assert reserved("exact") == 400
    assert reserved("pages") == 400
    assert int(reserved_tokens(100, 301, "pages", maximum_tokens=2048)) == 416


def test_occupancy_of_one_request_by_hand() -> None:
    # 3 in, 2 out: it stores 4, then 5 tokens. A stretch of 10 for 2 steps is 20; pages of 4 are 1, then 2.
    stretch = occupancy([3], [2], "maximum", maximum_tokens=10)
    paged = occupancy([3], [2], "pages", maximum_tokens=10, page_tokens=4)
    assert (stretch.stored, stretch.occupied) == (9, 20)
    assert (paged.stored, paged.occupied) == (9, 12)


@pytest.mark.parametrize("page_tokens", [16, 32, 64, 128, 256])
def test_the_last_page_is_half_empty_on_average(page_tokens: int) -> None:
    # The closed form (page - 1) / 2 against the exact sum over 4,096 spread-out lives.
    steps = float(SHAREGPT_OUTPUTS.sum())
    found = sharegpt("pages", page_tokens)
    assert (found.occupied - found.stored) / steps == pytest.approx(
        float(last_page_waste(page_tokens)), rel=0.03
    )


def test_paging_wastes_less_than_the_four_percent_that_vllm_reports() -> None:
    # Figure 2: 96.3% of vLLM's cache held token states, with pages of 16.
    assert 0.963 < sharegpt("pages").used_share < 0.99


@pytest.mark.parametrize(
    ("reservation", "token_states", "external"),
    [
        # Figure 2 of the paper, in percent of the cache: what held token states, and what was lost
        # between stretches. A closed form knows the stretches only, so the share *inside* them,
        # token states / (100 - external), is what must agree.
        ("maximum", 20.4, 8.9),
        ("power_of_two", 26.8, 41.6),
        ("exact", 38.2, 36.6),
    ],
)
def test_stretches_waste_what_the_pagedattention_paper_measured(
    reservation: Reservation, token_states: float, external: float
) -> None:
    # Its trace is not public in full; means alone come within a sixth of its measurements.
    inside = token_states / (100 - external)
    assert sharegpt(reservation).used_share == pytest.approx(inside, rel=1 / 6)


def test_lengths_have_the_mean_and_the_maximum_asked_for() -> None:
    lengths = Lengths.spread(500, 4096)
    assert lengths.mean == pytest.approx(500, rel=0.01)
    assert lengths.maximum <= 4096
    assert lengths.tokens[0] >= 1


def test_lengths_are_drawn_alike_every_time_and_cover_the_distribution() -> None:
    lengths = Lengths.of([1, 2, 3, 4])
    assert lengths.draw(8).tolist() == lengths.draw(8).tolist()
    # Van der Corput in base 2: 1/2, 1/4, 3/4, 1/8, 5/8, 3/8, 7/8, 1/16.
    assert lengths.draw(8).tolist() == [3, 2, 4, 1, 3, 2, 4, 1]


@pytest.mark.parametrize(("mean", "maximum"), [(600, 1000), (0.5, 100), (200, 100)])
def test_impossible_lengths_are_refused_in_one_sentence(mean: float, maximum: int) -> None:
    with pytest.raises(InputError, match=r"a mean of .* with a maximum of .* is impossible"):
        Lengths.spread(mean, maximum)


def test_observed_lengths_must_be_positive() -> None:
    with pytest.raises(InputError, match="whole numbers from 1"):
        Lengths.of([3, 0])
    with pytest.raises(InputError, match="found 0 of them"):
        Lengths.of([])
