"""Dots 3 Note: latent attention of two shapes, windows on three of four layers, experts in the image encoder too.

transformers 5.24, ``models/dots3_note``. Published configs are flat and have names of their own
(``sliding_window_size``, ``swa_*``, ``pyramid_num_routed``, ``whisper_config``); the library's have
``text_config`` and ``per_layer_config``, which holds what differs from the rest by layer.
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import MLA, latent_cache, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import Sizes, decoder, dense_mlp, expert_counts, latent_sizes, whole_tied
from kvreport.architectures.families.deepseek import indexer_tensors
from kvreport.architectures.keys import MAX_CONTEXT, MAX_EXPERTS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norm, norms, placed
from kvreport.architectures.vision import MAX_DEPTH, section_or_default
from kvreport.catalog.caches import Cache, Indexer, Latent

_WINDOW: Final = "sliding_attention"
_FULL: Final = ("indexed_attention", "full_attention")
# configuration_dots3_note.py: what layers with a window have where a config does not say it.
_NARROW: Final = {
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_HEAD_DIM: Final = 256


@reads("Dots3NoteForConditionalGeneration", family="Dots", model_types=("dots3_note",))
def dots3_note(keys: Keys) -> Blueprint:
    """The decoder with its image and audio encoders."""
    return _read(keys, towers=True)


@reads("Dots3NoteForCausalLM", family="Dots", model_types=("dots3_note_text",))
def dots3_note_text(keys: Keys) -> Blueprint:
    """The decoder; a published config, which is flat, has the encoders of its repository."""
    return _read(keys, towers=keys.outer is keys and keys.has("vision_config", "audio_config"))


def _read(keys: Keys, *, towers: bool) -> Blueprint:
    its, _, _ = latent_sizes(keys)
    routed, per_token = expert_counts(keys, "n_routed_experts", "num_local_experts")
    width = keys.whole("intermediate_size")
    shared = keys.whole("shared_experts_intermediate_size", "moe_shared_expert_intermediate_size")
    given = {"hidden": its.hidden, "routed": routed, "expert_width": keys.whole("moe_intermediate_size")}
    shared *= keys.whole("n_shared_experts", high=1 << 10)
    mixed = part("deepseek_mixture", keys, "mlp", **given, shared_width=shared)
    keys.has("mlp_bias")  # no class reads it
    dense = dense_mlp(keys, its.hidden, width)
    layers = []
    for index, (narrow, sparse) in enumerate(
        zip(_windows(keys, its.layers, its.layers), mixture_pattern(keys, its.layers), strict=True)
    ):
        kind, caches, attention = _attention(
            keys, its.hidden, _sizes(keys, index, narrow=narrow), narrow=narrow
        )
        picks = () if narrow or not _indexed(keys) else indexer_tensors(keys, its)
        if picks:
            index_keys = Indexer(
                index_dim=keys.whole("index_head_dim", high=1 << 12),
                top_k=keys.whole("index_topk", high=1 << 20),
            )
            kind, caches = "latent attention with indexer", (*caches, index_keys)
        layers.append(Layer(kind, caches, (*attention, *picks, *(mixed if sparse else dense))))
    return decoder(
        keys,
        its,
        layers,
        tie=whole_tied(keys),
        base="model.language_model" if towers else "model",
        intermediate=width,
        experts=(routed, per_token),
        extra=(
            *((*_vision(keys, its.hidden), *_audio(keys, its.hidden)) if towers else ()),
            *_prediction(keys, its, dense),
        ),
    )


def _prediction(keys: Keys, its: Sizes, dense: Tensors) -> Tensors:
    """A layer with a dense MLP, its glue and an embedding of its own (vLLM 0.33, ``dots3_note/nvidia/mtp.py``)."""
    steps = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    tensors: Tensors = ()
    for index in range(its.layers, its.layers + steps):
        narrow = _windows(keys, its.layers, index + 1)[index]
        _, _, attention = _attention(keys, its.hidden, _sizes(keys, index, narrow=narrow), narrow=narrow)
        tensors += (
            *norms("enorm", "hnorm", "shared_head.norm", width=its.hidden),
            *linear("eh_proj", "mtp", its.hidden, 2 * its.hidden),
            *attention,
            *(() if narrow or not _indexed(keys) else indexer_tensors(keys, its)),
            *dense,
        )
    if steps:
        tensors += (Weight("embed_tokens.weight", "mtp", (its.vocabulary, its.hidden), "vocabulary"),)
    return placed(tensors, "model.mtp.", component="mtp")


def _indexed(keys: Keys) -> bool:
    """Tell whether layers without a window pick tokens: published files say it by ``use_dsa``."""
    if keys.has("use_dsa") or not keys.has("per_layer_config"):
        return keys.flag("use_dsa", default=True)
    listed = keys.texts("layer_types")
    return listed is None or "full_attention" not in listed


def _windows(keys: Keys, layers: int, count: int) -> list[bool]:
    """Tell which of the first ``count`` layers keep a window; a list may have those of the draft behind its own."""
    listed = keys.texts("layer_types", of=(*_FULL, _WINDOW))
    if listed is not None and not layers <= len(listed) <= layers + 64:
        raise keys.fault("layer_types", f"a list of {len(listed)}", f"a list of {layers} or some more")
    usual = keys.flag("use_sliding_window", default=True)
    pattern = [usual and index >= 2 and index % 4 != 1 for index in range(count)]
    stated = [name == _WINDOW for name in listed or ()][:count]
    return stated + pattern[len(stated) :]


def _sizes(keys: Keys, index: int, *, narrow: bool) -> dict[str, int]:
    """Return the sizes of one layer's attention."""
    stated = keys.section("per_layer_config")
    if stated is not None:
        own = (
            stated.section(str(index)) or stated.section(f"{index:02}") or Keys({}, "", "", None, keys.trail)
        )
        return {
            name: own.whole(name, high=1 << 16) if own.has(name) else keys.whole(name, high=1 << 16)
            for name in _NARROW
        }
    if not narrow:
        return {name: keys.whole(name, high=1 << 16) for name in _NARROW}
    sizes = {name: keys.whole(f"swa_{name}", default=usual, high=1 << 16) for name, usual in _NARROW.items()}
    if not keys.has("swa_qk_rope_head_dim"):
        head = keys.whole("swa_head_dim", default=_HEAD_DIM, low=sizes["qk_nope_head_dim"] + 1)
        sizes["qk_rope_head_dim"] = head - sizes["qk_nope_head_dim"]
    return sizes


def _attention(
    keys: Keys, hidden: int, sizes: dict[str, int], *, narrow: bool
) -> tuple[str, tuple[Cache, ...], Tensors]:
    rank, rope, heads = sizes["kv_lora_rank"], sizes["qk_rope_head_dim"], sizes["num_attention_heads"]
    tensors: Tensors = (
        *part("pre_norms", keys, hidden=hidden),
        *part("latent_attention", keys, "self_attn", hidden=hidden, heads=heads, **sizes),
        *norm("self_attn.k_rope_only_layernorm", rope),
        *linear("self_attn.g_proj", "attention", heads, hidden, "heads", heads=heads),
    )
    if not narrow:
        return (*latent_cache(rank, rope), tensors)
    window = keys.whole("sliding_window", "sliding_window_size", high=MAX_CONTEXT)
    return f"{MLA}, sliding window", (Latent(latent_dim=rank, rope_dim=rope, window=window),), tensors


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    """Blocks with a gated MLP, the last ones with more and more experts, and a merger of patches."""
    vision = section_or_default(keys.outer, "vision_config", "dots3_note_vision")
    heads = vision.whole("num_attention_heads", "num_heads", high=1 << 12)
    hidden = vision.whole("hidden_size", "embed_dim")
    each = vision.divide("hidden_size", hidden, "num_attention_heads", heads)
    tower = "model.vision_tower"
    tensors = part("dots3_note_vision", vision, tower, text_hidden=text_hidden, head_width=each)
    for count in _pyramid(vision, vision.whole("num_hidden_layers", high=MAX_DEPTH)):
        mlp = "dots3_note_experts" if count else "dots3_note_mlp"
        tensors += part(mlp, vision, tower, hidden_size=hidden, count=count)
    return tensors


def _pyramid(vision: Keys, depth: int) -> list[int]:
    """Return the experts of each block, 0 for a dense one."""
    listed = vision.wholes("pyramid_num_routed", length=depth, low=-1, high=MAX_EXPERTS)
    if listed is not None:
        return [max(0, count) for count in listed]
    kinds = vision.texts("mlp_layer_types", length=depth, of=("dense", "sparse"))
    if kinds is None:
        counts = [0] * 25 + [*range(4, 65, 4), 64]
        if len(counts) != depth:
            raise vision.fault("pyramid_num_routed", None, "the experts of each block")
        return counts
    usual = vision.whole("num_local_experts", high=MAX_EXPERTS)
    own = vision.section("per_layer_config")
    found = []
    for index, kind in enumerate(kinds):
        part = own and (own.section(str(index)) or own.section(f"{index:02}"))
        count = part.whole("num_local_experts", high=MAX_EXPERTS) if part else usual
        found.append(count if kind == "sparse" else 0)
    return found


def _audio(keys: Keys, text_hidden: int) -> Tensors:
    """Three convolutions, a transformer with rotated queries, and two layers into the decoder's width."""
    audio = section_or_default(keys.outer, "audio_config", "dots3_note_audio")
    named = audio.section("whisper_config", defaults=audio.defaults)

    def size(name: str, legacy: str, high: int = 1 << 20) -> int:
        if named is not None and named.has(legacy):
            return named.whole(legacy, high=high)
        return audio.whole(name, high=high)

    given = {
        "hidden": size("hidden_size", "d_model"),
        "depth": size("num_hidden_layers", "encoder_layers", MAX_DEPTH),
        "width": size("intermediate_size", "encoder_ffn_dim"),
        "bands": size("feature_size", "num_mel_bins", 1 << 12),
    }
    heads = size("num_attention_heads", "encoder_attention_heads", 1 << 12)
    audio.divide("hidden_size", given["hidden"], "num_attention_heads", heads)
    return part("dots3_note_audio", audio, "model.audio_tower", text_hidden=text_hidden, **given)
