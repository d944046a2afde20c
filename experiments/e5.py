"""E5: how long prefill and decode take, against the bounds, at the card's own measured ceilings.

The ceilings come first: a large copy for the memory's bandwidth, a large 16-bit product for the
arithmetic. The bounds of :mod:`kvreport.accounting.roofline` are then computed at those rates. One
decode step is timed as transformers runs it, and once more as a captured graph over a static cache,
so that the time of launching kernels can be told from the time of the memory.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from experiments import theory
from experiments.cache import filled, template
from experiments.device import Clocked, Device
from experiments.models import Subject, build, hf_config, subject
from experiments.prefill import forward, prefill, tokens
from experiments.record import Log

NAME: Final = "e5-time"
MODELS: Final = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct")
PREFILLS: Final = ((1, 512), (1, 2048), (1, 8192), (1, 32768), (8, 2048))
DECODES: Final = ((1, 2048), (1, 32768), (8, 2048), (8, 8192), (32, 2048), (32, 8192), (128, 2048))
COPY_BYTES: Final = 4 << 30
PRODUCT: Final = 8192
SPARE_TOKENS: Final = 64
_SHAPES: Final[dict[str, Any]] = {}
"""The model at hand without memory, from which caches take their shapes."""
SETTINGS: Final = {"copy_bytes": COPY_BYTES, "product_side": PRODUCT, "repeats": 9, "warmups": 3}


def run(log: Log, device: Device) -> None:
    """Measure the ceilings, then every model."""
    bytes_per_s, operations_per_s = ceilings(log, device, COPY_BYTES, PRODUCT)
    for model_id in MODELS:
        model = subject(model_id)
        _SHAPES.clear()
        net = build(model, device=device.kind)
        case = model.record.name
        for batch, length in PREFILLS:
            _guard(log, f"{case}: prefill of {batch} × {length}", _time_prefill, log, device, net, model,
                   case, batch, length, bytes_per_s, operations_per_s)  # fmt: skip
        for batch, context in DECODES:
            for way in ("as it comes", "captured graph"):
                _guard(log, f"{case}: decode of {batch} at {context}, {way}", _time_decode, log, device, net, model,
                       f"{case}, {way}", batch, context, bytes_per_s, operations_per_s, way)  # fmt: skip
        del net
        device.clear()
        log.save()


def ceilings(log: Log, device: Device, copy_bytes: int, side: int) -> tuple[float, float]:
    """Measure the memory's bandwidth, counting bytes read and written, and the 16-bit product's rate."""
    copied = _time_copy(device, copy_bytes)
    device.clear()
    multiplied = _time_product(device, side)
    device.clear()
    bytes_per_s = 2 * copy_bytes / copied.seconds
    operations_per_s = 2 * side**3 / multiplied.seconds
    log.add("ceiling", "memory bandwidth", bytes_per_s, unit="bytes/s", raw=copied.raw, copy_bytes=copy_bytes)
    log.add("ceiling", "16-bit product", operations_per_s, unit="FLOP/s", raw=multiplied.raw, side=side)
    return bytes_per_s, operations_per_s


def _time_copy(device: Device, size: int) -> Clocked:
    source = torch.empty(size, dtype=torch.uint8, device=device.kind)
    target = torch.empty_like(source)
    return device.clock(lambda: target.copy_(source), repeats=15)


def _time_product(device: Device, side: int) -> Clocked:
    left = torch.randn(side, side, device=device.kind, dtype=torch.bfloat16)
    right = torch.randn(side, side, device=device.kind, dtype=torch.bfloat16)
    return device.clock(lambda: left @ right, repeats=15)


def _time_prefill(
    log: Log, device: Device, net: Any, model: Subject, case: str, batch: int, length: int,  # noqa: ANN401
    bytes_per_s: float, operations_per_s: float,
) -> None:  # fmt: skip
    ids = tokens(model, batch, length, device.kind)
    timed = device.clock(lambda: prefill(net, ids), repeats=5, warmups=2)
    bound = theory.prefill_bound(model, batch, length, bytes_per_s, operations_per_s)
    at = {"batch": batch, "context_tokens": length}
    log.add(case, "prefill", timed.seconds, bound, unit="seconds", relation="at_least", model=model.id,
            raw=timed.raw, **at)  # fmt: skip
    log.add(case, "prefill rate", theory.prefill_operations(model, batch, length) / timed.seconds,
            operations_per_s, unit="FLOP/s", relation="at_most", model=model.id, **at)  # fmt: skip


def _time_decode(
    log: Log, device: Device, net: Any, model: Subject, case: str, batch: int, context: int,  # noqa: ANN401
    bytes_per_s: float, operations_per_s: float, way: str,
) -> None:  # fmt: skip
    timed = (
        _graph(device, net, model, batch, context)
        if way == "captured graph"
        else _plain(device, net, model, batch, context)
    )
    bound = theory.decode_bound(model, batch, context, bytes_per_s, operations_per_s)
    at = {"batch": batch, "context_tokens": context}
    log.add(case, "decode step", timed.seconds, bound, unit="seconds", relation="at_least", model=model.id,
            raw=timed.raw, **at)  # fmt: skip
    log.add(case, "decode bandwidth", theory.decode_bytes(model, batch, context) / timed.seconds, bytes_per_s,
            unit="bytes/s", relation="at_most", model=model.id, **at)  # fmt: skip
    log.add(case, "decode throughput", batch / timed.seconds, batch / bound, unit="tokens/s",
            relation="at_most", model=model.id, **at)  # fmt: skip


def _plain(device: Device, net: Any, model: Subject, batch: int, context: int) -> Clocked:  # noqa: ANN401
    """Time a decode step over the growing cache that ``generate`` uses."""
    if "meta" not in _SHAPES:
        _SHAPES["meta"] = build(model, device="meta")
    pattern = template(prefill(_SHAPES["meta"], tokens(model, 1, context, "meta")))
    cache = filled(pattern, batch, device.kind)
    ids = tokens(model, batch, 1, device.kind)
    return device.clock(lambda: forward(net, ids, cache))


def static_cache(model: Subject, batch: int, context: int, device: Device) -> Any:  # noqa: ANN401
    """Return a static cache that already holds ``context`` tokens of zeros."""
    from transformers import StaticCache

    config = hf_config(model.config).get_text_config(decoder=True)
    cache = StaticCache(config=config, max_cache_len=context + SPARE_TOKENS)
    head = model.text.get("head_dim") or model.text["hidden_size"] // model.text["num_attention_heads"]
    cache.early_initialization(
        batch, model.text["num_key_value_heads"], head, torch.bfloat16, torch.device(device.kind)
    )
    for layer in cache.layers:
        layer.cumulative_length.fill_(context)
    return cache


def _graph(device: Device, net: Any, model: Subject, batch: int, context: int) -> Clocked:  # noqa: ANN401
    """Time a decode step as one captured graph: no time goes to launching kernels."""
    cache = static_cache(model, batch, context, device)
    ids = tokens(model, batch, 1, device.kind)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            forward(net, ids, cache)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward(net, ids, cache)
    return device.clock(graph.replay)


def _guard(log: Log, what: str, call: Any, *arguments: Any) -> None:  # noqa: ANN401
    """Run one part; what fails is noted, and the rest goes on."""
    if log.time_left < 10:
        log.fail(what, "no time left")
        return
    device = arguments[1]
    try:
        call(*arguments)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        log.fail(what, error)
    device.clear()
