"""The scripts that the site's own scripts compute with: formulas and words generated from Python.

``assets/kv-kernel.js`` sets ``kvKernel``: the functions of :mod:`kvreport.accounting.kernel` and
:mod:`kvreport.plot` under their JavaScript names, its constants, and the words of :mod:`kvreport.words` as ``kvKernel.words``.
The files of :data:`CORES` have what the scripts of some pages read of it.
``assets/kv-lessons.js`` sets ``kvLessons`` from :mod:`kvreport.accounting.lessons`, on pages with instruments.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import cache
from types import ModuleType
from typing import Any, Final

from kvreport import budgets, plot, query, resources, words
from kvreport.accounting import kernel, lessons
from kvreport.accounting.engines.by_family import FAMILIES
from kvreport.accounting.engines.command import Served
from kvreport.accounting.parallel import Layout
from kvreport.catalog.server_flags import flag_names, with_flags
from kvreport.estimation import remedies
from kvreport.publish.javascript import PRELUDE, Translation, camel, translate
from kvreport.resources import read_table
from kvreport.traffic import fields, trace

ADDRESS: Final = "assets/kv-kernel.js"
"""Where the script stands in the site."""

CORES: Final[dict[str, list[str]]] = read_table("scripts of cores")
"""Parts of the script for pages whose first load would be too heavy with all of it, and the scripts that read each."""

_PYTHON_ALONE: Final = frozenset({"engines"})
"""Words that no script says."""

_SERVED: Final = (
    "tensor_parallel", "pipeline_parallel", "data_parallel", "enable_dp_attention", "expert_parallel", "decode_context_parallel",
    "nodes", "data_parallel_size_local", "mm_encoder_tp_mode", "context", "max_seqs", "max_batched_tokens", "utilization",
    "weights", "kv", "block_size", "eager",
)  # fmt: skip
"""What the flags set that scripts write."""

_USED: Final = re.compile(r"\b(?:kernel|kvKernel)\s*\.\s*(\w+)")
_USED_WORDS: Final = re.compile(r"\bwords(?:\(\))?\s*\.\s*(\w+)")
_TAKEN: Final = re.compile(r"\{([^{}]*)\} = (?:root\.)?(?:kernel|kvKernel)(\.words)?;")

LESSONS_ADDRESS: Final = "assets/kv-lessons.js"
"""Where the script of the chapters' instruments stands."""

_HEAD: Final = """\
/* Generated from kvreport/accounting/kernel.py and kvreport/words.json when the site was built. */
(function (root) {
"use strict";
"""


def shared_words() -> dict[str, Any]:
    """Return the words that scripts read: the file of words, and what code declares once for both sides."""
    options = [option for option in query.options() if option.url]
    said = json.loads(with_flags(json.dumps(words.ALL)))
    return {name: value for name, value in said.items() if name not in _PYTHON_ALONE} | {
        "serve": {server: _served(server) for server in words.KV_NAMES},
        "url_keys": query.url_keys(),
        "flags": {option.name: option.flags[0] for option in options},
        "levers": remedies.LEVERS,
        "trace": words.ALL["trace"]
        | {
            "bytes": budgets.TRACE.bytes,
            "rows": budgets.TRACE.rows,
            "blocks": trace.MAX_BLOCKS,
            "paths": trace.MAX_PATHS,
            "left_out": trace.MAX_LEFT_OUT,
            "since_1970": fields.SINCE_1970,
        },
    }


def _served(server: str) -> dict[str, Any]:
    """How a server is started, and its flags by what each sets."""
    names = flag_names(server)
    command = FAMILIES[server].command(Served("", Layout(), None))
    start = list(command.words[:-1]) if command is not None else []
    return {"start": start} | {name: names[name] for name in _SERVED if name in names}


@cache
def _translation() -> Translation:
    return translate("\n".join(inspect.getsource(module) for module in (kernel, plot)))


def script() -> str:
    """Return the script."""
    return _script(_translation(), shared_words())


def core_script(address: str) -> str:
    """Return the part of :func:`script` at one of the addresses of :data:`CORES`; it adds to what is there.

    It has the sentences that its scripts name, and those of verdicts.
    """
    read = "\n".join((resources.assets_dir() / name).read_text(encoding="utf-8") for name in CORES[address])
    taken = [(set(re.findall(r"\w+", names)), bool(said)) for names, said in _TAKEN.findall(read)]
    called = set(_USED.findall(read)).union(*(names for names, said in taken if not said))
    needed = set(_USED_WORDS.findall(read)).union(*(names for names, said in taken if said))
    source = _closure(called)
    if any(camel(name) in called for name in _names_of(plot)):
        source += "\n" + inspect.getsource(plot)
    said = {name: value for name, value in shared_words().items() if name in needed}
    if "sentences" in said:
        named = set(re.findall(r"\w+", read)).union(words.ALL["verdicts"])
        said["sentences"] = {name: text for name, text in said["sentences"].items() if name in named}
    return _script(translate(source), said, "const before = root.kvKernel || {};\n")


def _names_of(module: ModuleType) -> list[str]:
    """The functions and constants of a module."""
    nodes = ast.parse(inspect.getsource(module)).body
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef)] + _constants(nodes)


def _closure(called: set[str]) -> str:
    """Return the kernel's source with the functions that are called, and what they need, only."""
    nodes = ast.parse(inspect.getsource(kernel)).body
    needed = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and camel(node.name) in called}
    needed |= {name for name in _constants(nodes) if name in called}
    while True:
        used = {
            name.id
            for node in nodes
            if isinstance(node, ast.FunctionDef) and node.name in needed
            for name in ast.walk(node)
            if isinstance(name, ast.Name)
        }
        if used <= needed:
            break
        needed |= used
    kept = [
        node
        for node in nodes
        if (not isinstance(node, ast.FunctionDef) or node.name in needed)
        and (not isinstance(node, ast.AnnAssign) or ast.unparse(node.target) in needed)
    ]
    return "\n".join(ast.unparse(node) for node in kept)


def _constants(nodes: list[ast.stmt]) -> list[str]:
    return [ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)]


def _script(made: Translation, said: dict[str, Any], before: str = "") -> str:
    written = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    merged = "sentences: { ...before.words?.sentences, ...words.sentences }"
    more = f"...before, words: {{ ...before.words, ...words, {merged} }}" if before else "words"
    return "\n".join(
        [
            _HEAD + before,
            PRELUDE,
            made.body,
            f"const words = {written};",
            f"root.kvKernel = Object.freeze({{ {more}, {', '.join(made.names)} }});",
            '})(typeof globalThis === "object" ? globalThis : this);\n',
        ]
    )


@cache
def _lessons() -> tuple[Translation, tuple[str, ...]]:
    """Translate the lessons, and name the kernel's functions that they import."""
    source = inspect.getsource(lessons)
    imported = [
        alias.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module == kernel.__name__
        for alias in node.names
    ]
    # __all__ names functions that instruments may call; it is Python's own business.
    body = "\n".join(
        ast.unparse(node)
        for node in ast.parse(source).body
        if not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    )
    made = translate(body, _translation().aliases)
    return made, tuple(camel(name) for name in imported if camel(name) in _translation().names)


def lessons_script() -> str:
    """Return the script of the chapters' instruments; it comes after :func:`script`."""
    made, imported = _lessons()
    return "\n".join(
        [
            _HEAD.replace("kernel.py and kvreport/words.json", "lessons.py"),
            PRELUDE.split("/**\n * The remainder", maxsplit=1)[0] if "roundHalfEven(" in made.body else "",
            f"const {{ {', '.join(imported)} }} = root.kvKernel;",
            made.body,
            f"root.kvLessons = Object.freeze({{ {', '.join((*imported, *made.names))} }});",
            '})(typeof globalThis === "object" ? globalThis : this);\n',
        ]
    )


def declarations() -> str:
    """Return the script's types, as TypeScript declares them."""
    made = _translation()
    members = "\n".join(
        f"  readonly {one}" if ":" in one.split("(")[0] else f"  {one}" for one in made.declarations
    )
    types = "\n".join(made.types)
    return f"{types}\n\ninterface Kernel {{\n  readonly words: {_shape(shared_words())};\n{members}\n}}\n"


def _shape(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the type of a JSON value; objects are read by keys that data names."""
    if isinstance(value, dict):
        shapes = dict.fromkeys(_shape(one) for one in value.values())
        if len(shapes) == 1:
            return f"{{ readonly [name: string]: {next(iter(shapes))} }}"
        return f"{{ {'; '.join(f'readonly {name}: {_shape(one)}' for name, one in value.items())} }}"
    if isinstance(value, list):
        return f"readonly ({_shape(value[0])})[]" if value else "readonly string[]"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"
