"""A catalog written by somebody who means harm: its texts stay texts, everywhere they are shown."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import tiny
import yaml
from bs4 import BeautifulSoup
from javascript import searched

from kvreport.book.glossary import Glossary
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.claim import ClaimsFile
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import load_catalog
from kvreport.catalog.measurement import Measurement
from kvreport.catalog.model import Model
from kvreport.catalog.observation import ObservationsFile
from kvreport.catalog.peer import PeersFile
from kvreport.catalog.planner_check import PlannerCheck
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_json, read_yaml
from kvreport.errors import CatalogError, InputError
from kvreport.publish.changes import Snapshot

pytestmark = [pytest.mark.slow]

MODELS = ("meta-llama--Llama-3.1-8B-Instruct", "openai--gpt-oss-20b")
ACCELERATORS = ("h100-sxm-80gb", "rtx-4090")
MARKUP = (
    "</td></svg></template></title><script>kvhit()</script><img src=x onerror=kvhit()>"
    "\"'><i class=kvhit> {{ 7 * 191 }} {% raw %} [kvhit](javascript:kvhit()) {{ 1 bytes = 2 + 2 }} <!-- kv:section 0 -->"
)
FORMULAS = ("=cmd|' /C calc'!A0 ", "+1+kvhit ", "@SUM(kvhit) ", "-2+kvhit ", "\t=kvhit ")
NOT_TEXT = {"id", "covers", "component", "split", "kind", "weights", "compute", "weight_format", "kv_format"}
RECORDS = {
    "models": Model,
    "accelerators": Accelerator,
    "engines": Engine,
    "claims": ClaimsFile,
    "observations": ObservationsFile,
    "peers.yaml": PeersFile,
    "planner_check.yaml": PlannerCheck,
    "glossary.yaml": Glossary,
    "measurements": Measurement,
    "releases": Snapshot,
}
CLAIMS = {
    "source": {
        "key": "source-9",
        "title": "a title",
        "published": "somewhere",
        "url": "https://example.org/claims",
        "evidence": "unverified",
        "note": "a note",
    },
    "claims": [
        {
            "id": f"s9-{value}",
            "place": "a place",
            "quote": "the words",
            "stated": {"value": value, "unit": "bytes"},
            "inputs": {"a length": "8K", f"an input {MARKUP[:200]}": "x"},
            "readings": [
                {"name": "as they stand", "compute": 'kv_per_token("meta-llama/Llama-3.1-8B-Instruct")'},
                {
                    "role": "cause",
                    "name": "twice",
                    "compute": '2 * kv_per_token("meta-llama/Llama-3.1-8B-Instruct")',
                },
            ],
            "note": "a note",
        }
        for value in ("131072", "262144", "7")
    ],
}
GLOSSARY = {
    "terms": [
        {
            "id": "kv-cache",
            "term": "KV cache",
            "also": ["users"],
            "plain": "What is kept.",
            "more": "Much more.",
        },
        {"id": "weights", "term": "weights", "plain": "What is loaded."},
    ]
}
PEERS = {
    "date": "2026-11-21",
    "tools": [{"key": "tool", "name": "a tool", "url": "https://example.org/tool", "how": "it was called"}],
    "cases": [
        {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "gpu": "h100-sxm-80gb",
            "utilization": 0.9,
            "context_tokens": 8192,
            "answers": [{"tool": "tool", "requests": 52, "note": "a note"}],
        },
        {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "gpu": "h100-sxm-80gb",
            "utilization": 0.9,
            "context_tokens": 2048,
            "answers": [{"tool": "tool", "note": "no answer"}],
        },
    ],
}
OBSERVATIONS = {
    "observations": [
        {
            "id": f"web-{number}",
            "engine": "vllm",
            "engine_version": "0.31.0",
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "model_id": "meta-llama/Llama-3.1-8B-Instruct",
            "quantization": "none",
            "weight_format": "released",
            "kv_format": "auto",
            "gpu_named": "H100",
            "gpu": "h100-sxm-80gb",
            "gpu_certainty": "form_factor_assumed",
            "devices": 1,
            "tensor_parallel": 1,
            "utilization": 0.9,
            "utilization_from": "default",
            "context_tokens": 131072,
            "eager": False,
            "speculative": "none",
            "towers": "none",
            "flags": "no flags",
            "printed": {"kv_tokens": 440000, "max_concurrency": 3.4, "available_kv_gib": 53.7},
            "completeness": "full",
            "notes": "a note",
            "origin": {
                "kind": "an issue",
                "url": "https://example.org/log",
                "date": "2026-10-06",
                "lines": ["GPU KV cache size: 440,000 tokens", "another line"],
            },
        }
        for number in ("1", "2")
    ]
}
RELEASE = {
    "version": "2020.01.02",
    "engine": "an engine",
    "gpu": "h100-sxm-80gb",
    "models": {f"gone/{MARKUP}"[:400]: {"parameters": 1}, "openai/gpt-oss-20b": {"parameters": 7}},
    "gpus": {f"gone {MARKUP}"[:400]: 1, "h100-sxm-80gb": 7},
}


def spoiled(data: Any, accepts: Any, path: tuple[Any, ...] = ()) -> int:
    """Put markup into every text that a record takes it in; return how many took it."""
    here: Any = data
    for step in path:
        here = here[step]
    if isinstance(here, str):
        parent: Any = data
        for step in path[:-1]:
            parent = parent[step]
        computed = path[0] == "terms" or (path[0] in ("claims", "source") and path[-1] == "note")
        # There ``{{ … }}`` is computed, and one that cannot be stops the build.
        markup = re.sub(r"\{[{%].*?[%}]\}", "", MARKUP) if computed else MARKUP
        for start in (FORMULAS[len(str(path)) % len(FORMULAS)], ""):
            for length in (4000, 399, 120):
                parent[path[-1]] = f"{start}{markup} {here}"[:length]
                if accepts(data):
                    return 1
        parent[path[-1]] = here
        if here.startswith("https://"):
            parent[path[-1]] = f'{here}"><script>kvhit()</script>'
            if accepts(data):
                return 1
            parent[path[-1]] = here
        return 0
    if isinstance(here, dict):
        return sum(spoiled(data, accepts, (*path, key)) for key in here if key not in NOT_TEXT)
    if isinstance(here, list):
        return sum(spoiled(data, accepts, (*path, number)) for number in range(len(here)))
    return 0


def spoil(file: Path) -> int:
    record = RECORDS[file.name if file.name in RECORDS else file.parent.name]
    data = (read_json if file.suffix == ".json" else read_yaml)(file, file.name)

    def accepts(candidate: object) -> bool:
        try:
            validate(record, candidate, file.name)
        except InputError:
            return False
        return True

    assert accepts(data), file
    changed = spoiled(data, accepts)
    if file.suffix == ".json":
        text = json.dumps(data, ensure_ascii=False)
    else:
        text = yaml.safe_dump(data, allow_unicode=True, sort_keys=False)
    file.write_text(text, encoding="utf-8")
    return changed


def write_everything_else(repository: Path, folder: Path) -> list[Path]:
    """Write one file of every kind that a catalog may have besides models, accelerators and engines."""
    written = {
        "claims/source-9.yaml": CLAIMS,
        "observations/web.yaml": OBSERVATIONS,
        "peers.yaml": PEERS,
        "planner_check.yaml": read_yaml(repository / "data/planner_check.yaml", "planner_check.yaml"),
        "glossary.yaml": GLOSSARY,
        "releases/2020.01.02.json": RELEASE,
    }
    for name, content in written.items():
        (folder / name).parent.mkdir(exist_ok=True)
        text = json.dumps(content) if name.endswith(".json") else yaml.safe_dump(content, sort_keys=False)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copytree(repository / "data/measurements", folder / "measurements")
    return [*(folder / name for name in written), *sorted((folder / "measurements").iterdir())]


@pytest.fixture(scope="module")
def catalog(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, two accelerators, an engine and a ledger, spoiled."""
    folder = tmp_path_factory.mktemp("hostile") / "data"
    public = tiny.copy_catalog(repository, folder)
    for kind, kept in (("models", MODELS), ("accelerators", ACCELERATORS)):
        for file in (public / kind).iterdir():
            if file.stem not in kept:
                file.unlink()
    for kind in ("models", "accelerators", "engines"):
        changed = {file.name: spoil(file) for file in sorted((folder / kind).iterdir()) if file.is_file()}
        assert all(changed.values()), changed
    changed = {file.name: spoil(file) for file in write_everything_else(repository, folder)}
    assert all(changed.values()), changed
    return folder


@pytest.fixture(scope="module")
def site(catalog: Path, build_site) -> Path:
    """The site of that catalog, with one hand-written page."""
    root = catalog.parent
    (root / "docs").mkdir()
    (root / "docs/by-hand.md").write_text("# By hand\n\n[A model](models/index.md)\n", encoding="utf-8")
    config = root / "mkdocs.yml"
    config.write_text(
        tiny.CONFIGURATION.format(docs=root / "docs", site=root / "site", catalog=catalog),
        encoding="utf-8",
    )
    build_site(config)
    return root / "site"


def document(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html5lib")


def injected(page: BeautifulSoup) -> list[str]:
    """What the browser would make an element or an attribute of, though it came from a text."""
    found = [
        str(node)[:200]
        for node in page.select("script")
        if "kvhit" in node.decode_contents()
        # JSON-LD is data that nothing runs, as long as no text in it ends the element.
        and not (node.get("type") == "application/ld+json" and "<" not in node.decode_contents())
    ]
    for node in page.find_all(True):
        for name, value in node.attrs.items():
            words = value if isinstance(value, str) else " ".join(value)
            runs = name.startswith("on") or words.strip().lower().startswith("javascript:")
            if runs or (name == "class" and "kvhit" in words) or (name == "src" and words == "x"):
                found.append(str(node)[:200])
    return found


def test_no_text_becomes_an_element_on_any_page(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    for path in pages:
        page = document(path)
        assert not injected(page), path
        for template in page.select("template"):
            inner = BeautifulSoup(template.decode_contents(), "html5lib")
            assert not injected(inner), path


def test_the_texts_are_shown_as_they_were_written(site, catalog):
    data = load_catalog(catalog)
    for model in data.models.values():
        page = document(site / f"models/{model.slug}/index.html")
        heading = page.h1.get_text()
        assert "<script>kvhit()</script>" in model.name
        assert " ".join(model.name.split()) in " ".join(heading.split())
        assert "{{ 7 * 191 }}" in model.name
        assert "1337" not in page.get_text()
    gpu = data.accelerator("h100-sxm-80gb")
    heading = document(site / f"gpus/{gpu.id}/index.html").h1.get_text()
    assert " ".join(gpu.name.split()) in " ".join(heading.split())


PAGES = (
    "evidence/index.html",
    "evidence/claims/index.html",
    "evidence/measured/index.html",
    "glossary/index.html",
)


@pytest.mark.parametrize("uri", [*PAGES, "data/index.html"])
def test_texts_of_every_other_file_are_shown_as_they_were_written(site, uri):
    page = document(site / uri)
    shown = " ".join(page.get_text().split())
    assert "<script>kvhit()</script><img src=x onerror=kvhit()>" in shown
    assert "1337" not in shown
    assert not [link for link in page.select("a[href]") if "kvhit" in link["href"].partition(":")[0]]


def test_charts_hold_no_foreign_element(site):
    for path in site.rglob("*.html"):
        for svg in document(path).select("svg"):
            assert not svg.select("script, foreignObject, image, img, iframe"), path


def test_no_cell_of_a_csv_begins_a_formula(site):
    files = [*site.rglob("*.csv"), *site.rglob("*.csv.gz")]
    assert len(files) >= 4
    for path in files:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        rows = list(csv.reader(io.StringIO(text)))
        for row in rows:
            assert len(row) == len(rows[0]), path
            for cell in row:
                number = re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", cell)
                assert number or not cell.lstrip().startswith(("=", "+", "-", "@")), (path, cell)


def test_files_for_machines_are_well_formed(site):
    for path in site.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
    for path in site.rglob("*.xml"):
        root = ET.parse(path).getroot()  # noqa: S314 (our own file)
        assert not [node for node in root.iter() if node.tag.rpartition("}")[2] in ("script", "img", "i")]
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# kvreport"
    assert yaml.safe_load((site / "CITATION.cff").read_text(encoding="utf-8"))["type"] == "dataset"


def test_search_results_hold_no_markup_that_would_run(site):
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    asked = [entry["title"] for entry in index["docs"]]
    found = [part for results in searched(index, asked) for result in results for part in result]
    assert len(found) > len(asked) / 2
    for entry in found:
        # The theme puts titles and texts into the page as HTML.
        for field in ("title", "text"):
            assert not injected(BeautifulSoup(entry[field], "html5lib")), (entry["location"], field)


# What is refused --------------------------------------------------------------------------------------


@pytest.fixture
def small(repository: Path, tmp_path: Path) -> Path:
    """One model and one accelerator."""
    folder = tiny.copy_catalog(repository, tmp_path / "data")
    for kind, kept in (("models", MODELS[0]), ("accelerators", ACCELERATORS[0])):
        for file in (folder / kind).iterdir():
            if file.stem != kept:
                file.unlink()
    return folder


def refusal(folder: Path) -> list[str]:
    with pytest.raises(CatalogError) as caught:
        load_catalog(folder)
    return [str(fault) for fault in caught.value.faults]


IDS = {
    f"models/{MODELS[0]}.yaml": (
        "../../etc/passwd",
        "a/../b",
        "a/..",
        "/a/b",
        "a/b/c",
        "a\\b/c",
        "a/b\n",
        "a /b",
        "a/" + "b" * 200,
        "con:/x",
    ),
    f"accelerators/{ACCELERATORS[0]}.yaml": ("../h100", "H100/../x", "h100\n", ".", "..", "-rm", "h" * 300),
}


@pytest.mark.parametrize(("name", "identity"), [(name, one) for name, every in IDS.items() for one in every])
def test_an_id_cannot_lead_out_of_its_folder(small, name, identity):
    file = small / name
    text = file.read_text(encoding="utf-8")
    file.write_text(re.sub(r"(?m)^id: .*$", lambda _: f"id: {json.dumps(identity)}", text), encoding="utf-8")
    (line,) = refusal(small)
    assert line.startswith(f"{name}: id: found ")
    assert "\n" not in line


@pytest.mark.parametrize(
    "sign", ["\u202e", "\u2066", "\x1b[31m", "\x07", "\x00", "\x7f"], ids=lambda sign: f"{ord(sign[0]):04x}"
)
def test_signs_that_turn_the_text_around_them_are_refused(small, sign):
    file = small / "models" / f"{MODELS[0]}.yaml"
    text = file.read_text(encoding="utf-8")
    value = json.dumps(f"Llama {sign}gnp.exe")
    file.write_text(re.sub(r"(?m)^name: .*$", lambda _: f"name: {value}", text), encoding="utf-8")
    (line,) = refusal(small)
    assert line.startswith(f"models/{MODELS[0]}.yaml: name: found ")
    assert line.endswith("allowed: text without control signs or direction overrides")
    assert sign not in line


def test_letters_that_run_from_right_to_left_are_welcome(small):
    file = small / "models" / f"{MODELS[0]}.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(re.sub(r"(?m)^name: .*$", "name: جيس 30B \U0001f999", text), encoding="utf-8")
    (model,) = load_catalog(small).models.values()
    assert model.name == "جيس 30B \U0001f999"


BOMB = "a: &a [x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (BOMB, "an anchor or alias"),
        ("id: a/b\n<<: *base\n", "an anchor or alias"),
        ("x" * 10_000_000, "10,000,000 bytes"),
        ("[" * 100_000, "nested too deeply"),
        ("a: " + "{a: " * 50_000, "nested too deeply"),
        ("name: !!python/object/apply:os.system [id]\n", "could not determine a constructor"),
        (b"name: \xff\xfe\n", "not UTF-8"),
        ("", "found nothing"),
        ("--- 1\n--- 2\n", "found another document"),
    ],
    ids=["bomb", "merge", "large", "deep-list", "deep-map", "object", "bytes", "empty", "two"],
)
def test_a_file_beyond_reason_is_one_line_of_error(small, content, expected):
    file = small / "models" / f"{MODELS[0]}.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    (line,) = refusal(small)
    assert line.startswith(f"models/{MODELS[0]}.yaml")
    assert expected in line
    assert "\n" not in line
    assert len(line) < 400


def test_a_link_to_another_kind_of_file_is_refused_for_its_content(small, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("password: abc\n", encoding="utf-8")
    file = small / "models" / f"{MODELS[0]}.yaml"
    file.unlink()
    file.symlink_to(secret)
    lines = refusal(small)
    assert lines
    assert any(line.startswith(f"models/{MODELS[0]}.yaml: id: found nothing") for line in lines)
