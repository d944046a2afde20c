"""What changed with each release of an engine: one answer a release, the same as comparing two releases apart."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.release import dated_releases
from kvreport.estimation.difference import Side, compare
from kvreport.publish import engine_changes
from kvreport.publish.parts import Parts

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
    steps = dated_releases(CATALOG.engines.values(), "vllm")
    for made, (old, new) in zip(engine_changes.changes(site), pairwise(steps), strict=True):
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
