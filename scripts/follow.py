"""Say what a release of an engine changed of what the rules were read in, as the draft of a change.

    make follow ENGINE=vllm RELEASE=0.34.0            compared with the newest release that was read
    python scripts/follow.py vllm 0.33.0 --since 0.32.0 [--write] [--packages FOLDER] [--python PYTHON]

The package is downloaded without its dependencies and unpacked without its compiled parts. The older one is fetched only
where a rule's digest does not hold any more, to show the difference. The report, Markdown on standard output, has

- every function that a rule or a docstring cites (``path.py::name``), by its syntax tree without comments and
  docstrings: unchanged, changed in what decides (constants, comparisons, names) or in other words, gone, and not
  found where it is said to be read;
- changed functions that cited ones call, up to :data:`MOST` functions to read in all;
- libraries that are required in another version, with the rules that were read in them;
- flags of the server, model classes and places of log lines that are new or gone;
- the rules to look at, with the difference of each function that they cite;
- what the engine's own planner answers otherwise (``scripts/follow_planner.py``). It runs in one environment with CPU
  PyTorch for all releases: PYTHON, else ``.cache/engines``, which is made of ``requirements/engines.txt``.

With ``--write`` the release's day, places and classes go into the data. ``at`` of every rule whose functions are
unchanged is extended, and ``digest`` is written: of each cited function's syntax tree in that release.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import log
from pathlib import Path
from typing import Any, Final

import follow_planner
import read_engine_classes

from kvreport.catalog.engine_classes import ClassLists
from kvreport.catalog.log_lines import log_lines
from kvreport.catalog.release import version_number
from kvreport.catalog.shelf import read_yaml

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ROOT / ".cache" / "packages"
INSIDE: Final = {"vllm": "vllm", "sglang": "sglang/srt"}
"""The folder of each engine's package that citations begin in."""
PARSERS: Final = {
    "vllm": ("engine/arg_utils.py", "entrypoints/openai/cli_args.py"),
    "sglang": ("server_args.py",),
}
SAID: Final = tuple(line.dates for one in log_lines() for line in one.lines if line.dates is not None)
"""What the lines say that tell the release of a vLLM log by their place."""
LIBRARIES: Final = {"torch": "PyTorch", "transformers": "transformers", "flashinfer-python": "FlashInfer"}
"""Packages that rules may be read in beside the engine's own, with the words that a rule's ``read`` names them by."""
_CITED: Final = re.compile(r"([A-Za-z0-9_/]+\.py)(?:::([A-Za-z_][\w.]*))?")
_AT: Final = re.compile(r'(\n  at: \{(?:first: "[^"]+", )?)(last: "[^"]+")(, digest: \[[^\]]*\])?\}')
"""The releases that a rule was read in, as its file writes them: up to the last one, the last one, and the digests."""
_RULE: Final = re.compile(r"^- (rule|field|list|trait): (\w+)$", re.MULTILINE)
_LONGEST: Final = 120
"""Lines of one function's difference that are printed."""
MOST: Final = 30
"""Functions to read of one release: those that rules cite, and as many that these call."""
_OFTEN: Final = 3
"""Definitions of one name that may have changed for a call to tell which is meant."""
_WORD: Final = re.compile(r"[A-Za-z_]\w{2,}")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Package:
    """One release's Python files."""

    folder: Path  # Where they are.
    built: str  # The day of its newest file.
    _trees: dict[Path, ast.Module] = field(default_factory=dict)

    def files(self, path: str, inside: str) -> list[Path]:
        """Return the files that a cited path names: that one below the engine's folder, else all that end in it."""
        exact = self.folder / inside / path
        if exact.is_file():
            return [exact]
        name = path.rpartition("/")[2]
        return sorted(
            one for one in (self.folder / inside).rglob(name) if one.as_posix().endswith(f"/{path}")
        )

    def tree(self, path: Path) -> ast.Module:
        """Return a file's syntax tree."""
        if path not in self._trees:
            self._trees[path] = ast.parse(path.read_text(encoding="utf-8"))
        return self._trees[path]

    def found(self, path: str, name: str, inside: str) -> list[tuple[Path, ast.AST]]:
        """Return each definition that a citation names, with its file; a citation without a name is the file."""
        made: list[tuple[Path, ast.AST]] = []
        for file in self.files(path, inside):
            made += (
                [(file, node) for node in _named(self.tree(file), name)]
                if name
                else [(file, self.tree(file))]
            )
        return made


@dataclass(frozen=True)
class Citation:
    """A function or a file that something was read in."""

    path: str  # Its file, from the engine's folder or the end of it.
    name: str  # The function, class or method; empty for the whole file.
    by: tuple[str, ...]  # Rules, and places of docstrings, that cite it.

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"{self.path}::{self.name}" if self.name else self.path


def _named(tree: ast.AST, dotted: str) -> Iterator[ast.AST]:
    """Yield what a name is of: functions and classes, else where it is assigned (``NAME =``, ``self.name =``)."""
    first, _, rest = dotted.partition(".")
    nodes = list(ast.walk(tree))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    made = [node for node in nodes if isinstance(node, kinds) and node.name == first]
    for node in made:
        yield from _named(node, rest) if rest else (node,)
    if not made:
        for node in nodes:
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            told = isinstance(node, ast.Assign | ast.AnnAssign)
            if told and first in {getattr(one, "id", getattr(one, "attr", None)) for one in targets}:
                yield node


class _Plain(ast.NodeTransformer):
    """Leaves out texts that stand as statements: docstrings, and those of attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        said = node.value
        return ast.Pass() if isinstance(said, ast.Constant) and isinstance(said.value, str) else node


def _bare(node: ast.AST) -> str:
    """Return a definition's source as Python writes it, without comments and docstrings."""
    return ast.unparse(_Plain().visit(ast.parse(ast.unparse(node))))


def _shape(node: object) -> object:
    """Return a tree as nested lists that every Python writes alike, without what is empty."""
    if isinstance(node, ast.AST):
        parts = (
            (name, getattr(node, name, None)) for name in node._fields if name not in ("kind", "type_comment")
        )
        return [
            type(node).__name__,
            *([name, _shape(part)] for name, part in parts if part not in (None, [])),
        ]
    return [_shape(one) for one in node] if isinstance(node, list) else repr(node)


def digest(package: Package, path: str, name: str, inside: str) -> str:
    """Return the digest of what a citation names, without comments and docstrings; ``-`` where it is a file, or gone."""
    found = package.found(path, name, inside) if name else []
    trees = [_shape(_Plain().visit(copy.deepcopy(node))) for _, node in found]
    return sha256(repr(trees).encode()).hexdigest()[:12] if trees else "-"


def cited_in(read: str) -> list[tuple[str, str]]:
    """Return path and name of each citation of today in a rule's ``read``."""
    return _CITED.findall(read.partition(", before ")[0].rpartition("later ")[2])


def digests(family: str, package: Package) -> dict[str, list[str]]:
    """Return the digests of what each rule was read in, by the rule."""
    return {
        name: [digest(package, *one, INSIDE[family]) for one in cited_in(rule.get("read") or "")]
        for name, rule in rules_of(family).items()
    }


def rules_of(family: str) -> dict[str, dict[str, Any]]:
    """Return the rules, fields, lists and traits of an engine, by their kind and name."""
    path = ROOT / "data" / "engines" / family / "rules.yaml"
    read: Any = read_yaml(path, path.name) if path.is_file() else {}
    kinds = ("rule", "field", "list", "trait")
    return {_key(kind, one[kind]): one for kind in kinds for one in read.get(f"{kind}s", ())}


def _key(kind: str, name: str) -> str:
    """Return what a rule, a field or a list is called in reports; a list may have the name of a rule."""
    return f"list {name}" if kind == "list" else name


def _decides(node: ast.AST) -> str:
    """Return a digest of what a rule can be about: constants, comparisons, names of attributes and listed names."""
    told = []
    for one in ast.walk(ast.parse(_bare(node))):
        if isinstance(one, ast.Constant) and not isinstance(one.value, str):
            told.append(repr(one.value))
        elif isinstance(one, ast.Compare):
            told.append("".join(type(sign).__name__ for sign in one.ops))
        elif isinstance(one, ast.Attribute):
            told.append(one.attr)
        elif isinstance(one, ast.BinOp):
            told.append(type(one.op).__name__)
        elif isinstance(one, ast.Set | ast.List | ast.Tuple):
            told += [repr(each.value) for each in one.elts if isinstance(each, ast.Constant)]
    return sha256("\n".join(sorted(told)).encode()).hexdigest()


def citations(family: str) -> list[Citation]:
    """Return what the rules and the docstrings of an engine cite; the last value of a rule holds however long ago it was read."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule, record in rules_of(family).items():
        for key in cited_in(record.get("read") or ""):
            found.setdefault(key, []).append(rule)
    for source in sorted((ROOT / "kvreport" / "accounting" / "engines" / family).rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for path, name in _CITED.findall(node.value):
                    if name:
                        found.setdefault((path, name), []).append(f"{source.name}:{node.lineno}")
    return [Citation(*key, tuple(dict.fromkeys(by))) for key, by in sorted(found.items())]


def judged(cited: Citation, old: Package, new: Package, inside: str) -> tuple[str, str]:
    """Return what became of a citation, and the difference of its source.

    Returns:
        ``unchanged``, ``other words`` or ``changed``; ``gone``; ``not found`` where the older package has it not
        either; ``ambiguous`` where the path names several files.
    """
    before, after = (one.found(cited.path, cited.name, inside) for one in (old, new))
    if not before:
        return ("new" if after else "not found"), ""
    if len({path for path, _ in before}) > 1:
        return "ambiguous", ""
    if not after:
        return "gone", nearest(cited, new, inside)
    texts = ["\n\n".join(_bare(node) for _, node in side) for side in (before, after)]
    if texts[0] == texts[1]:
        return "unchanged", ""
    same = [_decides(node) for _, node in before] == [_decides(node) for _, node in after]
    return ("other words" if same else "changed"), "\n".join(_difference(texts))


def nearest(cited: Citation, new: Package, inside: str) -> str:
    """Return where a definition that is gone may have gone: the same name elsewhere, else the nearest in its file."""
    name = (cited.name or cited.path).rpartition(".")[2]
    for file in sorted((new.folder / inside).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if cited.name and re.search(rf"^\s*(?:async )?(?:def|class) {re.escape(name)}\b", text, re.MULTILINE):
            return f"the name stands in {file.relative_to(new.folder / inside).as_posix()}"
    names = [
        node.name
        for file in new.files(cited.path, inside)
        for node in ast.walk(new.tree(file))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    near = difflib.get_close_matches(name, names, n=1)
    return f"nearest: {near[0]}" if near else ""


def called(cited: Iterable[Citation], old: Package, new: Package, inside: str) -> list[tuple[Path, str, str]]:
    """Return file, name and difference of changed functions that cited ones call, without those that are cited.

    A rule can change in a function that nobody has cited. Functions in cited files are looked at, one call away. Those
    come first whose difference has most of the words that are common in cited functions and rare in the package.
    """
    within = new.folder / inside
    nodes = [pair for one in cited if one.name for pair in new.found(one.path, one.name, inside)]
    covered = {id(part) for _, node in nodes for part in ast.walk(node)}
    parts = [part for _, node in nodes for part in ast.walk(node) if isinstance(part, ast.Call)]
    names = {getattr(part.func, "attr", getattr(part.func, "id", "")) for part in parts}
    common = Counter(word for _, node in nodes for word in {*_WORD.findall(ast.unparse(node))})
    texts = [{*_WORD.findall(file.read_text(encoding="utf-8"))} for file in within.rglob("*.py")]
    everywhere = Counter(word for text in texts for word in text & common.keys())

    def telling(word: str) -> float:
        if common[word] < 2:
            return 0.0
        return max(0.0, log(common[word] / len(nodes) * len(texts) / (everywhere[word] + 1)))

    found: list[tuple[float, Path, str, str]] = []
    for file in sorted({file.relative_to(within) for file, _ in nodes}):
        here = _functions(new.tree(within / file))
        there = old.folder / inside / file
        before = _functions(old.tree(there)) if there.is_file() else {}
        for name, node in here.items():
            if name.rpartition(".")[2] not in names or id(node) in covered:
                continue
            sides = [_bare(before[name]) if name in before else "", _bare(node)]
            if sides[0] == sides[1]:
                continue
            lines = _difference(sides)
            words = {word for line in lines[2:] if line[0] in "+-" for word in _WORD.findall(line)}
            found.append((sum(map(telling, words)), file, name, "\n".join(lines)))
    often = Counter(name.rpartition(".")[2] for _, _, name, _ in found)
    kept = [one for one in found if often[one[2].rpartition(".")[2]] <= _OFTEN]
    return [tuple(one[1:]) for one in sorted(kept, key=lambda one: (-one[0], *one[1:3]))]


def _difference(sides: Sequence[str]) -> list[str]:
    """Return the lines in which two sources differ, at most :data:`_LONGEST`."""
    before, after = (side.splitlines() for side in sides)
    lines = list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=2))
    more = len(lines) - _LONGEST
    return [*lines[:_LONGEST], f"… and {more} more lines"] if more > 0 else lines


def _functions(tree: ast.AST, within: str = "") -> dict[str, _Function]:
    """Return the functions and methods of a tree by their dotted name."""
    found: dict[str, _Function] = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            found.setdefault(f"{within}{node.name}", node)
        elif isinstance(node, ast.ClassDef):
            found |= _functions(node, f"{within}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            found |= _functions(node, within)
    return found


def flags(package: Package, family: str) -> set[str]:
    """Return every flag that a server's own parser adds."""
    found = set()
    for path in PARSERS[family]:
        for file in package.files(path, INSIDE[family]):
            for node in ast.walk(package.tree(file)):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                    found |= {
                        one.value
                        for one in node.args
                        if isinstance(one, ast.Constant) and str(one.value).startswith("--")
                    }
    return found


def requirements(package: Package) -> dict[str, str]:
    """Return the versions that a package requires of each of :data:`LIBRARIES`."""
    found = {}
    for file in package.folder.glob("*.dist-info/METADATA"):
        stated = re.findall(
            r"^Requires-Dist: ([\w-]+)\s*([^;\n]*)", file.read_text(encoding="utf-8"), re.MULTILINE
        )
        found |= {name: said.strip() for name, said in stated if name in LIBRARIES}
    return found


def required(family: str, old: Package, new: Package) -> tuple[list[str], set[str]]:
    """Return the lines of a report about libraries that a release requires in other versions, and the rules read in them."""
    before, after = requirements(old), requirements(new)
    lines, touched = [], set()
    for name, word in LIBRARIES.items():
        if before.get(name) == after.get(name):
            continue
        rules = {rule for rule, record in rules_of(family).items() if word in (record.get("read") or "")}
        touched |= rules
        said = f"; rules read there: {', '.join(sorted(rules))}" if rules else ""
        lines.append(f"- {name} {before.get(name, 'none')}, now {after.get(name, 'none')}{said}")
    return lines, touched


def places(package: Package) -> list[str]:
    """Return file and line of every call that logs one of :data:`SAID`, as logs begin with them."""
    found = set()
    for file in sorted((package.folder / "vllm" / "v1").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if not any(said in text for said in SAID):
            continue
        for node in ast.walk(package.tree(file)):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).startswith("logger."):
                said = ast.unparse(node.args[0])
                if any(one in said for one in SAID):
                    found.add(f"{file.name}:{node.lineno}")
    return sorted(found)


def bring(family: str, release: str, folder: Path) -> Package:
    """Return a release's package, downloaded and unpacked where it is not there yet.

    Raises:
        SystemExit: If it cannot be had.
    """
    place = folder / f"{family}-{release}"
    dated = place / "unpacked"
    if not dated.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as into:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", into]
            command += ["--only-binary", ":all:", f"{family}=={release}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            wheels = list(Path(into).glob("*.whl"))
            if done.returncode or not wheels:
                last = (done.stderr.strip().splitlines() or ["nothing was downloaded"])[-1]
                raise SystemExit(f"follow: {family} {release}: {last}")
            made = Path(into) / "made"
            with zipfile.ZipFile(wheels[0]) as wheel:
                kept = [one for one in wheel.infolist() if not one.filename.endswith(".so")]
                wheel.extractall(made, [one.filename for one in kept])
                year, month, day = max(one.date_time for one in kept)[:3]
            (made / "unpacked").write_text(f"{year}-{month:02d}-{day:02d}", encoding="ascii")
            shutil.rmtree(place, ignore_errors=True)
            shutil.move(made, place)
    return Package(place, dated.read_text(encoding="ascii"))


def newest(family: str) -> str:
    """Return the newest release of an engine that the registry has.

    Raises:
        SystemExit: If it cannot be asked.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", family]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.match(rf"{family} \(([0-9.]+)\)", done.stdout)
    if found is None:
        raise SystemExit(f"follow: {family}: no release was found; name one")
    return found[1]


def was_read(family: str) -> list[str]:
    """Return the releases whose model classes were read."""
    lists = ClassLists(ROOT / "data").of(family)
    return [] if lists is None else [name for change in lists.changes for name in change.at]


def newest_read(family: str, before: str) -> str:
    """Return the newest release before another whose classes were read."""
    earlier = [name for name in was_read(family) if version_number(name) < version_number(before)]
    if not earlier:
        raise SystemExit(f"follow: {family} {before}: no earlier release was read; say --since")
    return max(earlier, key=version_number)


def classes(family: str, release: str, since: str, package: Package) -> tuple[frozenset[str], frozenset[str]]:
    """Return the model classes that a release serves and the earlier one does not, and the other way round."""
    with tempfile.TemporaryDirectory() as copy:
        data = Path(copy)
        shutil.copytree(ROOT / "data" / "engines", data / "engines")
        read_engine_classes.add(family, release, package.folder, data)
        lists = ClassLists(data).of(family)
        assert lists is not None
        states: dict[str, Any] = {}
        for change, state in zip(lists.changes, lists.states(), strict=True):
            states |= dict.fromkeys(change.at, state)
    served = [
        states[name].own | states[name].backend if name in states else frozenset()
        for name in (since, release)
    ]
    return served[1] - served[0], served[0] - served[1]


def digest_of(rule: dict[str, Any]) -> list[str]:
    """Return the digests that a rule states; none if it has none."""
    return [*map(str, (rule.get("at") or {}).get("digest", ()))]


def held(family: str, new: Package) -> tuple[set[str], set[str]]:
    """Return the rules whose digests hold in a package, and those with a digest that does not."""
    found = digests(family, new)
    stated = {name: known for name, rule in rules_of(family).items() if (known := digest_of(rule))}
    firm = {name for name, said in stated.items() if "-" not in said}
    steady = {name for name in firm if stated[name] == found[name]}
    parted = {
        name
        for name, said in stated.items()
        if any("-" not in pair and len({*pair}) > 1 for pair in zip(said, found[name], strict=True))
    }
    return steady, parted


def report(
    family: str, release: str, since: str, old: Package | None, new: Package
) -> tuple[list[str], set[str]]:
    """Return the draft's lines, and the names of the rules that nothing changed for; without an older one, digests tell."""
    lines = [f"# {family} {release}, built {new.built}, compared with {since}", ""]
    steady, _ = held(family, new)
    added, gone = classes(family, release, since, new)
    differences = [("Model classes", added, gone)]
    if old is None:
        lines += [
            f"{len(steady)} rules: what each was read in has the digest that it had. No difference to look at."
        ]
    else:
        cited = citations(family)
        found = {one: judged(one, old, new, INSIDE[family]) for one in cited}
        kinds = ("changed", "other words", "gone", "not found", "ambiguous", "new", "unchanged")
        counted = {kind: [one for one in cited if found[one][0] == kind] for kind in kinds}
        lines += [f"{len(cited)} functions and files are cited.", ""]
        lines += [f"- {kind}: {len(many)}" for kind, many in counted.items() if many]
        for kind in kinds[:-1]:
            for one in counted[kind]:
                lines += ["", f"## {one}: {kind}", "", f"Cited by {', '.join(one.by)}."]
                said = found[one][1]
                if said:
                    lines += [
                        "",
                        *(["```diff", said, "```"] if kind in ("changed", "other words") else [said]),
                    ]
        by_rules = [one for one in cited if any(":" not in by for by in one.by)]
        to_read = sum(found[one][0] in {"changed", "gone", "new"} for one in by_rules)
        for file, name, difference in called(by_rules, old, new, INSIDE[family])[: max(0, MOST - to_read)]:
            lines += ["", f"## {file.as_posix()}::{name}: called by what is cited", ""]
            lines += ["```diff", difference, "```"]
        open_rules = {rule for one in cited for rule in one.by if found[one][0] != "unchanged"}
        said_of, touched = required(family, old, new)
        lines += ["", "## Requirements", "", *(said_of or ["All libraries are required as before."])]
        steady |= {rule for one in cited for rule in one.by} - open_rules
        steady -= touched
        here, there = flags(new, family), flags(old, family)
        differences.insert(0, ("Flags", frozenset(here - there), frozenset(there - here)))
    for what, more, less in differences:
        lines += ["", f"## {what}", ""]
        lines += [f"New ({len(more)}): {', '.join(sorted(more)) or 'none'}."]
        lines += [f"Gone ({len(less)}): {', '.join(sorted(less)) or 'none'}."]
    if family == "vllm":
        lines += ["", "## Log lines", "", f"Places: {', '.join(places(new))}."]
    return lines, steady


def write(family: str, release: str, package: Package, steady: set[str], folder: Path) -> list[str]:
    """Write what can be written without judgment; return the files."""
    changed = [str(read_engine_classes.add(family, release, package.folder, ROOT / "data").relative_to(ROOT))]
    path = ROOT / "data" / f"{family}_releases.yaml"
    if path.is_file() and f'"{release}"' not in path.read_text(encoding="utf-8"):
        where = f", lines: [{', '.join(places(package))}]" if family == "vllm" else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(f'  "{release}": {{built: "{package.built}"{where}}}\n')
        changed.append(str(path.relative_to(ROOT)))
    rules = ROOT / "data" / "engines" / family / "rules.yaml"
    if rules.is_file():
        text = extended(rules.read_text(encoding="utf-8"), release, steady)
        rules.write_text(text, encoding="utf-8")
        lasts = {name: str(rule["at"]["last"]) for name, rule in rules_of(family).items() if rule.get("at")}
        made: dict[str, list[str]] = {}
        for last in sorted({*lasts.values()}, key=version_number):
            names = {name for name in lasts if lasts[name] == last}
            if last == release or not all(digest_of(rules_of(family)[name]) for name in names):
                try:
                    known = digests(family, package if last == release else bring(family, last, folder))
                except SystemExit as error:  # a release that is not to be had any more keeps no digest
                    print(error, file=sys.stderr)
                    continue
                made |= {name: known[name] for name in names if {*known[name]} - {"-"}}
        rules.write_text(stamped(text, made), encoding="utf-8")
        changed.append(str(rules.relative_to(ROOT)))
    return changed


def stamped(text: str, digests: dict[str, list[str]]) -> str:
    """Return a file of rules with the digests of some.

    >>> stamped('- rule: one_rule\\n  at: {first: "0.1", last: "0.2"}\\n', {"one_rule": ["0a", "-"]})
    '- rule: one_rule\\n  at: {first: "0.1", last: "0.2", digest: ["0a", "-"]}\\n'
    """

    def with_digest(name: str, body: str) -> str:
        if name not in digests:
            return body
        said = ", ".join(f'"{one}"' for one in digests[name])
        return re.sub(_AT, rf"\1\2, digest: [{said}]}}", body, count=1)

    return _each_rule(text, with_digest)


def extended(text: str, release: str, steady: set[str]) -> str:
    """Return a file of rules with ``at`` of some rules ending in a release.

    >>> extended('- rule: one_rule\\n  at: {first: "0.1", last: "0.2"}\\n', "0.3", {"one_rule"})
    '- rule: one_rule\\n  at: {first: "0.1", last: "0.3"}\\n'
    """

    def later(name: str, body: str) -> str:
        said = rf'\1last: "{release}"\3}}'
        return re.sub(_AT, said, body, count=1) if name in steady and "at: {first" in body else body

    return _each_rule(text, later)


def _each_rule(text: str, change: Callable[[str, str], str]) -> str:
    parts = _RULE.split(text)
    bodies = (
        change(_key(kind, name), body)
        for kind, name, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    )
    heads = (f"- {kind}: {name}" for kind, name in zip(parts[1::3], parts[2::3], strict=True))
    return parts[0] + "".join(map("".join, zip(heads, bodies, strict=True)))


def environment(folder: Path) -> str:
    """Return the interpreter that has what an engine's package imports, made where it is not there yet."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        wanted = ROOT / "requirements" / "engines.txt"
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "-r", str(wanted)], check=False
        )
        if done.returncode:
            shutil.rmtree(folder)
            raise SystemExit(
                f"follow: {wanted.relative_to(ROOT)} could not be installed; say --python or --no-planner"
            )
    return str(python)


def main(words: list[str]) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", choices=sorted(INSIDE))
    parser.add_argument("release", help="the release, such as 0.34.0, or newest")
    parser.add_argument("--since", help="the release to compare with (the newest that was read before it)")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where unpacked packages are kept")
    parser.add_argument(
        "--python", help="interpreter with CPU PyTorch and what the package imports (.cache/engines)"
    )
    parser.add_argument("--no-planner", action="store_true", help="do not run the engine's own planner")
    parser.add_argument("--write", action="store_true", help="write what needs no judgment into the data")
    given = parser.parse_args(words)
    if given.release == "newest":
        given.release = newest(given.engine)
        if given.release in was_read(given.engine):
            print(f"{given.engine} {given.release} was read.")
            return 0
    since = given.since or newest_read(given.engine, given.release)
    new = bring(given.engine, given.release, given.packages)
    _, parted = held(given.engine, new)
    firm = any(map(digest_of, rules_of(given.engine).values()))
    old = bring(given.engine, since, given.packages) if parted or not firm else None
    lines, steady = report(given.engine, given.release, since, old, new)
    print("\n".join(lines), flush=True)
    if not given.no_planner:
        python = given.python or environment(ROOT / ".cache" / "engines")
        rows = [
            *follow_planner.records(given.engine, given.release, python, new.folder, follow_planner.CONFIGS)
        ]
        kept = given.packages / f"planner-{given.engine}-{given.release}.jsonl"
        kept.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        print("\n".join(["", "## Planner", "", *follow_planner.summary(rows), "", f"Records: {kept}."]))
    if given.write:
        for name in write(given.engine, given.release, new, steady, given.packages):
            print(f"wrote {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
