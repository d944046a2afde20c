"""Take what can be taken without judgment of new models and releases, as the draft of a change.

    make sync SYNC="--recipes FOLDER --configs FOLDER --write"
    python scripts/sync.py [--recipes FOLDER|ADDRESS] [--configs FOLDER]... [--packages FOLDER] [--data FOLDER] [--write]

- Releases of the engines and of transformers that nobody read: their classes go into ``data/engines/*/classes.yaml``,
  and the draft of ``make follow`` is made for each.
- Models of vLLM's recipes, of transformers' documentation, of llmfit's list and of Xinference's registry that the catalog
  does not know: a record is written where a file states the dimensions and the total is the published one. A file is a ``config.json`` below
  ``--configs`` or on the Hub, llmfit's list for dense decoders without windows, or the defaults of a config class whose
  documentation names this checkpoint. No dimension is guessed.

Packages are downloaded and their Python files are parsed. Only transformers' config classes run, in an environment of
their own (``class_defaults.py``). The draft, Markdown on standard output, has the records, the difference in capacity,
and what needs a person with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import follow
import read_engine_classes

from kvreport.accounting.weights import released_bytes
from kvreport.architectures import read_config_report
from kvreport.architectures.hub import fetch
from kvreport.architectures.hub_client import NoConnectionError
from kvreport.architectures.keys import read_json
from kvreport.architectures.not_a_config import config_file
from kvreport.architectures.repository_names import quantized_name
from kvreport.architectures.safetensors import Witness, read_witness
from kvreport.catalog.base import Evidence, Source
from kvreport.catalog.dump import dump_model
from kvreport.catalog.engine_classes import FILE, FOLDER, ClassLists, compressed
from kvreport.catalog.engine_classes import written as engine_classes
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.load import Catalog, load_catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import version_number
from kvreport.catalog.strict_files import read_yaml
from kvreport.cli import main as kvreport
from kvreport.errors import CatalogError, InputError
from kvreport.estimation.named_copies import by_name

ROOT: Final = Path(__file__).resolve().parents[1]
RECIPES: Final = "https://github.com/vllm-project/recipes"
DISTRIBUTIONS: Final = {"transformers": "transformers", "vllm": "vllm", "sglang": "sglang"}
"""What is asked for new releases, transformers first: lists of the others name its newest."""
CONFIG_BYTES: Final = 1 << 20
NEAR: Final = 0.02
"""How far a total may be from one that is stated with two or three digits, besides their rounding."""
EXACT: Final = 1e-4
"""How far a total may be from a count. Of the classes that fill in the layers, those with other layers are further off."""
BYTES_NEAR: Final = 0.002
"""How far the bytes may be from a repository's index, as the test of published totals has it."""
LIKED: Final = 300
"""Likes from which a model of llmfit's list is looked for,"""
FIRST_LIKED: Final = 10
"""or from this many where an engine serves its class and the catalog has no model of it,"""
LIKED_DAYS: Final = 92
"""where it is not older than the newest of the list by more days. The same holds for entries of Xinference's registry."""
LISTED: Final = {"llama": "LlamaForCausalLM", "k2_horizon": "K2HorizonForCausalLM"}
"""Dense decoders without windows, whose dimensions llmfit's list states, by its names for classes."""
_LISTED_KEYS: Final = {
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "hidden_size": "hidden_size",
    "vocab_size": "vocab_size",
    "moe_intermediate_size": "intermediate_size",
    "context_length": "max_position_embeddings",
}
"""Keys of llmfit's list, and of a config."""
_ID: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_NAMED: Final = re.compile(r"\s*- \{id: ([^,]+),")
"""A model of ``known_names.yaml``, which has one on each line."""
_COUNT: Final = re.compile(r"~?\s*([0-9]+(?:\.[0-9]+)?)\s*([MBT])\b", re.IGNORECASE)
_UNITS: Final = {"M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Wanted:
    """A model that somebody publishes commands for."""

    id: str
    stated: str = ""  # Its parameters as they are published, ``31B``; empty where they are not.
    context: int | None = None  # The context that is published, in tokens.
    day: str = ""  # The day that it was added.
    source: Source | None = None  # Where all that stands.
    precision: str = ""  # The stored format that is published, as a recipe has it.
    parameters: int | None = None  # Its parameters to the last one, where somebody counted them.
    counted: Source | None = None  # Where that count stands.
    liked: bool = False  # Whether many like it on the Hub.
    config: Mapping[str, Any] | None = None  # What ``config.json`` would have, where a list states it.


@dataclass(frozen=True)
class Found:
    """Dimensions of a model in a file."""

    config: dict[str, Any] | Path  # ``config.json``, or what it would have.
    source: Source  # The file.
    open: tuple[str, ...] = ()  # Windows that a class leaves open, so that nobody knows the checkpoint's.
    filled: tuple[
        str, ...
    ] = ()  # Lists of layers that a class makes by code, where the checkpoint may have others.
    is_class: bool = (
        False  # Whether it is a class, whose context and stored format may not be the checkpoint's.
    )
    witness: Witness | None = None  # What the repository's index says of the weights.


@dataclass
class Draft:
    """What a run made, and what it leaves to a person."""

    # The models, with the figures that were compared.
    records: list[tuple[Model, str]] = field(default_factory=list)
    releases: list[str] = field(default_factory=list)  # Releases that were read.
    person: dict[str, list[str]] = field(default_factory=dict)  # What needs judgment, by the reason.
    notes: list[str] = field(default_factory=list)  # What a reader of the draft must know.
    follow: list[str] = field(default_factory=list)  # Drafts of ``make follow``.


# --- where dimensions stand ---------------------------------------------------------------------------


class ClassDefaults:
    """The defaults of transformers' config classes, by the checkpoint that their documentation names."""

    def __init__(
        self, classes: Mapping[str, Any], package: Path, release: str, known: Container[str]
    ) -> None:
        """Take what ``class_defaults.py`` printed of an unpacked package; ``known`` are classes of earlier releases."""
        self._release, self._classes = release, classes
        auto = package / "transformers" / "models" / "auto" / "modeling_auto.py"
        tables = read_engine_classes.tables(read_engine_classes.parsed(auto))
        self._served: dict[str, str] = {}
        for table in read_engine_classes.GENERATORS[1:]:
            for model_type, value in tables.get(table, {}).items():
                self._served.setdefault(model_type, (read_engine_classes.texts(value) or [""])[0])
        self.new = [
            id_
            for id_, made in classes.items()
            if (serves := self._serves(made)) and serves not in known and _ID.fullmatch(id_)
        ]

    def _serves(self, made: Mapping[str, Any]) -> str | None:
        return self._served.get(str(made.get("config", {}).get("model_type")))

    def find(self, id_: str) -> Found | str | None:
        """Return the defaults that a checkpoint's documentation stands for, the reason why not, or None."""
        made = self._classes.get(id_)
        if made is None:
            return None
        if "error" in made:
            return f"its config class cannot be made ({made['error']})"
        if not (serves := self._serves(made)):
            return f"transformers {self._release} has no class that writes text for {made['class']}"
        title = (
            f"transformers {self._release}, {made['path']}: the defaults of {made['class']}, whose documentation names "
            "this checkpoint"
        )
        filled = tuple(made["filled"])
        if filled:
            title += f"; its code fills in {', '.join(name.rpartition('.')[2] for name in filled)}"
        source = Source(covers=("layers",), title=title, revision=self._release, evidence="derived")
        config = {**made["config"], "architectures": [serves]}
        return Found(config, source, tuple(made["open"]), filled, is_class=True)


def class_defaults(release: str, packages: Path) -> dict[str, Any]:
    """Return what the config classes of a release of transformers make, run in an environment of their own.

    Raises:
        SystemExit: If the release cannot be installed, or its classes do not run.
    """
    place = packages / f"run-transformers-{release}"
    python = place / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    said = ""
    for words in (
        ["-m", "pip", "install", "--quiet", f"transformers=={release}"],
        [str(Path(__file__).parent / "class_defaults.py")],
    ):
        done = subprocess.run([str(python), *words], capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(place)
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise SystemExit(f"the config classes of transformers {release} were not run: {last}")
        said = done.stdout
    classes: dict[str, Any] = json.loads(said)
    return classes


class Hub:
    """``config.json`` of a repository by its id, with what its index says of the weights."""

    def __init__(self) -> None:
        """Ask nothing yet."""
        self.silent = ""  # Why the Hub is not asked any more.

    def find(self, id_: str) -> Found | str | None:
        """Return the config of a repository, the reason why not, or None where the Hub does not answer."""
        if self.silent:
            return None
        try:
            repository = fetch(id_)
        except NoConnectionError as error:
            self.silent = str(error)
            return None
        except InputError as error:
            return str(error)
        config = config_file(repository.folder)
        title = f"{config.name} of {id_}"
        source = Source(
            covers=("layers",),
            title=title,
            url=repository.url,
            revision=repository.revision,
            evidence="verbatim",
        )
        return Found(config, source, witness=read_witness(repository.folder))


class ConfigFiles:
    """Copies of ``config.json`` below some folders, by the id that their path or they themselves state."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """List the files without reading them."""
        self._files: dict[str, tuple[Path, Path]] = {}
        for folder in folders:
            for path in sorted(folder.rglob("*config.json")):
                if path.is_file() and path.stat().st_size <= CONFIG_BYTES:
                    for name in _ids(path):
                        self._files.setdefault(name.lower(), (path, folder))

    def find(self, id_: str) -> Found | str | None:
        """Return the config that stands under a model's id, the reason why not, or None."""
        path, folder = self._files.get(id_.lower(), (None, None))
        if path is None or folder is None:
            return None
        try:
            config = read_json(path, path.name)
        except InputError as error:
            return str(error)
        return Found(dict(config), source_of(path, folder, ("layers",), "config.json copy in", "derived"))


class ListedDimensions:
    """Dimensions in llmfit's list. Its count says whether embedding and output head are one matrix."""

    def __init__(self, listed: Mapping[str, Wanted]) -> None:
        """Take what :func:`listed` returned."""
        self._listed = listed

    def find(self, id_: str) -> Found | str | None:
        """Return the dimensions with which a model has exactly the parameters that the list counts, the reason why not, or None."""
        one = self._listed.get(id_)
        if one is None or one.config is None or one.counted is None:
            return None
        for tied in (False, True):
            config = {**one.config, "tie_word_embeddings": tied}
            model = read_config_report(config, id=id_, assume_defaults=True).model
            if sum(row.parameters for row in model.weights) == one.parameters:
                title = f"{one.counted.title}: layers, widths and heads"
                return Found(config, one.counted.model_copy(update={"title": title, "evidence": "derived"}))
        return "the dimensions of llmfit's list make other parameters than it counts"


def _ids(path: Path) -> Iterator[str]:
    """Yield the ids that a path may state: ``ORG--NAME_config.json``, ``ORG--NAME/config.json``, ``ORG/NAME/config.json``."""
    stem = path.name.removesuffix(".json").removesuffix("config").rstrip("_-.")
    for name in (stem, path.parent.name):
        if name.count("--") == 1:
            yield name.replace("--", "/")
    if not stem and path.parent.parent.name:
        yield f"{path.parent.parent.name}/{path.parent.name}"


def source_of(path: Path, folder: Path, covers: tuple[str, ...], what: str, evidence: Evidence) -> Source:
    """Return the source of a file: the repository, commit and path of its checkout, or the path in the folder."""
    said = {
        name: _git(folder, *words)
        for name, words in {
            "top": ("rev-parse", "--show-toplevel"),
            "commit": ("rev-parse", "HEAD"),
            "remote": ("remote", "get-url", "origin"),
        }.items()
    }
    if not all(said.values()):
        return Source(
            covers=covers,
            title=f"{what} {folder.name}: {path.relative_to(folder).as_posix()}",
            evidence=evidence,
        )
    inside = path.resolve().relative_to(said["top"]).as_posix()
    at = said["remote"].removesuffix(".git")
    url = f"{at}/blob/{said['commit']}/{inside}" if at.startswith("https://") else None
    name = "/".join(at.split("/")[-2:])
    return Source(
        covers=covers, title=f"{what} {name}, {inside}", url=url, revision=said["commit"], evidence=evidence
    )


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


# --- what is wanted -----------------------------------------------------------------------------------


def recipes(folder: Path) -> list[Wanted]:
    """Return the models of a checkout of vLLM's recipes, their variants after them."""
    wanted: list[Wanted] = []
    for path in sorted((folder / "models").rglob("*.yaml")):
        try:
            read: Any = read_yaml(path, path.name)
            model, meta = read["model"], read["meta"]
            variants = [one for one in (read.get("variants") or {}).values() if one.get("model_id")]
            id_ = str(model["model_id"])
        except (CatalogError, KeyError, TypeError, AttributeError):
            continue
        context = model.get("context_length")
        variant = (read.get("variants") or {}).get("default") or {}
        one = Wanted(
            id_,
            str(model.get("parameter_count", "")),
            context if isinstance(context, int) else None,
            _day(meta.get("date_added")),
            source_of(path, folder, ("release",), "vLLM recipes:", "secondary"),
            str(variant.get("precision", "")),
        )
        wanted += [one, *(replace(one, id=str(made["model_id"]), precision="") for made in variants)]
    return list({one.id: one for one in reversed(wanted) if _ID.fullmatch(one.id)}.values())[::-1]


def _day(said: object) -> str:
    return str(said) if re.fullmatch(r"20\d\d-\d\d-\d\d", str(said)) else ""


def _newest(distribution: str, packages: Path, draft: Draft) -> tuple[Path, str] | None:
    """Return the unpacked newest release of a package that lists models, and its version."""
    if not (releases := published(distribution)):
        draft.notes.append(f"{distribution}: the registry could not be asked for releases.")
        return None
    try:
        return follow.bring(distribution, releases[-1], packages).folder, releases[-1]
    except SystemExit as error:
        draft.notes.append(f"{distribution} {releases[-1]} was not looked at: {error}.")
        return None


def registered(packages: Path, draft: Draft) -> list[Wanted]:
    """Return the ids that Xinference's registry added or changed lately, without copies in other formats."""
    if (newest := _newest("xinference", packages, draft)) is None:
        return []
    entries: list[tuple[float, str]] = []
    for path in sorted(newest[0].glob("xinference/model/*/models/*.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            made = json.loads(path.read_text(encoding="utf-8"))
            for entry in made if isinstance(made, list) else [made]:
                entries += [
                    (float(entry["updated_at"]), str(spec["model_src"]["huggingface"]["model_id"]))
                    for spec in entry["model_specs"]
                    if "huggingface" in spec["model_src"] and spec["model_format"] in ("pytorch", "fp8")
                ]
    since = max((at for at, _ in entries), default=0) - LIKED_DAYS * 24 * 3600
    ids = (id_ for at, id_ in entries if at >= since and _ID.fullmatch(id_) and quantized_name(id_) is None)
    return [Wanted(id_) for id_ in dict.fromkeys(ids)]


def first_types(data: Path, catalog: Catalog) -> set[str]:
    """Return the model types, in letters and digits, of classes that an engine serves and no model of the catalog has."""

    def types(names: Iterable[str | None]) -> set[str]:
        return {_type(re.split("For[A-Z]|Model", name)[0]) for name in names if name}

    lists = [served for family in DISTRIBUTIONS if (served := ClassLists(data).of(family)) is not None]
    named = {name for one in lists for name in one.states()[-1].own}
    return types(named) - types(one.architecture for one in catalog.models.values())


def _type(name: object) -> str:
    return re.sub("[^a-z0-9]", "", str(name).lower()).removesuffix("text")


def listed(packages: Path, draft: Draft, first: Container[str] = ()) -> dict[str, Wanted]:
    """Return the models of llmfit's list by their id: parameters, context and day as the Hub counts them.

    The package is a program with the list inside, as JSON. ``first`` are the types of :func:`first_types`.
    """
    if (package := _newest("llmfit", packages, draft)) is None:
        return {}
    folder, release = package
    found: dict[str, Wanted] = {}
    rows = [
        row
        for path in folder.glob("*.data/scripts/llmfit")
        for row in _rows(path.read_bytes())
        if _ID.fullmatch(str(row.get("name"))) and isinstance(row.get("parameters_raw"), int)
    ]
    newest = max((_day(row.get("release_date")) for row in rows), default="")
    since = str(date.fromisoformat(newest) - timedelta(LIKED_DAYS)) if newest else ""
    for row in rows:
        id_, context, day = str(row["name"]), row.get("context_length"), _day(row.get("release_date"))
        title = f"llmfit {release}, list of models: {id_}"
        likes = FIRST_LIKED if _type(row.get("architecture")) in first else LIKED
        found[id_] = Wanted(
            id_,
            context=context if isinstance(context, int) else None,
            day=day,
            parameters=row["parameters_raw"],
            counted=Source(covers=("weights",), title=title, revision=release, evidence="secondary"),
            liked=day >= since and isinstance(row.get("hf_likes"), int) and row["hf_likes"] >= likes,
            config=_listed_config(row),
        )
    return found


def _listed_config(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what ``config.json`` would have, if the list states all dimensions of the class."""
    config = {name: row[key] for key, name in _LISTED_KEYS.items() if isinstance(row.get(key), int)}
    if row.get("architecture") not in LISTED or len(config) < len(_LISTED_KEYS):
        return None
    return {"architectures": [LISTED[row["architecture"]]], "model_type": row["architecture"], **config}


def _rows(program: bytes) -> list[dict[str, Any]]:
    """Return the longest JSON list of named objects in a program."""
    rows: list[dict[str, Any]] = []
    for start in re.finditer(rb'\[\s*\{\s*"name":', program):
        end = program.find(b"\x00", start.start())
        text = program[start.start() : end if end > 0 else None].decode("utf-8", "replace")
        with contextlib.suppress(ValueError, RecursionError):
            made, _ = json.JSONDecoder().raw_decode(text)
            rows = max(rows, [row for row in made if isinstance(row, dict)], key=len)
    return rows


def agrees(total: int, stated: str) -> bool:
    """Say whether a count is the one that is published, to its rounding.

    >>> agrees(30_970_000_000, "31B"), agrees(28_000_000_000, "31B"), agrees(945_000_000, "0.9B")
    (True, False, True)
    """
    said = _COUNT.search(stated)
    if said is None:
        return False
    unit = _UNITS[said[2].upper()]
    figure = float(said[1]) * unit
    half = unit * 10 ** -len(said[1].partition(".")[2]) / 2
    near: bool = abs(total - figure) <= max(half, NEAR * figure)
    return near


def record(wanted: Wanted, found: Found, formats: Mapping[str, WeightFormat]) -> tuple[Model, str] | str:
    """Return the record that a file makes and the comparison with what is published, or why a person is needed."""
    if found.open:
        return f"the class leaves {', '.join(found.open)} open"
    covers = ("layers", "weights", "weight_format", "kv_format", "context_tokens")
    sources = [found.source.model_copy(update={"covers": covers})]
    try:
        read = read_config_report(found.config, id=wanted.id, assume_defaults=True)
        compared = _compared(wanted, found, read.model, formats)
    except InputError as error:
        return f"not read: {error}"
    if isinstance(compared, str):
        return compared
    said, counted = compared
    if found.is_class and read.model.weight_format != wanted.precision:
        return f"read as {read.model.weight_format}, stored format published: {wanted.precision or 'nothing'}"
    if counted is not None:
        sources.append(counted)
    update: dict[str, Any] = {}
    if wanted.day:
        update["release"] = wanted.day[:7]
        if wanted.source is not None:
            title = f"{wanted.source.title}, added {wanted.day}, states {wanted.stated} parameters"
            sources.append(wanted.source.model_copy(update={"title": title}))
        elif counted is not None:
            sources[-1] = counted.model_copy(update={"covers": (*counted.covers, "release")})
    if found.is_class and not wanted.context:
        return "the context of the checkpoint is not published"
    if wanted.context and wanted.context != read.model.context_tokens:
        if wanted.context > read.model.context_tokens:
            return f"{read.model.context_tokens:,} tokens in the file, published: {wanted.context:,}"
        update["context_tokens"] = wanted.context
    model = read.model.model_copy(update={**update, "sources": tuple(sources)})
    unread = f"; keys that were not used: {', '.join(read.not_read[:6])}" if read.not_read else ""
    return model, f"{said}{unread}"


def _compared(
    wanted: Wanted, found: Found, model: Model, formats: Mapping[str, WeightFormat]
) -> tuple[str, Source | None] | str:
    """Return what was compared with a published total, with its source, or the difference."""
    total = sum(row.parameters for row in model.weights)
    if found.witness is not None:
        size, stated = released_bytes(model, formats), found.witness.total
        if abs(size - stated) > BYTES_NEAR * stated:
            return f"{size:,} bytes by its dimensions, the repository's index: {stated:,}"
        return f"{total / 1e9:.3g}B in {size:,} bytes, the repository's index: {stated:,}", None
    if wanted.parameters is not None and wanted.counted is not None:
        if abs(total - wanted.parameters) > EXACT * wanted.parameters:
            return f"{total:,} parameters by its dimensions, counted: {wanted.parameters:,}"
        title = f"{wanted.counted.title}: {wanted.parameters:,} parameters"
        return f"{total:,} parameters, counted: {wanted.parameters:,}", wanted.counted.model_copy(
            update={"title": title}
        )
    if not agrees(total, wanted.stated):
        return f"{total / 1e9:.2f}B by its dimensions, published: {wanted.stated or 'nothing'}"
    if found.filled:
        return f"the class fills in {', '.join(found.filled)}, and nobody counted the parameters"
    return f"{total / 1e9:.3g}B, published: {wanted.stated}", None


# --- releases -----------------------------------------------------------------------------------------


def published(distribution: str) -> list[str]:
    """Return the releases that the registry has, oldest first; none where it cannot be asked."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", distribution]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    plain = re.findall(r"(?<![\w.])\d+(?:\.\d+)+(?![\w.])", said[1]) if said else []
    return sorted(plain, key=version_number)


def read_releases(data: Path) -> dict[str, list[str]]:
    """Return the releases whose classes were read, by engine, oldest first."""
    found = {}
    for family in DISTRIBUTIONS:
        lists = ClassLists(data).of(family)
        found[family] = [] if lists is None else [name for change in lists.changes for name in change.at]
    return found


def releases(data: Path, packages: Path, draft: Draft, *, compare: bool = True) -> ClassDefaults | None:
    """Read the releases that nobody read into a copy of the data, oldest first.

    Args:
        data: The copy.
        packages: Where unpacked packages are kept.
        draft: What is added to.
        compare: Whether the functions that rules cite are compared, which takes most of the time.

    Returns:
        The defaults of transformers' newest release; None where it cannot be had.
    """
    known = read_releases(data)
    waiting: list[tuple[str, int, str]] = []
    brought: dict[tuple[str, str], follow.Package] = {}
    for order, (family, distribution) in enumerate(DISTRIBUTIONS.items()):
        listed = published(distribution)
        if not listed:
            draft.notes.append(f"{family}: the registry could not be asked for releases.")
        newest = known[family][-1]
        for release in [newest, *(one for one in listed if version_number(one) > version_number(newest))]:
            try:
                package = brought[family, release] = follow.bring(distribution, release, packages)
            except SystemExit as error:
                draft.notes.append(f"{family} {release} was not looked at: {error}.")
                continue
            if release != newest:
                waiting.append((package.built, order, release))
    served = ClassLists(data).of("transformers")
    before = set() if served is None else {*served.states()[-1].own}
    families = tuple(DISTRIBUTIONS)
    for built, order, release in sorted(waiting, key=lambda one: (*one[:2], version_number(one[2]))):
        family, since = families[order], read_releases(data)[families[order]][-1]
        package = brought[family, release]
        read_engine_classes.add(family, release, package.folder, data)
        draft.releases.append(f"{family} {release}, built {built}")
        if family in follow.INSIDE and compare:
            lines, _ = follow.report(family, release, since, brought[family, since], package)
            draft.follow.append("\n".join(lines))
            draft.person.setdefault("rules, flags and log lines of a release", []).append(
                f"make follow ENGINE={family} RELEASE={release} FOLLOW=--write"
            )
    newest = read_releases(data)["transformers"][-1]
    if ("transformers", newest) not in brought:
        return None
    try:
        made = class_defaults(newest, packages)
    except SystemExit as error:
        draft.notes.append(f"{error}.")
        return None
    return ClassDefaults(made, brought["transformers", newest].folder, newest, before)


def rewind(data: Path, day: str, packages: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Take out of a copy of the catalog what came after a day: classes of releases, and models.

    Returns:
        The releases of each engine, and the ids of models, that were taken out.
    """
    gone: dict[str, list[str]] = {}
    for family, names in read_releases(data).items():
        later = []
        for name in reversed(names):
            if follow.bring(DISTRIBUTIONS[family], name, packages).built <= day:
                break
            later.append(name)
        gone[family] = later[::-1]
        lists = ClassLists(data).of(family)
        if later and lists is not None:
            states = zip(lists.changes, lists.states(), strict=True)
            kept = {name: state for change, state in states for name in change.at if name not in later}
            made = lists.model_copy(update={"changes": compressed(kept)})
            (data / FOLDER / family / FILE).write_text(engine_classes(made), encoding="utf-8")
    catalog = open_catalog(data)
    young = [
        one for one in catalog.models.values() if (one.release or "") > day[:7] or one.release == day[:7]
    ]
    ids = {one.id for one in young}
    ids |= {one.id for one in catalog.models.values() if one.quantized_from in ids}
    for one in ids:
        (data / "models" / f"{one.replace('/', '--')}.yaml").unlink()
    return gone, sorted(ids)


def replayed(old: Path, new: Path, gone: Mapping[str, list[str]], ids: list[str], draft: Draft) -> list[str]:
    """Return how much of what was taken out a run found by itself."""
    lines = ["", "## Replay", ""]
    for family, names in gone.items():
        states = []
        for folder in (old, new):
            lists = ClassLists(folder).of(family)
            assert lists is not None
            states.append(
                {
                    name: state.digest
                    for change, state in zip(lists.changes, lists.states(), strict=True)
                    for name in change.at
                }
            )
        same = [name for name in names if states[0][name] == states[1].get(name)]
        lines.append(
            f"- {family}: classes of {len(same)} of {len(names)} releases as they were recorded by hand"
        )
    found = {model.id for model, _ in draft.records}
    listed_ids = {one.partition(":")[0] for many in draft.person.values() for one in many}
    for what, some in (
        ("written", found.intersection(ids)),
        ("listed for a person", listed_ids.intersection(ids)),
        ("not found", set(ids) - found - listed_ids),
    ):
        lines.append(f"- models {what}: {len(some)} of {len(ids)} ({', '.join(sorted(some)) or 'none'})")
    return lines


# --- the run ------------------------------------------------------------------------------------------


def merged(
    recipes: Iterable[Wanted], defaults: ClassDefaults | None, listed: Mapping[str, Wanted]
) -> list[Wanted]:
    """Return all that is wanted: recipes, checkpoints of new classes, models that many like, with what was counted."""
    wanted = {one.id: one for one in recipes}
    for id_ in defaults.new if defaults is not None else ():
        wanted.setdefault(id_, Wanted(id_))
    for id_, one in listed.items():
        if one.liked and quantized_name(id_) is None:
            wanted.setdefault(id_, Wanted(id_))
        if (old := wanted.get(id_)) is not None:
            wanted[id_] = replace(
                old,
                context=old.context or one.context,
                day=old.day or one.day,
                parameters=one.parameters,
                counted=one.counted,
            )
    return list(wanted.values())


def models(catalog: Catalog, wanted: Iterable[Wanted], places: Iterable[Any], draft: Draft) -> None:
    """Write a record of every wanted model that is not known and whose dimensions stand somewhere."""
    names = catalog.known_names
    others = {one.id for one in names.models if one.kind != "unread"} if names is not None else set()
    for one in wanted:
        if one.id in others or catalog.known_model(one.id) is not None:
            continue
        with contextlib.suppress(InputError):
            if by_name(one.id, catalog) is not None:
                draft.person.setdefault("copies known by their name: the mix is a range", []).append(one.id)
                continue
        found = next((hit for place in places if (hit := place.find(one.id)) is not None), None)
        if found is None:
            draft.person.setdefault("no file states the dimensions", []).append(one.id)
            continue
        made = found if isinstance(found, str) else record(one, found, catalog.weight_formats)
        if isinstance(made, str):
            draft.person.setdefault("a file was found", []).append(f"{one.id}: {made}")
        else:
            draft.records.append(made)


def forget(names: Path, ids: Container[str]) -> None:
    """Take the models that have a record now out of the list of known names."""
    if names.is_file():
        lines = names.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [
            line
            for line in lines
            if not ((row := _NAMED.match(line)) is not None and row[1].strip('"') in ids)
        ]
        names.write_text("".join(kept), encoding="utf-8")


def written(draft: Draft, old: Path, new: Path) -> str:
    """Return the draft's text: records, difference in capacity, what needs a person."""
    lines = ["# Draft: models and releases", "", *draft.notes, ""]
    lines += [f"- read: {one}" for one in draft.releases]
    lines += [f"- data/models/{model.slug}.yaml: {said}" for model, said in draft.records]
    if not (draft.releases or draft.records):
        lines.append("Nothing new.")
    if draft.follow:
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            kvreport(["diff", str(old), str(new), "--gpu", "h100-sxm-80gb,b200-sxm-180gb", "--model", "*"])
        lines += ["", "## Difference in capacity", "", "```", told.getvalue().strip(), "```"]
    for reason, many in draft.person.items():
        lines += ["", f"## For a person: {reason} ({len(many)})", "", *(f"- {one}" for one in many)]
    return "\n".join([*lines, "", *draft.follow])


def main(words: list[str]) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--recipes", default=RECIPES, help="checkout of vLLM's recipes, or an address for git"
    )
    parser.add_argument(
        "--configs", type=Path, action="append", default=[], help="folder with config.json files"
    )
    parser.add_argument(
        "--packages", type=Path, default=follow.PACKAGES, help="where unpacked packages are kept"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="the catalog")
    parser.add_argument(
        "--replay", metavar="DAY", help="take out what came after a day, and say how much is found again"
    )
    parser.add_argument("--write", action="store_true", help="write records and classes into the catalog")
    given = parser.parse_args(words)
    draft, start = Draft(), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "data"
        shutil.copytree(given.data, copy)
        gone, ids = rewind(copy, given.replay, given.packages) if given.replay else ({}, [])
        defaults = releases(copy, given.packages, draft, compare=not given.replay)
        checkout = Path(given.recipes)
        if "://" in given.recipes:
            checkout = Path(scratch) / "recipes"
            command = ["git", "clone", "--quiet", "--depth", "1", given.recipes, str(checkout)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
                draft.notes.append(f"Recipes were not looked at: {said}")
        counted = listed(given.packages, draft, first_types(copy, open_catalog(copy)))
        named = [*registered(given.packages, draft), *recipes(checkout)]
        wanted = merged(named, defaults, counted)
        hub = Hub()
        places = [ConfigFiles(given.configs), hub, ListedDimensions(counted)]
        places += [defaults] if defaults is not None else []
        models(open_catalog(copy), wanted, places, draft)
        if hub.silent:
            draft.notes.append(f"The Hub was not asked for configs: {hub.silent}")
        for model, _ in draft.records:
            (copy / "models" / f"{model.slug}.yaml").write_text(dump_model(model), encoding="utf-8")
        forget(copy / "known_names.yaml", {model.id for model, _ in draft.records})
        load_catalog(copy)
        print(written(draft, given.data, copy))
        if given.replay:
            print("\n".join(replayed(given.data, copy, gone, ids, draft)))
        if given.write and not given.replay:
            for path in copy.rglob("*.yaml"):
                old = given.data / path.relative_to(copy)
                if not old.is_file() or old.read_bytes() != path.read_bytes():
                    shutil.copyfile(path, old)
                    print(f"wrote {old}", file=sys.stderr)
    spent = time.monotonic() - start
    print(f"{len(draft.records)} records, {len(draft.releases)} releases in {spent:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
