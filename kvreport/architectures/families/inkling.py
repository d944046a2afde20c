"""Inkling: relative positions, short convolutions around attention and MLP, windows on five of six layers.

transformers 5.24, ``models/inkling``, ``models/inkling2`` and ``models/inkling2_loop``. The short convolutions work in float32, and so
does what they keep: ``kernel - 1`` columns of keys, of values, and of the outputs of attention and MLP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import ceil, log, prod
from operator import mul
from typing import Final, cast

from kvreport.architectures.attention import Kind, attention_cache, listed_mixtures
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import context, dense_mlp, expert_counts, text_base, vocabulary
from kvreport.architectures.keys import MAX_EXPERTS, MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import (
    Tensors,
    embedding,
    linear,
    norm,
    norms,
    output_head,
    placed,
)
from kvreport.architectures.vision import MAX_DEPTH, section_or_default
from kvreport.catalog.caches import RecurrentState, StateTensor

_FULL_EVERY: Final = 6


@reads(
    "InklingForConditionalGeneration",
    "InklingForCausalLM",
    family="Inkling",
    model_types=("inkling_mm_model", "inkling_text"),
)
def inkling(keys: Keys) -> Blueprint:
    """Experts that are shared take part in the router's choice; pictures and sound enter without attention."""
    hidden = keys.whole("hidden_size")
    kinds = _kinds(keys)
    experts_and_chosen = expert_counts(keys, "n_routed_experts", "num_local_experts")
    shared = keys.whole("n_shared_experts", high=MAX_EXPERTS)
    dense, routed = _widths(keys)
    sparse = _sparse(keys, len(kinds))
    given = {"hidden": hidden, "routed": experts_and_chosen[0], "shared": shared, "expert_width": routed}
    moe = part("inkling_mixture", keys, "mlp", **given)
    plain: Tensors = (
        *dense_mlp(keys, hidden, dense),
        Weight("mlp.global_scale", "other", (1,)),
    )
    layers = [
        _normed_layer(keys, hidden, kind, moe if is_sparse else plain)
        for kind, is_sparse in zip(kinds, sparse, strict=True)
    ]
    nested = keys.outer is not keys
    return _decoder(
        keys,
        hidden,
        layers,
        extra=(*_vision(keys, hidden), *_audio(keys, hidden)) if nested else (),
        intermediate=dense,
        chosen=experts_and_chosen,
        ahead=_ahead(keys, hidden, plain),
    )


def _normed_layer(keys: Keys, hidden: int, kind: str, mlp: Tensors) -> Layer:
    """Return a layer of the first Inkling, whose queries and keys are normed by head."""
    head_norms = norms("self_attn.q_norm", "self_attn.k_norm", width=_heads(keys, kind)[2])
    return _layer(keys, hidden, kind, (*mlp, *head_norms), ("attn_sconv", "mlp_sconv"))


def _ahead(keys: Keys, hidden: int, mlp: Tensors) -> Tensors:
    """Prediction layers: two norms, a projection that joins them, and a block with a dense MLP (vLLM 0.33, inkling/nvidia/mtp.py)."""
    stated = keys.outer.section("mtp_config")
    if stated is None:
        return ()
    count = stated.whole("num_nextn_predict_layers", default=0, low=0, high=MAX_LAYERS)
    if not count:
        return ()
    local = set(stated.wholes("local_layer_ids", low=0, high=MAX_LAYERS) or ())
    rows: list[Weight] = []
    for kind, times_ in (("full", count - len(local)), ("sliding", len(local))):
        block = _normed_layer(keys, hidden, kind, mlp).tensors
        layer = (
            *norms("hidden_norm", "embed_norm", width=hidden),
            *linear("input_proj", "mtp", hidden, 2 * hidden),
            *placed(block, "transformer_block."),
        )
        if times_ > 0:
            rows += placed(layer, "model.mtp.layers.*.", component="mtp", times=times_)
    if stated.flag("chain_hidden_post_norm", default=False):
        rows.append(Weight("model.mtp.chain_norm.weight", "mtp", (hidden,)))
    return tuple(rows)


@reads(
    "Inkling2ForConditionalGeneration",
    "Inkling2ForCausalLM",
    family="Inkling",
    model_types=("inkling2", "inkling2_text"),
)
def inkling2(keys: Keys) -> Blueprint:
    """Attention with a gate and a sink, residuals chosen by learned queries, and a plain vision tower."""
    return _second(keys, range(0), 1)


@reads(
    "Inkling2LoopForConditionalGeneration",
    "Inkling2LoopForCausalLM",
    family="Inkling",
    model_types=("inkling2_loop", "inkling2_loop_text"),
)
def inkling2_loop(keys: Keys) -> Blueprint:
    """As Inkling 2, with layers in the middle that run several times; each pass keeps caches of its own."""
    nested = keys.section("loop_config")
    looped, (first, end, passes) = (
        (nested, ("core_start", "core_end", "num_passes"))
        if nested is not None
        else (keys, ("loop_layer_index_start", "loop_layer_index_end", "loop_num_passes"))
    )
    if nested is not None:
        nested.defaults = {
            "core_start": keys.defaults["loop_layer_index_start"],
            "core_end": keys.defaults["loop_layer_index_end"],
            "num_passes": keys.defaults["loop_num_passes"],
            "gate_rank": keys.defaults["loop_gate_rank"],
        }
    count = keys.whole("num_hidden_layers", high=MAX_LAYERS)
    start = looped.whole(first, low=0, high=count)
    inside = range(start, looped.whole(end, low=start, high=count))
    return _second(keys, inside, looped.whole(passes, low=1, high=MAX_LAYERS // count))


def _second(keys: Keys, looped: range, passes: int) -> Blueprint:
    """Read Inkling 2."""
    hidden = keys.whole("hidden_size")
    kinds = _kinds(keys)
    width = keys.whole("moe_intermediate_size", "intermediate_size")
    chosen = expert_counts(keys, "n_routed_experts", "num_local_experts")
    given = {"hidden": hidden, "routed": chosen[0], "expert_width": width, "shared_width": 0}
    moe = part("deepseek_mixture", keys, "mlp", **given)
    convolutions = ("post_attention_convolution", "post_mlp_convolution")
    layers = []
    for index, kind in enumerate(kinds):
        heads, _, head_dim = _heads(keys, kind)
        relative = keys.whole("d_rel", high=1 << 12)
        sized = {"hidden": hidden, "heads": heads, "head_dim": head_dim, "relative": relative}
        extra = part("inkling2_gates", keys, **sized)
        if index:
            # Full layers choose the inputs of queries, keys and values apart.
            shape = (hidden,) if kind == "sliding" else (3, hidden)
            extra += (Weight("attention_input.query", "norms", shape),)
        if index in looped:
            looping = keys.section("loop_config")
            rank = keys.whole("loop_gate_rank") if looping is None else looping.whole("gate_rank")
            extra += part("inkling2_messages", keys, hidden=hidden, rank=rank)
        layers.append(_layer(keys, hidden, kind, (*moe, *extra), convolutions, dynamic=kind == "full"))
    # Each further pass of a layer is a layer with caches and no weights.
    layers += [replace(layers[index], tensors=()) for _ in range(passes - 1) for index in looped]
    nested = keys.outer is not keys
    # The head holds real tokens only: transformers drops the padded rows of the checkpoint as it loads.
    rows = keys.whole("unpadded_vocab_size")
    blueprint = _decoder(
        keys,
        hidden,
        layers,
        extra=_vision_2(keys, hidden) if nested else (),
        intermediate=width,
        chosen=chosen,
        head_rows=rows,
    )
    base = text_base(keys)
    blueprint.outer.append(Weight(f"{base}.final_input.query", "norms", (hidden,)))
    if looped:
        blueprint.outer.append(Weight(f"{base}.message_input.query", "norms", (len(looped), 4, hidden)))
    if nested and not keys.outer.has("quantization_config", "transformers_version"):
        blueprint.weight_format = "mxfp8"
        blueprint.notes.append(
            "The published config does not state that the routed experts are MXFP8. transformers assumes MXFP8 for"
            " configs that it did not write (5.23, configuration_inkling2.py)."
        )
        blueprint.layers = [_mxfp8_experts(layer) for layer in blueprint.layers]
    return blueprint


def _mxfp8_experts(layer: Layer) -> Layer:
    return replace(
        layer,
        tensors=tuple(
            replace(tensor, stored="mxfp8") if tensor.component == "routed_experts" else tensor
            for tensor in layer.tensors
        ),
    )


def _kinds(keys: Keys) -> list[str]:
    """Return ``full`` or ``sliding`` per layer: from ``layer_types``, from indices, or every sixth full."""
    count = keys.whole("num_hidden_layers", high=MAX_LAYERS)
    listed = keys.texts("layer_types", length=count, of=("hybrid", "hybrid_sliding"))
    if listed is not None:
        return ["full" if name == "hybrid" else "sliding" for name in listed]
    local = keys.wholes("local_layer_ids", low=0, high=MAX_LAYERS)
    if local is None:
        return ["sliding" if (index + 1) % _FULL_EVERY else "full" for index in range(count)]
    chosen = set(local)
    return ["sliding" if index in chosen else "full" for index in range(count)]


def _widths(keys: Keys) -> tuple[int, int]:
    """Return the widths of a dense MLP and of an expert.

    Published checkpoints call the expert's ``intermediate_size`` and the other ``dense_intermediate_size``;
    transformers' own files have ``moe_intermediate_size`` for the expert's.
    """
    if keys.has("dense_intermediate_size"):
        return keys.whole("dense_intermediate_size"), keys.whole("intermediate_size")
    return keys.whole("intermediate_size"), keys.whole("moe_intermediate_size")


def _sparse(keys: Keys, count: int) -> list[bool]:
    listed = listed_mixtures(keys, count)
    if listed is not None:
        return listed
    first = keys.whole("dense_mlp_idx", default=0, low=0, high=MAX_LAYERS)
    return [index >= first for index in range(count)]


def _heads(keys: Keys, kind: str) -> tuple[int, int, int]:
    """Return query heads, KV heads and head width of a layer."""
    prefix = "swa_" if kind == "sliding" else ""
    heads = keys.whole(f"{prefix}num_attention_heads", high=1 << 14)
    kv_heads = keys.whole(f"{prefix}num_key_value_heads", high=heads)
    keys.divide(f"{prefix}num_attention_heads", heads, f"{prefix}num_key_value_heads", kv_heads)
    return heads, kv_heads, keys.whole(f"{prefix}head_dim", high=1 << 16)


def _layer(
    keys: Keys,
    hidden: int,
    kind: str,
    mlp: Tensors,
    convolutions: tuple[str, str],
    *,
    dynamic: bool = False,
) -> Layer:
    heads, kv_heads, head_dim = _heads(keys, kind)
    kernel = keys.whole("conv_kernel_size", "sconv_kernel_size", low=2, high=1 << 10)
    relative = keys.whole("d_rel", high=1 << 12)
    window = keys.whole("sliding_window_size", "sliding_window")
    reach = window if kind == "sliding" else keys.whole("rel_extent")
    given = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    given |= {"relative": relative, "reach": reach, "kernel": kernel, "dynamic": dynamic}
    after_attention, after_mlp = convolutions
    words = {"after_attention": after_attention, "after_mlp": after_mlp}
    tensors = (*part("inkling_layer", keys, **given, **words), *mlp)
    name, caches = attention_cache(cast("Kind", kind), kv_heads, head_dim, span=window)
    state = RecurrentState(
        mechanism="short_conv",
        tensors=tuple(
            StateTensor(name="conv", channels=channels, columns=kernel - 1, precision="float32")
            for channels in (kv_heads * head_dim, kv_heads * head_dim, hidden, hidden)
        ),
    )
    return Layer(f"{name} and short convolutions", (*caches, state), tensors)


def _decoder(
    keys: Keys,
    hidden: int,
    layers: list[Layer],
    *,
    extra: Tensors,
    intermediate: int,
    chosen: tuple[int, int],
    head_rows: int | None = None,
    ahead: Tensors = (),
) -> Blueprint:
    base = text_base(keys)
    words = vocabulary(keys)
    keys.has("unpadded_vocab_size")
    return Blueprint(
        hidden_size=hidden,
        attention_heads=keys.whole("num_attention_heads", high=1 << 14),
        vocabulary=words,
        context_tokens=context(keys),
        layers=layers,
        outer=[
            *embedding(words, hidden, f"{base}.embed_tokens"),
            *norm(f"{base}.embed_tokens.embed_norm", hidden),
            *norm(f"{base}.norm", hidden),
            *output_head(head_rows or words, hidden),
            *extra,
            *ahead,
        ],
        prefix=f"{base}.layers",
        rotates=False,
        intermediate_size=intermediate,
        experts=chosen,
    )


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    """Patches folded step by step into the depth of linear layers, without attention."""
    vision = section_or_default(keys.outer, "vision_config", "inkling_vision")
    vision.has("decoder_dmodel", "text_hidden_size", "hidden_size", "num_attention_heads")
    layers = vision.whole("n_layers", "num_hidden_layers", high=MAX_DEPTH)
    side = vision.whole("patch_size", high=1 << 10)
    frames = vision.whole("temporal_patch_size", high=64)
    channels = vision.whole("num_channels", "n_channels", high=64)
    tower = "model.vision_tower"
    tensors: Tensors = norm(f"{tower}.final_norm", text_hidden, component="vision")
    steps = list(pairwise(_scales(layers, side, frames, channels)))
    for index, (start, end) in enumerate(steps):
        last = index == layers - 1
        folds = prod(after // before for before, after in zip(start[:-1], end[:-1], strict=True))
        outputs = text_hidden if last else end[-1]
        tensors += linear(f"{tower}.encoder_layers.*.projection", "vision", outputs, start[-1] * folds)
        if not last:
            tensors += norm(f"{tower}.encoder_layers.*.layer_norm", outputs, component="vision")
    return tensors


def _scales(layers: int, side: int, frames: int, channels: int) -> list[tuple[int, int, int, int]]:
    """Return frames, height, width and depth before and after every layer.

    The sizes on the way are the products of the prime factors, space before time; each layer takes the one
    nearest to a geometric progression (``plan_out_scales`` of ``modeling_inkling.py``).
    """
    sides = list(accumulate(sorted(_factors(side), reverse=True), mul)) or [1]
    times_ = list(accumulate(sorted(_factors(frames), reverse=True), mul))
    full = side * side * channels
    steps = [(1, 1, 1, channels)]
    steps += [(1, size, size, ceil(size * size * channels / 64) * 64) for size in sides]
    # The class rounds the depths of this part up to whole numbers before it multiplies them by 64.
    steps += [(count, sides[-1], sides[-1], full * count * 64) for count in times_]
    reached = [log(prod(step[:-1])) for step in steps]
    total = log(side * side * frames * channels)
    ideal = [total * index / layers for index in range(layers + 1)]
    chosen = [_nearest(reached, at) for at in ideal] if layers >= len(steps) else _assigned(ideal, reached)
    chosen[0], chosen[-1] = 0, len(steps) - 1
    return [steps[index] for index in chosen]


def _nearest(values: Sequence[float], wanted: float) -> int:
    return min(range(len(values)), key=lambda index: abs(values[index] - wanted))


def _factors(number: int) -> list[int]:
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def _assigned(ideal: Sequence[float], reached: Sequence[float]) -> list[int]:
    """Assign each ideal size a different one of those reached, at the least total distance, in order."""
    best: list[tuple[float, list[int]]] = [(0.0, [])] * (len(reached) + 1)
    for row, at in enumerate(ideal):
        following: list[tuple[float, list[int]]] = [(float("inf"), [])] * (len(reached) + 1)
        for column in range(row, len(reached)):
            cost, chosen = best[column]
            taken = (cost + abs(reached[column] - at), [*chosen, column])
            following[column + 1] = min(following[column], taken)
        best = following
    return best[-1][1]


def _audio(keys: Keys, text_hidden: int) -> Tensors:
    """Mel bins as tokens: one embedding, whose rows of a frame are added up."""
    audio = section_or_default(keys.outer, "audio_config", "inkling_audio")
    audio.has("decoder_dmodel", "text_hidden_size")
    rows = audio.whole("n_mel_bins", "num_codebooks", high=1 << 14) * audio.whole(
        "mel_vocab_size", "codebook_size", high=1 << 16
    )
    tower = "model.audio_tower"
    table = f"{tower}.embed_audio_tokens.embed_audio_tokens.weight"
    return (
        Weight(table, "audio", (rows, text_hidden), looked_up=True),
        *norm(f"{tower}.norm", text_hidden, component="audio"),
    )


def _vision_2(keys: Keys, text_hidden: int) -> Tensors:
    vision = section_or_default(keys.outer, "vision_config", "inkling_2_vision")
    vision.has("text_hidden_size", "num_attention_heads")
    ratio = vision.number("mlp_ratio", default=4.0, low=0.01, high=64)
    return part("inkling2_vision", vision, "model.vision_tower", text_hidden=text_hidden, ratio=ratio)
