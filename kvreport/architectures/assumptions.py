"""What a config left unsaid, and what of it nobody read: refused where it decides bytes, else listed.

A family reads the keys it knows. Two things can go wrong in silence: a key is missing and the class's
default stands in for it, or the config states something that the family never looked at. The
:class:`~kvreport.architectures.keys.Trail` knows both; this module judges it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvreport.architectures.keys import Keys
from kvreport.errors import InputError, shorten

_ALIASES: Final = {
    "hidden_size": ("d_model", "dim", "hidden_dim", "model_dim", "n_embd", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "depth", "layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": (
        "kv_heads",
        "multi_query_group_num",
        "n_head_kv",
        "n_kv_heads",
        "num_kv_heads",
        "num_query_groups",
    ),
    "intermediate_size": ("d_ff", "ffn_dim", "ffn_hidden_size", "ffn_size", "inner_size", "n_inner"),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "ffn_hidden_size_moe", "moe_ffn_hidden_size"),
    "vocab_size": ("n_vocab", "padded_vocab_size", "vocabulary_size"),
    "num_experts": ("moe_num_experts", "n_experts", "n_routed_experts", "num_local_experts"),
}
"""Core dimensions, canonical name first: what other tools and classes call each of them."""

_OPTIONAL: Final = {
    "head_dim": ("attention_head_dim", "d_head", "dim_head", "head_size", "headdim"),
    "num_global_key_value_heads": (),
    "sliding_window": (),
}
"""Dimensions with a meaning where they are missing, so they are not core; misspelt they are refused all the same."""

_TWO_STACKS: Final = (
    "d_kv",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_layers",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "encoder_layers",
    "num_decoder_layers",
)
"""What encoder-decoder classes call theirs."""

CORE: Final = frozenset(
    (*_TWO_STACKS, *(name for key, others in _ALIASES.items() for name in (key, *others)))
)

_STRUCTURAL: Final = re.compile(
    r"(?:^|_)(?:adapter|blocks?|bottleneck|cfg|config|conv|decoder|depth|dims?|embed|encoder|experts?|ffn|"
    r"freq|gate|groups?|heads?|hidden|intermediate|interval|kernel|kv|latent|layers?|linear|lora|merge|"
    r"mlp|mtp|nextn|pattern|projection|projector|rank|rates?|ratios?|shared|sizes?|sparse|stride|tied?|"
    r"types?|vocab|width|window)(?:_|$)|^[nd]_|^num_"
)
_INERT: Final = re.compile(
    r"token|_eps$|_act$|activation|dropout|pdrop|_init|^init|initializer|^(?:n|topk)_group$|_coef|_loss|"
    r"num_beams|num_beam_groups|num_return_sequences|num_logits_to_keep|chunk_size_feed_forward|"
    r"multiplier|scal(?:e|ing)|rope|rotary|^ep_size$|kernels$|dtype|problem_type|_name$|tokenizer|"
    r"model_type|encoder_no_repeat|tie_encoder_decoder|is_(?:en|de)coder|is_llama_config|js_config|"
    r"auto_map|architectures|label|pruned_heads|attn_implementation|task_specific|prefix|sinkhorn|"
    r"^(?:n|num)_(?:hash|ctx)|norm_topk|interleave|epsilon|chunk_size|^summary|time_step|max_(?:length|new)|position|"
    r"^quantization_config$|^compression_config$|generation_config|rescale|cross_attention_hidden_size|^_"
)
"""Words of keys that begin like a dimension and size nothing: sampling, initialisation, positions."""

_ELSEWHERE: Final = re.compile(r"quant|compression|rope|generation|auto_map")
"""Sections that others read (formats, positions) or that size nothing."""

_ENCODER: Final = re.compile(r"vision|visual|audio|speech|image|video|encoder|tower|vit_|acoustic")
_BY_LAYER: Final = "per_layer_config"
"""Sizes of single layers (pruned and heterogeneous models), written by transformers 5."""

_PATH: Final = re.compile(r"[A-Za-z_][\w.]*")
_LONGEST_NAME: Final = 100
_SIZED: Final = ("d_model", "depth", "embed_dim", "hidden_size", "num_hidden_layers", "num_layers", "width")


def check(config: Keys, text: Keys, architecture: str, *, assume_defaults: bool) -> None:
    """Refuse a config whose bytes are not its own word.

    Raises:
        InputError: If a core dimension is missing, a key is misspelt, or a section with an encoder's
            sizes was read by nobody.
    """
    unread = dict(_unread(config.data, "", config.trail.looked_at))
    _check_encoders(config, unread, architecture)
    for path, value in sorted(unread.items()):
        if path.rpartition(".")[2] == _BY_LAYER:
            allowed = f"nothing: {architecture} is read with layers of one size each kind"
            raise InputError.of(config.where, path, shorten(value), allowed)
    for key, value in text.data.items():
        if isinstance(value, int) and text.field(key) not in config.trail.looked_at:
            _check_name(key, value, text)
    if not assume_defaults:
        _check_core(config, text, architecture)


def assumptions(config: Keys, architecture: str) -> tuple[str, ...]:
    """Return every value that the config did not state, as sentences for a reader."""
    trail = config.trail
    found = [f"{name} = {_word(value)}" for name, value in sorted(trail.assumed.items())]
    flags = [f"{name} = {_word(value)}" for name, value in sorted(trail.usual.items())]
    sentences = [f"{entry}: not in the config; the default of {architecture}" for entry in found]
    if flags:
        sentences.append(f"Read as {architecture} reads a config without them: {', '.join(flags)}.")
    sentences += dict.fromkeys(trail.derived)
    said = {name.rpartition(".")[2] for sentence in sentences for name in _PATH.findall(sentence)}
    for null, how in ((False, "Not in the config"), (True, "Null in the config")):
        open_ = [
            path
            for path, is_null in sorted(trail.absent.items())
            if is_null is null and _decides(path, said, null=null)
        ]
        if open_:
            sentences.append(f"{how}, so none or by the rule of {architecture}: {', '.join(open_)}.")
    return tuple(sentences)


def _decides(path: str, said: set[str], *, null: bool) -> bool:
    """Tell whether a key without a value may decide bytes, and no other sentence names it.

    A section that is null is a part that the model does not have; one that is missing has the sizes of its class.
    """
    key = path.rpartition(".")[2]
    section = (key.endswith("_config") and not null) or _ELSEWHERE.search(path) or "[" in path
    return not (section or key in said or _INERT.search(key))


def not_read(config: Keys) -> tuple[str, ...]:
    """Return the dotted paths of keys and sections that look like sizes and were not used, sorted."""
    return tuple(sorted(path for path, _ in _unread(config.data, "", config.trail.looked_at)))


def _word(value: object) -> str:
    words = {True: "true", False: "false", None: "none"}
    return words[value] if value is None or isinstance(value, bool) else shorten(value, 40)


def _unread(data: Mapping[str, Any], path: str, looked_at: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the keys that look like a size, state something, and were looked at by nobody."""
    for key, value in data.items():
        if len(key) > _LONGEST_NAME:
            continue
        where = f"{path}.{key}" if path else key
        section = isinstance(value, Mapping)
        if section and value and key == _BY_LAYER and where not in looked_at:
            yield where, value
        if section and _ELSEWHERE.search(key):
            continue
        if section and where in looked_at:
            yield from _unread(value, where, looked_at)
        elif (section and value and _sized(value) and not _INERT.search(key)) or (
            where not in looked_at and _states(value) and _STRUCTURAL.search(key) and not _INERT.search(key)
        ):
            yield where, value


def _states(value: object) -> bool:
    """Tell whether a value says that something is there: not null, false, empty or zero."""
    return bool(value) and not (isinstance(value, str) and value.lower() in ("none", "null"))


def _sized(section: Mapping[str, Any]) -> bool:
    return any(isinstance(section.get(name), int | list) for name in _SIZED)


def _check_encoders(config: Keys, unread: Mapping[str, Any], architecture: str) -> None:
    for path, value in sorted(unread.items()):
        if isinstance(value, Mapping) and _ENCODER.search(path.rpartition(".")[2]) and _sized(value):
            allowed = f"a class that has this part; {architecture} is read without it"
            raise InputError.of(config.where, path, "the sizes of an encoder", allowed)


def _check_name(key: str, value: int, text: Keys) -> None:
    """Refuse a key that nobody looked at if a missing core dimension goes by nearly its name."""
    for name, others in (_ALIASES | _OPTIONAL).items():
        asked = text.field(name) in text.trail.looked_at
        stated = any(text.data.get(other) is not None for other in (name, *others) if other != key)
        if asked and not stated and (key in others or _near(key, name)):
            found = f"nothing, but {text.field(key)} = {shorten(value, 30)}"
            raise InputError.of(text.where, text.field(name), found, "the key under this name")


def _near(key: str, name: str) -> bool:
    """Tell whether two names differ by one or two typing errors, and by no whole word."""
    if key == name or abs(len(key) - len(name)) > 2 or len(name) < 8:
        return False
    plain = key.lower().replace("_", "").replace("-", "")
    return plain == name.replace("_", "") or _distance(key.lower(), name) <= 2


def _distance(one: str, other: str) -> int:
    """Return the number of edits between two short texts (Levenshtein)."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, facing in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != facing)),
            )
    return row[-1]


def _check_core(config: Keys, text: Keys, architecture: str) -> None:
    prefix = f"{text.path}." if text.path else ""
    missing = [
        path
        for path in sorted(config.trail.assumed)
        if path.startswith(prefix) and path.removeprefix(prefix) in CORE
    ]
    if not missing or (prefix and _written_as_difference(config, text, prefix, missing)):
        return
    listed = ", ".join(f"{path} = {config.trail.assumed[path]}" for path in missing)
    allowed = f"a whole number; the defaults of {architecture} ({listed}) only with --assume-defaults"
    raise InputError.of(config.where, missing[0], "nothing", allowed)


def _written_as_difference(config: Keys, text: Keys, prefix: str, missing: list[str]) -> bool:
    """Tell whether a nested section leaves out what equals its class's defaults.

    transformers writes the sections of a composite so (``PreTrainedConfig.to_diff_dict``): a size that is
    missing is the default by the file's own rule. A section that restates any default was not written
    that way, and one that states no size at all says nothing.
    """
    restated = any(path.startswith(prefix) for path in config.trail.restated)
    states = any(name in CORE for name, value in text.data.items() if isinstance(value, int))
    return states and not restated and len(missing) < len(CORE)
