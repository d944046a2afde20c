"""Pages of models without a row in the tables say why, and say nothing that is not so."""

from __future__ import annotations

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.publish.page_data import gather
from kvreport.site.pages.model.headline import headline, plain
from kvreport.site.pages.model.model_page import context
from kvreport.units import human_tokens

MLX, SHORT, WHOLE = "mlx-community/Qwen3-8B-4bit", "openai/whisper-large-v3", "Qwen/Qwen3.8-2.4T-A95B"


@pytest.fixture(scope="module")
def site():
    return gather(open_catalog(), models=f"{MLX},{SHORT},{WHOLE}", gpus="h100-sxm-80gb", version="test")


def test_a_checkpoint_of_mlx_is_not_said_to_run_nowhere(site):
    said = {model.id: plain(headline(site, model, site.headline[model.id])) for model in site.models}
    assert said[MLX].endswith("a format of MLX, which runs on Macs with Apple silicon.")
    assert said[MLX].startswith(site.engine.label)
    assert said[WHOLE].startswith(f"With {site.engine.label}, no accelerator in the catalog serves ")
    assert "MLX" not in said[WHOLE]


def test_a_limit_is_not_printed_twice_and_no_form_is_promised(site):
    made = {model.id: context(site, model, site.headline[model.id]) for model in site.models}
    limits = {
        name: next((fact.value, fact.note) for fact in one["facts"] if fact.label == "Maximum context")
        for name, one in made.items()
    }
    assert limits[SHORT] == ("448", "tokens")
    assert limits[MLX] == ("40K", "40,960 tokens")
    assert not [link for one in made.values() for link in one["downloads"] if "form above" in link.note]


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (1 << 20, "1M"),
        ((2 << 20) - 1, "2,097,151"),
        (10 << 20, "10M"),
        (83 * 1024 + 5, "84,997"),
        (448, "448"),
    ],
)
def test_a_count_of_tokens_is_never_rounded(tokens, said):
    assert human_tokens(tokens) == said
