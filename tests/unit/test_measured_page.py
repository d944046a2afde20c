"""The page of the experiments: what it says follows from the files, and nothing else."""

from bs4 import BeautifulSoup

from kvreport.catalog.load import open_catalog
from kvreport.catalog.measurement import Measurement
from kvreport.site.kit import figures
from kvreport.site.kit.links import check
from kvreport.site.pages import measured
from kvreport.site.pages.measured import QUESTIONS, answer, failure, verdict


def measurement(device: str = "cpu", readings: list[dict[str, object]] | None = None) -> Measurement:
    plain = {
        "name": f"e1-cache-bytes-{device}",
        "experiment": "e1-cache-bytes",
        "device": device,
        "date": "2026-11-21",
        "machine": {"label": "a <test> machine"},
        "versions": {"torch": "2.13.0"},
        "command": f"python -m experiments run e1 --device {device}",
        "readings": readings or [read(context, 2 * context, 2 * context) for context in (128, 256, 512)],
    }
    return Measurement.model_validate(plain | {"readings": tuple(plain["readings"])})


def read(context: int, measured_bytes: int | None, computed: int | None, **more: object) -> dict[str, object]:
    return {
        "case": "grouped heads",
        "quantity": "cache",
        "unit": "bytes",
        "at": {"context_tokens": context},
        "measured": measured_bytes,
        "computed": computed,
    } | more


def test_every_experiment_asks_a_question():
    names = [question.experiment for question in QUESTIONS]
    assert [name[:2] for name in names] == ["e1", "e2", "e3", "e4", "e5", "e6", "e7"]


def test_an_experiment_without_a_gpu_says_which_command_remains():
    asked = answer(QUESTIONS[0], [measurement("cpu")])
    assert asked["remains"] == "python -m experiments run e1 --device cuda"
    assert [run["command"] for run in asked["runs"]] == ["python -m experiments run e1 --device cpu"]


def test_a_gpus_run_comes_first_and_leaves_nothing_to_run():
    asked = answer(QUESTIONS[0], [measurement("cpu"), measurement("meta"), measurement("cuda")])
    assert [run["file"][-9:-5] for run in asked["runs"]] == ["cuda", "-cpu", "meta"]
    assert asked["remains"] == ""


def test_equal_readings_are_called_equal():
    assert verdict(measurement().readings) == "All 3 readings equal the computed values exactly."


def test_one_reading_that_differs_is_said_with_its_size():
    off = measurement(readings=[read(128, 256, 256), read(256, 640, 512)])
    assert (
        verdict(off.readings)
        == "1 of 2 readings equal the computed values; the largest difference is 25.00%."
    )


def test_a_broken_bound_is_said():
    bounds = [
        read(128, 300, 256, relation="at_most", unit="requests"),
        read(256, 200, 256, relation="at_most", unit="requests"),
    ]
    assert (
        verdict(measurement(readings=bounds).readings)
        == "1 of 2 readings with a computed bound stay within it."
    )


def test_one_reading_is_not_called_all_readings():
    bounds = [read(128, 200, 256, relation="at_most", unit="requests"), read(256, 300, None, relation="none")]
    assert verdict(measurement(readings=bounds).readings) == (
        "The only reading with a computed bound stays within it. 1 reading has no computed value."
    )


def test_a_failure_is_told_in_the_words_of_the_page():
    told = failure("Qwen2.5-7B: decode of 8 at 2048, as it comes: no time left")
    assert told.startswith("Qwen2.5-7B: decode of 8 at 2048, without a CUDA graph: not measured")
    memory = (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of"
    )
    assert failure(f"grouped heads (GQA): {memory}") == (
        "grouped-query (GQA): OutOfMemoryError: CUDA out of memory"
    )


def test_what_nothing_was_computed_for_is_not_counted_as_right():
    alone = [read(128, 300, None, relation="none")]
    assert verdict(measurement(readings=alone).readings) == "1 reading has no computed value."


def test_a_machines_name_is_escaped():
    asked = answer(QUESTIONS[0], [measurement()])
    assert "<test>" not in str(asked["runs"][0]["chart"])
    assert "&lt;test&gt;" in str(asked["runs"][0]["chart"])


def test_a_chart_has_a_line_computed_and_a_ring_for_each_reading():
    chart = BeautifulSoup(str(answer(QUESTIONS[0], [measurement()])["runs"][0]["chart"]), "html.parser")
    drawings = chart.find_all("svg", role="img")
    assert [len(one.find_all("polyline")) for one in drawings] == [1, 1]  # for a desk and for a phone
    assert [len(one.find_all("circle", fill="none")) for one in drawings] == [3, 3]
    assert chart.find("th", string="grouped heads, measured") is not None


def test_rings_stand_where_the_values_are():
    drawn = figures.curves(
        figures.Curves(
            "t", "x", "y", (1, 2, 4), (("a", (1.0, 2.0, 4.0)),), y_log=True, marks=((1.0, 2.0, 4.0),)
        )
    )
    drawings = BeautifulSoup(drawn, "html.parser").find_all("svg", role="img")
    for one in drawings:
        points = one.find("polyline")["points"].split()
        rings = [f"{ring['cx']},{ring['cy']}" for ring in one.find_all("circle")]
        assert rings == points
    assert len(drawings) == 2


def test_the_published_page_links_to_every_raw_file_and_to_nothing_missing():
    catalog = open_catalog()
    page = measured.page(catalog)
    assert page is not None
    files = measured.files(catalog)
    html = page.lead + "".join(section.html for section in page.sections)
    assert list(check(page.uri, html, set(files))) == []
    assert all(name.rpartition("/")[2] in html for name in files)
    on_gpu = {one.experiment for one in measured.measurements(catalog.folder) if one.device == "cuda"}
    waiting = [one for one in QUESTIONS if one.experiment not in on_gpu]
    assert html.count("Not yet measured on a GPU") == len(waiting)


def test_a_catalog_without_measurements_has_no_such_page(tmp_path):
    for name in ("models", "accelerators", "engines"):
        (tmp_path / name).mkdir()
    from kvreport.catalog.load import Catalog

    assert measured.page(Catalog(tmp_path)) is None


def test_a_line_names_its_model_once():
    of = {"model": "meta-llama/Llama-3.1-8B"}
    readings = [
        read(1 << power, 10, 10, **of) | {"at": {"batch": 1 << power}, "case": case}
        for case in ("Llama-3.1-8B, sdpa", "cache by batch, narrowed")
        for power in range(3)
    ]
    asked = next(one for one in QUESTIONS if one.experiment == "e2-batch-memory")
    made = measurement(readings=readings).model_copy(update={"experiment": "e2-batch-memory"})
    chart = BeautifulSoup(str(answer(asked, [made])["runs"][0]["chart"]), "html.parser")
    names = {head.text for head in chart.find_all("th")}
    assert {"Llama-3.1-8B, sdpa, measured", "Llama-3.1-8B, cache by batch, reduced sizes, measured"} <= names


def test_tables_of_two_experiments_on_one_machine_have_two_names():
    """A screen reader listed five regions of one name."""
    names = [
        table.caption
        for question in QUESTIONS[:2]
        for run in answer(question, [measurement().model_copy(update={"experiment": question.experiment})])[
            "runs"
        ]
        for table in (run["summary"], run["readings"])
    ]
    assert len(set(names)) == len(names) == 4
