"""Translating the interface: what is found in templates, scripts and modules, and what a translation may do."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from kvreport import resources, words
from kvreport.errors import InputError
from kvreport.translation import messages, package
from kvreport.translation.modules import translate_module
from kvreport.translation.scripts import translate_script
from kvreport.translation.shared import CODE, translate_settings, translate_words
from kvreport.translation.templates import translate_template
from kvreport.translation.text import places


def german(said: dict[str, str], asked: list[str] | None = None):
    def say(message: str, _line: int) -> str | None:
        if asked is not None:
            asked.append(message)
        return said.get(message)

    return say


def test_a_template_keeps_its_code_and_a_sentence_its_links():
    source = (
        "<p>Every model has a <a href=\"{{ link('models/') }}\">page</a>: {{ total | count }} in all.</p>\n"
        '{% if wide %}<td title="Bytes of {{ model.name }}">{{ value }}</td>{% endif %}\n'
    )
    said = {
        "Every model has a <a>page</a>: {total} in all.": "Insgesamt {total}: eine <a>Seite</a> je Modell.",
        "Bytes of {name}": "Bytes von {name}",
    }
    asked: list[str] = []
    made = translate_template(source, german(said, asked))
    assert asked == list(said)
    assert made == (
        "<p>Insgesamt {{ total | count }}: eine <a href=\"{{ link('models/') }}\">Seite</a> je Modell.</p>\n"
        '{% if wide %}<td title="Bytes von {{ model.name }}">{{ value }}</td>{% endif %}\n'
    )


def test_a_script_has_its_labels_translated_and_its_keys_left():
    source = (
        "const row = { weights: 1 };\n"
        'field("weights", "Weights per GPU (GiB)", /* text */ "free");\n'
        '$(`.kv-${name} b`).textContent = `${count(n)} of ${all.length} models${ok ? ", that fit" : ""}`;\n'
        'if (event.key === "Enter" || /"Not a text here"/.test(x)) say("fits \\"well\\" here");\n'
    )
    said = {
        "Weights per GPU (GiB)": "Gewichte je GPU (GiB)",
        "free": "frei",
        ", that fit": ", die passen",
        "{n} of {length} models{ok}": "{length} Modelle, davon {n}{ok}",
        'fits "well" here': "passt `gut` „hier“ \\",
    }
    asked: list[str] = []
    made = translate_script(source, german(said, asked))
    assert sorted(asked) == sorted(said)
    assert made == (
        "const row = { weights: 1 };\n"
        'field("weights", "Gewichte je GPU (GiB)", /* text */ "frei");\n'
        '$(`.kv-${name} b`).textContent = `${all.length} Modelle, davon ${count(n)}${ok ? ", die passen" : ""}`;\n'
        'if (event.key === "Enter" || /"Not a text here"/.test(x)) say("passt `gut` „hier“ \\\\");\n'
    )


def test_a_module_computes_the_same_values_in_another_order():
    source = (
        '"""Not a text of the interface."""\n'
        "def told(n, gpu, *, key='cache_exceeds_pool'):\n"
        "    names = {'Models here': 'All models', 'cache_exceeds_pool': 'too large for it'}\n"
        '    return f"{n:,.1f} requests fit on {gpu!r} ({names[key]})"\n'
    )
    said = {
        "All models": "Alle Modelle",
        "too large for it": "zu groß dafür",
        "{n} requests fit on {gpu} ({key})": "Auf {gpu} ({key}) passen {n}",
        "{n} requests fit on {gpu} ({names})": "Auf {gpu} ({names}) passen {n}",
    }
    made = translate_module(source, german(said))
    space: dict[str, object] = {}
    exec(compile(made, "made", "exec"), space)  # noqa: S102 - our own text
    assert space["told"](1234.5, "H100") == "Auf 'H100' (zu groß dafür) passen 1,234.5"
    assert space["__doc__"] == "Not a text of the interface."


def test_what_has_no_translation_is_left_byte_for_byte():
    for name, path, translate in package.sources():
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            assert json.loads(translate(source, lambda *_: None)) == json.loads(source)
        else:
            assert translate(source, lambda *_: None) == source, name


def test_every_file_in_the_pseudo_language_is_still_one(interface_words):
    from jinja2 import Environment

    changed = 0
    for name, path, translate in package.sources():
        source = path.read_text(encoding="utf-8")
        made = translate(source, lambda message, _line: interface_words.pseudo(message))
        changed += made != source
        if path.suffix == ".py":
            ast.parse(made, name)
        elif path.suffix == ".html":
            Environment(autoescape=True).parse(made)
        elif path.suffix == ".js":
            assert made.count("${") == source.count("${"), name
    assert changed > 100


def test_names_for_programs_in_the_shared_words_stay():
    source = (resources.package_dir() / "words.json").read_text(encoding="utf-8")
    made = json.loads(translate_words(source, lambda message, _line: f"⟦{message}⟧"))
    held = json.loads(source)
    assert {key: made[key] for key in CODE} == {key: held[key] for key in CODE}
    assert made["verdict_labels"]["may_fit"] == "⟦may fit⟧"
    assert made.keys() == held.keys()


def test_settings_of_a_site_are_translated_in_place():
    config = {
        "nav": [{"Home": "index.md"}, {"Learn": ["learn/index.md", {"Glossary": "glossary/index.md"}]}],
        "site_description": "How many users fit",
        "copyright": None,
        "theme": {"palette": [{"toggle": {"name": "Switch to dark mode"}}]},
    }
    translate_settings(
        config, german({"Home": "Start", "Glossary": "Glossar", "Switch to dark mode": "Dunkel"})
    )
    assert config["nav"] == [
        {"Start": "index.md"},
        {"Learn": ["learn/index.md", {"Glossar": "glossary/index.md"}]},
    ]
    assert config["theme"]["palette"][0]["toggle"]["name"] == "Dunkel"


def po(folder: Path, *entries: str, language: str = "de") -> Path:
    head = f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: {language}\\n"\n'
    path = folder / "interface.po"
    path.write_text("\n".join([head, *entries]), encoding="utf-8")
    return path


def test_a_catalog_is_read_and_doubtful_translations_are_not_used(tmp_path):
    path = po(
        tmp_path,
        'msgid "{n} models"\nmsgstr "{n} Modelle"\n',
        '#, fuzzy\nmsgid "Models"\nmsgstr "Muster"\n',
        'msgid "GPUs"\nmsgstr ""\n',
        language="pt_BR",
    )
    found = messages.read(path)
    assert (found.language, found.said) == ("pt-BR", {"{n} models": "{n} Modelle"})


@pytest.mark.parametrize(
    ("message", "translation", "lost"),
    [
        ("{n} models", "Modelle", "none; allowed: n"),
        ("See <a>the page</a>", "Siehe die Seite", "none; allowed: /a, a"),
        ("Models", "{n} Modelle", "n; allowed: none"),
    ],
)
def test_a_translation_that_loses_a_placeholder_is_refused_with_its_line(
    tmp_path, message, translation, lost
):
    path = po(tmp_path, 'msgid "Fine"\nmsgstr "Gut"\n', f'msgid "{message}"\nmsgstr "{translation}"\n')
    with pytest.raises(InputError, match="other placeholders") as caught:
        messages.read(path)
    assert f"{path}:9: " in str(caught.value)
    assert lost in str(caught.value)


def test_a_file_that_is_no_catalog_or_names_no_language_is_refused(tmp_path):
    broken = tmp_path / "broken.po"
    broken.write_text('msgid "a\nnothing', encoding="utf-8")
    with pytest.raises(InputError, match="no catalog of gettext"):
        messages.read(broken)
    with pytest.raises(InputError, match="found no language"):
        messages.read(po(tmp_path, 'msgid "a b"\nmsgstr "c d"\n', language=""))


def test_the_pseudo_language_keeps_what_a_translation_must_keep(interface_words):
    found = interface_words.collect()
    assert len(found.places) > 1900
    for message in found.places:
        said = interface_words.pseudo(message)
        assert places(said) == places(message), message
        assert (said[0], said[-1]) == ("⟦", "⟧")


def test_a_noun_has_the_form_of_its_language(monkeypatch):
    polish = "żądanie|żądania|żądań"
    monkeypatch.setattr(words, "language", lambda: "pl")
    assert [words.counted(n, polish) for n in (1, 3, 5, 22)] == [
        "1 żądanie",
        "3 żądania",
        "5 żądań",
        "22 żądania",
    ]
    assert words.noun_for(1.5, polish) == "żądań"  # a form that is not given falls back to the last
    monkeypatch.setattr(words, "language", lambda: None)
    assert words.counted(1, "request|requests") == "1 request"


def test_a_translated_copy_of_the_package_says_what_it_is(tmp_path):
    said = {"Sizer": "Rechner", "Weight format": "Gewichtsformat"}
    translation = messages.Translation(tmp_path / "x.po", "de", said, {})
    folder = package.translated(translation, tmp_path)
    assert package.translated(translation, tmp_path) == folder
    copy = folder / "kvreport"
    assert "Gewichtsformat" in (copy / "_templates" / "_state.html").read_text(encoding="utf-8")
    assert "Gewichtsformat" in (copy / "_assets" / "kv-explore.js").read_text(encoding="utf-8")
    assert json.loads((copy / resources.ORIGIN).read_text(encoding="utf-8"))["language"] == "de"
    assert "Weight format" in json.loads((folder / package.ASKED).read_text(encoding="utf-8"))
    changed = messages.Translation(tmp_path / "x.po", "de", said | {"Sizer": "Planer"}, {})
    assert package.translated(changed, tmp_path) != folder
