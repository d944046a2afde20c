"""Rank what a release changed by how likely a memory rule changed with it, for ``make follow``.

Weights and topics were chosen on the rules that SGLang 0.5.10 to 0.5.23 and vLLM 0.22 to 0.28 introduced. The number of
cited functions and the order of topics were chosen with vLLM 0.29 to 0.33, too, and the place of variables with vLLM 0.29 to
0.31 and SGLang 0.5.20 and 0.5.21 (docs/about/follow-a-release.md).
"""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, log1p
from pathlib import Path
from typing import Final

from follow_sources import Definition, Package, Part, bare, parts_of

MOST: Final = 30
"""Functions to read of one release."""
CITED: Final = 21
"""Of these, functions that rules cite; more where the others are fewer."""
TOPICS: Final[Mapping[str, tuple[re.Pattern[str], int]]] = {
    name: (re.compile(words), places)
    for name, words, places in (
        ("memory", r"memory|mem_|profil|utilization|reserv|workspace|buffer|empty_cache|headroom", 3),
        ("plans", r"spec$|Spec|kv_cache|kv_pool|pool|slots|ring|window|groups|num_layers|blocks|mamba|state", 4),
        (
            "formats",
            r"dtype|float32|float16|bfloat16|fp8|float8|uint8|int8|fp4|mxfp|quant|scale|ggml_type|GGML_TYPE",
            4,
        ),
        ("limits", r"max_num|max_running|chunked_prefill|max_model_len|max_tokens|batched|max_bs|max_total|num_reqs|num_seqs|max_seq|n_ubatch|n_ctx|n_seq", 1),
        ("graphs", r"graph|capture|compil", 0),
        ("devices", r"capability|is_sm|_sm\d|is_hip|is_rocm|is_cuda|is_xpu|is_npu|is_blackwell|is_hopper|major|device_name|gfx|arch|platform|envs", 0),
        (
            "allocations",
            r"^torch\.(empty|zeros|ones|full)|new_empty|new_zeros|register_buffer|nn\.Parameter|pin_memory|\.(contiguous|clone|float|copy_|expand|repeat)$|pad|allocat|free|ggml_new|malloc",
            0,
        ),
        ("sizes", r"bytes|itemsize|element_size|page_size|block_size|num_blocks|cell_size|cdiv|round_up|align|stride|num_pages|shape", 0),
    )
}  # fmt: skip
"""Words that changed code is sorted by, and functions to read of each topic that no rule cites."""
WEIGHTS: Final = {
    "place": 0.35,
    "words": 0.3,
    "called": 0.6,
    "namesake": 0.4,
    "named": 0.4,
    "file": 0.3,
    "size": -0.45,
    "whole": -1.0,
}
"""What is added to the weight of a topic's words: see :meth:`Ranking._base`."""
_DEVICE: Final = re.compile(
    r"(?:capability|compute_cap|cuda_arch|sm_version|\bmajor)\w*\b[^=\n]{0,40}(?:>=|<=|==|<|>|\bin\b)\s*[\[(]?\s*\(?\d"
    r"|(?:has|is)_device_capability\w*\(\s*\(?\d"
)
"""A comparison of a device's compute capability."""
_KIND: Final = re.compile(r"\bgfx\d|_gfx|\b_?is_(?:hip|rocm|cuda|xpu|npu|musa|cpu)\b")
"""A question for the kind of device."""
_SETTING: Final = re.compile(r"\benvs?\.([A-Z]\w+)")
"""A variable of the environment that an engine reads."""
SETTINGS: Final = 1
"""Functions to read that read such a variable which is gone."""
_OFTEN: Final = 3
"""Definitions of one name that may have changed for a call to tell which is meant."""
_RUN: Final = frozenset({"forward", "load_weights", "__call__"})
"""Methods that change in every release and that every model has."""
_COMMON: Final = _RUN | {"__init__", "__post_init__"}
_SIGNS: Final = re.compile(r"[A-Za-z_][\w.]*|\d+(?:\.\d+)?")
_WORD: Final = re.compile(r"[A-Za-z_]\w{2,}")
_MANY: Final = 3
"""How often one word counts in one difference."""
_SMOOTH: Final = 5


@dataclass
class Change:
    """A definition that a release changed: a function, the statements of a class or of a file outside its functions."""

    path: str
    name: str  # Empty for the statements of a file.
    before: str
    after: str
    # Words added or removed on balance, and those beside a changed number.
    words: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        sides = [Counter(_SIGNS.findall(side)) for side in (self.before, self.after)]
        self.words = (sides[0] - sides[1]) + (sides[1] - sides[0])
        numbers = {word for word in self.words if word[0].isdigit()}
        lines = {*self.before.splitlines()} ^ {*self.after.splitlines()} if numbers else ()
        signs = [{*_SIGNS.findall(line)} for line in lines]
        self.words.update(word for line in signs if line & numbers for word in line - self.words.keys())

    @property
    def last(self) -> str:
        """Its name alone."""
        return re.split(r"\.|::", self.name)[-1]


def _units(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield functions, and classes without their methods, by their dotted names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            body = [one for one in node.body if not isinstance(one, _Defined)]
            plain = ast.ClassDef(
                node.name, node.bases, node.keywords, body or [ast.Pass()], node.decorator_list
            )
            yield f"{within}{node.name}", plain
            yield from _units(node, f"{within}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _units(node, within)


_Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Outside(ast.NodeTransformer):
    """Leaves the statements of a file: no functions, classes and imports."""

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, _Defined | ast.Import | ast.ImportFrom):
            return None
        made = (
            self.generic_visit(node) if isinstance(node, ast.Module | ast.If | ast.Try | ast.With) else node
        )
        if isinstance(made, ast.If | ast.Try | ast.With) and not made.body:
            made.body = [ast.Pass()]
        return made


def definitions(path: Path) -> dict[str, tuple[Definition, str]]:
    """Return what a file defines by name, the first of each, with its source; its own statements under an empty name.

    The source is empty where it is not in one piece.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    made: dict[str, tuple[Definition, str]] = {}
    if path.suffix != ".py":
        for part in parts_of(text):
            made.setdefault(part.name, (part, part.text))
        return made
    tree, lines = ast.parse(text), text.split("\n")
    for name, node in _units(tree):
        source = ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(one.lineno for one in (node, *node.decorator_list))
            source = "\n".join(lines[first - 1 : node.end_lineno])
        made.setdefault(name, (node, source))
    return made | {"": (_Outside().visit(tree) or ast.Pass(), "")}


def changes(old: Package, new: Package, inside: str) -> list[Change]:
    """Return every definition of the newer package that differs, without comments and docstrings, or is new."""
    before, after = old.all_files(inside), new.all_files(inside)
    found = []
    for path, file in after.items():
        if path in before and before[path].read_bytes() == file.read_bytes():
            continue
        sides = [definitions(before[path]) if path in before else {}, definitions(file)]
        for name, (node, source) in sides[1].items():
            was, text = sides[0].get(name, (None, ""))
            if was is not None and ((source and source == text) or _alike(was, node)):
                continue
            texts = ["" if one is None else bare(one) for one in (was, node)]
            if texts[0] != texts[1] and texts[1] not in ("", "pass"):
                found.append(Change(path, name, *texts))
    return found


def _alike(one: Definition, other: Definition) -> bool:
    """Whether two definitions are the same but for their places."""
    if isinstance(one, Part) or isinstance(other, Part):
        return one == other
    return ast.dump(one) == ast.dump(other)


@dataclass(frozen=True)
class Cited:
    """A function that rules cite and that a release changed, with its source on both sides."""

    path: str
    name: str
    before: str
    after: str


class Ranking:
    """The functions to read of one release.

    Args:
        changed: Every definition that it changed.
        cited: What rules cite in the newer package, each with its file.
        texts: Every file of the newer package.
    """

    def __init__(
        self, changed: Sequence[Change], cited: Sequence[tuple[str, Definition]], texts: Iterable[str]
    ) -> None:
        self.changed = changed
        self._seen = Counter(word for one in changed for word in one.words)
        bodies = [bare(node) for _, node in cited]
        self._common = Counter(word for body in bodies for word in {*_WORD.findall(body)})
        self._cited, self._files = max(1, len(bodies)), 0
        self._everywhere: Counter[str] = Counter()
        # A variable that no file has any more: a function that read it decides by itself now.
        gone = {name for word in self._seen for name in _SETTING.findall(word)}
        for text in texts:
            self._files += 1
            words = {*_WORD.findall(text)}
            gone -= words
            self._everywhere.update(words & self._common.keys())
        pattern = re.compile(rf"\benvs?\.(?:{'|'.join(sorted(gone)) or '(?!)'})\b")
        self._topics = {"settings": (pattern, SETTINGS), **TOPICS}
        self._called = Counter(word for body in bodies for word in re.findall(r"(\w+)\(", body))
        self._names = {getattr(node, "name", "").rpartition("::")[2] for _, node in cited} - _COMMON
        self._defined = Counter(one.last for one in changed)
        self._places = Counter(part for path, _ in cited for part in _parents(path))
        self._changes = Counter(part for one in changed for part in _parents(one.path))

    def rarity(self, word: str) -> float:
        """1 for a word in one difference, 0 for a word in all: what many functions changed alike is a renaming."""
        every = max(2, len(self.changed))
        return max(0.0, log(every / max(1, self._seen[word])) / log(every))

    def topics(self, words: Mapping[str, int]) -> dict[str, float]:
        """Return the weight of changed words by topic."""
        return {
            name: log1p(
                sum(
                    self.rarity(word) * min(count, _MANY)
                    for word, count in words.items()
                    if pattern.search(word)
                )
            )
            for name, (pattern, _) in self._topics.items()
        }

    def _telling(self, word: str) -> float:
        """How much more common a word is in what rules cite than in the package."""
        if self._common[word] < 2:
            return 0.0
        share = self._common[word] / self._cited
        return max(0.0, log(share * self._files / (self._everywhere[word] + 1)))

    def _base(self, one: Change) -> float:
        """What a change is worth whatever its topic is.

        Rules cite its folder more than others (place); its words are common in what rules cite (words); a cited function
        calls it (called), or has its name (namesake); a topic's words are in its name (named) or path (file). A long
        difference is worth less than a short one with the same words (size), and so is what all models have (whole).
        """
        share = self._cited / max(1, len(self.changed))
        here = share
        for part in _parents(one.path):
            here = (self._places[part] + _SMOOTH * here) / (self._changes[part] + _SMOOTH)
        spelled = {word for sign in one.words for word in _WORD.findall(sign)}
        parts = {
            "place": log(here / share),
            "words": log1p(sum(map(self._telling, spelled))),
            "called": float(self._called[one.last] > 0 and self._defined[one.last] <= _OFTEN),
            "namesake": float(one.last in self._names),
            "named": float(any(pattern.search(one.last) for pattern, _ in self._topics.values())),
            "file": float(any(pattern.search(one.path) for pattern, _ in self._topics.values())),
            "size": log1p(sum(self.rarity(word) * count for word, count in one.words.items())),
            "whole": float(one.last in _RUN),
        }
        return sum(WEIGHTS[name] * value for name, value in parts.items())

    def first_cited(self, cited: Sequence[Cited]) -> list[Cited]:
        """Return cited functions by the weight of what changed in them, the heaviest first."""

        def weight(one: Cited) -> float:
            return sum(self.topics(Change(one.path, one.name, one.before, one.after).words).values())

        return sorted(cited, key=lambda one: (-weight(one), one.path, one.name))

    def others(self, count: int, without: Iterable[tuple[str, str]] = ()) -> list[tuple[str, Change]]:
        """Return the changes that no rule cites and that are to be read, each with its topic.

        Args:
            count: How many; where it leaves places beyond the topics' own, these are dealt out in turn.
            without: Path and name of definitions that are cited.
        """
        left_out = {*without}
        open_ = [one for one in self.changed if not _within(one, left_out)]
        base = {id(one): self._base(one) for one in open_}
        queues: dict[str, list[Change]] = {}
        weights = {id(one): self.topics(one.words) for one in open_}
        for topic in self._topics:
            told = [one for one in open_ if weights[id(one)][topic] > 0]
            queues[topic] = sorted(
                told, key=lambda one: (-base[id(one)] - weights[id(one)][topic], one.path, one.name)
            )
        topics = self._topics
        rounds = max(places for _, places in topics.values())
        turns = [name for turn in range(rounds) for name, (_, places) in topics.items() if places > turn]
        kept: list[tuple[str, Change]] = []
        read: set[int] = set()
        while len(kept) < count and any(queues.values()):
            topic = turns.pop(0)
            turns = turns or [*topics]
            queues[topic] = [one for one in queues[topic] if id(one) not in read]
            if queues[topic]:
                kept.append((topic, queues[topic].pop(0)))
                read.add(id(kept[-1][1]))
        return kept


def device_checks(changed: Iterable[Change]) -> list[tuple[Change, list[str]]]:
    """Return what an earlier release had with other comparisons of compute capabilities, and those lines.

    Of a file's own statements, what they bind for one kind of device counts as well: often a kernel, which functions that
    did not change then call.
    """
    found = []
    for one in changed:
        sides = [
            Counter(line.strip() for line in side.splitlines() if _DEVICE.search(line))
            + Counter(() if one.name or not one.before else _bound(side))
            for side in (one.before, one.after)
        ]
        gone, more = sides[0] - sides[1], sides[1] - sides[0]
        if one.before and (gone or more):
            found.append((one, [*(f"-{line}" for line in gone), *(f"+{line}" for line in more)]))
    return found


def _bound(statements: str) -> Iterator[str]:
    """Yield what a file binds for one kind of device."""
    for asked in ast.walk(ast.parse(statements)):
        if isinstance(asked, ast.If) and _KIND.search(ast.unparse(asked.test)):
            for node in (found for one in asked.body for found in ast.walk(one)):
                if isinstance(node, ast.Assign):
                    yield f"{ast.unparse(node)}, if {ast.unparse(asked.test)}"


def _parents(path: str) -> list[str]:
    """Return a path and the folders that it is in."""
    parts = path.split("/")
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _within(one: Change, cited: set[tuple[str, str]]) -> bool:
    """Whether a change is in a cited function or class, or is one that holds a cited name alone."""
    parts = re.split(r"\.|::", one.name)
    joined = {
        ".".join(parts[begin:end]) for begin in range(len(parts)) for end in range(begin + 1, len(parts) + 1)
    }
    return any((one.path, name) in cited for name in joined | {one.name})


def difference(sides: Sequence[str], longest: int) -> list[str]:
    """Return the lines in which two sources differ, so many at most."""
    before, after = (side.splitlines() for side in sides)
    lines = list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=2))
    more = len(lines) - longest
    return [*lines[:longest], f"… and {more} more lines"] if more > 0 else lines
