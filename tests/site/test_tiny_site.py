"""A tiny site, built and read with parsers that are not ours."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit
from xml.etree import ElementTree as ET

import html5lib
import pytest
from bs4 import BeautifulSoup

from kvreport import estimate
from kvreport.catalog.load import load_catalog

pytestmark = [pytest.mark.slow]

LLAMA = "models/meta-llama--Llama-3.1-8B-Instruct/"
H100 = "gpus/h100-sxm-80gb/"


def soup(site, uri: str) -> BeautifulSoup:
    return BeautifulSoup(site.html(uri), "lxml")


def words(node) -> str:
    return " ".join(node.get_text(" ").split())


def pages(site) -> list[str]:
    found = site.folder.rglob("index.html")
    return sorted(path.parent.relative_to(site.folder).as_posix() + "/" for path in found)


def test_every_model_and_every_accelerator_has_a_page(tiny_site):
    names = [path.stem for path in (tiny_site.catalog / "models").iterdir()]
    assert names
    for name in names:
        assert (tiny_site.folder / "models" / name / "index.html").is_file(), name
    for path in (tiny_site.catalog / "accelerators").iterdir():
        assert (tiny_site.folder / "gpus" / path.stem / "index.html").is_file(), path.stem


def test_the_headline_is_the_estimate(tiny_site):
    catalog = load_catalog(tiny_site.catalog)
    answer = estimate("meta-llama/Llama-3.1-8B-Instruct", gpu="H100", context_tokens="8K", catalog=catalog)
    full = estimate("meta-llama/Llama-3.1-8B-Instruct", gpu="H100", context_tokens="128K", catalog=catalog)
    lead = words(soup(tiny_site, LLAMA).select_one(".kv-lead"))
    users, most = answer.max_concurrent_requests, full.max_concurrent_requests
    # 32 layers x 8 KV heads x 256 elements x 2 bytes x 8,192 tokens are 1 GiB of a pool below 64 GiB.
    assert 40 < users < 64
    assert re.sub(r" (?=[.;])", "", lead) == (
        f"Llama 3.1 8B serves {users} concurrent requests of 8K tokens each on one H100. "
        f"At its full context of 128K tokens, it serves {most} concurrent requests."
    )


def test_the_title_says_the_conclusion(tiny_site):
    title = soup(tiny_site, LLAMA).title.get_text()
    assert re.match(r"Llama 3\.1 8B serves \d+ concurrent requests of 8K tokens each on one H100", title)


def test_the_table_of_users_has_the_dataset_s_numbers(tiny_site):
    import pandas as pd

    rows = pd.read_parquet(tiny_site.folder / "downloads/capacity.parquet")
    rows = rows[(rows.model == "meta-llama/Llama-3.1-8B-Instruct") & (rows.gpu == "mi300x")]
    rows = rows[(rows.tensor_parallel == 1) & (rows.weight_format == "released") & (rows.kv_format == "bf16")]
    expected = [f"{n:,}" for n in rows.sort_values("context_tokens").max_concurrent_requests if n][:8]
    table_row = soup(tiny_site, LLAMA).select_one("#users-table #on-mi300x")
    shown = [cell.get_text() for cell in table_row.select("td")]
    assert shown[0] == "1"
    assert shown[1:9] == expected


def test_a_row_that_holds_no_user_says_why(tiny_site):
    page = soup(tiny_site, "models/deepseek-ai--DeepSeek-V3/").select_one("article")
    assert re.search(r"RTX 4090.{0,200}[\d.]+ GiB", words(page))
    grid = soup(tiny_site, "gpus/rtx-4090/").select_one("article")
    assert re.search(r"DeepSeek-V3.{0,300}(GiB|weights)", words(grid))


def test_tables_have_captions_scopes_and_units(tiny_site):
    for uri in (LLAMA, H100, "models/", "gpus/", "data/"):
        for table in soup(tiny_site, uri).select("table.kv-table"):
            assert table.caption, uri
            assert words(table.caption), uri
            assert all(head.get("scope") == "col" for head in table.select("thead th")), uri
            assert all(head.get("scope") == "row" for head in table.select("tbody th")), uri


def test_a_chart_stands_there_without_scripts_and_its_specification_never_in_one(tiny_site):
    page = soup(tiny_site, LLAMA)
    figure = page.select_one("#boundary-chart")
    drawing = figure.select_one("svg[role=img], [role=img] svg, svg[aria-label]")
    assert len(drawing.select("path, polyline, line")) > 6
    assert figure.select_one("details table")
    index = soup(tiny_site, "models/").select_one(".kv-chart template.kv-spec")
    assert json.loads(index.get_text())["$schema"].startswith("https://vega.github.io/schema/vega-lite/v6")
    assert not page.select('article script[type="application/json"]')


def test_ids_are_unique_on_every_page(tiny_site):
    for uri in pages(tiny_site):
        ids = [node["id"] for node in soup(tiny_site, uri).select("[id]")]
        twice = {one for one in ids if ids.count(one) > 1 and not one.startswith("__")}
        assert not twice, (uri, twice)


def test_our_fragments_are_well_formed_html(tiny_site):
    parser = html5lib.HTMLParser(strict=False)
    for uri in ("", LLAMA, H100, "models/", "gpus/", "explore/", "compare/", "data/"):
        article = re.search(r"<article.*?</article>", tiny_site.html(uri), re.DOTALL)[0]
        parser.parseFragment(article)
        faults = [(position, code, detail) for position, code, detail in parser.errors]
        assert not faults, (uri, faults[:3])


def test_every_link_and_anchor_leads_somewhere(tiny_site):
    anchors: dict[str, set[str]] = {}
    for uri in pages(tiny_site):
        anchors[uri] = {node["id"] for node in soup(tiny_site, uri).select("[id]")}
    dead = []
    for uri in pages(tiny_site):
        base = f"https://example.org/{'' if uri == './' else uri}"
        for node in soup(tiny_site, uri).select("a[href], link[href], script[src], img[src]"):
            target = urljoin(base, node.get("href") or node.get("src"))
            if urlsplit(target).netloc != "example.org" or target.startswith("https://example.org/tiny/"):
                continue
            address, fragment = urldefrag(target)
            path = urlsplit(address).path.lstrip("/")
            file = (
                tiny_site.folder / path / "index.html"
                if not path or path.endswith("/")
                else tiny_site.folder / path
            )
            page = (path or "./") if not path or path.endswith("/") else None
            if not file.is_file() or (
                fragment and page and fragment not in anchors[page] and fragment != "top"
            ):
                dead.append((uri, target))
    assert not dead, dead[:5]


def test_no_page_asks_another_host_for_anything(tiny_site):
    for uri in pages(tiny_site):
        page = soup(tiny_site, uri)
        for node in page.select("script[src], img[src], link[rel=stylesheet], link[rel=preconnect], iframe"):
            address = node.get("src") or node.get("href") or ""
            assert not urlsplit(address).netloc, (uri, address)
    for style in (tiny_site.folder / "assets").glob("*.css"):
        assert "//" not in re.sub(r"/\*.*?\*/", "", style.read_text(encoding="utf-8"), flags=re.DOTALL), style


def test_the_search_index_holds_conclusions_and_no_tables(tiny_site):
    index = json.loads((tiny_site.folder / "search/search_index.json").read_text(encoding="utf-8"))
    entry = next(doc for doc in index["docs"] if doc["location"] == LLAMA)
    assert "concurrent requests of 8K tokens each on one H100" in entry["text"]
    assert "meta-llama/Llama-3.1-8B-Instruct" in entry["tags"]
    assert len(entry["text"]) < 2000
    assert not [doc for doc in index["docs"] if doc["location"].startswith(f"{LLAMA}#")]


def test_generated_pages_stay_out_of_the_navigation(tiny_site):
    nav = soup(tiny_site, "by-hand/").select_one("nav.md-nav--primary")
    links = [node["href"] for node in nav.select("a[href]")]
    assert not [href for href in links if "Llama" in href or "h100" in href]


def test_checksums_are_those_of_the_files(tiny_site):
    folder = tiny_site.folder / "downloads"
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 6
    for line in lines:
        digest, name = line.split(maxsplit=1)
        assert hashlib.sha256((folder / name.lstrip("*")).read_bytes()).hexdigest() == digest, name


def test_the_feed_is_atom(tiny_site):
    feed = ET.parse(tiny_site.folder / "data/releases.xml").getroot()  # noqa: S314 (our own file)
    atom = "{http://www.w3.org/2005/Atom}"
    assert feed.tag == f"{atom}feed"
    version = (tiny_site.catalog / "RELEASE").read_text(encoding="ascii").strip()
    assert feed.find(f"{atom}entry/{atom}title").text == f"Data release {version}"


def test_the_figures_of_every_release_stay_at_their_address(tiny_site):
    from kvreport.publish.changes import read_snapshot

    kept = {path.stem for path in (tiny_site.catalog / "releases").glob("*.json")}
    now = (tiny_site.catalog / "RELEASE").read_text(encoding="ascii").strip()
    page = (tiny_site.folder / "data/index.html").read_text(encoding="utf-8")
    releases = {*(one for one in kept if one < now), now}
    assert len(releases) > 1
    assert {path.stem for path in (tiny_site.folder / "data/releases").glob("*.json")} == releases
    for version in releases:
        assert f'releases/{version}.json"' in page
        assert read_snapshot(tiny_site.folder / f"data/releases/{version}.json")["version"] == version


def test_the_code_that_reads_the_matrix_runs(tiny_site, monkeypatch):
    from kvreport.site.pages.data import READERS

    monkeypatch.chdir(tiny_site.folder / "downloads")
    answers = {}
    for name, code in READERS:
        scope: dict[str, object] = {}
        exec(code, scope)  # noqa: S102 (the page's own code)
        answers[name] = scope["answer"]
    by_pandas = {model: int(users) for model, users in answers["pandas"].items()}
    assert by_pandas
    asked = estimate("llama-3.1-8b", gpu="H100", context_tokens="8K", catalog=load_catalog(tiny_site.catalog))
    assert by_pandas[LLAMA.split("/")[1].replace("--", "/")] == asked.max_concurrent_requests
    assert dict(answers["DuckDB"]) == by_pandas
    assert dict(answers["Polars"].iter_rows()) == by_pandas
    shown = words(soup(tiny_site, "data/"))
    assert "pl.scan_parquet('capacity.parquet')" in shown


def test_two_builds_are_the_same_bytes(tiny_site, build_site):
    first = _digests(tiny_site.folder)
    build_site(tiny_site.config)
    assert _digests(tiny_site.folder) == first


def _digests(folder: Path) -> dict[str, str]:
    skipped = {"sitemap.xml", "sitemap.xml.gz"}  # the host dates them by the clock
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped
    }


def test_a_first_load_is_small(tiny_site):
    import gzip

    for uri in ("", LLAMA, H100, "models/", "explore/"):
        page = soup(tiny_site, uri)
        total = len(gzip.compress(tiny_site.html(uri).encode()))
        local = {
            node.get("src") or node.get("href") for node in page.select("script[src], link[rel=stylesheet]")
        }
        for address in local:
            content = (tiny_site.folder / uri / urlsplit(address).path).resolve().read_bytes()
            total += len(gzip.compress(content))
        fonts = sum(path.stat().st_size for path in (tiny_site.folder / "assets/fonts").iterdir())
        assert total + fonts < 150_000, (uri, total, fonts)


def test_pages_load_only_the_styles_that_they_use(tiny_site):
    def loads(name: str, uri: str) -> bool:
        return bool(soup(tiny_site, uri).select(f"link[rel=stylesheet][href$='assets/{name}.css']"))

    assert not any(loads("book", uri) for uri in ("", LLAMA, "explore/", "sizer/"))
    assert not any(loads("dataset", uri) for uri in ("", LLAMA, "compare/", "gpus/rtx-4090/"))
    assert all(loads("dataset", uri) for uri in ("explore/", "data/", "sizer/"))


def test_a_broken_catalog_stops_the_build_with_its_faults(tiny_site, build_site, tmp_path, caplog):
    from mkdocs.exceptions import Abort

    broken = tmp_path / "data"
    shutil.copytree(tiny_site.catalog, broken)
    path = broken / "models/openai--gpt-oss-20b.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("context_tokens:", "context_tokenz:", 1), encoding="utf-8"
    )
    config = tmp_path / "mkdocs.yml"
    text = tiny_site.config.read_text(encoding="utf-8")
    text = text.replace(str(tiny_site.catalog), str(broken)).replace(
        str(tiny_site.folder), str(tmp_path / "site")
    )
    config.write_text(text, encoding="utf-8")
    with pytest.raises(Abort):
        build_site(config)
    assert "openai--gpt-oss-20b.yaml: context_tokenz: found 131072" in caplog.text
    assert not (tmp_path / "site" / "index.html").exists()


def test_names_from_the_catalog_are_escaped_everywhere(tiny_site, build_site, tmp_path):
    hostile = tmp_path / "data"
    shutil.copytree(tiny_site.catalog, hostile)
    path = hostile / "models/openai--gpt-oss-20b.yaml"
    name = 'x"><script>alert(1)</script>{{ 7 * 7 }}</template></title>'
    text = re.sub(
        r"^name: .*$", lambda _: f"name: {json.dumps(name)}", path.read_text(encoding="utf-8"), flags=re.M
    )
    path.write_text(text, encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    text = tiny_site.config.read_text(encoding="utf-8")
    text = text.replace(str(tiny_site.catalog), str(hostile)).replace(
        str(tiny_site.folder), str(tmp_path / "site")
    )
    config.write_text(text, encoding="utf-8")
    build_site(config)
    for path in (tmp_path / "site").rglob("*.html"):
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "lxml")
        running = page.select('script:not([type="application/ld+json"])')
        assert not [node for node in running if "alert(1)" in node.get_text()], path
        for block in page.select('script[type="application/ld+json"]'):
            json.loads(block.get_text())
    heading = BeautifulSoup(
        (tmp_path / "site/models/openai--gpt-oss-20b/index.html").read_text(encoding="utf-8"), "lxml"
    ).h1
    assert heading.get_text().startswith(name)


def test_the_search_dialog_has_a_name(tiny_site):
    for uri in ("", "models/"):
        assert 'role="dialog" aria-label="Search"' in tiny_site.html(uri)


def test_no_page_shows_the_place_of_a_flag(tiny_site):
    """Remedies of refused starts were printed as they stand in data/, with ``{vllm:context}`` for the flag's name."""
    place = re.compile(r"\{\w+:\w+\}")
    for uri in pages(tiny_site):
        shown = soup(tiny_site, uri)
        for code in shown.select("code, pre, script"):
            code.decompose()
        assert not place.findall(words(shown)), uri
    assert "--max-model-len" in words(soup(tiny_site, "refusals/vllm-kv-cache-is-needed/"))


@pytest.mark.parametrize("name", ["Qwen--Qwen3.6-27B", "meta-llama--Llama-3.1-8B-Instruct"])
def test_a_table_at_home_says_where_it_leaves_a_projector_out(tiny_site, name):
    """The page said of a mix that it fits, and the command with the projector for images found it short of memory."""
    model = load_catalog(tiny_site.catalog).model(name.replace("--", "/"))
    shown = words(soup(tiny_site, f"models/{name}/").select_one("main"))
    assert ("takes additional memory" in shown) == (model.inputs != ("text",))
