"""E6: paged against contiguous: the same requests in pages, and in one long row each.

Requests of very different lengths are served by transformers' continuous batching with its paged
cache, and by a static cache that gives every request the longest one's room. The pool is made
exactly as large as our count of pages says; that every request is answered shows that the count
suffices. Page sizes are those that the installed version takes; no extra kernels are used.
"""

from __future__ import annotations

import inspect
import time
from typing import Any, Final

import torch

from experiments import theory
from experiments.device import Device
from experiments.models import Subject, build, narrow, subject
from experiments.prefill import forward, prefill, tokens
from experiments.record import Log

NAME: Final = "e6-paged"
MODEL: Final = "meta-llama/Llama-3.1-8B"
PAGES: Final = (16, 64, 256)
NEW_TOKENS: Final = 32
LENGTHS: Final = {
    "cuda": tuple(64 * (1 + number * number % 61) for number in range(64)),
    "cpu": (50, 100, 30, 200),
}
STEP_TOKENS: Final = 4096
SETTINGS: Final = {"new_tokens": NEW_TOKENS, "step_tokens": STEP_TOKENS, "model": MODEL}


def run(log: Log, device: Device) -> None:
    """Serve the requests in pages of every size, then in rows."""
    model = subject(MODEL)
    if device.kind == "cpu":
        model = narrow(model)
    lengths = LENGTHS[device.kind]
    needed = sum(theory.cache_bytes(model, length + NEW_TOKENS) for length in lengths)
    for page in PAGES:
        if log.time_left < 15:
            log.fail(f"pages of {page}", "no time left")
            continue
        try:
            paged(log, device, model, lengths, page, needed)
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
            log.fail(f"pages of {page} tokens", error)
        device.clear()
        log.save()
    try:
        rows(log, device, model, lengths, needed)
    except (RuntimeError, ValueError, TypeError) as error:
        log.fail("rows", error)
    log.save()


def pages_needed(lengths: tuple[int, ...], page: int) -> int:
    """Pages that all requests take at their longest."""
    return sum(-(-(length + NEW_TOKENS) // page) for length in lengths)


def paged(log: Log, device: Device, model: Subject, lengths: tuple[int, ...], page: int, needed: int) -> None:
    """Serve the requests with a pool of exactly the pages that we count."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    net = build(model, device=device.kind)
    device.clear()
    count = pages_needed(lengths, page)
    known = inspect.signature(ContinuousBatchingConfig).parameters
    options: dict[str, Any] = {"page_size" if "page_size" in known else "block_size": page}
    options |= {"num_blocks": count, "max_batch_tokens": STEP_TOKENS, "use_cuda_graph": False}
    options |= {"allow_block_sharing": False} | (
        {"auto_switch_to_flash": False} if "auto_switch_to_flash" in known else {}
    )
    prompts = [tokens(model, 1, length, "cpu")[0].tolist() for length in lengths]
    begun = time.perf_counter()
    answers = net.generate_batch(
        prompts,
        generation_config=GenerationConfig(
            max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0
        ),
        continuous_batching_config=ContinuousBatchingConfig(**options),
        persistent_manager=True,
    )
    device.sync()
    seconds = time.perf_counter() - begun
    answered = sum(len(answer.generated_tokens) == NEW_TOKENS for answer in answers.values())
    at = {"page_tokens": page, "pages": count, "requests": len(lengths)}
    case = f"pages of {page} tokens"
    log.add(case, "requests answered", answered, len(lengths), unit="requests", model=model.id, **at)
    log.add(case, "pool", pool_bytes(net), count * theory.cache_bytes(model, page), relation="at_least",
            model=model.id, note="the paged cache keeps a page or two for itself", **at)  # fmt: skip
    log.add(case, "pool, against what the tokens need", pool_bytes(net), needed, relation="at_least",
            model=model.id, **at)  # fmt: skip
    if device.is_cuda:
        log.add(case, "throughput", len(lengths) * NEW_TOKENS / seconds, unit="tokens/s", model=model.id,
                note="set-up and prefill included; wall clock", **at)  # fmt: skip


def pool_bytes(net: Any) -> int:  # noqa: ANN401
    """Return the bytes of the paged cache's own tensors."""
    manager = net._cached_continuous_batching_manager
    cache = manager.batch_processor.cache
    found: dict[int, int] = {}

    def look(value: object) -> None:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, list | tuple):
            for item in value:
                look(item)

    for value in vars(cache).values():
        look(value)
    return max(found.values()) if "cache_tensor" in vars(cache) else sum(found.values())


def rows(log: Log, device: Device, model: Subject, lengths: tuple[int, ...], needed: int) -> None:
    """Give every request the longest one's row."""
    from transformers import StaticCache

    from experiments.cache import held
    from experiments.models import hf_config

    net = build(model, device=device.kind)
    device.clear()
    longest = max(lengths) + NEW_TOKENS
    cache = StaticCache(config=hf_config(model.config).get_text_config(decoder=True), max_cache_len=longest)
    begun = time.perf_counter()
    piece = max(1, STEP_TOKENS // len(lengths))
    prefill(net, tokens(model, len(lengths), max(lengths), device.kind), cache=cache, piece=piece)
    ids = tokens(model, len(lengths), 1, device.kind)
    for _ in range(NEW_TOKENS):
        forward(net, ids, cache)
    device.sync()
    seconds = time.perf_counter() - begun
    at = {"requests": len(lengths), "row_tokens": longest}
    case = "a row for each request"
    size = held(cache).shape_bytes
    log.add(case, "pool", size, theory.cache_bytes(model, longest, len(lengths)), model=model.id, **at)
    log.add(
        case, "pool, against what the tokens need", size, needed, relation="at_least", model=model.id, **at
    )
    if device.is_cuda:
        log.add(case, "throughput", len(lengths) * NEW_TOKENS / seconds, unit="tokens/s", model=model.id,
                note="every prompt padded to the longest; wall clock", **at)  # fmt: skip
