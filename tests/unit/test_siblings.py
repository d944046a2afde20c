"""The row under the tabs: what else stands behind the door of a page without a sidebar."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import yaml
from bs4 import BeautifulSoup
from jinja2 import DictLoader, Environment

ROOT = Path(__file__).parents[2]
BASE = "{% block tabs %}tabs{% endblock %}"


def row(url: str, *, hide: tuple[str, ...] = ("navigation",)) -> list[tuple[str, str | None]]:
    environment = Environment(
        loader=DictLoader(
            {"base.html": BASE, "main.html": (ROOT / "templates/theme/main.html").read_text(encoding="utf-8")}
        ),
        autoescape=True,
    )
    environment.filters["url"] = lambda address: address

    def door(title: str, *urls: str) -> SimpleNamespace:
        pages = [SimpleNamespace(url=one, title=one, active=one == url) for one in urls]
        return SimpleNamespace(title=title, children=pages)

    nav = SimpleNamespace(
        items=[
            SimpleNamespace(title="Home", children=None),
            door("Models", "models/", "compare/"),
            door("Evidence", "evidence/", "evidence/claims/"),
            door("Learn", "learn/", *(f"learn/{n}/" for n in range(14))),
        ]
    )
    page = SimpleNamespace(url=url, meta={"hide": list(hide)})
    made = environment.get_template("main.html").render(nav=nav, page=page)
    links = BeautifulSoup(made, "html.parser").select("nav.kv-siblings a")
    return [(str(one["href"]), one.get("aria-current")) for one in links]


def test_a_page_without_a_sidebar_shows_its_siblings():
    assert row("compare/") == [("models/", None), ("compare/", "page")]
    assert row("evidence/claims/") == [("evidence/", None), ("evidence/claims/", "page")]


def test_a_page_that_the_navigation_does_not_list_stands_behind_the_door_of_its_folder():
    assert row("models/a--b/") == [("models/", "true"), ("compare/", None)]


def test_a_page_with_a_sidebar_and_a_long_section_show_none():
    assert row("compare/", hide=()) == []
    assert row("learn/3/") == []
    assert row("") == []


def test_people_come_with_one_of_six_things():
    """Tabs beyond Home and About: a model, a machine, a deployment, a question, data, evidence."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("\nnav:\n") :])["nav"]
    assert len(nav) <= 8
