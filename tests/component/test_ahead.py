"""Values of models that other processes compute are those that the build asks for, under the keys it asks by."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kvreport.catalog.load import Catalog, open_catalog
from kvreport.publish import (
    engine_changes,
    engine_profiles,
    home_layouts,
    precompute,
    profiles,
    question_data,
    sizer_data,
)
from kvreport.publish.kept_values import Collected, Parts
from kvreport.publish.page_data import facts_alone, gather
from kvreport.publish.site_data import SiteData

MODELS = "meta-llama/Llama-3.1-8B-Instruct,openai/gpt-oss-20b,deepseek-ai/DeepSeek-V3,BAAI/bge-m3"
GPUS = "h100-sxm-80gb,mi300x,rtx-4090"


@pytest.fixture(scope="module")
def read() -> Catalog:
    return open_catalog()


def asked_for(read: Catalog) -> precompute.ModelInputs:
    return precompute.ModelInputs(read.folder, MODELS, GPUS, "test", "a state")


def facts(read: Catalog, parts: Parts) -> SiteData:
    return facts_alone(read, models=MODELS, gpus=GPUS, version="test", parts=parts)


def built(read: Catalog, parts: Parts) -> None:
    """Ask for everything that a build asks of its models."""
    site = gather(read, models=MODELS, gpus=GPUS, version="test", parts=parts)
    assert site.capacities
    profiles.every_model(site)
    sizer_data.every_model(site)
    list(engine_profiles.files(site))
    list(question_data.files(site))
    list(engine_changes.files(site))


def written(values: object) -> bytes:
    return pickle.dumps(values, protocol=5)


def test_what_is_computed_ahead_is_what_a_build_asks_for(read: Catalog) -> None:
    asked = asked_for(read)
    work = precompute._work(read, asked)
    early = {
        name: dict(values) for name, values in work.at(range(len(facts(read, Parts(None)).models))).items()
    }
    parts = Collected(asked.state)
    built(read, parts)
    late = parts.taken()
    assert {name: set(values) for name, values in early.items()} == {
        name: set(values) for name, values in late.items()
    }
    assert len(early) == 9 + len(profiles.ENGINES)
    for name, values in early.items():
        for key, value in values.items():
            assert written(value) == written(late[name][key]), name


def test_another_process_computes_its_share_and_the_build_computes_nothing_again(
    read: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompute, "_FEW", 1)
    monkeypatch.setattr(precompute, "_TOGETHER", 1)
    monkeypatch.setattr(precompute, "available_processors", lambda: 2)
    asked = asked_for(read)
    parts = Parts(tmp_path / "parts", asked.state)
    precompute.compute(facts(read, parts), MODELS, GPUS)

    def computed(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    for module, name in (
        (profiles, "model_facts"),
        (sizer_data, "times_facts"),
        (engine_profiles, "_contents"),
        (engine_profiles, "_rates"),
        (question_data, "model_facts"),
        (home_layouts, "at_home"),
        (engine_changes, "_of_model"),
    ):
        monkeypatch.setattr(module, name, computed)
    built(read, parts)
    # What is kept is not computed in the next build either.
    monkeypatch.setattr(precompute, "_there", computed)
    precompute.compute(facts(read, Parts(tmp_path / "parts", asked.state)), MODELS, GPUS)


def test_few_models_are_left_to_the_build(read: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompute, "available_processors", lambda: 2)
    parts = Parts(None, "a state")
    precompute.compute(facts(read, parts), MODELS, GPUS)
    assert not parts._ahead
