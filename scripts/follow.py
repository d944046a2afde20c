"""Say what a release of an engine changed of what the rules were read in, as the draft of a change.

    make follow ENGINE=vllm RELEASE=0.34.0            compared with the newest release that was read
    python scripts/follow.py vllm 0.33.0 --since 0.32.0 [--write] [--packages FOLDER] [--python PYTHON]
    python scripts/follow.py llama.cpp b9900 --source FOLDER --since-source FOLDER

Engines are vllm, sglang, transformers, mlx-lm and llama.cpp, whose releases are those of llama-cpp-python. The package is
downloaded without its dependencies and unpacked without its compiled parts; ``--source`` names a folder or an archive
instead. The older one is fetched only where a rule's digest does not hold any more, to show the difference. The report,
Markdown on standard output, has

- every function that a rule or a docstring cites (``path.py::name``), by its syntax tree without comments and
  docstrings: unchanged, changed in what decides (constants, comparisons, names) or in other words, gone, and not
  found where it is said to be read;
- changed functions that no rule cites and that are likeliest to hold one (``scripts/follow_ranking.py``). With the
  cited ones that come first, these are at most :data:`~follow_ranking.MOST` functions to read;
- libraries that are required in another version, with the rules that were read in them;
- variables of the environment with another default;
- flags of the server, such variables, model classes and places of log lines that are new or gone;
- the rules to look at, with the difference of each function that they cite;
- what vLLM's or SGLang's own planner answers otherwise (``scripts/follow_planner.py``). It runs in one environment with CPU
  PyTorch for all releases: PYTHON, else ``.cache/engines``, which is made of ``requirements/engines.txt``;
- what the two releases resolve, build and plan otherwise for the same starts (``scripts/follow_witness.py``).

With ``--write`` the release's day, places and classes go into the data. ``at`` of every rule whose functions are
unchanged is extended, and ``digest`` is written: of each cited function's syntax tree in that release.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import follow_planner
import follow_witness
import read_engine_classes
import read_server_flags
from follow_ranking import CITED, MOST, Change, Cited, Ranking, changes, device_checks, difference
from follow_sources import INSIDE, MARKS, Definition, Package, bare, bring, decides, digest_of, newest, opened

from kvreport.catalog.engine_classes import ClassLists
from kvreport.catalog.log_lines import log_lines
from kvreport.catalog.release import version_number
from kvreport.catalog.strict_files import read_yaml

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ROOT / ".cache" / "packages"
PARSERS: Final = {
    "vllm": ("engine/arg_utils.py", "entrypoints/openai/cli_args.py"),
    "sglang": ("server_args.py",),
}
VARIABLES: Final = {"vllm": "envs.py", "sglang": "environ.py"}
"""The file that defines the variables of the environment of each engine, with their defaults."""
SAID: Final = tuple(line.dates for one in log_lines() for line in one.lines if line.dates is not None)
"""What the lines say that tell the release of a vLLM log by their place."""
LIBRARIES: Final = {
    "torch": "PyTorch",
    "transformers": "transformers",
    "flashinfer-python": "FlashInfer",
    "mlx": "MLX",
}
"""Packages that rules may be read in beside the engine's own, with the words that a rule's ``read`` names them by."""
NAMES: Final = {"llama.cpp": "llama_cpp", "mlx-lm": "mlx"}
"""Families by another name that their engine goes by."""
_CITED: Final = re.compile(r"([\w/-]+\.(?:py|cpp|h|go))(?:::([A-Za-z_]\w*(?:(?:\.|::)\w+)*))?")
_AT: Final = re.compile(r'(\n  at: \{(?:first: "[^"]+", )?)(last: "[^"]+")(, digest: \[[^\]]*\])?\}')
"""The releases that a rule was read in, as its file writes them: up to the last one, the last one, and the digests."""
_RULE: Final = re.compile(r"^- (rule|field|list|trait): (\w+)$", re.MULTILINE)
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_LONGEST: Final = 120
"""Lines of one function's difference that are printed."""
_SAME: Final = " with the same source"
"""How a place ends that a function was moved to or from and that it need not be read in again."""


@dataclass(frozen=True)
class Citation:
    """A function or a file that something was read in."""

    path: str  # Its file, from the engine's folder or the end of it.
    name: str  # The function, class or method; empty for the whole file.
    by: tuple[str, ...]  # Rules, and places of docstrings, that cite it.

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"{self.path}::{self.name}" if self.name else self.path


def digest(package: Package, path: str, name: str, inside: str) -> str:
    """Return the digest of what a citation names, without comments and docstrings; ``-`` where it is a file, or gone."""
    return digest_of([node for _, node in package.found(path, name, inside)] if name else [])


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


def citations(family: str) -> list[Citation]:
    """Return what the rules and the docstrings of an engine cite; the last value of a rule holds however long ago it was read."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule, record in rules_of(family).items():
        for key in cited_in(record.get("read") or ""):
            found.setdefault(key, []).append(rule)
    engines = ROOT / "kvreport" / "accounting" / "engines"
    for group in _groups_of_flags(family):
        for key in cited_in(group.get("read") or ""):
            found.setdefault(key, []).append(f"flags that change {group.get('changes') or 'nothing'}")
    for source in sorted([*(engines / family).rglob("*.py"), *engines.glob(f"{family}.py")]):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for path, name in _CITED.findall(node.value):
                    if name:
                        found.setdefault((path, name), []).append(f"{source.name}:{node.lineno}")
    # Docstrings also cite headers of libraries, which no engine's package has.
    kept = {key: by for key, by in found.items() if family in MARKS or key[0].endswith(".py")}
    return [Citation(*key, tuple(dict.fromkeys(by))) for key, by in sorted(kept.items())]


def _groups_of_flags(family: str) -> list[dict[str, Any]]:
    """Return the groups of flags of an engine that has no further rules in its Python; others cite the same functions."""
    path = ROOT / "data" / "flags" / f"{family}.yaml"
    read: Any = read_yaml(path, path.name) if family not in PARSERS and path.is_file() else {}
    return list(read.get("groups", ()))


def judged(cited: Citation, old: Package, new: Package, inside: str) -> tuple[str, str]:
    """Return what became of a citation, and the difference of its source.

    Returns:
        ``unchanged``, ``other words`` or ``changed``; ``gone``; ``not found`` where the older package has it not
        either; ``ambiguous`` where the path names several files.
    """
    before, after = (one.found(cited.path, cited.name, inside) for one in (old, new))
    if not before and not after:
        return "not found", ""
    if not before:
        return "new", elsewhere(cited, after, old, inside)
    if len({path for path, _ in before}) > 1:
        return "ambiguous", ""
    if not after:
        return "gone", elsewhere(cited, before, new, inside) or nearest(cited, new, inside)
    texts = ["\n\n".join(bare(node) for _, node in side) for side in (before, after)]
    if texts[0] == texts[1]:
        return "unchanged", ""
    same = [decides(node) for _, node in before] == [decides(node) for _, node in after]
    return ("other words" if same else "changed"), "\n".join(difference(texts, _LONGEST))


def elsewhere(
    cited: Citation, nodes: Sequence[tuple[Path, Definition]], package: Package, inside: str
) -> str:
    """Return where a package has a definition of that name with the same source; empty if nowhere."""
    texts = [bare(node) for _, node in nodes]
    last = re.split(r"\.|::", cited.name)[-1]
    for path, file in package.all_files(inside).items() if cited.name else ():
        if last not in file.read_text(encoding="utf-8", errors="replace"):
            continue
        found = package.found(path, cited.name, inside)
        if found and [bare(node) for _, node in found] == texts:
            return f"the name stands in {path}{_SAME}"
    return ""


@dataclass(frozen=True)
class Reading:
    """The functions of one release that are to be read."""

    cited: list[Citation]  # Those that rules cite, the likeliest first.
    others: list[tuple[str, Change]]  # Those that no rule cites, each with the topic of what changed.
    devices: list[
        tuple[Change, list[str]]
    ]  # Further places with other comparisons of devices, and these lines.


def to_read(found: Mapping[Citation, tuple[str, str]], old: Package, new: Package, inside: str) -> Reading:
    """Return the functions to read: at most :data:`~follow_ranking.MOST`.

    A function that only moved is left out, and one within a class that is read.
    """
    by_rules = [one for one in found if any(":" not in by for by in one.by)] or [*found]
    open_ = [
        one
        for one in by_rules
        if found[one][0] in {"changed", "gone", "new"} and not found[one][1].endswith(_SAME)
    ]
    names = {(one.path, one.name) for one in open_}
    open_ = [one for one in open_ if (one.path, one.name.rpartition(".")[0]) not in names]
    sources = {}
    for one in open_:
        sides = (
            "\n".join(bare(node) for _, node in side.found(one.path, one.name, inside)) for side in (old, new)
        )
        sources[Cited(one.path, one.name, *sides)] = one
    within = new.folder / inside
    nodes = [
        (file.relative_to(within).as_posix(), one.name, node)
        for one in by_rules
        if one.name
        for file, node in new.found(one.path, one.name, inside)
    ]
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in new.all_files(inside).values())
    changed = changes(old, new, inside)
    ranking = Ranking(changed, [(path, node) for path, _, node in nodes], texts)
    cited = [sources[one] for one in ranking.first_cited([*sources])]
    others = ranking.others(MOST, {(path, name) for path, name, _ in nodes})
    kept = cited[: max(CITED, MOST - len(others))]
    others = others[: MOST - len(kept)]
    read = {id(change) for _, change in others}
    devices = [pair for pair in device_checks(changed) if id(pair[0]) not in read]
    return Reading(kept, others, devices)


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


def flags(package: Package, family: str) -> set[str]:
    """Return every flag that a server's own parser adds; none of an engine without a server."""
    if family in read_server_flags.READERS and family not in PARSERS:
        root = package.folder / INSIDE[family]
        return {name for flag in read_server_flags.flags(family, root) for name in flag.names}
    found = set()
    for path in PARSERS.get(family, ()):
        for file in package.files(path, INSIDE[family]):
            for node in ast.walk(package.tree(file)):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                    found |= {
                        one.value
                        for one in node.args
                        if isinstance(one, ast.Constant) and str(one.value).startswith("--")
                    }
    return found


def variables(package: Package, family: str) -> dict[str, str]:
    """Return how each variable of the environment is read, with its default."""
    found: dict[object, ast.expr] = {}
    for file in package.files(VARIABLES[family], INSIDE[family]):
        for node in ast.walk(package.tree(file)):
            if isinstance(node, ast.Dict):
                found |= {
                    getattr(key, "value", ""): value
                    for key, value in zip(node.keys, node.values, strict=True)
                }
            elif isinstance(node, ast.Assign):
                found |= {getattr(target, "id", ""): node.value for target in node.targets}
    return {name: ast.unparse(value) for name, value in found.items() if _VARIABLE.fullmatch(str(name))}


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


def was_read(family: str) -> list[str]:
    """Return the releases whose model classes were read."""
    lists = ClassLists(ROOT / "data").of(family)
    return [] if lists is None else [name for change in lists.changes for name in change.at]


def newest_read(family: str, before: str) -> str:
    """Return the newest release before another whose classes were read; empty for a family without lists of classes."""
    if not was_read(family):
        return ""
    earlier = [name for name in was_read(family) if version_number(name) < version_number(before)]
    if not earlier:
        raise SystemExit(f"follow: {family} {before}: no earlier release was read; say --since")
    return max(earlier, key=version_number)


def classes(
    family: str, release: str, since: str, package: Package, packages: Path = PACKAGES
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the model classes that a release serves and the earlier one does not, and the other way round."""
    with tempfile.TemporaryDirectory() as copy:
        data = Path(copy)
        shutil.copytree(ROOT / "data" / "engines", data / "engines")
        if family == "mlx" and not read_engine_classes.classes_of_type("llama"):
            types = bring("transformers", was_read("transformers")[-1], packages)
            read_engine_classes.learn_types(types.folder)
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


def served(
    family: str, release: str, since: str, old: Package | None, new: Package, packages: Path
) -> list[tuple[str, frozenset[str], frozenset[str]]]:
    """Return what a release serves and the earlier one does not, and the other way round, each with a heading."""
    if family == "llama_cpp":
        here = read_engine_classes.of_llama_cpp(new.folder)
        there = here if old is None else read_engine_classes.of_llama_cpp(old.folder)
        names = (f"Model classes ({len(here[0])})", f"GGUF architectures ({len(here[1])})")
        return [(name, one - two, two - one) for name, one, two in zip(names, here, there, strict=True)]
    return [("Model classes", *classes(family, release, since, new, packages))]


def stated_digest(rule: dict[str, Any]) -> list[str]:
    """Return the digests that a rule states; none if it has none."""
    return [*map(str, (rule.get("at") or {}).get("digest", ()))]


def held(family: str, new: Package) -> tuple[set[str], set[str]]:
    """Return the rules whose digests hold in a package, and those with a digest that does not."""
    found = digests(family, new)
    stated = {name: known for name, rule in rules_of(family).items() if (known := stated_digest(rule))}
    firm = {name for name, said in stated.items() if "-" not in said}
    steady = {name for name in firm if stated[name] == found[name]}
    parted = {
        name
        for name, said in stated.items()
        if any("-" not in pair and len({*pair}) > 1 for pair in zip(said, found[name], strict=True))
    }
    return steady, parted


def _section(one: Citation, kind: str, said: str) -> list[str]:
    """Return the lines of a report about one citation."""
    lines = ["", f"## {one}: {kind}", "", f"Cited by {', '.join(one.by)}."]
    if said:
        lines += ["", *(["```diff", said, "```"] if kind in ("changed", "other words") else [said])]
    return lines


def report(
    family: str,
    release: str,
    since: str,
    old: Package | None,
    new: Package,
    packages: Path = PACKAGES,
) -> tuple[list[str], set[str]]:
    """Return the draft's lines, and the names of the rules that nothing changed for; without an older one, digests tell."""
    lines = [
        f"# {family} {release}{new.built and f', built {new.built}'}, compared with {since or 'its digests'}",
        "",
    ]
    steady, parted = held(family, new)
    differences = served(family, release, since, old, new, packages)
    if old is None:
        lines += [
            f"{len(steady)} rules: what each was read in has the digest that it had."
            + (
                f" Changed: {', '.join(sorted(parted))}. State --since or --since-source to see what."
                if parted
                else " No difference to look at."
            )
        ]
    else:
        cited = citations(family)
        found = {one: judged(one, old, new, INSIDE[family]) for one in cited}
        kinds = ("changed", "other words", "gone", "not found", "ambiguous", "new", "unchanged")
        counted = {kind: [one for one in cited if found[one][0] == kind] for kind in kinds}
        lines += [f"{len(cited)} functions and files are cited.", ""]
        lines += [f"- {kind}: {len(many)}" for kind, many in counted.items() if many]
        reading = to_read(found, old, new, INSIDE[family])
        lines += ["", f"Functions to read: {len(reading.cited) + len(reading.others)}."]
        for one in reading.cited:
            lines += _section(one, *found[one])
        for topic, change in reading.others:
            lines += ["", f"## {change.path}::{change.name}: cited by no rule ({topic})", ""]
            lines += ["```diff", *difference((change.before, change.after), _LONGEST), "```"]
        if reading.devices:
            lines += ["", f"# Further places that compare devices otherwise: {len(reading.devices)}"]
        for change, compared in reading.devices:
            place = f"{change.path}::{change.name}".removesuffix("::")
            lines += ["", f"- {place}", *(f"  - `{one[:160]}`" for one in compared[:6])]
        further = [one for kind in kinds[:-1] for one in counted[kind] if one not in reading.cited]
        if further:
            lines += ["", f"# Further changes of what is cited: {len(further)}"]
        for one in further:
            lines += _section(one, *found[one])
        open_rules = {rule for one in cited for rule in one.by if found[one][0] != "unchanged"}
        said_of, touched = required(family, old, new)
        lines += ["", "## Requirements", "", *(said_of or ["All libraries are required as before."])]
        steady |= {rule for one in cited for rule in one.by} - open_rules
        steady -= touched
        here, there = flags(new, family), flags(old, family)
        differences.insert(0, ("Flags", frozenset(here - there), frozenset(there - here)))
        if family in VARIABLES:
            read, was = variables(new, family), variables(old, family)
            names = frozenset(read.keys() - was), frozenset(was.keys() - read)
            differences.insert(1, ("Variables of the environment", *names))
            other = [name for name in sorted(read.keys() & was) if read[name] != was[name]]
            lines += ["", "## Variables of the environment that are read otherwise", ""]
            lines += [f"- {name}: `{was[name][:160]}`, now `{read[name][:160]}`" for name in other] or [
                "None."
            ]
    for what, more, less in differences:
        lines += ["", f"## {what}", ""]
        lines += [f"New ({len(more)}): {', '.join(sorted(more)) or 'none'}."]
        lines += [f"Gone ({len(less)}): {', '.join(sorted(less)) or 'none'}."]
    if family == "vllm":
        lines += ["", "## Log lines", "", f"Places: {', '.join(places(new))}."]
    return lines, steady


def write(family: str, release: str, package: Package, steady: set[str], folder: Path) -> list[str]:
    """Write what can be written without judgment; return the files."""
    changed = []
    if family in read_engine_classes.READERS:
        path = read_engine_classes.add(family, release, package.folder, ROOT / "data")
        changed.append(str(path.relative_to(ROOT)))
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
            if last == release or not all(stated_digest(rules_of(family)[name]) for name in names):
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
    parser.add_argument("engine", choices=sorted({*INSIDE, *NAMES}))
    parser.add_argument("release", help="the release, such as 0.34.0, or newest")
    parser.add_argument("--since", help="the release to compare with (the newest that was read before it)")
    parser.add_argument(
        "--source", type=Path, help="folder or archive of the release, instead of its package"
    )
    parser.add_argument("--since-source", type=Path, help="folder or archive of the release to compare with")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where unpacked packages are kept")
    parser.add_argument(
        "--python", help="interpreter with CPU PyTorch and what the package imports (.cache/engines)"
    )
    parser.add_argument("--no-planner", action="store_true", help="do not run the engine's own planner")
    parser.add_argument("--write", action="store_true", help="write what needs no judgment into the data")
    given = parser.parse_args(words)
    given.engine = NAMES.get(given.engine, given.engine)
    if given.release == "newest":
        given.release = newest(given.engine)
        if given.release in was_read(given.engine):
            print(f"{given.engine} {given.release} was read.")
            return 0
    since = given.since or newest_read(given.engine, given.release)
    new = (
        bring(given.engine, given.release, given.packages)
        if given.source is None
        else opened(given.engine, given.source, given.packages)
    )
    _, parted = held(given.engine, new)
    firm = any(map(stated_digest, rules_of(given.engine).values()))
    old = None
    if given.since_source is not None:
        old = opened(given.engine, given.since_source, given.packages)
    elif since and (parted or not firm):
        old = bring(given.engine, since, given.packages)
    lines, steady = report(given.engine, given.release, since, old, new, given.packages)
    print("\n".join(lines), flush=True)
    if given.engine in follow_planner.asking.ASKED and not given.no_planner:
        python = given.python or environment(ROOT / ".cache" / "engines")
        rows = [
            *follow_planner.records(given.engine, given.release, python, new.folder, follow_planner.CONFIGS)
        ]
        kept = given.packages / f"planner-{given.engine}-{given.release}.jsonl"
        kept.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        print("\n".join(["", "## Planner", "", *follow_planner.summary(rows), "", f"Records: {kept}."]))
        both = (since, old or bring(given.engine, since, given.packages)), (given.release, new)
        told = follow_witness.answers(given.engine, both, python, follow_planner.CONFIGS, given.packages)
        title = f"## What {given.engine} {given.release} resolves, builds and plans otherwise than {since}"
        print("\n".join(["", title, *follow_witness.report(follow_witness.differences(*told))]))
    if given.write:
        for name in write(given.engine, given.release, new, steady, given.packages):
            print(f"wrote {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
