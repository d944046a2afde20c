"""E4: the same model with every head its own, with grouped heads, and with one for all."""

from __future__ import annotations

from typing import Final

from experiments import theory
from experiments.cache import held
from experiments.device import Device
from experiments.models import build, narrow, subject, with_heads
from experiments.prefill import PIECE_TOKENS, prefill, tokens
from experiments.record import Log

NAME: Final = "e4-head-sharing"
MODEL: Final = "meta-llama/Llama-3.1-8B"
KV_HEADS: Final = (32, 16, 8, 4, 2, 1)
CONTEXT: Final = {"cuda": 16384, "cpu": 2048, "meta": 131072}
SETTINGS: Final = {"model": MODEL}


def run(log: Log, device: Device) -> None:
    """Build the model once for each number of KV heads; nothing else changes."""
    full = subject(MODEL)
    context = CONTEXT[device.kind]
    for heads in KV_HEADS:
        model = with_heads(full, heads)
        case = {32: "MHA", 1: "MQA"}.get(heads, "GQA")
        if device.kind == "cpu":
            model = narrow(model)
        try:
            net = build(model, device=device.kind)
            device.sync()
            before = device.allocated()
            cache = prefill(net, tokens(model, 1, context, device.kind), piece=PIECE_TOKENS)
            found = held(cache)
            at = {"kv_heads": heads, "context_tokens": context}
            log.add(
                case, "cache", found.shape_bytes, theory.cache_bytes(model, context), model=model.id,
                note=model.narrowed or None, **at,
            )  # fmt: skip
            if device.is_cuda:
                device.clear()
                log.add(
                    case, "allocator's growth", device.allocated() - before, theory.cache_bytes(model, context),
                    relation="at_least", model=model.id, **at,
                )  # fmt: skip
            del net, cache
        except (RuntimeError, ValueError) as error:
            log.fail(f"{heads} KV heads", error)
        device.clear()
    log.save()
