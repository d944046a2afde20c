"""``make follow``: what a release changed of the functions that rules cite, on two small packages."""

from __future__ import annotations

import json
import re
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from kvreport.catalog.release import version_number
from kvreport.catalog.strict_files import read_yaml
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
    for name in ("follow", "follow_planner", "follow_ranking", "follow_sources", "follow_witness"):
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
            if known := follow.stated_digest(rule):
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
                known = follow.stated_digest(rule)
                assert len(known) == len(cited), named
                assert "-" not in known, named
    assert count >= 180


def test_every_list_is_followed_and_named_apart_from_a_rule(follow) -> None:
    for family in follow.PARSERS:
        rules = follow.rules_of(family)
        lists = [rule for name, rule in rules.items() if name.startswith("list ")]
        assert all(name for rule in lists for _, name in follow.cited_in(rule["read"]))
        assert sum(bool(follow.stated_digest(rule)) for rule in lists) >= 28
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


def test_numbers_of_a_config_in_json_stay_numbers(follow, tmp_path: Path) -> None:
    planner = follow.follow_planner
    name, config = next(iter(planner.hard_models(planner.CONFIGS)))
    stem = name.replace("/", "--")
    (tmp_path / f"{stem}.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-05}), encoding="utf-8")
    [(read, told)] = planner.hard_models(tmp_path)
    assert (read, told["rms_norm_eps"]) == (name, 1e-05)


def test_hard_models_are_enough_and_asked_on_three_devices(follow) -> None:
    planner = follow.follow_planner
    assert len([*planner.hard_models(planner.CONFIGS)]) >= 30
    assert len(planner.LAYOUTS) == 3


WORKER = """
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


def pair(follow, folder: Path, **files: str):
    """Two packages with files that differ in what stands in braces."""
    return [
        package(
            follow,
            folder / side,
            {name.replace("__", "/"): text.format(**words) for name, text in files.items()},
        )
        for side, words in (
            ("before", {"graphs": 1, "name": "a", "rounded": "1"}),
            ("after", {"graphs": 2, "name": "b", "rounded": "-size % page_bytes"}),
        )
    ]


def read_in(follow, sides, *names: str):
    """What is to be read if one rule cites functions of the first file."""
    cited = [follow.Citation("worker.py", name, ("a_rule",)) for name in names]
    return follow.to_read({one: follow.judged(one, *sides, "vllm") for one in cited}, *sides, "vllm")


def test_changed_functions_that_no_rule_cites_are_listed_by_what_changed(follow, tmp_path: Path) -> None:
    files = {f"part_{number}": "name = 1\n" for number in range(6)}
    files = {f"{name}.py": text for name, text in files.items()}
    sides = pair(
        follow,
        tmp_path,
        **{"worker.py": WORKER, "other.py": "def elsewhere(free): return {graphs}\n"},
        **files,
    )
    found = read_in(follow, sides, "Worker.pool", "Worker.reserve")
    assert found.cited == []  # neither changed
    names = [(change.path, change.name) for _, change in found.others]
    # Cited functions call both. page_bytes is in both of these and in one file alone.
    assert {*names[:2]} == {("worker.py", "round_up"), ("worker.py", "Worker.profile_graphs")}
    assert ("worker.py", "Worker.pool") not in names
    assert "size % page_bytes" in found.others[names.index(("worker.py", "round_up"))][1].after
    assert read_in(follow, [sides[0], sides[0]], "Worker.pool").others == []


def test_a_rule_in_a_file_that_no_rule_cites_is_found_by_its_topic(follow, tmp_path: Path) -> None:
    renamed = "".join(f"def use_{number}(a): return call_{{graphs}}(a)\n" for number in range(80))
    spec = "def get_kv_cache_spec(self): return MambaSpec(num_blocks={graphs}, page_size={graphs})\n"
    constant = "class Backend:\n    dtype = 'fp8_{name}'\n"
    sides = pair(
        follow,
        tmp_path,
        **{"worker.py": WORKER, "calls.py": renamed, "mixer.py": spec, "backend.py": constant},
    )
    found = read_in(follow, sides, "Worker.profile_graphs")
    assert [one.name for one in found.cited] == ["Worker.profile_graphs"]
    topics = {(change.path, change.name): topic for topic, change in found.others}
    assert topics["mixer.py", "get_kv_cache_spec"] == "plans"
    assert topics["backend.py", "Backend"] == "formats"
    assert len(found.cited) + len(found.others) <= follow.MOST
    assert not any(path == "calls.py" for path, _ in topics)  # a renaming of 80 functions says nothing


def test_functions_that_compare_devices_otherwise_are_named_with_the_lines(follow, tmp_path: Path) -> None:
    checks = (
        "def is_supported(capability):\n    if capability is not None and capability {sign} 89:\n        return False\n"
        "def kept(capability): return capability >= 90, {sign!r}\n"
    )
    sides = [
        package(
            follow,
            tmp_path / side,
            {"worker.py": WORKER.format(graphs=1, name="a", rounded=1), "kernel.py": text},
        )
        for side, text in (("before", checks.format(sign=">=")), ("after", checks.format(sign=">")))
    ]
    found = follow.device_checks(follow.changes(*sides, "vllm"))
    (one, lines), *further = [(one.name, lines) for one, lines in found if one.name == "is_supported"]
    assert lines == [
        "-if capability is not None and capability >= 89:",
        "+if capability is not None and capability > 89:",
    ]
    assert not further
    read = read_in(follow, sides, "Worker.pool")
    named = {change.name for _, change in read.others} | {change.name for change, _ in read.devices}
    assert one in named


def test_a_kernel_that_a_file_binds_for_one_kind_of_device_is_named(follow, tmp_path: Path) -> None:
    """SGLang 0.5.20 takes another kernel on gfx950 in a file's statements; the functions that call it are not cited."""
    bound = "_is_hip = is_hip()\n_kernel = None\nif _is_hip:\n    from .amd import fast, fits\n    if fits():\n        _kernel = fast\n"
    sides = [
        package(follow, tmp_path / side, {"worker.py": WORKER.format(graphs=1, name="a", rounded=1)} | more)
        for side, more in (
            ("before", {"model.py": "_is_hip = is_hip()\n"}),
            ("after", {"model.py": bound, "new.py": bound}),
        )
    ]
    found = {one.path: lines for one, lines in follow.device_checks(follow.changes(*sides, "vllm"))}
    assert found == {"model.py": ["+_kernel = fast, if _is_hip"]}
    assert follow.device_checks(follow.changes(sides[1], sides[1], "vllm")) == []


def test_no_more_than_thirty_functions_are_to_be_read_and_none_that_only_moved(
    follow, tmp_path: Path
) -> None:
    many = "".join(
        f"def part_{number}(pool_{number}): return pool_{number} // {{graphs}}{number}\n"
        for number in range(60)
    )
    moved = "def moved(pool): return pool - 16\n"
    before = package(follow, tmp_path / "before", {"worker.py": many.format(graphs=1) + moved})
    after = package(follow, tmp_path / "after", {"worker.py": many.format(graphs=2), "new.py": moved})
    sides = (before, after)
    cited = [follow.Citation("worker.py", f"part_{number}", ("a_rule",)) for number in range(40)]
    cited.append(follow.Citation("worker.py", "moved", ("a_rule",)))
    judged = {one: follow.judged(one, *sides, "vllm") for one in cited}
    assert judged[cited[-1]] == ("gone", "the name stands in new.py with the same source")
    found = follow.to_read(judged, *sides, "vllm")
    assert len(found.cited) == follow.CITED
    assert len(found.cited) + len(found.others) == follow.MOST
    assert "moved" not in {one.name for one in found.cited}
    # Few others leave their places to what rules cite.
    cited += [follow.Citation("worker.py", f"part_{number}", ("a_rule",)) for number in range(40, 60)]
    found = follow.to_read({one: follow.judged(one, *sides, "vllm") for one in cited}, *sides, "vllm")
    assert (len(found.cited), len(found.others)) == (29, 1)
    assert found.devices == []


CPP = """
#include "x.h"
namespace {
// a comment with a { brace
const std::map<arch, const char *> NAMES = {
    { LLM_ARCH_ONE, "one{" },
};
}
struct pool { int blocks; };
pool::pool(int n) : blocks{n}, other(0) {
    if (n > 16) { blocks = pad(n, SIZE); }
}
static int helper(
        int a) {
    return a; /* COMMENT */
}
"""


def test_functions_of_c_are_read_by_their_text(follow, tmp_path: Path) -> None:
    sides = []
    for side, size, comment in (("before", "32", "a"), ("after", "64", "b")):
        path = tmp_path / side / "src" / "kv-cache.cpp"
        path.parent.mkdir(parents=True)
        path.write_text(CPP.replace("SIZE", size).replace("COMMENT", comment), encoding="utf-8")
        sides.append(follow.Package(tmp_path / side, ""))
    kinds = {
        name: follow.judged(follow.Citation("src/kv-cache.cpp", name, ("a rule",)), *sides, "")
        for name in ("NAMES", "pool", "pool::pool", "pool.pool", "helper", "none")
    }
    assert {name: kind for name, (kind, _) in kinds.items()} == {
        "NAMES": "unchanged", "pool": "unchanged", "pool::pool": "changed", "pool.pool": "changed",
        "helper": "unchanged", "none": "not found",
    }  # fmt: skip
    assert "+if (n > 16) { blocks = pad(n, 64); }" in kinds["pool::pool"][1]
    digests = [follow.digest(one, "src/kv-cache.cpp", "pool::pool", "") for one in sides]
    assert len({*digests}) == 2
    assert follow.digest(sides[0], "src/kv-cache.cpp", "helper", "") != "-"
    assert follow.cited_in("src/llama-kv-cache.cpp::pool::pool, x; a/b.py::F.g, before c.py::h") == [
        ("src/llama-kv-cache.cpp", "pool::pool"),
        ("a/b.py", "F.g"),
    ]


LLAMA = {
    "src/llama-arch.cpp": 'static const std::map<a, b> LLM_ARCH_NAMES = {\n    { LLM_ARCH_ONE, "one" },\n};\n',
    "src/llama-kv-cache.cpp": "llama_kv_cache::llama_kv_cache(int n) {\n    size = n;\n}\n",
    "conversion/one.py": '@ModelBase.register("OneForCausalLM", "OneModel")\nclass One: pass\n',
    "common/arg.cpp": 'void f() {\n    add_opt(common_arg(\n        {"-c", "--ctx-size"}, "N", "words", [](int n) {}));\n}\n',
}


def llama(folder: Path, **further: str) -> Path:
    """The sources of a small llama.cpp, as an archive has them below a folder."""
    for name, text in {**LLAMA, **further}.items():
        path = folder / "llama.cpp-b9900" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_the_scheduled_workflow_follows_every_engine(follow, repository: Path) -> None:
    text = (repository / ".github" / "workflows" / "follow.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    for job in workflow["jobs"].values():
        engines = job["strategy"]["matrix"]["engine"]
        assert {follow.NAMES.get(name, name) for name in engines} == {*follow.INSIDE}


def test_an_archive_whose_files_all_have_one_time_states_no_day(follow, tmp_path: Path, capsys) -> None:
    """The source archive of llama-cpp-python 0.3.36 gives all 1,257 files the same day of 2022."""
    source = llama(tmp_path / "source")
    for day, said in (
        (None, "# llama_cpp b1, compared"),
        (1_785_542_400, "# llama_cpp b1, built 2026-08-01, comp"),
    ):
        archive = tmp_path / f"{day}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            for number, path in enumerate(sorted(one for one in source.rglob("*") if one.is_file())):
                member = tar.gettarinfo(str(path), f"llama_cpp_python-1/{path.relative_to(source)}")
                member.mtime = 1_668_000_000 if day is None else day - number
                with path.open("rb") as content:
                    tar.addfile(member, content)
        words = ["llama.cpp", "b1", "--source", str(archive), "--since-source", str(source)]
        assert follow.main([*words, "--packages", str(tmp_path / "packages")]) == 0
        assert capsys.readouterr().out.startswith(said)


def test_llama_cpp_is_followed_from_a_folder_and_from_an_archive(follow, tmp_path: Path, capsys) -> None:
    old = llama(tmp_path / "old")
    new = llama(
        tmp_path / "new",
        **{
            "src/llama-kv-cache.cpp": LLAMA["src/llama-kv-cache.cpp"].replace("= n", "= 2 * n"),
            "src/llama-arch.cpp": LLAMA["src/llama-arch.cpp"].replace(
                "};", '    { LLM_ARCH_TWO, "two" },\n};'
            ),
            "conversion/two.py": '@ModelBase.register("TwoForCausalLM")\nclass Two: pass\n',
            "common/arg.cpp": LLAMA["common/arg.cpp"].replace("--ctx-size", "--context"),
        },
    )
    archive = tmp_path / "new.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(new, "llama_cpp_python-1")
    for source in (new, archive):
        words = ["llama.cpp", "b9900", "--source", str(source), "--since-source", str(old)]
        assert follow.main([*words, "--packages", str(tmp_path / "packages")]) == 0
        said = capsys.readouterr().out
        assert "## src/llama-kv-cache.cpp::llama_kv_cache::llama_kv_cache: changed" in said
        assert "Cited by caches_as_now, allocates_at_start." in said
        assert "+size = 2 * n;" in said
        assert "## Flags\n\nNew (1): --context.\nGone (1): --ctx-size." in said
        assert "## Model classes (3)\n\nNew (1): TwoForCausalLM.\nGone (0): none." in said
        assert "## GGUF architectures (2)\n\nNew (1): two." in said
    with pytest.raises(SystemExit, match="no such folder or archive"):
        follow.main(["llama.cpp", "b1", "--source", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match=r"found no src/llama-arch\.cpp"):
        follow.main(
            [
                "llama.cpp",
                "b1",
                "--source",
                str(tmp_path / "packages" / "..") + "/old/llama.cpp-b9900/conversion",
            ]
        )


def test_mlx_and_transformers_are_followed_with_classes_and_flags(
    follow, tmp_path: Path, monkeypatch
) -> None:
    auto = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([('llama', 'LlamaForCausalLM')])\n"
    for release, further in (("0.32.1", ""), ("0.32.2", "gpt2")):
        folder = tmp_path / f"mlx-{release}"
        files = {
            "mlx_lm/models/llama.py": "class Model: pass\n",
            "mlx_lm/models/cache.py": f"class KVCache:\n    step = {256 if further else 128}\n",
            "mlx_lm/utils.py": "MODEL_REMAPPING = {}\n",
            "mlx_lm/server.py": f"parser.add_argument('--model{further}')\n",
            f"mlx_lm-{release}.dist-info/METADATA": f"Requires-Dist: mlx>={release}\n",
            "unpacked": "2026-11-01",
        }
        if further:
            files[f"mlx_lm/models/{further}.py"] = "class Model: pass\n"
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    types = tmp_path / f"transformers-{follow.was_read('transformers')[-1]}"
    (types / "transformers/models/auto").mkdir(parents=True)
    (types / "transformers/models/auto/modeling_auto.py").write_text(auto, encoding="utf-8")
    (types / "unpacked").write_text("2026-11-01", encoding="utf-8")
    monkeypatch.setattr(follow.read_engine_classes, "_CLASSES", {})
    old, new = (follow.bring("mlx", release, tmp_path) for release in ("0.32.1", "0.32.2"))
    lines, _ = follow.report("mlx", "0.32.2", "0.32.1", old, new, tmp_path)
    said = "\n".join(lines)
    assert "## models/cache.py::KVCache: changed\n\nCited by mlx.py:1." in said
    assert "+    step = 256" in said
    assert "- mlx >=0.32.1, now >=0.32.2" in said
    assert "New (1): --modelgpt2.\nGone (1): --model." in said
    assert "## Model classes" in said
    assert "Gone" in said
    assert follow.newest_read("transformers", "99.0") == follow.was_read("transformers")[-1]
    assert follow.newest_read("llama_cpp", "b9900") == ""


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


def test_variables_of_the_environment_are_compared_with_their_defaults(
    follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = "environment_variables = {{'VLLM_USE_A': lambda: os.getenv('VLLM_USE_A', '{}'), 'VLLM_KEPT': None, '{}': 1}}\n"
    sides = [
        package(follow, tmp_path / side, {"envs.py": envs.format(default, name)})
        for side, default, name in (("before", "0", "VLLM_OLD"), ("after", "1", "VLLM_NEW"))
    ]
    monkeypatch.setattr(follow, "served", lambda *_: [])
    said = "\n".join(follow.report("vllm", "9.9.9", "9.9.8", *sides)[0])
    assert (
        "- VLLM_USE_A: `lambda: os.getenv('VLLM_USE_A', '0')`, now `lambda: os.getenv('VLLM_USE_A', '1')`"
        in said
    )
    assert "## Variables of the environment\n\nNew (1): VLLM_NEW.\nGone (1): VLLM_OLD." in said
    environ = "class Envs:\n    SGLANG_USE_A = EnvBool(False)\n    other = 1\n"
    path = tmp_path / "sglang" / "srt" / "environ.py"
    path.parent.mkdir(parents=True)
    path.write_text(environ, encoding="utf-8")
    assert follow.variables(follow.Package(tmp_path, ""), "sglang") == {"SGLANG_USE_A": "EnvBool(False)"}


def test_a_function_that_read_a_variable_which_is_gone_is_listed_first(follow, tmp_path: Path) -> None:
    platform = "def update(config):\n    if {}: config.captures = False\n"
    sides = [
        package(
            follow,
            tmp_path / side,
            {
                "worker.py": WORKER.format(graphs=graphs, name="a", rounded=1),
                "platform.py": platform.format(f"not envs.VLLM_CAPTURE and {kept}" if graphs == 1 else kept),
                "further.py": f"def other(): return envs.VLLM_KEPT, {graphs}\n",
            },
        )
        for side, graphs, kept in (("before", 1, "envs.VLLM_KEPT"), ("after", 2, "config.device"))
    ]
    found = read_in(follow, sides, "Worker.pool")
    assert [(topic, one.name) for topic, one in found.others if topic == "settings"] == [
        ("settings", "update")
    ]
    assert found.others[0][1].name == "update"


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
    assert all(one.path.endswith(".py") for one in follow.citations("vllm"))  # no headers of libraries
    assert "measures_links" in now  # read in 0.22.1 and 0.23.0, and so ever since
    assert now <= followed
