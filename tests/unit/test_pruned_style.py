"""The theme's style sheets without what no page uses: what is dropped, and what must stay."""

from __future__ import annotations

import pytest

from kvreport.adapters.styles import Styles
from kvreport.publish.pruned_style import Usage, prune


def usage(html: str = "", script: str = "") -> Usage:
    made = Usage()
    made.page(html)
    made.script(script)
    return made


def pruned(css: str, html: str = "", script: str = "") -> str:
    return dict(prune([("theme.css", css)], usage(html, script)))["theme.css"]


@pytest.mark.parametrize(
    ("css", "left"),
    [
        (".a{x:1}.b{x:2}", ".a{x:1}"),
        (".a,.b,p{x:1}", ".a,p{x:1}"),
        (".a .b{x:1}", ""),
        ("p>.a:not(.b){x:1}", "p>.a:not(.b){x:1}"),
        ("@media print{.b{x:1}}@media screen{.a{x:1}.b{x:2}}", "@media screen{.a{x:1}}"),
        ('@charset "UTF-8";.a{content:"}.b{"}', '@charset "UTF-8";.a{content:"}.b{"}'),
        (
            "[data-md-color-primary=red]{x:1}[data-md-color-scheme=slate]{x:2}",
            "[data-md-color-scheme=slate]{x:2}",
        ),
        ("@font-face{font-family:X}", "@font-face{font-family:X}"),
        (":is(.a,.b) p{x:1}", ":is(.a,.b) p{x:1}"),
        (r".md\:a{x:1}", ""),
    ],
)
def test_rules_stay_that_something_matches(css: str, left: str) -> None:
    html = "<body data-md-color-scheme='slate'><p class='a other'>text</p>"
    assert pruned(css, html) == left


def test_a_script_s_words_may_become_classes() -> None:
    css = ".md-dialog--active{x:1}.md-fact--stars{x:2}.js{x:3}.note{x:4}.md-unused{x:5}"
    script = 'el.classList.add("js"); cls = on ? "md-dialog--active" : `md-fact--${kind}`; note = 1'
    assert pruned(css, script=script) == ".md-dialog--active{x:1}.md-fact--stars{x:2}.js{x:3}"


def test_properties_that_nothing_reads_and_animations_that_nothing_plays_go() -> None:
    icon = "url(\"data:image/svg+xml;charset=utf-8,<svg xmlns='http://www.w3.org/2000/svg'/>\")"
    css = (
        f":root{{--icon-a:{icon};--icon-b:{icon};color:red}}.a{{mask:var(--icon-a);animation:turn 1s}}"
        "@keyframes turn{to{x:1}}@keyframes rest{to{x:2}}"
    )
    assert pruned(css, "<p class=a>") == (
        f":root{{--icon-a:{icon};color:red}}.a{{mask:var(--icon-a);animation:turn 1s}}@keyframes turn{{to{{x:1}}}}"
    )


def test_a_page_without_the_book_s_classes_has_not_the_book_s_styles() -> None:
    link = '<link rel="stylesheet" href="../assets/book.css">'
    computed = f'{link}<p>About <span class="kv-q">128 KiB</span></p>'
    assert Styles().applied(computed) == computed
    assert Styles().applied(f'{link}<p class="kv-lead">A page</p>') == '<p class="kv-lead">A page</p>'


def test_the_explorer_alone_has_its_styles() -> None:
    links = [f'<link rel="stylesheet" href="../assets/{name}.css">' for name in ("book", "dataset")]
    explorer, page = '<div class="kv-explore"></div>', '<p class="kv-lead">A page</p>'
    assert Styles().applied("".join(links) + explorer) == links[1] + explorer
    assert Styles().applied("".join(links) + page) == page


def test_classes_of_a_feature_that_no_page_asks_for_go() -> None:
    css = ".md-version__list{x:1}.md-search__form{x:2}"
    script = 'h("ul", "md-version__list"); h("form", "md-search__form")'
    assert pruned(css, script=script) == ".md-search__form{x:2}"
    assert pruned(css, '<div class="md-version">', script) == css


def test_a_table_of_sizes_does_not_bring_the_explorer_s_styles() -> None:
    link, cell = '<link rel="stylesheet" href="../assets/dataset.css">', '<td class="kv-num kv-size">1.5</td>'
    assert Styles().applied(link + cell) == cell
