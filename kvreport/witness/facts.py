"""What an engine resolved and built for one start, as plain facts by name, to compare two releases.

Runs under the engine's interpreter: nothing but the standard library. A number within a name is written ``*``, and
what many layers have alike is one fact.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any

_DEEPEST = 5
_LONGEST = 200
_NUMBER = re.compile(r"(?<![A-Za-z_])\d+(?![A-Za-z_])")
_PLAIN = (bool, int, float, str)


def settings(made: object, name: str, without: str = "\0") -> dict[str, str]:
    """Return the plain values below an object of settings, by their dotted names.

    ``made``: the object. ``name``: what it is called. ``without``: a text whose values are left out, such as a folder.
    """
    leaves = _leaves(made, name, _DEEPEST, set())
    return {at: said for at, value in leaves if without not in (said := repr(value)[:_LONGEST])}


def _leaves(value: object, at: str, depth: int, seen: set[int]) -> Iterator[tuple[str, object]]:
    if isinstance(value, enum.Enum):
        yield at, value.name
    elif value is None or isinstance(value, _PLAIN):
        yield at, value
    elif type(value).__name__ == "dtype" or isinstance(value, type):
        yield at, _Bare(getattr(value, "__qualname__", str(value)))
    elif isinstance(value, set | frozenset | list | tuple):
        if all(one is None or isinstance(one, _PLAIN) for one in value):
            yield at, sorted(value, key=str) if isinstance(value, set | frozenset) else [*value]
    elif depth and id(value) not in seen:
        seen.add(id(value))
        for key, one in _parts(value):
            yield from _leaves(one, f"{at}.{key}", depth - 1, seen)


def _parts(value: object) -> list[tuple[str, object]]:
    """The parts of an engine's own object, by their names."""
    if isinstance(value, dict):
        return [(key, one) for key, one in value.items() if isinstance(key, str) and key.isidentifier()]
    if type(value).__module__.partition(".")[0] not in ("vllm", "sglang"):
        return []
    kind = type(value)
    names = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    names += [*getattr(kind, "__struct_fields__", ()), *getattr(value, "__dict__", ())]
    names += [name for name, one in inspect.getmembers_static(kind) if isinstance(one, property)]
    found = []
    for name in dict.fromkeys(names):
        with contextlib.suppress(Exception):  # a property may ask for what no start without a GPU has
            one = getattr(value, name, None)
            if not name.startswith("_") or isinstance(one, _PLAIN):
                found.append((name, one))
    return found


class _Bare(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def tensors(model: Any, made: dict[int, tuple[Any, str]]) -> dict[str, str]:
    """Return what a model keeps on its device: kind, shape and bytes of storage of each tensor, and how many are alike.

    ``model``: the model. ``made``: every tensor that was made, by its id: a weak reference and the function that
    made it. One that is no weight and no buffer is named by that function.
    """
    named: dict[int, tuple[str, Any]] = {}
    for name, module in model.named_modules():
        for key, tensor in {**module._parameters, **module._buffers}.items():
            if tensor is not None:
                named.setdefault(id(tensor), (_NUMBER.sub("*", f"{name}.{key}"), tensor))
    known = {tensor.untyped_storage()._cdata for _, tensor in named.values()}
    for reference, at in made.values():
        tensor = reference()
        if tensor is not None and tensor.untyped_storage()._cdata not in known:
            known.add(tensor.untyped_storage()._cdata)
            named.setdefault(id(tensor), (at, tensor))
    found: dict[str, dict[str, int]] = {}
    for at, tensor in named.values():
        kind = str(tensor.dtype).removeprefix("torch.")
        said = f"{kind} {[*tensor.shape]} {tensor.untyped_storage().nbytes()} bytes"
        kinds = found.setdefault(at, {})
        kinds[said] = kinds.get(said, 0) + 1
    return {
        at: "; ".join(f"{many} x {said}" for said, many in sorted(kinds.items()))
        for at, kinds in found.items()
    }


def modules(model: Any) -> dict[str, str]:
    """Return the class of each part of a model, by its name."""
    found: dict[str, set[str]] = {}
    for name, module in model.named_modules():
        found.setdefault(_NUMBER.sub("*", name), set()).add(type(module).__name__)
    return {at: ", ".join(sorted(kinds)) for at, kinds in found.items()}


def caches(specs: dict[str, Any]) -> dict[str, str]:
    """Return the fields of what each layer asks of the cache."""
    found: dict[str, set[str]] = {}
    for name, spec in specs.items():
        at = _NUMBER.sub("*", name)
        for field, said in settings(spec, type(spec).__name__).items():
            found.setdefault(f"{at}: {field}", set()).add(said)
    return {at: ", ".join(sorted(said)) for at, said in found.items()}
