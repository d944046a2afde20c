"""Hold the block planner against a recorded run of vLLM's own planner.

    python scripts/check_planner.py RECORDS.jsonl CONFIGS [--list] [--write]

RECORDS come from ``scripts/run_vllm_planner.py``. One line has ``id``, ``gpu`` (H100, A100, B200), ``tp``, ``dcp``, ``pp``,
``kv_cache_dtype`` (auto or fp8), ``enable_prefix_caching``, ``given_block`` (``--block-size``, or null),
``max_num_batched_tokens``, ``run`` and, under ``per_len`` and ``at``, the blocks, tokens and concurrency that the engine answered
for a pool. CONFIGS is a folder with one JSON file per model: a ``config.json``, alone or under the key ``config``. Each model is
read from its config alone, then planned; the figures are compared point by point. Nothing of a record but the flags goes in.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from kvreport.accounting import capacity
from kvreport.accounting.allocation import plan_blocks
from kvreport.accounting.case import Case
from kvreport.accounting.deployment import lay_out
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.architectures import read_config
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.load import load_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.planner_check import PlannerCheck
from kvreport.errors import InputError
from kvreport.resources import data_dir
from kvreport.units import GIB

ACCELERATORS = {"H100": "h100-sxm-80gb", "A100": "a100-sxm4-80gb", "B200": "b200-sxm-180gb"}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("records", type=Path)
    arguments.add_argument("configs", type=Path)
    arguments.add_argument("--list", action="store_true", help="name every row that differs")
    arguments.add_argument("--write", action="store_true", help="write data/planner_check.yaml")
    given = arguments.parse_args()

    catalog = load_catalog()
    engine = catalog.engine("vllm")
    forms = catalog.weight_formats
    models: dict[str, Model | str] = {}
    points, equal, near, unread = 0, 0, 0, Counter()
    rows = [json.loads(line) for line in given.records.read_text().splitlines()]
    compared = 0
    names: set[str] = set()
    for row in rows:
        if row["id"] not in models:
            models[row["id"]] = _read(given.configs, row["id"])
        model = models[row["id"]]
        if isinstance(model, str):
            unread[f"{row['id']}: {model}"] += 1
            continue
        accelerator = catalog.accelerator(ACCELERATORS[row["gpu"]])
        # Most runs leave the checkpoint's quantisation out, and its declared KV format with it.
        kept = row["run"] == "checkpoint_quantization_kept"
        asked = model if kept else model.model_copy(update={"kv_format": None})
        named = rules(engine).default_kv_format(asked, accelerator)
        if row["kv_cache_dtype"] == "fp8":
            named = "fp8"
        kv_format = catalog.kv_format(named) if named else None
        try:
            block_plan = _plan(model, engine, row, kv_format, accelerator, formats=forms)
        except InputError as error:
            told = [at for length in row["per_len"] for at in length["at"]]
            if all("error" in at for at in told):
                compared, points, equal, near = (
                    compared + 1,
                    points + len(told),
                    equal + len(told),
                    near + len(told),
                )
                continue
            unread[f"{row['id']} tp {row['tp']} {row['kv_cache_dtype']}: {error}"] += 1
            continue
        compared += 1
        names.add(row["id"])
        worst = 0.0
        for length in row["per_len"]:
            for at in length["at"]:
                points += 1
                error = _difference(block_plan, length["max_model_len"], at)
                equal += error == 0
                near += error <= 0.01
                worst = max(worst, error)
        if worst and given.list:
            print(
                f"{row['id']} {row['run']} {row['gpu']} tp{row['tp']} {row['kv_cache_dtype']} "
                f"pp{row.get('pp', 1)} dcp{row['dcp']} worst {worst:.4f}: "
                f"block {block_plan[0].block_bytes} ({block_plan[0].block_tokens} tokens), "
                f"recorded {row['per_len'][0]['at'][-1]}"
            )
    for reason, count in unread.items():
        print(f"not compared ({count} rows): {reason}")
    known = PlannerCheck.read(data_dir())
    if given.write and any(row.get("pp", 1) > 1 for row in rows):
        assert known is not None
        layouts = {
            "layout_models": len(names),
            "layout_rows": compared,
            "layout_points": points,
            "layout_equal": equal,
        }
        _write(known.model_copy(update=layouts))
    elif given.write:
        kept = {} if known is None else known.model_dump()
        found = PlannerCheck(
            engine=f"vLLM {rows[0]['vllm']}",
            models=len(names),
            rows=compared,
            points=points,
            equal=equal,
            near=near,
            left_out_rows=sum(unread.values()),
            **{name: value for name, value in kept.items() if name.startswith("layout_")},
        )
        _write(found)
    print(f"points {points}  equal {equal} ({equal / points:.2%})  within 1% {near} ({near / points:.2%})")


def _write(found: PlannerCheck) -> None:
    lines = [f"{name}: {value}" for name, value in found.model_dump().items()]
    (data_dir() / "planner_check.yaml").write_text("\n".join(lines) + "\n")


def _plan(
    model: Model,
    engine: Engine,
    row: dict,
    kv_format: KvFormat | None,
    accelerator: Accelerator,
    *,
    formats: Mapping[str, WeightFormat],
) -> list[BlockPlan]:
    case = Case(
        model=model,
        engine=engine,
        accelerators=(accelerator,),
        formats=formats,
        serving=Serving(
            max_batched_tokens=row["max_num_batched_tokens"],
            block_tokens=row.get("given_block"),
            prefix_caching=row["enable_prefix_caching"],
        ),
        kv_format=kv_format,
        layout=Layout(tensor=row["tp"], decode_context=row["dcp"], pipeline=row.get("pp", 1)),
        kv_pool_bytes=0,
    )
    if case.layout.pipeline > 1:
        return [rank.plan for rank in lay_out(case).ranks]
    return [plan_blocks(case)]


def _read(folder: Path, model_id: str) -> Model | str:
    path = folder / (model_id.replace("/", "--") + ".json")
    if not path.is_file():
        return "no config"
    content = json.loads(path.read_text())
    config = content.get("config", content)
    try:
        return read_config(config, id=model_id)
    except InputError as error:
        return f"not readable: {error}"


def _difference(plans: list[BlockPlan], context: int, at: dict) -> float:
    """Largest relative difference of blocks, tokens and concurrency; 1 if start and refusal differ.

    Of several pipeline stages the smallest counts, as the engine takes the blocks of the smallest.
    """
    pool = at["gib"] * GIB
    starts = min(int(capacity.users(pool, plan, context)) for plan in plans) >= 1
    if "error" in at:
        return 1.0 if starts else 0.0
    if not starts:
        return 1.0
    found = min(float(capacity.concurrency(pool, plan, context)) for plan in plans)
    pairs = [
        (min(int(capacity.blocks(pool, plan)) for plan in plans), at["num_blocks"]),
        (int(found * context), at["tokens"]),
        (round(found, 6), at["concurrency"]),
    ]
    return max(abs(a - b) / b for a, b in pairs)


if __name__ == "__main__":
    main()
