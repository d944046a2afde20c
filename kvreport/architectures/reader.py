"""``config.json`` to :class:`~kvreport.catalog.model.Model`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from kvreport.architectures.assumptions import assumptions, check, not_read
from kvreport.architectures.blueprint import Blueprint, layer_groups, weight_groups
from kvreport.architectures.keys import Keys, read_json
from kvreport.architectures.mlx_checkpoints import is_mlx, leave_out
from kvreport.architectures.not_a_config import CONFIG_FILES, as_config, config_file
from kvreport.architectures.quantization import read_quantization
from kvreport.architectures.quantizer_files import FILES as QUANTIZER_FILES
from kvreport.architectures.quantizer_files import quantizer_file
from kvreport.architectures.registry import find_architecture
from kvreport.architectures.variants import pooled, sees_ahead
from kvreport.catalog.base import Source
from kvreport.catalog.model import Experts, Model
from kvreport.errors import Fault, InputError, shorten

MAX_PARAMETERS: Final = 10**15
"""A thousand times the largest model published; beyond it a config is a mistake."""

_TEXT_SECTIONS: Final = ("text_config", "llm_config", "language_config", "llm_cfg")
DEFAULTS_TAKEN: Final = "The config leaves out some values, so the defaults"
"""How the note of a record begins whose dimensions are in part its class's defaults."""

_THINKER: Final = "thinker_config"
"""Omni models: what an engine serves is the thinker, without the parts that speak."""


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """A config as it was read."""

    model: Model
    assumptions: tuple[str, ...]  # Every value that the config did not state, one sentence each.
    not_read: tuple[str, ...]  # Dotted paths of keys and sections that look like sizes and were not used.


def read_config(
    source: Path | str | Mapping[str, Any],
    *,
    assume_defaults: bool = False,
    **fields: Any,  # noqa: ANN401 - what read_config_report takes
) -> Model:
    """Read a Hugging Face ``config.json`` into a model.

    Args:
        source: Path of the file or of its folder, or the parsed JSON object.
        assume_defaults: Use the published defaults of the model class for core dimensions that are missing.
        **fields: Other arguments of :func:`read_config_report`, such as ``id`` and ``name``.

    Returns:
        The model: layer groups, exact tensors, and formats as released.

    Raises:
        InputError: If the config cannot be read without guessing. The message names the file, the key, what was
            found and what is allowed.

    >>> config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32}
    >>> config |= {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
    >>> config |= {"vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
    >>> read_config(config).context_tokens
    131072
    """
    return read_config_report(source, assume_defaults=assume_defaults, **fields).model


def read_config_report(
    source: Path | str | Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002 - the record's own name for it
    name: str | None = None,
    family: str | None = None,
    maker: str | None = None,
    context_tokens: int | None = None,
    where: str | None = None,
    assume_defaults: bool = False,
    **fields: Any,  # noqa: ANN401 - further fields of the record, which validates them
) -> ConfigReading:
    """Read a Hugging Face ``config.json``, and say what was assumed and what was not read.

    Args:
        source: A path to the file or its folder, or the parsed object; Mistral's own ``params.json``
            will do too. ``hf_quant_config.json`` beside the file is read as well; in an object it may
            stand under ``hf_quant_config``.
        id: ``org/name``; without it, the folder's name under ``local/``.
        name: What people call it; without it, the last part of the id.
        family: Family; without it, that of the architecture.
        maker: Who made it; without it, "not stated".
        context_tokens: The longest context its maker supports, where the config does not say it.
        where: What to call the source in messages; without it, the path.
        assume_defaults: Take the class's published defaults for core dimensions that are missing.
        **fields: Further fields of the record (release, licence, aliases, notes, sources).

    Returns:
        The model, the assumptions, and the keys that were not read.

    Raises:
        InputError: If the config cannot be read without guessing; one line that names the file,
            the key, what was found and what is allowed.
    """
    config, beside, place, stem = _open(source, where)
    architecture = find_architecture(config)
    if not config.texts("architectures"):
        config.trail.derived.append(
            f"architectures: not in the config; model_type {config.text('model_type')} is read as {architecture.name}"
        )
    around = config.section(_THINKER) or config
    nested = around.section(*_TEXT_SECTIONS, defaults=architecture.defaults)
    text = nested or around.with_defaults(architecture.defaults)
    if nested is not None:
        text.outer = around
    try:
        blueprint = architecture.read(text)
    except ValidationError as error:  # a cache that no record may have, from numbers that each may be
        raise InputError(_first_fault(error, place)) from error
    if sees_ahead(blueprint, config, text):
        pooled(blueprint)
    quantization = read_quantization(config, text, beside)
    if is_mlx(config):
        leave_out(blueprint, config)
    identity = id or _identity(config, stem)
    dtype, dtype_note = _dtype(config, text)
    check(config, text, architecture.name, assume_defaults=assume_defaults)
    _check_size(blueprint, place)
    notes = [*fields.pop("notes", ()), *blueprint.notes, *dtype_note, *_assumptions(text, architecture.name)]
    record = {
        "id": identity,
        "name": name or identity.rpartition("/")[2],
        "family": family or architecture.family,
        "maker": maker or "not stated",
        "architecture": architecture.name,
        "context_tokens": context_tokens or blueprint.context_tokens,
        "dtype": dtype,
        "kv_format": blueprint.kv_format or quantization.kv_format,
        "weight_format": blueprint.weight_format or quantization.weight_format,
        "hidden_size": blueprint.hidden_size,
        "attention_heads": blueprint.attention_heads,
        "vocabulary": blueprint.vocabulary,
        "intermediate_size": blueprint.intermediate_size,
        "rotary_axes": _rotary_axes(text) if blueprint.rotates else 0,
        "attends_both_ways": blueprint.both_ways,
        "experts": _experts(blueprint),
        "layers": layer_groups(blueprint.layers, blueprint.predicting),
        "weights": weight_groups(blueprint, quantization.released),
        "notes": tuple(notes),
        "sources": fields.pop("sources", None) or (_own_source(place),),
        **fields,
    }
    try:
        model = Model.model_validate(record)
    except ValidationError as error:
        raise InputError(_first_fault(error, place)) from error
    return ConfigReading(model, assumptions(config, architecture.name), not_read(config))


def _open(source: Path | str | Mapping[str, Any], where: str | None) -> tuple[Keys, Keys | None, str, str]:
    if isinstance(source, Mapping):
        place = where or "config"
        return Keys(as_config(source, place), place), None, place, "config"
    path = config_file(Path(source), where)
    place = where or str(path)
    config = Keys(as_config(read_json(path, place), place), place)
    beside = None if path.name in QUANTIZER_FILES else quantizer_file(path.parent)
    stem = path.resolve().parent.name if path.name in CONFIG_FILES else path.stem
    return config, beside, place, stem


def _rotary_axes(text: Keys) -> int:
    """Axes that heads rotate by (``mrope_section``); 1 where only a part of each head rotates."""
    rope = text.section("rope_scaling", "rope_parameters")
    sections = rope.raw("mrope_section") if rope is not None else None
    if rope is None or not isinstance(sections, list) or not sections:
        return 1
    part = rope.raw("partial_rotary_factor") or text.raw("partial_rotary_factor") or 1
    whole = isinstance(part, (int, float)) and part >= 1
    return min(len(sections), 4) if whole else 1


def _identity(config: Keys, stem: str) -> str:
    own = config.raw("_name_or_path")
    if isinstance(own, str) and re.fullmatch(
        r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", own, re.ASCII
    ):
        return own
    clean = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-._") or "config"
    return f"local/{clean[:90]}"


def _dtype(config: Keys, text: Keys) -> tuple[Literal["bfloat16", "float16"], list[str]]:
    """Return the type that the unquantised weights are served in, and what to say about it."""
    name = config.text("torch_dtype", "dtype") or text.text("torch_dtype", "dtype")
    plain = (name or "").removeprefix("torch.")
    if plain == "float32":
        return "bfloat16", [
            "The weights are published in float32. Engines serve them in bfloat16, so all sizes here are for bfloat16."
        ]
    if plain in ("bfloat16", "auto", "float8_e4m3fn"):
        return "bfloat16", []
    if plain in ("float16", "half"):
        return "float16", []
    if name is None:
        return "bfloat16", [
            "The config does not state a data type (dtype). kvreport assumes bfloat16, which takes two bytes, like float16."
        ]
    raise config.fault("torch_dtype", name, "bfloat16, float16 or float32")


def _assumptions(text: Keys, architecture: str) -> list[str]:
    if not text.trail.assumed:
        return []
    listed = ", ".join(f"{name} = {value}" for name, value in sorted(text.trail.assumed.items()))
    return [f"{DEFAULTS_TAKEN} of {architecture} are used: {listed}."]


def _experts(blueprint: Blueprint) -> Experts | None:
    if blueprint.experts is None:
        return None
    routed, per_token = blueprint.experts
    return Experts(routed=routed, per_token=per_token)


def _check_size(blueprint: Blueprint, place: str) -> None:
    total = 0
    tensors = [*blueprint.outer, *(t for layer in blueprint.layers for t in layer.tensors)]
    for tensor in tensors:
        elements = tensor.count
        for side in tensor.shape:
            elements *= side
        total += elements
    if total > MAX_PARAMETERS:
        fault = Fault(place, "", f"{total:,} parameters", f"at most {MAX_PARAMETERS:,} parameters")
        raise InputError(str(fault))


def _own_source(place: str) -> Source:
    return Source(
        covers=("layers", "weights", "context_tokens", "weight_format", "kv_format"),
        title=f"config.json ({Path(place).name})"[:400],
        evidence="verbatim",
    )


def _first_fault(error: ValidationError, place: str) -> str:
    first: Sequence[Any] = error.errors(include_url=False)
    fault = first[0]
    field = ".".join(str(part) for part in fault["loc"])
    return str(Fault(place, field, shorten(fault.get("input")), fault["msg"]))
