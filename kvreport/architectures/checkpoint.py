"""A checkpoint's own files as a witness: what was counted is held against what is stored.

The count from ``config.json`` says what a class has; the files say what is there. Where the two
differ by more than :data:`TOLERANCE`, the files are right and the weights are taken from them:
module by module where headers are at hand, else all in one proportion.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from kvreport.architectures.safetensors import StoredTensor, Witness
from kvreport.catalog.model import Component, Model, WeightGroup

TOLERANCE: Final = 0.002
"""Share by which count and files may differ: what a tool keeps in float32, an index, a shape."""

_COMPARABLE: Final = 0.9
"""Share of the bytes whose names must agree before modules are compared one by one."""

_PARTS: Final = re.compile(
    r"(?:[._](?:blocks|scales|biases|weight_packed|weight_scale(?:_inv|_2|_second)?|weight_zero_point|"
    r"weight_shape|weight_g_idx|weight_global_scale|weight_offset|input_(?:scale|global_scale|offset)|"
    r"quant_bias|deq_scale|qweight|qzeros|g_idx|trellis|su|sv|suh|svh|mcg|mul1|codes|codebooks|"
    r"q_weight|q_scale|q_scale_max|q_groups|q_invperm|q_group_map|SCB|meta|weight))$"
)
_STATE: Final = re.compile(r"\.weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..+)$")
"""What bitsandbytes keeps of a tensor."""
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)")
_PREFIX: Final = re.compile(r"^(?:(?:model|language_model|transformer|backbone|thinker)\.)+")
_PLAIN_FLOATS: Final = ("F32", "F64")


@dataclass(frozen=True, slots=True)
class CheckpointVerdict:
    """What became of a model when its files were heard."""

    model: Model  # The model, with the files' bytes where they differ.
    counted: int  # Bytes that the config makes, as stored.
    stored: int  # Bytes that the files hold, as stored.
    sentence: str | None  # What to tell the reader, or None if count and files agree.


def confront(
    model: Model, witness: Witness, served: Sequence[int], *, plain_bytes: int = 2
) -> CheckpointVerdict:
    """Hold a model's tensors against its files, and take the files' bytes where they differ.

    Args:
        model: What the config says.
        witness: What the files say.
        served: Bytes of each of the model's rows in an engine, the vocabulary without padding
            (:func:`kvreport.accounting.weights.whole_row_bytes`).
        plain_bytes: Bytes of an unquantized element in the files (4 for a float32 checkpoint, which
            engines serve at 16 bits).

    Returns:
        The model, whose rows carry ``stored_bytes`` where the files decide.
    """
    counted = sum(
        size * plain_bytes // 2 if row.released is None else size
        for row, size in zip(model.weights, served, strict=True)
    )
    other = disagreement(model, witness)
    if abs(witness.total - counted) <= TOLERANCE * witness.total:
        return CheckpointVerdict(model, counted, witness.total, other)
    sentence = (
        f"{witness.where} holds {witness.total:,} bytes of weights ({witness.total / 2**30:.2f} GiB); "
        f"the config makes {counted:,} ({(counted / witness.total - 1) * 100:+.1f}%): "
    )
    beside = _beside(model, witness) if not witness.tensors and witness.total > counted else None
    rows = _by_module(model, served, witness) if witness.tensors else None
    if beside is not None:
        rows = (*model.weights, beside.model_copy(update={"stored_bytes": witness.total - counted}))
        sentence += f"the rest is {_PARTS_BESIDE[beside.component]}, which the class is read without."
    else:
        rows = rows or _in_proportion(model, served, witness, counted)
        sentence += "the weights come from the files."
    if other is not None:
        sentence += f" {other}"
    return CheckpointVerdict(model.model_copy(update={"weights": rows}), counted, witness.total, sentence)


def disagreement(model: Model, witness: Witness) -> str | None:
    """Say where the files are of another model than the config: its depth, or the shape of a module.

    The bytes of weights come from the files, but a cache has no file: it is counted from the config,
    which is worth a warning where the two are not of one model.

    Returns:
        One sentence, or None if nothing contradicts the config or only a total is known.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    layers: dict[str, set[int]] = defaultdict(set)
    for tensor in witness.tensors:
        key = module_key(tensor.name, model.layer_count)
        found = _LAYER.search(tensor.name)
        if found is not None:
            layers[key.removeprefix("mtp:")].add(int(found[1]))
        if tensor.dtype in _UNPACKED and tensor.name.endswith(".weight"):
            shapes.setdefault(key, tensor.shape)
    faults = list(_other_depth(model, layers))
    for row in model.weights:
        stored = next((shapes[key] for key in (*_row_keys(row),)[:1] if key in shapes), None)
        if stored is not None and row.name.endswith("proj.weight") and prod(stored) != prod(row.shape):
            module = row.name.removesuffix(".weight")
            faults.append(f"{module} is {_sides(row.shape)} by the config and {_sides(stored)} in the files")
    if not faults:
        return None
    return f"Config and files are not of one model ({'; '.join(faults[:2])}): the cache is counted from the config."


_UNPACKED: Final = ("BF16", "F16", "F32", "F8_E4M3", "F8_E5M2")
"""Types whose elements are parameters one to one."""


def _sides(shape: Sequence[int]) -> str:
    return " × ".join(f"{side:,}" for side in shape)


def _other_depth(model: Model, layers: dict[str, set[int]]) -> Iterable[str]:
    """Yield a sentence if the decoder's layers in the files are more or fewer than the config's.

    Layers for multi-token prediction follow the others and have modules that no other layer has. Only
    modules of every layer are looked at: a part of the layers may have experts or states.
    """
    every = {
        key
        for row in model.weights
        if row.count == model.layer_count and row.component in ("norms", "attention")
        for key in (*_row_keys(row),)[:1]
    }
    depths = {max(layers[key]) + 1 for key in every if key in layers}
    own = {index for found in layers.values() if min(found) >= model.layer_count for index in found}
    for depth in sorted(depths)[-1:]:
        beyond = set(range(model.layer_count, depth))
        if depth < model.layer_count or (len(beyond) > 1 and not beyond & own):
            yield f"{model.layer_count} layers by the config and {depth} in the files"


def _in_proportion(
    model: Model, served: Sequence[int], witness: Witness, counted: int
) -> tuple[WeightGroup, ...]:
    return tuple(
        row.model_copy(update={"stored_bytes": round(size * witness.total / counted)})
        for row, size in zip(model.weights, served, strict=True)
    )


def _beside(model: Model, witness: Witness) -> WeightGroup | None:
    """A row for what an index names and the class does not have, if it is all of one kind."""
    known = {key for row in model.weights for key in _row_keys(row)}
    foreign = {key for name in witness.names if (key := module_key(name, model.layer_count)) not in known}
    kinds = {component_of(key) for key in foreign} & set(_PARTS_BESIDE)
    present = {row.component for row in model.weights}
    if len(kinds) != 1 or kinds & present:
        return None
    (component,) = kinds
    return WeightGroup(name=f"{component} …", component=component, shape=(1,))


_PARTS_BESIDE: Final[dict[Component, str]] = {
    "mtp": "layers for multi-token prediction",
    "vision": "an image encoder",
    "audio": "an audio encoder",
}
"""What a checkpoint may hold beside the class that reads it."""


@dataclass(slots=True)
class _Module:
    """Tensors of the same module in all layers."""

    size: int = 0
    tensors: int = 0
    elements: int = 0
    name: str = ""


def _by_module(model: Model, served: Sequence[int], witness: Witness) -> tuple[WeightGroup, ...] | None:
    """Give each row the bytes of its modules; None if the names do not correspond."""
    stored = _modules(witness.tensors, model.layer_count)
    rows_of: dict[str, list[int]] = defaultdict(list)
    lost: list[int] = []
    for index, row in enumerate(model.weights):
        key = next((key for key in _row_keys(row) if key in stored), None)
        (rows_of[key] if key is not None else lost).append(index)
    total = sum(module.size for module in stored.values())
    known = sum(stored[key].size for key in rows_of)
    if known < _COMPARABLE * total or sum(served[i] for i in lost) > (1 - _COMPARABLE) * sum(served):
        return None
    found: list[WeightGroup] = []
    for key, indices in rows_of.items():
        whole = sum(served[i] for i in indices)
        left = stored[key].size
        for place, i in enumerate(indices, 1):
            share = (
                left if place == len(indices) else round(stored[key].size * served[i] / whole) if whole else 0
            )
            left -= share
            found.append(model.weights[i].model_copy(update={"stored_bytes": share}))
    tied = all(row.component != "output_head" for row in model.weights)
    found += [
        _extra(key, module)
        for key, module in stored.items()
        if key not in rows_of and module.elements and not (tied and key == "lm_head")
    ]
    return tuple(found)


def _modules(tensors: Iterable[StoredTensor], layers: int) -> dict[str, _Module]:
    found: dict[str, _Module] = defaultdict(_Module)
    for tensor in tensors:
        module = found[module_key(tensor.name, layers)]
        module.size += served_size(tensor)
        module.tensors += 1
        module.elements += tensor.elements
        module.name = module.name or tensor.name
    return dict(found)


def served_size(tensor: StoredTensor) -> int:
    """Bytes of a stored tensor in an engine: plain float32 weights are served at 16 bits."""
    plain = tensor.name.endswith((".weight", ".bias")) or not _PARTS.search(tensor.name)
    return tensor.elements * 2 if tensor.dtype in _PLAIN_FLOATS and plain else tensor.size


def module_key(name: str, layers: int) -> str:
    """Name a tensor's module without its layer, its expert and the wrapping of its model."""
    found = _LAYER.search(name)
    ahead = name.startswith("mtp.") or ".mtp." in name or (found is not None and int(found[1]) >= layers)
    inner = _PARTS.sub("", _STATE.sub("", name))
    inner = _NUMBER.sub("*", _PREFIX.sub("", inner)).replace(".switch_mlp.", ".experts.*.")
    return f"mtp:{inner.removeprefix('mtp.')}" if ahead else inner


def _row_keys(row: WeightGroup) -> Iterable[str]:
    """Yield the names that a row's modules may have in the files, most exact first."""
    ahead = row.component == "mtp"
    inner = _NUMBER.sub("*", _PREFIX.sub("", row.name.removesuffix(".weight")))
    key = f"mtp:{inner.removeprefix('mtp.')}" if ahead else inner
    yield key
    stacked = key.replace(".experts.*.", ".experts.")
    yield stacked
    yield re.sub(r"\.(?:gate_proj|up_proj|w1|w3)$", ".gate_up_proj", stacked)
    if not key.endswith("bias") and "." in key:
        yield key.rpartition(".")[0]


def _extra(key: str, module: _Module) -> WeightGroup:
    """A row for modules that the class does not have."""
    return WeightGroup(
        name=f"{module.name[:390]} …"
        if module.tensors > 1
        else module.name.strip()[:400] or "unnamed tensor",
        component=component_of(key),
        shape=(module.elements,),
        stored_bytes=module.size,
    )


_COMPONENTS: Final[tuple[tuple[re.Pattern[str], Component], ...]] = (
    (re.compile(r"^mtp:"), "mtp"),
    (re.compile(r"vision|visual|image|vit\b|patch_embed|mm_projector|multi_modal"), "vision"),
    (re.compile(r"audio|speech|sound"), "audio"),
    (re.compile(r"(?:^|\.)(?:lm_head|output|embed_out|head)$"), "output_head"),
    (re.compile(r"embed|wte|wpe|tok_embeddings"), "embedding"),
    (re.compile(r"norm|(?:^|\.)ln_"), "norms"),
    (re.compile(r"shared_expert"), "shared_experts"),
    (re.compile(r"\.experts\."), "routed_experts"),
    (re.compile(r"router|(?:mlp|moe|ffn|mixer)\.gate(?:$|\.)|correction_bias"), "router"),
    (re.compile(r"mamba|ssm|conv1d|linear_attn|A_log|dt_"), "recurrent"),
    (re.compile(r"attn|attention|[qkvo]_proj|query_key_value|Wqkv"), "attention"),
    (re.compile(r"mlp|feed_forward|ffn|fc\d|gate_proj|up_proj|down_proj|dense"), "dense_mlp"),
)


def component_of(key: str) -> Component:
    """What a module is for, by its name; ``other`` where the name does not say."""
    return next((component for pattern, component in _COMPONENTS if pattern.search(key)), "other")
