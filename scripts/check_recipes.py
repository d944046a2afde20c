"""Check the memory that vLLM's recipes state, and whether their commands start, by the recorded rules.

python scripts/check_recipes.py CHECKOUT  # write data/recipes_check.yaml from a checkout of github.com/vllm-project/recipes
python scripts/check_recipes.py --ask-engine PYTHON --configs FOLDER  # add what vLLM's own planner says of each claim

A variant's stated minimum (``vram_minimum_gb``) is low where the weights that its checkpoint loads are larger. A command is
rendered for each variant and each kind of GPU that the recipe lists, as its site does for one node: arguments of the model, of
the variant and of the hardware, with as many tensor ranks as the recipe says. Left out are variants whose stated minimum is more
than a node has, which the site says itself. Models that are not in the catalog are counted. ``longest_context`` is the
--max-model-len with which a command would start; 0 where none does.

The engine is asked about the pool that is computed here, on a stand-in for the GPU. FOLDER has <owner>--<model>.json with
``config``; ``config_of`` names the model whose config stands in, which decides the cache and not the weights.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import shlex
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, Final

import yaml

from kvreport.catalog.load import Catalog, load_catalog
from kvreport.cli import parser
from kvreport.cli.query_options import query_values
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB
from kvreport.witness.asking import ask

OUT: Final = Path("data/recipes_check.yaml")
GPUS: Final = {
    "h100": "H100", "h200": "H200", "b200": "B200", "b300": "B300", "gb200": "GB200", "gb300": "GB300", "mi300x": "MI300X", "mi325x": "MI325X",
    "mi355x": "MI355X", "rtx_5090": "RTX 5090", "rtx_5090_2x": "RTX 5090", "rtx_4090_2x": "RTX 4090", "rtx_pro_6000": "rtx-pro-6000",
    "dgx_spark_gb10": "dgx-spark-gb10",
}  # fmt: skip
"""Hardware of the recipes' list (``hardware_profiles`` of ``taxonomy.yaml``) that the catalog has, and its name here."""
STARTS: Final = frozenset({"fits", "tight", "may_fit"})
FAR: Final = 1.01
"""Weights that are called larger than a stated minimum: what is rounded to whole GB is not."""
MARGIN: Final = 1.2
"""What the recipes' own rule adds to the weights (CONTRIBUTING.md: parameters x bytes x 1.2)."""


def keyed(value: Any, hardware: str, profile: dict[str, Any]) -> Any:
    """A value that may differ by hardware, generation or maker."""
    if not isinstance(value, dict):
        return value
    keys = (hardware, profile["generation"], profile["brand"].lower(), "default")
    return next((value[key] for key in keys if key in value), None)


def ranks_of(recipe: dict[str, Any], variant: dict[str, Any], hardware: str, profile: dict[str, Any]) -> int:
    """Tensor ranks as the recipes' site takes them: stated, else one where the stated minimum fits one GPU, else the node."""
    most = profile["gpu_count"]
    strategy = ((recipe.get("strategy_overrides") or {}).get("single_node_tp") or {}).get("tp")
    stated = keyed(variant.get("tp"), hardware, profile) or keyed(strategy, hardware, profile)
    if isinstance(stated, int):
        return min(stated, most)
    least = variant.get("vram_minimum_gb")
    return 1 if least and least <= profile["vram_gb"] / most else most


def commands(recipe: dict[str, Any], profiles: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (variant, hardware, command) of one recipe."""
    model = recipe["model"]
    listed = recipe["meta"].get("hardware") or {}
    for hardware in (
        name for name, state in listed.items() if state in {"verified", "supported"} and name in GPUS
    ):
        profile = profiles[hardware]
        for name, entry in (recipe.get("variants") or {"default": {}}).items():
            variant = entry or {}
            narrow = variant.get("precision") in {"nvfp4", "fp4"} and profile["generation"] != "blackwell"
            smaller = (variant.get("vram_minimum_gb") or 0) > profile[
                "vram_gb"
            ]  # the site says so, and offers more nodes
            if narrow or smaller or hardware not in (variant.get("supported_hardware") or [hardware]):
                continue
            args = [*(model.get("base_args") or []), *(variant.get("extra_args") or [])]
            for one in (recipe, variant):
                args += (keyed(one.get("hardware_overrides"), hardware, profile) or {}).get(
                    "extra_args"
                ) or []
            words = [
                word
                for arg in map(str, args)
                for word in (arg.split(" ", 1) if arg.startswith("-") else [arg])
            ]
            ranks = ranks_of(recipe, variant, hardware, profile)
            stated = {word.partition("=")[0] for word in words} & {"--tensor-parallel-size", "-tp"}
            told = [] if ranks == 1 or stated else ["--tensor-parallel-size", str(ranks)]
            identity = variant.get("model_id") or model["model_id"]
            yield name, hardware, shlex.join(["vllm", "serve", identity, *told, *words])


def answered(command: str, gpu: str, catalog: Catalog) -> tuple[dict[str, Any] | None, str]:
    """The answer of a command, or why there is none."""
    with redirect_stderr(io.StringIO()):
        try:
            options = parser().parse_args(["estimate", command, "--gpu", gpu])
            found = estimate(options.model, catalog=catalog, **(query_values(options) | {"gpu": gpu}))
        except InputError as error:
            return None, " ".join(str(error).split())
        except SystemExit:
            return None, "not a command that is read"
    return found.to_dict(), ""


def checked(folder: Path, catalog: Catalog) -> dict[str, Any]:
    """Check every recipe of a checkout."""
    counts: Counter[str] = Counter()
    without: Counter[tuple[str, str]] = Counter()
    low, stops = [], []
    profiles = yaml.safe_load((folder / "taxonomy.yaml").read_text(encoding="utf-8"))["hardware_profiles"]
    for path in sorted((folder / "models").glob("*/*.yaml")):
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        where = path.relative_to(folder / "models").with_suffix("").as_posix()
        for name, variant in (recipe.get("variants") or {}).items():
            identity = (variant or {}).get("model_id") or recipe["model"]["model_id"]
            stated = (variant or {}).get("vram_minimum_gb")
            try:
                model = catalog.model(identity)
                found = (
                    estimate(identity, gpu="b300-sxm-288gb", context_tokens=2048, catalog=catalog)
                    if stated
                    else None
                )
            except InputError:
                counts["variants of models that are not in the catalog"] += 1
                continue
            counts["variants"] += 1
            if found is None or model.by_name:
                continue
            counts["stated minimums"] += 1
            weights = found.to_dict()["weight_bytes_per_gpu"] / 1e9
            if weights > stated * FAR:
                low.append({
                    "recipe": where, "variant": name, "model": identity, "stated_gb": stated, "weights_gb": round(weights, 1),
                    "short_gb": round(weights - stated, 1), "by_the_recipes_rule_gb": math.ceil(weights * MARGIN),
                })  # fmt: skip
        seen = set()
        for name, hardware, command in commands(recipe, profiles):
            if (command, GPUS[hardware]) in seen:
                continue
            seen.add((command, GPUS[hardware]))
            counts["commands"] += 1
            told, reason = answered(command, GPUS[hardware], catalog)
            if told is None:
                unknown = "model: found" in reason or "draft: model" in reason or "no such file" in reason
                counts[
                    "commands of models that are not in the catalog"
                    if unknown
                    else "commands that are refused"
                ] += 1
                if unknown:
                    without[shlex.split(command)[2], why(reason)] += 1
                else:
                    stops.append(
                        {
                            "recipe": where,
                            "variant": name,
                            "hardware": hardware,
                            "command": command,
                            "reason": reason,
                        }
                    )
            elif told["verdict"] in STARTS:
                counts["commands that start"] += 1
            else:
                counts["commands that do not start"] += 1
                short = told["shortfall_bytes"] or 0
                stops.append({
                    "recipe": where, "variant": name, "hardware": hardware, "command": command, "verdict": told["verdict"],
                    "gpus": told["layout"]["gpus"], "weights_gib_per_gpu": round(told["weight_bytes_per_gpu"] / GIB, 1),
                    "short_gib_per_gpu": round(short / GIB, 1), "longest_context": told["max_context_tokens"],
                })  # fmt: skip
    commit = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], check=False, capture_output=True, text=True
    )
    return {
        "source": {"repository": "https://github.com/vllm-project/recipes", "commit": commit.stdout.strip() or None},
        "checked_with": f"recorded rules of vLLM {catalog.engines['vllm'].version}; no planner was run",
        "counts": dict(sorted(counts.items())), "low_minimums": low, "commands_that_do_not_start": stops,
        "commands_without_numbers": [
            {"model": model, "why": said, "commands": many} for (model, said), many in sorted(without.items())
        ],
    }  # fmt: skip


def why(reason: str) -> str:
    """Say in a few words why a command's model has no numbers, from the sentence that refuses it.

    >>> why(
    ...     "model: found 'a/b', a model of 2B parameters that makes images and keeps no KV cache; allowed: ..."
    ... )
    'no KV cache'
    """
    said = {
        "keeps no KV cache": "no KV cache",
        "in stages": "stages of vLLM-Omni",
        "known by name": "dimensions not published",
    }
    return next((short for long, short in said.items() if long in reason), "not in the catalog")


LARGE: Final = 1000 * GIB
"""A pool that holds a request of any length: bytes of one are its bytes over the requests that it holds."""


def asked(report: dict[str, Any], catalog: Catalog, python: str, configs: Path) -> None:
    """Add ``engine`` to each claim: its weights, its shortfall or its blocks, what it said, or why it was not asked."""
    cases: dict[str, list[tuple[dict[str, Any], dict[str, Any], str | None]]] = {}
    for claim in (*report["low_minimums"], *report["commands_that_do_not_start"]):
        words = shlex.split(claim.get("command", f"vllm serve {claim.get('model')} --max-model-len 2048"))
        gpu = GPUS[claim.get("hardware", "b300")]
        pool = LARGE
        if "command" in claim:
            with redirect_stderr(io.StringIO()):
                options = parser().parse_args(["estimate", claim["command"], "--gpu", gpu])
                found = estimate(options.model, catalog=catalog, **(query_values(options) | {"gpu": gpu}))
            pool = max(found.budget.kv_pool_bytes, 0)
        path = configs / f"{words[2].replace('/', '--')}.json"
        if not path.is_file():
            claim["engine"] = {"not_asked": "no config.json at hand"}
        elif catalog.accelerator(gpu).vendor != "NVIDIA":
            claim["engine"] = {"not_asked": "no stand-in for this GPU"}
        elif "config_of" in (held := json.loads(path.read_text(encoding="utf-8"))) and "command" not in claim:
            claim["engine"] = {"not_asked": "no config.json at hand"}
        else:
            config = {key: value for key, value in held["config"].items() if key != "auto_map"}
            case = {"config": config, "quantizer": held.get("hf_quant_config"), "words": words[3:]}
            case |= {"pools": [pool, LARGE], "lengths": []}
            cases.setdefault(gpu, []).append((claim, case, held.get("config_of")))
    for gpu, asks in cases.items():
        answers = ask(
            python, "vllm", catalog.accelerator(gpu), [case for _, case, _ in asks], seconds=300 * len(asks)
        )
        for (claim, case, config_of), answer in zip(asks, answers, strict=True):
            claim["engine"] = says(answer, case["pools"][0], claim) | (
                {"config_of": config_of} if config_of else {}
            )


def says(answer: dict[str, Any], pool: int, claim: dict[str, Any]) -> dict[str, Any]:
    """What an engine's answer says of a claim."""
    if "error" in answer:
        return {"could_not": textwrap.shorten(answer["error"], 160, placeholder=" …")}
    if "command" not in claim:
        return {"weights_gb": round(answer["weight_bytes"] / 1e9, 1)}
    told, large = answer["at"]
    if "error" in told:
        return {"short_gib_per_gpu": round((LARGE / large["concurrency"] - pool) / GIB, 1)}
    return {"blocks": told["blocks"], "max_seqs": answer["max_seqs"]}


def main() -> int:
    """Write the report."""
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("checkout", type=Path, nargs="?", help="a checkout of the recipes")
    command.add_argument("--ask-engine", metavar="PYTHON", help="an interpreter with vLLM")
    command.add_argument("--configs", type=Path, metavar="FOLDER", help="config files of the models")
    command.add_argument("--out", type=Path, default=OUT, help="file to write")
    given = command.parse_args()
    catalog = load_catalog()
    if given.checkout:
        report = checked(given.checkout, catalog)
    else:
        report = yaml.safe_load(OUT.read_text(encoding="utf-8"))
    if given.ask_engine:
        asked(report, catalog, given.ask_engine, given.configs)
        report["checked_with"] = f"recorded rules and the code of vLLM {catalog.engines['vllm'].version}"
    head = "# Made by scripts/check_recipes.py; GB are 10^9 bytes, GiB 2^30. Facts of the recipes and figures of this program.\n"
    given.out.write_text(head + yaml.safe_dump(report, sort_keys=False, width=160), encoding="utf-8")
    print(
        f"{given.out}: {len(report['low_minimums'])} low minimums, {len(report['commands_that_do_not_start'])} commands do not start"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
