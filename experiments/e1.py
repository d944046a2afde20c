"""E1: what the cache holds at every length, tensor by tensor, against the cache profile.

On a CUDA device full-size models are prefilled in pieces to 131,072 tokens and the cache is read
on the way. On the meta device the same full-size models make shapes without memory. On a CPU every
config is narrowed and prefilled below and past its window, and a few archetypes at growing lengths.
"""

from __future__ import annotations

from typing import Final

from experiments import theory
from experiments.cache import held
from experiments.device import Device
from experiments.models import SMALL_LENGTHS, SMALL_WINDOW, Subject, build, known, narrow, subject
from experiments.prefill import PIECE_TOKENS, prefill, tokens
from experiments.record import Log

NAME: Final = "e1-cache-bytes"

ARCHETYPES: Final = (
    ("every head its own (MHA)", "meta-llama/Llama-2-7b-hf"),
    ("grouped heads (GQA)", "meta-llama/Llama-3.1-8B"),
    ("sliding window", "google/gemma-3-27b-it"),
    ("latent (MLA)", "zai-org/GLM-4.7-Flash"),
    ("hybrid with state", "Qwen/Qwen3.5-27B"),
)
"""One model for each way of caching; on the CUDA device as published, on a CPU narrowed."""

LENGTHS: Final = tuple(1 << power for power in range(7, 18))
CPU_LIMIT: Final = 2048


def run(log: Log, device: Device) -> None:
    """Run the experiment that this device can bear."""
    if device.kind == "cpu":
        _every_config(log)
        for case, model_id in ARCHETYPES:
            _grow(log, device, case, narrow(subject(model_id)), [n for n in LENGTHS if n <= CPU_LIMIT])
    else:
        for case, model_id in ARCHETYPES:
            _grow(log, device, case, subject(model_id), list(LENGTHS))
    log.save()


def _every_config(log: Log) -> None:
    """Prefill every config, narrowed, below its window and past it."""
    for model_id in known():
        try:
            small = narrow(subject(model_id), window=SMALL_WINDOW)
            net = _build(small, "cpu")
            for length in SMALL_LENGTHS:
                cache = prefill(net, tokens(small, 1, length, "cpu"))
                _note(log, "every architecture, narrowed", small, cache, length)
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
            log.fail(f"{model_id}, narrowed", error)
    log.save()


def _grow(log: Log, device: Device, case: str, model: Subject, lengths: list[int]) -> None:
    """Prefill one request in pieces and read the cache at every length on the way."""
    if log.time_left < 20:
        log.fail(case, "no time left")
        return
    wanted = set(lengths)
    piece = min(PIECE_TOKENS, lengths[-1])
    try:
        net = _build(model, device.kind)
        if device.kind == "meta":
            for length in lengths:
                _note(log, case, model, prefill(net, tokens(model, 1, length, "meta")), length)
            return
        for length in (n for n in lengths if n < piece):
            _note(log, case, model, prefill(net, tokens(model, 1, length, device.kind)), length)

        def after(length: int, cache: object) -> None:
            if length in wanted:
                _note(log, case, model, cache, length)
            if log.time_left < 5:
                raise TimeoutError(f"stopped at {length} tokens: no time left")  # noqa: TRY301

        prefill(net, tokens(model, 1, lengths[-1], device.kind), piece=piece, after=after)
    except (RuntimeError, ValueError, TypeError, AttributeError, TimeoutError) as error:
        log.fail(f"{case}: {model.id}", error)
    finally:
        net = None
        device.clear()
        log.save()


def _build(model: Subject, device: str):  # noqa: ANN202
    try:
        return build(model, device=device)
    except ValueError:  # a class without scaled_dot_product_attention
        return build(model, device=device, attention="eager")


def _note(log: Log, case: str, model: Subject, cache: object, length: int) -> None:
    found = held(cache)
    at = {"context_tokens": length, "tensors": found.tensors}
    log.add(
        case, "cache", found.shape_bytes, theory.cache_bytes(model, length), model=model.id,
        note=model.narrowed or None, **at,
    )  # fmt: skip
    if found.storage_bytes > found.shape_bytes:
        log.add(
            case, "memory behind the cache", found.storage_bytes, found.shape_bytes, relation="at_least",
            model=model.id, note="tensors are views of longer ones until the next token replaces them", **at,
        )  # fmt: skip
