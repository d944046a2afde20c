"""The arithmetic in the browser, held equal to the dataset on every row of a large sample."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from fuzzing import TIMES, examples, thinned

from kvreport import estimate
from kvreport.accounting.capacity import Limit, Verdict
from kvreport.catalog.load import open_catalog
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import cube_of
from kvreport.errors import InputError
from kvreport.publish import engine_profiles, explorer_data, profiles, sizer_data
from kvreport.publish.browser import script as browser_script
from kvreport.publish.device_columns import following, reserve_rates
from kvreport.publish.page_data import gather

pytestmark = [pytest.mark.browser, pytest.mark.slow]

EVERY = 25 if TIMES > 1 else 75
"""One model in so many is taken, more of them when fuzzing. Which is decided by its id: a new model moves no other."""
LAID_OUT_BY_KERNELS = {"deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5"}
"""Models whose cache has another layout on another device."""
RESERVED_BY_CACHE = {"zai-org/GLM-4.7-Flash"}
"""Models whose reserve is another for an FP8 cache."""
STEPS_HOLD_A_VIDEO = {"google/gemma-4-26B-A4B"}
"""Models whose step has more tokens than the device's default."""
ROWS = examples(12_000)

ANSWER = """({site, models, rows}) => {
    const by = Object.fromEntries(models.map((model) => [model.id, model]));
    const gpus = Object.fromEntries(site.gpus.map((gpu) => [gpu.id, gpu]));
    const wrong = [];
    let compared = 0;
    for (const [id, gpu, label, weights, kv, context, want] of rows) {
        const layout = site.layouts.find((one) => one.label === label);
        const config = kvCapacity.deploy(site, by[id], gpus[gpu], layout, weights, kv);
        let got = null;
        if (config) {
            const answer = kvCapacity.serve(config, context);
            const told = kvCapacity.told(config, context);
            got = [told.weights, answer.token, told.state, answer.request, told.pool,
                   answer.users, answer.ceiling, config.longest, answer.verdict, answer.limitedBy];
        }
        compared += 1;
        if (JSON.stringify(got) !== JSON.stringify(want)) wrong.push({row: [id, gpu, label, weights, kv, context], want, got});
    }
    return {compared, wrong: wrong.slice(0, 5), count: wrong.length};
}"""

# The explorer's files are parts; put together they must give the same configurations.
PUT_TOGETHER = """async ({site, models, parts, rows}) => {
    const by = Object.fromEntries(models.map((model) => [model.id, model]));
    const gpus = Object.fromEntries(site.gpus.map((gpu) => [gpu.id, gpu]));
    const asked = [];
    const get = (name) => { asked.push(name); return Promise.resolve(parts[name]); };
    const common = {...parts.models, ...parts.traits};
    const matrix = kvMatrix.open(get, parts.site, common);
    const packed = matrix.site;
    const start = {sizes: [0], forms: ["released"], caches: ["own"]};
    await matrix.need({...start, gpus: [packed.gpus[0]]});
    const alone = [...asked];
    await matrix.need({...start, gpus: packed.gpus});
    const first = asked.length;
    const all = {gpus: packed.gpus, sizes: site.layouts.map((_, n) => n),
        forms: site.weight_formats.map((one) => one.name), caches: ["own", ...site.kv_formats.map((one) => one.name)]};
    await matrix.bounds(all); // whichever comes first
    await matrix.need(all);
    await matrix.aliases();
    // Asked for at once, all tensor-parallel sizes come in one file.
    const folders = [];
    const other = (name) => { folders.push(name.split("/")[0]); return Promise.resolve(parts[name]); };
    const atOnce = kvMatrix.open(other, parts.site, common);
    await Promise.all([atOnce.need(all), atOnce.bounds(all)]);
    const byId = (models) => Object.fromEntries(models.map((model) => [model.id, model]));
    const small = byId(matrix.models), together = byId(atOnce.models);
    const wrong = [];
    let compared = 0;
    const facts = (config) => JSON.stringify(config && {...config, model: config.model.name, gpu: config.gpu.short});
    for (const [id, gpu, label, weights, kv] of rows) {
        for (const place of site.layouts.find((one) => one.label === label).places) {
            const whole = kvCapacity.configure(site, by[id], gpus[gpu], place, weights, kv);
            const here = packed.gpus.find((one) => one.id === gpu);
            const both = [small, together].map((by) => kvCapacity.configure(packed, by[id], here, place, weights, kv));
            compared += 1;
            if (both.some((part) => facts(whole) !== facts(part))) wrong.push([id, gpu, label, place, weights, kv]);
        }
    }
    // As a page of an accelerator asks: each model in its own format.
    const own = kvMatrix.open(other, parts.site, common);
    await own.need({gpus: packed.gpus, sizes: site.sizes.map((_, n) => n), forms: ["own"], caches: ["own"]});
    const ofPage = byId(own.models);
    for (const {id, form, weights, kv} of models) {
        for (const gpu of site.gpus) {
            const here = packed.gpus.find((one) => one.id === gpu.id);
            for (const place of site.sizes.keys()) {
                const whole = kvCapacity.configure(site, by[id], gpu, place, form, kv);
                const part = kvCapacity.configure(packed, ofPage[id], here, place, form, kv);
                if (whole?.resident !== part?.resident || whole?.room !== part?.room) wrong.push([id, gpu.id, place]);
            }
        }
    }
    const forms = [...new Set(models.map((model) => model.form))];
    for (const model of models) {
        const names = [model.family, ...model.aliases];
        if (JSON.stringify(small[model.id].aliases) !== JSON.stringify(names)) wrong.push(model.id);
    }
    return {compared, wrong: wrong.slice(0, 5), once: new Set(asked).size === asked.length, alone, first, folders: [...new Set(folders)], forms};
}"""

COLUMNS = (
    "weight_bytes_per_gpu",
    "kv_bytes_per_token_per_gpu",
    "state_bytes_per_request_per_gpu",
    "kv_bytes_per_request_per_gpu",
    "kv_pool_bytes_per_gpu",
    "max_concurrent_requests",
    "max_concurrent_requests_ceiling",
    "max_context_tokens",
)


def rows_of(cube: Any, take: np.random.Generator, number: int) -> list[list[Any]]:
    """Rows of one model, picked by chance; a combination that cannot be configured has no answer."""
    shape = cube.values["verdict"].shape
    picked = take.choice(int(np.prod(shape)), size=min(number, int(np.prod(shape))), replace=False)
    rows = []
    for g, t, w, k, c in zip(*np.unravel_index(picked, shape), strict=True):
        if not cube.layouts[t].is_tensor_only and cube.weight_formats[w] != "released":
            continue  # of converted checkpoints, the matrix has tensor parallelism only
        key = [
            cube.model.id,
            cube.gpus[g],
            cube.layouts[t].label,
            cube.weight_formats[w],
            cube.kv_formats[k],
            cube.contexts[c],
        ]
        want = None
        code = int(cube.values["verdict"][g, t, w, k, c])
        # What a release refuses is left out in the browser, like what cannot be configured.
        if cube.possible[g, t, w, k] and code < Verdict.FORMAT_NOT_SUPPORTED:
            verdict = Verdict(code).label
            limit = Limit(int(cube.values["limited_by"][g, t, w, k, c])).label
            want = [*(int(cube.values[name][g, t, w, k, c]) for name in COLUMNS), verdict, limit]
        rows.append([*key, want])
    return rows


def test_the_browser_answers_as_the_dataset_does(repository, browser):
    catalog = open_catalog()
    drawn = [model for model in catalog.models if crc32(model.encode()) % EVERY == 3]
    chosen = sorted({*drawn, *LAID_OUT_BY_KERNELS, *RESERVED_BY_CACHE, *STEPS_HOLD_A_VIDEO})
    site = gather(catalog, models=",".join(chosen), version="2026.01.01")
    shared = profiles.site_facts(site)
    rates = [following(reserve_rates(site, model)) for model in site.models]
    models = [
        profiles.model_facts(site, model, further=True) | own
        for model, own in zip(site.models, rates, strict=True)
    ]
    assert sum(map(bool, rates)) > 1
    everything = axes(catalog, models=",".join(chosen))
    take = np.random.default_rng(20261121)
    rows: list[list[Any]] = []
    for model in everything.models:
        part = axes(catalog, models=model.id)
        rows += rows_of(cube_of(model, part), take, ROWS // len(everything.models))
    assert len(rows) > ROWS // 2
    assert sum(row[-1] is not None for row in rows) > len(rows) // 2
    assert {"dp8-ep", "dp16-ep", "tp8-dcp8", "pp2-tp8"} <= {row[2] for row in rows if row[-1]}

    page = browser.new_page()
    page.add_script_tag(content=browser_script())
    page.add_script_tag(path=str(repository / "docs/assets/kv-capacity.js"))
    data = json.loads(profiles.encode({"site": shared, "models": models, "rows": rows}))
    found = page.evaluate(ANSWER, data)
    page.add_script_tag(path=str(repository / "docs/assets/kv-matrix.js"))
    parts = {
        address.removeprefix(f"{profiles.FOLDER}/explore/").removesuffix(".json"): json.loads(content)
        for address, content in explorer_data.files(site, models, sizer_data.every_model(site))
    }
    together = page.evaluate(PUT_TOGETHER, {**data, "parts": parts})
    page.close()
    assert found["compared"] == len(rows)
    assert found["count"] == 0, found["wrong"]
    assert together["compared"] > len(rows) // 2
    assert together["wrong"] == []
    # What the first question needs is fetched alone, and nothing twice.
    assert together["once"]
    groups = [name.partition("-")[0] for name in together["alone"]]
    assert sorted(groups) == ["1/added", "1/cache", "1/reserve", "1/weights"]
    assert together["first"] < len(parts) / 4
    assert "tensor" in together["folders"]
    assert set(together["forms"]) > {"released"}


DEPLOYED = """({site, model, gpu, asked}) => {
    const device = site.gpus.find((one) => one.id === gpu), layout = site.layouts.find((one) => one.label === "tp2");
    const found = kvCapacity.deploy(site, model, device, layout, "fp8", "bf16", asked);
    return found && [found.tokens, found.pool, kvCapacity.serve(found, asked.context).users];
}"""


def test_steps_hold_a_video_as_they_do_in_python(repository, browser):
    """The page took 2,048 tokens for Gemma 4 where vLLM takes 2,496, and held more requests than it."""
    (name,) = STEPS_HOLD_A_VIDEO
    own = gather(open_catalog(), models=name, version="2026.01.01")
    (model,) = own.models
    facts = profiles.model_facts(own, model, further=True) | reserve_rates(own, model)
    page = browser.new_page()
    page.add_script_tag(content=browser_script())
    page.add_script_tag(path=str(repository / "docs/assets/kv-capacity.js"))
    for gpu in ("rtx-4090", "h100-sxm-80gb"):
        for batched in (None, 4096, 2496, 2048):
            asked = {"context": 8192, **({"batched": batched} if batched else {})}
            sent = json.loads(profiles.encode({"site": profiles.site_facts(own), "model": facts}))
            found = page.evaluate(DEPLOYED, {**sent, "gpu": gpu, "asked": asked})
            told = {
                "tensor_parallel": 2,
                "weights": "fp8",
                "context_tokens": 8192,
                "max_batched_tokens": batched,
            }
            if batched == 2048:
                assert found is None
                with pytest.raises(InputError, match="at least 2,496"):
                    estimate(name, gpu=gpu, engine="vllm", **told)
                continue
            want = estimate(name, gpu=gpu, engine="vllm", **told)
            tokens = want.request.serving.max_batched_tokens
            assert found == [tokens, want.budget.kv_pool_bytes, want.max_concurrent_requests], (gpu, batched)
    page.close()


SGLANG_ROWS = examples(8_000)
SGLANG_EVERY = 27
ARCHITECTURE = {
    "kv_bytes_per_token_per_gpu",
    "state_bytes_per_request_per_gpu",
    "max_concurrent_requests_ceiling",
}
ENGINE_ANSWER = ANSWER.replace("answer.token, told.state, ", "").replace("answer.ceiling, ", "")
PLAIN_PLAN = 4
"""Entries of a plan that divides one pool; one more says how several are divided."""


WITH_POOLS = ("openai/gpt-oss-20b", "Qwen/Qwen3.6-27B", "google/gemma-3-27b-it")
"""Windows and states: they are compared whatever else is drawn."""


def test_the_browser_divides_budgets_as_sglang_does(repository, browser):
    """Models with pools of states or windows had no numbers of SGLang in the browser."""
    catalog = open_catalog()
    drawn = dict.fromkeys([*WITH_POOLS, *thinned(sorted(catalog.models)[::SGLANG_EVERY], 2)])
    own = gather(catalog, models=",".join(drawn), version="2026.01.01")
    other = own.under("sglang")
    models, pooled = [], 0
    for model in [one for one in own.models if engine_profiles.runs(other, one)]:
        decided = profiles.engine_facts(other, model, reserves=[gpu.id for gpu in other.gpus])
        if "pools" in decided:  # pools that are no division of one have no plan for browsers
            assert model.architecture.startswith("DeepseekV4"), model.id
            continue
        pooled += any(len(plan) > PLAIN_PLAN for plan in decided["plans"])
        models.append({**profiles.model_facts(own, model, further=True), "rates": None, **decided})
    assert pooled >= len(WITH_POOLS) - 1
    shared, theirs = profiles.site_facts(own), profiles.site_facts(other)
    kinds = [gpu["kind"] for gpu in shared["gpus"]]
    gpus = [{**gpu, "laid": kind} for gpu, kind in zip(theirs["gpus"], kinds, strict=True)]
    take = np.random.default_rng(20261126)
    rows: list[list[Any]] = []
    for facts in models:
        part = axes(catalog, models=facts["id"], engine="sglang")
        rows += rows_of(cube_of(catalog.models[facts["id"]], part), take, SGLANG_ROWS // len(models))
    # What the architecture needs by itself is the same file for every engine.
    of_engine = [n for n, name in enumerate((*COLUMNS, "verdict", "limited_by")) if name not in ARCHITECTURE]
    rows = [[*key, want and [want[n] for n in of_engine]] for *key, want in rows]
    assert sum(row[-1] is not None for row in rows) > SGLANG_ROWS // 3
    page = browser.new_page()
    page.add_script_tag(content=browser_script())
    page.add_script_tag(path=str(repository / "docs/assets/kv-capacity.js"))
    site = {**shared, "engine": theirs["engine"], "gpus": gpus}
    data = json.loads(profiles.encode({"site": site, "models": models, "rows": rows}))
    found = page.evaluate(ENGINE_ANSWER, data)
    page.close()
    assert found["compared"] == len(rows)
    assert found["count"] == 0, found["wrong"]
