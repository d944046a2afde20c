"""The package's public names: a name that goes or changes its arguments is seen here first."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

import kvreport
from kvreport.publish.parts import Parts
from kvreport.resources import data_dir
from kvreport.site.page_type import Inputs
from kvreport.site.pages import api

ARGUMENTS = {
    "estimate": "model gpu catalog options",
    "load_catalog": "path",
    "read_config": "source assume_defaults fields",
    "replay": "trace model gpu replicas host_memory host_policy time_to_live_s speed closed_loop efficiency order_only "
    "curve hit_rate wait_s block_tokens rate limit catalog options",
}
"""Arguments of public functions. One may be added; one that goes keeps working for a release, with a warning."""

RECORDS = {"Estimate", "InputError", "TrafficAnswer"}


def test_every_public_name_is_there_and_none_has_gone():
    assert set(kvreport.__all__) >= {"__version__", *ARGUMENTS, *RECORDS}
    for name in kvreport.__all__:
        assert getattr(kvreport, name) is not None


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_arguments_of(name):
    known = list(inspect.signature(getattr(kvreport, name)).parameters)
    assert [one for one in known if one in ARGUMENTS[name].split()] == ARGUMENTS[name].split()


def page(folder):
    site = SimpleNamespace(catalog=SimpleNamespace(folder=folder), parts=Parts(None))
    return list(api.pages(Inputs(site, {})))


def test_the_reference_has_every_public_name_with_its_arguments():
    (made,) = page(data_dir())
    sections = {
        one.title.removeprefix("kvreport."): BeautifulSoup(one.html, "html.parser") for one in made.sections
    }
    assert set(sections) == {name for name in kvreport.__all__ if not name.startswith("__")}
    for name, arguments in ARGUMENTS.items():
        listed = [one.get_text().lstrip("*") for one in sections[name].select("dt > code:first-child")]
        assert [one for one in listed if one in arguments.split()] == arguments.split(), name
    assert "InputError" in sections["estimate"].get_text()
    assert "weight_bytes_per_gpu" in sections["Estimate"].get_text()
    html = "".join(one.html for one in made.sections)
    assert ":class:" not in html
    assert "``" not in html


def test_a_site_about_another_catalog_has_no_reference(tmp_path):
    assert page(tmp_path) == []
