"""Parts of the generated formulas: each has what the scripts of its page read, and no script is forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvreport.publish import browser
from kvreport.words import SENTENCES


def scripts_beside(repository: Path, core: str) -> set[str]:
    """The scripts that a page loads together with a part of the formulas."""
    source = (repository / "docs/assets/kvreport.js").read_text(encoding="utf-8")
    parts = re.search(r"const PARTS = \[(.*?)\n  \];", source, re.DOTALL)
    assert parts
    entries = re.split(r"\n    \[", parts[1])
    answers = re.search(r"const ANSWERS = (scriptsOf.*);", source)
    assert answers
    full = [
        one.replace("...STATE", '"kv-core-page.js", ...ANSWERS').replace("...ANSWERS", answers[1])
        for one in entries
    ]
    own = [entry for entry in full if re.search(rf"\b{core}(\.js)?\b(?!-)", entry)]
    assert own
    listed = re.findall(r'"(kv-[\w-]+\.js)"', "".join(own))
    short = " ".join(re.findall(r'scriptsOf\("([^"]+)"\)', "".join(own))).split()
    return {*listed, *(f"kv-{name}.js" for name in short)}


@pytest.mark.parametrize(
    ("address", "core"),
    [
        ("assets/kv-core.js", "kv-core"),
        ("assets/kv-core-sizer.js", "kv-core-sizer"),
        ("assets/kv-core-page.js", "core-page"),
        ("assets/kv-core-lists.js", "core-lists"),
    ],
)
def test_a_part_is_made_for_every_script_of_its_page(repository: Path, address: str, core: str) -> None:
    page = scripts_beside(repository, core) - {Path(address).name}
    assert len(page) > 2
    assert page <= set(browser.CORES[address])


@pytest.mark.parametrize("address", browser.CORES)
def test_a_part_adds_to_what_is_there_and_is_smaller(address: str) -> None:
    part, whole = browser.core_script(address), browser.script()
    assert len(part) < len(whole)
    assert "...before" in part
    assert "...before" not in whole


@pytest.mark.parametrize("address", browser.CORES)
def test_a_part_has_every_function_that_its_scripts_call(repository: Path, address: str) -> None:
    """A call that the layout of a script breaks before its dot was forgotten, and a page had no answer."""
    folder = repository / "docs" / "assets"
    read = "\n".join((folder / name).read_text(encoding="utf-8") for name in browser.CORES[address])
    every = set(re.findall(r"function (\w+)\(", browser.script()))
    called = set(re.findall(r"\bkernel\s*\.\s*(\w+)\s*\(", read)) & every
    assert len(called) > 10
    part = set(re.findall(r"function (\w+)\(", browser.core_script(address)))
    assert called <= part, called - part


@pytest.mark.parametrize("address", browser.CORES)
def test_a_part_has_the_sentences_that_its_scripts_name_and_no_other_page_s(
    repository: Path, address: str
) -> None:
    folder = repository / "docs" / "assets"
    read = "\n".join((folder / name).read_text(encoding="utf-8") for name in browser.CORES[address])
    named = {one or other for one, other in re.findall(r'words\.sentences\.(\w+)|\bsay\("(\w+)"', read)}
    part = browser.core_script(address)
    assert [name for name in sorted(named & SENTENCES.keys()) if f'"{name}":"' not in part] == []
    assert '"log_passed":' not in part
