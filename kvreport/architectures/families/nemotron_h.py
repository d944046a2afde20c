"""Nemotron-H and Nemotron 3: Mamba-2, attention, MLP and mixture each in a layer of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from kvreport.architectures.attention import Kind, attention_cache, grouped_heads, precision
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, context, decoder, expert_counts, vocabulary
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.mamba_mixers import Mamba2
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norm, norms, placed

Part = Literal["mamba", "attention", "mlp", "moe"]

_LETTERS: Final[dict[str, Part]] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS: Final[dict[str, Part]] = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


def _parts(keys: Keys) -> list[Part]:
    """Read what each layer is: a list of words, or a pattern of letters.

    Either one says how many layers there are; ``num_hidden_layers`` may be missing.
    """
    words = keys.texts("layers_block_type", "layer_types", of=tuple(_WORDS))
    pattern = keys.text("hybrid_override_pattern")
    if words is not None:
        parts = [_WORDS[word] for word in words]
    elif pattern is not None:
        for letter in pattern:
            if letter not in _LETTERS:
                raise keys.fault("hybrid_override_pattern", pattern, f"letters from {' '.join(_LETTERS)}")
        parts = [_LETTERS[letter] for letter in pattern]
    else:
        raise keys.fault(
            "layers_block_type", None, "a list with one word per layer (or hybrid_override_pattern)"
        )
    if not 0 < len(parts) <= MAX_LAYERS:
        raise keys.fault("layers_block_type", f"{len(parts)} layers", f"1 to {MAX_LAYERS} layers")
    stated = keys.optional("num_hidden_layers")
    if stated is not None and stated != len(parts):
        raise keys.fault("num_hidden_layers", stated, f"{len(parts)}, as the list of layers says")
    return parts


@reads(
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    family="Nemotron-H",
    model_types=("nemotron_h", "nemotron_h_puzzle"),
)
def nemotron_h(keys: Keys) -> Blueprint:
    """Most layers keep a constant state or nothing; a handful are attention.

    The output head is always one of its own. Puzzle states sizes block by block, and everything else for all of them
    (SGLang 0.5.23, ``srt/configs/nemotron_h.py``; vLLM 0.33.0, ``models/nemotron_h.py``).
    """
    blocks = _blocks(keys, "block_configs")
    parts = _parts(keys) if blocks is None else [part for part, _ in blocks]
    if blocks is not None and keys.optional("num_hidden_layers") not in (None, len(parts)):
        raise keys.fault(
            "num_hidden_layers", keys.raw("num_hidden_layers"), f"{len(parts)}, as block_configs says"
        )
    heads = keys.whole("num_attention_heads", high=1 << 14)
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=len(parts),
        heads=heads,
        kv_heads=grouped_heads(keys, heads),
        head_dim=keys.whole("head_dim", "attention_head_dim", high=1 << 14),
        vocabulary=vocabulary(keys),
        context=context(keys),
    )
    counts = _counts(keys, parts, blocks)
    built = (
        {} if blocks is not None else {part: _layer(keys, its, part, counts) for part in dict.fromkeys(parts)}
    )
    return decoder(
        keys,
        its,
        [built[part] for part in parts] if blocks is None else _built(blocks, its),
        tie=False,
        base="backbone",
        embed="embeddings",
        final_norm="norm_f",
        extra=_predictions(keys, its, counts),
        intermediate=keys.whole("intermediate_size") if blocks is None else None,
        experts=counts,
        rotates=False,
    )


def _blocks(keys: Keys, name: str) -> list[tuple[Part, Keys]] | None:
    """Read what each layer is, and the config as it is for that layer; None where no blocks are stated."""
    stated = keys.raw(name)
    if stated is None or stated == []:
        return None
    if not isinstance(stated, list) or len(stated) > MAX_LAYERS:
        raise keys.fault(name, stated, f"a list of up to {MAX_LAYERS} objects, one for each layer")
    found: list[tuple[Part, Keys]] = []
    for index, block in enumerate(stated):
        path = f"{name}[{index}]"
        kind = block.get("block_type") if isinstance(block, dict) else None
        if not isinstance(block, dict) or not isinstance(kind, str) or kind not in _WORDS:
            raise keys.fault(f"{path}.block_type", kind, f"one of {', '.join(_WORDS)}")
        unknown = next(
            (key for key, value in block.items() if value is not None and key not in _OF_BLOCKS), None
        )
        if unknown is not None:
            raise keys.fault(f"{path}.{unknown}", block[unknown], f"nothing but {', '.join(_OF_BLOCKS)}")
        own = {**keys.data, **{key: value for key, value in block.items() if value is not None}}
        found.append((_WORDS[kind], Keys(own, keys.where, keys.path, keys.defaults, keys.trail)))
    return found


_OF_BLOCKS: Final = (
    "block_type",
    "intermediate_size",
    "moe_intermediate_size",
    "moe_latent_size",
    "moe_shared_expert_intermediate_size",
    "n_group",
    "n_routed_experts",
    "norm_topk_prob",
    "num_experts_per_tok",
    "routed_scaling_factor",
    "sliding_window",
    "ssm_state_size",
    "topk_group",
)
"""Keys that a block may have of its own (``configuration_nemotron_h_puzzle.py``)."""


def _counts(keys: Keys, parts: list[Part], blocks: list[tuple[Part, Keys]] | None) -> tuple[int, int] | None:
    """Experts of a layer and experts that a token reads; the most of any layer where they differ."""
    if "moe" not in parts:
        return None
    if blocks is None:
        return expert_counts(keys, "n_routed_experts")
    each = {expert_counts(own, "n_routed_experts") for part, own in blocks if part == "moe"}
    read = sorted({chosen for _, chosen in each})
    if len(each) > 1:
        keys.trail.derived.append(
            f"A token reads {read[0]} to {read[-1]} experts of a layer; active parameters are counted with {read[-1]} in each."
        )
    return max(routed for routed, _ in each), read[-1]


def _built(blocks: list[tuple[Part, Keys]], its: Sizes) -> list[Layer]:
    """Build each block once for all that are alike."""
    built: dict[str, Layer] = {}
    layers = []
    for kind, own in blocks:
        sizes = repr([kind, *(own.data.get(key) for key in _OF_BLOCKS)])
        if sizes not in built:
            counts = expert_counts(own, "n_routed_experts") if kind == "moe" else None
            built[sizes] = _layer(own, its, kind, counts)
        layers.append(built[sizes])
    return layers


def _predictions(keys: Keys, its: Sizes, counts: tuple[int, int] | None) -> Tensors:
    """Layers for multi-token prediction, at 16 bits in every release (vLLM 0.17, ``nemotron_h_mtp.py``)."""
    steps = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    if not steps:
        return ()
    blocks = _blocks(keys, "mtp_block_configs")
    if blocks is not None:
        return _prediction_tensors(its, _built(blocks, its), steps)
    words = keys.texts("mtp_layers_block_type", of=tuple(_WORDS))
    letters = keys.text("mtp_hybrid_override_pattern") or "*E"
    if words is None and any(letter not in _LETTERS for letter in letters):
        raise keys.fault("mtp_hybrid_override_pattern", letters, f"letters from {' '.join(_LETTERS)}")
    parts = (
        [_WORDS[word] for word in words] if words is not None else [_LETTERS[letter] for letter in letters]
    )
    if "moe" in parts and counts is None:
        raise keys.fault("n_routed_experts", None, "how many experts the MTP layer has")
    return _prediction_tensors(its, [_layer(keys, its, part, counts) for part in parts], steps)


def _prediction_tensors(its: Sizes, layers: list[Layer], steps: int) -> Tensors:
    tensors: Tensors = (
        *norms("0.enorm", "0.hnorm", width=its.hidden),
        *linear("0.eh_proj", "mtp", its.hidden, 2 * its.hidden),
    )
    for index, layer in enumerate(layers):
        tensors += placed(layer.tensors, f"{index}.")
    tensors += norm(f"{len(layers) - 1}.final_layernorm", its.hidden)
    plain = tuple(replace(tensor, linear=False) for tensor in tensors)
    return placed(plain, "mtp.layers.", component="mtp", times=steps)


def _layer(keys: Keys, its: Sizes, kind: Part, counts: tuple[int, int] | None) -> Layer:
    before = norm("norm", its.hidden)
    if kind == "attention":
        # The class builds its attention without biases whatever ``attention_bias`` says.
        tensors = part("grouped_attention", keys, "mixer", **its.given)
        span = keys.optional("sliding_window", low=1, high=MAX_CONTEXT) if keys.has("block_type") else None
        seen: Kind = "full" if span is None else "sliding"
        return Layer(*attention_cache(seen, its.kv_heads, its.head_dim, span=span), (*before, *tensors))
    if kind == "mamba":
        heads = keys.whole("mamba_num_heads", high=1 << 16)
        sizes = Mamba2(
            heads,
            head_dim=keys.whole("mamba_head_dim", high=1 << 14),
            groups=keys.whole("n_groups", "mamba_n_groups", high=heads),
            state=keys.whole("ssm_state_size", high=1 << 14),
            kernel=keys.whole("conv_kernel", "mamba_d_conv", low=2, high=1 << 10),
        )
        cache = sizes.cache(precision(keys, "mamba_ssm_cache_dtype"))
        bias, conv_bias = keys.flag("use_bias"), keys.flag("use_conv_bias", "mamba_conv_bias")
        mixer = sizes.tensors(keys, "mixer", its.hidden, bias=bias, conv_bias=conv_bias)
        return Layer("Mamba-2", (cache,), (*before, *mixer))
    bias = keys.flag("mlp_bias")
    if kind == "mlp":
        width = keys.whole("intermediate_size")
        mlp = part("plain_mlp", keys, "mixer", hidden=its.hidden, mlp_width=width, bias_mlp=bias)
        return Layer("MLP", (), (*before, *mlp))
    assert counts is not None  # noqa: S101 - read whenever a layer is a mixture
    return Layer("mixture of experts", (), (*before, *_mixture(keys, its.hidden, counts[0], bias=bias)))


def _mixture(keys: Keys, hidden: int, routed: int, *, bias: bool) -> Tensors:
    """Experts of two matrices, in a latent width where the config names one."""
    width = keys.whole("moe_intermediate_size")
    latent = keys.optional("moe_latent_size", low=1)
    shared = keys.whole("moe_shared_expert_intermediate_size", low=0)
    given = {"hidden": hidden, "routed": routed, "latent": latent, "shared": shared, "mlp_bias": bias}
    return part("nemotron_h_mixture", keys, "mixer", **given, moe_intermediate_size=width)
