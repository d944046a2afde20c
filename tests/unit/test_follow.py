"""``make follow``: what a release changed of the functions that rules cite, on two small packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvreport.catalog.release import version_number
from kvreport.catalog.shelf import read_yaml
from kvreport.resources import data_dir

RULES = read_yaml(data_dir() / "engines/vllm/rules.yaml", "rules")["rules"]
NEWEST = max((rule["at"][1] for rule in RULES if rule.get("at")), key=version_number)
BEFORE = {
    "engine/arg_utils.py": '''
class EngineArgs:
    def add_cli_args(parser):
        parser.add_argument("--max-model-len", type=int)
        parser.add_argument("--old-flag")
def get_batch_defaults(memory):
    """Said."""
    # a comment
    if memory >= 160:
        return 16384
    return 8192
def renamed(pool):
    blocks = pool // 16
    return blocks
def moved(): return 1
def steady(pool): return pool - 1
''',
    "v1/core/kv_cache_utils.py": """
logger.info("GPU KV cache size: %s tokens", 1)
""",
    "v1/worker/gpu_worker.py": "def helper(): return 2\n",
}
AFTER = BEFORE | {
    "engine/arg_utils.py": '''
class EngineArgs:
    def add_cli_args(parser):
        parser.add_argument("--max-model-len", type=int)
        parser.add_argument("--new-flag")
def get_batch_defaults(memory):
    """Said in other words."""
    if memory > 160:
        return 16384
    return 8192
def renamed(pool):
    count = pool // 16
    return count
def steady(pool):  # a comment
    return pool - 1
''',
    "v1/worker/gpu_worker.py": "def helper(): return 2\n\n\ndef moved(): return 1\n",
}


@pytest.fixture
def follow(repository: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(repository / "scripts"))
    import follow

    yield follow
    sys.modules.pop("follow")


def package(follow, folder: Path, files: dict[str, str]):
    for name, text in files.items():
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return follow.Package(folder, "2026-11-01")


@pytest.fixture
def both(follow, tmp_path: Path):
    return package(follow, tmp_path / "before", BEFORE), package(follow, tmp_path / "after", AFTER)


@pytest.mark.parametrize(
    ("path", "name", "kind", "said"),
    [
        ("engine/arg_utils.py", "get_batch_defaults", "changed", "+    if memory > 160:"),
        ("engine/arg_utils.py", "renamed", "other words", "+    count = pool // 16"),
        ("arg_utils.py", "steady", "unchanged", ""),
        ("engine/arg_utils.py", "moved", "gone", "the name stands in v1/worker/gpu_worker.py"),
        ("engine/arg_utils.py", "EngineArgs.add_cli_args", "other words", "--new-flag"),
        ("engine/arg_utils.py", "never", "not found", ""),
        ("v1/worker/gpu_worker.py", "", "changed", "+def moved():"),
    ],
)
def test_a_citation_is_judged_by_what_its_function_does(follow, both, path, name, kind, said) -> None:
    found, text = follow.judged(follow.Citation(path, name, ("a rule",)), *both, "vllm")
    assert found == kind
    assert said in text
    assert "a comment" not in text


def test_flags_and_places_are_those_of_the_package(follow, both) -> None:
    before, after = (follow.flags(one, "vllm") for one in both)
    assert (after - before, before - after) == ({"--new-flag"}, {"--old-flag"})
    assert follow.places(both[0]) == ["kv_cache_utils.py:2"]


def test_only_rules_that_nothing_changed_for_are_said_to_be_read_in_the_release(follow) -> None:
    text = (data_dir() / "engines/vllm/rules.yaml").read_text(encoding="utf-8")
    rules = [
        rule["rule"] for rule in follow.read_yaml(data_dir() / "engines/vllm/rules.yaml", "rules")["rules"]
    ]
    steady, last = rules[2], f'"{NEWEST}"]'
    made = follow.extended(text, "9.9.9", {steady})
    assert made.count('"9.9.9"]') == 1
    assert made.replace('"9.9.9"]', last) == text
    assert follow.extended(text, "9.9.9", set()) == text


def test_every_rule_of_the_newest_release_is_followed(follow) -> None:
    now = {
        rule["rule"] for rule in RULES if rule.get("at") and rule["at"][1] == NEWEST and ".py" in rule["read"]
    }
    followed = {name for one in follow.citations("vllm", NEWEST) for name in one.by}
    assert now
    assert now <= followed
