"""From a config's layer kinds to what each layer keeps.

Engines and libraries name layer kinds in many ways; :func:`layer_kinds` brings the common ones to
four words (``full``, ``sliding``, ``chunked``, ``linear``), from an explicit list or from the
pattern that a class applies when the list is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, cast

from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    FullAttention,
    Latent,
    Precision,
    RecurrentState,
    SlidingWindow,
    StateTensor,
)

Kind = Literal["full", "sliding", "chunked", "linear"]

LAYER_TYPES: Final[dict[str, Kind]] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
}

FULL: Final = "full attention"
SLIDING: Final = "sliding window"
CHUNKED: Final = "chunked attention"
MLA: Final = "latent attention (MLA)"


def layer_count(keys: Keys, *aliases: str) -> int:
    """Return the number of layers, within reason."""
    return keys.whole("num_hidden_layers", *aliases, high=MAX_LAYERS)


def layer_kinds(
    keys: Keys, layers: int, pattern: Callable[[int], Kind], allowed: tuple[Kind, ...]
) -> list[Kind]:
    """Return one word per layer: as ``layer_types`` lists them, else by the class's own ``pattern`` over the layer index.

    Raises:
        InputError: If the list has another length or a kind that the class does not know.
    """
    names = tuple(name for name, kind in LAYER_TYPES.items() if kind in allowed)
    listed = keys.texts("layer_types", length=layers, of=names)
    return (
        [pattern(index) for index in range(layers)]
        if listed is None
        else [LAYER_TYPES[one] for one in listed]
    )


def listed_mixtures(keys: Keys, layers: int) -> list[bool] | None:
    """Tell for each layer whether ``mlp_layer_types`` says that it is a mixture; None for a config without the list."""
    kinds = keys.texts("mlp_layer_types", length=layers, of=("dense", "sparse"))
    return None if kinds is None else [kind == "sparse" for kind in kinds]


def mixture_pattern(keys: Keys, layers: int) -> list[bool]:
    """Tell for each layer whether it is a mixture: as listed, or from ``first_k_dense_replace`` on."""
    stated = listed_mixtures(keys, layers)
    if stated is not None:
        return stated
    first = keys.whole("first_k_dense_replace", low=0, high=MAX_LAYERS)
    listed = keys.raw("moe_layer_freq")
    if isinstance(listed, list):
        chosen = keys.wholes("moe_layer_freq", length=layers, high=1) or []
        return [bool(value) for value in chosen]
    every = keys.whole("moe_layer_freq", default=1, high=MAX_LAYERS)
    return [index >= first and index % every == 0 for index in range(layers)]


def indexed_layers(keys: Keys, layers: int) -> list[bool]:
    """Tell which layers run their own indexer; the others reuse the choice of the last that did.

    The schedule (``index_topk_freq`` and its offset) is what engines build from, so it comes before
    the list of types, which some published copies carry incomplete. A pattern overrides both.
    """
    pattern = keys.text("index_topk_pattern")
    if pattern is not None:
        if len(pattern) != layers or set(pattern) - set("FS"):
            raise keys.fault("index_topk_pattern", pattern, f"{layers} letters, each F or S")
        return [letter == "F" for letter in pattern]
    if not keys.has("index_topk_freq"):
        listed = keys.texts("indexer_types", length=layers, of=("full", "shared"))
        if listed is not None:
            return [kind == "full" for kind in listed]
    every = keys.whole("index_topk_freq", default=1, high=MAX_LAYERS)
    offset = keys.whole("index_skip_topk_offset", default=2, low=0, high=MAX_LAYERS)
    return [max(index - offset + 1, 0) % every == 0 for index in range(layers)]


def window(keys: Keys) -> int | None:
    """Return a sliding window in tokens; null and 0 both mean that there is none."""
    return keys.optional("sliding_window", high=MAX_CONTEXT) or None


def listed_windows(keys: Keys, name: str, kinds: Sequence[str]) -> list[int | None] | None:
    """Return the window of each layer as a list of the config states it, in tokens; None for a config without the list.

    The entry of a layer without a window is not looked at.

    Raises:
        InputError: If the list has another length, or a layer with a window has no width.
    """
    listed = keys.raw(name)
    if listed is None:
        return None
    if not isinstance(listed, list) or len(listed) != len(kinds):
        raise keys.fault(name, listed, f"a list of {len(kinds)}, one entry per layer")
    for index, (kind, span) in enumerate(zip(kinds, listed, strict=True)):
        if kind == "sliding" and not (type(span) is int and 0 < span <= MAX_CONTEXT):
            raise keys.fault(f"{name}[{index}]", span, "the width of a window in tokens")
    return [span if kind == "sliding" else None for kind, span in zip(kinds, listed, strict=True)]


def attention_cache(
    kind: Kind, kv_heads: int, key_dim: int, value_dim: int | None = None, *, span: int | None = None
) -> tuple[str, tuple[Cache, ...]]:
    """Return the name and the caches of an attention layer; a window without a span is full."""
    value_dim = value_dim or key_dim
    sides: dict[str, Any] = {"kv_heads": kv_heads, "key_dim": key_dim, "value_dim": value_dim}
    if kind == "sliding" and span is not None:
        return SLIDING, (SlidingWindow(**sides, window=span),)
    if kind == "chunked" and span is not None:
        return CHUNKED, (ChunkedAttention(**sides, chunk=span),)
    return FULL, (FullAttention(**sides),)


def latent_cache(kv_rank: int, rope_dim: int) -> tuple[str, tuple[Cache, ...]]:
    """Return the name and the caches of an MLA layer."""
    return MLA, (Latent(latent_dim=kv_rank, rope_dim=rope_dim),)


def head_dim(keys: Keys, hidden: int, heads: int, *names: str, exact: bool = True) -> int:
    """Return the width of a head: the explicit key wins, and only without one it is derived.

    ``exact`` is False for classes that round down where ``hidden`` is no multiple of ``heads``.
    """
    explicit = keys.optional("head_dim", *names, low=1, high=1 << 16)
    if explicit is not None:
        return explicit
    if not exact and hidden >= heads:
        derived = hidden // heads
    else:
        derived = keys.divide("hidden_size", hidden, "num_attention_heads", heads)
    missing = keys.missing("head_dim", *names)
    keys.trail.derived.append(
        f"{keys.field('head_dim')} = {derived}: {missing}; hidden_size / num_attention_heads"
    )
    return derived


def grouped_heads(keys: Keys, heads: int, *names: str) -> int:
    """Return the number of KV heads; a config without the key means one per query head."""
    names = names or ("num_key_value_heads",)
    if keys.has(*names) or (not keys.null(*names) and keys.defaults.get(names[0]) is not None):
        kv_heads = keys.whole(*names, high=heads)
    else:
        kv_heads = heads
        missing = keys.missing(*names)
        keys.trail.derived.append(f"{keys.field(names[0])} = {heads}: {missing}; one per query head")
    keys.divide("num_attention_heads", heads, names[0], kv_heads)
    return kv_heads


def by_layer(keys: Keys, layers: int, names: tuple[str, ...]) -> dict[tuple[int, str], int]:
    """Return the sizes that ``per_layer_config`` states for single layers, by layer and key.

    transformers 5 writes it with every save of a class whose layers differ; its keys are layer indices.

    Raises:
        InputError: If it states a size other than ``names``, or of a layer that there is not.
    """
    found: dict[tuple[int, str], int] = {}
    stated = keys.section("per_layer_config")
    for index in stated.data if stated is not None else ():
        entry = stated.section(index) if stated is not None else None
        if entry is None or not index.isdecimal() or int(index) >= layers:
            raise keys.fault("per_layer_config", index, f"a layer's index below {layers}")
        for name in entry.data:
            if name not in names:
                raise entry.fault(name, entry.data[name], f"only {' and '.join(names)} by layer")
            found[int(index), name] = entry.whole(name, high=1 << 14)
    return found


def precision(keys: Keys, *names: str) -> Precision:
    """Return the element type that a config names for its recurrent state."""
    stated = keys.raw(*names) is not None
    value = keys.text(*names, default="auto")
    if not stated:
        keys.trail.usual[keys.field(names[0])] = value
    if value == "auto":
        return "model"
    known = {f"{by}{name}": name for name in ("float32", "bfloat16", "float16") for by in ("", "torch.")}
    if value not in known:
        raise keys.fault(names[0], value, f"one of {', '.join(known)}")
    return cast(Precision, known[value or ""])


def gated_deltanet_state(
    key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int, ssm: Precision
) -> tuple[str, tuple[Cache, ...]]:
    """Return the state of a Gated DeltaNet layer (Qwen3-Next, Qwen3.5).

    The convolution keeps ``kernel - 1`` columns of queries, keys and values; the recurrence keeps
    one ``value_dim x key_dim`` matrix per value head.
    """
    conv = StateTensor(
        name="conv", channels=2 * key_heads * key_dim + value_heads * value_dim, columns=kernel - 1
    )
    state = StateTensor(name="recurrent", channels=value_heads, columns=value_dim * key_dim, precision=ssm)
    return "Gated DeltaNet", (RecurrentState(mechanism="gated_deltanet", tensors=(conv, state)),)
