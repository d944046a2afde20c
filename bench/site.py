"""The site: cold, warm, after a changed model or template, against the floor, and at 1, 3 and 10 times the models.

A copy of the project is built in ``build/bench-site``, so that neither the site nor its caches are
touched. The floor is MkDocs Material by itself, given the finished content of the same pages.
"""

from __future__ import annotations

import gzip
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.synthetic import grow
from kvreport.adapters.scaffold import scaffold

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "bench-site"
TEMPLATES = "overrides"
FACTORS = (1, 3, 10)
GROWN_FROM = 3
"""Growth starts from one model in so many: ten times that is three times the catalog, and minutes."""
NEEDED = ("models", "accelerators", "engines", "formats.yaml", "grid.yaml", "RELEASE")
"""What a catalog must have; the rest of ours names models that a part of it may not have."""
KINDS = {
    "home": "index.html",
    "model": "models/*/index.html",
    "gpu": "gpus/*/index.html",
    "models index": "models/index.html",
    "chapter": "learn/*/index.html",
    "explore": "explore/index.html",
    "sizer": "sizer/index.html",
    "data": "data/index.html",
}


def environment() -> dict[str, str]:
    """The variables that measured processes have: ours, and Python writes its bytecode, as it does for users."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def measure() -> dict[str, object]:
    """Build, and build again; see the module."""
    if WORK.exists():
        shutil.rmtree(WORK)
    project = copy_project(WORK / "site", factor=1)
    result: dict[str, object] = {"cold": build(project), "warm": build(project)}
    touch_one_model(project)
    result["one_model_changed"] = build(project)
    touch_one_template(project)
    result["one_template_changed"] = build(project)
    result["sizes"] = sizes(project / "site")
    result["floor"] = build(floor(project, WORK / "floor"))
    return result


def growth() -> dict[str, dict[str, float]]:
    """Build at every factor."""
    if WORK.exists():
        shutil.rmtree(WORK)
    return {str(factor): grown(factor) for factor in FACTORS}


def copy_project(target: Path, factor: int) -> Path:
    """Copy what a site is made from; its catalog has ``factor`` times the models."""
    target.mkdir(parents=True)
    shutil.copytree(ROOT / "docs", target / "docs")
    shutil.copytree(ROOT / "requirements", target / "requirements")
    models = grow(ROOT / "data", target / "data", factor)
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    ours = f"  - kvreport:\n      catalog: data\n      templates: {TEMPLATES}"
    text = re.sub(r"(?m)^  - kvreport:?.*$", ours, text, count=1)
    if "catalog: data" not in text:
        raise SystemExit("mkdocs.yml names the plugin in another way; bench/site.py must follow")
    (target / "mkdocs.yml").write_text(text, encoding="utf-8")
    (target / TEMPLATES).mkdir()
    print(f"· {target.name}: {models} models", file=sys.stderr)
    return target


def touch_one_model(project: Path) -> None:
    """Change a fact of one model: its vocabulary, by fewer than the rows of its embedding allow."""
    path = sorted((project / "data" / "models").glob("*.yaml"))[0]
    text = path.read_text(encoding="utf-8")
    path.write_text(
        re.sub(r"(?m)^vocabulary: (\d+)$", lambda m: f"vocabulary: {int(m[1]) - 64}", text, count=1)
    )


def touch_one_template(project: Path) -> None:
    """Change a template: the sources of accelerators' pages."""
    path = project / TEMPLATES / "gpu" / "sources.html"
    path.parent.mkdir(parents=True)
    path.write_text((ROOT / "templates/gpu/sources.html").read_text(encoding="utf-8") + "<p>Changed.</p>\n")


def build(project: Path) -> dict[str, float]:
    """Build one project; seconds, processor seconds, and the largest process."""
    print(f"· mkdocs build {project.name}", file=sys.stderr)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--quiet"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    spent = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"the build of {project} failed:\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "s": spent,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_bytes_largest_process": after.ru_maxrss << 10,
    }


def floor(project: Path, target: Path) -> Path:
    """A project with the finished content of every page, and nothing of ours to compute it."""
    docs = target / "docs"
    built = project / "site"
    for page in sorted(built.rglob("index.html")):
        text = page.read_text(encoding="utf-8")
        article = re.search(r"<article[^>]*>(.*)</article>", text, re.DOTALL)
        title = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
        if article is None:
            continue
        place = docs / page.relative_to(built).with_name("index.md")
        place.parent.mkdir(parents=True, exist_ok=True)
        heading = title[1].strip().replace('"', "'") if title else "page"
        # One HTML block: Markdown hands it through.
        body = re.sub(r"\n\s*\n", "\n", article[1])
        place.write_text(f'---\ntitle: "{heading}"\n---\n\n<div>\n{body}\n</div>\n', encoding="utf-8")
    (target / "mkdocs.yml").write_text(
        "site_name: floor\ntheme:\n  name: material\n  font: false\n"
        "  features: [navigation.instant, navigation.tabs, navigation.indexes]\n"
        "plugins: [search]\nnav: [index.md]\n",
        encoding="utf-8",
    )
    return target


def grown(factor: int) -> dict[str, float]:
    """Cold and warm at ``factor`` times the models, as a site of one's own: chapters and prose do not grow.

    Growth is compared in processor seconds: a build several times as long meets more of what else the
    machine does.
    """
    project = WORK / f"times-{factor}"
    scaffold(project, model="Qwen/Qwen2.5-7B", gpu="h100-sxm-80gb")
    shutil.rmtree(project / "data")
    models = grow(ROOT / "data", project / "data", factor, GROWN_FROM)
    for path in (project / "data").iterdir():
        if path.name not in NEEDED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(f"· {project.name}: {models} models", file=sys.stderr)
    cold, warm = build(project), build(project)
    found = sizes(project / "site")
    shutil.rmtree(project)
    return {
        "models": models,
        "cold_s": cold["s"],
        "cold_cpu_s": cold["cpu_s"],
        "warm_s": warm["s"],
        "peak_bytes_largest_process": cold["peak_bytes_largest_process"],
        "search_index_bytes": found["search_index_bytes"],
        "site_bytes": found["site_bytes"],
    }


PER_MODEL: Final = 0.24
"""MB of the site that one model may take: its page, its place in tables, its Markdown, card, badge and files."""


def sizes(site: Path) -> dict[str, object]:
    """Bytes per kind of page (gzip, as sent), of the search index and of the whole."""
    pages = {}
    for kind, pattern in KINDS.items():
        sent = [len(gzip.compress(path.read_bytes(), 6, mtime=0)) for path in sorted(site.glob(pattern))]
        if sent:
            pages[kind] = {"number": len(sent), "median": statistics.median(sent), "largest": max(sent)}
    everything = [path for path in site.rglob("*") if path.is_file()]
    datasets = (site / "downloads", *(path for path in (site / "data/releases").glob("*") if path.is_dir()))
    downloads = [path for path in everything if any(path.is_relative_to(folder) for folder in datasets)]
    # Python and DuckDB for the browser are loaded on a click, and do not grow with the catalog.
    programs = [site / "assets" / "python", site / "assets" / "duckdb"]
    runtimes = [path for path in everything if any(path.is_relative_to(folder) for folder in programs)]
    index = site / "search" / "search_index.json"
    return {
        "models": len([*site.glob("models/*/index.html")]),
        "runtimes_bytes": sum(path.stat().st_size for path in runtimes),
        "pages_gzip_bytes": pages,
        "search_index_bytes": index.stat().st_size if index.is_file() else 0,
        "site_bytes": sum(path.stat().st_size for path in everything),
        "downloads_bytes": sum(path.stat().st_size for path in downloads),
    }


def figures(result: dict[str, object]) -> Iterator[tuple[str, float, str, str, float]]:
    """Rows of the table: what, value, unit, budget, limit."""
    if not result:
        return
    floor = result["floor"]["s"]
    yield "floor: MkDocs Material, same pages", floor, "s", "", 0
    for name, what, most in (
        ("cold", "site, cold", 3.5),
        ("warm", "site, warm (nothing changed)", 0.5),
        ("one_model_changed", "site, one model changed", 0.75),
        ("one_template_changed", "site, one template changed", 0),
    ):
        yield what, result[name]["s"], "s", "", 0
        yield "  processor time", result[name]["cpu_s"], "s", "", 0
        yield "  / floor", result[name]["s"] / floor, "x", f"≤ {most} x" if most else "", most
    found = result["sizes"]
    pages = found["site_bytes"] - found["downloads_bytes"] - found["runtimes_bytes"]
    yield "pages and their files", pages / 1e6, "MB", "", 0
    yield "  per model", pages / 1e6 / found["models"], "MB", f"≤ {PER_MODEL} MB", PER_MODEL
    yield "programs for the browser, on a click", found["runtimes_bytes"] / 1e6, "MB", "≤ 16 MB", 16
    yield "downloads", found["downloads_bytes"] / 1e6, "MB", "", 0
    yield "search index", found["search_index_bytes"] / 1e6, "MB", "≤ 1 MB", 1
    for kind, one in found["pages_gzip_bytes"].items():
        yield f"largest {kind} page, gzip", one["largest"] / 1e3, "kB", "≤ 150 kB", 150


def growth_figures(growth: dict[str, dict[str, float]]) -> Iterator[tuple[str, float, str, str, float]]:
    """Rows of the table for growth."""
    for one in growth.values():
        yield f"{one['models']} models, cold, no chapters", one["cold_s"], "s", "", 0
        yield "  processor time", one["cold_cpu_s"], "s", "", 0
        yield "  warm", one["warm_s"], "s", "", 0
        yield "  search index", one["search_index_bytes"] / 1e6, "MB", "", 0
    if growth:
        least, most = growth[str(FACTORS[0])]["cold_cpu_s"], growth[str(FACTORS[-1])]["cold_cpu_s"]
        yield (
            f"{FACTORS[-1]} x models / 1 x, processor time",
            most / least,
            "x",
            f"≤ {FACTORS[-1]} x",
            FACTORS[-1],
        )
