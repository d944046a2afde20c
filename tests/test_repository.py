"""What a forge reads: workflows with least permissions and pinned actions, forms, policies, the action."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvreport import __version__
from kvreport.adapters import scaffold

PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def workflows(repository: Path) -> dict[str, dict[str, Any]]:
    found = {
        path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((repository / ".github/workflows").glob("*.yml"))
    }
    return found | {"init": yaml.safe_load(scaffold._GITHUB)}


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_workflows_may_only_read_unless_a_job_says_otherwise(repository: Path) -> None:
    found = workflows(repository)
    assert set(found) == {
        "follow.yml",
        "nightly.yml",
        "test.yml",
        "pages.yml",
        "release.yml",
        "sync.yml",
        "init",
    }
    for name, workflow in found.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        for job in workflow["jobs"].values():
            writes = {scope for scope, right in (job.get("permissions") or {}).items() if right == "write"}
            runs = [step["run"] for step in job["steps"] if "run" in step]
            if writes - {"id-token", "attestations"}:
                # What may write runs nothing of the repository: it takes finished files.
                assert not any("make" in line or "pip" in line or "python" in line for line in runs), name


def test_every_action_is_a_commit(repository: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (repository / ".github/workflows").glob("*.yml")]
    texts += [scaffold._GITHUB, (repository / "action.yml").read_text(encoding="utf-8")]
    used = [line.strip() for text in texts for line in text.splitlines() if "uses:" in line]
    assert len(used) > 12
    for line in used:
        assert PINNED.search(line), line
        assert re.search(r"# v\d", line), line


def test_no_input_of_an_event_is_part_of_a_shell_line(repository: Path) -> None:
    for name, workflow in workflows(repository).items():
        for step in steps(workflow):
            assert "${{" not in step.get("run", ""), name
    action = yaml.safe_load((repository / "action.yml").read_text(encoding="utf-8"))
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_page_has_its_settings_above_its_text(repository: Path) -> None:
    """Settings that were wrapped like prose became prose, and a question without a reader stopped the build."""
    pages = [page.read_text("utf-8") for page in (repository / "docs").rglob("*.md")]
    settings = [text for text in pages if text.startswith("---")]
    assert len(settings) > 50
    for text in settings:
        found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        assert found, text[:80]
        assert isinstance(yaml.safe_load(found[1])["description"], str), text[:80]


def test_every_declared_python_is_tested(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    declared = set(re.findall(r"Python :: (3\.\d+)", text))
    matrix = workflows(repository)["test.yml"]["jobs"]["test"]["strategy"]["matrix"]
    assert declared <= set(matrix["python"])
    assert {"3.14"} == {entry["python"] for entry in matrix["include"]}
    assert len(matrix["os"]) == 3


def test_forms_ask_for_evidence(repository: Path) -> None:
    folder = repository / ".github/ISSUE_TEMPLATE"
    for name in ("wrong-number.yml", "missing-model.yml"):
        form = yaml.safe_load((folder / name).read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids))
        assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_the_repository_says_how_to_cite_report_and_behave(repository: Path) -> None:
    citation = yaml.safe_load((repository / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == __version__
    assert "not registered" in (repository / "SECURITY.md").read_text(encoding="utf-8")
    for name in ("CODE_OF_CONDUCT.md", ".github/PULL_REQUEST_TEMPLATE.md", ".pre-commit-config.yaml"):
        assert (repository / name).is_file()
    hooks = yaml.safe_load((repository / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {hook["id"] for hook in hooks} == {"kvreport-check", "kvreport-require"}


def test_decisions_are_numbered_and_dated(repository: Path) -> None:
    pages = sorted((repository / "docs/adr").glob("*.md"))
    assert [int(path.name[:4]) for path in pages] == list(range(1, len(pages) + 1))
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert re.search(r"^- Status: (accepted|superseded)", text, re.M), path
        assert re.search(r"^## Decision", text, re.M), path


def run_action(
    repository: Path, folder: Path, monkeypatched: dict[str, str]
) -> tuple[subprocess.CompletedProcess[str], dict[str, str], str]:
    """Run the action's script in a folder; its outputs and its summary come along."""
    command = folder / "bin-of-the-test" / "kvreport"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m kvreport "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", repository / "scripts/action.sh"],
        env={
            "PATH": "/usr/bin:/bin:/usr/local/bin", "PYTHONPATH": str(repository), "KVREPORT": str(command),
            "MODEL": "llama-3.1-8b", "GPU": "H100", "CONTEXT": "8K",
            "GITHUB_OUTPUT": str(folder / "out"), "GITHUB_STEP_SUMMARY": str(folder / "summary"), **monkeypatched,
        },
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    out, summary = folder / "out", folder / "summary"
    lines = out.read_text().splitlines() if out.exists() else []
    return done, dict(line.split("=", 1) for line in lines), summary.read_text() if summary.exists() else ""


@pytest.mark.parametrize(("required", "status"), [("1", 0), ("100000", 3)])
def test_the_action_fails_where_too_few_requests_fit(
    repository: Path, tmp_path: Path, required: str, status: int
) -> None:
    asked = {"REQUIRE": required, "AGAINST": "vllm@0.11.0", "ARGUMENTS": "--kv\nfp8"}
    done, outputs, summary = run_action(repository, tmp_path, asked)
    assert done.returncode == status, done.stderr
    from kvreport import estimate

    fits = estimate("llama-3.1-8b", gpu="h100", context_tokens=8192, kv="fp8").max_concurrent_requests
    assert outputs == {"requests": str(fits), "verdict": "fits"}
    assert "compared" in summary
    assert json.dumps(outputs)


def test_the_action_runs_no_code_of_the_folder_that_it_stands_in(repository: Path, tmp_path: Path) -> None:
    """A pull request that only adds a json.py must not become the job."""
    for name in ("json", "venv", "pip", "sys", "kvreport", "sitecustomize", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write({name!r})\n")
    done, outputs, _ = run_action(repository, tmp_path, {"REQUIRE": "1"})
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 0, done.stderr
    assert outputs["verdict"] == "fits"
    assert int(outputs["requests"]) > 1


@pytest.mark.parametrize(
    "asked",
    [
        {"MODEL": "--help"},
        {"MODEL": "--version"},
        {"MODEL": ""},
        {"ARGUMENTS": "--help"},
        {"ARGUMENTS": "--help", "REQUIRE": "1"},
        {"MODEL": "no-such-model"},
    ],
)
def test_the_action_passes_nothing_without_an_answer(
    repository: Path, tmp_path: Path, asked: dict[str, str]
) -> None:
    done, outputs, _ = run_action(repository, tmp_path, asked)
    assert done.returncode not in (0, 3)
    assert done.stderr
    assert outputs == {}


def test_the_action_installs_locked_packages_away_from_the_callers_files(repository: Path) -> None:
    """Python puts the working directory first on its path, and pip fetches a build backend of its own choice."""
    action = yaml.safe_load((repository / "action.yml").read_text(encoding="utf-8"))
    (install,) = [step for step in action["runs"]["steps"] if "pip install" in step.get("run", "")]
    assert install["working-directory"] == "${{ runner.temp }}"
    scripts = [step.get("run", "") for step in action["runs"]["steps"]]
    scripts.append((repository / "scripts/action.sh").read_text(encoding="utf-8"))
    calls = re.findall(r"\bpython3?\b +(\S+)", "\n".join(scripts))
    assert calls == ["-I"] * 4
    locked, package = [line for line in install["run"].splitlines() if "pip install" in line]
    assert "--require-hashes --no-deps --only-binary :all:" in locked
    assert locked.endswith('requirements/core.txt"')
    assert "--no-deps --no-build-isolation --no-index" in package
