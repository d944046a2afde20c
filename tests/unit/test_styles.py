"""Which pages load the style sheets that few pages need."""

from __future__ import annotations

from kvreport.adapters.styles import Styles


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


def test_a_table_of_sizes_does_not_bring_the_explorer_s_styles() -> None:
    link, cell = '<link rel="stylesheet" href="../assets/dataset.css">', '<td class="kv-num kv-size">1.5</td>'
    assert Styles().applied(link + cell) == cell
