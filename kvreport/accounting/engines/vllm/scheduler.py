"""Scheduler sizes that vLLM takes when it is told none, by release and device.

``engine/arg_utils.py``: ``get_batch_defaults`` (0.11.1 on) and ``_set_default_args_v1`` (0.9 to 0.11.0).
"""

from __future__ import annotations

from typing import Final

from kvreport.catalog.release import Release
from kvreport.units import GIB

LARGE_BYTES: Final = 70 * GIB
LARGEST_BYTES: Final = 160 * GIB

Sizes = tuple[int, int]


def default_sizes(
    release: Release,
    device: str,
    memory_bytes: int,
    *,
    context_tokens: int | None = None,
    offline: bool = False,
) -> Sizes:
    """Tokens of one step and requests at once.

    Args:
        release: The release.
        device: The accelerator's id, for rules that go by name.
        memory_bytes: Memory of the device.
        context_tokens: The longest request; None where it is not known.
        offline: True for the ``LLM`` class.
    """
    tokens, seqs = _by_device(release, device, memory_bytes, offline=offline)
    if context_tokens is not None and release.has("step_within_context"):
        tokens = min(tokens, seqs * context_tokens)
    return tokens, seqs


def is_large(release: Release, device: str, memory_bytes: int) -> bool:
    """True for devices that the release treats as an H100.

    The GB10's driver does not answer the question for its memory, which counts as a small device, until 0.33.0, which names it.
    """
    if "a100" in device or "gb10" in device:
        return False
    if "ryzen-ai" in device and release.has("apu_set_apart"):
        return False
    return memory_bytes >= LARGE_BYTES


def _by_device(release: Release, device: str, memory_bytes: int, *, offline: bool) -> Sizes:
    if memory_bytes >= LARGEST_BYTES and release.has("twice_from_160_gib"):
        return 16384, 1024
    if is_large(release, device, memory_bytes):
        return (16384 if offline else 8192), 1024
    return (8192 if offline else 2048), 256
