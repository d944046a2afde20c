"""Verdicts on claims; the figures are those of the five publications, worked out by hand."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from kvreport.book.prose import naked
from kvreport.book.quantities import Quantities
from kvreport.catalog.claim import Claim, ClaimReading, ClaimsFile, Publication, Stated, load_claims
from kvreport.catalog.load import open_catalog
from kvreport.errors import CatalogError
from kvreport.evidence.claim_sentences import QUANTITIES, Statement
from kvreport.evidence.claims import ClaimVerdict, judge, ledger, summary, to_json
from kvreport.site.kit.charts import specification
from kvreport.site.pages import claims_ledger as ledger_page

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def quantities():
    return Quantities(open_catalog(DATA))


@pytest.fixture(scope="module")
def entries(quantities):
    return {entry.claim.id: entry for entry in ledger(load_claims(DATA / "claims"), quantities)}


def claim_of(value, unit, *readings, about=False, relation="equals", measured=False):
    made = Claim(
        id="c",
        place="p",
        quote="q",
        stated=Stated(value=value, unit=unit, about=about, relation=relation),
        readings=tuple(
            ClaimReading(role=role, name=name, compute=compute) for role, name, compute in readings
        ),
        measured=measured,
    )
    source = Publication(key="s", title="t", published="p", evidence="unverified")
    return made, ClaimsFile(source=source, claims=(made,))


def verdict_of(quantities, *args, **options):
    return judge(*claim_of(*args, **options), quantities)


def test_an_exact_figure_is_confirmed(quantities):
    found = verdict_of(quantities, "57,344", "bytes", ("stated", "the formula", "2 * 28 * 4 * 128 * 2"))
    assert found.verdict is ClaimVerdict.CONFIRMED
    assert found.ratio == 1


def test_printed_digits_bound_what_is_rounding(quantities):
    assert (
        verdict_of(quantities, "16.06", "GB", ("stated", "w", "16060522496")).verdict is ClaimVerdict.ROUNDED
    )
    assert (
        verdict_of(quantities, "16.1", "GB", ("stated", "w", "16060522496")).verdict is ClaimVerdict.ROUNDED
    )
    assert (
        verdict_of(quantities, "16.2", "GB", ("stated", "w", "16060522496")).verdict
        is ClaimVerdict.CONTRADICTED
    )


def test_gibibytes_called_gigabytes_are_a_unit_slip_and_no_more(quantities):
    found = verdict_of(quantities, "7", "GB", ("stated", "bytes per token × 131,072", "57344 * 131072"))
    assert found.verdict is ClaimVerdict.UNIT_SLIP
    assert "7 GiB" in found.explanation
    assert found.ratio == pytest.approx(7e9 / 7_516_192_768)


def test_a_figure_that_needs_something_unsaid_depends_on_it(quantities):
    found = verdict_of(
        quantities,
        "504",
        "requests",
        ("stated", "all that is left", "593"),
        ("assumption", "only 85% of it is used", "504"),
    )
    assert found.verdict is ClaimVerdict.DEPENDS
    assert found.assumption == "only 85% of it is used"


def test_a_figure_between_fair_readings_depends_on_which_is_meant(quantities):
    found = verdict_of(
        quantities,
        "10",
        "×",
        ("stated", "its own heads", "71"),
        ("assumption", "shared heads", "3.5"),
        about=True,
    )
    assert found.verdict is ClaimVerdict.DEPENDS


def test_a_known_mistake_explains_and_does_not_excuse(quantities):
    found = verdict_of(
        quantities,
        "40",
        "GB",
        ("stated", "FP8", "163840 * 128000"),
        ("cause", "16 bits", "327680 * 128000"),
        about=True,
    )
    assert found.verdict is ClaimVerdict.CONTRADICTED
    assert found.cause == "16 bits"
    assert found.ratio == pytest.approx(40 / 20.97152)


def test_a_contradiction_without_a_cause_says_so(quantities):
    found = verdict_of(quantities, "29", "GB", ("stated", "the product", "15032385536"), about=True)
    assert found.verdict is ClaimVerdict.CONTRADICTED
    assert "Cause not found" in found.explanation


@pytest.mark.parametrize(
    ("relation", "computed", "verdict"),
    [
        ("more_than", "81", ClaimVerdict.CONFIRMED),
        ("more_than", "80", ClaimVerdict.CONTRADICTED),
        ("at_least", "80", ClaimVerdict.CONFIRMED),
        ("at_most", "80", ClaimVerdict.CONFIRMED),
        ("at_most", "81", ClaimVerdict.CONTRADICTED),
        ("less_than", "80", ClaimVerdict.CONTRADICTED),
    ],
)
def test_a_bound_is_held_as_the_words_have_it(quantities, relation, computed, verdict):
    assert verdict_of(quantities, "80", "", ("stated", "r", computed), relation=relation).verdict is verdict


def test_a_measurement_is_only_ever_consistent(quantities):
    found = verdict_of(
        quantities, "719", "ms", ("stated", "bound", "0.0045"), relation="at_most", measured=True
    )
    assert found.verdict is ClaimVerdict.MEASURED


def test_a_cause_cannot_be_the_first_reading():
    with pytest.raises(ValueError, match="first"):
        claim_of("1", "", ("cause", "c", "1"))


# The published ledger ------------------------------------------------------------------------------


def test_the_ledger_holds_five_sources_and_what_2026_says(entries):
    files = {entry.file for entry in entries.values()}
    assert len(entries) > 300
    assert files > {f"source-{n}" for n in range(1, 6)}
    assert files == {path.stem for path in (DATA / "claims").glob("*.yaml")}


# Verdicts worked out by hand from the models' configs.
BY_HAND = {
    "k3-107136": (ClaimVerdict.DEPENDS, 107_136 / 27_648),  # 93 layers of 576 × 2 bytes, where 24 grow
    "us-gemma3": (ClaimVerdict.UNIT_SLIP, 10.41e9 / (10.40625 * 2**30)),
    "us-qwen06-old": (ClaimVerdict.CONTRADICTED, 2.19e9 / (28 * 2 * 8 * 128 * 2 * 40960)),
    "lm-kv": (ClaimVerdict.CONFIRMED, 1),  # 16 layers × 2 × 4 heads × 256 × 2 bytes × 262,144
    "vf-70b-32k": (ClaimVerdict.CONTRADICTED, 4.3e9 / (80 * 2 * 8 * 128 * 2 * 32768)),
    "ch-64": (ClaimVerdict.CONTRADICTED, 8),
    "ap-69": (ClaimVerdict.UNIT_SLIP, 69_000 / (61 * 576 * 2)),
    "s5-oom-share": (ClaimVerdict.CONTRADICTED, 0.90 / 0.92),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_verdict_worked_out_by_hand_is_the_ledgers(entries, name):
    verdict, ratio = BY_HAND[name]
    assert (entries[name].verdict, entries[name].ratio) == (verdict, pytest.approx(ratio, rel=1e-6))


def test_nobody_measured_what_the_source_only_says(entries):
    """Each was labeled a measurement that agrees, with figures that the source's own reason contradicts."""
    assert (
        entries["s5-oom-share"].verdict
        == entries["s5-framework-overhead"].verdict
        == ClaimVerdict.CONTRADICTED
    )


def test_the_guessed_cache_is_found_out_with_its_exact_cause(entries):
    # √(8.03e9 / (12 × 32)) = 4572.9; × 2 × 32 × 2 bytes = 585,331.8 a token; × 2,048 = 1.19876 GB
    entry = entries["s1-b-kv"]
    assert entry.verdict is ClaimVerdict.CONTRADICTED
    assert entry.ratio == pytest.approx(1.20e9 / 268_435_456)
    assert "parameters / (12 × layers)" in entry.cause


def test_every_size_of_the_guess_is_explained_by_it(entries):
    guessed = [e for key, e in entries.items() if re.fullmatch(r"s1-(batch-\d+|b|long)-(kv|total)", key)]
    assert len(guessed) == 18
    assert all(entry.cause for entry in guessed)


def test_a_hybrid_counted_as_full_is_four_times_too_high(entries):
    entry = entries["s3-q-token"]
    assert entry.verdict is ClaimVerdict.CONTRADICTED
    assert entry.ratio == 4


def test_forty_gigabytes_are_twenty_one(entries):
    entry = entries["s2-128000"]
    assert entry.verdict is ClaimVerdict.CONTRADICTED
    assert entry.computed == pytest.approx(20.97152)


def test_the_measured_capacity_table_is_a_formula(entries):
    for tokens in (2048, 8192, 32768, 131072):
        assert entries[f"s5-e3-{tokens}"].verdict is ClaimVerdict.DEPENDS
        assert "85%" in entries[f"s5-e3-{tokens}"].assumption


def test_twenty_nine_gigabytes_are_fifteen(entries):
    assert entries["s5-scores"].computed == pytest.approx(15.032385536)


def test_a_correct_lesson_is_confirmed_throughout(entries):
    verdicts = {entry.verdict for key, entry in entries.items() if key.startswith("s4-")}
    assert verdicts == {ClaimVerdict.CONFIRMED}


def test_the_json_has_the_published_fields(entries):
    records = json.loads(to_json(entries.values()))
    assert len(records) == len(entries)
    for record in records:
        assert list(record) == [
            "id",
            "source",
            "file",
            "statement",
            "stated_value",
            "stated_unit",
            "computed_value",
            "computed_unit",
            "ratio",
            "verdict",
            "explanation",
        ]
        assert record["verdict"] in {verdict.value for verdict in ClaimVerdict}
        assert record["explanation"]
    assert sum(summary(entries.values()).values()) == len(records)


def test_no_verdict_is_written_in_the_data():
    for path in (DATA / "claims").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert "verdict" not in text
        assert "ratio:" not in text


def test_notes_state_no_naked_quantity():
    pages = [
        (claim.id, claim.note)
        for file in load_claims(DATA / "claims")
        for claim in file.claims
        if claim.note is not None
    ]
    assert pages
    assert [str(fault) for fault in naked(pages, [])] == []


def test_one_per_cent_more_changes_verdicts(quantities):
    exact = verdict_of(quantities, "131,072", "bytes", ("stated", "f", 'kv_per_token("llama-3.1-8b")'))
    moved = verdict_of(quantities, "131,072", "bytes", ("stated", "f", '1.01 * kv_per_token("llama-3.1-8b")'))
    assert exact.verdict is ClaimVerdict.CONFIRMED
    assert moved.verdict is ClaimVerdict.CONTRADICTED


# Faults of the data --------------------------------------------------------------------------------

GOOD = """
schema_version: 1
source: {key: one, title: t, published: p, evidence: unverified}
claims:
  - {id: a, place: p, quote: q, stated: {value: "1", unit: GB}, readings: [{name: n, compute: "1"}]}
"""


def test_all_faults_of_claims_files_are_reported_at_once(tmp_path):
    (tmp_path / "one.yaml").write_text(GOOD.replace("quote: q", "qoute: q"), encoding="utf-8")
    (tmp_path / "two.yaml").write_text("{", encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        load_claims(tmp_path)
    text = str(caught.value)
    assert "one.yaml" in text
    assert "qoute" in text
    assert "two.yaml" in text


def test_a_claim_id_is_used_once(tmp_path):
    (tmp_path / "one.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "two.yaml").write_text(GOOD.replace("key: one", "key: two"), encoding="utf-8")
    with pytest.raises(CatalogError, match="an id not used"):
        load_claims(tmp_path)


@pytest.mark.parametrize("bad", ['value: "1 GB"', 'value: "-"', "value: 1"])
def test_a_stated_value_is_a_number_as_text(tmp_path, bad):
    (tmp_path / "one.yaml").write_text(GOOD.replace('value: "1"', bad), encoding="utf-8")
    with pytest.raises(CatalogError, match=r"stated\.value"):
        load_claims(tmp_path)


def test_expressions_that_cannot_be_computed_are_faults_with_the_claims_name(tmp_path, quantities):
    (tmp_path / "one.yaml").write_text(
        GOOD.replace('compute: "1"', 'compute: "nothing(1)"'), encoding="utf-8"
    )
    with pytest.raises(CatalogError, match="nothing") as caught:
        ledger(load_claims(tmp_path), quantities)
    assert caught.value.faults[0].field == "a"


# The page ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ledger_document():
    return ledger_page.page(open_catalog(DATA))


def test_the_page_has_a_row_for_every_claim_with_its_anchor(ledger_document, entries):
    soup = BeautifulSoup("".join(section.html for section in ledger_document.sections), "html.parser")
    assert {row["id"] for row in soup.select("tr[id]")} == set(entries)
    assert soup.select_one("#s1-b-kv .kv-verdict").text == "contradicted"
    numbers = [cell.text for cell in soup.select_one("#s5-e3-2048").select(".kv-num")]
    assert numbers[:2] == ["504\u00a0requests", "593\u00a0requests"]


def test_the_headline_counts_add_up(ledger_document, entries):
    counts = [int(number) for number in re.findall(r"\d+", ledger_document.description)]
    assert counts[0] == len(entries) == sum(counts[1:])


def test_every_cause_leads_to_a_claim(ledger_document, entries):
    causes = next(section for section in ledger_document.sections if section.id == "causes")
    soup = BeautifulSoup(causes.html, "html.parser")
    targets = [a["href"].removeprefix("#") for a in soup.select("td:first-child a")]
    assert targets
    assert set(targets) <= set(entries)
    sources = {a["href"].removeprefix("#") for a in soup.select("td:not(:first-child) a")}
    assert sources <= {section.id for section in ledger_document.sections}
    first = soup.tbody.find("tr")
    assert "parameters / (12 × layers)" in first.text
    assert [cell.text for cell in first.select(".kv-num")] == ["31", "4.47"]
    leading, rest = soup.select("tbody")
    assert len(leading.select("tr")) == 12
    assert rest.find_parent("details") is not None


def test_one_rule_tells_a_unit_slip_from_a_contradiction(entries):
    # The digits of another unit alone are a slip; a second mistake makes it a contradiction.
    assert entries["s3-l2-weights"].verdict == ClaimVerdict.UNIT_SLIP
    assert entries["s2-rag-three-h200"].verdict == ClaimVerdict.CONTRADICTED
    for entry in entries.values():
        if entry.verdict == ClaimVerdict.UNIT_SLIP:
            assert not entry.cause


def test_claims_about_overhead_and_usage_are_in_the_ledger(entries):
    for name in ("s3-kv-usage", "s5-framework-overhead", "s5-oom-share", "s5-flash-activations"):
        assert name in entries


def test_short_publications_share_a_section_and_the_picture_has_every_verdict(ledger_document, entries):
    shared = next(s for s in ledger_document.sections if s.id == ledger_page.SHORT)
    soup = BeautifulSoup(shared.html, "html.parser")
    links = {a["href"] for a in soup.select("tbody a")}
    assert "https://github.com/LMCache/LMCache/pull/4278" in links
    assert "not read again" in soup.select_one("#continuum-2107").text
    chart = ledger_page._picture(list(entries.values()))
    assert specification(chart) == specification(chart, validate=True)
    assert len(chart.data.rows) == len(ClaimVerdict)
    assert {mark.verdict for mark in chart.data.marks} <= set(chart.data.rows)


def test_the_form_has_a_field_for_each_that_a_statement_has_and_runs_where_python_is(ledger_document):
    plain = BeautifulSoup(ledger_document.sections[0].html, "html.parser")
    fields = {field["name"] for field in plain.select("input, select")}
    assert fields == {field.name for field in dataclasses.fields(Statement)} - {"about", "relation"}
    assert [one["value"] for one in plain.select("option[value]")] == list(QUANTITIES)
    assert plain.select_one("button") is None
    runs = ledger_page.page(open_catalog(DATA), runtime_bytes=9_000_000).sections[0].html
    assert 'data-kv-runs="python"' in runs
    assert "9 MB" in runs


def test_a_catalog_without_claims_has_no_ledger(tmp_path):
    shutil.copytree(
        DATA, tmp_path / "data", ignore=shutil.ignore_patterns("claims", "observations", "models")
    )
    (tmp_path / "data" / "models").mkdir()
    assert ledger_page.page(open_catalog(tmp_path / "data")) is None
    assert ledger_page.files(open_catalog(tmp_path / "data")) == {}
