"""Templates that decide a kept page: exactly those that it can use."""

from pathlib import Path

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.publish.page_data import gather
from kvreport.site.kit import drawing, templating
from kvreport.site.page_type import Inputs
from kvreport.site.pages import machines_at_home
from kvreport.site.pages.model import model_page


@pytest.fixture(autouse=True)
def package_templates():
    templating.override(None)
    yield
    templating.override(None)


def test_the_state_is_that_of_the_named_folders_and_of_the_shared_templates(tmp_path: Path) -> None:
    def state() -> str:
        templating.override(tmp_path)
        return templating.state(["model"])

    before = state()
    for name, decides in (("gpu/memory.html", False), ("model/serve.html", True), ("_table.html", True)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("other", encoding="utf-8")
        assert (state() != before) is decides, name
        before = state()
        path.write_text("another", encoding="utf-8")
        assert (state() != before) is decides, name
        before = state()


def test_a_models_page_uses_templates_of_the_folders_that_decide_it_and_no_others(tmp_path: Path) -> None:
    site = gather(
        open_catalog(),
        models="meta-llama/Llama-3.1-8B-Instruct,deepseek-ai/DeepSeek-V3",
        gpus="h100-sxm-80gb,b200-sxm-180gb,rtx-4090",
        version="2026.11.22",
    )
    drawings = drawing.begin(model_page.requests(site), tmp_path)
    templating.environment.cache_clear()
    assert len(list(model_page.pages(Inputs(site, drawings)))) >= 2
    used = {str(name) for _, name in templating.environment().cache}
    assert used
    shared = {name for name in used if "/" not in name}
    assert {name.partition("/")[0] for name in used - shared} <= set(model_page.TEMPLATES)


def test_a_local_page_uses_templates_of_the_folders_that_decide_it_and_no_others() -> None:
    site = gather(
        open_catalog(), models="meta-llama/Llama-3.1-8B-Instruct", gpus="rtx-4090", version="2026.11.22"
    )
    templating.environment.cache_clear()
    assert len(list(machines_at_home.pages(Inputs(site, {})))) > 2
    used = {str(name) for _, name in templating.environment().cache}
    folders = {name.partition("/")[0] for name in used if "/" in name}
    assert folders == set(machines_at_home.TEMPLATES)
