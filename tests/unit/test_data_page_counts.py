"""The data page says which models of the site have no row in its tables, and why."""

from types import SimpleNamespace

from kvreport.catalog.load import open_catalog
from kvreport.site.pages import data


def test_models_without_rows_are_counted_and_explained() -> None:
    """The site listed 643 models next to a Parquet file of 574, without a word."""
    catalog = open_catalog()
    models = [
        catalog.model(name)
        for name in ("meta-llama/Llama-3.1-8B-Instruct", "mlx-community/Llama-3.3-70B-Instruct-4bit")
    ]
    site = SimpleNamespace(
        models=models,
        gpus=[],
        engine=catalog.engine("vllm"),
        release_label="1",
        downloads=SimpleNamespace(rows=1, files=((f"models/{models[0].slug}.parquet", 1),)),
    )
    [found] = [one for one in data._facts(site) if one.label == "Models with rows in the capacity tables"]
    assert found.value == "1"
    assert found.note == "vLLM 0.33 does not run 1 model. The formats of their weights are read by MLX only."
