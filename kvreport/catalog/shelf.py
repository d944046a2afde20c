"""A folder of catalog files, each one record: found by name, read when asked for.

A file is read strictly (:mod:`kvreport.catalog.strict_files`). A record is validated as JSON is, so nothing is converted
silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kvreport.catalog.base import SCHEMA_VERSION, Record, VersionedRecord
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError, Fault, faults_of, shorten
from kvreport.resources import data_dir

MAX_VALUES: Final = 200_000
"""Most values in one record, lists and keys included; the largest published one has some thousands."""
_MAX_SENTENCE: Final = 500

_KINDS: Final = {type(None): "nothing", str: "a text", list: "a list"}
"""What a document may be in place of fields, in words."""

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ ./@+-]{0,59}")
_NAMES_HEARD: Final = 65_536
"""Names remembered as they are heard: a build asks for the same few thousand again and again."""
_SEPARATORS: Final = re.compile(r"[\s_/-]+")
# Signs that change how the text around them is read: controls, and overrides of the writing direction.
# Letters of scripts that run from right to left are welcome; the signs that turn a whole line are not.
_UNREADABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")


def read_if_there(record: type[R], folder: Path, name: str) -> R | None:
    """The record of a catalog's file; None where the catalog does not have it.

    Raises:
        CatalogError: With every fault of the file.
    """
    path = folder / name
    return validated(record, path, name) if path.is_file() else None


def read_each(record: type[R], folder: Path) -> tuple[dict[str, R], list[Fault]]:
    """The records of a folder's YAML files by ``folder/file``, in name order, and the faults of those that have any."""
    found: dict[str, R] = {}
    faults: list[Fault] = []
    for path in sorted(folder.glob("*.yaml")):
        where = f"{folder.name}/{path.name}"
        try:
            found[where] = validated(record, path, where)
        except CatalogError as error:
            faults += error.faults
    return found, faults


def validated(record: type[R], path: Path, where: str) -> R:
    """The record of a file, read once in a process while the file does not change.

    Raises:
        CatalogError: With every fault of the file.
    """
    return read_once(record, path, where, lambda data: validate(record, data, where))


def read_once(kind: Hashable, path: Path, where: str, make: Callable[[object], T]) -> T:
    """What is made of a file, once in a process while the file does not change.

    ``kind``: what tells makers apart. ``where``: the file as errors name it.

    Raises:
        CatalogError: If the file cannot be read as plain YAML, or as ``make`` says.
    """
    try:
        state = path.stat()
    except OSError:  # a link that leads nowhere
        return make(read_yaml(path, where))
    key = (kind, path, state.st_mtime_ns, state.st_size)
    if key not in _read_files:
        if len(_read_files) >= _MOST_FILES:
            _read_files.clear()
        _read_files[key] = make(read_yaml(path, where))
    found: T = _read_files[key]
    return found


class CatalogFile(VersionedRecord):
    """The content of one file of a catalog."""

    FILE: ClassVar[str]  # Its path in the catalog's folder.

    @classmethod
    def read(cls, folder: Path | None = None) -> Self | None:
        """Read it, by default the published one; None for a catalog without it. A file that does not change is read once.

        Raises:
            CatalogError: With every fault of the file.
        """
        path = (folder or data_dir()) / cls.FILE
        return validated(cls, path, cls.FILE) if path.is_file() else None

    @classmethod
    def need(cls, folder: Path | None = None) -> Self:
        """Read a file that every catalog with such engines has, once a process.

        Raises:
            CatalogError: With every fault of the file, or if it is not there.
        """
        if (cls, folder) not in _needed:
            found = cls.read(folder)
            if found is None:
                raise CatalogError.of(cls.FILE, "", "no regular file", "a YAML file")
            _needed[cls, folder] = found
        needed: Self = _needed[cls, folder]
        return needed


_read_files: Final[dict[tuple[Hashable, Path, int, int], Any]] = {}
_MOST_FILES: Final = 8192
"""Files whose records are kept: several states of a catalog of today."""
_needed: Final[dict[tuple[type, Path | None], Any]] = {}


def validate(record: type[R], data: object, where: str) -> R:
    """Validate what a file holds.

    Raises:
        CatalogError: With every fault of the file.
    """
    if not isinstance(data, dict):
        raise CatalogError.of(where, "", _KINDS.get(type(data), "one value"), "fields with values")
    version = data.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        allowed = f"{SCHEMA_VERSION} (this version of kvreport reads no other)"
        raise CatalogError.of(where, "schema_version", shorten(version), allowed)
    if _exceeds(data, MAX_VALUES):
        raise CatalogError.of(
            where, "", f"more than {MAX_VALUES:,} values", f"at most {MAX_VALUES:,} in one record"
        )
    try:
        text = json.dumps(data, ensure_ascii=False)
        # JSON writes the lower controls as escapes.
        if _UNREADABLE.search(text) or "\\u00" in text or "\\b" in text or "\\f" in text:
            _refuse_unreadable(data, where)
        made = record.model_validate_json(text)
    except ValidationError as error:
        raise CatalogError(
            Fault(where, _field(fault["loc"]), _found(fault), _allowed(fault))
            for fault in error.errors(include_url=False)
        ) from error
    except CatalogError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        found = shorten(str(error))
        raise CatalogError.of(where, "", found, "texts, numbers, lists and fields") from error
    faults = [Fault(where, *contradiction) for contradiction in made.contradictions()]
    if faults:
        raise CatalogError(faults)
    return made


def _exceeds(data: object, most: int) -> bool:
    """True if a document has more values than so many; levels beyond the limit are told elsewhere."""
    left, waiting = most, [data]
    while waiting:
        one = waiting.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        left -= len(inner)
        if left < 0:
            return True
        waiting.extend(inner)
    return False


def _refuse_unreadable(data: object, where: str) -> None:
    faults = [
        Fault(where, _field(location), shorten(text), "text without control signs or direction overrides")
        for location, text in _texts(data)
        if _UNREADABLE.search(text)
    ]
    if faults:
        raise CatalogError(faults)


def _texts(data: object, location: tuple[int | str, ...] = ()) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield every text of a file, keys too, with its place."""
    if isinstance(data, str):
        yield location, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from ((location, key), *_texts(value, (*location, key)))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _texts(value, (*location, number))


def _field(location: tuple[int | str, ...]) -> str:
    # A key may be any text: what is no plain name is printed so that it stays on its line.
    return ".".join(
        part if isinstance(part, str) and _NAME.fullmatch(part) else shorten(part) for part in location
    )


def _found(fault: ErrorDetails) -> str:
    return "nothing" if fault["type"] == "missing" else shorten(fault["input"])


def _allowed(fault: ErrorDetails) -> str:
    kind = fault["type"]
    if kind == "missing":
        return "a value; the field is required"
    if kind == "extra_forbidden":
        return "no such field; see the list of fields, or correct the spelling"
    if kind == "union_tag_invalid":
        # The library's sentence repeats what was found, however long it is and whatever signs it has.
        return str(fault["ctx"]["expected_tags"])
    message: str = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    text = message if message.isprintable() else repr(message)[1:-1]
    return text if len(text) <= _MAX_SENTENCE else text[: _MAX_SENTENCE - 1] + "…"


@lru_cache(_NAMES_HEARD)
def spoken(name: str) -> str:
    """Return a name as it is heard: without case, and with one hyphen for any run of separators.

    ``Llama 3.1 8B``, ``llama-3.1-8b`` and ``LLAMA_3.1--8b`` are the same name.
    """
    return _SEPARATORS.sub("-", name.lower())


class Shelf(Generic[R]):
    """The files of one folder, one record each."""

    def __init__(
        self,
        folder: Path,
        record: type[R],
        noun: str,
        identify: Callable[[R], tuple[str, str]],
        beside: tuple[str, ...] = (),
    ) -> None:
        """List the folder; nothing is read yet.

        ``identify`` returns a record's name and the file name (without suffix) it must have. Folders next to the records have a file
        of the names ``beside``; without names there are no such folders.
        """
        self.folder = folder
        self._beside = beside
        self.noun = noun
        self._kind = record
        self._identify = identify
        self._read: dict[str, R] = {}
        self.files: dict[str, Path] = (
            {path.stem: path for path in sorted(folder.glob("*.yaml"))} if folder.is_dir() else {}
        )

    def stem(self, name: str) -> str | None:
        """The stem of the one file that is heard like a name; None if there is none, or several are."""
        if name in self.files:
            return name
        heard = spoken(name)
        found = [stem for stem in self.files if spoken(stem) == heard]
        return found[0] if len(found) == 1 else None

    def where(self, stem: str) -> str:
        """Name a file as a reader finds it: its folder and name."""
        return f"{self.folder.name}/{stem}.yaml"

    def read(self, stem: str) -> R:
        """Return one file's record, read once.

        Raises:
            CatalogError: With every fault of the file.
        """
        if stem not in self._read:
            path, where = self.files[stem], self.where(stem)
            record = self._record(path, where)
            name, expected = self._identify(record)
            if expected != stem:
                raise CatalogError.of(where, "id", shorten(name), f"the file name {expected}.yaml")
            self._read[stem] = record
        return self._read[stem]

    def _record(self, path: Path, where: str) -> R:
        """The record of a file."""
        return validated(self._kind, path, where)

    def records(self) -> Iterator[tuple[str, R]]:
        """Yield file stems and records in the order of file names."""
        for stem in self.files:
            yield stem, self.read(stem)

    def faults(self) -> list[Fault]:
        """Read everything and return what is wrong with it."""
        found: list[Fault] = []
        if not self.folder.is_dir():
            return [
                Fault(self.folder.name, "", "no such folder", f"a folder with one YAML file per {self.noun}")
            ]
        allowed = "names that end in .yaml"
        found += [
            Fault(f"{self.folder.name}/{path.name}", "", "another kind of file", allowed)
            for path in sorted(self.folder.iterdir())
            if path.suffix != ".yaml"
            and not path.name.startswith(".")
            and not any((path / name).is_file() for name in self._beside)
        ]
        return [*found, *(fault for stem in self.files for fault in faults_of(self.read, stem))]

    def mentioning(self, word: str) -> Iterator[R]:
        """Yield the records whose file mentions ``word`` anywhere, as :func:`spoken` hears it.

        A cheap look before the dear one: an alias can only be in a file that contains it. A record that was read
        before is yielded whatever it says, and is no further read: which records those are decides no answer.
        """
        heard = spoken(word)
        for stem, path in self.files.items():
            if stem in self._read:
                yield self._read[stem]
                continue
            try:
                mentions = heard in spoken(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError):
                mentions = True
            if mentions:
                yield self.read(stem)
