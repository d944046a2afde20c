"""The list of seeded faults: each fault can still be put into the code that it names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scripts import seeded_faults as script


def test_every_fault_can_be_put_into_its_file(repository: Path) -> None:
    faults = script.load_faults(repository)
    for fault in faults:
        text = (repository / fault.file).read_text(encoding="utf-8")
        seeded = fault.seeded(text)
        assert seeded != text, fault.id
        if fault.file.endswith(".py"):
            compile(seeded, fault.file, "exec")
    assert len({fault.id for fault in faults}) == len(faults) == 50
    assert set(Counter(fault.kind for fault in faults)) == {
        "sign",
        "off-by-one",
        "constant",
        "dropped",
        "swapped",
    }


def test_a_fault_whose_text_is_gone_or_doubled_is_refused() -> None:
    fault = script.Fault("x", "a.py", "sign", "a - b", "a + b")
    assert fault.seeded("return a - b\n") == "return a + b\n"
    for text in ("return b - a\n", "x = a - b\ny = a - b\n"):
        with pytest.raises(ValueError, match=r"x: found [02] times in a\.py: 'a - b'; allowed: once"):
            fault.seeded(text)


def test_the_lines_of_a_fault_are_those_of_its_statement() -> None:
    text = "C = a - b\n\n\ndef f(a, b):\n    if a:\n        x = (\n            a - b\n        )\n    return a * b\n"
    assert script.Fault("x", "a.py", "sign", "a * b", "a / b").lines(text) == (9,)
    assert script.Fault("x", "a.py", "sign", "            a - b\n", "            a + b\n").lines(text) == (
        6,
        7,
        8,
    )
    assert script.Fault("x", "a.py", "sign", "C = a - b", "C = a + b").lines(text) == ()
    assert script.Fault("x", "a.js", "sign", "a * b", "a / b").lines(text) == ()
