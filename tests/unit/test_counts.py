"""One way to count: what pages say an accelerator serves is what the dataset has, for every GPU and context."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from kvreport import units
from kvreport.catalog.load import RELEASED, open_catalog
from kvreport.catalog.model import Model
from kvreport.dataset.frames import matrix
from kvreport.publish import counts
from kvreport.publish.page_data import gather
from kvreport.publish.site_data import SiteData, page_format
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages import index
from kvreport.site.pages.gpu_rows import served
from kvreport.site.pages.model.headline import plain
from kvreport.words import SENTENCES

CATALOG = open_catalog()
SERVES = ("fits", "tight")


def chosen() -> list[Model]:
    """Models of every kind that was counted wrongly: short limits, formats that nobody has read; and a few of all."""
    models = sorted((CATALOG.models[name] for name in CATALOG.models), key=lambda model: model.id)
    short = sorted(models, key=lambda model: (model.context_tokens, model.id))
    unread = [model for model in models if page_format(model) != RELEASED]
    found = [*short[:10], *short[10:200:19], *unread[:8], *models[::45]]
    return list({model.id: model for model in found}.values())


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
            for context in site.contexts:
                ours = {model.id for model in counts.served(site, gpu.id, context, most)}
                assert ours == wanted.get((gpu.id, context), set()), (gpu.id, context, most)
                assert all(site.catalog.models[name].context_tokens >= context for name in ours)
                compared += len(ours)
    assert compared > 5_000


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
    listed = {row.anchor: row.cells for row in index.gpus(site).table.rows}
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
            r"A single GPU serves (\d+) of (\d+) models as released at 8K", plain(page.headline)
        )
        if found is None:
            assert not models
            continue
        said += 1
        assert (int(found[1]), int(found[2])) == (len(models), every)
        if models:
            most = max(site.parameters[name] for name in models)
            assert (
                f"by parameters is {counts.largest(site, counts.served(site, gpu.id, context, 1)).name} ("
                in plain(page.headline)
            )
            assert plain(page.headline).endswith(f"({units.human_parameters(most)}).")
        for row in page.largest.rows:
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
    told = gpu_page.context(site, h100, served(site)).conditions
    shorter = len(counts.below(site, site.counted_context))
    unread = len(counts.unread(site, h100.id, site.counted_context, 1))
    assert shorter
    assert unread
    assert SENTENCES["gpu_below"].format(context="8K", number=shorter, all=len(site.models)) in told
    assert f"Not counted: {unread} model" in told
