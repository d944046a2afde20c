"""One way to count: what pages say an accelerator serves is what the dataset has, for every GPU and context."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from urllib.parse import parse_qsl
from zlib import crc32

import pandas as pd
import pytest
from fuzzing import thinned

from kvreport import estimate, units
from kvreport.accounting.weights import parameters
from kvreport.book.quantities import Quantities
from kvreport.catalog.load import RELEASED, open_catalog
from kvreport.catalog.local_architectures import OllamaNames
from kvreport.catalog.model import Model
from kvreport.dataset.frames import matrix
from kvreport.errors import InputError
from kvreport.publish import counts, embeds, feeds
from kvreport.publish.downloads import NOTHING
from kvreport.publish.page_data import gather
from kvreport.publish.site_data import SiteData, devices, page_format
from kvreport.site.page_type import Inputs
from kvreport.site.pages import data, explore, home, index, machines_at_home
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages.gpu_rows import served
from kvreport.site.pages.model.grids import users_table
from kvreport.site.pages.model.headline import headline, headline_index, plain, requests_text
from kvreport.words import SENTENCES

CATALOG = open_catalog()
SERVES = ("fits", "tight")
GRID = CATALOG.grid.contexts


def chosen() -> list[Model]:
    """Models of every kind that was counted wrongly: short limits, formats that nobody has read; and a few of all."""
    models = sorted((CATALOG.models[name] for name in CATALOG.models), key=lambda model: model.id)
    short = sorted(models, key=lambda model: (model.context_tokens, model.id))
    unread = [model for model in models if page_format(model) != RELEASED]
    # By their names, not by their places: a record that is added changes nothing of the rest.
    drawn = [model for model in models if crc32(model.id.encode()) % 23 in (0, 22)]
    below = [model for model in short[10:200] if crc32(model.id.encode()) % 19 == 0]
    found = [*short[:10], *below, *unread[:8], *drawn]
    return thinned(list({model.id: model for model in found}.values()), 2)


@pytest.fixture(scope="module")
def site() -> SiteData:
    return gather(CATALOG, models=",".join(model.id for model in chosen()), version="test")


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """The dataset's rows of the same models that serve: tensor parallelism, KV format by default."""
    found = matrix(",".join(model.id for model in chosen()), kv=["auto"])
    serving = found["verdict"].isin(SERVES) & (found["max_concurrent_requests"] > 0)
    return found[serving & found["layout"].astype(str).str.fullmatch(r"tp\d+")]


def sets(rows: pd.DataFrame, *keys: str) -> dict[tuple[object, ...], set[str]]:
    return {
        key if isinstance(key, tuple) else (key,): set(group["model"])
        for key, group in rows.groupby(list(keys), observed=True)
    }


def test_a_count_is_that_of_the_dataset_for_every_gpu_context_and_number(
    site: SiteData, rows: pd.DataFrame
) -> None:
    released = rows[rows["weight_format"] == RELEASED]
    compared = 0
    for most in (1, 2, 4, 8):
        wanted = sets(released[released["tensor_parallel"] <= most], "gpu", "context_tokens")
        for gpu in site.gpus:
            for context in thinned(site.contexts, 3):
                ours = {model.id for model in counts.served(site, gpu.id, context, most)}
                assert ours == wanted.get((gpu.id, context), set()), (gpu.id, context, most)
                assert all(site.catalog.models[name].context_tokens >= context for name in ours)
                compared += len(ours)
    assert compared > 1_500


def test_no_model_with_an_unread_format_is_counted_as_released(site: SiteData) -> None:
    unread = {model.id for model in site.models if page_format(model) != RELEASED}
    assert unread
    for gpu in site.gpus:
        for context in (8192, 1 << 20):
            assert not unread & {model.id for model in counts.served(site, gpu.id, context, 8)}
            assert {model.id for model in counts.unread(site, gpu.id, context, 8)} <= unread


def test_gpu_page_and_index_say_the_same_numbers(site: SiteData, rows: pd.DataFrame) -> None:
    """The sentence, its largest model, the table of formats, and the two columns of the index."""
    context, every = site.counted_context, len(site.models)
    here = rows[rows["context_tokens"] == context]
    alone = sets(here[here["tensor_parallel"] == 1], "gpu", "weight_format")
    node = sets(here[here["weight_format"] == RELEASED], "gpu")
    listed = {row.anchor: row.cells for row in index.gpus(site)["table"].rows}
    made = served(site)
    said = 0
    for gpu in site.gpus:
        page = gpu_page.context(site, gpu, made)
        models = alone.get((gpu.id, RELEASED), set())
        assert (listed[gpu.id][5].value, listed[gpu.id][6].value) == (
            len(models),
            len(node.get((gpu.id,), set())),
        )
        found = re.search(
            r"A single GPU serves (\d+) of (\d+) models as released, at 8K", plain(page["headline"])
        )
        if found is None:
            assert not models
            continue
        said += 1
        assert (int(found[1]), int(found[2])) == (len(models), every)
        if models:
            most = max(site.parameters[name] for name in models)
            assert (
                f"The largest is {counts.largest(site, counts.served(site, gpu.id, context, 1)).name} ("
                in plain(page["headline"])
            )
            assert plain(page["headline"]).endswith(f"({units.human_parameters(most)} parameters).")
        for row in page["largest"].rows:
            form = next(
                (name for name, one in site.catalog.weight_formats.items() if one.label == row.head.text),
                RELEASED,
            )
            serving = alone.get((gpu.id, form), set())
            if not serving:
                assert row.why
                continue
            assert row.cells[3].value == len(serving)
            assert row.cells[1].value == max(site.parameters[name] for name in serving)
    assert said > 50


def test_the_conditions_name_what_the_sentence_leaves_out(site: SiteData) -> None:
    h100 = next(gpu for gpu in site.gpus if gpu.id == "h100-sxm-80gb")
    told = gpu_page.context(site, h100, served(site))["conditions"]
    shorter = len(counts.below(site, site.counted_context))
    unread = len(counts.unread(site, h100.id, site.counted_context, 1))
    assert shorter
    assert unread
    assert SENTENCES["gpu_below"].format(context="8K", number=shorter, all=len(site.models)) in told
    assert f"The count excludes {unread} model" in told


def served_at(model: Model, context: int) -> int:
    """The context at which a page judges whether a model is served: the counted one, or its longest below."""
    return max((one for one in GRID if one <= min(context, model.context_tokens)), default=0)


def fewest_rows(rows: pd.DataFrame, site: SiteData, model: Model, gpu: str) -> pd.DataFrame:
    """The rows of the fewest devices that serve one model on one accelerator, in the format that its pages answer in."""
    context = served_at(model, site.counted_context)
    own = rows[
        (rows["model"] == model.id) & (rows["gpu"] == gpu) & (rows["weight_format"] == page_format(model))
    ]
    serving = own[own["context_tokens"] == context]["tensor_parallel"]
    return own[own["tensor_parallel"] == serving.min()] if len(serving) else own.iloc[:0]


def test_badges_and_tables_of_models_say_what_the_dataset_has_of_the_fewest_devices(
    site: SiteData, rows: pd.DataFrame
) -> None:
    """200 pairs of model and accelerator; a badge is what an embedded card shows."""
    draw = Random("badges")  # noqa: S311 - a spread of cases, no secret
    pairs = [(draw.choice(site.models), draw.choice(site.gpus)) for _ in range(200)]
    served_pairs = 0
    for model, gpu in pairs:
        made = embeds.badge(model.name, site.gpu_name(gpu.id), site.serving(model, gpu.id))
        own = fewest_rows(rows, site, model, gpu.id)
        context = served_at(model, site.counted_context)
        grid = users_table(site, model, site.headline[model.id])[0]
        listed = {row.anchor: row.cells for row in grid.rows}
        if not len(own):
            assert made["message"] == "does not fit", (model.id, gpu.id, made)
            assert f"on-{gpu.id}" not in listed
            continue
        served_pairs += 1
        number = int(own["tensor_parallel"].iloc[0])
        users = dict(zip(own["context_tokens"], own["max_concurrent_requests"], strict=True))
        noun = "request" if users[context] == 1 else "requests"
        assert made["message"] == f"{users[context]:,} {noun} at {units.human_tokens(context)}", (
            model.id,
            gpu.id,
        )
        assert made["label"] == f"{model.name} on {devices(number, site.gpu_name(gpu.id))}"
        fitting = [users.get(at, 0) for at in site.contexts if at <= model.context_tokens]
        assert made["requests"] == [many for many in fitting if many], (model.id, gpu.id)
        assert sorted(fitting, reverse=True) == fitting, "those that fit are the first of the contexts"
        cells = listed[f"on-{gpu.id}"]
        assert cells[0].value == number
        for place, at in enumerate(one for one in site.contexts if one <= model.context_tokens):
            assert (cells[1 + place].value or 0) == users.get(at, 0), (model.id, gpu.id, at)
    assert served_pairs > 60


def test_the_first_lines_of_models_say_what_the_dataset_has(site: SiteData, rows: pd.DataFrame) -> None:
    """Where a page says that its engine serves no model, no row of it does; else the row that it names has its number."""
    none = 0
    for model in site.models:
        best = site.headline[model.id]
        told = plain(headline(site, model, best))
        own = rows[(rows["model"] == model.id) & (rows["weight_format"] == page_format(model))]
        if best is None:
            none += 1
            context = served_at(model, site.counted_context)
            of_engine = own[own["engine"] == site.engine.name]
            assert not (of_engine["context_tokens"] == context).any(), model.id
            continue
        at = best.contexts[headline_index(best, model)]
        row = own[
            (own["gpu"] == best.config.gpu)
            & (own["tensor_parallel"] == best.config.tensor_parallel)
            & (own["context_tokens"] == at)
        ]
        (users,) = row["max_concurrent_requests"]
        if row["max_concurrent_requests_by_memory"].isna().all():
            assert told.startswith(f"{model.name} has no KV cache. "), (model.id, told)
            continue
        assert requests_text(users) in told, (model.id, told)
        assert units.human_tokens(at) in told
    assert none < len(site.models) / 4


def test_the_index_of_models_and_the_explorers_first_answer_count_the_rows(
    site: SiteData, rows: pd.DataFrame
) -> None:
    gpu = site.known_gpus[0]
    table = index.models(site)["table"]
    stand_in = sum(page_format(model) != RELEASED for model in site.models)
    assert f"for {stand_in} models with unverified storage formats" in table.caption
    by_slug = {model.slug: model for model in site.models}
    compared = 0
    for row in table.rows:
        model = by_slug[row.anchor]
        own = fewest_rows(rows, site, model, gpu)
        devices_cell, requests_cell = row.cells[5], row.cells[6]
        if not len(own):
            assert devices_cell.text == "–"
            assert not requests_cell.value
            continue
        compared += 1
        assert devices_cell.value == own["tensor_parallel"].iloc[0], model.id
        at = own[own["context_tokens"] == site.counted_context]["max_concurrent_requests"]
        assert (requests_cell.value or 0) == (int(at.iloc[0]) if len(at) else 0), model.id
    assert compared > 20
    begin = explore.start(site)
    asked = dict(parse_qsl(begin["address"]))
    fitting = rows[
        (rows["gpu"] == asked["gpu"])
        & (rows["context_tokens"] == int(asked["context"]))
        & (rows["tensor_parallel"] == int(asked["tp"]))
        & (rows["weight_format"] == asked["weights"])
    ]
    assert begin["fit"] == len(set(fitting["model"]))
    assert begin["configurations"] >= begin["fit"]


def test_feeds_and_pages_count_models_accelerators_and_rows_of_the_dataset(site: SiteData) -> None:
    """One number wherever a page, a feed or a citation says how much there is."""
    known = replace(site, downloads=replace(NOTHING, rows=1_234_567))
    feed, told, _ = (content.decode() for _, content in feeds.files(known))
    models, gpus = len({one.id for one in site.models}), len({one.id for one in site.gpus})
    assert f"<summary>{models:,} models on {gpus:,} accelerators, 1,234,567 rows.</summary>" in feed
    assert f"{models} models, {gpus} accelerators." in told
    facts = {fact.label: fact.value for fact in home.context(site, home.example(site), ())["facts"]}
    assert (facts["Models"], facts["GPUs and accelerators"]) == (f"{models:,}", f"{gpus:,}")
    said = {fact.label: fact.value for fact in data._facts(known)}
    assert (said["Models"], said["Accelerators"], said["Rows"]) == (f"{models:,}", f"{gpus:,}", "1,234,567")
    assert index.models(site)["headline"].startswith(f"{models} models,")
    assert index.gpus(site)["headline"].startswith(f"{gpus} accelerators:")
    assert f"of {models} models each can serve" in index.gpus(site)["headline"]


def test_the_model_named_for_a_machine_is_the_largest_recent_one_that_an_estimate_serves(
    site: SiteData,
) -> None:
    """At a usable pace, in the largest good quantization; the set is the one that the sentence names, models of Ollama's library."""
    names = {held.model for held in OllamaNames.need().names.values()}
    inputs = Inputs(site, {})
    found = machines_at_home._candidates(inputs)
    assert {one.model.id for one in found} <= names
    assert len(found) >= 5
    year, month = map(int, max(model.release or "" for model in CATALOG.models.values()).split("-")[:2])
    ago = 12 * year + month - 1 - 18
    since = f"{ago // 12}-{ago % 12 + 1:02}"

    def serves(model: Model, machine: str, mix: str, context: int) -> bool:
        asked = {"gpu": machine, "engine": "llama-cpp", "weights": mix, "parallel": 1}
        return estimate(model, context_tokens=context, **asked).verdict in SERVES

    for machine in ("rtx-3060-12gb", "rtx-5090", "m4-max-128", "m1-8"):
        accelerator = CATALOG.accelerator(machine)
        device = machines_at_home._device(CATALOG, accelerator.id)
        page = machines_at_home._machine(inputs, accelerator, found, (accelerator,), {})
        named = dict(
            machines_at_home.picks(accelerator, found, device, machines_at_home.oldest_recent(CATALOG))
        )
        for use, picks in named.items():
            ranks = [(not pick.is_slow, (pick.candidate.model.release or "") >= since) for pick in picks]
            assert ranks == sorted(ranks, reverse=True), (machine, use)
        coding = {pick.candidate.model.id for pick in named["Coding"]}
        for use, context in (("Chat", machines_at_home.CONTEXT), ("Long documents", machines_at_home.LONG)):
            pick = next(iter(named[use]), None)
            chosen = pick and pick.candidate.model
            if pick and chosen:
                assert serves(chosen, machine, pick.mix, context), (machine, use)
                above = machines_at_home.MIXES[max(0, machines_at_home.MIXES.index(pick.mix) - 1)]
                assert above == pick.mix or not serves(chosen, machine, above, context), (machine, use)
                assert f"{chosen.name}</a> ({pick.mix.upper()}, at most {pick.pace} tokens/s)" in page.lead
            recent = [
                one.model
                for one in found
                if (one.model.release or "") >= since and one.model.context_tokens >= context
            ]
            larger = [
                model
                for model in recent
                if model.id not in coding
                and (chosen is None or site.parameters[model.id] > 1.1 * site.parameters[chosen.id])
            ]
            for model in [*thinned(larger, 4), *larger[-1:]]:
                assert not serves(model, machine, machines_at_home.USUAL_MIX, context), (
                    machine,
                    use,
                    model.id,
                )


def test_two_models_of_one_size_differ_a_hundredfold_in_cache_per_token() -> None:
    """What stands under the picture of all models; of one size: within a tenth of the parameters."""
    quantities = Quantities(CATALOG)
    sized = sorted(
        (parameters(model), rate)
        for model in CATALOG.models.values()
        if (rate := _growing(quantities, model.id)) > 0
    )
    widest = max(
        max(rate, other) / min(rate, other)
        for place, (size, rate) in enumerate(sized)
        for larger, other in sized[place + 1 :]
        if larger <= 1.1 * size
    )
    assert widest >= 100


def _growing(quantities: Quantities, model: str) -> float:
    """Bytes of cache of one more token; 0 where a model keeps none, or no engine of the site splits it."""
    try:
        return float(quantities.kv_per_token(model))
    except InputError:
        return 0
