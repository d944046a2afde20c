"""The report over a checkout of vLLM's recipes: what it calls low, what it says does not start, what it leaves out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml
from huggingface_configs import LLAMA_3_1_8B

from kvreport.catalog.load import open_catalog
from kvreport.catalog.recipes_check import EngineSays, RecipesCheck
from kvreport.resources import data_dir
from kvreport.site.kit.templating import render
from kvreport.site.pages import comparisons, recipes
from scripts.check_recipes import asked, checked

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
PROFILES = {
    "h100": {"gpu_count": 8, "vram_gb": 640, "generation": "hopper", "brand": "NVIDIA"},
    "b200": {"gpu_count": 8, "vram_gb": 1440, "generation": "blackwell", "brand": "NVIDIA"},
    "rtx_5090": {"gpu_count": 1, "vram_gb": 32, "generation": "blackwell", "brand": "NVIDIA"},
}


def recipe(**variants: dict[str, object]) -> dict[str, object]:
    return {
        "meta": {"hardware": {"h100": "verified", "rtx_5090": "supported", "b200": "unsupported"}},
        "model": {"model_id": LLAMA, "base_args": ["--max-model-len 8192"]},
        "variants": variants,
    }


def test_a_checkout_is_checked(tmp_path: Path) -> None:
    (tmp_path / "models" / "org").mkdir(parents=True)
    (tmp_path / "taxonomy.yaml").write_text(yaml.safe_dump({"hardware_profiles": PROFILES}))
    told = recipe(
        default={
            "vram_minimum_gb": 10,
            "hardware_overrides": {"hopper": {"extra_args": ["--max-num-seqs", "8"]}},
        },
        whole={
            "vram_minimum_gb": 17,
            "extra_args": ["--max-model-len 131072"],
            "supported_hardware": ["rtx_5090"],
        },
        stated={"vram_minimum_gb": 600, "tp": {"nvidia": 2}},
        other={"vram_minimum_gb": 5, "model_id": "nobody/nothing"},
    )
    (tmp_path / "models" / "org" / "m.yaml").write_text(yaml.safe_dump(told))
    report = checked(tmp_path, open_catalog())
    (low,) = report["low_minimums"]
    assert (low["recipe"], low["variant"], low["stated_gb"], low["by_the_recipes_rule_gb"]) == (
        "org/m",
        "default",
        10,
        20,
    )
    assert low["short_gb"] == 6.1
    (stop,) = report["commands_that_do_not_start"]
    assert (stop["variant"], stop["hardware"], stop["verdict"]) == ("whole", "rtx_5090", "cache_exceeds_pool")
    assert stop["command"] == f"vllm serve {LLAMA} --max-model-len 8192 --max-model-len 131072"
    assert 0 < stop["longest_context"] < 131072
    assert report["counts"] == {
        "commands": 6, "commands of models that are not in the catalog": 2, "commands that do not start": 1, "commands that start": 3,
        "stated minimums": 3, "variants": 3, "variants of models that are not in the catalog": 1,
    }  # fmt: skip
    assert report["commands_without_numbers"] == [
        {"model": "nobody/nothing", "why": "not in the catalog", "commands": 2}
    ]


def test_every_model_without_numbers_is_listed_with_what_was_tried() -> None:
    """Each command of the recipes that stops at an id names a model of the list of known names, or one of no catalog."""
    check, names = RecipesCheck.read(data_dir()), open_catalog().known_names
    assert check is not None
    assert names is not None
    counted = check.counts["commands of models that are not in the catalog"]
    assert counted == sum(one.commands for one in check.commands_without_numbers)
    assert {one.model for one in check.commands_without_numbers} <= {one.id for one in names.models}


def test_the_kept_report_names_its_commit_and_counts_what_it_lists() -> None:
    report = yaml.safe_load((data_dir() / "recipes_check.yaml").read_text(encoding="utf-8"))
    assert len(report["source"]["commit"]) == 40
    stops = report["commands_that_do_not_start"]
    assert report["counts"]["commands that do not start"] == sum("verdict" in one for one in stops)
    assert all(one["stated_gb"] < one["weights_gb"] for one in report["low_minimums"])


def test_each_claim_is_asked_or_says_why_not(tmp_path: Path) -> None:
    """The engine is a script: one request of its holds a tenth of a large pool, and a small pool holds none."""
    python, configs = tmp_path / "python", tmp_path / "configs"
    configs.mkdir()
    name = LLAMA.replace("/", "--")
    (configs / f"{name}.json").write_text(json.dumps({"config": LLAMA_3_1_8B | {"auto_map": {}}}))
    python.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        "for case in json.load(sys.stdin)['cases']:\n"
        "    small, large = case['pools']\n"
        "    assert 'auto_map' not in case['config']\n"
        "    first = {'pool': small, 'error': 'needed'} if '131072' in case['words'] else {'pool': small, 'blocks': 4}\n"
        "    print(json.dumps({'weight_bytes': 16 * 10**9, 'max_seqs': 8, 'at': [first, {'pool': large, 'concurrency': 10.0}]}))\n"
    )
    python.chmod(0o755)
    stop = {"hardware": "rtx_5090", "command": f"vllm serve {LLAMA} --max-model-len 131072"}
    report = {
        "low_minimums": [{"model": LLAMA}, {"model": "nobody/nothing"}],
        "commands_that_do_not_start": [
            dict(stop),
            stop | {"command": f"vllm serve {LLAMA} --max-model-len 8192"},
            stop | {"hardware": "mi300x"},
        ],
    }
    asked(report, open_catalog(), str(python), configs)
    low, unknown = (one["engine"] for one in report["low_minimums"])
    long, states, other = (one["engine"] for one in report["commands_that_do_not_start"])
    assert low == {"weights_gb": 16.0}
    assert unknown == {"not_asked": "no config.json at hand"}
    assert 80 < long["short_gib_per_gpu"] < 100  # 100 GiB, less the pool of a card of 32
    assert states == {"blocks": 4, "max_seqs": 8}
    assert other == {"not_asked": "no stand-in for this GPU"}


def test_the_page_shows_each_claim_with_the_engine_s_word() -> None:
    check = RecipesCheck.read(data_dir())
    assert check is not None
    html = "".join(render("_table.html", comparisons.URI, {"table": one}) for one in recipes.tables(check))
    for one in (*check.low_minimums, *check.commands_that_do_not_start):
        assert one.recipe in html
    lists = (check.low_minimums, check.commands_that_do_not_start, check.commands_without_numbers)
    assert html.count('<tr><th scope="row">') == sum(map(len, lists))
    assert (
        recipes.said(EngineSays(blocks=804, max_seqs=1024))
        == "804 blocks for states, fewer than 1,024 requests"
    )
    assert recipes.said(EngineSays(could_not="a & b")) == "stopped before it planned: a & b"
