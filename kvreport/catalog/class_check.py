"""What ``make torch-check`` found: every generating class of one transformers release, against its own tensors."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field

from kvreport.catalog.base import LongText, Record, Text
from kvreport.catalog.shelf import CatalogFile

Count = Annotated[int, Field(ge=0)]
Status = Literal["exact", "differs", "refused", "not built"]


class CheckedClass(Record):
    """One class.

    Attributes:
        group: The list of transformers it stands in.
        status: The default config's parameters: equal, different, refused by us, or not built by transformers.
        small: The same of the config made small.
        cache: Cache bytes of the small model, run on a CPU at two lengths.
        parameters: Parameters that transformers allocates for the default config, where it builds.
        completed: Keys that the class's default config lacks, without which transformers builds no model; they
            were given as the class's releases state them.
        changes: Keys of the small config that were changed one at a time, where transformers builds the result.
        refused_changes: Changes that are refused by name.
        followed_wrongly: Keys whose change gives different parameters.
        differs_on_purpose: Keys that are followed here and that transformers ignores.
        nearest: The nearest class that is read, where this one is refused.
        note: Why it differs on purpose, or what else a reader must know.
    """

    name: Text
    model_type: Text
    group: Text
    status: Status
    small: Status
    cache: Literal["exact", "differs", "not run"]
    parameters: Count | None = None
    completed: tuple[Text, ...] = ()
    changes: Count = 0
    exact_changes: Count = 0
    refused_changes: Count = 0
    followed_wrongly: tuple[Text, ...] = ()
    differs_on_purpose: tuple[Text, ...] = ()
    nearest: Text | None = None
    note: LongText | None = None


class ClassCheck(CatalogFile):
    """The content of ``class_check.yaml``, which ``python -m experiments classes`` writes.

    Attributes:
        torch: The release that built the tensors.
        readers: Digest of the readers' sources with which every class was checked.
        classes: One entry per class and model type.
    """

    FILE = "class_check.yaml"
    transformers: Text
    torch: Text
    readers: Text | None = None
    classes: Annotated[tuple[CheckedClass, ...], Field(min_length=1, max_length=2000)]

    def counts(self) -> dict[str, int]:
        """Return how many classes have each status."""
        return dict(Counter(entry.status for entry in self.classes))
