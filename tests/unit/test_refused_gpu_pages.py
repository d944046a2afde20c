"""Pages of accelerators that the engine does not run on say so in one short sentence, and why in a second one."""

from __future__ import annotations

from kvreport.catalog.load import open_catalog
from kvreport.publish.columns import Columns, places
from kvreport.publish.page_data import gather
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages import gpu_rows
from kvreport.site.pages.model.headline import plain


def test_the_headline_is_short_and_the_reason_stands_below():
    site = gather(open_catalog(), models="Qwen/Qwen3-8B", gpus="tpu-v6e,h100-sxm-80gb", version="test")
    made = {gpu.id: gpu_page.context(site, gpu, gpu_rows.served(site)) for gpu in site.gpus}
    said = plain(made["tpu-v6e"].headline)
    assert said.endswith("does not run on TPU v6e Trillium.")
    assert len(said) < 90
    assert made["tpu-v6e"].conditions.startswith("The release leaves TPUs to the plug-in")
    assert "with its defaults" not in made["tpu-v6e"].conditions
    assert "with its defaults" in made["h100-sxm-80gb"].conditions


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
