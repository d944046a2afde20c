"""Cells, states and output buffers: what llama.cpp allocates at start for caches, to the byte.

``src/llama-kv-cache.cpp``, ``llama-kv-cache-iswa.cpp``, ``llama-kv-cache-dsa.cpp``, ``llama-memory-recurrent.cpp``,
``llama-context.cpp`` (``output_reserve``) of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import latent_widths
from kvreport.accounting.engines.llama_cpp.network import Attention, LatentAttention, Network, Recurrence
from kvreport.accounting.engines.llama_cpp.options import CELL_MULTIPLE, LocalOptions, padded
from kvreport.accounting.engines.llama_cpp.types import GgmlType, cache_type
from kvreport.accounting.kv_cache import cache_terms
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.catalog.caches import Cache, FullAttention, Latent, RecurrentState
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.local_architectures import LocalArchitectures
from kvreport.catalog.model import Model
from kvreport.errors import InputError

F32 = 4


@dataclass(frozen=True)
class Cells:
    """Numbers of cells."""

    context: int  # Cells of all slots together (``n_ctx``).
    per_slot: int  # Cells that one slot may use (``n_ctx_seq``).
    streams: int  # Rows of cells: 1 if unified, else one per slot.
    window: int  # Cells of a window layer, per stream; 0 if the model has none.
    batch: int  # Tokens of a batch.
    ubatch: int  # Tokens of a micro-batch.
    slots: int = 1  # Sequences at a time.


def windows_of(network: Network) -> tuple[int, ...]:
    """Distinct windows that are kept as windows."""
    return tuple(
        dict.fromkeys(
            block.mixer.window
            for block in network.blocks
            if isinstance(block.mixer, Attention) and block.mixer.window is not None
        )
    )


def count_cells(network: Network, options: LocalOptions, trained: int) -> Cells:
    """How many cells each layer gets.

    ``trained``: the model's own context, used where the options name none.
    """
    slots, unified = options.slots, options.is_unified
    context = padded(options.context or trained)
    per_slot = context if unified else padded(context // slots)
    if not unified:
        context = per_slot * slots
    batch = min(options.batch, context)
    ubatch = min(options.ubatch, batch)
    window = 0
    for width in windows_of(network):
        kept = padded(min(per_slot, width * (slots if unified else 1) + ubatch))
        window = max(window, per_slot if options.swa_full else kept)
    return Cells(context, per_slot, 1 if unified else slots, window, batch, ubatch, slots)


def cache_bytes(network: Network, options: LocalOptions, cells: Cells) -> tuple[int, ...]:
    """Bytes of keys and values of each layer, all slots together.

    Raises:
        InputError: If a head does not divide into blocks of the cache type.
    """
    key = cache_type(options.type_k, "--cache-type-k")
    value = cache_type(options.type_v, "--cache-type-v")
    widest = widest_values(network) if not options.uses_flash else 0
    padding = 0
    if widest and not any(isinstance(block.mixer, Recurrence) for block in network.blocks):
        # Layers without attention are in the cache, too: as wide as the widest where values are transposed.
        padding = _row(widest, value, "--cache-type-v") * cells.per_slot * cells.streams
    return tuple(
        padding if block.mixer is None else _layer_bytes(block.mixer, key, value, cells, widest)
        for block in network.blocks
    )


def widest_values(network: Network) -> int:
    """Values per token of the widest layer, which transposed caches are padded to."""
    widths = [
        block.mixer.kv_heads * block.mixer.value_dim
        for block in network.blocks
        if isinstance(block.mixer, Attention)
    ]
    return max(widths, default=0)


def _layer_bytes(mixer: object, key: GgmlType, value: GgmlType, cells: Cells, widest: int) -> int:
    if isinstance(mixer, LatentAttention) and mixer.window is not None:
        return _compressed_bytes(mixer, mixer.window, key, cells)
    if isinstance(mixer, LatentAttention):
        rows = cells.per_slot * cells.streams
        total = _row(mixer.latent + mixer.rotary, key, "--cache-type-k") * rows
        if mixer.indexer is not None and mixer.owns_indexer:
            total += _row(mixer.indexer.dim, key, "--cache-type-k") * rows
        return total
    if not isinstance(mixer, Attention) or not mixer.owns_cache:
        return 0
    _check_block(mixer.key_dim, key, "--cache-type-k")
    _check_block(mixer.value_dim, value, "--cache-type-v")
    rows = (cells.window if mixer.window is not None else cells.per_slot) * cells.streams
    keys = _row(mixer.kv_heads * mixer.key_dim, key, "--cache-type-k")
    values = _row(max(mixer.kv_heads * mixer.value_dim, widest), value, "--cache-type-v")
    index = _row(mixer.index_dim, key, "--cache-type-k")
    index += _row(mixer.index_dim, value, "--cache-type-v") if mixer.index_values else 0
    return rows * (keys + values + index)


def _compressed_bytes(mixer: LatentAttention, window: int, key: GgmlType, cells: Cells) -> int:
    """A window and compressed cells, for every slot apart even where cells are unified (``llama-kv-cache-dsv4.cpp``)."""
    row = _row(mixer.latent + mixer.rotary, key, "--cache-type-k")
    total = row * padded(min(cells.per_slot, window + cells.ubatch))
    for stride in mixer.strides:
        compressed = padded(-(-cells.per_slot // stride))
        total += row * compressed
        if mixer.indexer is not None and mixer.owns_indexer:
            total += _row(mixer.indexer.dim, key, "--cache-type-k") * compressed
    return total * cells.slots


def _row(elements: int, kind: GgmlType, field: str) -> int:
    _check_block(elements, kind, field)
    return kind.nbytes(elements)


def _check_block(elements: int, kind: GgmlType, field: str) -> None:
    """A head must divide into blocks (``llama_init_from_model``)."""
    if elements % kind.block:
        raise InputError(
            f"{field}: found {kind.name}; a head of {elements} does not divide into blocks of {kind.block}; "
            "allowed: f16"
        )


def state_bytes(network: Network, options: LocalOptions) -> tuple[int, ...]:
    """Bytes of recurrent states of each layer, all slots and copies together, always in 32 bits."""
    copies = options.slots * (1 + rollback_copies(network, options))
    return tuple(
        sum(_state_elements(mixer) * F32 * copies for mixer in (block.mixer, block.second))
        for block in network.blocks
    )


def _state_elements(mixer: object) -> int:
    """Elements of one sequence: recurrent states, or what compressors keep (``llama_dsv4_comp_state``)."""
    if isinstance(mixer, Recurrence):
        return mixer.conv_elements + mixer.state_elements
    return mixer.ring_elements if isinstance(mixer, LatentAttention) else 0


def checkpoint_bytes(network: Network, options: LocalOptions, cells: Cells) -> int:
    """Bytes of one checkpoint of one slot: what cannot be rolled back, windows and recurrent states.

    llama-server copies it to host memory while it runs (``server-context.cpp``); models with neither keep none.
    """
    key = cache_type(options.type_k, "--cache-type-k")
    value = cache_type(options.type_v, "--cache-type-v")
    widths = windows_of(network)
    kept = min(padded(max(widths)), cells.window) if widths and not options.swa_full else 0
    one = replace(cells, window=kept, streams=1)
    windows = sum(
        _layer_bytes(block.mixer, key, value, one, 0)
        for block in network.blocks
        if kept and isinstance(block.mixer, Attention) and block.mixer.window is not None
    )
    return windows + sum(state_bytes(network, replace(options, parallel=1, unified=None, draft=0)))


def rollback_copies(network: Network, options: LocalOptions) -> int:
    """Copies of a state kept beside the current one: one per draft token, where llama.cpp can roll back."""
    return options.draft if network.rollback and not options.ngram else 0


def output_bytes(network: Network, options: LocalOptions) -> int:
    """Bytes of the output buffer in host memory: logits (and an embedding) of one token per slot."""
    width = network.vocabulary + (network.hidden if options.embeddings else 0)
    return F32 * width * options.slots


def output_tokens(options: LocalOptions, tokens: int, batch: int) -> int:
    """Tokens of a micro-batch whose logits are computed (``n_outputs_max``)."""
    most = options.slots * (1 + options.draft) if options.outputs is None else options.outputs or batch
    return min(tokens, most)


MICRO_BATCH: Final = 512
"""llama.cpp's default ``n_ubatch``; window caches hold that many more cells."""


def cell_plan(model: Model, kv_format: KvFormat | None, serving: Serving) -> BlockPlan:
    """llama.cpp's caches: cells padded to 256, windows with a micro-batch more, states in float32.

    Requests that share one row of cells each keep a window in it (``llama-kv-cache-iswa.cpp``).
    """
    return BlockPlan(
        block_bytes=1,
        profile=CacheProfile.of(_cells(model, kv_format, serving.sequences)),
        block_tokens=CELL_MULTIPLE,
        notes=("allocated up front for the whole context; nothing is paged",),
    )


def stored_caches(model: Model, caches: tuple[Cache, ...]) -> tuple[Cache, ...]:
    """What llama.cpp caches of a layer: keys and values of every head where it unfolds latents before (MiniCPM3).

    ``caches``: the layer's caches.
    """
    known = LocalArchitectures.need().by_class.get(model.architecture)
    widths = latent_widths(model) if known is not None and known.unfolded else None
    if widths is None:
        return caches
    return tuple(
        FullAttention(kv_heads=model.attention_heads, key_dim=widths[0] + cache.rope_dim, value_dim=widths[1])
        if isinstance(cache, Latent)
        else cache
        for cache in caches
    )


def _cells(model: Model, kv_format: KvFormat | None, sequences: int) -> Iterator[Term]:
    for group in model.layers:
        for cache in stored_caches(model, group.caches):
            for term in cache_terms(cache, kv_format):
                wide = term
                if term.kind == "state" and isinstance(cache, RecurrentState):
                    elements = sum(
                        (t.channels + t.groups * t.channels_per_group) * t.columns for t in cache.tensors
                    )
                    wide = replace(term, constant_bytes=4 * elements)
                elif term.rate_bytes:
                    cap = term.cap_tokens
                    if cap < UNBOUNDED:
                        cap = padded(cap * sequences + MICRO_BATCH)
                    wide = replace(
                        term,
                        rate_bytes=term.rate_bytes * CELL_MULTIPLE // term.step_tokens,
                        step_tokens=CELL_MULTIPLE,
                        cap_tokens=cap,
                    )
                yield wide.scaled(group.count)
