"""Every tensor that llama.cpp loads for a model: its layer, its shape, its type.

From a GGUF file's own table where there is one, else from the model's weights, stacked and named as the
converter does it (experts of a layer in one tensor, latent projections split per head).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Final

from kvreport.accounting.engines.llama_cpp.types import TYPES, GgmlType
from kvreport.catalog.caches import FullAttention, Latent, RecurrentState, Shared, SlidingWindow
from kvreport.catalog.model import Component, Model, WeightGroup
from kvreport.resources import read_table

_MATRIX_MIN = 2
_PARTS: tuple[Component, ...] = ("dense_mlp", "attention", "routed_experts", "shared_experts", "norms")
_ROLES = frozenset(
    f"{part}{kind}"
    for part in ("attn_", "ffn_")
    for kind in ("q", "k", "v", "output", "q_a", "q_b", "kv_a_mqa", "kv_b", "up", "gate", "down", "gate_inp",
                 "up_exps", "gate_exps", "down_exps", "up_shexp", "gate_shexp", "down_shexp", "norm", "q_norm", "k_norm")
)  # fmt: skip
_SKIPPED = frozenset({"vision", "audio", "mtp"})


@dataclass(frozen=True)
class LocalTensor:
    """One tensor of a model file."""

    role: str  # ggml's name without layer and suffix (``attn_q``, ``ffn_down_exps``, ``token_embd``).
    layer: int  # Layer, or -1 outside the layers.
    columns: int  # Elements of a row.
    rows: int  # Rows, those of all stacked matrices together.
    stack: int = 1  # Matrices stacked (experts), 1 if none.
    kind: GgmlType | None = None  # Storage type, or None until a mix is chosen.

    @property
    def is_matrix(self) -> bool:
        """True for what a quantizer may convert: two dimensions or more."""
        return self.rows > 1 and not self.role.endswith((".bias", "norm", "_norm_x", "exp_probs_b"))

    @property
    def nbytes(self) -> int:
        """Bytes in its storage type (16-bit types where no mix was chosen)."""
        kind = self.kind or TYPES["f16" if self.is_matrix else "f32"]
        return kind.nbytes(self.columns, self.rows)

    @property
    def name(self) -> str:
        """Name in a GGUF file."""
        return f"blk.{self.layer}.{self.role}.weight" if self.layer >= 0 else f"{self.role}.weight"

    def as_kind(self, kind: GgmlType) -> LocalTensor:
        """The same tensor in a storage type."""
        # Not `replace`, which takes three times as long: every tensor of a model is asked for every mix.
        return LocalTensor(self.role, self.layer, self.columns, self.rows, self.stack, kind)


@dataclass(frozen=True)
class LayerSets:
    """Which layers have what; built once per model."""

    sets: Mapping[str, tuple[int, ...]]  # Candidate sets of layers, by name.
    experts: tuple[int, ...]  # Layers with routed experts.
    dense: tuple[int, ...]  # Layers with a dense feed-forward network.

    def of(self, component: str, count: int) -> tuple[int, ...]:
        """Layers that ``count`` tensors of a component belong to, best guess first by exact size."""
        preferred = {
            "attention": (
                "attention",
                "cached",
                "every_full",
                "every_window",
                "full",
                "window",
                "latent",
                "all",
            ),
            "recurrent": ("recurrent", "all"),
            "dense_mlp": ("dense", "all"),
            "routed_experts": ("experts",),
            "router": ("experts",),
            "shared_experts": ("experts",),
        }.get(component, ("all", "attention", "cached", "recurrent", "experts", "dense"))
        for name in (*preferred, *self.sets):
            members = self.sets.get(name, ())
            if members and len(members) == count:
                return members
        everything = self.sets["all"]
        return everything[:count] if count <= len(everything) else everything


def layer_sets(model: Model) -> LayerSets:
    """Sort a model's layers by what they keep and by their feed-forward networks."""
    every = tuple(range(model.layer_count))
    by_kind: dict[str, list[int]] = {}
    for group in model.layers:
        kinds = _kinds(group.caches)
        for kind in kinds:
            by_kind.setdefault(kind, []).extend(group.indices)
        if not kinds:
            by_kind.setdefault("bare", []).extend(group.indices)
    sets = {"all": every, **{name: tuple(sorted(found)) for name, found in by_kind.items()}}
    for number, group in enumerate(model.layers):
        sets[f"group{number}"] = group.indices
    experts, dense = _feed_layers(model, sets)
    return LayerSets({**sets, "experts": experts, "dense": dense}, experts, dense)


def _kinds(caches: tuple[object, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for cache in caches:
        if isinstance(cache, RecurrentState):
            found.append("recurrent")
            continue
        found.append("attention")
        if isinstance(cache, Shared):
            found.append("every_window" if cache.reads == "sliding" else "every_full")
            continue
        found.append("cached")
        if isinstance(cache, FullAttention):
            found += ("full", "every_full")
        elif isinstance(cache, SlidingWindow):
            found += ("window", "every_window")
        elif isinstance(cache, Latent):
            found.append("latent")
    return tuple(dict.fromkeys(found))


def _feed_layers(
    model: Model, sets: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    experts = _layers_with_experts(model)
    widths: dict[tuple[str, tuple[int, ...]], int] = {}
    for row in model.weights:
        if row.component == "dense_mlp" and role_of(row.name, row.component) == "ffn_down":
            widths[row.name, row.shape] = row.count
    dense = sum(widths.values())
    every = sets["all"]
    bare = sets.get("bare", ())
    if bare and dense + experts == len(bare):
        return _divide(model, bare, dense, experts)
    if experts and dense and dense + experts <= len(every):
        return _divide(model, every, dense, experts)
    return (every if experts else ()), (every if dense else ())


def _divide(
    model: Model, layers: tuple[int, ...], dense: int, experts: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dense layers first, as DeepSeek's, or alternating where both are as many."""
    named = [
        group.indices
        for group in model.layers
        if any(word in group.name.lower() for word in ("expert", "mixture", "moe"))
    ]
    found = tuple(sorted(index for indices in named for index in indices))
    if len(found) == experts:
        return found, tuple(index for index in layers if index not in found)
    if dense == experts and dense > 1:
        return layers[1::2], layers[::2]
    return layers[dense:], layers[:dense]


def _layers_with_experts(model: Model) -> int:
    if model.experts is None:
        return 0
    for row in model.weights:
        if row.component == "routed_experts" and role_of(row.name, row.component) == "ffn_down_exps":
            return row.count // _experts_in(row, model.experts.routed)
    return 0


def _experts_in(row: WeightGroup, routed: int) -> int:
    """Groups of stacked matrices are counted once per layer, others once per expert."""
    stacked = len(row.shape) > _MATRIX_MIN and row.shape[0] == routed
    return 1 if stacked or row.count % routed else routed


def tensors_of(model: Model) -> tuple[LocalTensor, ...]:
    """Every tensor of the text model, in the order of its layers, types not chosen yet."""
    sets = layer_sets(model)
    widths = _width_layers(model)
    found: list[LocalTensor] = []
    for row in model.weights:
        if row.component in _SKIPPED:
            continue
        layers = widths.get(_inner_width(row)) if row.component == "dense_mlp" else None
        if layers is None:
            found.extend(_expand(model, row, sets))
        else:
            role = role_of(row.name, row.component)
            columns, rows = row.shape[-1], prod(row.shape[:-1])
            found.extend(LocalTensor(role, layer, columns, rows) for layer in layers)
    return _joined(sorted(found, key=lambda tensor: tensor.layer))


def _inner_width(row: WeightGroup) -> int:
    """Width of the network that a matrix of it belongs to; 0 for what is no matrix."""
    if len(row.shape) != _MATRIX_MIN:
        return 0
    return row.shape[1] if role_of(row.name, row.component) == "ffn_down" else row.shape[0]


def _width_layers(model: Model) -> dict[int, range]:
    """Layers of each width, where dense networks differ and every layer has one (DeciLM); empty otherwise.

    A record counts widths without saying where they are, so they are laid out in its order. Memory for all
    layers together does not depend on it.
    """
    counts: dict[int, int] = {}
    for row in model.weights:
        if row.component == "dense_mlp" and role_of(row.name, row.component) == "ffn_down":
            counts[_inner_width(row)] = counts.get(_inner_width(row), 0) + row.count
    sized = {index: _kinds(group.caches) for group in model.layers for index in group.indices}
    kinds = [list(sized.values()).count(kind) for kind in set(sized.values())]
    told = all(count in kinds for count in counts.values())
    if len(counts) < _MATRIX_MIN or sum(counts.values()) != model.layer_count or told or 0 in counts:
        return {}
    first, found = 0, {}
    for width, count in counts.items():
        found[width] = range(first, first + count)
        first += count
    return found


def _prediction_role(name: str) -> str:
    """The role of a prediction block's tensor, which no component tells apart."""
    for part in _PARTS:
        role = role_of(name, part)
        if role in _ROLES:
            return role
    return "nextn.norm" if "norm" in name else "nextn.eh_proj"


def prediction_tensors(model: Model) -> tuple[LocalTensor, ...]:
    """Tensors of a model's prediction blocks, as one more layer after its own; empty if it has none."""
    found = []
    for row in model.weights:
        if row.component == "mtp":
            role = _prediction_role(row.name)
            columns, rows = row.shape[-1], prod(row.shape[:-1])
            found.append(LocalTensor(role, model.layer_count, columns, rows * row.count))
    return tuple(found)


def _joined(tensors: list[LocalTensor]) -> tuple[LocalTensor, ...]:
    """Join parts that a record lists apart (queries and keys of one matrix): a file has one tensor."""
    merged: dict[tuple[int, str], LocalTensor] = {}
    for tensor in tensors:
        key = (tensor.layer, tensor.role)
        other = merged.get(key)
        if other is None:
            merged[key] = tensor
        elif other.rows == tensor.rows == 1:
            merged[key] = replace(other, columns=other.columns + tensor.columns)
        elif other.columns == tensor.columns and other.stack == tensor.stack:
            merged[key] = replace(other, rows=other.rows + tensor.rows)
        else:
            merged[tensor.layer, f"{tensor.role}.{len(merged)}"] = tensor
    return tuple(merged.values())


def _expand(model: Model, row: WeightGroup, sets: LayerSets) -> Iterator[LocalTensor]:
    role = role_of(row.name, row.component)
    columns, rows = row.shape[-1], prod(row.shape[:-1])
    if role == "ssm_conv1d":
        columns, rows = prod(row.shape), 1
    if row.component == "routed_experts" and model.experts is not None:
        stack = _experts_in(row, model.experts.routed)
        layers = sets.of(row.component, row.count // stack)
        for layer in layers:
            yield LocalTensor(role, layer, columns, rows * stack, stack if stack > 1 else row.shape[0])
        return
    if "*" not in row.name:
        if row.component == "norms":
            role = "output_norm.bias" if row.name.endswith(".bias") else "output_norm"
        yield LocalTensor(role, -1, columns, rows * row.count)
        return
    layers = sets.of(row.component, row.count)
    share = max(1, row.count // max(1, len(layers)))
    for layer in layers:
        if role == "attn_kv_b":
            yield from _split_latent(model, layer, columns, rows)
        elif role == "ssm_qkvz":
            gate = rows - _convolved(model)
            yield LocalTensor("attn_qkv", layer, columns, rows - gate)
            yield LocalTensor("attn_gate", layer, columns, gate)
        else:
            for _ in range(share):
                yield LocalTensor(role, layer, columns, rows)


def _split_latent(model: Model, layer: int, latent: int, rows: int) -> Iterator[LocalTensor]:
    """``kv_b_proj`` becomes ``attn_k_b`` (transposed per head) and ``attn_v_b``."""
    heads = max(1, model.attention_heads)
    nope = _nope_width(model, rows // heads)
    yield LocalTensor("attn_k_b", layer, nope, latent * heads, heads)
    yield LocalTensor("attn_v_b", layer, latent, rows - nope * heads, heads)


def latent_widths(model: Model) -> tuple[int, int] | None:
    """Widths of a head's key without rotation and of its value, where a matrix unfolds them from a latent."""
    for row in model.weights:
        if row.component == "attention" and role_of(row.name, row.component) == "attn_kv_b":
            per_head = prod(row.shape[:-1]) // max(1, model.attention_heads)
            nope = _nope_width(model, per_head)
            return nope, per_head - nope
    return None


def _convolved(model: Model) -> int:
    """Channels of the convolution of a linear attention: queries, keys and values together."""
    for cache in model.every_cache:
        if isinstance(cache, RecurrentState):
            return next((tensor.channels for tensor in cache.tensors if tensor.name == "conv"), 0)
    return 0


def _nope_width(model: Model, per_head: int) -> int:
    """Width of a head's part without rotation: what the query has beside its rotary part."""
    rope = next((c.rope_dim for c in model.every_cache if isinstance(c, Latent)), 0)
    for row in model.weights:
        if role_of(row.name, row.component) in ("attn_q_b", "attn_q") and row.component == "attention":
            width = row.shape[0] // max(1, model.attention_heads) - rope
            if 0 < width < per_head:
                return width
    return per_head // 2


_BLOCK: Final = re.compile(r"^blk\.(\d+)\.(.+)$")


def local_tensor(name: str, shape: Sequence[int], kind: GgmlType) -> LocalTensor:
    """One tensor of a GGUF file: its layer out of its name, stacked experts kept whole.

    ``name``: its name. ``kind``: its storage type.
    """
    found = _BLOCK.match(name)
    layer, rest = (int(found[1]), found[2]) if found else (-1, name)
    role = rest.removesuffix(".weight")
    if role == "ssm_conv1d":
        return LocalTensor(role, layer, prod(shape), 1, 1, kind)
    stack = shape[2] if len(shape) > 2 else 1
    return LocalTensor(role, layer, shape[0], prod(shape[1:]), stack, kind)


_RULES: Final[tuple[tuple[Component | None, str, str], ...]] = tuple(map(tuple, read_table("ggml roles")))
"""Component, pattern of a module's path, and role, after ``gguf-py/gguf/tensor_mapping.py`` and ``conversion/*.py`` of
llama.cpp 0c1e57098: the first row that matches names a tensor as ggml does."""


@lru_cache(maxsize=4096)
def role_of(path: str, component: Component) -> str:
    """Name a tensor as ggml does, without layer number and without ``.weight``.

    ``path``: module path of a weight group, ``*`` for numbers; or a name of a GGUF file. ``component``:
    what the weight is for.
    """
    if path.startswith("blk.*."):
        return path.removeprefix("blk.*.").removesuffix(".weight")
    if path in ("token_embd.weight", "output.weight", "output_norm.weight", "per_layer_token_embd.weight"):
        return path.removesuffix(".weight")
    stem = path.removesuffix(".weight").removesuffix(".bias")
    for wanted, pattern, role in _RULES:
        if wanted in (None, component) and re.search(pattern, stem):
            return f"{role}.bias" if path.endswith(".bias") else role
    return stem.rpartition(".")[2]
