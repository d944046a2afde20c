"""E2: memory against batch: weights, cache, activations, and what the allocator keeps besides.

On a CUDA device the allocator is asked; prompts are prefilled whole, with eager and with fused
attention, so that the scores which eager attention writes out can be seen. Elsewhere the tensors
themselves are added up: weights of every config, caches of growing batches.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

from experiments import theory
from experiments.cache import held
from experiments.device import Device
from experiments.models import Subject, build, known, narrow, subject
from experiments.prefill import prefill, tokens
from experiments.record import Log

NAME: Final = "e2-batch-memory"
MODELS: Final = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct")
CONTEXT: Final = 2048
SMALL_CONTEXT: Final = 256
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 96)
SMALL_BATCHES: Final = (1, 2, 4, 8, 16)
SETTINGS: Final = {"context_tokens": CONTEXT, "small_context_tokens": SMALL_CONTEXT}


def run(log: Log, device: Device) -> None:
    """Run the experiment that this device can bear."""
    if device.kind == "meta":
        _weights_of_all(log)
    elif device.kind == "cpu":
        for model_id in MODELS:
            _small_batches(log, narrow(subject(model_id)))
    else:
        for model_id in MODELS:
            for attention in ("sdpa", "eager"):
                _batches(log, device, subject(model_id), attention)
    log.save()


def _weights_of_all(log: Log) -> None:
    """Add up the weights of every config, full size, as the installed transformers builds them."""
    for model_id in known():
        full = subject(model_id)
        try:
            net = build(full, device="meta", attention="eager")
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
            log.fail(model_id, error)
            continue
        expected = theory.parameter_count(full)
        built, buffers = count(net, expected)
        log.add(
            "weights by shape", "weights", 2 * built, 2 * expected, model=model_id,
            note=f"with the stored buffer {buffers}" if buffers else None, parameters=built,
        )  # fmt: skip


def count(net: Any, expected: int) -> tuple[int, str]:  # noqa: ANN401
    """Count what a model stores, and name the buffers that were counted with its parameters.

    A router's bias, a table of hashes or a layer's scale is a weight of the checkpoint, though no
    parameter; other buffers are constants. Those kinds are counted, if any, that make up exactly
    what the parameters lack of ``expected``.
    """
    built = sum(parameter.numel() for parameter in net.parameters())
    kinds = stored_buffers(net)
    for number in range(1, len(kinds) + 1):
        for chosen in combinations(sorted(kinds), number):
            if built != expected and built + sum(kinds[name] for name in chosen) == expected:
                return expected, ", ".join(chosen)
    return built, ""


def stored_buffers(net: Any) -> dict[str, int]:  # noqa: ANN401
    """Return the elements of the buffers that a checkpoint stores, by the last part of their name."""
    parameters = {id(parameter) for parameter in net.parameters()}
    sizes: dict[str, int] = {}
    for name, tensor in net.state_dict(keep_vars=True).items():
        if id(tensor) not in parameters:
            last = name.rpartition(".")[2]
            sizes[last] = sizes.get(last, 0) + tensor.numel()
    return sizes


def _small_batches(log: Log, model: Subject) -> None:
    net = build(model, device="cpu")
    for batch in SMALL_BATCHES:
        cache = prefill(net, tokens(model, batch, SMALL_CONTEXT, "cpu"))
        log.add(
            "cache by batch, narrowed", "cache", held(cache).shape_bytes,
            theory.cache_bytes(model, SMALL_CONTEXT, batch), model=model.id, note=model.narrowed,
            batch=batch, context_tokens=SMALL_CONTEXT,
        )  # fmt: skip
    log.save()


def _batches(log: Log, device: Device, model: Subject, attention: str) -> None:
    """Prefill whole batches until the allocator refuses."""
    case = f"{model.record.name}, {attention}"
    if log.time_left < 15:
        log.fail(case, "no time left")
        return
    device.clear()
    empty = device.allocated()
    net = build(model, device=device.kind, attention=attention)
    device.sync()
    device.clear()
    weights = device.allocated() - empty
    log.add(
        case, "weights", weights, theory.weights_bytes(model), relation="at_least", model=model.id,
        note="the allocator rounds each tensor up to 512 bytes", batch=0,
    )  # fmt: skip
    for batch in BATCHES:
        if not _one_batch(log, device, net, model, attention, case, batch):
            break
    del net
    device.clear()
    log.save()


def _one_batch(
    log: Log,
    device: Device,
    net: Any,  # noqa: ANN401
    model: Subject,
    attention: str,
    case: str,
    batch: int,
) -> bool:
    at = {"batch": batch, "context_tokens": CONTEXT}
    loaded = device.allocated()
    kept = {}

    def call() -> None:
        device.forget_peak()
        cache = prefill(net, tokens(model, batch, CONTEXT, device.kind))
        device.sync()
        kept.update(
            shape=held(cache).shape_bytes,
            after=device.allocated(),
            peak=device.peak(),
            top=device.peak_reserved(),
        )

    if not device.attempt(call):
        log.add(case, "cache", None, theory.cache_bytes(model, CONTEXT, batch), model=model.id,
                note="the allocator refused", **at)  # fmt: skip
        return False
    cache = theory.cache_bytes(model, CONTEXT, batch)
    log.add(case, "cache", kept["shape"], cache, model=model.id, **at)
    log.add(
        case, "allocator's growth", kept["after"] - loaded, cache, relation="at_least", model=model.id, **at
    )
    scores = theory.score_bytes(model, CONTEXT, batch) if attention == "eager" else None
    log.add(
        case, "activations", kept["peak"] - kept["after"], scores, relation="at_least", model=model.id,
        note="peak of the prefill, over what is left after it", **at,
    )  # fmt: skip
    log.add(
        case, "fragmentation", kept["top"] - kept["peak"], relation="none", model=model.id,
        note="most that the allocator held, less the most that tensors took", **at,
    )  # fmt: skip
    return True
