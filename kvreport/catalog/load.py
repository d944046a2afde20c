"""The catalog: models, accelerators, formats, engines and the grid, from YAML files.

:func:`open_catalog` reads a file only when it is asked for, so that one estimate costs one model
and one accelerator. :func:`load_catalog` reads everything and reports all faults at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.base import Record
from kvreport.catalog.dependency_notes import EVERYTHING, again, note
from kvreport.catalog.engine import Engine
from kvreport.catalog.engine_classes import FILE as CLASSES
from kvreport.catalog.engine_classes import ClassLists
from kvreport.catalog.engine_records import EngineShelf
from kvreport.catalog.formats import Formats, Grid, KvFormat, WeightFormat
from kvreport.catalog.home_machines import HomeMachines, home_accelerators
from kvreport.catalog.joined_names import files_by_joined_name, joined
from kvreport.catalog.known_names import KnownNames
from kvreport.catalog.layouts import FAMILIES, GROUPS, Layouts, canonical, layout, regrouped
from kvreport.catalog.log_lines import log_lines
from kvreport.catalog.model import Model
from kvreport.catalog.release import (
    at_release,
    engine_for_version,
    newest_before,
    newest_read,
    oldest_computed,
    plain_release,
    refuse_far,
)
from kvreport.catalog.shelf import Shelf, read_if_there, read_once, spoken, validate, validated
from kvreport.catalog.support import Support
from kvreport.catalog.variant import FIELD, Variant, as_range, expand
from kvreport.errors import CatalogError, Fault, InputError, faults_of, shorten
from kvreport.resources import data_dir

__all__ = ["Catalog", "load_catalog", "open_catalog"]

R = TypeVar("R", bound=Record)
T = TypeVar("T")

RELEASED = "released"
"""The weight format that every model has: as its makers published it."""


_SLICE: Final = re.compile(
    r"(?:(?P<device>.+?)[-:/ ])?(?:mig[-_ ])?(?P<slice>[1-7]g\.[0-9]+gb)(?:[+.-](?:me(?:\.all)?|gfx))?",
    re.IGNORECASE,
)
"""A slice of a device: ``h100-1g.10gb``, ``H100:2g.20gb``, ``H200 MIG 1g.18gb+me``; without a device as Kubernetes names
its resource, ``nvidia.com/mig-1g.10gb``."""
_VGPU: Final = re.compile(
    r"(?:(?:NVIDIA|GRID) )?(?P<device>[A-Z][A-Z0-9]*?)[DX]?-(?P<gb>[0-9]{1,3})[ABCQ]", re.IGNORECASE
)
"""A virtual GPU as its guest's driver names it: ``NVIDIA A40-8Q``, ``GRID A100D-40C``."""
_RELEASE: Final = re.compile(
    r"(?P<family>[A-Za-z][\w.-]*?)(?:==|[- ])v?(?P<version>[0-9]+(?:\.[0-9]+)+)", re.ASCII
)
"""An engine with its release: ``vllm 0.15.1``, ``sglang==0.5.9``, ``vLLM v0.11``."""


def named_release(name: str) -> str:
    """The release that an engine's name asks for, however it is written; empty where it names none."""
    _, at, version = name.partition("@")
    found = None if at else _RELEASE.fullmatch(name.strip())
    return version if found is None else found["version"]


class Catalog:
    """The facts, by name. Everything is read when first asked for, and once."""

    def __init__(self, folder: Path) -> None:
        """List the files of ``folder`` without reading them."""
        self.folder = folder
        self._known: dict[tuple[str, str], Any] = {}
        self._models = _Models(folder / "models", lambda: self.weight_formats)
        self._accelerators = Shelf(
            folder / "accelerators", Accelerator, "accelerator", lambda record: (record.id, record.id)
        )
        self._engines = EngineShelf(folder / "engines", CLASSES)

    @cached_property
    def models(self) -> Mapping[str, Model]:
        """All models by id, in the order of their files."""
        return MappingProxyType({model.id: model for _, model in self._models.records()})

    @cached_property
    def accelerators(self) -> Mapping[str, Accelerator]:
        """All accelerators by id."""
        return MappingProxyType({record.id: record for _, record in self._accelerators.records()})

    @cached_property
    def engines(self) -> Mapping[str, Engine]:
        """All engines by name."""
        return MappingProxyType({engine.name: engine for _, engine in self._engines.records()})

    @cached_property
    def formats(self) -> Formats:
        """The content of ``formats.yaml``."""
        return self._file("formats.yaml", Formats)

    @cached_property
    def grid(self) -> Grid:
        """The content of ``grid.yaml``."""
        return self._file("grid.yaml", Grid)

    @cached_property
    def support(self) -> Support | None:
        """The content of ``support.yaml``; None for a catalog without one, where nothing is judged."""
        found = read_if_there(Support, self.folder, "support.yaml")
        return None if found is None else found.with_lists(ClassLists(self.folder))

    @cached_property
    def known_names(self) -> KnownNames | None:
        """Models without a record, with the reason; None for a catalog without the list."""
        return KnownNames.read(self.folder)

    @cached_property
    def weight_formats(self) -> Mapping[str, WeightFormat]:
        """Weight formats by name; look-up also knows every layout that its name states."""
        return Layouts({item.name: item for item in self.formats.weights})

    @cached_property
    def kv_formats(self) -> Mapping[str, KvFormat]:
        """KV formats by name."""
        return MappingProxyType({item.name: item for item in self.formats.kv})

    def _once(self, noun: str, name: str, find: Callable[[str], T]) -> T:
        """A record looked up once: names are short, and a look-up reads many files."""
        key = (noun, name)
        if key not in self._known:
            self._known[key] = find(name)
        found: T = self._known[key]
        return found

    def model(self, name: str) -> Model:
        """Find a model by id, slug, alias or the last part of its id, in any case.

        Raises:
            InputError: If there is none, or more than one; the message names the nearest.
        """
        note(self.folder, name)
        found = self._once("model", name, self._find_model)
        _used(self.folder, found)
        return found

    def known_model(self, name: str) -> Model | None:
        """Find a model as :meth:`model` does; None if there is none, or more than one.

        What is asked of every name that may be a model's, without the search for the nearest that an error tells.
        """
        note(self.folder, name)
        known = ("model", name) in self._known or len(self._models_named(name)) == 1
        return self.model(name) if known else None

    @cached_property
    def _joined(self) -> Mapping[str, frozenset[str]]:
        return files_by_joined_name(self._models.files)

    def _find_model(self, name: str) -> Model:
        known = [stem.replace("--", "/", 1) for stem in self._models.files]
        return _only(self._models_named(name), "model", name, known)

    def _models_named(self, name: str) -> Mapping[str, Model]:
        slug = name.replace("/", "--")
        exact = self._models.stem(slug)
        if exact is not None:
            return {exact: self._models.read(exact)}
        heard = spoken(name)
        matches = {
            model.id: model
            for model in self._models.mentioning(name)
            if heard in _names(model.id, model.slug, *model.aliases, *model.predecessor_ids)
        }
        if not matches and "/" not in name and "--" not in name:
            tails = [stem for stem in self._models.files if spoken(stem.rpartition("--")[2]) == heard]
            matches = {stem: self._models.read(stem) for stem in tails}
            if not matches:
                matches = {
                    model.id: model
                    for model in self._models.mentioning(name)
                    if heard in _names(*(one.rpartition("/")[2] for one in model.aliases if "/" in one))
                }
            if not matches:
                matches = {stem: self._models.read(stem) for stem in self._joined.get(joined(name), ())}
        return matches

    def accelerator(self, name: str) -> Accelerator:
        """Find an accelerator by slug or alias, in any case.

        Raises:
            InputError: If there is none, or more than one.
        """
        return self._once("accelerator", name, self._find_accelerator)

    def _find_accelerator(self, name: str) -> Accelerator:
        exact = self._accelerators.stem(name)
        if exact is not None:
            return self._accelerators.read(exact)
        part = _SLICE.fullmatch(name.strip())
        if part is not None and (part["device"] or "mig").lower() not in (
            "mig",
            "nvidia.com",
            "nvidia.com/mig",
        ):
            return self.accelerator(part["device"]).sliced(part["slice"])
        if part is not None:
            wanted = part["slice"].lower()
            having = [
                one.id for one in self.accelerators.values() if any(s.name == wanted for s in one.slices)
            ]
            named = f"{having[0]}:{wanted}" if having else "h100:1g.10gb"
            raise InputError(
                f"gpu: found {shorten(name)}, a slice without its device; allowed: {named}"
                + (f"; {', '.join(having)} have this slice" if len(having) > 1 else "")
            )
        vgpu = _VGPU.fullmatch(name.strip())
        if vgpu is not None:
            raise InputError(
                f"gpu: found {shorten(name)}, a vGPU of {vgpu['device']} with {vgpu['gb']} GiB less what its driver keeps; "
                f"allowed: --gpu {vgpu['device']} --memory SIZE, the memory that nvidia-smi lists in the guest"
            )
        if "+" in name:
            raise InputError(
                f"gpu: found {shorten(name)}; allowed here: one accelerator (kvreport size MODEL --gpu {shorten(name)} and "
                "kvreport estimate answer for unequal GPUs of one machine)"
            )
        heard = spoken(name)
        matches = {
            record.id: record
            for record in self._accelerators.mentioning(name)
            if heard in _names(record.id, record.name, *record.aliases)
        }
        if not matches:
            matches = {
                one.id: one
                for one in self.home_accelerators.values()
                if heard in _names(one.id, one.name, *one.aliases)
            }
        if not matches:
            matches = {one.id: one for one in self._in_computer(heard)}
        plain = _as_sold(name)
        if not matches and plain not in ("", name):
            try:
                return self.accelerator(plain)
            except InputError:
                pass
        return _only(matches, "accelerator", name, [*self._accelerators.files, *self.home_accelerators])

    def _in_computer(self, heard: str) -> Iterator[Accelerator]:
        """Chips of a computer that a spoken name begins with: ``mac-studio``, ``mac-studio-m3-ultra-512gb``."""
        listed = HomeMachines.read(self.folder)
        if listed is None:
            return
        for one in (*map(self.accelerator, listed.also), *self.home_accelerators.values()):
            for computer in map(spoken, listed.apple.computers_of(one)):
                rest = heard.removeprefix(computer).replace("gb", "").strip("-")
                if heard.startswith(computer) and {*rest.split("-")} <= {"", *one.id.split("-")}:
                    yield one

    @cached_property
    def local_first(self) -> frozenset[str]:
        """Ids of machines at home, about which a question without an engine is one for llama.cpp."""
        listed = HomeMachines.read(self.folder)
        return frozenset() if listed is None else frozenset((*listed.local_first, *self.home_accelerators))

    @property
    def home_accelerators(self) -> Mapping[str, Accelerator]:
        """Machines and cards of other memory sizes than the matrix has, by id: names find them, nothing lists them."""
        return home_accelerators(self.folder)

    def engine(self, name: str) -> Engine:
        """Find an engine by name or alias, in any case, or by version (``vllm@0.11.0``, ``vllm 0.11``, ``vllm==0.11.0``).

        Raises:
            InputError: If there is none, or more than one.
        """
        return self._once("engine", name, self._find_engine)

    def _find_engine(self, name: str) -> Engine:
        family, at, version = name.partition("@")
        if at and (
            (version == self.engine(family).version and self.engine(family).versions is None)
            or (self.engine(family).builds and re.fullmatch(r"b?[0-9]{2,6}", version, re.ASCII))
        ):
            return self.engine(family)
        if at:
            dated = engine_for_version(self.engines.values(), self.engine(family).family, version)
            oldest = oldest_computed(self.engines.values(), self.engine(family).family, version)
            if oldest is not None:
                newest = newest_read(self.engines.values(), self.engine(family).family)
                raise InputError(
                    f"engine: found {shorten(name)}; allowed: {oldest}, the oldest release that is computed, to {newest}"
                )
            if dated is None or not plain_release(version):
                family = self.engine(family).family
                known = [
                    f"{e.label} ({e.name})"
                    for e in self.engines.values()
                    if e.versions and e.family == family
                ]
                allowed = f"a version of {', '.join(known)}" if known else _only_version(self.engine(family))
                raise InputError(f"engine: found {shorten(name)}; allowed: {allowed}")
            refuse_far(self.engines.values(), dated.family, version)
            return at_release(dated, version)
        exact = self._engines.stem(name)
        if exact is not None:
            return self._engines.read(exact)
        heard = spoken(name)
        matches = {
            engine.name: engine
            for engine in self._engines.mentioning(name)
            if heard in _names(engine.name, *engine.aliases)
        }
        release = _RELEASE.fullmatch(name.strip())
        if not matches and release is not None:
            return self.engine(f"{release['family']}@{release['version']}")
        found = _only(matches, "engine", name, self._engines.names)
        if release is None:
            return found
        refuse_far(self.engines.values(), found.family, release["version"])
        return at_release(found, release["version"])

    def release_read(self, engine: Engine) -> str | None:
        """The newest release that was read, where the engine is of a later one; None otherwise."""
        return newest_before(self.engines.values(), engine)

    def weight_format(self, name: str) -> WeightFormat:
        """Find a weight format by name or alias, in any case.

        Raises:
            InputError: If there is none.
        """
        return self._once("weight_format", name, self._find_weight_format)

    def _find_weight_format(self, name: str) -> WeightFormat:
        matches = {
            item.name: item
            for item in self.formats.weights
            if spoken(name) in _names(item.name, *item.aliases)
        }
        stated = None if matches else self.weight_formats.get(canonical(spoken(name)))
        if stated is not None and stated.quantises:
            return stated
        return _only(matches, "weight format", name, [*self.weight_formats, RELEASED])

    def kv_format(self, name: str) -> KvFormat:
        """Find a KV format by name or alias, in any case.

        Raises:
            InputError: If there is none.
        """
        return self._once("kv_format", name, self._find_kv_format)

    def _find_kv_format(self, name: str) -> KvFormat:
        matches = {
            item.name: item for item in self.formats.kv if spoken(name) in _names(item.name, *item.aliases)
        }
        return _only(matches, "KV format", name, list(self.kv_formats))

    def faults(self) -> tuple[Fault, ...]:
        """Read the whole catalog and return everything that is wrong with it."""
        found = [
            *(
                fault
                for shelf in (self._models, self._accelerators, self._engines)
                for fault in shelf.faults()
            ),
            *faults_of(lambda: self.formats),
            *faults_of(lambda: self.grid),
            *faults_of(lambda: self.support),
            *faults_of(home_accelerators, self.folder),
            *self._classes(),
            *faults_of(lambda: self.known_names),
            *faults_of(log_lines, self.folder),
        ]
        if not found:
            # Names cannot be compared across files that could not all be read.
            found = [*self._clashes(), *self._listed(), *self._unknown_formats(), *self._unknown_support()]
        return tuple(found)

    def _file(self, name: str, record: type[R]) -> R:
        return validated(record, self.folder / name, name)

    def _listed(self) -> list[Fault]:
        """Return a fault for every model without a record, by the list, that has one, or whose source is not there."""
        names = self.known_names
        if names is None:
            return []
        recorded = [one.id for one in names.models if self.known_model(one.id) is not None]
        unknown = [one for one in names.models if one.source not in names.sources]
        sources = ", ".join(names.sources)
        return [
            *(
                Fault(KnownNames.FILE, one, "a model that has a record", "models without one")
                for one in recorded
            ),
            *(Fault(KnownNames.FILE, one.id, f"source {one.source}", f"one of {sources}") for one in unknown),
        ]

    def _clashes(self) -> list[Fault]:
        """Return a fault for every name that means two things of one kind."""
        found: list[Fault] = []
        entries: list[tuple[str, Iterable[tuple[str, tuple[str, ...]]]]] = [
            (
                "models",
                [
                    (m.slug, tuple(dict.fromkeys((m.id, *m.aliases, *m.predecessor_ids))))
                    for m in self.models.values()
                ],
            ),
            ("accelerators", [(a.id, (a.id, *a.aliases)) for a in self.accelerators.values()]),
            ("engines", [(e.name, (e.name, *e.aliases)) for e in self.engines.values()]),
            ("formats.yaml weights", [(f.name, (f.name, *f.aliases)) for f in self.formats.weights]),
            ("formats.yaml kv", [(f.name, (f.name, *f.aliases)) for f in self.formats.kv]),
        ]
        for kind, records in entries:
            owner: dict[str, str] = {}
            for stem, names in records:
                where = kind if kind.startswith("formats") else f"{kind}/{stem}.yaml"
                for name in names:
                    other = owner.setdefault(spoken(name), stem)
                    if other != stem or list(names).count(name) > 1:
                        allowed = f"a unique name; {other} already has this name"
                        found.append(Fault(where, "aliases", shorten(name), allowed))
        return found + list(self._taken_names())

    def _taken_names(self) -> Iterator[Fault]:
        """Yield a fault for every alias that is the last part of another id, whose weights are stored otherwise."""
        parts = {spoken(model.id.rpartition("/")[2]): model for model in self.models.values()}
        for model in self.models.values():
            for alias in model.aliases:
                other = parts.get(spoken(alias), model)
                if other.weight_format != model.weight_format:
                    allowed = (
                        f"a unique name; {other.id} has this name, and its weights are {other.weight_format}"
                    )
                    yield Fault(f"models/{model.slug}.yaml", "aliases", shorten(alias), allowed)

    def _unknown_formats(self) -> list[Fault]:
        found: list[Fault] = []
        grid = self.grid

        def look(where: str, field: str, name: str | None, known: Iterable[str]) -> None:
            if name is not None and name not in known:
                found.append(Fault(where, field, shorten(name), f"one of {', '.join(sorted(known))}"))

        weights, kv = self.weight_formats, self.kv_formats
        for model in self.models.values():
            where = f"models/{model.slug}.yaml"
            look(where, "weight_format", model.weight_format, weights)
            look(where, "kv_format", model.kv_format, kv)
            for name in sorted({row.released for row in model.weights if row.released is not None}):
                look(where, "weights.released", name, weights)
            for name in model.unsupported_by:
                look(
                    where, "unsupported_by", name, {*self.engines, *(e.family for e in self.engines.values())}
                )
        for name in grid.weight_formats:
            look("grid.yaml", "weight_formats", name, weights)
        for name in grid.kv_formats:
            look("grid.yaml", "kv_formats", name, {*kv, "auto"})
        look("grid.yaml", "engine", grid.engine, self.engines)
        return found

    def _classes(self) -> list[Fault]:
        """Return a fault for every list of classes that cannot be read or whose differences do not add up."""
        found: list[Fault] = []
        lists = ClassLists(self.folder)
        for path in sorted((self.folder / "engines").glob(f"*/{CLASSES}")):
            where = f"engines/{path.parent.name}/{CLASSES}"
            try:
                listed = lists.of(path.parent.name)
            except CatalogError as error:
                found += error.faults
                continue
            if listed is None:
                continue
            if listed.family != path.parent.name:
                found.append(Fault(where, "family", listed.family, f"the folder's name, {path.parent.name}"))
            found += [
                Fault(where, f"changes.digest of {release}", stated, f"{digest}, of what its lines add up to")
                for release, stated, digest in listed.wrong_digests()
            ]
        return found

    def _unknown_support(self) -> list[Fault]:
        """Return a fault for every format that a rule names and ``formats.yaml`` does not have."""
        found: list[Fault] = []
        support = self.support
        if support is None:
            return found
        known = {"weights": set(self.weight_formats), "kv": set(self.kv_formats)}
        for field, rules in (("weights", support.weights), ("kv", support.kv)):
            for name in sorted({name for rule in rules for name in rule.formats}):
                stated = field == "weights" and (
                    name in FAMILIES or (layout(name) or layout(f"{name}-g128")) is not None
                )
                if not stated and not any(
                    form == name or form.startswith(f"{name}-") for form in known[field]
                ):
                    allowed = f"one of {', '.join(sorted(known[field]))}, or how several begin"
                    found.append(Fault("support.yaml", f"{field}.formats", shorten(name), allowed))
        return found


class _Models(Shelf[Model]):
    """The models' files: each a model, or a quantized copy of one."""

    def __init__(self, folder: Path, formats: Callable[[], Mapping[str, WeightFormat]]) -> None:
        """List the folder; ``formats`` is asked when a copy is read."""
        super().__init__(folder, Model, "model", lambda model: (model.id, model.slug))
        self._formats = formats

    def read(self, stem: str) -> Model:
        """Return one file's record, read once, and note it."""
        note(self.folder.parent, stem, read=True)
        found = super().read(stem)
        _used(self.folder.parent, found)
        return found

    def records(self) -> Iterator[tuple[str, Model]]:
        """Yield all records, and note that."""
        note(self.folder.parent, EVERYTHING)
        return super().records()

    def _record(self, path: Path, where: str) -> Model:
        """The model of a file; that of a copy is made of what it was made from."""
        written = _written(path, where)
        if isinstance(written, Model):
            return written
        stem = written.quantized_from.replace("/", "--")
        if stem not in self.files:
            allowed = "the id of a model that has a file"
            raise CatalogError.of(where, FIELD, shorten(written.quantized_from), allowed)
        if _written(self.files[stem], self.where(stem)).quantized_from is not None:
            found = f"another copy, {written.quantized_from}"
            raise CatalogError.of(where, FIELD, found, "the model that was quantized")
        if written.mix_assumed:
            smallest = regrouped(written.weight_format, GROUPS[-1])
            return as_range(written, self.read(stem), self._formats(), most=smallest)
        return expand(written, self.read(stem), self._formats())


def _written(path: Path, where: str) -> Model | Variant:
    """What a model's file holds: the model, or how a copy differs from what it was made from."""

    def make(data: object) -> Model | Variant:
        copy = isinstance(data, dict) and FIELD in data and "layers" not in data
        return validate(Variant, data, where) if copy else validate(Model, data, where)

    return read_once(Model, path, where, make)


def open_catalog(path: Path | str | None = None) -> Catalog:
    """Open a catalog without reading it.

    Args:
        path: Its folder; None for the public one that comes with the package.

    Raises:
        InputError: If there is no such folder.
    """
    try:
        folder = data_dir() if path is None else Path(path)
    except FileNotFoundError as error:
        raise InputError(str(error)) from error
    if not folder.is_dir():
        raise InputError(f"catalog: found no folder {shorten(str(folder))}; allowed: the folder of a catalog")
    return _public(folder) if path is None else Catalog(folder)


@lru_cache(maxsize=2)
def _public(folder: Path) -> Catalog:
    """The catalog of the package, opened once per process: its files do not change under it."""
    return Catalog(folder)


def load_catalog(path: Path | str | None = None) -> Catalog:
    """Open a catalog, and read and check every record.

    Args:
        path: Folder of the catalog; None for the public catalog in the package.

    Returns:
        The catalog, with dictionaries of records: ``models``, ``accelerators``, ``engines`` and the formats.

    Raises:
        CatalogError: If records are faulty. The error lists all faults.
        InputError: If the folder does not exist.

    >>> load_catalog().model("Qwen/Qwen3-32B").name
    'Qwen3 32B'
    """
    return checked(open_catalog(data_dir() if path is None else path))


def checked(catalog: Catalog) -> Catalog:
    """Read all of a catalog and check it.

    Raises:
        CatalogError: With all faults at once.
    """
    faults = catalog.faults()
    if faults:
        raise CatalogError(faults)
    return catalog


def _used(folder: Path, model: Model) -> None:
    """Note a record, and the one that it is a copy of."""
    again(folder, model.slug)
    if model.quantized_from is not None:
        again(folder, model.quantized_from.replace("/", "--"))


_OF_DRIVERS: Final = re.compile(
    r"\((?:R|TM|C)\)|\b(?:NVIDIA|AMD|Apple|Intel|Tesla|GeForce|Radeon|Instinct|Blackwell|Generation|Edition|Graphics|OAM|VF|Workstation)\b",
    re.IGNORECASE,
)
"""Words of a device's name that a driver prints, such as ``NVIDIA H100 80GB HBM3``, and that tell no two devices apart."""


def _as_sold(name: str) -> str:
    """A device's name without the words that only drivers print, and with blanks for what file names have instead."""
    return " ".join(_OF_DRIVERS.sub(" ", name.replace("_", " ")).split())


def _names(*names: str) -> frozenset[str]:
    return frozenset(spoken(name) for name in names)


_LISTED: Final = 12
"""More names than these are not listed in an error: the first few of hundreds help nobody."""
_LISTS: Final = {"model": "models", "accelerator": "gpus", "engine": "engines"}


_NEAREST: Final = 4
"""Names that an error proposes."""

_FAMILY: Final = re.compile(r"[a-z]+|[0-9]+")
_ALIKE: Final = 0.6
"""How much of the first word two names must share."""
_TUNED: Final = frozenset({"instruct", "chat", "it", "base", "hf"})
"""Words that people add to a name or leave out."""

_WORD: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:(?:gb|[bkm])\b)?|[a-z]+")


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name))


def _nearest(name: str, known: list[str]) -> list[str]:
    """Names that a person may have meant, at most four.

    Those with every word that was written come first, then those that begin words with them, then those that begin as the
    name does ("h1000"), then those with the
    words that any name has ("macbook m4 max"), then the closest spelling. Among equals a name comes first that others are
    copies of, by how many contain it, then the shortest.

    >>> _nearest("h10", ["a10", "h100-sxm-80gb", "mi100"])[0]
    'h100-sxm-80gb'
    >>> _nearest("h1000", ["mi100", "h100-sxm-80gb", "a10"])[0]
    'h100-sxm-80gb'
    """
    # Compared without case, and by the last part of an id too: people leave the organisation out.
    spelled = {candidate.lower(): candidate for candidate in known}
    tails = {candidate.lower().rpartition("/")[2]: candidate for candidate in known}
    asked = name.lower()[:200]
    # Under another organization it is probably a copy: its own name says which model it is.
    said = _words(asked.rpartition("/")[2])
    words = {tail: _words(tail) for tail in tails}
    every = frozenset().union(*words.values())
    heard = frozenset(word for word in said if word in every)
    if not any(word.isalpha() for word in heard - _TUNED):
        heard = frozenset()  # "2" and "base" say nothing of a family
    shared = {
        tail: next((n for n in range(min(len(asked), len(tail)), 0, -1) if asked[:n] == tail[:n]), 0)
        for tail in tails
    }
    longest = max(shared.values(), default=0)
    ranked = [
        [tail for tail, of in words.items() if said - of <= _TUNED and of and of <= said],
        [tail for tail, of in words.items() if said and said <= of],
        [
            tail
            for tail, of in words.items()
            if said and all(any(one.startswith(word) for one in of) for word in said)
        ],
        [tail for tail in tails if longest == shared[tail] >= max(4, len(asked) - 2)],
        [tail for tail, of in words.items() if len(heard) > 1 and heard <= of],
    ]
    near = [tails[tail] for group in ranked for tail in _usual_first(group, list(tails))]
    close = [
        match
        for match in get_close_matches(asked, spelled | tails, n=2 * _NEAREST, cutoff=0.5)
        if _begins_alike(asked, match)
    ]
    return list(dict.fromkeys([*near, *((spelled | tails)[match] for match in close)]))[:_NEAREST]


def _begins_alike(one: str, other: str) -> bool:
    """Whether the families of two names are spelled alike: the rest of a name, as "large" and "7b", is that of many.

    >>> (
    ...     _begins_alike("mistal-7b", "mistralai/mistral-7b-v0.1"),
    ...     _begins_alike("clip-vit-large", "whisper-large-v3"),
    ... )
    (True, False)
    """
    first, second = (_FAMILY.match(name.rpartition("/")[2]) for name in (one, other))
    if first is None or second is None:
        return True
    return SequenceMatcher(None, first[0], second[0]).ratio() >= _ALIKE


def _usual_first(names: list[str], every: list[str]) -> list[str]:
    """Names that others are copies of first, by how many contain them; then the fewest words, then the shortest."""
    copies = {one: sum(one in other for other in every) - 1 for one in names}
    is_copy = {one: any(other in one for other in every if other != one) for one in names}
    return sorted(names, key=lambda one: (is_copy[one], -copies[one], len(_words(one)), len(one)))


def _only_version(engine: Engine) -> str:
    """The versions of an engine without a range of them."""
    such = "a build, such as b9849, or " if engine.builds else ""
    return f"{such}{engine.name} alone, which is {engine.version}"


def _only(matches: Mapping[str, R], noun: str, name: str, known: list[str]) -> R:
    if len(matches) == 1:
        return next(iter(matches.values()))
    if matches:
        raise InputError(f"{noun} {shorten(name)}: means {', '.join(sorted(matches))}; allowed: one of these")
    near = _nearest(name, known)
    if near:
        hint = f"did you mean {', '.join(near)}?"
    elif len(known) > _LISTED:
        hint = f"kvreport list {_LISTS.get(noun, 'formats')} prints all {len(known):,}"
    else:
        hint = f"one of {', '.join(sorted(known))}" if known else "none: the catalog is empty"
    raise InputError(f"{noun}: found {shorten(name)}; allowed: a known name; {hint}")
