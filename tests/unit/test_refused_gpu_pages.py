"""Pages of accelerators that the engine does not run on say so in one short sentence, and why in a second one."""

from __future__ import annotations

from dataclasses import replace

from kvreport.accounting.support_lookup import lacks_class
from kvreport.catalog.load import open_catalog
from kvreport.publish.device_columns import Columns, places
from kvreport.publish.page_data import gather
from kvreport.publish.profiles import engine_facts, model_facts
from kvreport.publish.series import Config, ModelRefusal, Series, refusal_of
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages import gpu_rows
from kvreport.site.pages.model import model_page
from kvreport.site.pages.model.headline import plain
from kvreport.units import GIB


def test_the_headline_is_short_and_the_reason_stands_below():
    site = gather(open_catalog(), models="Qwen/Qwen3-8B", gpus="tpu-v6e,h100-sxm-80gb", version="test")
    made = {gpu.id: gpu_page.context(site, gpu, gpu_rows.served(site)) for gpu in site.gpus}
    said = plain(made["tpu-v6e"]["headline"])
    assert said.endswith("does not run on TPU v6e Trillium.")
    assert len(said) < 90
    assert made["tpu-v6e"]["conditions"].startswith("The release leaves TPUs to the plug-in")
    assert "with its defaults" not in made["tpu-v6e"]["conditions"]
    assert "with its defaults" in made["h100-sxm-80gb"]["conditions"]


def test_scripts_have_no_plan_of_a_checkpoint_that_the_engine_does_not_run():
    """Those that MLX quantized stood among the models that an H100 serves, once a page's state was changed."""
    names = ("mlx-community/Llama-3.3-70B-Instruct-4bit", "Qwen/Qwen3-8B")
    site = gather(open_catalog(), models=",".join(names), gpus="h100-sxm-80gb", version="test")
    planned = {
        model.id: {
            index
            for rows in Columns(site, model, places(site, further=False)).plans()[1].values()
            for row in rows
            for index in row
        }
        for model in site.models
    }
    assert planned[names[0]] == {-1}
    assert min(planned[names[1]]) >= 0


def test_a_computer_that_stands_alone_leaves_plans_to_cards_of_its_kind_under_another_release():
    """A pair of RTX 5090 had none in the engine switch, because DGX Spark has the same kernels."""
    catalog = open_catalog()
    own = gather(catalog, models="Qwen/Qwen3-8B", gpus="dgx-spark-gb10,rtx-5090,t4", version="test")
    site = own.under("vllm-0.25")
    facts = engine_facts(site, site.models[0])
    pairs = site.axes.tensor_parallel.index(2)
    assert site.device_kinds["dgx-spark-gb10"] == site.device_kinds["rtx-5090"]
    assert facts["plan"]["bf16"][pairs][site.device_kinds["rtx-5090"]] >= 0
    # What the release refuses has no plan there either, as under the site's own engine.
    assert {row[site.device_kinds["t4"]] for row in facts["plan"]["fp8"]} == {-1}


def series(verdict: str, *, weights: int, short: int, ranks: int = 4) -> Series:
    """A configuration of one context that does not serve."""
    return Series(
        config=Config("m", "g", ranks, "released", "auto"),
        contexts=(4096,),
        users=(0,),
        ceiling=(0,),
        verdicts=(verdict,),
        token_bytes=(1,),
        request_bytes=(4096,),
        short=(short,),
        weight_bytes=weights,
        state_bytes=0,
        pool_bytes=0,
        longest=0,
    )


def test_a_refusal_says_what_weights_or_a_request_lack_on_the_widest_split() -> None:
    few = series("weights_exceed_memory", weights=160 * GIB, short=9 * GIB, ranks=1)
    wide = series("weights_exceed_memory", weights=90 * GIB, short=13 * GIB)
    assert refusal_of([few, wide], 80 * GIB) == ModelRefusal("weights", 4, 10 * GIB)
    # Weights that fit without what loading adds lack what the estimate says.
    assert refusal_of(
        [series("weights_exceed_memory", weights=79 * GIB, short=GIB)], 80 * GIB
    ) == ModelRefusal("weights", 4, GIB)
    assert refusal_of([series("cache_exceeds_pool", weights=70 * GIB, short=GIB)], 80 * GIB) == ModelRefusal(
        "cache", 4, GIB
    )
    assert refusal_of([], 80 * GIB) == ModelRefusal("support", 0, 0)


def test_a_model_that_is_too_large_at_its_limit_is_not_said_to_have_too_short_a_context() -> None:
    """Falcon 180B stood on an RTX 4090's page under models whose context is too short, beside tables from 1K on."""
    one = replace(
        series("weights_exceed_memory", weights=160 * GIB, short=9 * GIB),
        contexts=(1024, 4096),
        users=(0, 0),
        ceiling=(0, 0),
        verdicts=("weights_exceed_memory", "context_exceeds_model"),
        token_bytes=(1, 1),
        request_bytes=(1024, 4096),
        short=(9 * GIB, 0),
    )
    assert refusal_of([one], 80 * GIB) == ModelRefusal("weights", 4, 80 * GIB)
    beyond = replace(one, verdicts=("context_exceeds_model", "context_exceeds_model"))
    assert refusal_of([beyond], 80 * GIB) == ModelRefusal("limit", 0, 0)


def test_pages_of_models_that_the_engine_does_not_run_say_so_beside_rows_of_other_engines() -> None:
    """The first line spoke of MLX's rows on a Mac, from an estimate of vLLM's: such a page stopped the build."""
    catalog = open_catalog()
    engine = catalog.engine("vllm")
    ruling = catalog.support.ruling(engine.family, engine.version)
    names = [model.id for model in catalog.models.values() if lacks_class(ruling, engine, model)]
    site = gather(catalog, models=",".join(names), gpus="h100-sxm-80gb,m3-ultra-512", version="test")
    refused = [model for model in site.models if site.refusal(model)]
    with_rows = 0
    for model in refused:
        assert site.headline[model.id] is None
        made = model_page.context(site, model, site.headline[model.id])
        assert plain(made["headline"]).startswith(
            f"No estimate for {model.name} with {site.engine.label}: "
        ), model.id
        assert made["controls"] is None
        with_rows += bool(made["grid"].rows)
    assert (len(refused) > 15, with_rows > 0) == (True, True)


def test_a_models_file_says_why_the_engine_does_not_run_it():
    """The answer of a page's form said that Mistral Large 4 does not run, and not why."""
    names = ("mistralai/Mistral-Large-4-1T-A52B", "Qwen/Qwen3-8B")
    site = gather(open_catalog(), models=",".join(names), gpus="h100-sxm-80gb", version="test")
    facts = {model.id: model_facts(site, model) for model in site.models}
    assert "does not have the class MistralLarge4ForConditionalGeneration" in facts[names[0]]["refused"]
    assert "refused" not in facts[names[1]]
