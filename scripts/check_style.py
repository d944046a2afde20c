"""Check the language of pages, labels and messages by `scripts/style_rules.yaml`; `make check` runs it.

    python scripts/check_style.py               # every file
    python scripts/check_style.py docs/learn    # files below a folder

Read are Markdown, chapters' Markdown cells, templates, the strings of the interface in Python and JavaScript, and
the sentences of YAML and JSON files that pages print.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
SCOPE = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml",
    "docs/**/*.md", "docs/chapters/*.py", "docs/assets/*.js", "templates/**/*.html", "kvreport/words.json", "kvreport/columns.json",
    "kvreport/commands.json", "kvreport/tables.json",
    "data/glossary.yaml", "data/claims/*.yaml", "data/support.yaml",
    "data/engines/*.yaml", "data/accelerators/*.yaml", "data/models/*.yaml", "data/measurements/*.yaml",
    "kvreport/site/**/*.py", "kvreport/publish/*.py", "kvreport/book/*.py", "kvreport/evidence/*.py",
    "kvreport/estimation/*.py", "kvreport/startup_log/*.py", "kvreport/cli/*.py", "kvreport/traffic/*.py",
    "kvreport/*.py", "kvreport/accounting/**/*.py", "kvreport/architectures/**/*.py", "kvreport/catalog/*.py",
    "kvreport/dataset/*.py", "kvreport/adapters/*.py", "kvreport/tools/*.py",
)  # fmt: skip
YAML_FIELDS = {"note", "notes", "name", "plain", "more", "reason", "remark", "what", "explains", "site_description", "copyright"}  # fmt: skip
"""Fields of data files that pages print as sentences; quotations and titles of others are theirs."""


class Text(NamedTuple):
    """A piece of prose and the line where it begins."""

    line: int
    text: str


class Fault(NamedTuple):
    """What is wrong in a file."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Rules:
    """The rules, compiled."""

    sentence_words: int
    semicolons: int
    banned: tuple[tuple[re.Pattern[str], str], ...]
    spelling: tuple[tuple[re.Pattern[str], str], ...]
    number: re.Pattern[str]
    internal: re.Pattern[str]
    not_prose: re.Pattern[str]


@cache
def rules() -> Rules:
    """Return the rules of `style_rules.yaml`."""
    raw = yaml.safe_load((HERE / "style_rules.yaml").read_text(encoding="utf-8"))
    return Rules(
        raw["sentence_words"],
        raw["semicolons"],
        tuple((re.compile(rf"(?<![\w-])(?:{p})(?![\w-])", re.I), s) for p, s in raw["banned"].items()),
        tuple((re.compile(rf"\b{p}\w*", re.I), s) for p, s in raw["spelling"].items()),
        re.compile(rf"(?<![\d.,/×x-])\b(1|one) ({'|'.join(raw['nouns'])})\b"),
        re.compile(rf"\b({'|'.join(raw['internal_ids'])})\b"),
        re.compile("|".join(raw["not_prose"])),
    )


def sentences(text: str) -> list[str]:
    """Split prose into sentences.

    >>> sentences("Two facts. The 2.5 GiB stay, e.g. here. Is that all?")
    ['Two facts.', 'The 2.5 GiB stay, e.g. here.', 'Is that all?']
    """
    text = " ".join(text.split())
    begins = r"[A-Z“\"'(0-9*]|kvreport\b|vLLM\b|llama\.cpp|gpt-oss|code\b"
    return re.split(rf"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)[”\"')]?\s+(?={begins})", text) if text else []


def faults(text: str) -> Iterator[str]:
    """Yield what is wrong with a piece of prose."""
    held = rules()
    for pattern, instead in held.banned:
        for found in pattern.finditer(text):
            yield f"“{found[0]}”: {instead}"
    for pattern, instead in held.spelling:
        for found in pattern.finditer(text):
            yield f"“{found[0]}”: American spelling, {instead}…"
    for found in held.number.finditer(text):
        yield f"“{found[0]}”: singular"
    for found in re.finditer(r"(?<=[0-9N])[ \u00a0\u202f]%(?![\w(])", text):
        yield f"“{found[0]}”: no space before a percent sign"
    for sentence in sentences(text):
        words = sum(bool(re.search(r"\w", word)) for word in sentence.split())
        if words > held.sentence_words:
            yield f"a sentence of {words} words: {sentence[:60]}…"
        # "found …; allowed: …; did you mean …?" is the form of every error.
        parts = re.sub(r"\([^)]*\)|;\s*(?=allowed:)", "", sentence)
        if parts.count(";") > held.semicolons:
            yield f"a chain of semicolons: {sentence[:60]}…"


# --- what is prose in a file -------------------------------------------------------------------------------


def markdown(source: str, first: int = 1) -> Iterator[Text]:
    """Yield the blocks of a Markdown text, without code, links' addresses and computed values."""
    source = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), source, flags=re.S)
    source = re.sub(r"\{\{.*?\}\}", lambda m: "N" + "\n" * m[0].count("\n"), source, flags=re.S)
    block: list[str] = []
    began, fence = first, ""
    for number, raw in enumerate([*source.splitlines(), ""], first):
        line = raw.strip()
        mark = re.match(r"(```+|~~~+)", line)
        if mark and (not fence or line.startswith(fence)):
            fence = "" if fence else mark[1]
            line = ""
        elif fence or raw.startswith(("    $", "    kvreport", "    make")):
            line = ""
        ends = not line or re.match(r"([-*+]|\d+\.) |#|\||>|:::|---$|<|reader: \{", line)
        if ends and block:
            yield Text(began, _inline(" ".join(block)))
            block = []
        if line.startswith("|"):
            yield from (Text(number, _inline(cell)) for cell in line.strip("|").split("|") if cell.strip())
        elif line and line != "---":
            if not block:
                began = number
            block.append(re.sub(r"^([-*+]|\d+\.|#+|>)\s+", "", line))
            if line.startswith("#"):
                yield Text(began, _inline(" ".join(block)))
                block = []


def _inline(text: str) -> str:
    text = re.sub(r"(`+)[^`]*\1", "code", text)
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])?", r"\1", text)
    text = re.sub(r"(?<!\S)[\w.]+ = [^\s,]*[^\s,.]", "code", text)  # a setting and its value
    text = re.sub(r"</?[a-zA-Z][^>]*>|\{:?[.#][^}]*\}|<https?:[^>]*>|https?:\S+", " ", text)
    return text.replace("**", "").replace("__", "")


def chapter(source: str) -> Iterator[Text]:
    """Yield the prose of a chapter's Markdown cells."""
    cell: list[str] = []
    began, inside = 1, False
    for number, line in enumerate([*source.splitlines(), "# %%"], 1):
        if line.startswith("# %%"):
            if inside:
                yield from markdown("\n".join(cell), began)
            cell, began, inside = [], number + 1, "[markdown]" in line
        elif inside:
            cell.append(line.removeprefix("#").removeprefix(" "))


class _Html(HTMLParser):
    """Collects text between block tags, and the texts of attributes that are read out."""

    SAID = ("title", "aria-label", "placeholder", "alt", "content", "label")
    INLINE = frozenset(
        {"a", "b", "i", "em", "strong", "small", "span", "code", "sub", "sup", "kbd", "abbr", "mark"}
    )
    MUTE = frozenset({"script", "style", "code", "pre", "template", "svg"})

    def __init__(self, *, attributes: bool = True) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Text] = []
        self._text, self._line, self._mute = "", 1, 0
        self._attributes = attributes

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.MUTE:
            self._mute += 1
            if tag == "code":
                self._text += " code "
        if tag not in self.INLINE:
            self.flush()
        if self._attributes:
            self.found += [Text(self.getpos()[0], v) for k, v in attrs if k in self.SAID and v]

    def handle_endtag(self, tag: str) -> None:
        if tag in self.MUTE:
            self._mute = max(0, self._mute - 1)
        if tag not in self.INLINE:
            self.flush()

    def handle_data(self, data: str) -> None:
        if not self._mute:
            if not self._text.strip():
                self._line = self.getpos()[0]
            self._text += data

    def flush(self) -> None:
        """End a block."""
        if self._text.strip():
            self.found.append(Text(self._line, " ".join(self._text.split())))
        self._text = ""


def html(source: str, *, attributes: bool = True) -> Iterator[Text]:
    """Yield the texts of an HTML page or template; what the template computes is one word."""
    source = re.sub(r"\{#.*?#\}", lambda m: "\n" * m[0].count("\n"), source, flags=re.S)
    source = re.sub(r"\{%.*?%\}", lambda m: "\n" * m[0].count("\n"), source, flags=re.S)
    source = re.sub(r"\{\{.*?\}\}", "N", source, flags=re.S)
    reader = _Html(attributes=attributes)
    reader.feed(source)
    reader.close()
    reader.flush()
    yield from reader.found


def labels(source: str) -> Iterator[Fault]:
    """Yield form fields of a template without a label in sentence case or without help text."""
    plain = re.sub(r"\{%.*?%\}|\{#.*?#\}", "", source, flags=re.S)
    for found in re.finditer(r"<label[^>]*>(.*?)</label>", plain, re.S):
        line = source[: source.find(found[1][:40])].count("\n") + 1
        words = re.sub(
            r"<select.*?</select>|<textarea.*?</textarea>|<[^>]*>", "", found[1], flags=re.S
        ).strip()
        if words[:1].islower():
            yield Fault("", line, f"label “{words}”: sentence case, a noun with its unit")
        field = re.search(r"<(input|select|textarea)\b[^>]*>", found[1])
        if field and "checkbox" not in field[0] and "aria-describedby" not in field[0]:
            yield Fault("", line, f"label “{words}”: the field needs help text (aria-describedby)")


def python(source: str) -> Iterator[Text]:
    """Yield the strings of a Python file that read as prose; docstrings are none."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "N" for p in node.values)
        else:
            continue
        # Lines that are set in are examples of commands, further down in a text of several lines.
        text = re.sub(r"(?m)(?<=\n) +\S.*$", "", text)
        if is_prose(text):
            for piece in html(text, attributes=False) if "</" in text else [Text(1, text)]:
                yield Text(node.lineno, _inline(piece.text))


def javascript(source: str) -> Iterator[Text]:
    """Yield the strings of a JavaScript file that read as prose."""
    token = re.compile(
        r"//[^\n]*|/\*.*?\*/|(?<=[(=,:\[!&|?{;])\s*/(?![*/])(?:\\.|\[(?:\\.|[^\]\n])*\]|[^/\n\\])+/[a-z]*"
        r"|\"((?:\\.|[^\"\\\n])*)\"|'((?:\\.|[^'\\\n])*)'|`((?:\\.|\$\{(?:[^{}]|\{[^{}]*\})*\}|[^`\\])*)`",
        re.S,
    )
    for found in token.finditer(source):
        text = next((group for group in found.groups() if group is not None), None)
        if text is None:
            continue
        text = re.sub(r"\$\{(?:[^{}]|\{[^{}]*\})*\}", "N", text)
        if is_prose(text):
            yield Text(source.count("\n", 0, found.start()) + 1, text)


def is_prose(text: str) -> bool:
    """Whether a string of a program is written for a reader.

    >>> [is_prose(t) for t in ("Nothing fits here", "kv-no kv-why", "--max-len 3", "anew")]
    [True, False, False, False]
    """
    if rules().not_prose.search(text):
        return False
    words = re.findall(r"(?<![\w.#@$-])[A-Za-z][a-z’']+(?![\w(=#-])", text)
    if len(words) > 20 and not re.search(r"[.,:;A-Z]", text):
        return False  # a list of names
    return (
        len(words) > 1
        and " " in text.strip()
        and not re.search(r"[{}]\s*[.#@:]|^\s*[.#\[]|\bSELECT\b|\\[sdwb]", text)
    )


def structured(value: Any, path: Path, lines: list[str]) -> Iterator[Text]:
    """Yield the sentences of a YAML or JSON file."""
    every = path.suffix == ".json"

    def walk(node: Any, *, said: bool) -> Iterator[str]:
        if isinstance(node, dict):
            for key, inner in node.items():
                yield from walk(inner, said=every or key in YAML_FIELDS)
        elif isinstance(node, list):
            for inner in node:
                yield from walk(inner, said=said)
        elif isinstance(node, str) and said and " " in node:
            yield node

    for text in walk(value, said=every):
        key = text[:30].strip("'\" ")
        line = next((n for n, content in enumerate(lines, 1) if key in content), 1)
        yield from (Text(line, block.text) for block in markdown(text))


def check(path: Path) -> list[Fault]:
    """Return the faults of a file."""
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    found: Iterable[Text]
    extra: list[Fault] = []
    if path.suffix == ".md":
        found = markdown(source)
    elif path.suffix == ".html":
        found, extra = html(source), [fault._replace(path=name) for fault in labels(source)]
    elif path.suffix == ".js":
        found = javascript(source)
    elif path.suffix == ".json":
        found = structured(json.loads(source), path, source.splitlines())
    elif path.suffix in (".yaml", ".yml"):
        loader = yaml.SafeLoader if path.name != "mkdocs.yml" else yaml.BaseLoader
        loaded = yaml.load(re.sub(r"!\w+ ", "", source), Loader=loader)  # noqa: S506 - safe loaders both
        found = structured(loaded, path, source.splitlines())
    elif "chapters" in path.parts:
        found = chapter(source)
    else:
        found = python(source)
    return [*(Fault(name, t.line, m) for t in found for m in faults(t.text)), *extra]


def scope(below: Iterable[str] = ()) -> list[Path]:
    """Return the files to check, or those of them at or below some paths."""
    chosen = [Path(one).resolve() for one in below]
    every = sorted({path for pattern in SCOPE for path in ROOT.glob(pattern)})
    return [p for p in every if not chosen or any(p == one or p.is_relative_to(one) for one in chosen)]


def main(arguments: list[str] | None = None) -> int:
    """Check files and print their faults; 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", help="files or folders (default: everything)")
    found = [fault for path in scope(parser.parse_args(arguments).paths) for fault in check(path)]
    if found:
        print("\n".join(map(str, found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
