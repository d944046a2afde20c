"""All texts of the interface in one file: what is in it, and that translators' tools can read it."""

from __future__ import annotations

import re


def test_labels_sentences_and_shared_words_are_there(interface_words):
    places = interface_words.collect().places
    for text, file in (
        ("Context per request (tokens)", "templates/_state.html"),
        ("Run in this page", "docs/assets/kv-sql.js"),
        ("Copied", "docs/assets/kvreport.js"),
    ):
        assert any(place.startswith(f"{file}:") for place in places[text]), text
    assert any(place.startswith("kvreport/words.json:") for found in places.values() for place in found)
    assert "use strict" not in places
    assert len(places) > 1000


def literals(source: str) -> list[str]:
    """The strings of a script that read like a sentence or a label of several words; computed values are N."""
    code = re.sub(r"/\*.*?\*/|^\s*//[^\n]*", "", source, flags=re.S | re.M)
    quoted = re.findall(r'"((?:[^"\\\n]|\\.)*)"', code)
    return [
        " ".join(text.split())
        for text in quoted
        if re.match(r"[A-Z“][a-z]+ ?[a-z(]", text) and " " in text and "_" not in text
    ]


def test_no_script_has_a_sentence_that_the_file_lacks(interface_words, repository):
    places = interface_words.collect().places
    known = "\n".join(places)
    found = {
        text: path.name
        for path in sorted((repository / "docs/assets").glob("*.js"))
        for text in literals(path.read_text(encoding="utf-8"))
    }
    assert len(found) > 150
    assert {text: name for text, name in found.items() if text not in known} == {}


def test_a_sentence_that_nobody_declared_would_be_found():
    assert literals('node.append("Nobody declared this");') == ["Nobody declared this"]


def test_the_file_is_one_that_translators_tools_read(interface_words, tmp_path, capsys):
    target = tmp_path / "interface.pot"
    assert interface_words.main([str(target)]) == 0
    assert "texts of" in capsys.readouterr().out
    entries = target.read_text(encoding="utf-8").split("\n\n")
    assert entries[0].startswith('msgid ""\nmsgstr ""')
    assert all(entry.rstrip().endswith('msgstr ""') and "\nmsgid " in entry for entry in entries[1:])
    assert len({entry.split("msgid ", 1)[1] for entry in entries[1:]}) == len(entries) - 1
