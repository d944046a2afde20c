"""The package's public names: a name that goes or changes its arguments is seen here first."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

import kvreport
from kvreport.publish.kept_values import Parts
from kvreport.query import options
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
    assert set(kvreport.__all__) <= set(dir(kvreport))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kvreport.nothing  # noqa: B018


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
    for name, section in sections.items():
        if inspect.isfunction(getattr(kvreport, name)):
            assert ">>> " in section.get_text(), (
                f"{name} has no example (tests/unit/test_doctests.py runs them)"
            )
            assert section.find("strong", string="Returns") or name == "quantities", f"{name} returns what?"
    described = sections["estimate"].get_text()
    assert [one.name for one in options() if one.flags and one.name not in described] == []
    fields = {one.code.get_text(): one.get_text(" ") for one in sections["Estimate"].select("dt") if one.code}
    stated = {
        field: kind
        for base in kvreport.Estimate.__mro__
        for field, kind in inspect.get_annotations(base).items()
    }
    assert {"limited_by", "verdict"} <= set(fields) & set(stated)  # fields of the class below it
    for field in set(fields) & set(stated):
        assert fields[field].split() == [field, *stated[field].split()]
    for section in sections.values():  # one entry each, however many lines it has
        for returned in section.find_all("strong", string="Returns"):
            assert len(returned.find_next("dl").find_all("dd")) == 1
    html = "".join(one.html for one in made.sections)
    assert ":class:" not in html
    assert "``" not in html


def test_a_site_about_another_catalog_has_no_reference(tmp_path):
    assert page(tmp_path) == []


def test_answers_are_short_and_tables_in_a_notebook():
    sized = kvreport.size(
        "Qwen/Qwen3-32B", context="8K", concurrent=8, gpus=["h200-sxm-141gb", "h100-sxm-80gb"]
    )
    read = kvreport.read_log("INFO GPU KV cache size: 107,136 tokens")
    (home,) = kvreport.size_home("Qwen/Qwen3-8B", context="32K", gpus="rtx-3060-12gb")
    assert len(repr(home)) < 200
    assert home.command.startswith("llama-server ")
    for one in (sized, read):
        assert len(repr(one)) < 200
        assert BeautifulSoup(one._repr_html_(), "html.parser").p.get_text() == repr(one)
    frame = sized.to_frame(top=1)
    assert list(frame["devices"]) == [sized.to_dict()["deployments"][0]["devices"]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: kvreport.matrix(models=[5]), "models: found 5; allowed: a text"),
        (
            lambda: kvreport.size("qwen3-8b", context="8K", concurrent=1, tensor_parallel=[]),
            "tensor-parallel: found no size; allowed: sizes to try, such as 1 and 2, or None for the usual ones",
        ),
        (lambda: kvreport.matrix(gpus=5), "gpus: found 5; allowed: a text"),
        (lambda: kvreport.read_log(None), "text: found None; allowed: a text"),
        (lambda: kvreport.list_models(5), "pattern: found 5; allowed: a text"),
    ],
)
def test_what_is_no_text_is_refused_in_one_sentence(call, said):
    with pytest.raises(kvreport.InputError, match=said):
        call()


def test_several_patterns_may_be_a_list():
    asked = {"contexts": ["8K"], "tensor_parallel": [1], "weights": ["released"]}
    listed = kvreport.matrix(["Qwen/Qwen3-32B", "Qwen/Qwen3-8B"], ["h100-sxm-80gb"], **asked)
    assert listed.equals(kvreport.matrix("Qwen/Qwen3-32B,Qwen/Qwen3-8B", "h100-sxm-80gb", **asked))


def test_a_single_name_is_no_list_of_letters():
    asked = {"context": "8K", "concurrent": 1}
    one = kvreport.size(
        "Qwen/Qwen3-8B", **asked, gpus="h100-sxm-80gb", weights="fp8", kv="fp8", tensor_parallel=2
    )
    listed = kvreport.size(
        "Qwen/Qwen3-8B", **asked, gpus=["h100-sxm-80gb"], weights=["fp8"], kv=["fp8"], tensor_parallel=[2]
    )
    assert one.to_dict() == listed.to_dict()
    rows = kvreport.matrix(
        "Qwen/Qwen3-8B", "h100-sxm-80gb", contexts="8K", weights="fp8", kv="fp8", tensor_parallel=2
    )
    assert set(rows["weight_format"]) == {"fp8"}
    assert len(rows) == 1
    assert list(kvreport.boundary("Qwen/Qwen3-8B", gpu="h100-sxm-80gb", requests=4)["requests"]) == [4]
