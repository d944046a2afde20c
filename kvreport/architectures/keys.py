"""Strict access to the keys of a ``config.json``.

A config is untrusted text. Every number that the arithmetic uses passes through :class:`Keys`,
which knows the aliases of a key, the defaults of the config's class, and the range that is
plausible; whatever is outside of that becomes an :class:`~kvreport.errors.InputError` that names
the file, the key, what was found and what is allowed. A default of the class that had to stand in
for a missing dimension is written down in the :class:`Trail`, so that nobody takes it for something
the file said; so is every key that was looked at, so that a key nobody looked at can be named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from kvreport.errors import InputError, shorten

MAX_FILE_BYTES: Final = 16 << 20
MAX_LAYERS: Final = 2_000
MAX_WIDTH: Final = 1 << 22
MAX_VOCABULARY: Final = 1 << 24
MAX_CONTEXT: Final = 1 << 30
MAX_EXPERTS: Final = 1 << 14

_MISSING: Final = object()


@dataclass(slots=True)
class Trail:
    """What reading one file left behind, shared by all of its sections."""

    # Class defaults that stood in for missing values, by dotted path of the key.
    assumed: dict[str, Any] = field(default_factory=dict)
    # Dotted path of every key that was looked for, present or not.
    looked_at: set[str] = field(default_factory=set)
    # Dotted paths of sizes that were stated and equal the class's default.
    restated: set[str] = field(default_factory=set)
    # Class defaults of flags, lists and lesser sizes that stood in for missing ones.
    usual: dict[str, Any] = field(default_factory=dict)
    # Sentences on dimensions that the class derives from others where a config is silent.
    derived: list[str] = field(default_factory=list)
    # Dotted paths of keys that were looked for without finding a value; True where it is null.
    absent: dict[str, bool] = field(default_factory=dict)

    def forget(self, section: str) -> None:
        """Forget what was assumed of a section that the model turns out not to have."""
        inside = f"{section}."
        for kept in (self.assumed, self.usual, self.absent):
            for path in [path for path in kept if path.startswith(inside)]:
                del kept[path]
        self.derived[:] = [sentence for sentence in self.derived if inside not in sentence]


NAMED_IF_MISSING: Final = frozenset(
    {
        "bits",
        "ffn_hidden_size",
        "group_size",
        "hidden_size",
        "intermediate_size",
        "n_inner",
        "num_experts",
        "num_hidden_layers",
        "qk_rope_head_dim",
        "vocab_size",
    }
)
"""Dimensions that some classes define by others: a config without them is read, and the answer says so."""


class Keys:
    """One object of a config, with the defaults of its class."""

    def __init__(
        self,
        data: Mapping[str, Any],
        where: str,
        path: str = "",
        defaults: Mapping[str, Any] | None = None,
        trail: Trail | None = None,
    ) -> None:
        """Wrap ``data``; ``trail`` is shared between the sections of one file."""
        self.data = data
        self.where = where  # The file, as the user named it.
        self.path = path  # Dotted path of this object inside the file, ``""`` for the top.
        self.defaults: Mapping[str, Any] = defaults or {}  # The class's own, by canonical key.
        self.trail = Trail() if trail is None else trail  # Shared by all sections of the file.
        self.outer: Keys = self  # The whole config, where this is its text part.

    def with_defaults(self, defaults: Mapping[str, Any]) -> Keys:
        """Return the same object read with these class defaults."""
        same = Keys(self.data, self.where, self.path, defaults, self.trail)
        if self.outer is not self:
            same.outer = self.outer
        return same

    def field(self, name: str) -> str:
        """Return the dotted path of a key, for messages."""
        return f"{self.path}.{name}" if self.path else name

    def fault(self, name: str, found: object, allowed: str) -> InputError:
        """Make the error for one key, for the caller to raise; ``found`` is None if it is missing."""
        text = "nothing" if found is None or found is _MISSING else shorten(found)
        return InputError.of(self.where, self.field(name), text, allowed)

    def _look(self, names: Sequence[str]) -> None:
        for name in names:
            self.trail.looked_at.add(self.field(name))
        if names and all(self.data.get(name) is None for name in names):
            self.trail.absent[self.field(names[0])] = any(name in self.data for name in names)

    def has(self, *names: str) -> bool:
        """Tell whether any of the keys is there and not null."""
        self._look(names)
        return any(self.data.get(name) is not None for name in names)

    def null(self, *names: str) -> bool:
        """Tell whether one of the keys is there and null, which many classes read as "none"."""
        self._look(names)
        return not self.has(*names) and any(name in self.data for name in names)

    def missing(self, *names: str) -> str:
        """Say how none of the keys has a value: left out, or null."""
        return "null in the config" if self.null(*names) else "not in the config"

    def raw(self, *names: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Return the first of the keys that is there and not null, unchecked; else None."""
        self._look(names)
        return next((self.data[name] for name in names if self.data.get(name) is not None), None)

    def whole(
        self,
        *names: str,
        default: int | None = None,
        low: int = 1,
        high: int = MAX_WIDTH,
    ) -> int:
        """Return a whole number.

        The canonical name comes first. The ``default`` is what a missing key means by definition, not a guess.

        Returns:
            The number; the class default if the key is missing and the class has one.

        Raises:
            InputError: If it is missing without a default, not a whole number, or out of range.
        """
        allowed = f"a whole number from {low:,} to {high:,}"
        self._look(names)
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise self.fault(name, value, allowed)
            if value == self.defaults.get(names[0]):
                self.trail.restated.add(self.field(names[0]))
            return value
        if default is not None:
            if names[0] in NAMED_IF_MISSING:
                self.trail.derived.append(
                    f"{self.field(names[0])} = {default}: {self.missing(*names)}; the definition of the class"
                )
            else:
                self.trail.usual[self.field(names[0])] = default
            return default
        value = self.defaults.get(names[0])
        if value is None:
            looked = f" (looked for {', '.join(names)})" if len(names) > 1 else ""
            raise self.fault(names[0], _MISSING, allowed + looked)
        if not low <= value <= high:
            raise self.fault(names[0], _MISSING, allowed)
        self.trail.assumed[self.field(names[0])] = value
        return int(value)

    def optional(self, *names: str, low: int = 0, high: int = MAX_WIDTH) -> int | None:
        """Return a whole number, or None where the key is missing or null and so is the default."""
        if not self.has(*names) and self.defaults.get(names[0]) is None:
            return None
        return self.whole(*names, low=low, high=high)

    def number(self, *names: str, default: float | None = None, low: float, high: float) -> float:
        """Return a finite number, whole or not."""
        value = self.raw(*names)
        if value is None:
            value = self.defaults.get(names[0], default)
            if value is not None:
                self.trail.usual[self.field(names[0])] = value
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.fault(
                names[0], _MISSING if value is None else value, f"a number from {low:g} to {high:g}"
            )
        return float(value)

    def flag(self, *names: str, default: bool | None = None) -> bool:
        """Return true or false; the class default, else ``default``, where the key is missing."""
        value = self.raw(*names)
        if value is None:
            value = self.defaults.get(names[0], default)
            if isinstance(value, bool):
                self.trail.usual[self.field(names[0])] = value
        if not isinstance(value, bool):
            raise self.fault(names[0], _MISSING if value is None else value, "true or false")
        return value

    def text(self, *names: str, default: str | None = None) -> str | None:
        """Return a short text, or ``default`` where the key is missing."""
        value = self.raw(*names)
        if value is None:
            value = self.defaults.get(names[0], default)
            return value if isinstance(value, str) else None
        if not isinstance(value, str) or not 0 < len(value) <= 2_000:
            raise self.fault(names[0], value, "a text")
        return value

    def texts(self, *names: str, length: int | None = None, of: Sequence[str] = ()) -> list[str] | None:
        """Return a list of texts, or None where the key is missing."""
        value = self._list(*names, length=length)
        if value is None:
            return None
        for index, item in enumerate(value):
            if not isinstance(item, str) or (of and item not in of):
                allowed = f"one of {', '.join(of)}" if of else "a text"
                raise self.fault(f"{names[0]}[{index}]", item, allowed)
        return value

    def wholes(
        self, *names: str, length: int | None = None, low: int = 0, high: int = MAX_WIDTH
    ) -> list[int] | None:
        """Return a list of whole numbers, or None where the key is missing."""
        value = self._list(*names, length=length)
        if value is None:
            return None
        for index, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, int) or not low <= item <= high:
                allowed = f"a whole number from {low:,} to {high:,}"
                raise self.fault(f"{names[0]}[{index}]", item, allowed)
        return value

    def _list(self, *names: str, length: int | None) -> list[Any] | None:
        value = self.raw(*names)
        if value is None:
            value = self.defaults.get(names[0])
            if value is None:
                return None
            value = list(value)
        if not isinstance(value, list) or len(value) > 100_000:
            raise self.fault(names[0], value, "a list")
        if length is not None and len(value) == length + self._prediction_layers():
            # Some quantizers write the entries of prediction layers after those of the layers.
            value = value[:length]
        if length is not None and len(value) != length:
            raise self.fault(names[0], f"a list of {len(value)}", f"a list of {length}, one entry per layer")
        return value

    def _prediction_layers(self) -> int:
        stated = self.data.get("num_nextn_predict_layers", 0)
        return stated if isinstance(stated, int) and 0 < stated <= MAX_LAYERS else 0

    def section(self, *names: str, defaults: Mapping[str, Any] | None = None) -> Keys | None:
        """Return an object inside this one, or None where it is missing."""
        self._look(names)
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if not isinstance(value, Mapping):
                raise self.fault(name, value, "an object")
            return Keys(value, self.where, self.field(name), defaults, self.trail)
        return None

    def entries(self, name: str) -> Iterator[tuple[str, Keys]]:
        """Yield the objects inside an object of this one, by name, without those that are null."""
        inside = self.section(name)
        for key in inside.data if inside is not None else ():
            entry = inside.section(key) if inside is not None else None
            if entry is not None:
                yield key, entry

    def sections(self, name: str, length: int) -> list[Keys]:
        """Return a list of objects, one per layer."""
        value = self._list(name, length=length)
        if value is None:
            raise self.fault(name, _MISSING, f"a list of {length} objects")
        found = []
        for index, item in enumerate(value):
            if not isinstance(item, Mapping):
                raise self.fault(f"{name}[{index}]", item, "an object")
            found.append(Keys(item, self.where, self.field(f"{name}[{index}]"), None, self.trail))
        return found

    def divide(self, name: str, value: int, by_name: str, by: int) -> int:
        """Return ``value // by``, which must be exact (heads, groups)."""
        if by < 1 or value % by:
            raise self.fault(name, value, f"a multiple of {by_name} ({by})")
        return value // by


def read_json(path: Path, where: str) -> dict[str, Any]:
    """Read one JSON object, defensively.

    Raises:
        InputError: If it is not a regular file, too large, not UTF-8, not JSON, has a key twice or
            numbers beyond reason, or is not an object.
    """

    def fail(found: str, allowed: str) -> NoReturn:
        raise InputError.of(where, "", found, allowed)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            fail(f"the key {shorten(twice)} twice", "every key once")
        return found

    try:
        if not path.is_file():
            fail("no such file" if not path.exists() else "not a regular file", "a config.json")
        if path.stat().st_size > MAX_FILE_BYTES:
            fail(f"{path.stat().st_size:,} bytes", f"at most {MAX_FILE_BYTES:,} bytes")
        # NaN and Infinity are let through here: published configs carry them under keys that nobody
        # computes with (Nemotron's time_step_limit). A number that is used must be finite.
        value = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=once)
    except OSError as error:
        fail(error.strerror or "an unreadable file", "a readable config.json")
    except UnicodeDecodeError as error:
        fail(f"a byte that is not UTF-8 at position {error.start}", "JSON in UTF-8")
    except RecursionError:
        fail("objects nested too deeply", "a config.json")
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        if not error.doc[error.pos :].strip():
            fail(f"JSON that ends early, in {place}", "a whole config.json")
        fail(f"no JSON in {place} ({error.msg[0].lower()}{error.msg[1:]})", "JSON")
    except InputError:
        raise
    except ValueError as error:
        fail(shorten(str(error)), "JSON")
    if not isinstance(value, dict):
        fail(f"a {type(value).__name__}", "a JSON object")
    return value
