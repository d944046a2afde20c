"""The skeleton of a decoder-only model: its sizes, embedding, final norm and output head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvreport.architectures.attention import grouped_heads, head_dim
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.keys import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_VOCABULARY, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.tensor_builders import Tensors, embedding, norm, output_head, placed
from kvreport.catalog.release import is_before

_CONTEXT_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "model_max_length",
    "n_ctx",
)
_ROPE_SCALED_INSIDE: Final = ("su", "longrope", "llama3", "default", "mrope", "proportional")
"""Rotary schemes whose ``max_position_embeddings`` is already the extended context."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The dimensions that nearly every decoder has."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int

    @property
    def given(self) -> dict[str, int]:
        """What parts of a layer are sized by, under the names that they have for it."""
        return {name: getattr(self, name) for name in ("hidden", "heads", "kv_heads", "head_dim")}


def sizes(
    keys: Keys,
    *,
    hidden: tuple[str, ...] = ("hidden_size",),
    heads: tuple[str, ...] = ("num_attention_heads",),
    layers: tuple[str, ...] = ("num_hidden_layers",),
    kv_heads: Callable[[int], int] | None = None,
    exact: bool = True,
    divided: bool = False,
    head_width: str | None = None,
    head_names: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    longest: int | None = None,
    scaled: bool = True,
) -> Sizes:
    """Read the common dimensions, under the names that most classes use unless others are given.

    ``exact`` is False for classes that round the width of a head down, ``divided`` is True for those whose heads divide the
    width whatever ``head_dim`` says, and ``head_width`` is the key of a head's width for those that always state it.
    """
    width = keys.whole(*hidden)
    queries = keys.whole(*heads, high=1 << 14)
    return Sizes(
        hidden=width,
        layers=keys.whole(*layers, high=MAX_LAYERS),
        heads=queries,
        kv_heads=grouped_heads(keys, queries) if kv_heads is None else kv_heads(queries),
        head_dim=keys.whole(head_width, high=1 << 16)
        if head_width
        else keys.divide(hidden[0], width, heads[0], queries)
        if divided
        else head_dim(keys, width, queries, *head_names, exact=exact),
        vocabulary=vocabulary(keys, *words),
        context=context(keys, scaled=scaled) if longest is None else longest,
    )


def stateful_sizes(keys: Keys, longest: int) -> Sizes:
    """Read the dimensions of a model without attention, whose longest context is ``longest`` tokens."""
    width, layers = keys.whole("hidden_size"), keys.whole("num_hidden_layers", high=MAX_LAYERS)
    return Sizes(width, layers, heads=0, kv_heads=0, head_dim=0, vocabulary=vocabulary(keys), context=longest)


def text_base(keys: Keys) -> str:
    """Return the module of the text model: that of a composite is nested."""
    return "model" if keys.outer is keys else "model.language_model"


def latent_sizes(keys: Keys) -> tuple[Sizes, int, int]:
    """Return the sizes of an MLA model, its latent's rank and its rotary width."""
    rank = keys.whole("kv_lora_rank", high=1 << 16)
    rope = keys.whole("qk_rope_head_dim", low=0, high=1 << 12)
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=keys.whole("num_hidden_layers", high=MAX_LAYERS),
        heads=keys.whole("num_attention_heads", high=1 << 14),
        kv_heads=1,
        head_dim=rank + rope,
        vocabulary=vocabulary(keys),
        context=context(keys),
    )
    return its, rank, rope


def vocabulary(keys: Keys, *aliases: str) -> int:
    """Read the number of rows of the embedding (padded, as the checkpoint has it)."""
    return keys.whole("vocab_size", *aliases, high=MAX_VOCABULARY)


def context(keys: Keys, *aliases: str, scaled: bool = True) -> int:
    """Read the longest context, extended by rotary scaling where that is how the class says it.

    YaRN extends its original length by the factor; linear and dynamic scaling extend
    ``max_position_embeddings``; Llama 3's scheme and LongRoPE state the extended length already.

    ``scaled`` is False for classes whose stated length already includes the scaling (Gemma 3).
    """
    stated = keys.whole(*_CONTEXT_KEYS, *aliases, high=MAX_CONTEXT)
    rope = keys.section("rope_scaling", "rope_parameters")
    if not scaled or rope is None or not rope.has("rope_type", "type") or not rope.has("factor"):
        return stated
    scheme = rope.text("rope_type", "type")
    if scheme in _ROPE_SCALED_INSIDE:
        return stated
    factor = rope.number("factor", low=0, high=1 << 20)
    if scheme == "yarn":
        original = rope.optional("original_max_position_embeddings", low=1, high=MAX_CONTEXT)
        if original is None:
            return stated
        return max(stated, min(int(original * factor), MAX_CONTEXT))
    return min(int(stated * max(factor, 1.0)), MAX_CONTEXT)


def open_context(keys: Keys, usual: int) -> tuple[int, list[str]]:
    """Read the longest context of a class that has no limit of its own, so configs may leave it out.

    Args:
        keys: The (text) config.
        usual: What such models are known to be trained or served with.

    Returns:
        The context, and what a reader must know where the config does not state it.
    """
    if keys.has(*_CONTEXT_KEYS):
        return context(keys), []
    note = (
        "The config states no context limit, because the architecture has none. Unless one of the sources states the "
        f"publisher's limit, kvreport uses {usual:,} tokens, a common limit for such models."
    )
    return usual, [note]


def saved_before_five(config: Keys) -> bool:
    """Tell whether a release of transformers before 5 saved a config.

    Its ``PretrainedConfig.tie_word_embeddings`` was asked of ``get_text_config()``, and of a composite's two parts it saved
    only what differs from their classes' defaults. Since 5.0 each config class has a default of its own, and saves it.
    Development versions of 5.0 saved as before (Ministral 3: 5.0.0.dev0).
    """
    saved = config.raw("transformers_version")
    return isinstance(saved, str) and is_before(saved, "5.0.0")


def tied(keys: Keys) -> bool:
    """Tell whether the output head is the embedding: the whole config's word counts, and without one the text part's."""
    place = keys.outer if keys.outer.has("tie_word_embeddings") else keys
    return place.flag("tie_word_embeddings", default=False)


def whole_tied(keys: Keys) -> bool:
    """Tell whether the head is the embedding for composites that go by their whole config, or by its default.

    A text part's word alone counts only if transformers 4 saved the config (5.24, each class built on the meta device:
    ``tests/unit/test_composites_ties.py``), or for a class of text, to which the text part is its own config.
    """
    outer = keys.outer
    of_text = any(name.endswith("ForCausalLM") for name in outer.texts("architectures") or [])
    silent = outer is not keys and not outer.has("tie_word_embeddings")
    if silent and not of_text and keys.has("tie_word_embeddings") and not saved_before_five(outer):
        return bool(keys.defaults.get("tie_word_embeddings", False))
    return tied(keys)


def outer_tied(keys: Keys) -> bool:
    """Tell whether the head is the embedding for classes that ask the outermost config alone.

    transformers, ``modeling_utils.py``, ``get_expanded_tied_weights_keys``: a class obeys its own config; what
    a text part says counts only where the config class copies it.
    """
    return keys.outer.flag("tie_word_embeddings", default=False)


def inner_tied(keys: Keys) -> bool:
    """Tell whether the head is the embedding for classes whose text model is a whole class with a head.

    transformers 5.23, ``modeling_llama4.py``: the language model is built from the text config alone.
    """
    keys.outer.has("tie_word_embeddings")
    return keys.flag("tie_word_embeddings", default=False)


def either_tied(keys: Keys) -> bool:
    """Tell whether the head is the embedding for config classes that copy their text part's word.

    transformers 5.23, ``__post_init__`` in ``configuration_llava.py``, ``configuration_minimax_m3_vl.py``,
    ``configuration_glm4v.py``, ``configuration_glm4v_moe.py``, ``configuration_qwen2_vl.py``,
    ``configuration_qwen2_5_vl.py`` and ``configuration_shieldgemma2.py``.
    """
    inner = keys.flag("tie_word_embeddings", default=False)
    return outer_tied(keys) or inner


def expert_counts(
    keys: Keys, *names: str, per_token: tuple[str, ...] = ("num_experts_per_tok",)
) -> tuple[int, int]:
    """Read how many routed experts a layer has and how many of them a token reads."""
    routed = keys.whole(*names, high=MAX_EXPERTS)
    if not keys.has(*per_token) and keys.defaults.get(per_token[0]) is None:
        # No byte that is kept depends on it; what a token reads is then counted at its most.
        keys.trail.derived.append(
            f"{keys.field(per_token[0])} = {routed}: not in the config; every expert is read"
        )
        return routed, routed
    return routed, keys.whole(*per_token, high=routed)


def dense_mlp(keys: Keys, hidden: int, width: int, *, bias: bool = False) -> Tensors:
    """Return a gated MLP, as layers without experts have it."""
    return part("gated_mlp", keys, "mlp", hidden=hidden, mlp_width=width, bias_mlp=bias)


def decoder(
    keys: Keys,
    its: Sizes,
    layers: list[Layer],
    *,
    tie: bool | None = None,
    base: str = "model",
    embed: str = "embed_tokens",
    embedding_width: int | None = None,
    blocks: str = "layers",
    final_norm: str = "norm",
    norm_bias: bool = False,
    norm_weight: bool = True,
    head_bias: bool = False,
    head: str = "lm_head",
    extra: Tensors = (),
    intermediate: int | None = None,
    experts: tuple[int, int] | None = None,
    notes: list[str] | None = None,
    rotates: bool = True,
) -> Blueprint:
    """Put the layers between an embedding and an output head.

    Without ``tie``, the config says whether the head is the embedding. ``embedding_width`` is that of embedding and head where it
    is not that of the layers (OPT), ``norm_weight`` is False if the last norm has no weights (OLMo 1), ``rotates`` if no head
    rotates by position.
    """
    width = embedding_width or its.hidden
    outer: list[Weight] = [*embedding(its.vocabulary, width, f"{base}.{embed}")]
    if norm_weight:
        outer += norm(f"{base}.{final_norm}", its.hidden, bias=norm_bias)
    if not (tied(keys) if tie is None else tie):
        outer += output_head(its.vocabulary, width, head, bias=head_bias)
    elif head_bias:
        outer.append(Weight(f"{head}.bias", "output_head", (its.vocabulary,), "vocabulary"))
    return Blueprint(
        hidden_size=its.hidden,
        attention_heads=its.heads,
        vocabulary=its.vocabulary,
        context_tokens=its.context,
        layers=layers,
        outer=[*outer, *extra],
        prefix=f"{base}.{blocks}",
        intermediate_size=intermediate,
        experts=experts,
        notes=notes or [],
        rotates=rotates,
    )


def prediction_layers(
    keys: Keys,
    its: Sizes,
    tensors: Tensors,
    path: str,
    *,
    ends: bool = True,
    glue: str = "prediction",
    first: bool = False,
) -> Tensors:
    """The layers for multi-token prediction: a whole layer, its glue, and (with ``ends``) copies of both ends.

    They are numbered behind the others below ``path``, or with ``first`` from 0 in a module of their own.
    """
    count = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    if not count:
        return ()
    beside = part(glue, keys, hidden=its.hidden, vocabulary=its.vocabulary, ends=ends)
    return placed(
        (*tensors, *beside),
        "mtp.layers.0." if first else f"{path}.{its.layers}.",
        component="mtp",
        times=count,
    )


def unread_prediction(keys: Keys, *names: str) -> list[str]:
    """Say which prediction layers are not counted: those that a config states and no engine that was read builds."""
    count = max(keys.whole(name, default=0, low=0, high=64) for name in ("num_nextn_predict_layers", *names))
    said = "vLLM 0.33 and SGLang 0.5.23 do not serve them, and their weights are not counted."
    return (
        [f"The config states {count} layer{'s'[: count > 1]} for multi-token prediction; {said}"]
        if count
        else []
    )
