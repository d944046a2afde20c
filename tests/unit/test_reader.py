"""The case that a question's numbers are for."""

from __future__ import annotations

import json

import pytest

from kvreport import estimate
from kvreport.adapters import questions
from kvreport.book import prose, reader_case
from kvreport.book.quantities import Quantities
from kvreport.errors import InputError
from kvreport.publish import question_data

TEXT = "---\ndescription: a: b\nreader: {model: llama-3.1-8b, gpu: H100, gpus: 2, context: 32K}\n---\n# Q\n"


def test_a_page_names_its_case_in_front_matter(catalog):
    case = reader_case.of_text(TEXT, catalog)
    assert case.values["CONTEXT"] == 32768
    assert case.names["GPU"] == "2 × H100"
    assert case.names["WEIGHTS"] == "as released"
    assert json.loads(reader_case.start_json(case, "slug")) == {
        "model": "slug",
        "gpu": "h100-sxm-80gb",
        "tp": 2,
        "context": 32768,
        "requests": 1,
    }
    assert reader_case.of_text("# Q\nreader: {model: x}\n", catalog) is None


def test_an_unknown_field_is_refused(catalog):
    with pytest.raises(InputError, match="found users; allowed: context, counted, gpu"):
        reader_case.of_front_matter({"reader": {"model": "llama-3.1-8b", "gpu": "H100", "users": 2}}, catalog)


def test_a_page_says_what_its_field_of_requests_is_called(catalog):
    text = TEXT.replace("context: 32K", "requests: 20, counted: Agents")
    case, page = reader_case.of_text(text, catalog), "<h1>Q</h1><p>A.</p>{}"
    form = questions.with_case(page.format("REQUESTS"), "questions/q/", case, catalog)
    assert '<label for="kv-requests">Agents</label>' in form
    # What no expression follows has no field.
    assert "kv-requests" not in questions.with_case(page.format(""), "questions/q/", case, catalog)
    usual = reader_case.of_text(TEXT, catalog)
    assert "Concurrent requests</label>" in questions.with_case(page.format("REQUESTS"), "q/", usual, catalog)


def test_values_follow_the_case_and_carry_their_expression(catalog):
    about = Quantities(catalog).about(reader_case.of_text(TEXT, catalog))
    html, faults = prose.resolve(
        "{{ MODEL }}: {{ kv_request(MODEL, tokens=CONTEXT) as GiB.1 }}", about, "q.md"
    )
    assert not faults
    assert '<span data-kv-case="MODEL">Llama 3.1 8B</span>' in html
    assert "4.0\u00a0GiB" in html
    assert "data-kv-live=" in html
    assert "data-kv-live" not in prose.resolve("{{ 1 GiB = GiB }}", about, "q.md")[0]


def test_a_stated_figure_cannot_follow_a_case(catalog):
    about = Quantities(catalog).about(reader_case.of_text(TEXT, catalog))
    _, faults = prose.resolve("{{ 128 KiB = kv_per_token(MODEL) }}", about, "q.md")
    assert "the same for every reader" in str(faults[0])


def test_one_thing_is_singular(catalog):
    quantities = Quantities(catalog)
    assert prose.state("2 / 2 as requests", quantities) == "1\u00a0request"
    assert prose.state("2 as requests", quantities) == "2\u00a0requests"
    assert prose.state("2 / 2 as GiB.1", quantities).endswith("GiB")


def test_a_slot_of_llama_cpp_fits_what_the_estimate_says(catalog):
    quantities = Quantities(catalog)
    usual = quantities.slot_context("qwen3-32b", "rtx-4090")
    exact = quantities.longest("qwen3-32b", "rtx-4090", engine="llama-cpp", weights="q4_k_m", parallel=1)
    assert usual <= exact < 2 * usual
    moved = quantities.slot_experts("gpt-oss-120b", "rtx-4090", tokens=8192)
    assert 0 < moved < quantities.layers("gpt-oss-120b")
    assert quantities.slot_experts("gpt-oss-20b", "rtx-4090", tokens=8192) == 0


def test_the_published_mix_is_the_one_of_the_words():
    from kvreport.book import quantities

    assert quantities._MIX == question_data.MIX


def test_a_page_states_the_layers_that_ollama_puts_on_the_gpu(catalog):
    """The page on offloading gave the bytes, and not the number that ollama and llama.cpp print."""
    said = prose.state(
        'layers_on_gpu("qwen3-32b", "rtx-4090", tokens=32 * K, engine="ollama") as layers',
        Quantities(catalog),
    )
    answer = estimate("qwen3-32b", gpu="rtx-4090", engine="ollama", context_tokens=32_768)
    assert said == f"{answer.to_dict()['layers_on_device']}\u00a0layers"
