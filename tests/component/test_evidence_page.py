"""The evidence page prints the validation: every comparison, every exclusion, the same every time."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.peer import PeersFile
from kvreport.catalog.planner_check import OracleCheck, PlannerCheck
from kvreport.errors import CatalogError
from kvreport.evidence.validation import Validation
from kvreport.resources import data_dir
from kvreport.site.kit.links import check
from kvreport.site.kit.page import Page
from kvreport.site.pages import comparisons, every_log
from kvreport.site.pages import evidence_page as validation_page


@pytest.fixture(scope="module")
def found(catalog: Catalog) -> Validation:
    made = validation_page.of(catalog)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def page(catalog: Catalog) -> Page:
    made = validation_page.page(catalog)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def logs(found: Validation, catalog: Catalog) -> Page:
    return every_log.page(found, validation_page.QUANTITIES, catalog)


def section(page: Page, name: str) -> BeautifulSoup:
    return BeautifulSoup(next(part.html for part in page.sections if part.id == name), "html.parser")


def test_every_printed_figure_has_a_row(logs: Page, found: Validation) -> None:
    rows = section(logs, "logs").select("tbody tr")
    assert len(rows) == sum(len(case.comparisons) for case in found.cases)


def test_figures_are_filtered_by_engine_format_and_kind_of_model(logs: Page, found: Validation) -> None:
    """ "Which logs support FP8 models with experts, and how wrong?" had no answer on the page."""
    html = section(logs, "logs")
    wanted = {"engine": "vLLM", "format": "FP8", "layers": "Mixture of experts", "kind": "latent"}
    offered = {
        field["data-facet"]: {chip.get("value") for chip in field.select("button")}
        for field in html.select("fieldset")
    }
    assert all(value in offered[facet] for facet, value in wanted.items())
    chosen = "".join(f'[data-{facet}="{value}"]' for facet, value in wanted.items())
    rows = html.select(f"tr{chosen}")
    assert any("DeepSeek" in row.th.get_text() for row in rows)
    own = [case for case in found.cases if case.observation.id in rows[0].th.get_text()]
    assert own[0].weights == "fp8"
    # The rows that a filter leaves are summed up quantity by quantity.
    assert html.select_one(".kv-index-tools")["data-kv-errors"] in offered


def test_a_copy_is_not_filtered_by_the_format_of_its_release(logs: Page) -> None:
    """Files in Q8_0 and copies in AWQ and NVFP4 stood under FP8, the format of the release that they were made from."""
    rows = section(logs, "logs").select("tbody tr")
    shown = {row.small.get_text(): row["data-format"] for row in rows if row.small}
    named = ("obs-230", "obs-233", "night-006", "brook-016")
    assert [shown[one] for one in named] == ["another copy"] * 4


def test_every_exclusion_is_said(logs: Page, found: Validation) -> None:
    text = section(logs, "excluded").get_text()
    reasons = [reason for case in found.cases for reason in case.excluded]
    assert reasons
    assert all(reason.removeprefix("all: ") in text for reason in reasons)


def test_starts_and_refusals_add_up(page: Page, found: Validation) -> None:
    table = section(page, "errors").select("table")[1]
    cells = [int(cell.get_text()) for cell in table.select("td")]
    assert sum(cells) == sum(count for _, _, count in found.starts)


def test_the_planner_check_is_published_as_it_was_written(page: Page, catalog: Catalog) -> None:
    written = PlannerCheck.read(catalog.folder)
    assert written is not None
    cells = {row.th.get_text(): row.td.get_text() for row in section(page, "planner").select("tbody tr")}
    assert cells["points where both are equal"] == f"{written.equal:,}"
    assert written.near / written.points >= 0.99


def test_a_check_cannot_agree_in_more_points_than_there_are(tmp_path: Path) -> None:
    text = (data_dir() / "planner_check.yaml").read_text()
    (tmp_path / "planner_check.yaml").write_text(text.replace("points: 10000", "points: 9000"))
    with pytest.raises(CatalogError, match="equal <= near <= points"):
        PlannerCheck.read(tmp_path)
    assert PlannerCheck.read(tmp_path / "none") is None


def test_the_published_file_is_the_validation(catalog: Catalog, found: Validation) -> None:
    (content,) = validation_page.files(catalog).values()
    assert json.loads(content) == json.loads(json.dumps(found.to_dict()))


def test_links_within_the_site_lead_to_the_file_the_method_and_models(page: Page, catalog: Catalog) -> None:
    html = page.lead + "".join(part.html for part in page.sections)
    known = {validation_page.FILE, "about/engines/", validation_page.URI, every_log.URI}
    known |= {f"models/{model.slug}/" for model in catalog.models.values()}
    assert list(check(page.uri, html, known)) == []


def test_other_tools_stand_beside_our_own_answer_and_a_missing_one_says_why(
    page: Page, catalog: Catalog
) -> None:
    peers = PeersFile.read(catalog.folder)
    assert peers is not None
    rows = section(page, "peers").select("table")[0].select("tbody tr")
    assert len(rows) == len(peers.cases)
    for row, case in zip(rows, peers.cases, strict=True):
        ours, ceiling, *theirs = (cell.get_text() for cell in row.select("td.kv-num"))
        assert int(ours.replace(",", "")) <= int(ceiling.replace(",", ""))
        assert [text == "–" for text in theirs] == [answer.requests is None for answer in case.answers]
        assert all(answer.note in row.get_text() for answer in case.answers if answer.note)


def test_tools_that_know_no_reserve_are_asked_for_a_pool(page: Page, catalog: Catalog) -> None:
    peers = PeersFile.read(catalog.folder)
    assert peers is not None
    rows = section(page, "peers").select("table")[1].select("tbody tr")
    assert len(rows) == len(peers.pools) == 16
    for row, question in zip(rows, peers.pools, strict=True):
        planner, ours, *theirs = (cell.get_text() for cell in row.find_all("td")[:-1])
        if question.planner is not None:
            assert float(ours.replace(",", "")) == pytest.approx(question.planner, abs=0.006)
            assert float(planner.replace(",", "")) == pytest.approx(question.planner, abs=0.006)
        assert [not text for text in theirs] == [answer.requests is None for answer in question.answers]
    cited = section(page, "peers").select("table")[2].get_text()
    assert all(tool.name in cited for tool in peers.cited)


def test_sglangs_configurators_agree_in_99_of_100_points(page: Page, catalog: Catalog) -> None:
    written = OracleCheck.read(catalog.folder)
    assert written is not None
    assert f"{written.equal:,}" in section(page, "oracle").get_text()
    assert written.points > 5000
    assert written.equal / written.points >= 0.99


def test_an_answer_without_a_number_or_a_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peers.yaml").write_text(
        "schema_version: 1\ndate: '2026-01-01'\ntools: [{key: a, name: A, url: 'https://a.example', how: run}]\n"
        "cases: [{model: a/b, gpu: c, utilization: 0.9, context_tokens: 1, answers: [{tool: a}]}]\n"
    )
    with pytest.raises(CatalogError, match=r"peers\.yaml.*a note that says why"):
        PeersFile.read(tmp_path)


def test_a_logs_own_words_are_escaped(found: Validation, catalog: Catalog) -> None:
    case = next(case for case in found.cases if case.comparisons)
    observation = case.observation.model_copy(update={"model": "<script>alert(1)</script>"})
    made = every_log.page(
        replace(found, cases=(replace(case, observation=observation),)), validation_page.QUANTITIES, catalog
    )
    html = "".join(part.html for part in made.sections)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_catalog_without_observations_has_no_page(catalog: Catalog, tmp_path: Path) -> None:
    for name in ("formats.yaml", "grid.yaml"):
        shutil.copy(catalog.folder / name, tmp_path)
    for name in ("models", "accelerators", "engines"):
        (tmp_path / name).mkdir()
    assert validation_page.page(open_catalog(tmp_path)) is None
    assert validation_page.files(open_catalog(tmp_path)) == {}


def test_other_comparisons_have_a_page_and_keep_their_anchors(page: Page, catalog: Catalog) -> None:
    more = comparisons.page(catalog)
    assert more is not None
    assert [one.id for one in more.sections] == ["classes", "local", "traffic", "recipes"]
    for one in more.sections:
        assert BeautifulSoup(one.html, "html.parser").select("tbody tr")
        assert section(page, one.id).a["href"] == f"comparisons/#{one.id}"


def test_every_tool_has_its_version_and_the_day_it_was_run(page: Page, catalog: Catalog) -> None:
    peers = PeersFile.read(catalog.folder)
    assert peers is not None
    tables = section(page, "peers").select("table")
    rows = {row.th.get_text(): row.get_text() for row in tables[3].select("tbody tr")}
    assert set(rows) == {tool.name for tool in peers.tools}
    assert "2026-11-22" in rows["mlsysim 0.3.0"]
    assert "2026-11-25" in rows["kvfit 0.3.0"]
    assert "from 2026-11-22 to 2026-11-25" in tables[0].get_text()


def test_all_rows_of_the_comparison_have_the_planners_answer_and_ours_equals_it(catalog: Catalog) -> None:
    peers = PeersFile.read(catalog.folder)
    assert peers is not None
    assert len(peers.pools) == 16
    assert all(question.planner is not None for question in peers.pools)
