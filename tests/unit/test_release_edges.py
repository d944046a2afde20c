"""Every rule that depends on a release, on both sides of its edge: tests/release_edges.yaml."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import yaml

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.sglang.pools import PoolFlags
from kvreport.accounting.engines.step import Loading
from kvreport.accounting.engines.vllm.profiling import Shape
from kvreport.accounting.extras import with_draft
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.catalog import release as release_module
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.release import RULES, FieldByRelease, Rule, read_rules, release_at, version_number
from kvreport.errors import InputError
from kvreport.estimation import estimate

ROOT: Final = Path(__file__).resolve().parents[2]
ENGINES: Final = ROOT / "kvreport" / "accounting" / "engines"
TABLE: Final = yaml.safe_load((ROOT / "tests" / "release_edges.yaml").read_text(encoding="utf-8"))
EDGES: Final = [(entry, edge) for entry in TABLE for edge in entry["edges"] if "was" in edge]
RELEASE_NAMES: Final = frozenset({"release", "release_of", "release_number", "version_number"})
"""What a comparison of releases is written with; one of builds is of a number with a constant."""
OLDEST_BUILD: Final = 1000
"""Builds of llama.cpp are whole numbers above it; other numbers that are compared are smaller."""


def module_of(rule: str) -> ModuleType:
    """The module of a rule that is named ``vllm/releases.py::sampler``; one of the trunk where the engine has none of that name."""
    path = rule.partition("::")[0].removesuffix(".py").replace("/", ".")
    if path.startswith("vllm.") and not (ENGINES / f"{path.replace('.', '/')}.py").is_file():
        return importlib.import_module(f"kvreport.accounting.{path.removeprefix('vllm.')}")
    return importlib.import_module(f"kvreport.accounting.engines.{path}")


def is_value(rule: str) -> bool:
    """True for a rule of a rules file, whose edge is its value's."""
    return rule.partition("::")[0].endswith(RULES)


def engine_at(catalog: Catalog, family: str, release: str) -> Engine:
    """The record of a release, standing for that release alone."""
    return rules(catalog.engine(f"{family}@{release}")).at_release(release)


def value_of(name: str, value: Any, catalog: Catalog) -> Any:
    """What a word of the table stands for where an argument of this name takes more than a word."""
    match name:
        case "model" if isinstance(value, list):
            return with_draft(*map(catalog.model, value)).whole
        case "model":
            return catalog.model(value)
        case "shape":
            return Shape.of(catalog.model(value))
        case "tower":
            return Shape.of(catalog.model(value)).tower
        case "accelerator":
            return catalog.accelerator(value)
        case "layout":
            return Layout(**value)
        case "flags":
            return PoolFlags(**value)
        case "options":
            return LocalOptions(**value)
        case "serving":
            return Serving(**value)
        case "formats":
            return catalog.weight_formats
    return value


def answer(catalog: Catalog, entry: dict[str, Any], release: str) -> Any:
    """What a rule says for a release, as plain values."""
    rule, words = entry.get("call", entry["rule"]), dict(entry.get("with", {}))
    family, path = rule.split("/")[0], rule.partition("::")[2].split(".")
    if "ask" in entry:
        return estimated(catalog, f"{family}@{release}", entry["ask"], entry["of"].split("."))
    if is_value(rule):
        return plain(release_at(family, version_number(release)).values[path[0]])
    engine = engine_at(catalog, family.replace("_", "-"), release)
    found: Any = module_of(rule)
    for part in path:
        parent, found = found, getattr(found, part)
    if isinstance(parent, type):
        owner = value_of("tower", words.pop("tower"), catalog) if "tower" in words else rules(engine)
        assert isinstance(owner, parent)
        found = getattr(owner, path[-1])
    if callable(found):
        given = {name: value_of(name, value, catalog) for name, value in words.items()}
        of_release = {
            "release": release_at(family, version_number(release)),
            "engine": engine,
            "version": release,
        }
        takes = set(inspect.signature(found).parameters)
        if "loading" in takes:
            given = {
                "loading": Loading(
                    **{name.name: None for name in fields(Loading)} | {"engine": engine} | given
                )
            }
        found = found(**{name: of_release[name] for name in set(of_release) & takes}, **given)
    match entry.get("of"):
        case "layers":
            found = sum(group.count for group in found.layers)
        case str(name):
            found = found.get(name, 0) if isinstance(found, dict) else getattr(found, name)
    return plain(found)


def estimated(catalog: Catalog, engine: str, words: dict[str, Any], path: list[str]) -> Any:
    """A part of what an estimate answers, of each where the path meets several; the text of a refusal."""
    try:
        found: Any = estimate(**words, gpu="h100-sxm-80gb", engine=engine, catalog=catalog)
    except InputError as refusal:
        return str(refusal)
    for part in path:
        if found is None:
            return None
        if isinstance(found, tuple):
            found = found[int(part)] if part.isdecimal() else tuple(getattr(one, part) for one in found)
        else:
            found = getattr(found, part)
    return plain(found)


def plain(value: Any) -> Any:
    """A value as YAML writes it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value


@pytest.mark.parametrize(
    ("entry", "edge"), EDGES, ids=[f"{entry['rule']} {edge['first']}" for entry, edge in EDGES]
)
def test_a_rule_changes_at_its_edge(catalog: Catalog, entry: dict[str, Any], edge: dict[str, Any]) -> None:
    answers = [answer(catalog, entry, str(edge[side])) for side in ("last", "first")]
    assert answers == [edge["was"], edge["is"]]
    assert edge["was"] != edge["is"]


def test_nothing_was_released_between_the_two_sides_of_an_edge() -> None:
    for family in ("vllm", "sglang"):
        text = (ROOT / "data" / f"{family}_releases.yaml").read_text(encoding="utf-8")
        dated = sorted(version_number(name) for name in yaml.safe_load(text)["releases"])
        for entry in TABLE:
            if not entry["rule"].startswith(family):
                continue
            for edge in entry["edges"]:
                last, first = version_number(str(edge["last"])), version_number(str(edge["first"]))
                assert last in dated, (entry["rule"], edge)
                assert first in dated, (entry["rule"], edge)
                between = [one for one in dated if last < one < first and one[:3] != last[:3]]
                assert not between, (entry["rule"], edge, between)


def test_tests_that_the_table_leaves_an_edge_to_are_there() -> None:
    for entry in TABLE:
        assert is_value(entry["rule"]) != ("source" in entry), entry["rule"]
        for edge in entry["edges"]:
            assert ("was" in edge) != ("test" in edge), (entry["rule"], edge)
            if "test" in edge:
                path, _, name = edge["test"].partition("::")
                assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), edge


# --- no comparison without its edge ---------------------------------------------------------------------


def trimmed(release: tuple[int, ...]) -> tuple[int, ...]:
    """A release without zeros at its end: 0.20.0 is 0.20. A build of llama.cpp is its number."""
    while release and release[-1] == 0:
        release = release[:-1]
    return release


def release_number(text: str) -> tuple[int, ...]:
    """A release of the table: three numbers, or the one of a build."""
    return (int(text[1:]),) if text.startswith("b") else version_number(text)[:3]


def numbers_in(value: object) -> Iterator[tuple[int, ...]]:
    """Every release in a value."""
    if type(value) is int and value > OLDEST_BUILD:
        yield (value,)
    elif isinstance(value, tuple) and len(value) > 1 and all(type(one) is int for one in value):
        yield trimmed(value)
    elif isinstance(value, tuple):
        for one in value:
            yield from numbers_in(one)


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression is written with."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }


def boundaries(node: ast.Compare, module: ModuleType) -> set[tuple[int, ...]]:
    """The releases that a comparison names: literally, or by a constant of its module."""
    found: set[tuple[int, ...]] = set()
    for side in (node.left, *node.comparators):
        for part in ast.walk(side):
            if isinstance(part, ast.Tuple | ast.Name | ast.Attribute | ast.Subscript):
                try:
                    value = eval(compile(ast.Expression(part), "", "eval"), dict(vars(module)))  # noqa: S307
                except (NameError, AttributeError, KeyError, TypeError):
                    continue
                if not isinstance(part, ast.Name | ast.Attribute) or isinstance(value, tuple):
                    found |= set(numbers_in(value)) if not _inside(part, side) else set()
    return {one for one in found if one < (1 << 16,)}


def _inside(part: ast.AST, side: ast.expr) -> bool:
    """True for a pair of releases of which one is taken: the subscript says which."""
    return any(
        isinstance(one, ast.Subscript) and one is not part and part in ast.walk(one.value)
        for one in ast.walk(side)
    )


def orders_releases(node: ast.Compare) -> bool:
    """True for a comparison of releases, or of llama.cpp's builds, by their order."""
    names = names_in(node)
    ordered = any(isinstance(one, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for one in node.ops)
    builds = "number" in names and any(one.isupper() for one in names)
    return ordered and bool(names & RELEASE_NAMES or builds) and "capability" not in names


@cache
def functions() -> tuple[tuple[str, ast.AST, ModuleType], ...]:
    """Every node of the engines' modules, by the function that it stands in."""
    found: list[tuple[str, ast.AST, ModuleType]] = []
    for path in sorted(ENGINES.rglob("*.py")):
        name = path.relative_to(ENGINES).as_posix()
        module = module_of(name.removesuffix("/__init__.py"))
        pending: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text(encoding="utf-8")), "")]
        while pending:
            node, place = pending.pop()
            for child in ast.iter_child_nodes(node):
                inner = place
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    inner = f"{place}.{child.name}" if place else child.name
                found.append((f"{name}::{inner}", child, module))
                pending.append((child, inner))
    return tuple(found)


def rules_of(family: str) -> dict[str, Rule]:
    """A family's rules by name."""
    found = read_rules(ROOT / "data", family)
    return {} if found is None else {rule.rule: rule for rule in found.rules}


def dated_of(family: str) -> dict[str, Rule | FieldByRelease]:
    """A family's rules, and the fields of its records that are no plain values, by name."""
    found = read_rules(ROOT / "data", family)
    assert found is not None
    return {**rules_of(family), **{field.field: field for field in found.fields}}


FAMILIES: Final = ("llama_cpp", "sglang", "vllm")
"""Engines whose rules are a file of data."""
EDGES_OF: Final[dict[str, set[tuple[int, ...]]]] = {}
for _entry in TABLE:
    _firsts = {trimmed(release_number(str(edge["first"]))) for edge in _entry["edges"]}
    EDGES_OF.setdefault(_entry["rule"], set()).update(_firsts)


def test_every_release_at_which_a_rule_changes_is_in_the_table() -> None:
    askers: dict[tuple[str, str], set[str]] = {}
    for place, node, _ in functions():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            askers.setdefault((place.split("/")[0], node.value), set()).add(place)
        if isinstance(node, ast.Attribute) and node.attr in Engine.model_fields:
            askers.setdefault((place.split("/")[0], node.attr), set()).add(place)
    known = set()
    shared = ast.walk(ast.parse(Path(release_module.__file__).read_text(encoding="utf-8")))
    of_all = {node.value for node in shared if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    of_all |= {name for method, name, _ in asked_by_name() if method != "trait"}
    for family in FAMILIES:
        for name, rule in dated_of(family).items():
            recorded = {release_module.__name__} if name in of_all or name in Engine.model_fields else set()
            places = askers.get((family, name), recorded)
            assert places, f"no code asks for {name}"
            known |= places | {f"{family}/{RULES}::{name}"}
            held = set().union(
                *(EDGES_OF.get(place, set()) for place in (*places, f"{family}/{RULES}::{name}"))
            )
            changes = {trimmed(first) for first in list(rule.by_release())[1:]}
            assert changes <= held, (family, name, changes - held)
        found = read_rules(ROOT / "data", family)
        known |= (
            {place for one in found.lists for place in askers.get((family, one.list), ())} if found else set()
        )
        unknown = {rule for rule in EDGES_OF if rule.startswith(f"{family}/")} - known
        assert not unknown, sorted(unknown)


def test_a_value_of_a_release_is_added_in_the_rules_and_in_the_table_alone(tmp_path: Path) -> None:
    path = tmp_path / "engines" / "vllm" / RULES
    path.parent.mkdir(parents=True)
    text = (ROOT / "data" / "engines" / "vllm" / RULES).read_text(encoding="utf-8")
    added = text.replace('values: {"0": 0.9, "0.20": 0.92}', 'values: {"0": 0.9, "0.20": 0.92, "0.34": 0.95}')
    assert added != text
    path.write_text(added, encoding="utf-8")
    found = read_rules(tmp_path, "vllm")
    assert found is not None
    (rule,) = (one for one in found.rules if one.rule == "utilization")
    dated = rule.by_release()
    assert [release_module.value_at(dated, one) for one in ((0, 33, 1), (0, 34), ())] == [0.92, 0.95, 0.95]
    # What the table lacks then is this edge, which one line adds; no code names the release.
    assert {trimmed(first) for first in list(dated)[1:]} - EDGES_OF["vllm/rules.yaml::utilization"] == {
        (0, 34)
    }


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama_cpp"])
def test_every_list_of_classes_is_asked_for(family: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "kvreport").rglob("*.py"))]
    found = read_rules(ROOT / "data", family)
    assert found is not None
    assert len(found.lists) > 20
    for one in found.lists:
        assert any(f'"{one.list}"' in text for text in texts), one.list


def test_code_asks_for_rules_that_are_there_and_for_values_of_their_kind() -> None:
    kinds = {"has": bool, "_has": bool, "count": int, "word": str, "names": frozenset}
    asked = 0
    for place, node, _ in functions():
        family = place.split("/")[0]
        if (
            family not in FAMILIES
            or not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
        ):
            continue
        if node.func.attr not in kinds or len(node.args) != 1:
            continue
        for part in ast.walk(node.args[0]):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                values = rules_of(family)[part.value].by_release().values()
                assert {type(value) for value in values} == {kinds[node.func.attr]}, (place, part.value)
                asked += 1
    assert asked > 50


@cache
def asked_by_name() -> frozenset[tuple[str, str, str]]:
    """What code outside the engines' modules asks a release or a family for by name: how, the name, and where."""
    found = set()
    for path in sorted((ROOT / "kvreport").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call | ast.Compare):
                continue
            text, place = ast.unparse(node), path.relative_to(ROOT).as_posix()
            for method, name in re.findall(
                r"release_of\([\w.]+\)\.(has|names|word|count)\('(\w+)'\)|", text
            ) + re.findall(r"\b(trait)\((?:[\w.']|\(\))+, '(\w+)'\)", text):
                if method:
                    found.add((method, name, place))
            for name in re.findall(r"'(\w+)' not in release_of", text) + re.findall(
                r"release(?:\.values\.get|\.names)\('(\w+)'", text
            ):
                found.add(("values", name, place))
    return frozenset(found)


def test_what_code_asks_by_name_is_in_some_rules_and_every_trait_is_asked_for() -> None:
    found = [
        one
        for path in sorted((ROOT / "data" / "engines").glob(f"*/{RULES}"))
        if (one := read_rules(ROOT / "data", path.parent.name)) is not None
    ]
    dated = {rule.rule for one in found for rule in one.rules}
    always = {one.trait for rules in found for one in rules.traits}
    asked = asked_by_name()
    for method, name, place in asked:
        assert name in (always if method == "trait" else dated), (place, name)
    assert always == {name for method, name, _ in asked if method == "trait"}
    assert len(always) > 15


def test_every_comparison_of_releases_is_in_the_table() -> None:
    missing, seen = [], set()
    for rule, node, module in functions():
        if not isinstance(node, ast.Compare) or not orders_releases(node):
            continue
        assert rule.split("/")[0] not in FAMILIES, (rule, ast.unparse(node))
        seen.add(rule)
        named = boundaries(node, module)
        if rule not in EDGES_OF or not named <= EDGES_OF[rule]:
            missing.append((rule, ast.unparse(node), sorted(named - EDGES_OF.get(rule, set()))))
    assert not missing, "\n".join(map(str, missing))
    others = {rule for rule in EDGES_OF if rule.split("/")[0] not in FAMILIES}
    assert others <= seen, sorted(others - seen)
    assert len(EDGES_OF) > 60


def test_versions_are_read_where_releases_are_compared_only() -> None:
    elsewhere = [path for path in sorted((ROOT / "kvreport").rglob("*.py")) if path.name != "release.py"]
    assert not [path for path in elsewhere if "version_number(" in path.read_text(encoding="utf-8")]


def test_releases_are_compared_in_the_rules_of_engines_only() -> None:
    for path in sorted((ROOT / "kvreport").rglob("*.py")):
        if path.is_relative_to(ENGINES):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and orders_releases(node):
                literal = [one for one in ast.walk(node) if isinstance(one, ast.Tuple)]
                assert not any(list(numbers_in(_literal(one))) for one in literal), (path, ast.unparse(node))


def _literal(node: ast.Tuple) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
