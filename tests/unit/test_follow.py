"""``make follow``: what a release changed of the functions that rules cite, on two small packages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kvreport.catalog.release import version_number
from kvreport.catalog.shelf import read_yaml
from kvreport.resources import data_dir

RULES = read_yaml(data_dir() / "engines/vllm/rules.yaml", "rules")["rules"]
NEWEST = max((rule["at"]["last"] for rule in RULES if rule.get("at")), key=version_number)
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
LISTED = {"A", "B"}
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
LISTED = {"A"}
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
    for name in ("follow", "follow_planner"):
        sys.modules.pop(name)


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
        ("engine/arg_utils.py", "LISTED", "changed", "-LISTED = {'A', 'B'}"),
        ("v1/worker/gpu_worker.py", "", "changed", "+def moved():"),
    ],
)
def test_a_citation_is_judged_by_what_its_function_does(follow, both, path, name, kind, said) -> None:
    found, text = follow.judged(follow.Citation(path, name, ("a rule",)), *both, "vllm")
    assert found == kind
    assert said in text
    assert "a comment" not in text


def test_a_digest_is_of_what_a_function_does_and_says_which_rule_it_does_not_hold_for(
    follow, both, monkeypatch
) -> None:
    def said(package, name):
        return follow.digest(package, "engine/arg_utils.py", name, "vllm")

    assert said(both[0], "steady") == said(both[1], "steady") != said(both[0], "renamed")
    assert said(both[0], "get_batch_defaults") != said(both[1], "get_batch_defaults")
    assert said(both[1], "moved") == follow.digest(both[0], "engine/arg_utils.py", "", "vllm") == "-"
    read = {"kept": "steady", "parted": "get_batch_defaults", "whole": ""}
    rules = {
        rule: {
            "read": f"engine/arg_utils.py{'::' * bool(name)}{name}",
            "at": {"last": "0.33.0", "digest": [said(both[0], name)]},
        }
        for rule, name in read.items()
    }
    rules["whole"]["at"]["digest"] = ["-"]
    monkeypatch.setattr(follow, "rules_of", lambda _: rules)
    assert follow.held("vllm", both[0]) == ({"kept", "parted"}, set())
    assert follow.held("vllm", both[1]) == ({"kept"}, {"parted"})


def test_digests_of_the_rules_are_those_of_their_citations(follow) -> None:
    for family in follow.INSIDE:
        for name, rule in follow.rules_of(family).items():
            if known := follow.digest_of(rule):
                assert len(known) == len(follow.cited_in(rule["read"])), (family, name)
    text = (data_dir() / "engines/vllm/rules.yaml").read_text(encoding="utf-8")
    assert follow.stamped(text, {}) == text
    made = follow.stamped(text, {RULES[2]["rule"]: ["0123456789ab"]})
    assert made.count('digest: ["0123456789ab"]') == 1
    assert follow.stamped(made, {RULES[2]["rule"]: ["0123456789ab"]}) == made


def test_every_source_of_a_rule_and_a_trait_names_a_function_that_was_read(follow) -> None:
    # Families whose Python can be downloaded; functions of the others were read in a repository.
    packages = {"vllm", "sglang", "transformers"}
    elsewhere = r"start-up logs|tags of the repository|pull requests? \d+|\w+ of each class"
    count = 0
    for path in sorted((data_dir() / "engines").glob("*/rules.yaml")):
        family = path.parent.name
        for name, rule in follow.rules_of(family).items():
            named, count = (family, name, rule["read"]), count + 1
            if not re.search(r"\.(py|cpp|go)\b", rule["read"]):
                assert re.match(elsewhere, rule["read"]), named
                continue
            assert rule.get("at"), named
            assert "::" in rule["read"], named
            if family in packages:
                cited = follow.cited_in(rule["read"])
                assert all(function for _, function in cited), named
                known = follow.digest_of(rule)
                assert len(known) == len(cited), named
                assert "-" not in known, named
    assert count >= 180


def test_every_list_is_followed_and_named_apart_from_a_rule(follow) -> None:
    for family in follow.INSIDE:
        rules = follow.rules_of(family)
        lists = [rule for name, rule in rules.items() if name.startswith("list ")]
        assert all(name for rule in lists for _, name in follow.cited_in(rule["read"]))
        assert sum(bool(follow.digest_of(rule)) for rule in lists) >= 28
    assert {"second_runner", "list second_runner"} <= follow.rules_of("vllm").keys()


def test_points_that_differ_are_counted_by_the_rule_they_rest_on(follow) -> None:
    points = [{"pool": 1, "length": 2}, {"pool": 1, "length": 3}]
    parted = [{"quantity": "blocks", "ours": 7, "engine": 8, "pool": 1, "length": 3}]
    rows = [
        {"id": "a/b", "gpu": "g", "layout": {}, "answer": {"at": points}, "differs": parted},
        {"id": "a/c", "gpu": "g", "layout": {}, "answer": {"error": "no  such\nclass"}, "differs": []},
        {"id": "a/d", "gpu": "g", "layout": {}, "refused": "no"},
    ]
    said = follow.follow_planner.summary(rows)
    assert said[:2] == ["3 models, 3 cases: the engine planned 1.", "Points: 1 of 2 equal."]
    assert (
        "- blocks (bytes of a block and what it holds): 1 points of 1 models, first a/b g {}: 7 for 8" in said
    )
    assert "- 1: no such class" in said


def test_hard_models_are_enough_and_asked_on_three_devices(follow) -> None:
    planner = follow.follow_planner
    assert len([*planner.hard_models(planner.CONFIGS)]) >= 30
    assert len(planner.LAYOUTS) == 3


def test_changed_functions_that_cited_ones_call_are_listed_by_the_words_they_share(
    follow, tmp_path: Path
) -> None:
    worker = """
class Worker:
    def pool(self, free, peak):
        if self.profile_graphs(free): return round_up(free - peak, self.page_bytes)
        return elsewhere(free) + self.name()
    def reserve(self, peak): return round_up(peak, self.page_bytes)
    def profile_graphs(self, free): return free * {graphs}
    def name(self): return {name!r}
    def unused(self): return {graphs}
def round_up(size, page_bytes): return size + {rounded}
"""
    other = "def elsewhere(free): return {graphs}\n"
    further = {f"part_{number}.py": "name = 1\n" for number in range(6)}
    sides = [
        package(
            follow,
            tmp_path / side,
            further | {"worker.py": worker.format(**words), "other.py": other.format(**words)},
        )
        for side, words in (
            ("before", {"graphs": 1, "name": "a", "rounded": "1"}),
            ("after", {"graphs": 2, "name": "b", "rounded": "-size % page_bytes"}),
        )
    ]
    cited = [follow.Citation("worker.py", f"Worker.{name}", ("a_rule",)) for name in ("pool", "reserve")]
    found = follow.called(cited, *sides, "vllm")
    names = [(file.as_posix(), name) for file, name, _ in found]
    # page_bytes is in both cited functions, and in one file alone.
    assert names[0] == ("worker.py", "round_up")
    assert sorted(names[1:]) == [("worker.py", "Worker.name"), ("worker.py", "Worker.profile_graphs")]
    assert "+    return size + -size % page_bytes" in found[0][2]
    assert follow.called(cited, sides[0], sides[0], "vllm") == []


def test_a_rule_read_in_a_library_is_open_where_another_version_is_required(
    follow, both, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {
        "compiled": {"read": "config/a.py::f; PyTorch's scheduler of Inductor"},
        "plain": {"read": "config/a.py::f"},
    }
    monkeypatch.setattr(follow, "rules_of", lambda _: rules)
    for one, torch in zip(both, ("2.13.0", "2.14.0"), strict=True):
        path = one.folder / "vllm-1.dist-info" / "METADATA"
        path.parent.mkdir()
        path.write_text(
            f"Requires-Dist: torch=={torch}\nRequires-Dist: transformers<6,>=5.5; extra == 'x'\nRequires-Dist: regex\n",
            encoding="utf-8",
        )
    assert follow.requirements(both[0]) == {"torch": "==2.13.0", "transformers": "<6,>=5.5"}
    assert follow.required("vllm", *both) == (
        ["- torch ==2.13.0, now ==2.14.0; rules read there: compiled"],
        {"compiled"},
    )
    assert follow.required("vllm", both[0], both[0]) == ([], set())


def test_flags_and_places_are_those_of_the_package(follow, both) -> None:
    before, after = (follow.flags(one, "vllm") for one in both)
    assert (after - before, before - after) == ({"--new-flag"}, {"--old-flag"})
    assert follow.places(both[0]) == ["kv_cache_utils.py:2"]


def test_only_rules_that_nothing_changed_for_are_said_to_be_read_in_the_release(follow) -> None:
    text = (data_dir() / "engines/vllm/rules.yaml").read_text(encoding="utf-8")
    rules = [
        rule["rule"] for rule in follow.read_yaml(data_dir() / "engines/vllm/rules.yaml", "rules")["rules"]
    ]
    steady, last = rules[2], f'last: "{NEWEST}"'
    made = follow.extended(text, "9.9.9", {steady})
    assert made.count('last: "9.9.9"') == 1
    assert made.replace('last: "9.9.9"', last) == text
    assert follow.extended(text, "9.9.9", set()) == text


def test_every_rule_is_followed_however_long_ago_it_was_read(follow) -> None:
    now = {name for name, rule in follow.rules_of("vllm").items() if ".py" in rule["read"]}
    followed = {name for one in follow.citations("vllm") for name in one.by}
    assert "measures_links" in now  # read in 0.22.1 and 0.23.0, and so ever since
    assert now <= followed
