"""Scheduler sizes that vLLM takes when it is told none, by release and device.

``engine/arg_utils.py``: ``get_batch_defaults`` (0.11.1 on), ``_set_default_args_v1`` (0.8 to 0.10) and
``config.py::SchedulerConfig.__post_init__`` (0.6 and 0.7).
"""

from __future__ import annotations

from typing import Final

from kvreport.catalog.release import Release
from kvreport.units import GIB

LARGE_BYTES: Final = 70 * GIB
LARGEST_BYTES: Final = 160 * GIB

FIRST_ENGINE_LEAST: Final = 2048
FIRST_ENGINE_IMAGES: Final = 5120
"""The least for a model that takes images (0.6.4 and 0.6.6 ``config.py::_MULTIMODAL_MODEL_MAX_NUM_BATCHED_TOKENS``)."""
FIRST_ENGINE_LONG: Final = 32768
FIRST_ENGINE_SEQS: Final = 256

Sizes = tuple[int, int]


def default_sizes(
    release: Release,
    device: str,
    memory_bytes: int,
    *,
    context_tokens: int | None = None,
    offline: bool = False,
    images: bool = False,
) -> Sizes:
    """Tokens of one step and requests at once.

    Args:
        release: The release.
        device: The accelerator's id, for rules that go by name.
        memory_bytes: Memory of the device.
        context_tokens: The longest request; None where it is not known.
        offline: True for the ``LLM`` class.
        images: True for a multimodal model.
    """
    if release.has("first_engine"):
        return first_engine_tokens(release, context_tokens, images=images), FIRST_ENGINE_SEQS
    tokens, seqs = _by_device(release, device, memory_bytes, offline=offline)
    if context_tokens is not None and release.has("step_within_context"):
        tokens = min(tokens, seqs * context_tokens)
    return tokens, seqs


def first_engine_tokens(release: Release, context_tokens: int | None, *, images: bool = False) -> int:
    """Tokens of one step of the first engine: the longest prompt, in chunks above 32K; multimodal models are not chunked."""
    if context_tokens is None:
        return FIRST_ENGINE_IMAGES if images else FIRST_ENGINE_LEAST
    if context_tokens > FIRST_ENGINE_LONG and not images:
        return release.count("first_engine_chunk")
    return max(context_tokens, FIRST_ENGINE_IMAGES if images else FIRST_ENGINE_LEAST)


def is_large(release: Release, device: str, memory_bytes: int) -> bool:
    """True for devices that the release treats as an H100.

    The GB10's driver does not answer the question for its memory, which counts as a small device, until 0.33.0, which names it.
    """
    if not release.has("large_by_memory"):
        return "h100" in device or "h200" in device
    if "a100" in device and release.has("a100_is_small"):
        return False
    if "gb10" in device:
        return False
    if "ryzen-ai" in device and release.has("apu_set_apart"):
        return False
    return memory_bytes >= LARGE_BYTES


def _by_device(release: Release, device: str, memory_bytes: int, *, offline: bool) -> Sizes:
    if memory_bytes >= LARGEST_BYTES and release.has("twice_from_160_gib"):
        return 16384, 1024
    if is_large(release, device, memory_bytes):
        return (16384 if offline else 8192), 1024
    return (8192 if offline else 2048), release.count("small_device_seqs")
