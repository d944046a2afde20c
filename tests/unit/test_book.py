from types import SimpleNamespace

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from kvreport.adapters import book

# What mkdocs-jupyter 0.26 and 0.27 give, shortened to the parts that matter.
NOTEBOOK = """<style>.jp{color:red}</style><script>MathJax()</script><!-- Load mathjax -->
<div class="jp-Cell jp-MarkdownCell"><div class="jp-Collapser jp-InputCollapser"></div>
<div class="jp-InputPrompt jp-InputArea-prompt"></div>
<p id="cell-id=9e39c390">x</p><table><tr style="text-align: right;"></tr></table>
<h1 id="t">T<a class="anchor-link" href="#t">¶</a></h1></div>
<div class="zeroclipboard-container"><clipboard-copy for="cell-1"><svg></svg></clipboard-copy></div>
<div class="highlight-ipynb hl-python "><pre><span></span>x = 1</pre></div>
<div class="clipboard-copy-txt" id="cell-1">x = 1</div>"""


def site(tmp_path, *uris):
    config = MkDocsConfig()
    config.load_dict({"site_name": "x", "docs_dir": str(tmp_path), "site_dir": str(tmp_path / "site")})
    config.validate()
    config.plugins._current_plugin = "test"
    return config, Files([File.generated(config, uri, content="") for uri in uris])


def test_a_chapter_lives_under_learn_without_its_number(tmp_path):
    config, files = site(tmp_path, "chapters/02-the-formula.py", "about/index.md")
    book.place(files, config)
    chapter = files.get_file_from_path("chapters/02-the-formula.py")
    assert chapter.url == "learn/the-formula/"
    assert chapter.dest_uri == "learn/the-formula/index.html"
    assert chapter.abs_dest_path.endswith("site/learn/the-formula/index.html")
    assert files.get_file_from_path("about/index.md").url == "about/"


def test_foreign_styles_scripts_prompts_and_copies_are_dropped():
    html = book.clean(NOTEBOOK)
    for gone in ("<style", "<script", "clipboard", "Prompt", "Collapser", "<!--", "cell-id", "style="):
        assert gone not in html
    assert html.count("x = 1") == 1
    assert '<tr align="right">' in html
    assert '<details class="kv-code">' in html
    assert '<a class="headerlink" href="#t"' in html


def test_links_of_chapters_lead_to_pages_and_dead_ones_are_named(tmp_path):
    config, files = site(tmp_path, "chapters/01-a.py", "chapters/02-b.py", "models/index.md")
    book.place(files, config)
    here = files.get_file_from_path("chapters/01-a.py")
    html = '<a href="02-b.py#x">b</a><a href="../models/index.md?q=1">m</a><a href="https://x.org/">o</a><a href="#t">t</a>'
    resolved, dead = book.resolve_links(html, here, files)
    assert not dead
    assert 'href="../b/#x"' in resolved
    assert 'href="../../models/?q=1"' in resolved
    assert 'href="https://x.org/"' in resolved
    _, dead = book.resolve_links('<a href="03-none.py">n</a>', here, files)
    assert "03-none.py" in str(dead[0])


def test_reading_time_counts_words_and_not_code():
    assert book.minutes("<p>" + "word " * 1000 + "</p><pre>" + "code " * 5000 + "</pre>") == 5
    assert book.minutes("<p>short</p>") == 1


def test_a_chapter_says_how_long_it_takes_and_what_comes_next():
    html = book.frame("<h1>T</h1><p>x</p>", None, {"title": "B & C", "url": "../b/"})
    assert html.startswith('<h1>T</h1><p class="kv-kicker">1-minute read.')
    assert "B &amp; C" in html
    assert "Before" not in html


def test_newer_mkdocs_jupyter_is_told_to_leave_other_pages_alone():
    for options, expected in (
        ({"cache": True}, {"cache": True}),
        ({"mathjax_version": 4}, {"mathjax_version": 2}),
    ):
        jupyter = SimpleNamespace(config=dict(options))
        book.no_foreign_scripts(SimpleNamespace(plugins={"mkdocs-jupyter": jupyter}))
        assert jupyter.config == expected
    book.no_foreign_scripts(SimpleNamespace(plugins={}))
