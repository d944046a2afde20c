"""The page for addresses that do not exist."""

from __future__ import annotations

from kvreport.adapters import not_found_page

THEME = "<main><h1>404 - Not found</h1></main>"


def test_it_offers_the_pages_that_the_site_has_under_its_folder():
    html = not_found_page.page(THEME, "https://example.org/kvreport/", {"models/", "data/"})
    assert '<a href="/kvreport/models/">Models</a>' in html
    assert 'data-kv-lost><a href="/kvreport/">' in html
    assert "sizer/" not in html
    assert "404 - Not found" not in html


def test_the_empty_columns_of_the_theme_are_hidden():
    column = '<div class="md-sidebar" data-md-type="navigation" >'
    assert 'data-md-type="navigation" hidden>' in not_found_page.page(column + THEME, "/", set())
    assert not_found_page.page(column, "/", set()) == column


def test_a_site_at_the_root_has_links_from_the_root():
    assert '<a href="/data/">Data</a>' in not_found_page.page(THEME, "http://127.0.0.1:8000/", {"data/"})
    assert not_found_page.page("<main>another theme</main>", "/", set()) == "<main>another theme</main>"
