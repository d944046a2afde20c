"""A server's flag is spelled in ``data/flags``; the package takes it from there by what it sets."""

import ast
import json
import re
from collections import defaultdict

import pytest

from kvreport.catalog.server_flags import FAMILIES, flag_names, load_server_flags, with_flags
from kvreport.query import options
from kvreport.resources import assets_dir, data_dir, package_dir, templates_dir

_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_ARGPARSE = {"--help", "--version"}


def _own() -> set[str]:
    """This program's flags, of which some are a server's, too."""
    told = (package_dir() / "commands.json").read_text(encoding="utf-8")
    named: list[str] = []
    json.loads(told, object_hook=lambda entry: named.extend(str(entry.get("flags", "")).split()))
    return _ARGPARSE | set(named) | {flag for option in options() for flag in option.flags}


def _told(path) -> str:
    """What a file says beside its comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    tree = ast.parse(text)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return "\n".join(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    )


def test_every_flag_is_spelled_in_one_module_at_most():
    """Left out: what runs under an engine's own interpreter, which has no kvreport."""
    spelled = {
        name
        for server in load_server_flags(data_dir()).values()
        for group in server.groups
        for names in group.flags
        for name in names.split()
        if name.startswith("--")
    } - _own()
    found = defaultdict(set)
    for folder in (package_dir(), templates_dir(), assets_dir()):
        for path in folder.rglob("*"):
            if path.suffix in {".py", ".js", ".html", ".json"} and path.parent.name != "witness":
                for flag in spelled.intersection(_FLAG.findall(_told(path))):
                    found[flag].add(path.name)
    assert {flag: sorted(files) for flag, files in found.items() if len(files) > 1} == {}
    assert "--gpu-memory-utilization" not in found


def test_data_spells_a_flag_only_where_it_is_defined_or_quoted():
    """Quoted are lines of logs and the commands of recipes."""
    name = flag_names("vllm")["utilization"].lstrip("-")
    quotes = {"log_lines", "observations", "recipes_check.yaml"}
    files = (
        path.relative_to(data_dir()) for path in data_dir().rglob("*.yaml") if name in path.read_text("utf-8")
    )
    assert {path.parts[0] for path in files} - quotes == {"flags"}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_two_flags_set_differs(family):
    server = load_server_flags(data_dir())[family]
    current = [group for group in server.groups if group.until is group.package is None]
    assert len(flag_names(family)) == sum(len(group.flags) for group in current)


def test_a_text_names_a_flag_by_what_it_sets():
    assert with_flags("lower --{sglang:context}, {value}") == "lower --context-length, {value}"
    with pytest.raises(KeyError):
        with_flags("{vllm:no_such_setting}")
