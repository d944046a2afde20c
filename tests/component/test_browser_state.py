"""States of the pages: what the scripts answer from published profiles is what the package answers."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from javascript import deno

from kvreport import estimate, resources
from kvreport.catalog.load import load_catalogue
from kvreport.errors import InputError
from kvreport.publish import engine_profiles, profiles
from kvreport.publish.browser import script
from kvreport.publish.page_data import gather
from kvreport.query import options, url_keys

MODELS: Final = (
    "meta-llama/Llama-3.1-8B*,deepseek-ai/DeepSeek-V3.2,openai/gpt-oss-*,Qwen/Qwen3.6-27B,google/gemma-3-27b*"
)
GPUS: Final = "h100-sxm*,b200*,mi300x,rtx-4090,dgx-spark*,a100-sxm4-80gb,l4"
STATES: Final = 240

RUN: Final = """
const { site, models, rows } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(rows.map(([id, gpuId, state]) => {
  const model = models[id], gpu = site.gpus.find((one) => one.id === gpuId);
  const back = kvState.read(site, Object.keys(state), [], kvState.search(state));
  const [found] = kvState.deployments(site, model, gpu, back.state);
  if (JSON.stringify(back.state) !== JSON.stringify(state) || back.ignored.length) return "address";
  if (!found) return null;
  const answer = kvCapacity.serve(found, state.context);
  const parts = kvCapacity.reserveParts(found);
  return {
    max_concurrent_requests: answer.users, verdict: answer.verdict, shortfall_bytes: answer.short,
    limited_by: answer.limitedBy, max_context_tokens: found.longest, uncertainty_bytes: found.uncertainty,
    kv_pool_bytes: found.pool, weights: found.resident,
    ...(parts && {activations: parts.activations, non_framework: parts.outside, graphs: parts.graphs}),
    command: answer.users && kvKernel.words.serving_verdicts.includes(answer.verdict)
      ? kvState.serveCommand(site, state, found, Math.max(Math.min(state.context, model.limit), 1)) : null,
    again: kvState.estimateCommand(site, model, gpu, state, found),
  };
})));
"""


def run(script_text: str, given: object) -> Any:
    """Run a script after the site's own, with JSON on its input; return the JSON that it prints."""
    own = "".join(
        (resources.assets_dir() / name).read_text(encoding="utf-8")
        for name in ("kv-capacity.js", "kv-state.js")
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.js")
        file.write_text(script() + own + script_text, encoding="utf-8")
        done = subprocess.run(
            [deno(), "run", "--quiet", "--no-config", "--no-check", file],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def published() -> tuple[Any, dict[str, Any], Any]:
    """The files of some models, as a browser reads them."""
    catalogue = load_catalogue()
    site = gather(catalogue, models=MODELS, gpus=GPUS, version="test")
    shared = json.loads(profiles.encode(profiles.site_facts(site)))
    facts = {
        model.id: json.loads(
            profiles.encode(
                profiles.model_facts(site, model, further=True) | profiles.reserve_rates(site, model)
            )
        )
        for model in site.models
    }
    return shared, facts, catalogue


def states(shared: Any, facts: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """States drawn by chance: every field is set in some of them."""
    draw = random.Random(18)  # noqa: S311 - examples, no secrets
    found = []
    for _ in range(STATES):
        layout = draw.choice(shared["layouts"])
        state: dict[str, Any] = {"tp": layout["tp"]}
        state |= {name: layout[name] for name in ("pp", "dp", "dcp") if layout[name] > 1}
        state |= {"ep": True} if layout["ep"] else {}
        for name, choices, share in (
            ("weights", ["fp8", "int4"], 0.3),
            ("kv", ["fp8"], 0.3),
            ("context", [1024, 8192, 20_000, 131_072, 300_000], 1),
            ("share", [0.5, 0.8, 0.95, 1], 0.5),
            ("batched", [512, 2048, 4096, 16_384], 0.5),
            ("seqs", [1, 16, 128, 2048], 0.5),
            ("eager", [True], 0.2),
        ):
            if draw.random() < share:
                state[name] = draw.choice(choices)
        model, gpu = draw.choice(sorted(facts)), draw.choice(shared["gpus"])["id"]
        if state.get("weights") and all(one is None for one in facts[model]["weights"][state["weights"]]):
            del state["weights"]
        found.append((model, gpu, state))
    return found


def test_pages_answer_as_the_package_does(published):
    shared, facts, catalogue = published
    fields = {key: name for name, key in url_keys().items()}
    rows = states(shared, facts)
    compared = 0
    for (model, gpu, state), got in zip(
        rows, run(RUN, {"site": shared, "models": facts, "rows": rows}), strict=True
    ):
        assert got != "address", state
        try:
            want = estimate(
                model, gpu=gpu, catalog=catalogue, **{fields[key]: value for key, value in state.items()}
            ).to_dict()
        except InputError:
            assert got is None, (model, gpu, state)
            continue
        if got is None:
            continue
        told = {**want, **want["budget"]}
        compared += 1
        differing = {
            name: (told[name], value) for name, value in got.items() if name in told and told[name] != value
        }
        assert not differing, (model, gpu, state, differing)
    assert compared > STATES // 3


@pytest.mark.parametrize("engine", profiles.ENGINES)
def test_other_engines_answer_as_the_package_does(published, engine):
    shared, facts, catalogue = published
    site = engine_profiles.under(gather(catalogue, models=MODELS, gpus=GPUS, version="test"), engine)
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
            want = estimate(model, gpu=gpu, catalog=catalogue, **named).to_dict()
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


def test_an_engine_s_file_says_for_which_accelerators_it_has_numbers(published):
    _, facts, _ = published
    site = engine_profiles.under(
        gather(load_catalogue(), models="meta-llama/Llama-3.1-8B-Instruct", gpus=GPUS, version="test"),
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
