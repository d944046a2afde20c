"""What changed with each release of an engine: one answer a release, the same as comparing two releases apart."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.release import dated_releases
from kvreport.estimation.difference import Side, compare
from kvreport.publish import engine_changes
from kvreport.publish.kept_values import Parts
from kvreport.publish.page_data import gather
from kvreport.site.page_type import Inputs
from kvreport.site.pages import engine_releases

CATALOG = open_catalog()


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "Qwen/Qwen3.6-27B", "deepseek-ai/DeepSeek-V3.2"])
def test_a_step_is_the_comparison_of_its_two_releases(name: str) -> None:
    model, gpu = CATALOG.model(name), "h100-sxm-80gb"
    site = SimpleNamespace(
        known_gpus=(gpu,),
        catalog=CATALOG,
        engine=CATALOG.engine("vllm"),
        models=[model],
        parts=Parts(None),
    )
    steps = [
        pair
        for family in ("vllm", "sglang")
        for pair in pairwise(dated_releases(CATALOG.engines.values(), family))
    ]
    assert {old.family for old, _ in steps} == {"vllm", "sglang"}
    for made, (old, new) in zip(engine_changes.changes(site), steps, strict=True):
        assert (made["family"], made["from"], made["to"]) == (new.family, old.name, new.name)
        found = compare(Side(CATALOG, model, old), Side(CATALOG, model, new), gpu, context_tokens=8192)
        moved = found.old and found.new is not None and found.old != found.new
        wanted = [
            {
                "model": model.id,
                "old": found.old,
                "new": found.new,
                "cause": found.effects[0].term if found.effects else None,
            }
        ]
        assert made["models"] == (wanted if moved else [])


def test_the_page_has_each_step_the_newest_first_with_every_model_that_it_moved() -> None:
    site = gather(
        CATALOG, models="Qwen/Qwen3-32B,Qwen/Qwen3.6-27B", gpus="h100-sxm-80gb", version="2026.11.22"
    )
    [page] = engine_releases.pages(Inputs(site, {}))
    every = [one for one in engine_changes.changes(site) if one["models"]][::-1]
    steps = [one for family in ("vllm", "sglang") for one in every if one["family"] == family]
    assert [section.id for section in page.sections] == [step["to"] for step in steps]
    assert len([step for step in steps if step["family"] == "vllm"]) > 1
    assert len([step for step in steps if step["family"] == "sglang"]) > 1
    assert page.description.startswith("vLLM and SGLang, release by release")
    for section, step in zip(page.sections, steps, strict=True):
        assert section.html.count("<tr") == 1 + len(step["models"])
        for one in step["models"]:
            assert f"{one['old']:,.2f}" in section.html
            assert f"{one['new']:,.2f}" in section.html
