"""Model classes that each release of an engine serves, as lists read from its package: ``engines/FAMILY/classes.yaml``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, PrivateAttr, model_validator

from kvreport.catalog.base import Record, Source, Text, VersionedRecord
from kvreport.catalog.engine import Engine
from kvreport.catalog.shelf import read_if_there

FILE: Final = "classes.yaml"
FOLDER: Final = "engines"
TRANSFORMERS: Final = "transformers"
"""The family whose classes other engines run through a backend."""
Listed = Literal["vllm", "sglang", "tensorrt_llm", "transformers", "mlx"]
"""Families whose packages list their classes; llama.cpp's are in ``llama_cpp/architectures.yaml``."""

ClassName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,99}$")]
ReadRelease = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){1,3}(\.post[0-9]+)?$", max_length=40)]


@dataclass(frozen=True, slots=True)
class Classes:
    """What one release serves."""

    release: str = ""  # The release that was read.
    own: frozenset[str] = frozenset()  # Classes that it has an implementation of.
    # Classes that it runs through its Transformers backend by name. In transformers' own list: classes that
    # such a backend can run, because their attention goes through the attention interface.
    backend: frozenset[str] = frozenset()
    # The newest release of transformers, of those read, that the engine's package allows and by which its
    # Transformers backend runs classes that it does not list; empty where the engine has no such backend.
    transformers: str = ""
    endings: tuple[str, ...] = ()  # Endings of the names of classes that write text (``ForCausalLM``).
    # Endings of names that the release looks up with one of ``endings``: a classifier or an embedding model
    # is served by the class that writes text.
    pooled_endings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The first 16 digits of the SHA-256 of everything that it serves."""
        names = (sorted(self.own), sorted(self.backend), self.endings, self.pooled_endings)
        parts = (*names, [self.transformers])
        return sha256("\n".join("\n".join(part) for part in parts).encode()).hexdigest()[:16]

    def implements(self, name: str) -> bool:
        """Whether the release has its own implementation of a class, or looks a pooling class up as one that it has."""
        if name in self.own:
            return True
        pooled = next((ending for ending in self.pooled_endings if name.endswith(ending)), None)
        return pooled is not None and any(
            name.removesuffix(pooled) + ending in self.own for ending in self.endings
        )


class ClassChange(Record):
    """What changed from the releases before, and the releases that it holds for."""

    # Releases that were read and serve the same, oldest first.
    at: Annotated[tuple[ReadRelease, ...], Field(min_length=1)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    add: tuple[ClassName, ...] = ()
    remove: tuple[ClassName, ...] = ()
    backend_add: tuple[ClassName, ...] = ()
    backend_remove: tuple[ClassName, ...] = ()
    # :attr:`Classes.transformers`; None for as before.
    transformers: Annotated[str, Field(max_length=40)] | None = None
    endings: tuple[ClassName, ...] | None = None  # :attr:`Classes.endings`; None for as before.
    pooled_endings: tuple[ClassName, ...] | None = None  # :attr:`Classes.pooled_endings`; None for as before.


class EngineClasses(VersionedRecord):
    """The content of one ``classes.yaml``, which ``scripts/read_engine_classes.py`` writes."""

    family: Listed
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]  # Where the lists stand in the package.
    # What may run a class outside the lists and is not judged, in words; None if nothing may.
    outside: Text | None = None
    changes: Annotated[tuple[ClassChange, ...], Field(min_length=1)]  # Oldest first.
    _states: tuple[Classes, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        releases = [release_key(name) for change in self.changes for name in change.at]
        if releases != sorted(set(releases)):
            raise ValueError(
                "changes.at: found releases out of order or twice; allowed: each once, oldest first"
            )
        return self

    def states(self) -> tuple[Classes, ...]:
        """What each change leaves, under the first of its releases."""
        if not self._states:
            self._states = tuple(_replayed(self.changes))
        return self._states

    def wrong_digests(self) -> Iterator[tuple[str, str, str]]:
        """Yield release, digest found and digest of what the differences add up to, where the two differ."""
        for change, state in zip(self.changes, self.states(), strict=True):
            if change.digest != state.digest:
                yield change.at[0], change.digest, state.digest

    @property
    def newest(self) -> str:
        """The newest release that was read."""
        return self.changes[-1].at[-1]

    def served(self, version: str | None) -> Classes | None:
        """What a release serves: the list of the newest release that was read and is not newer.

        Args:
            version: As an engine prints it; None for the newest that was read. Two numbers (``0.22``) are the last
                release that begins so.

        Returns:
            None for a release older than all that were read, and for a build between releases (``0.23.1rc1.dev531``),
            which has classes of later ones.
        """
        states = self.states()
        if version is None:
            return states[-1]
        if is_unreleased(version):
            return None
        own = release_key(version)
        if version.removeprefix("v").count(".") == 1:
            own = (*own[:2], _LAST, _LAST, 0)
        found = [
            state
            for state, change in zip(states, self.changes, strict=True)
            if release_key(change.at[0]) <= own
        ]
        if not found:
            return None
        return found[-1]

    def spans(self, name: str) -> list[tuple[str, str | None]]:
        """First and last read release of each span of releases that serve a class; None for the newest."""
        spans: list[tuple[str, str | None]] = []
        served = False
        for number, state in enumerate(self.states()):
            now = state.implements(name) or name in state.backend
            if now and not served:
                spans.append((self.changes[number].at[0], None))
            elif served and not now:
                spans[-1] = (spans[-1][0], self.changes[number - 1].at[-1])
            served = now
        return spans


def lists_classes(engine: Engine) -> bool:
    """Whether an engine's classes are judged by such a list."""
    return engine.family in get_args(Listed)


def _replayed(changes: Collection[ClassChange]) -> Iterator[Classes]:
    state = Classes()
    for change in changes:
        state = Classes(
            change.at[0],
            state.own.difference(change.remove).union(change.add),
            state.backend.difference(change.backend_remove).union(change.backend_add),
            state.transformers if change.transformers is None else change.transformers,
            state.endings if change.endings is None else change.endings,
            state.pooled_endings if change.pooled_endings is None else change.pooled_endings,
        )
        yield state


@lru_cache(maxsize=1024)
def release_key(text: str) -> tuple[int, ...]:
    """A release as numbers to be compared: ``0.5.15.post1`` is ``(0, 5, 15, 0, 1)``, after ``0.5.15``.

    Args:
        text: As an engine prints it; what follows the numbers counts only where it is a post-release.
    """
    plain = text.removeprefix("v").partition("+")[0]
    release, _, post = plain.partition(".post")
    numbers: list[int] = []
    for part in release.split("."):
        if not part.isdecimal():
            digits = part[: next((n for n, sign in enumerate(part) if not sign.isdecimal()), len(part))]
            numbers += [int(digits)] if digits else []
            break
        numbers.append(int(part))
    while len(numbers) < _NUMBERS:
        numbers.append(0)
    return (*numbers[:_NUMBERS], int(post) if post.isdecimal() else 0)


_LAST: Final = 1 << 30
"""More than any number of a release."""
_NUMBERS: Final = 4
"""Numbers of the longest release that is compared (``0.10.1.1``), without those of a post-release."""


def is_unreleased(text: str) -> bool:
    """Whether a version is of a build between two releases (``0.23.1rc1.dev531``)."""
    plain = text.removeprefix("v").partition("+")[0].partition(".post")[0]
    return any(not part.isdecimal() for part in plain.split("."))


@dataclass(frozen=True, slots=True)
class ClassLists:
    """The lists of a catalog, each read when first asked for."""

    folder: Path
    _read: dict[str, EngineClasses | None] = field(default_factory=dict, compare=False)

    def of(self, family: str) -> EngineClasses | None:
        """The lists of a family's releases; None where the catalog has none.

        Raises:
            CatalogError: If the file has a fault.
        """
        if family not in self._read:
            self._read[family] = read_if_there(EngineClasses, self.folder, f"{FOLDER}/{family}/{FILE}")
        return self._read[family]

    @property
    def state(self) -> str:
        """Digest of all lists of the catalog, for what is kept under all that decides it."""
        found = sha256()
        for path in sorted((self.folder / FOLDER).glob(f"*/{FILE}")):
            found.update(path.parent.name.encode() + b"\0" + sha256(path.read_bytes()).digest())
        return found.hexdigest()


def written(classes: EngineClasses) -> str:
    """The text of a ``classes.yaml``: one change a line, in JSON, which YAML includes and which is read faster."""

    def line(record: Record) -> str:
        return json.dumps(record.model_dump(exclude_none=True, exclude_defaults=True), ensure_ascii=False)

    changes = ",\n  ".join(line(change) for change in classes.changes)
    sources = ",\n  ".join(line(source) for source in classes.sources)
    outside = f' "outside": {json.dumps(classes.outside)},\n' if classes.outside else ""
    return (
        f'{{"schema_version": {classes.schema_version}, "family": "{classes.family}",\n'
        f' "sources": [\n  {sources}],\n{outside} "changes": [\n  {changes}]}}\n'
    )


def compressed(read: Mapping[str, Classes]) -> tuple[ClassChange, ...]:
    """Releases with what each serves, as differences: releases that serve the same stand together."""
    changes: list[ClassChange] = []
    before = Classes()
    for release in sorted(read, key=release_key):
        now = read[release]
        if changes and now.digest == before.digest:
            changes[-1] = changes[-1].model_copy(update={"at": (*changes[-1].at, release)})
            continue
        changes.append(
            ClassChange(
                at=(release,),
                digest=now.digest,
                add=tuple(sorted(now.own - before.own)),
                remove=tuple(sorted(before.own - now.own)),
                backend_add=tuple(sorted(now.backend - before.backend)),
                backend_remove=tuple(sorted(before.backend - now.backend)),
                transformers=None if now.transformers == before.transformers else now.transformers,
                endings=None if now.endings == before.endings else now.endings,
                pooled_endings=None if now.pooled_endings == before.pooled_endings else now.pooled_endings,
            )
        )
        before = now
    return tuple(changes)
