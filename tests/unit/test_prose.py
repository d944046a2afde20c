import re
from pathlib import Path

import pytest

from kvreport.book import glossary, prose
from kvreport.book.prose import Allowed
from kvreport.book.quantities import CONSTANTS, WORDS, Quantities
from kvreport.catalog.load import open_catalog
from kvreport.errors import CatalogError, InputError

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def quantities():
    return Quantities(open_catalog(DATA))


# Numbers stated through code -----------------------------------------------------------------------


def test_a_figure_that_holds_is_printed_as_it_stands(quantities):
    html, faults = prose.resolve('a {{ 131,072 bytes = kv_per_token("llama-3.1-8b") }} b', quantities, "p")
    assert not faults
    assert ">131,072\u00a0bytes</span>" in html
    assert "{{" not in html


def test_a_figure_that_does_not_hold_is_a_fault_with_page_and_both_numbers(quantities):
    _, faults = prose.resolve('{{ 131,073 bytes = kv_per_token("llama-3.1-8b") }}', quantities, "learn/x.md")
    assert len(faults) == 1
    assert faults[0].where == "learn/x.md"
    assert "131,073" in str(faults[0])
    assert "131,072" in str(faults[0])


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ('kv_request("llama-3.1-8b", tokens=8192) as GiB.1', "1.0\u00a0GiB"),
        ('kv_request("llama-3.1-8b", tokens=8192) as MiB', "1,024\u00a0MiB"),
        ("0.125 as %.1", "12.5%"),
        ("4 as ×", "4×"),
        ("7.5 as requests", "8\u00a0requests"),
        ("≈ 40 GB = 4.1 * 10 ** 10", "≈\u00a040\u00a0GB"),
    ],
)
def test_values_are_printed_in_the_unit_asked_for(quantities, source, shown):
    assert prose.state(source, quantities) == shown


@pytest.mark.parametrize(
    "source", ["131072", "kv_per_token('llama-3.1-8b')", "1 as furlongs", "x = 1", "1 GB ="]
)
def test_what_is_neither_form_is_refused(quantities, source):
    with pytest.raises(InputError):
        prose.state(source, quantities)


def test_markup_inside_an_expression_does_no_harm(quantities):
    # Markdown escapes quotes, and a glossary may have put a tag around a unit.
    source = "{{ 1 <abbr>GiB</abbr> = kv_request(&quot;llama-3.1-8b&quot;, tokens=8192) }}"
    html, faults = prose.resolve(source, quantities, "p")
    assert not faults
    assert "1\u00a0GiB" in html


def test_code_is_left_alone(quantities):
    html = "<pre>{{ nothing }}</pre><p><code>{{ 1 = 2 }}</code></p>"
    assert prose.resolve(html, quantities, "p") == (html, [])


def test_texts_from_an_expression_are_escaped(quantities):
    html, faults = prose.resolve('{{ 1 = kv_per_token("<script>") }}', quantities, "p")
    assert faults
    assert "<script>" not in html.replace('"<script>"', "")


def test_every_word_is_documented():
    for name in WORDS:
        assert (getattr(Quantities, name).__doc__ or "").strip(), name
    assert CONSTANTS["GiB"] == 1 << 30


def test_every_word_is_in_the_manual():
    manual = (DATA.parent / "docs" / "about" / "numbers-in-prose.md").read_text(encoding="utf-8")
    for name in (*WORDS, *CONSTANTS):
        assert f"`{name}`" in manual or f"`{name}(" in manual, name


# Hand-worked values of the words -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("kv_bytes(layers=80, kv_heads=8, head_dim=128, tokens=8192)", 2_684_354_560),
        ('kv_per_token("llama-2-7b")', 524_288),
        ('kv_per_token("Qwen/Qwen2.5-7B")', 57_344),
        ('kv_per_token("llama-3.1-70b", "fp8")', 163_840),
        ('kv_per_token("deepseek-v3", tp=8)', 70_272),
        ('state("qwen3.6-27b")', 153_944_064),
        ('kv_per_token("gpt-oss-120b")', 36_864),
        ('kv_per_token("gpt-oss-120b", at=1)', 73_728),
        ('growing_layers("qwen3.6-27b")', 16),
        ('parameters("llama-3.1-8b")', 8_030_261_248),
        ('weights("llama-3.1-8b")', 16_060_522_496),
        ('heads("llama-3.1-8b") / kv_heads("llama-3.1-8b")', 4),
        ('label_memory("H100")', 80_000_000_000),
        ('fits("Qwen/Qwen2.5-7B", "H100", tokens=8192, engine="ceiling", utilization=0.85)', 126),
    ],
)
def test_a_word_means_what_the_pencil_says(quantities, expression, expected):
    assert quantities.compute(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        'window("llama-3.1-8b")',
        'fits("llama-3.1-8b", "H100", tokens=8192, colour="red")',
        'peak("H100", "fp2")',
    ],
)
def test_a_word_that_does_not_apply_says_why(quantities, expression):
    with pytest.raises(InputError):
        quantities.compute(expression)


# Naked quantities ----------------------------------------------------------------------------------


def found(text):
    return [n.text for n in prose.quantities_in(text, "p")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It takes 16 GB of memory.", ["16 GB"]),
        ("It takes 131,072 bytes.", ["131,072 bytes"]),
        ("7.5 GiB and 85% and 4x and 4×", ["7.5 GiB", "85%", "4x", "4×"]),
        ("504 requests of 2,048 tokens", ["504 requests", "2,048 tokens"]),
        ("a 16-bit cache", ["16-bit"]),
        ("a table of 12\u00a0GiB", ["12 GiB"]),
        ("Llama 3.1 8B at 128K on an H100", []),
        ("version 0.33, in 2026, chapter 3", []),
        ("`16 GB` in code", []),
        ("{{ 16 GB = weights('x') }}", []),
        ("[see](page.md#16GB) it", []),
        ("```\n16 GB\n```\n", []),
        ('<span title="16 GB">x</span>', []),
        ("---\ndescription: 16 GB\n---\ntext", []),
    ],
)
def test_a_quantity_is_a_number_with_a_unit_in_prose(text, expected):
    assert found(text) == expected


def test_a_naked_quantity_is_named_with_file_line_and_words():
    faults = prose.naked([("a.md", "one\n\nIt takes 16 GB here.")], [])
    assert str(faults[0]).startswith("a.md:3")
    assert "16 GB" in str(faults[0])


def test_the_allow_list_covers_exactly_what_it_names():
    rule = Allowed(text="16 GB", where="a*", reason="r")
    assert prose.naked([("a.md", "16 GB")], [rule]) == []
    assert len(prose.naked([("b.md", "16 GB")], [rule])) == 2  # the quantity, and the rule that nothing needs
    assert len(prose.naked([("a.md", "16 GB and 17 GB")], [rule])) == 1


def test_an_allowance_without_a_reason_is_refused(tmp_path):
    path = tmp_path / "prose-allow.yaml"
    path.write_text('schema_version: 1\nallowed:\n  - {text: "16 GB"}\n', encoding="utf-8")
    with pytest.raises(CatalogError, match="reason"):
        prose.load_allowed(path)


def test_only_the_words_of_a_chapter_are_prose(tmp_path):
    path = tmp_path / "01-x.py"
    path.write_text(
        "# %% [markdown]\n# # Title\n#\n# 16 GB\n\n# %%\nx = '17 GB'  # 18 GB\n", encoding="utf-8"
    )
    text = prose.markdown_of(path)
    assert found(text) == ["16 GB"]
    assert text.splitlines()[3] == "16 GB"


# Glossary ------------------------------------------------------------------------------------------

TERMS = (
    glossary.GlossaryTerm(
        id="kv-heads", term="KV heads", also=("KV head",), plain='How many "keys" are kept.'
    ),
    glossary.GlossaryTerm(id="heads", term="heads", plain="Look-ups."),
)


def test_a_term_is_explained_where_it_stands_first():
    html = glossary.explain("<h2>KV heads</h2><p>KV heads and KV heads and heads</p>", TERMS, "../glossary/")
    assert html.count("<a ") == 2
    assert html.startswith('<h2>KV heads</h2><p><a class="kv-term"')
    assert "How many &quot;keys&quot; are kept." in html
    assert 'href="../glossary/#kv-heads"' in html


@pytest.mark.parametrize(
    "html",
    [
        '<a href="x">KV heads</a>',
        "<pre>heads</pre>",
        "<code>heads</code>",
        "<th>heads</th>",
        "<math><mi>heads</mi></math>",
        "<svg><text>heads</text></svg>",
        '<span class="kv-q" title="heads(1)">32 heads</span>',
        "<p>headstrong, over-heads</p>",
    ],
)
def test_links_code_heads_figures_and_computed_numbers_are_left_alone(html):
    assert glossary.explain(html, TERMS, "../glossary/") == html


def test_everyday_words_are_no_terms():
    terms = glossary.load_glossary(DATA / "glossary.yaml")
    html = "<p>This page states its source, the address has the state, and GPU utilization is high.</p>"
    found = glossary.explain(html, terms, "../glossary/")
    assert re.findall(r">([^<]+)</a>", found) == ["GPU"]


def test_every_figure_of_the_glossary_holds(quantities):
    """Only a whole build, minutes later, found one whose unit is none."""
    _, faults = prose.resolve((DATA / "glossary.yaml").read_text("utf-8"), quantities, "glossary.yaml")
    assert [str(fault) for fault in faults] == []


def test_the_public_glossary_explains_the_terms_of_the_trade():
    words = {
        word for term in glossary.load_glossary(DATA / "glossary.yaml") for word in (term.term, *term.also)
    }
    for word in (
        "KV heads",
        "GQA",
        "MLA",
        "prefill",
        "decode",
        "TPOT",
        "TTFT",
        "KV page",
        "memory utilization",
        "KV cache",
    ):
        assert word in words


def test_a_word_has_one_explanation(tmp_path):
    path = tmp_path / "glossary.yaml"
    path.write_text(
        "schema_version: 1\nterms:\n  - {id: a, term: x, plain: p}\n  - {id: b, term: y, also: [x], plain: p}\n",
        encoding="utf-8",
    )
    with pytest.raises(CatalogError, match="'x'"):
        glossary.load_glossary(path)


def test_an_expression_may_go_on_in_the_next_line(quantities):
    """The whole site did not build: a line of a chapter ended with the equals sign."""
    found, faults = prose.resolve(
        "<p>{{ 2 GiB =\n2 * GiB }} and {{ 4 *\n  GiB as GiB }}</p>", quantities, "page"
    )
    assert not faults
    assert "2\u00a0GiB</span>" in found
    assert prose.plain("{{ 2 GiB =\n2 * GiB }}", quantities) == "2\u00a0GiB"
