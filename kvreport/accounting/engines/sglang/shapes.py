"""What SGLang's memory pools are sized from: one model's cached widths per layer, on one rank.

SGLang does not ask each layer what it caches. It reads one head count and one head width off the
config and charges them to every layer of a pool, also to layers that share another layer's cache or
attend to an image (0.5.23, ``srt/configs/model_config.py::_derive_model_shapes``,
``srt/model_executor/pool_configurator.py``). Which models have a pool for windows is a list of model
classes in its source, carried in the engine's data. Every class with states that a release serves has a
pool for them: by its config's class, or because it registers itself (``configs/hybrid_arch.py::mambaish_config``,
``configs/linear_attn_model_registry.py``, 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Shared,
    SlidingWindow,
    StateTensor,
)
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.remembered import remembered

CONVOLUTION_BYTES: Final = 2
"""Bytes of a convolution state's element: bfloat16, whatever the model's type (``mamba2_state_dtype``)."""

STATE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a recurrent state's element by the name that ``--mamba-ssm-dtype`` takes."""

Heads = FullAttention | SlidingWindow | ChunkedAttention | CrossAttention


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers each pool has."""

    full: int  # Layers in the pool that every token of a request takes a slot of.
    windowed: int  # Layers in a pool of their own for tokens inside a window; 0 without such a pool.
    states: int  # Layers with a recurrent state.
    indexed: int  # Layers that keep index keys of their own.


@remembered
def layers(model: Model, engine: Engine) -> Layers:
    """Count a model's layers by the pool that SGLang puts them in."""
    apart = engine.lists("window_pools", model.architecture)
    in_window = {id(group) for group in model.layers if apart and _windowed(group.caches)}
    windowed = sum(group.count for group in model.layers if id(group) in in_window)
    states = sum(group.count for group in model.layers if _has(group.caches, RecurrentState))
    full = sum(
        group.count * _latents(group.caches) for group in model.layers if not states or _attends(group.caches)
    )
    indexed = sum(group.count for group in model.layers if _has(group.caches, Indexer))
    if indexed and latent_of(model) is not None and not engine.index_keys_elided:
        indexed = full
    return Layers(
        full=full - windowed,
        windowed=windowed,
        states=states,
        indexed=indexed,
    )


def takes_images(model: Model, engine: Engine) -> bool:
    """True if the engine serves the model's images, video or sound by default.

    It does for any config with a nested text model, but for a few classes that want ``--enable-multimodal``.
    """
    return _has_towers(model) and not engine.lists("images_off", model.architecture)


@remembered
def _has_towers(model: Model) -> bool:
    return any(row.component in ("vision", "audio") for row in model.weights)


def token_elements(model: Model, attention_ranks: int, *, windowed: bool = False) -> int:
    """Elements of keys and values (or of one latent) that one token takes in one layer of one rank.

    ``attention_ranks``: ranks that divide the heads; fewer heads than ranks replicate. ``windowed``: True
    for a layer of the window pool, whose heads may differ from the others'.
    """
    latent = latent_of(model)
    if latent is not None:
        return latent.latent_dim + latent.rope_dim
    heads = _heads(model, windowed=windowed)
    if heads is None:
        return 0
    return max(1, heads.kv_heads // attention_ranks) * (heads.key_dim + heads.value_dim)


@remembered
def unequal_heads(model: Model) -> bool:
    """True if keys and values differ in width, in any layer."""
    kinds = (FullAttention, SlidingWindow, ChunkedAttention)
    return any(isinstance(cache, kinds) and cache.key_dim != cache.value_dim for cache in model.every_cache)


@remembered
def latent_of(model: Model) -> Latent | None:
    """The latent that every attention layer caches, or None if the model caches heads."""
    return next((cache for cache in model.every_cache if isinstance(cache, Latent)), None)


@remembered
def indexer_of(model: Model) -> Indexer | None:
    """The index keys of sparse attention, or None."""
    return next((cache for cache in model.every_cache if isinstance(cache, Indexer)), None)


def window_of(model: Model) -> int | None:
    """Tokens that the model's windowed layers look back, or None."""
    for cache in model.every_cache:
        if isinstance(cache, SlidingWindow):
            return cache.window
        if isinstance(cache, ChunkedAttention):
            return cache.chunk
        if isinstance(cache, Latent) and cache.window:
            return cache.window
    return None


def state_bytes(model: Model, attention_ranks: int, state_dtype: str | None = None) -> int:
    """Bytes of one request's states in all layers of one rank (``mamba_cache_per_req``).

    ``attention_ranks``: ranks that divide the channels; groups that do not divide become one per rank.
    ``state_dtype``: type of the recurrent part; None for what the config says, else float32.
    """
    total = 0
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, RecurrentState):
                total += group.count * sum(_tensor(t, attention_ranks, state_dtype) for t in cache.tensors)
    return total


def alike_states_bytes(model: Model, attention_ranks: int) -> int:
    """Bytes of one request's states where every layer keeps one of each kind of layer's convolutions.

    Those of keys and values are divided by whole heads; those of a layer's outputs, as wide as the
    model, lie whole on each rank (0.5.16 to 0.5.23, ``configs/inkling.py::mamba2_cache_params``).

    ``attention_ranks``: ranks that divide the heads.
    """
    channels = columns = 0
    for windowed in (False, True):
        heads = _heads(model, windowed=windowed)
        if heads is not None:
            widths = heads.key_dim + heads.value_dim
            channels += max(1, heads.kv_heads // attention_ranks) * widths
    layers_with_states = 0
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, RecurrentState):
                layers_with_states += group.count
                columns = max(tensor.columns for tensor in cache.tensors)
    return layers_with_states * (channels + 2 * model.hidden_size) * columns * CONVOLUTION_BYTES


def _tensor(tensor: StateTensor, ranks: int, state_dtype: str | None) -> int:
    channels = tensor.channels // ranks
    if tensor.groups:
        groups = tensor.groups if tensor.groups % ranks == 0 else ranks
        channels += groups // ranks * tensor.channels_per_group
    if tensor.name == "conv":
        size = CONVOLUTION_BYTES
    else:
        stated = tensor.precision if tensor.precision in STATE_BYTES else "float32"
        size = STATE_BYTES[state_dtype or stated]
    return channels * tensor.columns * size


def _heads(model: Model, *, windowed: bool) -> Heads | None:
    wanted = (SlidingWindow, ChunkedAttention) if windowed else (FullAttention,)
    for kinds in (wanted, (FullAttention, SlidingWindow, ChunkedAttention, CrossAttention)):
        for cache in model.every_cache:
            if isinstance(cache, kinds):
                return cache
    return None


def _windowed(caches: tuple[Cache, ...]) -> bool:
    return any(
        isinstance(cache, SlidingWindow | ChunkedAttention)
        or (isinstance(cache, Shared) and cache.reads in ("sliding", "chunked"))
        for cache in caches
    )


def _latents(caches: tuple[Cache, ...]) -> int:
    """Attention layers inside one: two where two latents are kept.

    ``configs/model_config.py::num_attention_layers`` (0.5.9 to 0.5.23).
    """
    return max(sum(isinstance(cache, Latent) for cache in caches), 1)


def _attends(caches: tuple[Cache, ...]) -> bool:
    kinds = (FullAttention, SlidingWindow, ChunkedAttention, Latent, Shared, CrossAttention)
    return any(isinstance(cache, kinds) for cache in caches)


def _has(caches: tuple[Cache, ...], kind: type) -> bool:
    return any(isinstance(cache, kind) for cache in caches)
