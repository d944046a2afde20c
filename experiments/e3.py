"""E3: the real out-of-memory boundary: the largest batch that decodes before the allocator refuses.

For each context the batch is found by bisection. A probe fills the caches of a whole batch (the
shapes that a prefill leaves, taken from the same code on the meta device) and decodes two tokens of
every request; it fails when the allocator does. At the boundary the prompts are really prefilled
and decoded once more where that takes less than :data:`CONFIRM_SECONDS`, and the batch is lowered
until that succeeds too. What we compute is how many caches fit into the memory that was free once
the weights were loaded: it cannot be beaten, and how far it is missed is the finding.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import torch

from experiments import theory
from experiments.cache import filled, template
from experiments.device import Device
from experiments.models import Subject, build, narrow, subject
from experiments.prefill import forward, prefill, tokens
from experiments.record import Log

NAME: Final = "e3-boundary"
MODELS: Final = (
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-7B-Instruct",
    "google/gemma-3-27b-it",
    "Qwen/Qwen3.5-27B",
)
CONTEXTS: Final = tuple(1 << power for power in range(11, 18))
STEP_TOKENS: Final = 8192
CONFIRM_SECONDS: Final = 15.0
ASSUMED_RATE: Final = 2e14
"""Operations per second by which a prefill's time is guessed, only to decide whether to confirm."""
SETTINGS: Final = {"decode_steps": 2, "prefill_step_tokens": STEP_TOKENS, "confirm_seconds": CONFIRM_SECONDS}


def run(log: Log, device: Device) -> None:
    """Find the boundary of every model."""
    share = log.time_left / len(MODELS)
    for number, model_id in enumerate(MODELS):
        floor = log.time_left - share if number < len(MODELS) - 1 else 5.0
        model = subject(model_id)
        try:
            boundary(log, device, model, CONTEXTS, stop_at=floor)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            log.fail(model_id, error)
        device.clear()
        log.save()


def boundary(
    log: Log,
    device: Device,
    model: Subject,
    contexts: tuple[int, ...],
    *,
    stop_at: float,
    room_bytes: int | None = None,
) -> None:
    """Find one model's boundary.

    Args:
        log: Where readings go.
        device: What it runs on.
        model: The model.
        contexts: Tokens of each request, ascending.
        stop_at: Seconds left in the log at which to stop.
        room_bytes: Memory for caches; None for what the driver has left.
    """
    shapes = build(model, device="meta")
    net = build(model, device=device.kind)
    # Libraries take their workspaces at the first pass; they belong to what is gone before any cache.
    forward(net, tokens(model, 1, 1, device.kind), None)
    device.clear()
    room = device.free() if room_bytes is None else room_bytes
    case = model.record.name
    for context in contexts:
        if log.time_left < stop_at:
            log.fail(f"{case} at {context} tokens", "no time left")
            break
        pattern = template(prefill(shapes, tokens(model, 1, context, "meta")))

        def probe(batch: int, pattern: object = pattern) -> bool:
            return device.attempt(
                lambda: _decode(device, net, model, filled(pattern, batch, device.kind), batch)
            )

        ceiling = theory.largest_batch(model, context, room, grows=False)
        found, probes = largest(probe, theory.largest_batch(model, context, room, grows=True), ceiling + 1)
        at: dict[str, Any] = {"context_tokens": context, "room_bytes": room, "probes": probes}
        log.add(
            case, "largest batch, against the ceiling", found, ceiling, unit="requests", relation="at_most",
            model=model.id, **at,
        )  # fmt: skip
        log.add(
            case, "largest batch, against caches and their growing", found,
            theory.largest_batch(model, context, room, grows=True), unit="requests", relation="at_most",
            model=model.id, **at,
        )  # fmt: skip
        _confirm(log, device, net, model, context, found, case)
        log.save()


def largest(probe: Any, guess: int, above: int) -> tuple[int, int]:  # noqa: ANN401
    """Return the largest batch that a probe bears, and how many probes it took.

    Args:
        probe: Tells whether a batch is borne.
        guess: Where to begin.
        above: A batch that cannot be borne.
    """
    low, high, probes = 0, above, 0
    middle = max(1, min(guess, above - 1))
    while high - low > 1:
        probes += 1
        if probe(middle):
            low = middle
            # Near the guess first: a step of a hundredth is seldom missed.
            middle = min(low + max(1, low // 100), (low + high + 1) // 2) if probes < 4 else (low + high) // 2
        else:
            high = middle
            middle = max(high - max(1, high // 50), (low + high) // 2) if probes < 4 else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1) if high - low > 1 else middle
    return low, probes


def _decode(device: Device, net: Any, model: Subject, cache: object, batch: int) -> None:  # noqa: ANN401
    ids = tokens(model, batch, 1, device.kind)
    for _ in range(2):
        cache = forward(net, ids, cache)


def _confirm(log: Log, device: Device, net: Any, model: Subject, context: int, found: int, case: str) -> None:  # noqa: ANN401
    """Prefill and decode the batch for real, lower it until that succeeds, and note where it does."""
    seconds = theory.prefill_operations(model, max(found, 1), context) / ASSUMED_RATE
    if found < 1 or seconds > min(CONFIRM_SECONDS, log.time_left / 6):
        return
    batch = found

    def call(size: int) -> bool:
        def whole() -> None:
            piece = max(1, STEP_TOKENS // size)
            cache = prefill(net, tokens(model, size, context, device.kind), piece=piece)
            _decode(device, net, model, cache, size)

        return device.attempt(whole)

    tries = 0
    while batch > 0 and not call(batch):
        tries += 1
        batch -= max(1, batch // 33)
        if tries == 6:
            log.fail(f"{case} at {context} tokens, confirmed", f"still refused at {batch} requests")
            return
    log.add(
        case, "largest batch, prefilled and decoded", batch, found, unit="requests", relation="at_most",
        model=model.id, note="lowered by 3 % of the batch at a time", context_tokens=context, tries=tries + 1,
    )  # fmt: skip


def small(model_id: str) -> Subject:
    """Return a model small enough to try the procedure on a CPU."""
    return narrow(copy.copy(subject(model_id)), window=64)


torch.set_grad_enabled(False)
