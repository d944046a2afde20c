"""States of the pages, drawn by chance: what the scripts read and answer, and what the package answers."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

import javascript

from kvreport import estimate, resources
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.publish import device_columns, profiles
from kvreport.publish.browser import script
from kvreport.publish.page_data import gather
from kvreport.query import url_keys
from kvreport.units import parse_tokens

Row = tuple[str, str, dict[str, Any]]
"""A model, an accelerator and a state."""
MODELS: Final = "meta-llama/Llama-3.1-8B*,deepseek-ai/DeepSeek-V3.2,openai/gpt-oss-*,Qwen/Qwen3.6-27B,google/gemma-3-27b*,Skywork/Skywork-Reward*"
GPUS: Final = "h100-sxm*,b200*,mi300x,rtx-4090,dgx-spark*,a100-sxm4-80gb,l4,a16"
RUN: Final = """
const { site, models, rows } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(rows.map(([id, gpuId, state]) => {
  const model = models[id], gpu = kvCapacity.gpuOf(site, gpuId);
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
    return javascript.run(script() + own + script_text, given)


@cache
def published() -> tuple[Any, dict[str, Any], Any]:
    """The files of some models, as a browser reads them."""
    catalog = open_catalog()
    site = gather(catalog, models=MODELS, gpus=GPUS, version="test")
    shared = json.loads(profiles.encode(profiles.site_facts(site)))
    facts = {
        model.id: json.loads(
            profiles.encode(
                profiles.model_facts(site, model, further=True) | device_columns.reserve_rates(site, model)
            )
        )
        for model in site.models
    }
    return shared, facts, catalog


def states(draw: random.Random, count: int, shared: Any, facts: dict[str, Any]) -> list[Row]:
    """States drawn by chance: every field is set in some of them."""
    found = []
    for _ in range(count):
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


def compare_states(draw: random.Random, count: int) -> int:
    """Hold what pages answer for so many states against the package; return how many had an answer."""
    shared, facts, _ = published()
    return len(compare_rows(states(draw, count, shared, facts), shared, facts))


def compare_rows(
    rows: Sequence[Row],
    site: Any,
    models: dict[str, Any],
    names: Collection[str] = (),
) -> list[tuple[Row, dict[str, Any]]]:
    """Hold what pages answer for states of models and accelerators against the package.

    Args:
        rows: What is asked.
        site: The facts that pages share.
        models: Those of each model.
        names: The figures to compare; where left out, all that both have.

    Returns:
        The rows that had an answer, each with it.
    """
    catalog, fields = open_catalog(), {key: name for name, key in url_keys().items()}
    compared = []
    found = run(RUN, {"site": site, "models": models, "rows": rows})
    for (model, gpu, state), got in zip(rows, found, strict=True):
        assert got != "address", state
        try:
            named = {fields[key]: value for key, value in state.items()}
            want = estimate(model, gpu=gpu, catalog=catalog, **named).to_dict()
        except InputError:
            assert got is None, (model, gpu, state)
            continue
        if got is None:
            continue
        told = {**want, **want["budget"]}
        differing = {
            name: (told[name], got[name])
            for name in names or told.keys() & got.keys()
            if told[name] != got[name]
        }
        assert not differing, (model, gpu, state, differing)
        compared.append(((model, gpu, state), got))
    return compared


ADDRESSES: Final = """
const { site, addresses } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = "model models gpu gpus tp pp dp ep dcp nodes weights kv engine context requests share batched seqs eager"
  .split(" ");
console.log(JSON.stringify(addresses.map((address) => {
  const { state, ignored } = kvState.read(site, names, [], address);
  const again = kvState.read(site, names, [], kvState.search(state));
  return { state, ignored, again: again.state, tokens: kvState.tokensOf(new URLSearchParams(address).get("context") ?? "") };
})));
"""


def compare_addresses(draw: random.Random, count: int) -> int:
    """Hold what pages read of so many addresses: known names, numbers in bounds, the same when written and read again."""
    shared, _, _ = published()
    names = {kind: {one["name"] for one in shared[kind]} for kind in ("weight_formats", "kv_formats")}
    engines = {one["name"] for one in shared["engines"]} | {shared["engine"]["name"]}
    gpus, slugs = {one["id"] for one in shared["gpus"]}, {one[0] for one in shared["models"]}
    words = [*sorted(gpus)[:4], *sorted(slugs)[:4], *sorted(engines), "fp8", "int4", "bf16", "fewest", *ODD]
    addresses = []
    for _ in range(count):
        pairs = [
            (
                draw.choice(
                    (*url_keys().values(), "models", "gpus", "h", "unit", "x", "__proto__", "constructor")
                ),
                draw.choice(words),
            )
            for _ in range(draw.randrange(1, 7))
        ]
        raw = draw.random() < 0.3
        addresses.append(
            "?" + ("&".join(f"{k}={v}" for k, v in pairs) if raw else urlencode(pairs, errors="replace"))
        )
    for address, got in zip(addresses, run(ADDRESSES, {"site": shared, "addresses": addresses}), strict=True):
        state = got["state"]
        assert got["again"] == state, (address, got)
        assert all(
            one in gpus for one in [*state.get("gpus", []), *([state["gpu"]] if "gpu" in state else [])]
        )
        assert all(
            one in slugs
            for one in [*state.get("models", []), *([state["model"]] if "model" in state else [])]
        )
        assert state.get("weights") in {None, *names["weight_formats"]}, address
        assert state.get("kv") in {None, *names["kv_formats"]}, address
        assert state.get("engine") in {None, *engines}, address
        assert 0 < state.get("share", 1) <= 1, address
        for name in ("tp", "pp", "dp", "dcp", "nodes", "requests", "batched", "seqs", "context"):
            value = state.get(name, 1)
            assert value == "fewest" or (type(value) is int and 1 <= value < 10**10), (address, name, value)
        if "context" in state:
            assert state["context"] <= 1 << 30
            if got.get("tokens") == state["context"]:
                text = parse_qs(address[1:]).get("context", [""])[0]
                assert parse_tokens(text) == state["context"], address
    return count


ODD: Final = (
    "0", "1", "-1", "8", "00", "1e3", "32K", "1.5M", "0.5K", "8,192", "1,0", " 4K ", "90%", "0.9", "100.5%", "1.0001", "-0.5", ".5", "NaN",
    "Infinity", "1e999", "99999999999999999999", "2147483647", "true", "on", "null", "undefined", "[object Object]", "<script>alert(1)</script>",
    "javascript:alert(1)", "%", "%zz", "%00", "\u202e", "\u2028", "🦙", "مرحبا", "a" * 3000, "'\"`", "*8", "h100-sxm-80gb*8",
    "h100-sxm-80gb*0", "h100-sxm-80gb*99999999999", "meta-llama/Llama-3.1-8B-Instruct", "vllm@0.11.0", "vllm@", "@", "sglang@x", "CEILING", "released",
)  # fmt: skip
