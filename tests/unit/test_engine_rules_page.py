"""The tables of the page about engines: what each release does, out of the rules and the logs."""

from __future__ import annotations

import shutil
from pathlib import Path

from markupsafe import escape
from record_files import observed

from kvreport.catalog.load import Catalog
from kvreport.catalog.release import read_rules
from kvreport.evidence.validation import Compared
from kvreport.resources import data_dir
from kvreport.site.pages import engine_rules
from kvreport.startup_log.start import Comparison

PAGE = "<p>before</p>\n<!-- kv:rules sglang -->\n<!-- kv:ranges vllm -->\n<!-- other -->"


def case(release: str, *, inside: bool | None, **errors: float) -> Compared:
    """A log of a release with some figures compared."""
    (first, *_) = observed()
    compared = tuple(
        Comparison(quantity.replace("_", " "), 1 + error, 1.0, "GiB") for quantity, error in errors.items()
    )
    return Compared(first, "vllm", None, compared, None, None, (), f"vllm {release}", inside)


def test_every_rule_stands_once_with_its_source_and_every_range(tmp_path: Path) -> None:
    shutil.copytree(data_dir() / "engines", tmp_path / "engines")
    html = engine_rules.placed(PAGE, Catalog(tmp_path), "about/engines/")
    assert html.startswith("<p>before</p>")
    assert html.endswith("<!-- other -->")
    assert "kv:" not in html
    rules = read_rules(data_dir(), "sglang")
    assert rules is not None
    for rule in (*rules.rules, *rules.lists, *rules.traits):
        assert html.count(str(escape(rule.what))) == 1, rule.what
        assert str(escape(rule.where)) in html, rule.what
    assert html.count("<tr") == 2 + len(rules.rules) + len(rules.lists) + len(rules.traits) + 9
    assert "every release: DiffusionGemmaForBlockDiffusion, Gemma4ForCausalLM" in html
    assert "before 0.5.18: no; since 0.5.18: yes" in html


def test_a_value_counts_the_logs_of_its_releases_alone() -> None:
    rules = read_rules(data_dir(), "vllm")
    assert rules is not None
    logs = [
        ((0, 19, 1), case("0.19.1", inside=True, weights=0.0)),
        ((0, 20), case("0.20.0", inside=False, weights=0.02, tokens_given_pool=0.005)),
        ((0, 33), case("0.33.0", inside=True)),
        ((0, 33), case("0.33.0", inside=None, weights=-0.009)),
    ]
    told = {row.head.text: [cell.text for cell in row.cells] for row in engine_rules._rows(rules, logs)}
    term, values, _ = told["Default memory share."]
    assert (term, values) == ("defaults", "before 0.20: 0.9 (1 of 1 log); since 0.20: 0.92 (1 of 2 logs)")
    (weights,) = (row for name, row in told.items() if name.startswith("Blocks of 20 MiB"))
    assert weights[1] == "before 0.22: no (1 of 2 logs); since 0.22: yes (1 of 1 log)"
    (packed,) = (values for name, values in told.items() if name.startswith("Method to pack pages"))
    assert (
        packed[1]
        == "before 0.23: tuples (1 of 1 log); from 0.23 until 0.24: buckets (no log); since 0.24: widest (no log)"
    )
