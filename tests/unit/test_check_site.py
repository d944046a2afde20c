"""The check of a built site: what readers see."""

from __future__ import annotations

import pytest

from scripts import check_site as site_check


def page(lead: str, cells: str = "", more: str = "") -> str:
    heads = "<tr><th>GPU</th><th>Devices</th><th>8K</th></tr>"
    table = f'<table id="users-table">{heads}{cells}</table>'
    return f'<main><nav>None</nav><article><p class="kv-lead">{lead}</p>{table}{more}</article></main>'


ROW = "<tr><th>H100 <small>NVIDIA</small></th><td>1</td><td>54</td></tr>"


def test_a_page_that_agrees_with_itself_has_no_fault():
    lead = "A serves <strong>54 concurrent requests</strong> of 8K tokens each on <strong>one H100</strong>."
    assert list(site_check.faults(page(lead, ROW, "<code>may_fit</code>"))) == []


def test_a_headline_that_differs_from_the_table_is_a_fault():
    (fault,) = site_check.faults(page("A: 45 users at 8K on one H100.", ROW))
    assert fault.startswith("the headline says 45, the table 54")


def test_a_headline_that_denies_what_the_table_has_is_a_fault():
    (fault,) = site_check.faults(page("No accelerator serves A.", ROW))
    assert fault.startswith("the headline says that nothing serves, the table has “H100")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("KV: fp8_ds_mla_v4", "an internal name"),
        ("1 requests fit", "singular"),
        ("None GiB", "a missing value"),
        ("figure }}", "a missing value"),
        ("covers memory.usable", "a field of a record"),
        ("bandwidth bytes per s", "a field of a record"),
        ("0.0 GiB short", "a shortfall of nothing"),
        ("70,272.0 bytes per token", "a tenth of a whole"),
    ],
)
def test_what_no_reader_should_see_is_a_fault(text, what):
    (fault,) = site_check.faults(page("", more=f"<p>{text}</p>"))
    assert f": {what}, in" in fault


CHART = """<figure id="boundary-chart"><svg><text x="1">{count} at 8K</text></svg>
<table><tr><th>GPU</th><th>8K</th></tr><tr><th>{name}</th><td>{cell}</td></tr></table></figure>"""


def test_a_chart_that_agrees_has_no_fault():
    lead = "A serves 54 concurrent requests of 8K tokens each on one H100."
    assert not list(site_check.faults(page(lead, ROW, CHART.format(count="54", name="H100", cell="54"))))
    assert not list(site_check.faults(page(lead, ROW, CHART.format(count="54", name="8 × H100", cell="9"))))


@pytest.mark.parametrize(
    ("chart", "fault"),
    [
        (CHART.format(count="45", name="H200", cell="1"), "the headline says 54, the chart “45 at 8K”"),
        (CHART.format(count="54", name="H100", cell="45"), "the chart of H100 says 45 at 8K, the table 54"),
        (
            CHART.format(count="54", name="1 × H100", cell="5"),
            "the chart of 1 × H100 says 5 at 8K, the table 54",
        ),
    ],
)
def test_a_chart_that_differs_from_headline_or_table_is_a_fault(chart, fault):
    lead = "A serves 54 concurrent requests of 8K tokens each on one H100."
    assert list(site_check.faults(page(lead, ROW, chart))) == [fault]


def test_a_count_of_models_that_differs_from_the_table_is_a_fault():
    lead = "79.1 GiB is usable. A single GPU serves {} of 15 models as released, at 8K tokens per request."
    assert not list(site_check.faults(page(lead.format(1), ROW)))
    (fault,) = site_check.faults(page(lead.format(3), ROW))
    assert fault == "the headline counts 3 models on a single GPU, the table 1"


BAR = """<figure class="kv-figure kv-barfigure"><ul><li>weights <b>15.0 GiB</b></li><li>KV cache <b>{cache} GiB</b></li></ul>
<figcaption>Memory of one GPU with {count} concurrent requests of 8K tokens. A process can use 79.11 GiB, and the engine may take 92% of it.</figcaption></figure>"""
LEAD = "A serves 54 concurrent requests of 8K tokens each on one H100."


def test_a_page_without_a_table_has_its_chart_and_bar_compared():
    lead = f'<article><p class="kv-big">{LEAD}</p>'
    good = f"{lead}{CHART.format(count='54', name='H100', cell='54')}{BAR.format(count=54, cache='64.1')}</article>"
    assert not list(site_check.faults(good))
    compared = [what for what, _ in site_check.comparisons(good)]
    assert compared == ["headline and chart", "headline and bar", "bar and its parts"]
    (fault,) = site_check.faults(f"{lead}{CHART.format(count='53', name='H100', cell='54')}</article>")
    assert fault == "the headline says 54, the chart “53 at 8K”"


@pytest.mark.parametrize(
    ("count", "cache", "fault"),
    [
        (53, "64.1", "the headline says 54 at 8K, the memory bar “Memory of one GPU with 53"),
        (54, "63.1", "the bar's parts are 78.1 GiB of 79.11"),
    ],
)
def test_a_memory_bar_that_differs_is_a_fault(count, cache, fault):
    (found,) = site_check.faults(page(LEAD, ROW, BAR.format(count=count, cache=cache)))
    assert found.startswith(fault)


def test_a_memory_bar_has_the_requests_of_its_data_rank():
    lead = (
        "A serves 352 concurrent requests of 8K tokens each on 8 × H100 (DP 8 attention + expert parallel)."
    )
    assert not list(site_check.faults(page(lead, "", BAR.format(count=44, cache="64.1"))))
    assert list(site_check.faults(page(lead, "", BAR.format(count=352, cache="64.1"))))


def test_the_end_of_an_object_in_a_command_is_no_missing_value():
    command = 'vllm serve m --compilation-config \'{"pass_config":{"fuse_attn_quant":true}}\''
    assert list(site_check.faults(page("", more=f"<p>{command}</p>"))) == []


def test_a_bar_that_a_script_drew_is_compared_as_a_printed_one():
    lead = "A serves <strong>54 concurrent requests</strong> of 8K tokens each on <strong>one H100</strong>."
    printed = BAR.format(count=54, cache="64.1")
    drawn = printed.replace('kv-barfigure">', 'kv-barfigure" data-kv-tools="true">')
    assert drawn != printed
    found = [list(site_check.comparisons(page(lead, ROW, one))) for one in (printed, drawn)]
    assert found[0] == found[1]
    assert "bar and its parts" in {what for what, _ in found[1]}


@pytest.mark.parametrize(
    ("lead", "count"),
    [
        ("Models to run: A (Q4_K_M) for coding; B 2 (Q8_0) for chat and image input.", 0),
        ("Models to run: A (Q4_K_M) for coding; B 2 (Q5_K_M) for chat and image input.", 2),
        ("Models to run: A (Q4_K_M) for coding.", 2),
        ("Models to run: C (Q4_K_M) for coding; B 2 (Q8_0) for chat and image input.", 1),
    ],
)
def test_the_models_that_a_machines_page_begins_with_are_first_of_their_use(lead, count):
    rows = "".join(
        f"<tr><th>{name}</th><td>{use}</td><td>2026</td><td>{mix}</td></tr>"
        for name, use, mix in (
            ("A small", "Coding", "Q4_K_M"),
            ("C", "Coding", "Q4_K_M"),
            ("B 2", "Chat", "Q8_0"),
            ("B 2", "Image input", "Q8_0"),
        )
    )
    heads = "<tr><th>Model</th><th>For</th><th>Released</th><th>Quantization</th></tr>"
    text = f'<main><article><p class="kv-lead">{lead}</p><table>{heads}{rows}</table></article></main>'
    assert len(list(site_check.faults(text))) == count
