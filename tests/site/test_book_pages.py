"""The book as it is, and a small book built by MkDocs with everything that can go wrong in it."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import chapters
import pytest
from bs4 import BeautifulSoup
from fuzzing import thinned
from mkdocs.exceptions import Abort, PluginError
from nbclient.exceptions import CellExecutionError
from tiny import copy_catalog

from kvreport import resources, words
from kvreport.adapters import book, search_index
from kvreport.book import prose, reader_case
from kvreport.book.quantities import Quantities
from kvreport.build_cache import read_sealed
from kvreport.catalog.load import open_catalog
from kvreport.errors import CatalogError

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
CHAPTERS = sorted((DOCS / "chapters").glob("*.py"))
PAGES = [*CHAPTERS, *sorted(DOCS.rglob("*.md"))]


def resolved(path, quantities):
    """A page's text with its figures, and those that do not hold."""
    text = prose.markdown_of(path)
    about = quantities.about(reader_case.of_text(text, quantities.catalog))
    return prose.resolve(text, about, path.name)


@cache
def resolved_now(path):
    """The same with the catalog as it is."""
    return resolved(path, chapters.quantities())


LONGEST_WORDS = 12 * book.WORDS_PER_MINUTE


def test_there_are_fourteen_chapters_and_forty_questions():
    assert [path.name[:2] for path in CHAPTERS] == [f"{n:02}" for n in range(1, 15)]
    questions = {path.stem for path in (DOCS / "questions").glob("*.md")} - {"index"}
    listed = re.findall(r"\]\(([\w-]+)\.md\)", (DOCS / "questions" / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(questions)
    assert len(listed) >= 40


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_its_claims_hold(path):
    assert chapters.executed(path)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_is_read_in_less_than_twelve_minutes(path):
    """Also with every answer and every table."""
    assert chapters.words(path) > 600
    assert chapters.all_words(path) < LONGEST_WORDS


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_is_a_lab(path):
    page = BeautifulSoup(chapters.page(path), "html.parser")
    assert 3 <= len(page.select("section.kv-guess")) <= 6
    assert len(page.select("section.kv-instrument")) >= 1
    assert page.select("figure.kv-figure svg[role=img]"), "a chapter draws its numbers"
    assert len(page.select("ol.kv-quiz > li")) >= 3
    assert len(page.select("section.kv-exercise")) >= 2
    for question in page.select(".kv-choice"):
        assert len(question.select(".kv-options > li[data-right]")) == 1
        assert all(option["data-why"] for option in question.select(".kv-options > li"))
        assert question.select_one("details summary")
    for guess in page.select("[data-kv-guess]"):
        assert float(guess["data-low"]) <= float(guess["data-answer"]) <= float(guess["data-high"])
        assert guess["data-shown"] in guess.select_one("details").get_text()
    ids = [one["id"] for one in page.select("[id]")]
    assert len(ids) == len(set(ids)), "an id stands twice"
    for drawing in page.select("svg[aria-labelledby]"):
        assert drawing.title.get_text()
        assert drawing.desc.get_text()
    assert not page.select("[style]")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_every_number_stated_in_prose_holds(path):
    _, faults = resolved_now(path)
    assert [str(fault) for fault in faults] == []


def test_no_quantity_stands_naked():
    pages = [(path.relative_to(DOCS).as_posix(), prose.markdown_of(path)) for path in PAGES]
    allowed = prose.load_allowed(REPOSITORY / "data" / "prose-allow.yaml")
    assert [str(fault) for fault in prose.naked(pages, allowed)] == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_every_part(path):
    text = prose.markdown_of(path)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0].endswith("?"), "the first title asks what the chapter answers"
    assert "formula(" in path.read_text(encoding="utf-8")
    for part in ("Exercises", "Check yourself", "Limitations", "Next"):
        assert part in headings, part
    told = {"The question", "The formula", "The answer", "The numbers"}
    assert not told & set(headings), "a title says what is below it"
    assert any(re.match(r"Worked example: \w+", heading) for heading in headings), (
        "a title says what comes out"
    )


def test_every_publication_that_a_chapter_names_is_linked():
    named = {
        path.name: re.findall(
            r'(?<!\[)"[A-Z][^"\n]{14,}"(?!\])', "\n".join(prose.markdown_of(path).split("## Next")[1:])
        )
        for path in CHAPTERS
    }
    assert {name: found for name, found in named.items() if found} == {
        "10-sizing-a-deployment.py": named["10-sizing-a-deployment.py"]
    }
    assert sum("](https://" in prose.markdown_of(path) for path in CHAPTERS) >= 10


@pytest.mark.parametrize("path", sorted((DOCS / "questions").glob("*.md")), ids=lambda path: path.stem)
def test_a_question_is_answered_with_computed_numbers_in_a_screen(path):
    text = path.read_text(encoding="utf-8")
    if path.stem == "index":
        return
    assert "{{" in text
    assert "https://github.com/" in text
    assert "**Accuracy:**" in text
    assert re.search(r"^reader: \{", text, re.MULTILINE), "no reader's case"
    live = [one for one in re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL) if "MODEL" in one or "GPU" in one]
    assert len([one for one in live if " as " in one]) >= 2, "no number follows the reader's case"
    assert re.search(r"\]\(\.\./(sizer|models|traffic|log|compare|gpus|evidence)/|`kvreport ", text), (
        "no tool is linked"
    )
    assert len(re.sub(r"\{\{.*?\}\}", "0", text).split()) < 420


# One per cent --------------------------------------------------------------------------------------


def scaled(catalog: Path, file: str, pattern: str) -> None:
    """Make one number of a catalog file two percent larger; half of that is still seen in figures of two digits."""
    path = catalog / file
    text = path.read_text(encoding="utf-8")
    changed, times = re.subn(pattern, lambda m: f"{m[1]}{round(int(m[2]) * 1.02)}", text, count=1)
    assert times == 1
    assert changed != text
    path.write_text(changed, encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("models/meta-llama--Llama-3.1-8B-Instruct.yaml", r"(key_dim: )(128)"),
        ("models/deepseek-ai--DeepSeek-V3.yaml", r"(latent_dim: )(512)"),
        ("models/Qwen--Qwen3.6-27B.yaml", r"(channels: 48, columns: )(16384)"),
        ("accelerators/h100-sxm-80gb.yaml", r"(usable:\n    value: )(\d+)"),
        ("accelerators/h100-sxm-80gb.yaml", r"(bandwidth_bytes_per_s:\n  value: )(\d+)"),
    ],
)
def test_two_percent_more_in_the_catalog_stops_or_changes_every_page_that_depends_on_it(
    tmp_path, file, pattern
):
    catalog = tmp_path / "data"
    shutil.copytree(REPOSITORY / "data", catalog, ignore=shutil.ignore_patterns("claims", "observations"))
    scaled(catalog, file, pattern)
    quantities = Quantities(open_catalog(catalog))

    def shown(path: Path) -> str | None:
        """What a page shows; None where it stops the build, for its figures or a record that contradicts itself."""
        try:
            html, faults = resolved(path, quantities)
        except CatalogError:
            return None
        return None if faults else html

    assert not any(resolved_now(path)[1] for path in PAGES)
    assert any(shown(path) != resolved_now(path)[0] for path in PAGES)


# A small book, built -------------------------------------------------------------------------------

CONFIGURATION = """\
site_name: book
docs_dir: {root}/docs
site_dir: {root}/site
theme: {{name: material, font: false}}
plugins:
  - mkdocs-jupyter:
      include: ["chapters/*.py"]
      execute: true
      allow_errors: false
      no_prompt: true
      remove_tag_config: {{remove_input_tags: [hide]}}
  - kvreport:
      catalog: {root}/data
      downloads: false
      prose: {root}/data/prose-allow.yaml
markdown_extensions: [md_in_html, tables, {{toc: {{permalink: true}}}}]
"""
CHAPTER = """\
# %% [markdown]
# # One chapter
#
# A token costs {{ 131,072 bytes = kv_per_token("llama-3.1-8b") }}; see [the page](../by-hand.md) and its KV heads.
#
# ## The numbers

# %% tags=["hide"]
from kvreport.book.chapter import claim, table

claim(2 * 32 * 8 * 128 * 2, 131_072)

# %%
table("cap", ["a", "b"], [["x", 40 + 2]])
"""
BY_HAND = (
    '# By hand\n\nA request of 8K: {{ kv_request("llama-3.1-8b", tokens=8192) as GiB.1 }}, in 16 bits.\n'
)
ALLOW = 'schema_version: 1\nallowed:\n  - {text: "16 bits", reason: "a width"}\n'
GLOSSARY = "schema_version: 1\nterms:\n  - {id: kv-heads, term: KV heads, plain: What is kept.}\n"


@pytest.fixture(scope="module")
def small_book(tmp_path_factory):
    root = tmp_path_factory.mktemp("book")
    (root / "docs" / "chapters").mkdir(parents=True)
    (root / "docs" / "chapters" / "01-one.py").write_text(CHAPTER, encoding="utf-8")
    (root / "docs" / "by-hand.md").write_text(BY_HAND, encoding="utf-8")
    data = copy_catalog(REPOSITORY, root / "data")
    for path in (data / "models").glob("*.yaml"):
        if "8B" not in path.name:
            path.unlink()
    for path in (data / "accelerators").glob("*.yaml"):
        if "h100" not in path.name:
            path.unlink()
    (data / "prose-allow.yaml").write_text(ALLOW, encoding="utf-8")
    (data / "glossary.yaml").write_text(GLOSSARY, encoding="utf-8")
    (root / "mkdocs.yml").write_text(CONFIGURATION.format(root=root), encoding="utf-8")
    return root


@pytest.fixture
def attempt(small_book, build_site, monkeypatch):
    """Build the small book with some of its texts replaced; put them back afterwards."""
    assert search_index.WORDS and words.ALL  # noqa: PT018 - read from the package before its folder is replaced
    # Whoever works on the package while the tests run shall not change the key between two builds.
    monkeypatch.setattr(resources, "package_dir", lambda: small_book / "docs")
    kept = {path: path.read_text(encoding="utf-8") for path in (small_book / "docs").rglob("*.*")}

    def build(**texts: str) -> Path:
        names = {"chapter": "chapters/01-one.py", "by_hand": "by-hand.md"}
        for name, text in texts.items():
            (small_book / "docs" / names[name]).write_text(text, encoding="utf-8")
        build_site(small_book / "mkdocs.yml")
        return small_book / "site"

    yield build
    for path, text in kept.items():
        path.write_text(text, encoding="utf-8")


pytestmark = [pytest.mark.slow]


def test_a_chapter_is_executed_and_its_page_made(attempt):
    site = attempt()
    page = BeautifulSoup((site / "learn" / "one" / "index.html").read_text(encoding="utf-8"), "html.parser")
    article = page.find("article")
    assert article.h1.get_text().startswith("One chapter")
    assert "131,072\u00a0bytes" in article.get_text()
    assert "{{" not in article.get_text()
    assert [td.text for td in article.select("table td")] == ["42"]
    assert article.select_one("details.kv-code") is not None
    assert "131_072" not in article.get_text()  # the checking cell is hidden
    assert article.find("a", string="the page")["href"] == "../../by-hand/"
    term = article.select_one("a.kv-term")
    assert term["title"] == "What is kept."
    assert term["href"] == "../../glossary/#kv-heads"
    assert not article.find_all(["style", "script"])
    by_hand = (site / "by-hand" / "index.html").read_text(encoding="utf-8")
    assert "1.0\u00a0GiB" in by_hand
    assert (site / "glossary" / "index.html").is_file()


def test_an_unchanged_chapter_is_not_executed_again(attempt, monkeypatch):
    attempt()
    import mkdocs_jupyter.convert

    def refuse(*_args, **_options):
        raise AssertionError("executed again")

    monkeypatch.setattr(mkdocs_jupyter.convert, "nb2html", refuse)
    attempt()
    with pytest.raises(AssertionError, match="executed again"):
        attempt(chapter=CHAPTER.replace("40 + 2", "40 + 3"))


def test_several_chapters_are_executed_by_another_process_meanwhile(attempt, small_book, monkeypatch):
    import mkdocs_jupyter.convert

    def refuse(*_args, **_options):
        raise AssertionError("executed here")

    second = small_book / "docs" / "chapters" / "02-two.py"
    second.write_text(CHAPTER.replace("One chapter", "Another"), encoding="utf-8")
    try:
        with monkeypatch.context() as patched:
            patched.setattr(mkdocs_jupyter.convert, "nb2html", refuse)
            site = attempt(chapter=CHAPTER.replace("40 + 2", "40 + 4"))
        for name, number in (("one", "44"), ("two", "42")):
            html = (site / "learn" / name / "index.html").read_text(encoding="utf-8")
            cells = BeautifulSoup(html, "html.parser").select("article table td")
            assert [cell.text for cell in cells] == [number]
        # What fails there fails here, where it is told.
        second.write_text(CHAPTER.replace("131_072", "131_073").replace("40 + 2", "40 + 5"), encoding="utf-8")
        with pytest.raises((CellExecutionError, Abort, AssertionError)):
            attempt(chapter=CHAPTER.replace("40 + 2", "40 + 6"))
    finally:
        second.unlink()


def test_a_damaged_chapter_is_noticed_and_executed_again(attempt):
    address = "learn/one/index.html"
    site = attempt()
    whole = (site / address).read_bytes()
    # The latest state; one older is kept, too.
    states = (site.parent / ".cache/mkdocs-jupyter").iterdir()
    files = sorted(max(states, key=lambda state: state.stat().st_mtime).iterdir())
    (kept,) = (file for file in files if b">42<" in file.read_bytes())
    content = kept.read_bytes()
    harm = (content[: len(content) // 2], content.replace(b">42<", b">43<"), b"", b'{"content": ""}')
    for harmed in thinned(harm, 3):
        assert harmed != content
        kept.write_bytes(harmed)
        attempt()
        assert (site / address).read_bytes() == whole
        assert b">42<" in (read_sealed(kept) or b"")
    (notes,) = (file for file in files if file != kept)  # of the records that the chapter reads
    for harmed in thinned((notes.read_bytes()[:20], b"", b"{}"), 2):
        notes.write_bytes(harmed)
        attempt()
        assert (site / address).read_bytes() == whole


def test_a_failing_claim_stops_the_build(attempt):
    with pytest.raises((CellExecutionError, Abort, AssertionError)):
        attempt(chapter=CHAPTER.replace("128 * 2, 131_072", "128 * 2, 131_073"))


def test_a_figure_that_does_not_hold_stops_the_build(attempt, caplog):
    with pytest.raises((PluginError, Abort)):
        attempt(chapter=CHAPTER.replace("131,072 bytes", "131,073 bytes"))
    assert "the page says 131,073 bytes, the arithmetic gives 131,072 bytes" in caplog.text


def test_a_naked_quantity_stops_the_build(attempt, caplog):
    with pytest.raises((PluginError, Abort)):
        attempt(by_hand=BY_HAND + "\nIt takes 17 GB.\n")
    assert "by-hand.md:5: found the naked quantity '17 GB'" in caplog.text


def test_a_dead_link_in_a_chapter_stops_a_strict_build(attempt):
    with pytest.raises(Abort, match="warning"):
        attempt(chapter=CHAPTER.replace("../by-hand.md", "../nowhere.md"))
