"""What README shows of the command line is what the command line prints."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from kvreport.cli import main

README = Path(__file__).parents[2] / "README.md"
SHOWN = re.findall(
    r"```console\n\$ kvreport ([^\n]+)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_every_line_that_is_shown_is_printed(command, output, capsys):
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    for line in output.splitlines():
        if line.strip() not in ("", "…"):
            assert line in printed


def test_the_first_example_is_an_estimate():
    assert SHOWN[0][0].startswith("estimate ")


def test_the_picture_of_readme_has_the_figures_of_its_example():
    draw = runpy.run_path(str(README.parent / "scripts" / "draw_readme.py"))
    assert draw["TARGET"].read_text(encoding="utf-8") == draw["picture"](), "run scripts/draw_readme.py"
    assert f"]({draw['TARGET'].name})" in README.read_text(encoding="utf-8")
