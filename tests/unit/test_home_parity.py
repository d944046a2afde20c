"""One slot of llama.cpp at home: what a question page's script computes is what the vocabulary and an estimate say."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from page_states import run

from kvreport import estimate, resources
from kvreport.book.quantities import Quantities
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.estimation.at_home import at_home
from kvreport.publish import browser, profiles, question_data
from kvreport.publish.page_data import gather

MODELS: Final = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3.6-27B",
    "openai/gpt-oss-20b",
    "openai/gpt-oss-120b",
    "meta-llama/Llama-3.1-70B-Instruct",
)
"""Full attention, windows, states and mixtures, from what a card of 12 GB holds to more than most Macs."""
MACHINES: Final = "m3-max-128,m4-max-128,m5-32,m2-ultra-192,dgx-spark*,jetson-*,ryzen-ai-max*,mi300a,rtx-3060-12gb,rtx-4090,rtx-5090,l4"
"""Machines of one memory, and cards beside a computer."""
TOKENS: Final = (4096, 32_768, 131_072)
RUN: Final = """
const { site, machines, models, rows } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(rows.map(([slug, gpu, word, tokens]) => {
  const words = kvreport.questions.vocabulary({ site, machines, ...models[slug], engines: new Map() }, gpu);
  const [name, cache] = word.split(" ");
  try { return words[name]({ tokens, cache }); } catch (error) { return { none: error.message }; }
})));
"""


@pytest.fixture(scope="module")
def published(catalog: Catalog) -> tuple[Any, Any, dict[str, Any]]:
    """The files that the script reads: the site, the machines, and each model with its own."""
    site = gather(catalog, models=",".join(MODELS), gpus=MACHINES, version="test")
    found = {address: json.loads(content) for address, content in question_data.files(site)}
    shared = json.loads(profiles.encode(profiles.site_facts(site)))
    models = {
        model.id: {
            "model": json.loads(profiles.encode(profiles.model_facts(site, model, further=True))),
            "extra": found[f"{profiles.FOLDER}/questions/{model.slug}.json"],
        }
        for model in site.models
    }
    return shared, found[f"{profiles.FOLDER}/questions.json"], models


def test_the_script_says_of_every_machine_what_the_vocabulary_says(
    catalog: Catalog, published: tuple[Any, Any, dict[str, Any]]
) -> None:
    site, machines, models = published
    gpus = [gpu["id"] for gpu in site["gpus"]]
    rows = [
        (model, gpu, word, tokens)
        for model in models
        for gpu in gpus
        for word, lengths in (
            ("slot_context", (0,)),
            ("slot_context q8_0", (0,)),
            ("slot_free", TOKENS),
            ("slot_free q8_0", TOKENS),
            ("slot_weights", (0,)),
            ("slot_memory", TOKENS),
            ("slot_experts", TOKENS),
        )
        for tokens in lengths
    ]
    script = (
        browser.lessons_script()
        + "globalThis.kvreport = { $: () => null, $$: () => [] };\n"
        + (resources.assets_dir() / "kv-question.js").read_text(encoding="utf-8")
        + RUN
    )
    got = run(script, {"site": site, "machines": machines, "models": models, "rows": rows})
    quantities = Quantities(catalog)
    ask: dict[str, Any] = {
        "slot_context": lambda model, gpu, _: quantities.slot_context(model, gpu),
        "slot_context q8_0": lambda model, gpu, _: quantities.slot_context(model, gpu, cache="q8_0"),
        "slot_free": lambda model, gpu, tokens: quantities.slot_free(model, gpu, tokens=tokens),
        "slot_free q8_0": lambda model, gpu, tokens: quantities.slot_free(
            model, gpu, tokens=tokens, cache="q8_0"
        ),
        "slot_weights": lambda model, _gpu, _tokens: quantities.slot_weights(model),
        "slot_memory": lambda model, _gpu, tokens: quantities.slot_memory(model, tokens=tokens),
        "slot_experts": lambda model, gpu, tokens: quantities.slot_experts(model, gpu, tokens=tokens),
    }
    numbers = refusals = 0
    for (model, gpu, word, tokens), have in zip(rows, got, strict=True):
        try:
            want = ask[word](model, gpu, tokens)
        except InputError:
            assert isinstance(have, dict), (model, gpu, word, tokens, have)
            refusals += 1
            continue
        assert have == want, (model, gpu, word, tokens)
        numbers += 1
    assert numbers > 200
    assert refusals > 10
    # Where the processor has no memory that the device cannot use.
    shared = {gpu: catalog.accelerators[gpu].shared_bytes for gpu in gpus}
    assert {
        gpu
        for gpu, size in shared.items()
        if size is not None and size <= catalog.accelerators[gpu].usable_bytes
    } == set(machines["one_memory"])
    assert len(machines["one_memory"]) > 5
    assert {gpu for gpu in gpus if catalog.accelerators[gpu].vendor == "Apple"} == set(machines["metal"])


def test_the_context_that_a_slot_has_is_served_by_an_estimate_and_the_next_is_not(
    catalog: Catalog, published: tuple[Any, Any, dict[str, Any]]
) -> None:
    site, _, models = published
    quantities = Quantities(catalog)
    compared = 0
    for model in MODELS[1:5]:
        usual = models[model]["extra"]["home"]["contexts"]
        for gpu in [one["id"] for one in site["gpus"]][::3]:
            longest = quantities.slot_context(model, gpu)
            after = next((context for context in usual if context > longest), None)
            for context, serves in ((longest, True), (after, False)):
                if not context:
                    continue
                answer = estimate(
                    model, gpu=gpu, engine="llama-cpp", weights="q4_k_m", context_tokens=context, parallel=1
                )
                assert (answer.verdict in ("fits", "tight")) == serves, (model, gpu, context, answer.verdict)
                compared += 1
    assert compared > 15


@pytest.mark.parametrize("model", ["tiiuae/Falcon3-3B-Instruct", "openai/gpt-oss-20b", "Qwen/Qwen3.6-27B"])
@pytest.mark.parametrize("gpu", ["m4-max-128", "rtx-5090", "mi300x"])
@pytest.mark.parametrize("cache", ["f16", "q8_0"])
def test_caches_and_buffers_are_those_of_an_estimate(
    catalog: Catalog, model: str, gpu: str, cache: str
) -> None:
    """Metal's scratch was left out: half a gigabyte at 128K, and a model "fit" that an estimate does not serve."""
    laid, machine = at_home(catalog.model(model)), catalog.accelerator(gpu)
    assert laid is not None
    laid = laid if cache == "f16" else laid.quantized
    assert laid is not None
    for context in (8192, 32_768):
        answer = estimate(
            model,
            gpu=gpu,
            engine="llama-cpp",
            weights="q4_k_m",
            context_tokens=context,
            parallel=1,
            n_gpu_layers=999,
            cache_type_k=cache,
            cache_type_v=cache,
        ).to_dict()
        place = laid.contexts.index(context)
        ours = laid.beside_weights[place] + (laid.metal[place] if machine.vendor == "Apple" else 0)
        assert ours == answer["kv_cache_bytes"] + answer["budget"]["activations"], context


@pytest.mark.parametrize("model", ["Qwen/Qwen3-32B", "openai/gpt-oss-120b", "google/gemma-3-27b-it"])
def test_main_memory_without_a_gpu_is_that_of_an_estimate_with_no_layer_on_one(
    catalog: Catalog, model: str
) -> None:
    laid = at_home(catalog.model(model))
    assert laid is not None
    for context in (8192, 32_768):
        answer = estimate(
            model,
            gpu="rtx-4090",
            engine="llama-cpp",
            weights="q4_k_m",
            context_tokens=context,
            parallel=1,
            n_gpu_layers=0,
            no_kv_offload=True,
            no_op_offload=True,
            host_memory=1 << 40,
        ).to_dict()
        held = sum(answer["host_bytes"][part] for part in ("weights", "cache", "compute"))
        more = laid.in_main_memory("q4_k_m", context) - held
        assert 0 <= more < 0.1 * 2**30, (context, more)
