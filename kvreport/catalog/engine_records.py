"""Records of engines out of a family's rules: ranges of releases, each with the values of the release that it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kvreport.catalog.engine import Engine
from kvreport.catalog.release import (
    RULES,
    Numbers,
    RulesFile,
    public_rules,
    read_rules,
    value_at,
)
from kvreport.catalog.shelf import Shelf, spoken, validate
from kvreport.errors import CatalogError, Fault, faults_of
from kvreport.resources import data_dir

FIELDS: Final = frozenset(Engine.model_fields)


def dated_fields(rules: RulesFile) -> dict[str, Mapping[Numbers, Any]]:
    """The fields of a record that a release decides, by release: rules that are named like one, and further fields."""
    found: dict[str, Mapping[Numbers, Any]] = {
        rule.rule: rule.by_release() for rule in rules.rules if rule.rule in FIELDS
    }
    return found | {field.field: field.by_release() for field in rules.fields}


def records_of(rules: RulesFile, where: str) -> Iterator[Engine]:
    """Every range of a family's releases as the record of the release that it stands for, oldest first.

    Raises:
        CatalogError: If a record does not hold together.
    """
    ends = [*(one.first for one in rules.records[1:]), None][: len(rules.records)]
    dated = dated_fields(rules)
    constants = {rule.rule: rule.by_release() for rule in rules.rules if rule.is_constant(FIELDS)}
    common: Any = rules.engine
    for record, end in zip(rules.records, ends, strict=True):
        measured = {name: value_at(values, record.numbers) for name, values in constants.items()}
        stated = {
            **common,
            **{name: value_at(values, record.numbers) for name, values in dated.items()},
            "coefficients": {**common.get("coefficients", {}), **measured},
            "name": record.name,
            "label": record.label,
            "family": rules.family,
            "version": record.version,
            "versions": [record.first, end],
        }
        yield validate(Engine, stated, where)


@lru_cache(maxsize=1024)
def fields_at(family: str, numbers: Numbers) -> Mapping[str, Any]:
    """The fields of a record that a release of a family decides, by the package's own rules.

    Args:
        family: For instance ``vllm``.
        numbers: The release; empty for the newest.
    """
    rules = public_rules(family)
    if rules is None or not rules.records:
        return MappingProxyType({})
    record = (
        rules.records[-1].model_copy(update={"version": ".".join(map(str, numbers))})
        if numbers
        else rules.records[-1]
    )
    (engine,) = records_of(rules.model_copy(update={"records": (record,)}), family)
    return MappingProxyType({name: getattr(engine, name) for name in dated_fields(rules)})


class EngineShelf(Shelf[Engine]):
    """Records of engines: files of their own, and those that a family's rules make, which a file of the same name replaces."""

    def __init__(self, folder: Path, beside: str) -> None:
        """List the folder; nothing is read yet.

        Args:
            folder: Where the files are.
            beside: Name of a file that a family's folder may have where it has no rules.
        """
        super().__init__(
            folder, Engine, "engine", lambda engine: (engine.name, engine.name), beside=(beside, RULES)
        )
        self._families = {path.parent.name: path for path in sorted(folder.glob(f"*/{RULES}"))}
        self._made: dict[str, dict[str, Engine]] = {}

    def _of(self, family: str) -> dict[str, Engine]:
        if family not in self._made:
            where = f"{self.folder.name}/{family}/{RULES}"
            public = self.folder.parent.resolve() == data_dir().resolve()
            rules = public_rules(family) if public else read_rules(self.folder.parent, family)
            if rules is not None and rules.family != family:
                raise CatalogError.of(where, "family", rules.family, f"the folder's name, {family}")
            made = {} if rules is None else {engine.name: engine for engine in records_of(rules, where)}
            self._made[family] = made
        return self._made[family]

    @property
    def names(self) -> list[str]:
        """The names of all records, in the order of the files that they would be."""
        made = {name for family in self._families for name in self._of(family)}
        return sorted({*self.files, *made}, key="{}.yaml".format)

    def stem(self, name: str) -> str | None:
        """The name of the one record that is heard like this; None if there is none."""
        found = super().stem(name)
        if found is not None:
            return found
        heard = spoken(name)
        return next((made for made in self._like(heard) if spoken(made) == heard), None)

    def _like(self, name: str) -> dict[str, Engine]:
        """The records of the families that a name begins with; a record is named after its family."""
        families = [one for one in self._families if name.startswith(one.replace("_", "-"))]
        return {stem: engine for family in families for stem, engine in self._of(family).items()}

    def read(self, stem: str) -> Engine:
        """Return one record, read once.

        Raises:
            CatalogError: With every fault of its file.
        """
        if stem not in self._read and stem not in self.files:
            self._read[stem] = self._like(stem)[stem]
        return super().read(stem) if stem not in self._read else self._read[stem]

    def records(self) -> Iterator[tuple[str, Engine]]:
        """Yield names and records in order."""
        for name in self.names:
            yield name, self.read(name)

    def faults(self) -> list[Fault]:
        """Read everything and return what is wrong with it."""
        return [*super().faults(), *(one for family in self._families for one in faults_of(self._of, family))]
