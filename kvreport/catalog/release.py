"""Releases of engines: what each does, which record a version belongs to, and how far beyond what was read one may ask.

Nothing else in the package compares releases. What an engine does by release is ``data/engines/<family>/rules.yaml``: rules with
their values by the first release that has them, and where they were read. A :class:`Release` is the values of one release.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast

from pydantic import Field, JsonValue

from kvreport.catalog.base import Contradiction, LongText, Record, Slug, Text, VersionedRecord
from kvreport.catalog.remembered import remembered
from kvreport.catalog.server_flags import FlagText
from kvreport.catalog.shelf import read_if_there
from kvreport.errors import InputError, shorten
from kvreport.resources import data_dir

if TYPE_CHECKING:
    from kvreport.catalog.engine import Engine

RULES: Final = "rules.yaml"
"""The file of a family's folder that has its rules."""

Numbers = tuple[int, ...]
"""A release by its numbers, (0, 20, 1); empty for the newest."""

Plain = bool | int | float | str | frozenset[str]
T = TypeVar("T")

_PER_RULE: Final = 64
_BUILDS: Final = frozenset({"llama_cpp"})
"""Families whose releases are builds with a number."""
_NAME: Final = r"^[a-z0-9_]{3,60}$"


@lru_cache(maxsize=1024)
def version_number(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``0.19.2rc1.dev134`` is ``(0, 19, 2)``; empty if none.

    A build of a clone without tags (``0.1.dev15312+g0``, ``0.0.0.dev1+g0``) has no number that says anything.
    """
    if re.match(r"v?0\.(?:1|0\.0)\.dev\d", text, re.ASCII):
        return ()
    found = re.search(r"\d+(?:\.\d+)+", text, re.ASCII)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def is_before(version: str, first: str) -> bool:
    """Tell whether a version precedes a release, as its development builds do.

    >>> [is_before(one, "5.0.0") for one in ("4.57.1", "5.0.0.dev0", "5.0.0rc1", "5.1.0", "")]
    [True, True, False, False, False]
    """
    number, release = version_number(version), version_number(first)
    return bool(number) and (number < release or (number == release and ".dev" in version))


def since_gone(until: str | None, newest: str, stated: str) -> bool | None:
    """Tell whether a stated release is the newest read, which lacks what was last read in ``until``.

    ``stated`` is an engine as it is asked for, such as ``vllm@0.33.0``; without a version it states no release.

    Returns:
        None where nothing is gone: it is in every release read, or the stated one is not after ``until``.
    """
    last, asked = version_number(until or ""), version_number(stated)
    if until is None or (last and asked and asked <= last):
        return None
    return bool(asked) and asked >= (version_number(newest) or asked)


def plain_release(version: str) -> str:
    """The numbers of a version alone: ``v0.5.15.post1`` is ``0.5.15``; empty where it tells no release."""
    return ".".join(map(str, version_number(version)))


def build_number(version: str) -> Numbers:
    """The number of a build such as ``b9849``; empty for a commit or a name."""
    found = re.fullmatch(r"b?(\d{2,6})", version.strip().lower(), re.ASCII)
    return (int(found[1]),) if found else ()


def _first(text: str) -> Numbers:
    """The release or build from which on a value of a rule holds; empty for the oldest."""
    return version_number(text) or build_number(text)


class Change(Record):
    """What a release adds to a list of names, and removes from it."""

    add: tuple[Text, ...] = ()
    remove: tuple[Text, ...] = ()

    def changed(self, names: frozenset[str]) -> frozenset[str]:
        """The names of the release before, as this one leaves them."""
        return (names | {*self.add}) - {*self.remove}


Digests = tuple[Annotated[str, Field(pattern=r"^([0-9a-f]{12}|-)$")], ...]


class ReadAt(Record):
    """Releases in which a rule's source was read; commits or builds of an engine without releases."""

    first: Text | None = None  # None if the source was read in one release only.
    last: Text
    # Of each citation: its syntax tree in the last release (``make follow``); ``-`` for a whole file.
    digest: Digests = ()

    def __str__(self) -> str:
        """The releases in words: ``0.19.1 to 0.33.0``."""
        return self.last if self.first is None else f"{self.first} to {self.last}"


class Read(Record):
    """What was read in an engine's package, and where."""

    what: LongText
    read: Text  # Where it stands: ``path::name`` of a function, class or assignment.
    at: ReadAt | None = None  # None where start-up logs alone show it, or where that was not kept.

    @property
    def where(self) -> str:
        """Where it stands, where it stood before, and the releases that it was read in."""
        read = re.sub(r", before (\d[\d.]*) ", r", before \1 in ", self.read)
        read = re.sub(r", before (?!\d)", ", formerly ", read)
        return read if self.at is None else f"{read} ({self.at})"

    def read_in_order(self, name: str) -> Iterator[Contradiction]:
        """Return what ``at`` says against itself."""
        if self.at is None or self.at.first is None:
            return
        if version_number(self.at.last) <= version_number(self.at.first):
            said = f"{self.at.first} and {self.at.last}"
            yield Contradiction(f"at of {name}", said, "an earlier and a later release")


class Rule(Read):
    """One rule of an engine, by release."""

    rule: Annotated[str, Field(pattern=_NAME)]  # Its name, which code asks a release for.
    term: Text | None = None  # The part of the answer that it decides; None for that of the rule before it.
    # Its value by the first release that has it, oldest first; ``"0"`` is the oldest. A list of names is
    # given whole first, then as changes.
    values: Annotated[
        dict[Text, bool | int | float | Text | tuple[Text, ...] | Change],
        Field(min_length=2, max_length=_PER_RULE),
    ]
    evidence: LongText | None = None

    def by_release(self) -> dict[Numbers, Plain]:
        """Its plain values by the first release that has each, oldest first."""
        return dict(_by_release(self.values))

    def is_constant(self, fields: Container[str]) -> bool:
        """True for a constant of an engine's records: a fraction that is no field of them."""
        return self.rule not in fields and all(isinstance(one, float) for one in self.values.values())

    def contradictions(self) -> Iterable[Contradiction]:
        """Return what it says against itself: values are of one kind, and each is later than the one before and another."""
        yield from _disordered(self.rule, self.values, list(self.by_release().values()))
        yield from self.read_in_order(self.rule)


def _by_release(values: Mapping[str, Any]) -> Iterator[tuple[Numbers, Plain]]:
    """Yield values with the first release that has each; a list of names with all changes up to it."""
    listed: frozenset[str] = frozenset()
    for first, value in values.items():
        if isinstance(value, Change | tuple):
            listed = value.changed(listed) if isinstance(value, Change) else frozenset(value)
        yield _first(first), listed if isinstance(value, Change | tuple) else value


class FieldByRelease(Read):
    """A field of an engine's record that releases decide and that is no plain value, such as its classes of devices."""

    field: Annotated[str, Field(pattern=_NAME)]
    # Its value by the first release that has it, oldest first, as a record states it.
    values: Annotated[dict[Text, JsonValue], Field(min_length=1, max_length=_PER_RULE)]

    def by_release(self) -> dict[Numbers, JsonValue]:
        """Its values by the first release that has each, oldest first."""
        return {_first(first): value for first, value in self.values.items()}


class RangeOfReleases(Record):
    """Releases that answers are named after."""

    name: Slug  # Of the record, on the command line.
    label: Text
    first: Text  # The first release of the range, which ends where the next one begins.
    version: Text  # The release that the record stands for.

    @property
    def numbers(self) -> Numbers:
        """The release that the record stands for, by its numbers."""
        return version_number(self.version)


class ClassList(Read):
    """Model classes that an engine's source treats in a way of their own, by release."""

    # Its name, which code asks an engine for (:meth:`kvreport.catalog.engine.Engine.lists`).
    list: Annotated[str, Field(pattern=_NAME)]
    # The classes by the first release that has them, oldest first: given whole, then as changes.
    values: Annotated[dict[Text, tuple[Text, ...] | Change], Field(min_length=1, max_length=_PER_RULE)]

    def by_release(self) -> dict[Numbers, frozenset[str]]:
        """The classes by the first release that has them, oldest first."""
        return cast("dict[Numbers, frozenset[str]]", dict(_by_release(self.values)))

    def contradictions(self) -> Iterable[Contradiction]:
        """Return what it says against itself: each value is later than the one before and another."""
        yield from _disordered(self.list, self.values, list(self.by_release().values()))
        yield from self.read_in_order(self.list)


def _disordered(name: str, stated: Iterable[str], values: Sequence[Plain]) -> Iterator[Contradiction]:
    firsts = [_first(first) for first in stated]
    if firsts[0] or firsts != sorted(set(firsts)):
        yield Contradiction(f"values of {name}", ", ".join(stated), '"0", then releases, oldest first')
    if len({type(value) for value in values}) > 1:
        yield Contradiction(f"values of {name}", ", ".join(map(str, values)), "values of one kind")
    if any(one == other for one, other in pairwise(values)):
        yield Contradiction(f"values of {name}", ", ".join(map(str, values)), "no value twice in a row")


class Trait(Read):
    """What an engine does in every release that was read."""

    trait: Annotated[str, Field(pattern=_NAME)]  # Its name, which code asks an engine for (:func:`trait`).
    # The number, word or names that it is; True where the file states none. A flag stands as ``{server:setting}``.
    value: bool | int | FlagText | tuple[Text, ...] = True


class RulesFile(VersionedRecord):
    """The content of ``rules.yaml``."""

    family: Slug
    # Fields of their records that all releases have in common.
    engine: dict[Text, JsonValue] = Field(default_factory=dict)
    records: tuple[RangeOfReleases, ...] = ()  # Ranges of releases, oldest first.
    # Rules by release. One that is named like a field of a record is that field; another with fractions is a
    # constant.
    rules: tuple[Rule, ...] = ()
    fields: tuple[FieldByRelease, ...] = ()  # Further fields by release.
    lists: tuple[ClassList, ...] = ()  # Model classes by release.
    traits: tuple[Trait, ...] = ()  # What all releases do.

    def changes(self) -> list[tuple[Text, Text, Text, Plain]]:
        """Return every change, oldest first: its first release, what the rule or list is about, its name, its value; "" for a field."""
        named: list[tuple[Text, Text, Iterable[Text], Iterable[Plain]]] = [
            *((one.what, one.rule, one.values, one.by_release().values()) for one in self.rules),
            *((one.what, one.list, one.values, one.by_release().values()) for one in self.lists),
            *((one.what, one.field, one.values, ("" for _ in one.values)) for one in self.fields),
        ]
        found = [
            (first, what, name, value)
            for what, name, stated, values in named
            for first, value in list(zip(stated, values, strict=True))[1:]
        ]
        return sorted(found, key=lambda one: version_number(one[0]))

    def contradictions(self) -> Iterable[Contradiction]:
        """Return what rules and lists say against one another, each by itself and by name."""
        for one in (*self.rules, *self.lists):
            yield from one.contradictions()
        for always in self.traits:
            yield from always.read_in_order(always.trait)
        firsts = [version_number(one.first) for one in self.records]
        if firsts != sorted(set(firsts)):
            yield Contradiction("records", ", ".join(one.first for one in self.records), "oldest first")
        prefix = self.family.replace("_", "-")
        for name in (one.name for one in self.records if not one.name.startswith(prefix)):
            yield Contradiction("records", name, f"names that begin with {prefix}")
        for field, names in (
            ("rules", [one.rule for one in self.rules]),
            ("fields", [one.field for one in self.fields]),
            ("lists", [one.list for one in self.lists]),
            ("traits", [one.trait for one in self.traits]),
            ("records", [one.name for one in self.records]),
        ):
            for name in sorted({one for one in names if names.count(one) > 1}):
                yield Contradiction(field, f"{name} twice", "a name once")


@dataclass(frozen=True, eq=False, slots=True)
class Release:
    """What one release of an engine does: the value of every rule, asked for by the rule's name and kind."""

    numbers: Numbers  # The release; empty for the newest.
    values: Mapping[str, Plain]  # Values by rule.
    lists: Mapping[str, frozenset[str]]  # Model classes by list.

    def has(self, rule: str) -> bool:
        """Whether a rule holds; a family that does not have it does not do it."""
        return self.values.get(rule) is True

    def count(self, rule: str) -> int:
        """The whole number that a rule gives."""
        return cast("int", self.values[rule])

    def word(self, rule: str) -> str:
        """The word that a rule gives."""
        return cast("str", self.values[rule])

    def names(self, rule: str) -> frozenset[str]:
        """The names that a rule lists."""
        return cast("frozenset[str]", self.values[rule])


def read_rules(folder: Path, family: str) -> RulesFile | None:
    """The rules of a family in a catalog's folder; None where it has none.

    Raises:
        CatalogError: If the file says what it must not.
    """
    return read_if_there(RulesFile, folder, f"engines/{family}/{RULES}")


_Dated = Mapping[str, Mapping[Numbers, T]]


@cache
def public_rules(family: str) -> RulesFile | None:
    """The rules of a family in the package's own catalog; None where it has none."""
    return read_rules(data_dir(), family)


@cache
def _rules(family: str) -> tuple[_Dated[Plain], _Dated[frozenset[str]]]:
    found = public_rules(family)
    if found is None:
        return {}, {}
    return (
        {rule.rule: rule.by_release() for rule in found.rules},
        {one.list: one.by_release() for one in found.lists},
    )


@cache
def _traits(family: str) -> Mapping[str, Any]:
    found = public_rules(family)
    return {} if found is None else {one.trait: one.value for one in found.traits}


def trait(engine: Engine | str, name: str) -> Any:  # noqa: ANN401 - True, or the number, word or names that it is
    """What all releases of an engine's family, or of a family, do, by its name; None where they do not."""
    return _traits(engine if isinstance(engine, str) else engine.family).get(name)


@lru_cache(maxsize=1024)
def release_at(family: str, numbers: Numbers) -> Release:
    """What a release of a family does.

    Args:
        family: For instance ``vllm``.
        numbers: The release; empty for the newest.
    """
    values, lists = _rules(family)
    return Release(
        numbers,
        {name: value_at(dated, numbers) for name, dated in values.items()},
        {name: value_at(dated, numbers) for name, dated in lists.items()},
    )


@lru_cache(maxsize=1024)
def release_number(family: str, version: str) -> Numbers:
    """The release whose rules a version follows; empty where it names none.

    Builds of vLLM's main branch are named after the next patch of the last release that they descend from
    (``0.19.2rc1.dev134+g0`` after 0.19.1), and follow the release that was cut from the main branch next: the next
    minor one, or the patch itself where patches are cut from the main branch, too. Without a commit since the release
    (``0.16.1.dev0+g0.rocm``) they are that release with changes of their own. Candidates of a minor release (``0.11.0rc2``)
    follow it. A build of a clone without tags (``0.1.dev15312+g0``) tells no release.
    """
    number = version_number(version) or (build_number(version) if family in _BUILDS else ())
    if family != "vllm" or len(number) < 2 or not re.search(r"dev|rc", version):
        return number
    patch = number[2] if len(number) > 2 else 0
    if patch == 0 or not release_at(family, number).has("patches_cut_from_branch"):
        return number
    if re.search(r"\.dev0\b", version):
        return (*number[:2], patch - 1)
    return (number[0], number[1] + 1, 0)


@lru_cache(maxsize=1024)
def _release_of(family: str, version: str) -> Release:
    return release_at(family, release_number(family, version))


def first_with(family: str, rule: str) -> str:
    """The first release or build at which a rule has another value than the oldest, as its file writes it."""
    found = public_rules(family)
    return next(list(one.values)[1] for one in (() if found is None else found.rules) if one.rule == rule)


def release_of(engine: Engine) -> Release:
    """The release whose rules a record stands for, by its version."""
    return _release_of(engine.family, engine.version or "")


def value_at(values: Mapping[Numbers, T], numbers: Numbers) -> T:
    """The one of several values by first release, oldest first, that a release has; the newest without a release.

    Raises:
        StopIteration: If the release is older than all.
    """
    return next(values[first] for first in reversed(list(values)) if not numbers or first <= numbers)


@remembered
def dated_lists(architectures: dict[str, tuple[str, ...]], kind: str) -> dict[Numbers, tuple[str, ...]]:
    """The lists of one kind that changed inside a record's range of releases, by the first release of each, oldest first.

    Args:
        architectures: Lists of classes by name; ``name@version`` is one from that version on.
        kind: The name.
    """
    found = {
        version_number(name.partition("@")[2]): classes
        for name, classes in architectures.items()
        if name.startswith(f"{kind}@")
    }
    return {(): (), **dict(sorted(found.items()))}


def engine_for_version(engines: Iterable[Engine], family: str, version: str | None) -> Engine | None:
    """The engine of a family whose range of versions holds ``version``.

    Args:
        engines: The catalog's engines.
        family: For instance ``vllm``.
        version: As an engine prints it (``0.19.2rc1.dev134+g0``); None means the current release.

    Returns:
        The engine; the one without an end where the version is unknown; None if there is none.
    """
    candidates = [engine for engine in engines if engine.family == family]
    current = next((e for e in candidates if e.versions is None or e.versions[1] is None), None)
    number = version_number(version or "")
    if not number:
        return current
    for engine in candidates:
        if engine.versions is None:
            continue
        first, end = engine.versions
        if version_number(first) <= number and (end is None or number < version_number(end)):
            return engine
    return None


def oldest_computed(engines: Iterable[Engine], family: str, version: str | None) -> str | None:
    """The oldest release of a family that is computed, where a version is older; None where it is not.

    A release is computed for 18 months, counted back from the newest release of ``data/<family>_releases.yaml``.
    """
    firsts = [e.versions[0] for e in engines if e.family == family and e.versions]
    oldest = min(firsts, key=version_number, default=None)
    number = version_number(version or "")
    return oldest if oldest is not None and number and number < version_number(oldest) else None


def not_computed(engines: Iterable[Engine], family: str, version: str | None) -> str | None:
    """What to say of a release that is too old to be computed; None for any other."""
    known = list(engines)
    oldest = oldest_computed(known, family, version)
    if oldest is None or version is None:
        return None
    label = next(engine.label.split()[0] for engine in known if engine.family == family)
    return f"{label} {plain_release(version)} is not computed; {oldest} is the oldest release that is"


def newest_read(engines: Iterable[Engine], family: str) -> str | None:
    """The newest release of a family that was read; None for a family without releases.

    A list of classes that is dated later than the record was read in a later release.
    """
    current = next((e for e in engines if e.family == family and e.versions and e.versions[1] is None), None)
    if current is None or current.version is None:
        return None
    dated = [name.partition("@")[2] for name in current.architectures if "@" in name]
    return max([current.version, *dated], key=version_number)


def newest_before(engines: Iterable[Engine], engine: Engine) -> str | None:
    """The newest release that was read, where an engine is of a later one; None otherwise, and for builds with a number.

    Args:
        engines: The catalog's engines.
        engine: The engine, of the release that was asked for.
    """
    newest = newest_read(engines, engine.family)
    later = newest is not None and version_number(engine.version or "") > version_number(newest)
    return newest if later and not engine.builds else None


def unread_words(engine: Engine, newest: str | None) -> str:
    """What begins an answer by the rules of an earlier release; empty where the release was read.

    Args:
        engine: The engine, of the release that was asked for.
        newest: The newest release that was read, where that is an earlier one; else None.
    """
    return "" if newest is None else f"{engine.label} was not read, and the rules of {newest} are used: "


def refuse_far(engines: Iterable[Engine], family: str, version: str) -> None:
    """Refuse a release further than one minor release beyond the newest that was read.

    Raises:
        InputError: Naming the newest that was read.
    """
    known = list(engines)
    newest = newest_read(known, family)
    current = next((e for e in known if e.family == family and e.versions and e.versions[1] is None), None)
    if newest is None or current is None or current.versions is None:
        return
    places = len(version_number(current.versions[0]))
    *head, last = version_number(newest)[:places]
    if version_number(version)[:places] > (*head, last + 1):
        after = ".".join(str(number) for number in (*head, last + 1))
        raise InputError(
            f"engine: found {family.replace('_', '-')} {shorten(version)}; allowed: up to {newest}, the newest release "
            f"that was read, and {after}, the one after it"
        )


def at_release(engine: Engine, version: str) -> Engine:
    """The record of a range of releases, standing for one release of it: rules by release then judge that one.

    Args:
        engine: The record whose range holds the release.
        version: As an engine prints it; fewer than three numbers name no single release.
    """
    version = _of_its_own(engine, version)
    if not re.fullmatch(r"v?\d+(?:\.\d+){2,3}(?:\.post\d+)?", version, re.ASCII):
        return engine
    release = version.removeprefix("v")
    label = f"{engine.label.split()[0]} {release}"
    return (
        engine
        if release == engine.version
        else engine.model_copy(update={"version": release, "label": label})
    )


def _of_its_own(dated: Engine, version: str) -> str:
    """The release that a version of two numbers asks for: ``0.27`` is 0.27.0 where the record stands for 0.28.0.

    >>> from types import SimpleNamespace as Of
    >>> _of_its_own(Of(version="0.28.0"), "0.27"), _of_its_own(Of(version="0.20.2"), "0.20")
    ('0.27.0', '0.20')
    """
    asked = version_number(version)
    stands_for = version_number(dated.version or "")
    return f"{version}.0" if len(asked) == 2 and stands_for and asked != stands_for[:2] else version


def dated_releases(engines: Iterable[Engine], family: str) -> list[Engine]:
    """The entries of one engine that have a range of versions, oldest first."""
    ranges = [(e.versions[0], e) for e in engines if e.family == family and e.versions]
    return [engine for _, engine in sorted(ranges, key=lambda pair: version_number(pair[0]))]
