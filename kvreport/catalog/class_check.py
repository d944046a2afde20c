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
    """One class."""

    name: Text
    model_type: Text
    group: Text  # The list of transformers it stands in.
    # The default config's parameters: equal, different, refused by us, or not built by transformers.
    status: Status
    small: Status  # The same of the config made small.
    # Cache bytes of the small model, run on a CPU at two lengths.
    cache: Literal["exact", "differs", "not run"]
    # Parameters that transformers allocates for the default config, where it builds.
    parameters: Count | None = None
    # Keys that the class's default config lacks, without which transformers builds no model; they were given
    # as the class's releases state them.
    completed: tuple[Text, ...] = ()
    # Keys of the small config that were changed one at a time, where transformers builds the result.
    changes: Count = 0
    exact_changes: Count = 0
    refused_changes: Count = 0  # Changes that are refused by name.
    followed_wrongly: tuple[Text, ...] = ()  # Keys whose change gives different parameters.
    differs_on_purpose: tuple[Text, ...] = ()  # Keys that are followed here and that transformers ignores.
    nearest: Text | None = None  # The nearest class that is read, where this one is refused.
    note: LongText | None = None  # Why it differs on purpose, or what else a reader must know.


class ClassCheck(CatalogFile):
    """The content of ``class_check.yaml``, which ``python -m experiments classes`` writes."""

    FILE = "class_check.yaml"
    transformers: Text
    torch: Text  # The release that built the tensors.
    readers: Text | None = None  # Digest of the readers' sources with which every class was checked.
    # One entry per class and model type.
    classes: Annotated[tuple[CheckedClass, ...], Field(min_length=1, max_length=2000)]

    def counts(self) -> dict[str, int]:
        """Return how many classes have each status."""
        return dict(Counter(entry.status for entry in self.classes))
