"""The site's pages from a few models, before any site engine has seen them."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from bs4 import BeautifulSoup

from kvreport.errors import InputError
from kvreport.publish.browser import ADDRESS
from kvreport.site import build as site_build
from kvreport.site.build import PAGE_TYPES, VEGA, Report, build
from kvreport.site.kit.links import check

MODELS = "meta-llama/Llama-3.1-8B-Instruct,deepseek-ai/DeepSeek-V3,Qwen/Qwen3.6-27B"
GPUS = "h100-sxm-80gb,b200-sxm-180gb,m3-ultra-512gb,rtx-4090"
WRITTEN = ("learn/", "questions/", "about/method/", "about/errors/", "about/fit/")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Report:
    cache = tmp_path_factory.mktemp("cache")
    return build(
        models=MODELS, gpus=GPUS, cache=cache, dataset=False, written=WRITTEN, site_url="https://example.org/"
    )


def test_every_page_type_makes_its_pages(report):
    kinds = Counter(page.kind for page in report.pages)
    assert kinds["home"] == 1
    assert kinds["model"] == 3
    assert kinds["gpu"] >= 3
    assert kinds["index"] == 3  # models, GPUs, machines at home
    uris = [page.uri for page in report.pages]
    assert len(set(uris)) == len(uris)
    assert uris[0] == ""
    for page_type in PAGE_TYPES:
        assert page_type.name


def test_every_page_says_something_and_nothing_is_left_unfilled(report):
    for page in report.pages:
        assert page.title, page.uri
        assert page.description, page.uri
        if page.kind == "redirect":
            continue
        html = page.lead + "".join(section.html for section in page.sections)
        assert "{{" not in BeautifulSoup(html, "html.parser").get_text(), page.uri
        anchors = [section.id for section in page.sections]
        assert len(set(anchors)) == len(anchors), page.uri


def test_links_between_generated_pages_lead_somewhere(report):
    known = {page.uri for page in report.pages} | {name for name, _ in report.assets} | set(report.file_names)
    written = re.compile(r"(learn|questions|about|chapters|adr|downloads)/")
    for page in report.pages:
        html = page.lead + "".join(section.html for section in page.sections)
        faults = [fault for fault in check(page.uri, html, known) if not written.search(fault)]
        assert not faults, faults


def test_a_page_s_own_machine_readable_file_is_among_the_files(report):
    names = set(report.file_names)
    assert "downloads/v1/models/deepseek-ai--DeepSeek-V3.json" in names
    assert "evidence/validation.json" in names
    assert VEGA in names
    assets = dict(report.assets)
    assert b"roundHalfEven" in assets[ADDRESS]
    assert b"/*" not in assets[ADDRESS]  # comments are not sent to readers
    assert assets["assets/cards/deepseek-ai--DeepSeek-V3.jpg"].startswith(b"\xff\xd8")


def test_a_second_build_of_the_same_state_draws_and_writes_nothing(report, monkeypatch):
    monkeypatch.setattr(site_build, "facts_alone", None)  # calling it would fail
    said = []
    again = build(
        models=MODELS,
        gpus=GPUS,
        cache=report.cache,
        dataset=False,
        written=WRITTEN,
        site_url="https://example.org/",
        progress=said.append,
    )
    assert again.pages == report.pages
    assert any("nothing has changed" in line for line in said)


def test_a_pattern_that_matches_nothing_is_refused(tmp_path):
    with pytest.raises(InputError, match="nothing-like-this"):
        build(models="nothing-like-this", cache=tmp_path, dataset=False)
