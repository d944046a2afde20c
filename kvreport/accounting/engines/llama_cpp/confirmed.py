"""How far the compute buffers of an architecture are confirmed by the real planner, and by published starts."""

from __future__ import annotations

from functools import lru_cache

from kvreport.catalog.llama_check import CheckedArchitecture, LlamaCheck
from kvreport.catalog.llama_cpp import LocalArchitecture
from kvreport.units import human_bytes, human_tokens


@lru_cache(maxsize=512)
def check_of(name: str) -> CheckedArchitecture | None:
    """What the check of an architecture found (``data/llama_cpp/check.yaml``); None where it was not checked.

    ``name``: name in a GGUF file.
    """
    check = LlamaCheck.read()
    found = [] if check is None else [one for one in check.architectures if one.architecture == name]
    return found[0] if found and found[0].compared else None


def times_larger(architecture: LocalArchitecture) -> float:
    """How many times ours a compute buffer may be: 1 where the check agrees, or nobody checked."""
    checked = check_of(architecture.name)
    if checked is None or checked.within_2_percent == checked.compared:
        return 1.0
    # The difference is relative to the real buffer: 0.5 may mean twice ours. From 1 on ours is the larger one, and the
    # band is as wide upwards as it was downwards.
    off = checked.largest_difference
    return 1 / (1 - off) if off < 1 else 1 + off


def confirmation(architecture: LocalArchitecture, times: float) -> str:
    """What an answer says of its compute buffers where the check does not agree; empty where it does."""
    checked = check_of(architecture.name)
    if checked is None:
        return "compute buffer: no check against llama.cpp covers this architecture"
    if checked.within_2_percent == checked.compared:
        return ""
    agreed = f"{checked.within_2_percent} of {checked.compared} checked settings agree within 2%"
    reported = architecture.compute_reported
    if reported is not None and times > times_larger(architecture):
        size, tokens = human_bytes(reported.bytes), human_tokens(reported.context_tokens)
        agreed += f", and {size} at {tokens} were reported"
    return f"compute buffer not confirmed for this architecture, may be up to {times:.1f} times larger ({agreed})"
