"""Completion, color and the MCP server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from kvreport import estimate
from kvreport.cli import main, output
from kvreport.cli.tools import server


def test_completion_knows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert all(word in script for word in ("estimate", "--tensor-parallel", "diff", "--no-decrease"))
    bash = subprocess.run(
        ["bash", "-n"], input=subprocess.run(
            [sys.executable, "-m", "kvreport", "completion", "bash"], capture_output=True, text=True, check=True
        ).stdout, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert bash.returncode == 0, bash.stderr


@pytest.mark.parametrize(
    ("terminal", "environment", "colored"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_color_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], colored: bool
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    class Stream:
        def isatty(self) -> bool:
            return terminal

    painted = output.paint("fits", "good", Stream())  # type: ignore[arg-type]
    assert (painted != "fits") is colored
    assert "fits" in painted


def test_a_pipe_has_no_color() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    done = subprocess.run(
        [sys.executable, "-m", "kvreport", "estimate", "llama-3.1-8b", "--gpu", "h100"],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert "\x1b" not in done.stdout


def test_an_argument_is_echoed_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "x", "--gpu", "h100", "--nonsense" * 1000]) == 2
    said = capsys.readouterr().err
    assert len(said) < 400


def call(name: str, **arguments: object) -> object:
    result = asyncio.run(server().call_tool(name, arguments))
    content = result.content if hasattr(result, "content") else result[0]
    return json.loads(content[0].text)


def test_mcp_tools_answer_what_the_commands_answer() -> None:
    tools = {tool.name for tool in asyncio.run(server().list_tools())}
    assert tools == {"estimate", "size", "diff", "list_names"}
    found = call("estimate", model="llama-3.1-8b", gpu="h100", context_tokens=8192)
    expected = estimate("llama-3.1-8b", gpu="h100", context_tokens=8192).to_dict()
    assert found == json.loads(json.dumps(expected))
    moved = call("diff", model="openai/gpt-oss-20b", old_engine="vllm-0.10", new_engine="vllm", gpu="h100")
    assert isinstance(moved, dict)
    assert "memory_bytes" in {term["term"] for term in moved["terms"]}


def test_mcp_reads_no_file() -> None:
    with pytest.raises(Exception, match=r"found the path of a file; allowed: a model of the catalog"):
        call("estimate", model="/etc/passwd.json", gpu="h100")
