"""Take what can be taken without judgment of new models and releases, as the draft of a change.

    make sync SYNC="--recipes FOLDER --configs FOLDER --write"
    python scripts/sync.py [--recipes FOLDER|ADDRESS] [--configs FOLDER]... [--packages FOLDER] [--data FOLDER] [--write]

- Releases of the engines and of transformers that nobody read: their classes go into ``data/engines/*/classes.yaml``,
  and the draft of ``make follow`` is made for each.
- Models of vLLM's recipes and of transformers' documentation that the catalog does not know: a record is written where
  a file states the dimensions and the total is the published one. A file is a ``config.json`` below ``--configs``, or
  the defaults of a config class whose documentation names this checkpoint. No dimension is guessed.

Packages are downloaded and their Python files are parsed, never imported. The draft, Markdown on standard output, has
the records, the difference in capacity, and what needs a person with the reason.
"""

from __future__ import annotations

import argparse
import ast
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
from pathlib import Path
from typing import Any, Final

import follow
import read_engine_classes

from kvreport.architectures import read_config_report
from kvreport.architectures.keys import read_json
from kvreport.catalog.base import Evidence, Source
from kvreport.catalog.engine_classes import FILE, FOLDER, ClassLists, compressed
from kvreport.catalog.engine_classes import written as engine_classes
from kvreport.catalog.load import Catalog, dump_model, load_catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import version_number
from kvreport.catalog.shelf import read_yaml
from kvreport.cli import main as kvreport
from kvreport.errors import CatalogError, InputError
from kvreport.estimation.variants import by_name

ROOT: Final = Path(__file__).resolve().parents[1]
RECIPES: Final = "https://github.com/vllm-project/recipes"
DISTRIBUTIONS: Final = {"transformers": "transformers", "vllm": "vllm", "sglang": "sglang"}
"""What is asked for new releases, transformers first: lists of the others name its newest."""
CONFIG_BYTES: Final = 1 << 20
NEAR: Final = 0.02
"""How far a total may be from one that is stated with two or three digits, besides their rounding."""
_PER_LAYER: Final = re.compile(r"layer|attn|attention_types|pattern|block")
_WINDOW: Final = re.compile(r"window$|pattern$|^full_attention_interval$")
"""Keys that decide what each layer remembers: left open by a class, they differ in the checkpoint."""
_ID: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
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


@dataclass(frozen=True)
class Found:
    """Dimensions of a model in a file."""

    config: dict[str, Any]  # As ``config.json`` has them.
    source: Source  # The file.
    open: tuple[str, ...] = ()  # Keys that the class fills in by code, so that nobody knows the checkpoint's.
    states_context: bool = True  # False where the longest context may be another one than the checkpoint's.


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

    def __init__(self, package: Path, release: str, known: Container[str]) -> None:
        """Parse ``models/*/configuration_*.py`` of an unpacked package; ``known`` are classes of earlier releases."""
        self._release = release
        self._classes: dict[str, tuple[ast.ClassDef, str]] = {}
        self._types: dict[str, str] = {}
        self.checkpoints: dict[str, str] = {}
        for path in sorted((package / "transformers" / "models").glob("*/configuration_*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    self._classes[node.name] = node, path.relative_to(package).as_posix()
                    said = dict(_assigned(node)).get("model_type")
                    if isinstance(said, ast.Constant):
                        self._types.setdefault(str(said.value), node.name)
                    for named in _checkpoints(node):
                        # The last class of a file is the whole model's.
                        self.checkpoints[named] = node.name
        auto = package / "transformers" / "models" / "auto" / "modeling_auto.py"
        tables = read_engine_classes.tables(read_engine_classes.parsed(auto))
        self._served: dict[str, str] = {}
        for table in read_engine_classes.GENERATORS[1:]:
            for model_type, value in tables.get(table, {}).items():
                self._served.setdefault(model_type, (read_engine_classes.texts(value) or [""])[0])
        self.new = list(self._new(known))

    def _new(self, known: Container[str]) -> Iterator[str]:
        for id_, name in self.checkpoints.items():
            said = dict(_assigned(self._classes[name][0])).get("model_type")
            serves = self._served.get(str(said.value)) if isinstance(said, ast.Constant) else None
            if serves and serves not in known and _ID.fullmatch(id_):
                yield id_

    def find(self, id_: str) -> Found | str | None:
        """Return the defaults that a checkpoint's documentation stands for, the reason why not, or None."""
        name = self.checkpoints.get(id_)
        if name is None:
            return None
        left: list[str] = []
        try:
            config = self._values(name, left)
        except LookupError as error:
            return f"its config class is not plain values ({error})"
        serves = self._served.get(str(config.get("model_type")))
        if not serves:
            return f"transformers {self._release} has no class that writes text for {name}"
        node, path = self._classes[name]
        title = f"transformers {self._release}, {path}: the defaults of {node.name}, whose documentation names this checkpoint"
        source = Source(covers=("layers",), title=title, revision=self._release, evidence="derived")
        return Found({"architectures": [serves], **config}, source, tuple(left), states_context=False)

    def _values(self, name: str, left: list[str]) -> dict[str, Any]:
        node, _ = self._classes.get(name) or (None, "")
        if node is None:
            raise LookupError(f"{name} is not in the package")
        values: dict[str, Any] = {}
        for base in node.bases:
            above = ast.unparse(base).rpartition(".")[2]
            if above in self._classes:
                values |= self._values(above, left)
        for key, value in _assigned(node):
            if key == "sub_configs_defaults" and isinstance(value, ast.Dict):
                for one, which in zip(value.keys, value.values, strict=True):
                    if isinstance(one, ast.Constant):
                        values[str(one.value)] = self._part(which, left)
            elif not key.startswith(("base_", "attribute_map", "ignore_", "keys_to")):
                with contextlib.suppress(LookupError):
                    said = _plain(value)
                    if said is not None or not isinstance(values.get(key), dict):
                        values[key] = said
        filled = {key for key in _filled(node) if values.get(key, 0) is None and _PER_LAYER.search(key)}
        left += [f"{name}.{key}" for key in sorted(filled)]
        left += [f"{name}.{key}" for key, value in values.items() if value is None and _WINDOW.search(key)]
        return {key: value for key, value in values.items() if value is not None}

    def _part(self, which: ast.expr, left: list[str]) -> dict[str, Any]:
        """Return the values of a section: a class, or a class by its model type with other values for some keys."""
        if not isinstance(which, ast.Call):
            return self._values(ast.unparse(which).rpartition(".")[2], left)
        words = {word.arg: word.value for word in which.keywords}
        name = ast.unparse(words["config_class"]) if "config_class" in words else "AutoConfig"
        model_type = str(ast.literal_eval(words.get("model_type", ast.Constant(""))))
        if name == "AutoConfig":
            name = self._types.get(model_type, model_type)
        given = _plain(words["init_kwargs"]) if "init_kwargs" in words else {}
        return self._values(name, left) | given


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for line in node.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        value = getattr(line, "value", None)
        if isinstance(target, ast.Name) and value is not None:
            yield target.id, value


def _plain(value: ast.expr) -> Any:
    """Return a constant as ``config.json`` would have it."""
    try:
        return json.loads(json.dumps(ast.literal_eval(value)))
    except (ValueError, TypeError) as error:
        raise LookupError(ast.unparse(value)[:60]) from error


def _filled(node: ast.ClassDef) -> Iterator[str]:
    """Yield the keys that a class fills in by code when it is made."""
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__post_init__":
            for line in ast.walk(one):
                targets = line.targets if isinstance(line, ast.Assign) else ()
                yield from (target.attr for target in targets if isinstance(target, ast.Attribute))


def _checkpoints(node: ast.ClassDef) -> Iterator[str]:
    for one in node.decorator_list:
        for word in one.keywords if isinstance(one, ast.Call) else ():
            if word.arg == "checkpoint" and isinstance(word.value, ast.Constant):
                yield str(word.value.value)


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
        one = Wanted(
            id_,
            str(model.get("parameter_count", "")),
            context if isinstance(context, int) else None,
            str(meta.get("date_added", "")),
            source_of(path, folder, ("release",), "vLLM recipes:", "secondary"),
        )
        wanted += [one, *(replace(one, id=str(variant["model_id"])) for variant in variants)]
    return list({one.id: one for one in reversed(wanted) if _ID.fullmatch(one.id)}.values())[::-1]


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


def record(wanted: Wanted, found: Found) -> tuple[Model, str] | str:
    """Return the record that a file makes and the comparison with what is published, or why a person is needed."""
    if found.open:
        return f"the class fills in {', '.join(found.open)}"
    covers = ("layers", "weights", "weight_format", "kv_format", "context_tokens")
    source = found.source.model_copy(update={"covers": covers})
    try:
        read = read_config_report(found.config, id=wanted.id, assume_defaults=True)
    except InputError as error:
        return f"not read: {error}"
    total = sum(row.parameters for row in read.model.weights)
    if not agrees(total, wanted.stated):
        return f"{total / 1e9:.2f}B by its dimensions, published: {wanted.stated or 'nothing'}"
    sources = [source]
    update: dict[str, Any] = {}
    if wanted.source is not None and re.fullmatch(r"20\d\d-\d\d-\d\d", wanted.day):
        update["release"] = wanted.day[:7]
        title = f"{wanted.source.title}, added {wanted.day}, states {wanted.stated} parameters"
        sources.append(wanted.source.model_copy(update={"title": title}))
    if not (found.states_context or wanted.context):
        return "the context of the checkpoint is not published"
    if wanted.context and wanted.context != read.model.context_tokens:
        if wanted.context > read.model.context_tokens:
            return f"{read.model.context_tokens:,} tokens in the file, published: {wanted.context:,}"
        update["context_tokens"] = wanted.context
    model = read.model.model_copy(update={**update, "sources": tuple(sources)})
    unread = f"; keys that were not used: {', '.join(read.not_read[:6])}" if read.not_read else ""
    return model, f"{total / 1e9:.3g}B, published: {wanted.stated}{unread}"


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
    return ClassDefaults(brought["transformers", newest].folder, newest, before)


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
    lines.append(f"- models: {len(found.intersection(ids))} of {len(ids)} ({', '.join(ids)})")
    return lines


# --- the run ------------------------------------------------------------------------------------------


def models(catalog: Catalog, wanted: Iterable[Wanted], places: Iterable[Any], draft: Draft) -> None:
    """Write a record of every wanted model that is not known and whose dimensions stand somewhere."""
    for one in wanted:
        if catalog.known_model(one.id) is not None:
            continue
        with contextlib.suppress(InputError):
            if by_name(one.id, catalog) is not None:
                draft.person.setdefault("copies known by their name: the mix is a range", []).append(one.id)
                continue
        found = next((hit for place in places if (hit := place.find(one.id)) is not None), None)
        if found is None:
            draft.person.setdefault("no file states the dimensions", []).append(one.id)
            continue
        made = found if isinstance(found, str) else record(one, found)
        if isinstance(made, str):
            draft.person.setdefault("a file was found", []).append(f"{one.id}: {made}")
        else:
            draft.records.append(made)


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
        wanted = recipes(checkout)
        if defaults is not None:
            known = {one.id for one in wanted}
            wanted += [Wanted(name) for name in defaults.new if name not in known]
        places = [ConfigFiles(given.configs), *([defaults] if defaults is not None else [])]
        models(open_catalog(copy), wanted, places, draft)
        for model, _ in draft.records:
            (copy / "models" / f"{model.slug}.yaml").write_text(dump_model(model), encoding="utf-8")
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
