"""What a page shows outside of the brackets of the pseudo-language: texts that no translation reaches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

REPOSITORY: Final = Path(__file__).parents[1]

GATHER: Final = """() => {
  const OPEN = "\\u27e6", CLOSE = "\\u27e7";
  const INLINE = new Set("A ABBR B BR CODE EM I KBD MARK S SMALL SPAN STRONG SUB SUP TIME U VAR tspan LABEL BUTTON".split(" "));
  const MUTE = "script,style,code,pre,kbd,template,noscript,samp,textarea";
  const name = (e) => e.tagName.toLowerCase() + (typeof e.className === "string" && e.className ? "." + e.className.split(" ")[0] : "");
  const where = (e) => [e.parentElement?.parentElement, e.parentElement, e].filter(Boolean).map(name).join(">");
  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) || e.closest("select, datalist");
  const outside = (text, depth) => {
    let out = "";
    for (const sign of text) {
      if (sign === OPEN) depth++;
      else if (sign === CLOSE) depth = Math.max(0, depth - 1), out += " ";
      else if (!depth) out += sign;
    }
    return [out, depth];
  };
  const block = (e) => { while (e && INLINE.has(e.tagName)) e = e.parentElement; return e; };
  const found = [];
  let depth = 0, last = null;
  const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement, b = block(e);
    if (b !== last) { if (!(last && last.contains(b))) depth = 0; last = b; }
    let left;
    [left, depth] = outside(node.data, depth);
    if (left.trim() && !e.closest(MUTE) && shown(e)) found.push(["text", left.trim(), where(e)]);
  }
  for (const a of ["aria-label", "title", "placeholder", "alt", "aria-description"]) {
    for (const e of document.querySelectorAll(`body [${a}]`)) {
      const [left] = outside(e.getAttribute(a), 0);
      if (left.trim()) found.push([a, left.trim(), where(e)]);
    }
  }
  found.push(["description", outside(document.querySelector("meta[name=description]")?.content || "", 0)[0].trim(), "meta"]);
  found.push(["title", outside(document.title, 0)[0].trim(), "head"]);
  return found;
}"""
"""Every text, label and hint of a page, without what stands in brackets."""

UNITS: Final = {"TOP", "RAG", "RTX", "github", "com"} | frozenset(
    [
        "GiB",
        "MiB",
        "KiB",
        "TiB",
        "GB",
        "MB",
        "KB",
        "TB",
        "ms",
        "min",
        "tok",
        "bytes",
        "bit",
        "TFLOP",
        "TFLOPS",
        "TOPS",
        "FLOP",
        "FLOPS",
        "KV",
        "GPU",
        "GPUs",
        "MoE",
        "LRU",
        "QPS",
        "kvreport",
        "CSV",
        "JSON",
        "YAML",
        "SVG",
        "PNG",
        "Parquet",
        "SQL",
        "BibTeX",
        "Markdown",
        "gzip",
        "zstd",
        "sha",
        "Apache",
        "CC",
        "BY",
        "tp",
        "pp",
        "dp",
        "ep",
        "dcp",
        "TP",
        "PP",
        "DP",
        "EP",
        "DCP",
        "MHA",
        "GQA",
        "MLA",
        "SSM",
        "BF",
        "FP",
        "INT",
        "NVFP",
        "MXFP",
        "AWQ",
        "GPTQ",
        "GGUF",
        "NVLink",
        "PCIe",
        "HBM",
        "GDDR",
        "LPDDR",
        "HTTP",
        "API",
        "CUDA",
        "ROCm",
        "Python",
        "vLLM",
        "SGLang",
        "TensorRT",
        "LLM",
        "llama",
        "cpp",
        "Ollama",
        "MLX",
        "LM",
        "Studio",
        "Metal",
        "tokens",
    ]
)
"""Units, names of formats and of programs."""


class Left(NamedTuple):
    """A text outside of the brackets."""

    page: str
    kind: str
    text: str
    where: str


@cache
def content() -> frozenset[str]:
    """Every text of the catalog: names, labels, notes, definitions, claims."""
    found: set[str] = set()

    def take(node: Any) -> None:
        if isinstance(node, dict):
            for key, inner in node.items():
                take(key)
                take(inner)
        elif isinstance(node, list):
            for inner in node:
                take(inner)
        elif isinstance(node, str):
            found.add(" ".join(node.split()))

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted((REPOSITORY / "data").rglob("*.yaml")):
        if (
            path.parent.name != "models"
            or "Llama-3.1-8B-Instruct" in path.name
            or "DeepSeek-V3." in path.name
        ):
            take(yaml.load(path.read_text(encoding="utf-8"), loader))  # noqa: S506 - safe loaders both
    return frozenset(found)


@cache
def theme() -> frozenset[str]:
    """The words of the theme in the language that the pseudo-language passes as."""
    import material

    source = (Path(material.__file__).parent / "templates/partials/languages/de.html").read_text(
        encoding="utf-8"
    )
    return frozenset(re.findall(r'": "([^"]*)"', source))


@cache
def names() -> tuple[str, ...]:
    """Names that texts are made with: of models, devices, makers, formats, engines, traces and kinds of layers; longest first."""
    keys = (
        "name|id|short|maker|vendor|organization|family|label|memory_type|architecture|form_factor|evidence"
    )
    found: set[str] = set()
    for path in sorted((REPOSITORY / "data").rglob("*.yaml")):
        if path.parent.name == "claims":
            continue
        text = path.read_text(encoding="utf-8")
        for line in re.finditer(
            rf"(?:^|[{{,-])\s*(?:{keys}): (?:\"([^\"]+)\"|'([^']+)'|([^,{{}}\n]+))", text, re.M
        ):
            found.add((line[1] or line[2] or line[3]).strip())
    return tuple(sorted((name for name in found if len(name) > 2), key=len, reverse=True))


def left(page: str, gathered: Iterable[tuple[str, str, str]], names: Iterable[str]) -> Iterator[Left]:
    """Yield what is neither translated nor data: not a text of the catalog, not a name, not a unit."""
    for kind, text, where in gathered:
        plain = " ".join(text.split())
        rest = plain
        if plain in content() or plain in theme() or plain.strip(" .:,;()") in content():
            continue
        for name in names:
            rest = rest.replace(name, " ")
        # Translated words have no vowel without an accent, also where a page divides a message and its brackets.
        words = [
            w for w in re.findall(r"[^\W\d_]{2,}", rest) if w not in UNITS and re.search(r"[aeiouAEIOUcn]", w)
        ]
        if words:
            yield Left(page, kind, plain, where)
