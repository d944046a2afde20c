"""``kvreport init``: a small, working site project for somebody's own models and machines."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from kvreport import __version__, resources
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError

_SETTINGS: Final = """\
# Your own capacity site. `mkdocs build --strict` reads data/, computes the matrix and writes site/.
site_name: How many requests fit
site_url: !ENV [SITE_URL, "https://YOUR-SITE/"]

theme:
  name: material
  font: false # the plugin serves its own; no page asks a third party for anything

plugins:
  - search
  - kvreport:
      catalog: data
      templates: overrides # a template of the same name here replaces the package's

markdown_extensions: [abbr, admonition, attr_list, footnotes, md_in_html, tables]

validation:
  links: {not_found: warn, anchors: warn, unrecognized_links: warn}
"""

_NOTES: Final = """\
# About this site

Every number here is computed at build time from the files in `data/`.

- Add a model: `kvreport model config.json --id org/name > data/models/org--name.yaml`
- Add an accelerator: copy a file in `data/accelerators/` and change its figures and sources.
- Which contexts, formats and sizes are published: `data/grid.yaml`
- Check it all: `kvreport check data`
"""

_OVERRIDES: Final = """\
Put a file here with the name of one of the package's templates (for instance `model/serve.html`)
and it is used in its place. The originals are in the installed package, `kvreport/_templates/`.
"""

_GITHUB: Final = """\
name: site
on:
  push: {branches: [main]}
  pull_request:
permissions: {contents: read}
jobs:
  build:
    runs-on: ubuntu-latest
    steps:
      # Actions by commit, as a tag can be moved; the comment is the release that it was.
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with: {persist-credentials: false}
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with: {python-version: "3.12"}
      - uses: actions/cache@5a3ec84eff668545956fd18022155c47e93e2684 # v4.2.3
        with: {path: .cache, key: "kvreport-${{ hashFiles('data/**', 'requirements.txt') }}", restore-keys: kvreport-}
      - run: "pip install --require-hashes --no-deps --only-binary :all: -r requirements.txt"
      - run: kvreport check data
      - run: mkdocs build --strict
      - uses: actions/upload-pages-artifact@56afc609e74202658d3ffba0e8f6dda462b719fa # v3.0.1
        with: {path: site}
  publish:
    if: github.ref == 'refs/heads/main' && github.event_name == 'push'
    needs: build
    runs-on: ubuntu-latest
    # The only job that may write, and it runs nothing of this repository.
    permissions: {pages: write, id-token: write}
    environment: {name: github-pages}
    steps:
      - uses: actions/deploy-pages@d6db90164ac5ed86f2b6aed7e0febac5b3c0c03e # v4.0.5
"""

_GITLAB: Final = """\
pages:
  image: python:3.12
  cache: {key: kvreport, paths: [.cache/]}
  script:
    - "pip install --require-hashes --no-deps --only-binary :all: -r requirements.txt"
    - kvreport check data
    - mkdocs build --strict --site-dir public
  artifacts: {paths: [public]}
  rules:
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
"""

_UNPINNED: Final = """\
# kvreport itself is not named here: its name is not registered on the public package index by its makers, so
# whoever registers it would run code in your build. `kvreport init DIR --wheel FILE` pins a release by its hash;
# by hand, put the wheel of a release into wheels/ and write here:
#   ./wheels/kvreport-{version}-py3-none-any.whl --hash=sha256:<its SHA-256>
"""

_GRID: Final = """\
# Which combinations the site has: contexts in tokens, devices, formats.
schema_version: 1
contexts: [2048, 8192, 32768, 131072]
tensor_parallel: [1, 2, 4, 8]
weight_formats: [bf16, fp8]
kv_formats: [auto, fp8]
engine: vllm
"""


def requirements(wheel: Path | None = None) -> str:
    """Return a project's requirements, every package by hash; a wheel of kvreport is held in ``wheels/``.

    Raises:
        InputError: If the wheel is no wheel of kvreport.
    """
    lock = (resources.requirements_dir() / "runtime.txt").read_text(encoding="utf-8")
    if wheel is None:
        return f"{_UNPINNED.format(version=__version__)}{lock}"
    if not wheel.is_file() or not wheel.name.startswith("kvreport-") or wheel.suffix != ".whl":
        raise InputError(
            f"wheel: found {str(wheel)!r}; allowed: the file of a kvreport release, kvreport-….whl"
        )
    return f"./wheels/{wheel.name} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n{lock}"


def scaffold(folder: Path, *, model: str, gpu: str, wheel: Path | None = None) -> tuple[str, ...]:
    """Write the project.

    Model and accelerator are examples from the public catalog. A ``wheel`` of kvreport is copied and pinned by its hash.

    Returns:
        The files written, relative to ``folder``, sorted.

    Raises:
        InputError: If the folder holds something, or a name is unknown.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"init: found {str(folder)!r} with something in it; allowed: a new or empty folder")
    catalog = open_catalog()
    record, device = catalog.model(model), catalog.accelerator(gpu)
    public = resources.data_dir()
    required = requirements(wheel)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        made.chmod(0o755)
        for address, text in {
            "mkdocs.yml": _SETTINGS,
            "requirements.txt": required,
            "docs/notes.md": _NOTES,
            "overrides/README.txt": _OVERRIDES,
            "data/grid.yaml": _GRID,
            "data/RELEASE": (public / "RELEASE").read_text(encoding="utf-8"),
            ".github/workflows/site.yml": _GITHUB,
            ".gitlab-ci.yml": _GITLAB,
            ".gitignore": "site/\npublic/\n.cache/\n",
        }.items():
            target = made / address
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
        if wheel is not None:
            (made / "wheels").mkdir()
            shutil.copyfile(wheel, made / "wheels" / wheel.name)
        copies = [
            "formats.yaml",
            "support.yaml",
            f"models/{record.slug}.yaml",
            f"accelerators/{device.id}.yaml",
        ]
        engines = sorted((public / "engines").rglob("*.yaml"))
        copies += [path.relative_to(public).as_posix() for path in engines]
        for address in copies:
            target = made / "data" / address
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(public / address, target)
        if folder.exists():
            folder.rmdir()
        made.replace(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return tuple(sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()))
