"""A tiny site: a few models and accelerators of the public catalog, built once into a temporary folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",  # full attention
    "meta-llama/Llama-3.1-70B-Instruct",
    "openai/gpt-oss-20b",  # windows, MXFP4
    "deepseek-ai/DeepSeek-V3",  # latent, too large for small machines
    "Qwen/Qwen3.6-27B",  # states
)
ACCELERATORS = ("h100-sxm-80gb", "b200-sxm-180gb", "rtx-4090", "mi300x")
OLD_RELEASE = "2020.01.01"
"""A data release that was published before the one of the catalog."""
CONFIGURATION = """\
site_name: tiny
site_url: https://example.org/tiny/
use_directory_urls: true
docs_dir: {docs}
site_dir: {site}
theme:
  name: material
  font: false
  features: [navigation.instant, navigation.tabs]
  palette:
    - {{media: "(prefers-color-scheme: light)", scheme: default, toggle: {{icon: material/weather-sunny, name: Dark}}}}
    - {{media: "(prefers-color-scheme: dark)", scheme: slate, toggle: {{icon: material/weather-night, name: Light}}}}
plugins:
  - search:
      separator: '[\\s\\-/,:!=\\[\\]()"`_&;]+|\\.(?!\\d)|(?<=[a-z])(?=[A-Z][a-z])'
  - kvreport:
      catalog: {catalog}
markdown_extensions: [admonition, attr_list, md_in_html, tables, {{toc: {{permalink: true}}}}]
"""


BY_HAND = """\
# By hand

[A model](models/index.md)

| what | how many | where |
| :--- | ---: | :---: |
| users | 12 | here |
"""


QUESTIONS = {
    "index": """\
# Questions

<div class="kv-js kv-controls" data-kv-list><label>Filter by keyword <input type="search" name="q"></label></div>
<p class="kv-said kv-js" aria-live="polite"></p>

## One

- [First](first.md)

## Two

- [Second](second.md)
""",
    "first": """\
---
description: one question
reader: {model: llama-3.1-8b, gpu: H100, context: 8K, requests: 40}
---
# How many fit?

A short answer.

{{ MODEL }} on {{ GPU }}, requests of {{ CONTEXT }}:

| Quantity | Value |
| --- | ---: |
| fits | {{ fits(MODEL, GPU, tokens=CONTEXT, tp=GPUS, weights=WEIGHTS) as requests }} |
| cache | {{ REQUESTS * kv_request(MODEL, tokens=CONTEXT) as GiB.2 }} |
| DCP | {{ fits(MODEL, GPU, tokens=CONTEXT, tp=GPUS, dcp=GPUS, weights=WEIGHTS) as requests }} |
| always | {{ 1 GiB = GiB }} |

| Model | Of a token |
| --- | ---: |
| **{{ MODEL }}**, yours | {{ kv_per_token(MODEL) as KiB.1 }} |
| Llama 3.1 8B | {{ kv_per_token("llama-3.1-8b") as KiB }} |
""",
    "second": "---\nreader: {model: llama-3.1-8b, gpu: H100}\n---\n# Second\n\n{{ MODEL }} has"
    " {{ parameters(MODEL) as billion.1 }} parameters.\n\nLlama 3.1 8B keeps"
    ' {{ kv_per_token("llama-3.1-8b") as KiB.0 }} of each token.\n',
}
"""Two questions to a reader's own case, and the list that gives their order."""


@dataclass(frozen=True)
class TinySite:
    """A built site.

    Attributes:
        folder: Where its files are.
        config: The configuration that it was built with.
        catalog: Its catalog.
    """

    folder: Path
    config: Path
    catalog: Path

    def html(self, uri: str) -> str:
        """Return the page at an address."""
        return (self.folder / uri / "index.html").read_text(encoding="utf-8")


def copy_catalog(repository: Path, target: Path) -> Path:
    """Copy what a few models and accelerators need."""
    data = repository / "data"
    for name in ("formats.yaml", "grid.yaml", "RELEASE"):
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / name, target / name)
    shutil.copytree(data / "engines", target / "engines")
    for folder, names in (("models", [m.replace("/", "--") for m in MODELS]), ("accelerators", ACCELERATORS)):
        (target / folder).mkdir()
        for name in names:
            shutil.copy(data / folder / f"{name}.yaml", target / folder)
    (target / "releases").mkdir()
    old = {"version": OLD_RELEASE, "engine": "vLLM 0.1", "gpu": ACCELERATORS[0], "models": {}, "gpus": {}}
    (target / "releases" / f"{OLD_RELEASE}.json").write_text(json.dumps(old), encoding="utf-8")
    return target


def old_tables(folder: Path) -> None:
    """Write the tables of the old release, as a site has published them."""
    tables = {"capacity.parquet": b"every row of 2020", "models.csv": b"model\nOld 7B\n"}
    (folder / OLD_RELEASE).mkdir(parents=True)
    for name, content in tables.items():
        (folder / OLD_RELEASE / name).write_bytes(content)
    sums = "".join(f"{sha256(content).hexdigest()}  {name}\n" for name, content in tables.items())
    (folder / OLD_RELEASE / "SHA256SUMS").write_text(sums, encoding="ascii")


def build(config: Path) -> None:
    """Build a site in this process, warnings being errors."""
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config

    loaded = load_config(str(config), strict=True)
    loaded.plugins.on_startup(command="build", dirty=False)
    mkdocs_build(loaded)


@pytest.fixture(scope="session")
def build_site() -> Callable[[Path], None]:
    """What builds a site from its configuration."""
    return build


@pytest.fixture(scope="session")
def tiny_site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> TinySite:
    """The tiny site; a hand-written page and two questions beside the generated ones."""
    base = tmp_path_factory.getbasetemp()
    # Workers of one run share what the first of them builds.
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tiny"
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = TinySite(root / "site", root / "mkdocs.yml", root / "data")
        if not (root / "built").is_file():
            shutil.rmtree(root, ignore_errors=True)
            make(repository, root)
            build(built.config)
            (root / "built").touch()
    return built


def make(repository: Path, root: Path) -> None:
    """Write the tiny site's sources."""
    docs = root / "docs"
    docs.mkdir(parents=True)
    (docs / "by-hand.md").write_text(BY_HAND, encoding="utf-8")
    (docs / "questions").mkdir()
    for name, text in QUESTIONS.items():
        (docs / "questions" / f"{name}.md").write_text(text, encoding="utf-8")
    catalog = copy_catalog(repository, root / "data")
    (catalog / "claims").mkdir()
    shutil.copy(repository / "data" / "claims" / "minio-memkv.yaml", catalog / "claims")
    for name in ("runtime", "sql"):
        fetched = repository / ".cache" / "kvreport" / name
        if fetched.is_dir():
            shutil.copytree(fetched, root / ".cache" / "kvreport" / name)
    config = root / "mkdocs.yml"
    text = CONFIGURATION.format(docs=docs, site=root / "site", catalog=catalog)
    old_tables(root / "published")
    text = text.replace("      catalog:", f"      releases: {root / 'published'}\n      catalog:", 1)
    config.write_text(text, encoding="utf-8")
