"""A model from safetensors headers, where its class is not known.

The headers say what every tensor weighs. What is cached follows from them only where every layer is
plain attention: a key and a value projection, nothing recurrent, nothing compressed. Anything else
is refused, because a cache cannot be guessed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from kvreport.architectures.assumptions import not_read
from kvreport.architectures.attention import LAYER_TYPES, attention_cache
from kvreport.architectures.blueprint import Layer, layer_groups
from kvreport.architectures.checkpoint import component_of, module_key, served_size
from kvreport.architectures.keys import MAX_CONTEXT, Keys
from kvreport.architectures.safetensors import StoredTensor, Witness
from kvreport.catalog.base import Source
from kvreport.catalog.model import Experts, Model, Split, WeightGroup
from kvreport.errors import InputError

_SECTIONS: Final = ("text_config", "llm_config", "language_config", "llm_cfg")
_KEY: Final = re.compile(
    r"^(?!.*(?:vision|visual|audio|encoder\.))(?:.*\.)?(?:layers|h|blocks|block)\.(\d+)\."
    r"[\w.]*?(?:k_proj|qkv_proj|query_key_value|c_attn|Wqkv|wk|wqkv|qkv)\.(?:weight|qweight|weight_packed|trellis)$"
)
_UNNAMED: Final = "unnamed tensor"
_ODD: Final = re.compile(
    r"kv_a_proj|kv_lora|kv_b_proj|mamba|ssm|conv1d|A_log|linear_attn|time_mix|lightning|recurrent|"
    r"rg_lru|delta|indexer|short_conv|k_conv|cross_attn|encoder_attn|slope|decay"
)
"""Modules that cache something else than keys and values."""
_IN_THE_FILES: Final = ("intermediate_size", "moe_intermediate_size", "tie_word_embeddings")
"""Keys that decide weights alone, which the files state."""
_STORED: Final = {"U8": 2, "I32": 8, "U32": 8}
"""Weights in one stored element of a packed type; four bits each is the usual width."""
_SPLITS: Final[tuple[tuple[re.Pattern[str], Split], ...]] = (
    (re.compile(r"embed|lm_head"), "vocabulary"),
    (re.compile(r"\.experts\."), "experts"),
    (re.compile(r"q_proj|k_proj|v_proj|qkv|gate_proj|up_proj|gate_up|w1|w3|fc1"), "columns"),
    (re.compile(r"o_proj|out_proj|down_proj|w2|fc2"), "rows"),
)


@dataclass(frozen=True, slots=True)
class HeaderReading:
    """A model as its headers and the common keys of its config describe it."""

    model: Model
    assumptions: tuple[str, ...]  # What was taken for granted, one sentence each.
    not_read: tuple[str, ...]  # Dotted paths of keys and sections that look like sizes and were not used.


def read_headers(config: Mapping[str, Any], witness: Witness, *, id: str, where: str) -> HeaderReading:  # noqa: A002
    """Describe a model of an unknown class.

    Raises:
        InputError: If a layer may cache something else than plain keys and values, or a dimension
            of the cache is stated nowhere.
    """
    whole = Keys(config, where)
    keys = whole.section(*_SECTIONS) or whole
    layers = keys.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers", high=2000)
    _refuse_odd(witness, whole, layers)
    heads = keys.whole("num_attention_heads", "n_head", "n_heads", high=1 << 14)
    kv_heads = keys.optional("num_key_value_heads", "n_kv_heads", "num_kv_heads", low=1) or heads
    hidden = keys.whole("hidden_size", "n_embd", "d_model", "dim")
    width = keys.optional("head_dim", low=1) or keys.divide(
        "hidden_size", hidden, "num_attention_heads", heads
    )
    _check_width(witness, whole, kv_heads, width)
    groups = layer_groups(_layers(keys, layers, kv_heads, width))
    name = config.get("architectures")
    named = name[0] if isinstance(name, list) and name and isinstance(name[0], str) else None
    architecture = named or "unknown class"
    weights = weight_rows(witness.tensors, layers)
    sentence = (
        f"{f'{named} is not a class' if named else 'The config does not name a class'} that is read. "
        f"The weights come from the files. Every layer is "
        f"assumed to have plain attention with {kv_heads} key/value heads of {width}, as its projections show."
    )
    model = Model(
        id=id,
        name=id.rpartition("/")[2],
        family=architecture,
        maker="not stated",
        architecture=architecture,
        context_tokens=keys.whole("max_position_embeddings", "n_positions", "seq_length", high=MAX_CONTEXT),
        weight_format=_weight_format(witness.tensors),
        hidden_size=hidden,
        attention_heads=heads,
        vocabulary=keys.whole("vocab_size", "n_vocab", "padded_vocab_size", high=1 << 24),
        experts=_experts(keys),
        layers=groups,
        weights=weights,
        sources=(
            Source(
                covers=("layers", "weights", "context_tokens", "weight_format"),
                title=f"config.json and safetensors headers ({where})"[:400],
                evidence="verbatim",
            ),
        ),
    )
    keys.has(*_IN_THE_FILES)
    return HeaderReading(model, (sentence,), not_read(whole))


def _refuse_odd(witness: Witness, whole: Keys, layers: int) -> None:
    odd = next((tensor.name for tensor in witness.tensors if _ODD.search(tensor.name)), None)
    attending = {int(found[1]) for t in witness.tensors if (found := _KEY.match(t.name)) is not None}
    if odd is not None or not set(range(layers)) <= attending:
        missing = sorted(set(range(layers)) - attending)
        what = odd if odd is not None else f"no key projection in layer {missing[0]}"
        allowed = "plain attention in every layer: what another mechanism caches is not in the headers"
        size = f" (the weights alone: {witness.total:,} bytes)"
        raise InputError.of(whole.where, "architectures", what, allowed + size)


def _check_width(witness: Witness, whole: Keys, kv_heads: int, width: int) -> None:
    """Hold heads and width against an unquantized key projection, if there is one."""
    for tensor in witness.tensors:
        found = _KEY.match(tensor.name)
        plain = tensor.name.endswith(("k_proj.weight", ".wk.weight")) and tensor.dtype in (
            "BF16",
            "F16",
            "F32",
        )
        if found is not None and plain and len(tensor.shape) == 2:
            if tensor.shape[0] != kv_heads * width:
                raise whole.fault(
                    "num_key_value_heads",
                    f"{kv_heads} heads of {width}",
                    f"{tensor.shape[0]} in all ({tensor.name})",
                )
            return


def _layers(keys: Keys, layers: int, kv_heads: int, width: int) -> Iterator[Layer]:
    kinds = keys.texts("layer_types", length=layers, of=("full_attention", "sliding_attention"))
    span = keys.whole("sliding_window", high=MAX_CONTEXT) if "sliding_attention" in (kinds or ()) else None
    for kind in kinds or ["full_attention"] * layers:
        yield Layer(*attention_cache(LAYER_TYPES[kind], kv_heads, width, span=span), ())


def _experts(keys: Keys) -> Experts | None:
    routed = keys.optional("num_experts", "n_routed_experts", "num_local_experts", low=0)
    per_token = keys.optional("num_experts_per_tok", "moe_topk", "num_experts_per_token", low=1)
    return Experts(routed=routed, per_token=per_token) if routed and per_token else None


def _weight_format(tensors: Sequence[StoredTensor]) -> str:
    """Name the checkpoint by the type that most of its bytes have."""
    by_type: dict[str, int] = defaultdict(int)
    for tensor in tensors:
        by_type[tensor.dtype] += tensor.size
    most = max(by_type, key=lambda dtype: by_type[dtype])
    return {"F8_E4M3": "fp8-tensor", "I8": "int8", "I32": "int4", "U32": "mlx4-g64", "U8": "nvfp4"}.get(
        most, "bf16"
    )


def weight_rows(tensors: Iterable[StoredTensor], layers: int) -> tuple[WeightGroup, ...]:
    """Fold tensors into rows: one per kind of module, with the bytes that the files state."""
    modules: dict[str, list[StoredTensor]] = defaultdict(list)
    for tensor in tensors:
        modules[module_key(tensor.name, layers)].append(tensor)
    rows = [_row(key, members) for key, members in modules.items()]
    return tuple(row for row in rows if row is not None)


def _row(key: str, members: list[StoredTensor]) -> WeightGroup | None:
    """A row for the largest tensor of a module; scales and the like only add their bytes."""
    size = sum(served_size(tensor) for tensor in members)
    largest = max(members, key=lambda tensor: tensor.size)
    shape = tuple(side for side in largest.shape if side) or (1,)
    if len(shape) > 4:
        shape = (prod(shape[:-1]), shape[-1])
    packed = len(members) > 1 and largest.dtype in _STORED
    if packed:
        shape = (*shape[:-1], shape[-1] * _STORED[largest.dtype])
    alike = sum(tensor.shape == largest.shape and tensor.dtype == largest.dtype for tensor in members)
    if not size:
        return None
    return WeightGroup(
        name=key.strip()[:400] or _UNNAMED,
        component=component_of(key),
        shape=shape,
        count=alike,
        split=_split(key, shape),
        stored_bytes=size,
    )


def _split(key: str, shape: tuple[int, ...]) -> Split:
    if len(shape) < 2:
        return "replicated"
    return next((split for pattern, split in _SPLITS if pattern.search(key)), "replicated")
