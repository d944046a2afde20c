"""Keys of ``config.json`` that a server's command states anew, as far as they move the longest context.

vLLM's ``--hf-overrides`` and SGLang's ``--json-model-override-args`` change any key. Followed are the stated length and
rotary scaling, from which each engine derives the longest context by its own rule; other keys are named as not followed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvreport.architectures.keys import MAX_CONTEXT
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.errors import InputError, shorten
from kvreport.estimation.hardware import parsed
from kvreport.estimation.not_followed import NotFollowed
from kvreport.query import Query, several_of
from kvreport.units import parse_tokens

Keys = Mapping[str, Any]

FLAG: Final = "--hf-overrides"
TEXT: Final = "text_config"
LENGTHS: Final = ("model_max_length", "max_position_embeddings")
"""Keys of the longest context, the one that counts first."""
_ROTARY: Final = ("rope_scaling", "rope_parameters")
ROTATED: Final = ("rope_theta", "partial_rotary_factor", "mrope_section", *_ROTARY)
"""Keys that turn positions and hold no memory."""
_TERM: Final = "the dimensions in the model's config"


def with_longer_context(query: Query, policy: Engine, record: Model) -> tuple[Model, tuple[NotFollowed, ...]]:
    """The model with the longest context that the server is told to allow, and changes of its config that are not followed.

    Raises:
        InputError: If the engine's server has no flag for it.
    """
    if not (query.hf_overrides or query.any_context):
        return record, ()
    if policy.family not in ("vllm", "sglang"):
        named = "hf-overrides" if query.hf_overrides else "any-context"
        raise InputError(f"{named}: found for {policy.label}; allowed: with --engine vllm or sglang")
    passed_over: tuple[NotFollowed, ...] = ()
    if query.hf_overrides:
        record, passed_over = overridden(query.hf_overrides, policy, record)
    if query.any_context:
        told = 0 if query.context_tokens is None else parsed("context", parse_tokens, query.context_tokens)
        if told <= record.context_tokens:
            said = "no effect with a context that the model supports"
            return record, (*passed_over, NotFollowed("--any-context", "", None, said))
        record = record.model_copy(update={"context_tokens": min(told, MAX_CONTEXT)})
    return record, passed_over


def overridden(
    stated: Keys | Sequence[str] | str, engine: Engine, model: Model
) -> tuple[Model, tuple[NotFollowed, ...]]:
    """A model with the context that its changed config allows, and the changes that are not followed.

    ``stated``: keys with their values, as an object, as JSON, or as ``KEY=VALUE`` with dots between nested
    keys.

    Raises:
        InputError: If they are something else, or no length.
    """
    keys = key_tree(stated)
    inside, left = keys.get(TEXT), {name: value for name, value in keys.items() if name != TEXT}
    passed_over = []
    if any(
        weight.component in ("vision", "audio") for weight in model.weights
    ):  # the language model's keys stand in a section, and those beside it change nothing
        said = f"no effect: {model.architecture or model.id} reads it from {TEXT}"
        outside = [name for name in left if name in (*LENGTHS, *ROTATED)]
        passed_over += [NotFollowed(FLAG, name, None, said) for name in outside]
        left = {name: value for name, value in left.items() if name not in outside}
    text = {**left, **(inside if isinstance(inside, dict) else {})}
    passed_over += [
        NotFollowed(FLAG, name, _TERM, f"not followed; {_TERM} may differ")
        for name in text
        if name not in (*LENGTHS, *ROTATED)
    ]
    longest = _length(next((text[name] for name in LENGTHS if name in text), model.context_tokens))
    for rope in (one for name in _ROTARY if name in text for one in _schemes(text[name])):
        longest = _scaled(longest, rope, engine)
    return model.model_copy(update={"context_tokens": longest}), tuple(passed_over)


def key_tree(stated: Keys | Sequence[str] | str) -> dict[str, Any]:
    """The changed keys in one object: given as one, as JSON, or as ``KEY=VALUE`` with dots between nested keys."""
    if isinstance(stated, Mapping):
        return dict(stated)
    made: dict[str, Any] = {}
    for text in several_of("hf-overrides", stated, str):
        _join(made, _parsed(text), text)
    return made


def _scaled(longest: int, rope: Keys, engine: Engine) -> int:
    """The longest context by one rotary scheme."""
    scheme, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    original = rope.get("original_max_position_embeddings")
    if not isinstance(factor, int | float) or isinstance(factor, bool):
        return longest
    length = None if original is None else _length(original)
    stands = length is not None and trait(engine, "lengths_with_original_stand")
    if stands or engine.lists("rotary_schemes_stated", str(scheme)):
        return longest
    return _length((length if scheme == "yarn" and length is not None else longest) * factor)


def _schemes(stated: object) -> Iterator[Keys]:
    """One scheme, or one for each kind of layers."""
    if not isinstance(stated, dict):
        return
    nested = [one for one in stated.values() if isinstance(one, dict)]
    yield from nested or [stated]


def _length(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MAX_CONTEXT:
        raise InputError(
            f"hf-overrides: found a context of {shorten(value)} tokens; allowed: 1 to {MAX_CONTEXT:,}"
        )
    return int(value)


def _parsed(text: str) -> Keys:
    path, sign, value = ("", "", text) if text.lstrip().startswith("{") else text.partition("=")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = value if sign else None
    for name in reversed(path.split(".") if sign and path else []):
        found = {name.replace("-", "_"): found}
    if not isinstance(found, dict):
        raise InputError(
            f'hf-overrides: found {shorten(text)}; allowed: JSON such as {{"max_position_embeddings": 131072}}, or KEY=VALUE'
        )
    return found


def _join(into: dict[str, Any], keys: Keys, text: str) -> None:
    for name, value in keys.items():
        held = into.get(name)
        if isinstance(held, dict) and isinstance(value, dict):
            _join(held, value, text)
        else:
            into[name] = value
