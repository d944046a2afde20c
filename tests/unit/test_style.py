"""The language of pages and labels: the command that checks it, and what it finds in this repository."""

from __future__ import annotations

import pytest

from scripts import check_style as style


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The matrix is computed anew.", "“anew”: again, from scratch"),
        ("A stack of like-built storeys.", "“storeys”: layers"),
        ("A request that was thrown out waits.", "“thrown out”: preempted, evicted"),
        ("Remembers by", "“Remembers by”: Attention type"),
        ("What a quantised cache buys.", "“quantised”: American spelling, quantiz…"),
        ("The catalogue has it.", "“catalogue”: American spelling, catalog…"),
        ("1 requests of 8K fit.", "“1 requests”: singular"),
        ("one; two; three.", "a chain of semicolons: one; two; three.…"),
        (" ".join(["word"] * 31) + ".", "a sentence of 31 words: " + ("word " * 12) + "…"),
    ],
)
def test_a_fault_is_found(text, fault):
    assert fault in list(style.faults(text))


@pytest.mark.parametrize(
    "text",
    [
        "For 64 concurrent requests: 3 × B200.",
        "11 requests, 0.1 requests, 1 request.",
        "Besides, stretching is another word, and so is parallelism.",
        "First sentence; with a clause. " + "word " * 15 + "ends. " + "Word " * 15 + "ends.",
    ],
)
def test_good_prose_has_none(text):
    assert list(style.faults(text)) == []


def test_code_addresses_and_computed_values_are_not_prose():
    text = "See `catalog:` in [the page](quantised-cache.md), {{ 3 anew = f() }}.\n\n```\nanew\n```\n"
    assert [piece.text for piece in style.markdown(text)] == ["See code in the page, N."]


def test_text_is_found_where_it_stands():
    found = list(style.chapter("# %% [markdown]\n# # Title\n#\n# Made anew.\n# %%\nx = 'anew and again'\n"))
    assert found == [(2, "Title"), (4, "Made anew.")]
    assert list(style.python('"""Anew and again."""\nA = f"made {1} anew"\nB = "kv-no kv-why"\n')) == [
        (2, "made N anew")
    ]
    assert list(style.javascript('// anew "not this"\nsay(`made ${n} anew`);\n')) == [(2, "made N anew")]
    assert [t.text for t in style.html('<p title="A hint">One <b>two</b></p><svg><text>x</text></svg>')] == [
        "A hint",
        "One two",
    ]


def test_a_field_needs_a_label_and_help():
    found = [fault.message for fault in style.labels('<label>on <select name="gpu"></select></label>')]
    assert found == [
        "label “on”: sentence case, a noun with its unit",
        "label “on”: the field needs help text (aria-describedby)",
    ]
    assert not list(style.labels('<label>GPU <input name="gpu" aria-describedby="gpu-help"></label>'))


def test_settings_and_strings_of_code_are_not_prose():
    long = "The config leaves out some values, so the defaults are used: " + ", ".join(
        f"text_config.key_{n} = {n}" for n in range(20)
    )
    assert next(iter(style.markdown(long))).text.endswith("code, code, code")
    assert not style.is_prose("cff-version: 1.2.0\nmessage: If you use these figures, please cite them")
