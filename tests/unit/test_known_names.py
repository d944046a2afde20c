"""Models that are known by name: each of the list is answered with its reason, and never with a number of requests."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copy, copytree

import pytest
from bs4 import BeautifulSoup

from kvreport.catalog.known_names import (
    KnownAccelerator,
    KnownByNameError,
    KnownName,
    KnownNames,
    without_cache,
)
from kvreport.catalog.load import load_catalog, open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.opening import refuse_known
from kvreport.resources import data_dir
from kvreport.site.pages.data import of_catalog

CATALOG = open_catalog(data_dir())


def _names() -> KnownNames:
    found = open_catalog().known_names
    assert found is not None
    return found


NAMES = _names()
WITHOUT = next(one for one in NAMES.models if one.kind == "no_cache")


def test_every_model_of_the_list_is_refused_with_its_reason() -> None:
    for model in NAMES.models:
        for name in (model.id, model.id.upper()):
            with pytest.raises(KnownByNameError) as caught:
                refuse_known((name,), CATALOG)
            assert caught.value.model.id == model.id
            assert ("keeps no KV cache" if model.kind == "no_cache" else "tried: ") in str(caught.value)


@pytest.mark.parametrize("form", ["https://hf.co/{id}", "/models/{id}", "{tail}", "someone/{tail}-AWQ"])
def test_a_model_of_the_list_is_found_in_other_spellings(form: str) -> None:
    with pytest.raises(KnownByNameError) as caught:
        estimate(form.format(id=WITHOUT.id, tail=WITHOUT.id.rpartition("/")[2]), gpu="h100", catalog=CATALOG)
    assert caught.value.model.id == WITHOUT.id


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nomic-embed-text", "nomic-ai/nomic-embed-text-v1.5"),
        ("nomic-embed-text:latest", "nomic-ai/nomic-embed-text-v1.5"),
        ("ollama/mxbai-embed-large:335m", "mixedbread-ai/mxbai-embed-large-v1"),
        ("all-minilm:33m", "sentence-transformers/all-MiniLM-L12-v2"),
        ("llava:7b", "llava-hf/llava-v1.6-mistral-7b-hf"),
        ("minicpm-v", "openbmb/MiniCPM-V-2_6"),
    ],
)
def test_names_of_ollama_s_library_are_told_what_they_mean(name: str, meant: str) -> None:
    with pytest.raises(KnownByNameError) as caught:
        estimate(name, gpu="h100", catalog=CATALOG)
    assert caught.value.model.id == meant


def test_a_tag_of_another_size_is_another_model() -> None:
    with pytest.raises(InputError) as caught:
        estimate("snowflake-arctic-embed:22m", gpu="h100", catalog=CATALOG)
    assert not isinstance(caught.value, KnownByNameError)


@pytest.mark.parametrize(
    "model", [one for one in NAMES.models if one.kind == "no_cache"], ids=lambda one: one.id
)
def test_a_model_without_a_cache_has_weights_and_no_number_of_requests(
    model: KnownName, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", model.id, "--gpu", "h100", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "no_kv_cache"
    assert told["max_concurrent_requests"] is None
    expected = None if model.billions is None else pytest.approx(model.billions * 2e9)
    assert told["weight_bytes"] == expected
    assert main(["estimate", model.id, "--gpu", "h100"]) == 0
    assert "not calculated: " in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--require", "8"), ("--as", "compose"), ("--ask-engine", "python3")])
def test_what_needs_a_number_of_requests_is_refused_without_a_cache(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", WITHOUT.id, "--gpu", "h100", *words]) == 2
    assert f"{words[0][2:]}: found for a model whose requests are not counted" in capsys.readouterr().err


def test_a_model_of_unknown_dimensions_is_an_error_that_says_what_was_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unread = next(one for one in NAMES.models if one.kind == "unread")
    assert main(["estimate", unread.id, "--gpu", "h100"]) == 2
    said = capsys.readouterr().err
    assert all(place in said for place in NAMES.searched)
    assert "config.json" in said.rpartition("allowed: ")[2]


def test_a_model_in_stages_has_weights_and_no_number_of_requests(capsys: pytest.CaptureFixture[str]) -> None:
    staged = next(one for one in NAMES.models if one.kind == "stages" and one.billions)
    assert main(["estimate", staged.id, "--gpu", "h100", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["max_concurrent_requests"]) == ("cache_not_calculated", None)
    assert told["weight_bytes"] > 0
    assert "first stage" in told["not_calculated"][0]
    assert main(["estimate", staged.id, "--gpu", "h100"]) == 0
    assert "in stages, and the KV cache of the first is not calculated" in capsys.readouterr().out


def test_bytes_need_a_published_count_and_a_known_width() -> None:
    for update in ({"billions": None}, {"format": "int2/4/8"}):
        known = KnownByNameError(WITHOUT.model_copy(update=update), NAMES)
        assert without_cache(known)["weight_bytes"] is None


def test_a_listed_model_with_a_record_or_an_unknown_source_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "known_names.yaml"
    for name in (
        "formats.yaml",
        "grid.yaml",
        "engines",
        "accelerators/h100-sxm-80gb.yaml",
        "models/Qwen--Qwen3-32B.yaml",
    ):
        given = data_dir() / name
        (tmp_path / name).parent.mkdir(exist_ok=True)
        copytree(given, tmp_path / name) if given.is_dir() else copy(given, tmp_path / name)
    copy(data_dir() / "known_names.yaml", path)
    path.write_text(
        path.read_text(encoding="utf-8")
        + "  - {id: Qwen/Qwen3-32B, kind: unread, source: nobody, path: a.yaml}\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError) as caught:
        load_catalog(tmp_path)
    assert "Qwen/Qwen3-32B: found a model that has a record" in str(caught.value)
    assert "found source nobody" in str(caught.value)


def test_the_data_page_lists_them_and_says_how_old_the_facts_are() -> None:
    """The page has days alone; how long ago they are is the reader's browser's to count."""
    shown = {section.id: BeautifulSoup(section.html, "html.parser") for section in of_catalog(CATALOG)}
    listed = [row.th.get_text(strip=True) for row in shown["known"].select("tbody tr") if row.th]
    assert sorted(listed) == sorted(one.id for one in NAMES.models)
    cards = [row.th.get_text(strip=True) for row in shown["known-accelerators"].select("tbody tr") if row.th]
    assert cards == [one.name for one in NAMES.accelerators]
    ages = shown["age"].select("time[data-kv-age]")
    assert len(ages) > 20
    assert all(one["datetime"] == one.get_text() and str(one["datetime"]).startswith("20") for one in ages)


@pytest.mark.parametrize("one", NAMES.accelerators, ids=lambda one: one.name)
def test_an_accelerator_of_the_list_has_no_record(one: KnownAccelerator) -> None:
    maker, _, card = one.name.partition(" ")
    for name in (one.name, card):
        with pytest.raises(InputError):
            CATALOG.accelerator(name)
    assert maker


def test_each_release_that_was_read_is_of_a_named_engine() -> None:
    age = next(section for section in of_catalog(CATALOG) if section.id == "age")
    rows = BeautifulSoup(age.html, "html.parser").table.select("tbody th")
    engines = [row.text.removesuffix(", release whose source we read") for row in rows if "read" in row.text]
    assert {"vLLM", "SGLang", "TensorRT-LLM", "transformers"} <= set(engines)
    assert len(engines) == len(set(engines))
