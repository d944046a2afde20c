"""The report's values: links, cells, pictures, series, kept states."""

from __future__ import annotations

import importlib
import re

import pytest

from kvreport.accounting.capacity import Verdict
from kvreport.atomic import write_whole
from kvreport.build_cache import digest, keep, recall
from kvreport.catalog.load import open_catalog
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import cube_of
from kvreport.errors import InputError
from kvreport.publish.series import Series, series, smallest_serving
from kvreport.site.kit import diagrams as pictures
from kvreport.site.kit import links, tables, templating
from kvreport.site.kit.page import link
from kvreport.site.kit.templating import as_text, render


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("models/a--b/", "gpus/h100/#users", "../../gpus/h100/#users"),
        ("", "models/", "models/"),
        ("models/", "models/", "./"),
        ("models/a--b/", "", "../../"),
        ("models/", "assets/vega.js", "../assets/vega.js"),
        ("models/", "compare/?models=a--b", "../compare/?models=a--b"),
        ("models/", "https://example.org/x?y#z", "https://example.org/x?y#z"),
    ],
)
def test_a_link_leads_from_one_page_to_another(source, target, expected):
    assert link(source, target) == expected


@pytest.mark.parametrize(
    ("uri", "target"), [("models/a--b/", "gpus/h100/"), ("", "models/"), ("data/", "data/x.xml")]
)
def test_a_link_is_resolved_to_where_it_leads(uri, target):
    assert links.resolved(uri, link(uri, target)) == target


def test_a_dead_link_is_named_with_its_page():
    html = '<a href="../b/">b</a> <a href="#x">x</a> <a href="https://example.org/">e</a> <img src="c.png">'
    assert list(links.check("a/", html, {"a/", "b/"})) == ["a/: the link to 'c.png' leads nowhere"]


def test_users_are_coloured_by_half_decades():
    # 1, 10 and 100 are two steps apart each.
    assert [tables.step(n) for n in (0, 1, 9, 10, 99, 100, 999, 1000, 10**6)] == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_a_cell_without_a_user_says_why_and_a_tight_one_is_hatched():
    assert tables.users_cell(0, "weights_exceed_memory").text == "weights exceed memory"
    assert tables.users_cell(0, "cache_exceeds_pool").text == "cache exceeds pool"
    assert tables.users_cell(7, "context_exceeds_model").text == "over limit"
    assert tables.users_cell(1234, "fits").text == "1,234"
    assert "kv-tight" in tables.users_cell(2, "tight").css.split()


def test_a_size_keeps_its_bytes_for_the_other_unit():
    cell = tables.size_cell(16_060_522_496)  # 8,030,261,248 parameters of two bytes
    assert (cell.text, cell.value) == ("14.96", 16_060_522_496)


def test_a_bar_is_to_scale_and_leaves_nothing_out():
    gib = 1 << 30
    bar = pictures.bar(
        "x", (("weights", "w", 20 * gib), ("cache", "c", 60 * gib), ("state", "s", 0)), 80 * gib, ""
    )
    assert [(part.css, part.start, part.width) for part in bar.slices] == [
        ("weights", 0, 250),
        ("cache", 250, 750),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", {"cache": 32}),
        (
            "openai/gpt-oss-20b",
            {"cache": 12, "window": 12},
        ),  # every second of 24 layers looks back 128 tokens
        ("Qwen/Qwen3.6-27B", {"cache": 16, "state": 48}),  # one attention layer in four
        ("deepseek-ai/DeepSeek-V3", {"cache": 61}),
    ],
)
def test_the_strip_has_every_layer_in_its_colour(name, expected):
    strip = pictures.strip(open_catalog().model(name))
    found = {shape.css: shape.path.count("M") for shape in strip.shapes}
    assert found == expected
    assert strip.width == 10 * sum(expected.values())
    places = sorted(int(x) for shape in strip.shapes for x in re.findall(r"M(\d+) 0", shape.path))
    assert places == list(range(0, strip.width, 10))


def test_the_strip_names_the_layers_of_each_kind():
    every_fourth = range(3, 64, 4)
    listed = {
        "Qwen/Qwen3.6-27B": {
            "layers " + ", ".join(f"{layer - 3} to {layer - 1}" for layer in every_fourth),
            "layers " + ", ".join(map(str, every_fourth)),
        },
        "deepseek-ai/DeepSeek-V3": {"layers 0 to 60"},
    }
    for name, layers in listed.items():
        titles = [shape.title for shape in pictures.strip(open_catalog().model(name)).shapes]
        assert {title.partition(": ")[2] for title in titles} == layers


def _series() -> list[Series]:
    catalog = open_catalog()
    chosen = axes(
        catalog,
        models="meta-llama/Llama-3.1-70B-Instruct",
        gpus="h100-sxm-80gb",
        weights=["released"],
        kv=["auto"],
    )
    return list(series(cube_of(chosen.models[0], chosen)).values())


def test_a_series_is_the_cube_s_row_and_the_fewest_devices_that_serve_are_found():
    found = _series()
    assert [one.config.tensor_parallel for one in found] == [1, 2, 4, 8]
    assert found[0].verdicts[0] == Verdict.WEIGHTS_EXCEED_MEMORY.label  # 131 GiB on 79 GiB
    best = smallest_serving(found)
    assert best is not None
    # Two devices hold 65.7 GiB of weights each; whether a request of 8K fits beside them is the engine's affair.
    size = best.config.tensor_parallel
    assert size in (2, 4)
    assert not any(one.serves for one in found if one.config.tensor_parallel < size)
    assert best.weight_bytes == pytest.approx(2 * 70_553_706_496 / size, rel=0.001)
    assert best.token_bytes[0] == 327_680 // size  # 80 layers x 8 KV heads x 256 x 2 bytes
    assert all(users > 0 for _, users in best.line())


def test_the_same_state_is_recalled_and_another_is_not(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.yaml").write_text("a: 1", encoding="utf-8")
    first = digest([source], ["numpy"], "x")
    assert digest([source], ["numpy"], "x") == first
    assert digest([source], ["numpy"], "y") != first
    kept = tmp_path / "kept"
    kept.mkdir()
    keep(kept, first, ("value", 1))
    assert recall(kept, first) == ("value", 1)
    (source / "a.yaml").write_text("a: 2", encoding="utf-8")
    assert recall(kept, digest([source], ["numpy"], "x")) is None
    (kept / f"{first}.pickle").write_bytes(b"broken")
    assert recall(kept, first) is None


def test_a_file_is_written_whole_and_left_alone_if_it_is_the_same(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_whole(path, b"one")
    before = path.stat().st_mtime_ns
    write_whole(path, b"one")
    assert path.stat().st_mtime_ns == before
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [one.name for one in path.parent.iterdir()] == ["b.txt"]


def test_text_in_a_template_element_cannot_end_it():
    assert as_text('{"a":"</template><script>&amp;"}') == '{"a":"&lt;/template>&lt;script>&amp;amp;"}'


def test_a_replaced_template_under_its_old_name_is_refused_with_the_new_one(tmp_path):
    (tmp_path / "your_model_body.html").write_text("<p>Old.</p>")
    try:
        with pytest.raises(
            InputError, match=r"found your_model_body\.html, .*; allowed: your_model/body\.html"
        ):
            templating.override(tmp_path)
        (tmp_path / "your_model_body.html").unlink()
        (tmp_path / "model").mkdir()
        (tmp_path / "model/serve.html").write_text("<p>New.</p>")
        templating.override(tmp_path)
        assert render("model/serve.html", "models/a/", {}) == "<p>New.</p>"
    finally:
        templating.override(None)


def test_a_chapter_that_imports_the_old_address_is_told_the_new_one():
    with pytest.raises(ImportError, match=r"change `kvreport\.report` to `kvreport\.book`"):
        importlib.import_module("kvreport.report.chapter")


def test_a_template_escapes_what_it_is_given():
    html = render("moved.html", "models/a/", {"name": '<b>"&', "target": "../c/"})
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
