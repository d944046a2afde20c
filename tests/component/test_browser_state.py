"""States of the pages: what the scripts answer from published profiles is what the package answers."""

from __future__ import annotations

import json
import random

import pytest
from fuzzing import examples
from page_states import GPUS, MODELS, RUN, compare_addresses, compare_states, published, run

from kvreport import estimate
from kvreport.errors import InputError
from kvreport.publish import engine_profiles, profiles
from kvreport.publish.page_data import gather
from kvreport.query import options, url_keys


def test_pages_answer_as_the_package_does():
    states = examples(240)
    assert compare_states(random.Random(18), states) > states // 3  # noqa: S311 - examples, no secrets


def test_addresses_are_read_as_states_or_ignored():
    addresses = examples(500)
    assert compare_addresses(random.Random(19), addresses) == addresses  # noqa: S311 - examples, no secrets


@pytest.mark.parametrize("engine", profiles.ENGINES)
def test_other_engines_answer_as_the_package_does(engine):
    shared, facts, catalog = published()
    site = engine_profiles.under(gather(catalog, models=MODELS, gpus=GPUS, version="test"), engine)
    here = json.loads(profiles.encode(profiles.site_facts(site)))
    here["engine"]["default"] = shared["engine"]["name"]
    usual = {gpu.id for gpu in site.gpus}
    models = {}
    for model in site.models:
        rates = profiles.reserve_rates(site, model, further=False)
        own = profiles.engine_facts(site, model, reserves=() if rates["rates"] else usual)
        models[model.id] = facts[model.id] | json.loads(profiles.encode(own | rates))
    draw = random.Random(7)  # noqa: S311 - examples, no secrets
    rows = [
        (model, gpu["id"], {"tp": size, "engine": engine, "context": draw.choice([4096, 32_768])})
        for model in models
        for gpu in here["gpus"]
        for size in (1, 8)
    ]
    fields = {key: name for name, key in url_keys().items()}
    compared = 0
    for (model, gpu, state), got in zip(
        rows, run(RUN, {"site": here, "models": models, "rows": rows}), strict=True
    ):
        try:
            named = {fields[key]: value for key, value in state.items()}
            want = estimate(model, gpu=gpu, catalog=catalog, **named).to_dict()
        except InputError:
            assert got is None, (model, gpu, state)
            continue
        if got is None:
            continue
        told = {**want, **want["budget"]}
        compared += 1
        same = {"max_concurrent_requests", "verdict", "max_context_tokens", "kv_pool_bytes", "weights"}
        differing = {name: (told[name], got[name]) for name in same if told[name] != got[name]}
        assert not differing, (model, gpu, state, differing)
    assert compared > len(rows) // (8 if engine == "sglang" else 4)


def test_an_engine_s_file_says_for_which_accelerators_it_has_numbers():
    _, facts, catalog = published()
    site = engine_profiles.under(
        gather(catalog, models="meta-llama/Llama-3.1-8B-Instruct", gpus=GPUS, version="test"),
        "sglang",
    )
    model = site.models[0]
    few = json.loads(profiles.encode(profiles.engine_facts(site, model, reserves={"h100-sxm-80gb"})))
    rates = json.loads(profiles.encode(profiles.reserve_rates(site, model, further=False)))
    asks = """
const { gpus, models } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(models.map((model) =>
  gpus.filter((gpu) => kvCapacity.isPublished(model, gpu)).map((gpu) => gpu.id))));
"""
    gpus = json.loads(profiles.encode(profiles.site_facts(site)))["gpus"]
    some, every = run(asks, {"gpus": gpus, "models": [few | rates, facts[model.id]]})
    assert "h100-sxm-80gb" in some
    assert "dgx-spark-gb10" not in some
    assert every == [gpu["id"] for gpu in gpus]


def test_keys_of_addresses_differ():
    keys = list(url_keys().values())
    assert len(keys) == len(set(keys))
    assert {"context_tokens", "tensor_parallel", "engine", "utilization"} <= {
        o.name for o in options() if o.url
    }
