"""The state of a catalog's model records: which of them something that was kept depends on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from kvreport.catalog import dependency_notes
from kvreport.catalog.dependency_notes import Note
from kvreport.catalog.shelf import spoken

MODELS: Final = "models"
"""The folder of records that are told apart: what did not read one does not change with it."""


class Records:
    """The model records that chapters may read, by the catalogs' folders."""

    def __init__(self, catalogs: Mapping[str, Path]) -> None:
        """List the records of each catalog, by a name that does not depend on where it lies."""
        self._folders = {str(folder.resolve()): name for name, folder in catalogs.items()}
        self._texts = {
            name: {path.stem: path.read_bytes() for path in sorted((folder / MODELS).glob("*.yaml"))}
            for name, folder in catalogs.items()
        }
        self.listed = {
            name: {stem: sha256(text).hexdigest() for stem, text in texts.items()}
            for name, texts in self._texts.items()
        }

    @property
    def digest(self) -> str:
        """Digest of all records."""
        return sha256(json.dumps(self.listed).encode()).hexdigest()[:12]

    def told(self, notes: Iterable[Note]) -> bytes:
        """Return the notes and the state of all records, to be kept; a foreign folder counts as everything."""
        return json.dumps({"notes": sorted(self.named(notes)), "listed": self.listed}).encode()

    def named(self, notes: Iterable[Note]) -> frozenset[Note]:
        """Return notes with the catalogs' names in the place of their folders."""
        return frozenset((self._folders.get(folder, folder), name, read) for folder, name, read in notes)

    def unchanged_since(self, content: bytes | None) -> frozenset[Note] | None:
        """Return what was noted if no record that it names has changed; None if one has or may have.

        A name that was looked up means another record now only if a changed file says it.
        """
        try:
            kept = json.loads(content or b"")
            noted = frozenset((str(one), str(name), bool(read)) for one, name, read in kept["notes"])
            changed = self.changed_since(kept["listed"])
        except (ValueError, KeyError, TypeError):
            return None
        return None if self.concern(changed, noted) else noted

    def changed_since(self, listed: Mapping[str, Mapping[str, str]]) -> dict[str, set[str]]:
        """Return the stems of the records that differ from an earlier list, by catalog."""
        found = {}
        for name, files in self.listed.items():
            was = listed.get(name, {})
            found[name] = {stem for stem in {*files, *was} if files.get(stem) != was.get(stem)}
        return found

    def concern(self, changed: Mapping[str, set[str]], noted: Iterable[Note]) -> bool:
        """Whether something that was noted depends on changed records, or on a catalog that is not known."""
        known = {*self.listed, *self._folders}
        return any(
            one[0] not in known
            or any(stems and self._concerns(name, stems, one) for name, stems in changed.items())
            for one in noted
        )

    def _concerns(self, name: str, changed: Iterable[str], one: Note) -> bool:
        folder, word, read = one
        if self._folders.get(folder, folder) != name:
            return False
        if word == dependency_notes.EVERYTHING or (read and word in changed):
            return True
        heard = spoken(word)
        return not read and any(
            heard in spoken(stem)
            or heard in spoken(self._texts[name].get(stem, b"").decode("utf-8", "replace"))
            for stem in changed
        )
