"""What layers keep, by the cache lines of a listing: ``cache: sliding kv=heads k=head_dim window=window``."""

from __future__ import annotations

from typing import Any, Final, cast, get_args

from pydantic import ValidationError

from kvreport.architectures.attention import precision
from kvreport.architectures.keys import MAX_CONTEXT
from kvreport.architectures.listing import CacheLine, split_outside
from kvreport.architectures.parts import Formulas
from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    Precision,
    RecurrentState,
    Shared,
    SlidingWindow,
    StateTensor,
)

_NAMES: Final = {
    "full": "full attention",
    "sliding": "sliding window",
    "chunked": "chunked attention",
    "latent": "latent attention (MLA)",
    "cross": "cross-attention",
    "indexer": "index keys",
    "shared": "shared cache",
}
_STATE: Final = ("channels", "columns", "groups", "channels_per_group")
"""Sizes of a tensor of a state, in the order in which a line has them; the last two may be left out."""


def called(line: CacheLine) -> str:
    """Return what a layer is called that keeps this."""
    return line.sizes["mechanism"] if line.kind == "state" else _NAMES[line.kind]


def cache_of(line: CacheLine, scope: Formulas) -> Cache:
    """Return the cache of one line.

    Raises:
        InputError: If the config's sizes make no cache that a record may have.
    """
    try:
        return _made_cache(line, scope)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise scope.root.fault(f"{line.kind} cache: {name}", first["input"], first["msg"]) from error


def _made_cache(line: CacheLine, scope: Formulas) -> Cache:
    def size(name: str, default: str | None = None, low: int = 0) -> int:
        stated = line.sizes.get(name) or default
        return scope.whole(stated or "0", f"cache {name}", low=low if stated else 0, high=MAX_CONTEXT)

    kv, key, value = size("kv", low=1), size("k", low=1), size("v", line.sizes.get("k"), low=1)
    match line.kind:
        case "full":
            return FullAttention(kv_heads=kv, key_dim=key, value_dim=value)
        case "sliding":
            window = size("window")
            if not window:
                return FullAttention(kv_heads=kv, key_dim=key, value_dim=value)
            return SlidingWindow(kv_heads=kv, key_dim=key, value_dim=value, window=window)
        case "chunked":
            return ChunkedAttention(kv_heads=kv, key_dim=key, value_dim=value, chunk=size("chunk"))
        case "cross":
            return CrossAttention(kv_heads=kv, key_dim=key, value_dim=value, encoder_tokens=size("tokens"))
        case "latent":
            return Latent(latent_dim=size("latent"), rope_dim=size("rope"))
        case "indexer":
            return Indexer(index_dim=size("dim"), top_k=size("top_k") or None)
        case "shared":
            return Shared(reads=cast(Any, line.sizes["reads"]))
        case "state":
            return _state(line, scope)
    raise ValueError(f"{line.kind}: not a kind of cache ({get_args(Cache)})")


def _state(line: CacheLine, scope: Formulas) -> RecurrentState:
    tensors = []
    for name in ("conv", "recurrent"):
        for number, formula in enumerate(line.sizes.get(name, "").split(";")):
            if formula:
                what = f"state {name} {number}"
                found = [scope.whole(part, what, low=1) for part in split_outside(formula)]
                kept = line.sizes.get(f"{name}_type", "model")
                given: dict[str, Any] = {
                    "name": name,
                    "precision": kept if kept in get_args(Precision) else precision(scope.root, kept),
                    **dict(zip(_STATE, found, strict=False)),
                }
                tensors.append(StateTensor(**given))
    return RecurrentState(mechanism=cast(Any, line.sizes["mechanism"]), tensors=tuple(tensors))
