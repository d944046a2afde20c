"""Prefill and decode apart: what is refused and what is said."""

from __future__ import annotations

import pytest

from kvreport.errors import InputError
from kvreport.estimation.size import size


@pytest.mark.parametrize(("available", "said"), [(8, "found 8 GPUs; decode takes 8"), (24, None)])
def test_two_pools_are_held_against_what_is_available(available: int, said: str | None) -> None:
    asked = {
        "gpus": ["h200"],
        "concurrent": 64,
        "context": 32768,
        "available": available,
        "disaggregated": True,
    }
    if said:
        with pytest.raises(InputError, match=said):
            size(["deepseek-ai/DeepSeek-V3"], **asked)
        return
    apart = size(["deepseek-ai/DeepSeek-V3"], **asked).apart
    assert apart is not None
    assert any(
        "4 x 8 prefill GPUs and 8 decode GPUs, 16 more than are available" in line for line in apart.lines()
    )
