"""The speed section of a model's page: numbers that the roofline gives, drawn where they belong."""

from functools import cache

import pytest
from bs4 import BeautifulSoup

from kvreport import estimate
from kvreport.catalog.load import open_catalog
from kvreport.publish.page_data import gather
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.templating import Names, render
from kvreport.site.pages.model import speed

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@cache
def site() -> SiteData:
    return gather(
        open_catalog(),
        models=MODEL,
        gpus="h100-sxm-80gb",
        version="t",
    )


@cache
def made() -> Names:
    here = site()
    found = speed.context(here, here.models[0], here.headline[here.models[0].id])
    assert found is not None
    return found


def test_one_user_of_llama_8b_on_an_h100_waits_four_and_a_half_milliseconds() -> None:
    # 15.01 GB at 3.35 TB/s (test_roofline.py works it out).
    assert ("4.5 ms", True) in made()["sentence"]


def test_lines_start_together_at_one_user_and_fall() -> None:
    starts = {path.dots[0].x for path in made()["paths"]}
    assert starts == {float(speed.LEFT)}
    for path in made()["paths"]:
        heights = [dot.y for dot in path.dots]
        assert heights == sorted(heights)
        assert all(0 <= dot.x <= speed.WIDTH and 0 <= dot.y <= speed.HEIGHT for dot in path.dots)


def test_the_table_says_that_all_users_together_get_users_times_one() -> None:
    for row in made()["table"].rows:
        users, _, each, together, *_ = (cell.value for cell in row.cells)
        assert users is not None
        assert each is not None
        assert together == pytest.approx(users * each)


def test_the_section_is_one_figure_with_its_data() -> None:
    page = BeautifulSoup(
        render("model/speed.html", "models/x/", {**made(), "example": "one H100"}), "html5lib"
    )
    assert len(page.select("figure svg.kv-speed path:not(.kv-gridline)")) == len(made()["paths"]) == 4
    assert len(page.select("table tbody tr")) == 4
    assert "shows the default example of this page (one H100)" in page.get_text()
    assert page.select_one("[role=img]")["aria-label"]  # type: ignore[index]


def test_a_model_that_nothing_holds_has_no_section() -> None:
    assert speed.context(site(), site().models[0], None) is None


def test_a_step_has_the_bound_of_the_command_line() -> None:
    """The table rounded it to the nearest digit, and the explanation below it down: 21.8 and 21.7 ms."""
    (row,) = [row for row in made()["table"].rows if row.head.text == "8K"]
    bound = estimate(MODEL, gpu="h100-sxm-80gb", context_tokens="8K").decode_ms_lower_bound
    assert row.cells[1].text == f"{bound:.1f}"
