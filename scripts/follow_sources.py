"""Read the sources of engines for ``make follow``: where a release comes from, and its functions by name.

Python is parsed. C++ is read by its text: a definition begins at the start of a line, and ends with its last brace.
"""

from __future__ import annotations

import ast
import copy
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

INSIDE: Final = {
    "vllm": "vllm",
    "sglang": "sglang/srt",
    "transformers": "transformers",
    "mlx": "mlx_lm",
    "llama_cpp": "",
}
"""The folder of each family's package that citations begin in."""
PACKAGE: Final = {"mlx": "mlx-lm", "llama_cpp": "llama-cpp-python"}
"""Packages that have another name than their family. llama-cpp-python bundles the sources of llama.cpp."""
MARKS: Final = {"llama_cpp": "src/llama-arch.cpp"}
"""A file below the folder that citations begin in, where an archive has that folder at different depths."""
SUFFIXES: Final = (".py", ".cpp", ".h")
_PYTHON: Final = ".py"
_LATIN: Final = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL
)  # strings, and comments
_HEAD: Final = re.compile(r"^[A-Za-z_][^;{}]*\{", re.MULTILINE)
_WITHOUT_NAME: Final = re.compile(r'(?:inline\s+)?namespace\b|extern\s+"')
_TYPE: Final = re.compile(r"(?:typedef\s+)?(?:struct|class|union|enum(?:\s+class)?)\s+(\w+)[^(=]*\{$")
_VALUE: Final = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*=")
_CALLED: Final = re.compile(r"((?:\w+::)*~?\w+)\s*\(")
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]')
_SAYS: Final = re.compile(r"\b\d[\w.]*|[<>=!]=|[<>+*/%-]|(?:->|\.|::)\w+")


@dataclass(frozen=True)
class Part:
    """A definition in C++."""

    name: str
    text: str  # Without comments.

    @property
    def tokens(self) -> list[str]:
        """Its words and signs, whatever the spaces between them."""
        return _TOKEN.findall(self.text)


Definition = ast.AST | Part


@dataclass
class Package:
    """One release's sources."""

    folder: Path  # Where they are.
    built: str  # The day of its newest file; empty where the archive does not state it.
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

    def all_files(self, inside: str) -> dict[str, Path]:
        """Return every file of sources by its path below the engine's folder."""
        within = self.folder / inside
        found = (one for suffix in SUFFIXES for one in within.rglob(f"*{suffix}"))
        return {one.relative_to(within).as_posix(): one for one in sorted(found)}

    def tree(self, path: Path) -> ast.Module:
        """Return a file's syntax tree."""
        if path not in self._trees:
            self._trees[path] = ast.parse(path.read_text(encoding="utf-8-sig"))
        return self._trees[path]

    def found(self, path: str, name: str, inside: str) -> list[tuple[Path, Definition]]:
        """Return each definition that a citation names, with its file; a citation without a name is the file."""
        made: list[tuple[Path, Definition]] = []
        for file in self.files(path, inside):
            if file.suffix != _PYTHON:
                parts = parts_of(file.read_text(encoding="utf-8", errors="replace"))
                made += [(file, one) for one in parts if name.replace(".", "::") in ("", one.name)]
            else:
                tree = self.tree(file)
                made += [(file, node) for node in named(tree, name)] if name else [(file, tree)]
        return made


def named(tree: ast.AST, dotted: str) -> Iterator[ast.AST]:
    """Yield what a name is of: functions and classes, else where it is assigned (``NAME =``, ``self.name =``)."""
    first, _, rest = dotted.partition(".")
    nodes = list(ast.walk(tree))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    made = [node for node in nodes if isinstance(node, kinds) and node.name == first]
    for node in made:
        yield from named(node, rest) if rest else (node,)
    if not made:
        for node in nodes:
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            told = isinstance(node, ast.Assign | ast.AnnAssign)
            if told and first in {getattr(one, "id", getattr(one, "attr", None)) for one in targets}:
                yield node


def parts_of(text: str) -> list[Part]:
    """Return the functions, types and tables that a C++ file defines, in their order.

    >>> [one.name for one in parts_of("int a::f(int x) {\\n  return x;\\n}\\nstruct b {\\n  int y;\\n};\\n")]
    ['a::f', 'b']
    """
    text = _LATIN.sub(lambda found: found[0] if found[0][0] in "\"'" else "", text)
    masked = _LATIN.sub(lambda found: found[0][0] + "_" * (len(found[0]) - 2) + found[0][0], text)
    made, place = [], 0
    while head := _HEAD.search(masked, place):
        place = head.end()
        if _WITHOUT_NAME.match(text, head.start()):
            continue
        depth = 1
        while depth and (sign := re.compile(r"[{}]").search(masked, place)):
            depth += 1 if sign[0] == "{" else -1
            place = sign.end()
            further = re.compile(r"\s*[,{][^;{}]*").match(masked, place)
            if not depth and further and masked[further.end() : further.end() + 1] == "{":
                depth, place = 1, further.end() + 1
        said = head[0]
        of_type = _TYPE.match(said)
        name = of_type or _CALLED.search(said.partition("=")[0]) or _VALUE.search(said)
        if name:
            lines = (line.strip() for line in text[head.start() : place].splitlines())
            made.append(Part(name[1], "\n".join(line for line in lines if line)))
    return made


class _Plain(ast.NodeTransformer):
    """Leaves out texts that stand as statements: docstrings, and those of attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        said = node.value
        return ast.Pass() if isinstance(said, ast.Constant) and isinstance(said.value, str) else node


def bare(node: Definition) -> str:
    """Return a definition's source without comments and docstrings; Python as it writes it itself."""
    if isinstance(node, Part):
        return node.text
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


def digest_of(nodes: list[Definition]) -> str:
    """Return the digest of definitions, without comments and docstrings; ``-`` for none."""
    trees = [
        node.tokens if isinstance(node, Part) else _shape(_Plain().visit(copy.deepcopy(node)))
        for node in nodes
    ]
    return sha256(repr(trees).encode()).hexdigest()[:12] if trees else "-"


def decides(node: Definition) -> str:
    """Return a digest of what a rule can be about: constants, comparisons, names of attributes and listed names."""
    told = []
    if isinstance(node, Part):
        told = _SAYS.findall(_LATIN.sub("", node.text))
    for one in ast.walk(ast.parse(bare(node))) if isinstance(node, ast.AST) else ():
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


def opened(family: str, source: Path, folder: Path) -> Package:
    """Return the package in a folder or an archive, unpacked below another folder where it is an archive.

    Raises:
        SystemExit: If there is none.
    """
    if source.is_dir():
        return Package(_root(family, source), _day(source))
    if not source.is_file():
        raise SystemExit(f"follow: {source}: no such folder or archive")
    place = folder / f"{family}-{sha256(source.read_bytes()).hexdigest()[:16]}"
    if not (place / "unpacked").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as into:
            made = Path(into) / "made"
            day = _unpack(source, made)
            (made / "unpacked").write_text(day, encoding="ascii")
            shutil.rmtree(place, ignore_errors=True)
            shutil.move(made, place)
    return Package(_root(family, place), (place / "unpacked").read_text(encoding="ascii"))


def bring(family: str, release: str, folder: Path) -> Package:
    """Return a release's package, downloaded and unpacked where it is not there yet.

    Raises:
        SystemExit: If it cannot be had.
    """
    place = folder / f"{family}-{release}"
    if not (place / "unpacked").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as into:
            name = PACKAGE.get(family, family)
            only = "--no-binary" if family in MARKS else "--only-binary"
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", into]
            command += [only, ":all:", f"{name}=={release}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            archives = [*Path(into).glob("*.whl"), *Path(into).glob("*.tar.gz")]
            if done.returncode or not archives:
                last = (done.stderr.strip().splitlines() or ["nothing was downloaded"])[-1]
                raise SystemExit(f"follow: {name} {release}: {last}")
            made = Path(into) / "made"
            (made / "unpacked").write_text(_unpack(archives[0], made), encoding="ascii")
            shutil.rmtree(place, ignore_errors=True)
            shutil.move(made, place)
    return Package(_root(family, place), (place / "unpacked").read_text(encoding="ascii"))


def _unpack(archive: Path, into: Path) -> str:
    """Unpack an archive's texts, and return the day of its newest file; empty where all files have one time, made up."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            kept = [one for one in wheel.infolist() if not one.filename.endswith(".so")]
            for one in kept:
                wheel.extract(one, into)
            return _newest({datetime(*one.date_time, tzinfo=UTC) for one in kept})
    with tarfile.open(archive) as tar:
        sources = [one for one in tar if one.isfile() and one.name.endswith((*SUFFIXES, "METADATA"))]
        tar.extractall(into, sources, filter="data")
    into.mkdir(exist_ok=True)
    return _newest({datetime.fromtimestamp(one.mtime, UTC) for one in sources})


def _newest(times: set[datetime]) -> str:
    return max(times).date().isoformat() if len(times) > 1 else ""


def _root(family: str, folder: Path) -> Path:
    """Return the folder of an unpacked archive that has the family's sources."""
    mark = MARKS.get(family)
    if mark is None:
        return folder
    found = sorted(folder.rglob(mark), key=lambda one: len(one.parts))
    if not found:
        raise SystemExit(f"follow: {folder}: found no {mark}")
    return found[0].parents[mark.count("/")]


def _day(folder: Path) -> str:
    """Return the day of a folder's newest file of sources."""
    times = [one.stat().st_mtime for suffix in SUFFIXES for one in folder.rglob(f"*{suffix}")]
    return datetime.fromtimestamp(max(times, default=0), UTC).date().isoformat()


@cache
def newest(family: str) -> str:
    """Return the newest release of an engine that the registry has.

    Raises:
        SystemExit: If it cannot be asked.
    """
    name = PACKAGE.get(family, family)
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.match(rf"{name} \(([0-9.]+)\)", done.stdout)
    if found is None:
        raise SystemExit(f"follow: {name}: no release was found; name one")
    return found[1]
