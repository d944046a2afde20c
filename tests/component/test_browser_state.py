"""States of the pages: what the scripts answer from published profiles is what the package answers."""

from __future__ import annotations

import json
import random
import shlex

import pytest
from fuzzing import examples
from page_states import GPUS, MODELS, compare_addresses, compare_rows, compare_states, published, run

from kvreport.cli import main
from kvreport.publish import device_columns, engine_profiles, explorer_data, profiles
from kvreport.publish.page_data import gather
from kvreport.query import options, url_keys

FIGURES = ("max_concurrent_requests", "verdict", "max_context_tokens", "kv_pool_bytes", "weights")
"""Figures of an answer that pages have for every engine and machine."""


def test_pages_answer_as_the_package_does():
    states = examples(240)
    assert compare_states(random.Random(18), states) > states // 3  # noqa: S311 - examples, no secrets


def test_addresses_are_read_as_states_or_ignored():
    addresses = examples(500)
    assert compare_addresses(random.Random(19), addresses) == addresses  # noqa: S311 - examples, no secrets


@pytest.mark.parametrize("engine", profiles.ENGINES)
def test_other_engines_answer_as_the_package_does(engine):
    shared, facts, catalog = published()
    site = gather(catalog, models=MODELS, gpus=GPUS, version="test").under(engine)
    here = json.loads(profiles.encode(profiles.site_facts(site)))
    here["engine"]["default"] = shared["engine"]["name"]
    usual = {gpu.id for gpu in site.gpus}
    models = {}
    for model in site.models:
        own = engine_profiles.facts_of(site, model, usual)
        models[model.id] = facts[model.id] | json.loads(profiles.encode(own))
    draw = random.Random(7)  # noqa: S311 - examples, no secrets
    layouts = [{"tp": 1}, {"tp": 8}, {"tp": 1, "dp": 8, "ep": True}, {"tp": 8, "pp": 2}]
    rows = [
        (model, gpu["id"], {**layout, "engine": engine, "context": draw.choice([4096, 32_768])})
        for model in models
        for gpu in here["gpus"]
        for layout in layouts
    ]
    compared = compare_rows(rows, here, models, FIGURES)
    assert len(compared) > len(rows) // (16 if engine == "sglang" else 8)
    assert sum("pp" in state or "dp" in state for (_, _, state), _ in compared) > 4


def test_pages_find_the_longest_context_where_shorter_ones_keep_more():
    catalog, name = published()[2], "zai-org/GLM-5.2-FP8"
    site = gather(catalog, models=name, gpus="h200*,h100-sxm*", version="test")
    shared = json.loads(profiles.encode(profiles.site_facts(site)))
    own = profiles.model_facts(site, site.models[0], further=True) | device_columns.reserve_rates(
        site, site.models[0]
    )
    for layout, shares, steps in (
        ({"tp": 8}, (0.84, 0.85, 0.86), (1024, 2048, 4096)),
        ({"tp": 8, "pp": 2}, (0.44, 0.45, 0.46), (512, 768, 1024)),
    ):
        rows = [
            (name, "h200-sxm-141gb", {**layout, "context": context, "share": share, "batched": tokens})
            for share in shares
            for tokens in steps
            for context in (8192, 262_144, 262_145)
        ]
        compared = compare_rows(rows, shared, {name: json.loads(profiles.encode(own))})
        assert len(compared) == len(rows)
        longest = [found["max_context_tokens"] for _, found in compared]
        assert min(longest) < 262_144 < max(longest)
        assert any(
            state["context"] == 262_144 < found["max_context_tokens"]
            and found["verdict"] not in ("fits", "tight")
            for (_, _, state), found in compared
        )


UNPACK = """
const { facts, names } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(kvCapacity.unpacked(facts, names.models)));
"""


def test_shared_facts_are_the_same_after_they_traveled_by_field():
    _, _, catalog = published()
    site = gather(catalog, models=MODELS, gpus=GPUS, version="test")
    files = {address: json.loads(content) for address, content in explorer_data.files(site, (), ())}
    folder = f"{profiles.FOLDER}/explore"
    given = {name: files[f"{folder}/{name}.json"] for name in ("facts", "names")}
    want = json.loads(profiles.encode(profiles.site_facts(site)))
    assert len(want["models"]) > 3
    found = run(UNPACK, given)
    # Beside them stands which of the explorer's files say what loading adds; without models all are of one class.
    assert {gpu.pop("loading") for gpu in found["gpus"]} == {0}
    assert found == want


MACHINES = (
    ("rtx-4090+l4", {"tp": 2}),
    ("rtx-4090+l4", {"tp": 1, "pp": 2}),
    ("l4*2+rtx-4090", {"tp": 1, "pp": 3}),
    ("h100-sxm-80gb*4+a100-sxm4-80gb*4", {"tp": 8}),
    ("h100-sxm-80gb*4+a100-sxm4-80gb*4", {"tp": 4, "pp": 2}),
    ("a100-sxm4-80gb+h100-sxm-80gb", {"tp": 2}),
    ("rtx-4090*4+h100-sxm-80gb*2", {"tp": 2, "pp": 3}),
)


def test_unequal_gpus_are_answered_as_by_the_package():
    shared, facts, _ = published()
    settings = ({}, {"share": 0.8}, {"batched": 4096, "seqs": 64}, {"weights": "int4"}, {"kv": "fp8"})
    rows = [
        # In the order of an address, in which a state is read back.
        (
            model,
            machine,
            layout | {n: more[n] for n in ("weights", "kv") if n in more} | {"context": 8192} | more,
        )
        for model in facts
        for machine, layout in MACHINES
        for more in settings
    ]
    compared = compare_rows(rows, shared, facts, FIGURES)
    assert all(machine in got["again"] for (_, machine, _), got in compared)
    assert len(compared) > len(rows) // 3
    assert sum("pp" in state for (_, _, state), _ in compared) > 20


READ = """
const { site, addresses } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(addresses.map((address) => {
  const { state, ignored } = kvState.read(site, ["gpu", "tp", "pp", "context"], [], address, true);
  return [state, ignored.length, kvState.search(state), kvState.read(site, ["gpu"], [], address).ignored.length];
})));
"""


def test_an_address_carries_unequal_gpus():
    shared, _, _ = published()
    asked = {
        "?gpu=rtx-4090%2Bl4&pp=2": ({"gpu": "rtx-4090+l4", "pp": 2}, 0, "?gpu=rtx-4090+l4&pp=2", 2),
        "?gpu=rtx-4090+l4*2": ({"gpu": "rtx-4090+l4*2"}, 0, "?gpu=rtx-4090+l4*2", 1),
        "?gpu=l4+l4+rtx-4090": ({"gpu": "l4*2+rtx-4090"}, 0, "?gpu=l4*2+rtx-4090", 1),
        "?gpu=l4*4": ({"gpu": "l4", "tp": 4}, 0, "?gpu=l4&tp=4", 0),
        "?gpu=l4+no-such": ({}, 1, "", 1),
        "?gpu=l4*9000+rtx-4090": ({}, 1, "", 1),
    }
    found = run(READ, {"site": shared, "addresses": list(asked)})
    assert [tuple(one) for one in found] == list(asked.values())


def test_an_engine_s_file_says_for_which_accelerators_it_has_numbers():
    _, facts, catalog = published()
    site = gather(catalog, models="meta-llama/Llama-3.1-8B-Instruct", gpus=GPUS, version="test").under(
        "sglang"
    )
    model = site.models[0]
    few = json.loads(profiles.encode(profiles.engine_facts(site, model, reserves={"h100-sxm-80gb"})))
    rates = json.loads(profiles.encode(device_columns.reserve_rates(site, model, further=False)))
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


@pytest.mark.parametrize("engine", ["sglang", "vllm-0.11"])
def test_an_engine_s_file_writes_equal_lists_once(engine: str):
    """These files took an eighth of the site; most devices and formats have the same numbers."""
    _, _, catalog = published()
    site = gather(catalog, models="meta-llama/Llama-3.1-8B-Instruct", gpus=GPUS, version="test").under(engine)
    facts = engine_profiles.facts_of(site, site.models[0], {"h100-sxm-80gb"})
    plain, short = (json.loads(profiles.encode(one)) for one in (facts, engine_profiles.in_runs(facts)))
    assert len(json.dumps(short)) < len(json.dumps(plain))
    asks = """
const { model, own } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(kvCapacity.decided(model, own)));
"""
    assert run(asks, {"model": {"id": "x", "rates": 1}, "own": short}) == {"id": "x"} | plain


def test_keys_of_addresses_differ():
    keys = list(url_keys().values())
    assert len(keys) == len(set(keys))
    assert {"context_tokens", "tensor_parallel", "engine", "utilization"} <= {
        o.name for o in options() if o.url
    }


AGAIN = """
const { site, model, gpu, state, weights } = JSON.parse(await new Response(Deno.stdin.readable).text());
const layout = { tp: 8, pp: 1, dp: 1, dcp: 1, nodes: 1 };
console.log(JSON.stringify(kvState.estimateCommand(site, model, gpu, state, { layout, weightFormat: weights })));
"""


@pytest.mark.parametrize(
    ("weights", "asked", "flag"),
    [("int4", None, True), ("released", None, False), ("fp8", "fp8", True), ("int4", "fp8", True)],
)
def test_the_command_names_the_weight_format_that_was_answered(
    weights: str, asked: str | None, flag: bool
) -> None:
    """A release whose stored formats are unverified is answered in another format, and its command says in which."""
    shared, facts, _ = published()
    asked_for = {"context": 8192} | ({"weights": asked} if asked else {})
    model = next(iter(facts.values()))
    gpu = shared["gpus"][0]
    command = run(AGAIN, {"site": shared, "model": model, "gpu": gpu, "state": asked_for, "weights": weights})
    assert (f"--weights {weights}" in command) is flag
    assert command.count("--weights") == int(flag)


UNPUBLISHED = """
const { site, model, gpu, state } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(kvState.estimateCommand(site, model, gpu, state, null)));
"""


def test_the_command_keeps_a_layout_that_no_page_has() -> None:
    """The command was offered for data ranks and experts, and answered for one GPU."""
    shared, facts, _ = published()
    model = next(iter(facts.values()))
    state = {"tp": 2, "dp": 4, "pp": 2, "ep": True, "context": 65_536}
    command = run(
        UNPUBLISHED, {"site": shared, "model": model, "gpu": shared["gpus"][0], "state": state}
    ).split()
    for flag, value in (("--tensor-parallel", "2"), ("--data-parallel", "4"), ("--pipeline-parallel", "2")):
        assert command[command.index(flag) + 1] == value
    assert "--expert-parallel" in command
    fewest = run(
        UNPUBLISHED, {"site": shared, "model": model, "gpu": shared["gpus"][0], "state": {"tp": "fewest"}}
    )
    assert "parallel" not in fewest


OFFERED = """
const { site, model, gpus, states } = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(gpus.flatMap((id) => states.map((state) => {
  const gpu = kvCapacity.gpuOf(site, id);
  const [found] = kvState.deployments(site, model, gpu, state);
  return [state, found ? found.layout.devices : 0, kvState.answerCommand(site, model, gpu, state, found)];
}))));
"""


def test_every_command_that_an_answer_offers_runs_and_answers_its_layout(capsys) -> None:
    """The command asks for the layout of the state, published or not, and the program takes it."""
    shared, facts, _ = published()
    layouts = [{"tp": 1}, {"tp": 4}, {"tp": 1, "dp": 8, "ep": True}, {"tp": 4, "pp": 2}, {"tp": 8, "dcp": 2}]
    states = [{**layout, "context": 8192} for layout in layouts] + [{"tp": "fewest", "context": 8192}]
    given = {"site": shared, "model": facts["deepseek-ai/DeepSeek-V3.2"], "states": states}
    offered = run(OFFERED, given | {"gpus": ["b200-sxm-180gb", "mi300x"]})
    assert len(offered) == 2 * len(states)
    for state, devices, command in offered:
        words = shlex.split(command)[1:]
        assert words[0] == "estimate", command
        status = main([*words, "--format", "json"])
        said = capsys.readouterr()
        assert status == 0, (command, said.err)
        layout = json.loads(said.out)["layout"]
        for key, name in (("tp", "tensor_parallel"), ("pp", "pipeline_parallel"), ("dp", "data_parallel")):
            if state["tp"] != "fewest":
                assert layout[name] == state.get(key, 1), command
        assert (
            not devices
            or layout["tensor_parallel"] * layout["pipeline_parallel"] * layout["data_parallel"] == devices
        )
