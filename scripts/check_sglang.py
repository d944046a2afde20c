"""Hold SGLang's pools against a recorded run of its own configurators.

    python scripts/check_sglang.py RECORDS.jsonl [RECORDS.jsonl ...] [--configs CONFIGS] [--list] [--write]

RECORDS come from ``scripts/run_sglang_planner.py``. Models are those of the catalog, and others are read from
their config in CONFIGS, the folder that the run was made with; nothing of a record but its flags, its storage
type and the context goes in. Compared are the tokens of the full pool and of
the window pool, the states and the requests at once, for a budget of 40 GiB, and the share of memory, the
prefill chunk, the largest captured batch and the page that the flags resolve to. Each record is held against
the rules of its own release.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang import plan, settings
from kvreport.accounting.engines.sglang.pools import PoolFlags, RankPools, pool_rule, pools_of
from kvreport.accounting.extras import with_draft
from kvreport.accounting.parallel import Layout
from kvreport.accounting.stages import partition_of, stages
from kvreport.architectures import read_config
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import load_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.planner_check import OracleCheck, PlannerDifference, ReleaseCheck
from kvreport.catalog.release import engine_for_version, trait
from kvreport.errors import InputError
from kvreport.resources import data_dir
from kvreport.units import GIB

BUDGET_BYTES = 40 * GIB
ABSENT = "no record and no config of its own class"
NO_CLASS = "a class that the engine does not have"
DEFAULTS = "a config of class defaults"
OTHER_CLASS = "another class than the record's"
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float8_e5m2": 1, "float8_e4m3fn": 1}


def main() -> None:
    """Compare, print, and write what was found if asked to."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("records", type=Path, nargs="+")
    arguments.add_argument(
        "--configs", type=Path, help="folder with the configs of models that are in no record"
    )
    arguments.add_argument("--list", action="store_true", help="name every point that differs")
    arguments.add_argument("--write", action="store_true", help="write data/planner_check_sglang.yaml")
    given = arguments.parse_args()
    catalog = load_catalog()
    engines = catalog.engines.values()
    models = {model.id: model for model in catalog.models.values()}
    counts: Counter[str] = Counter()
    releases: dict[str, Counter[str]] = {}
    unlike: dict[str, set[str]] = {}
    names, gpus, read = set(), set(), set()
    for path in given.records:
        for row in map(json.loads, path.read_text().splitlines()):
            model = models.get(row["id"])
            reason = _left_out(row, model)
            if reason == ABSENT and given.configs is not None:
                model = _read(given.configs, row["id"])
                reason = _left_out(row, model)
                if reason is None:
                    read.add(row["id"])
            if reason or model is None:
                counts[reason or ABSENT] += 1
                continue
            draft = row["flags"].get("speculative_draft_model_path")
            if draft is not None:
                model = _with_draft(model, given.configs, draft)
            names.add(row["id"])
            gpus.add(row["gpu"])
            release = releases.setdefault(row["sglang"], Counter())
            release["points"] += 1
            engine = engine_for_version(engines, "sglang", row["sglang"]) or catalog.engine("sglang")
            found = _found(
                model, rules(engine).at_release(row["sglang"]), catalog.accelerator(row["gpu"]), row
            )
            release["equal"] += found is None
            if found is not None:
                quantities = re.findall(r"(\w+) \S+ for", found)
                unlike.setdefault(row["id"], set()).update(quantities or [found])
                counts[f"differs: {row['id']}"] += 1
                if given.list:
                    print(f"{row['id']} {row['sglang']} {row['gpu']} {row['flags']}: {found}")
    points = sum(release["points"] for release in releases.values())
    equal = sum(release["equal"] for release in releases.values())
    print(f"points {points}, equal {equal} ({equal / max(points, 1):.2%})", dict(counts))
    for name, release in sorted(releases.items()):
        print(f"  SGLang {name}: {release['equal']} of {release['points']}")
    if given.write:
        check = OracleCheck(
            engine=f"SGLang {', '.join(sorted(releases))}",
            day=datetime.now(UTC).date().isoformat(),
            models=len(names),
            accelerators=tuple(sorted(gpus)),
            points=points,
            equal=equal,
            refused_by_engine=counts["refused by the engine"],
            other_classes=sum(counts[reason] for reason in (OTHER_CLASS, ABSENT, NO_CLASS, DEFAULTS)),
            models_by_config=len(read),
            releases=tuple(
                ReleaseCheck(release=name, points=release["points"], equal=release["equal"])
                for name, release in sorted(releases.items())
            ),
            differences=tuple(
                PlannerDifference(
                    model=name, points=counts[f"differs: {name}"], quantities=tuple(sorted(unlike[name]))
                )
                for name in sorted(unlike)
            ),
        )
        lines = [f"{name}: {json.dumps(value)}" for name, value in check.model_dump().items()]
        (data_dir() / "planner_check_sglang.yaml").write_text("\n".join(lines) + "\n")


def _read(configs: Path, model_id: str) -> Model | None:
    """A model by its config alone; None without one, or where it names no class."""
    path = configs / (model_id.replace("/", "--") + ".json")
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    config = content.get("config", content)
    return read_config(config, id=model_id) if config.get("architectures") else None


def _with_draft(model: Model, configs: Path, name: str) -> Model:
    """A model beside the draft of a file in CONFIGS/drafts, whose vocabulary has no part in the pools."""
    content = json.loads((configs / "drafts" / f"{name}.json").read_text())
    draft = read_config(content.get("config", content), id=f"drafts/{name}")
    return with_draft(model, draft.model_copy(update={"vocabulary": model.vocabulary})).whole


def _left_out(row: dict[str, Any], model: Model | None) -> str | None:
    if "error" in row:
        return "refused by the engine"
    if model is None:
        return ABSENT
    if row.get("own_class") is False:
        return NO_CLASS
    if row.get("class_defaults"):
        return DEFAULTS
    return None if row["architecture"] == model.architecture else OTHER_CLASS


def _found(model: Model, engine: Engine, gpu: Accelerator, row: dict[str, Any]) -> str | None:
    """What differs, in words; None if nothing does."""
    try:
        resolved = _resolved(model, engine, gpu, row["flags"])
        pools = _pools(model, engine, gpu, row, resolved)
    except InputError as error:
        return str(error)
    pairs = {
        "share": (round(resolved.share, 9), round(row["share"], 9)),
        "chunk_tokens": (resolved.chunk_tokens, row["chunk_tokens"]),
        "page_tokens": (resolved.page_tokens, row["page_tokens"]),
        "tokens": (pools.tokens, row["tokens"]),
        "window_tokens": (pools.window_tokens, row["window_tokens"]),
        "state_slots": (pools.state_slots, row["state_slots"]),
        "captured_requests": (resolved.captured_requests, row["captured_requests"]),
        "max_requests": (pools.max_requests, row["max_requests"]),
    }
    wrong = [f"{name} {ours} for {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs]
    return "; ".join(wrong) or None


def _resolved(model: Model, engine: Engine, gpu: Accelerator, flags: dict[str, Any]) -> settings.Settings:
    return settings.settings(
        model,
        engine,
        gpu,
        settings.SglangFlags(
            tensor_parallel=flags.get("tp_size", 1),
            data_attention=flags.get("dp_size", 1),
            chunk_tokens=flags.get("chunked_prefill_size"),
            max_requests=flags.get("max_running_requests"),
            pipeline_parallel=flags.get("pp_size", 1),
            context_ranks=flags.get("dcp_size", 1),
            share=flags.get("mem_fraction_static"),
            page_tokens=flags.get("page_size"),
            graphs=not flags.get("disable_cuda_graph"),
            prefix_cache=not flags.get("disable_radix_cache"),
            overlap=not flags.get("disable_overlap_schedule"),
            context_tokens=flags.get("context_length"),
            deepep=flags.get("moe_a2a_backend") == "deepep",
        ),
    )


def _pool_flags(
    model: Model, engine: Engine, gpu: Accelerator, row: dict[str, Any], resolved: settings.Settings
) -> PoolFlags:
    flags = row["flags"]
    ranks, data = flags.get("tp_size", 1), flags.get("dp_size", 1)
    cached = not flags.get("disable_radix_cache")
    overlap = not flags.get("disable_overlap_schedule")
    states, requests = flags.get("max_mamba_cache_size"), resolved.max_requests
    verified, element = flags.get("speculative_num_draft_tokens", 0), BYTES[row["kv_dtype"]]
    if verified and requests is None:
        requests = trait(engine, "drafting_requests")
    usual = plan.default_window_share(model, engine)
    return PoolFlags(
        element_bytes=element,
        draft_tokens=verified,
        draft_bytes=plan.own_draft_bytes(model, engine, ranks // data, element),
        attention_ranks=ranks // data,
        data_ranks=data,
        context_ranks=flags.get("dcp_size", 1),
        page_tokens=resolved.page_tokens,
        context_tokens=row["context_tokens"],
        window_share=flags.get("swa_full_tokens_ratio", usual),
        state_share=flags.get("mamba_full_memory_ratio", plan.default_state_share(model, engine)),
        states_per_request=resolved.states_per_request,
        state_dtype=flags.get("mamba_ssm_dtype"),
        max_requests=None if requests is None else max(1, requests // data),
        max_tokens=flags.get("max_total_tokens"),
        max_states=None if states is None else states // data,
        prefix_cache=cached,
        chunk_tokens=resolved.chunk_tokens,
        overlap=overlap and flags.get("pp_size", 1) == 1,
        scaled_latents=plan.sized_with_scales(engine)
        and plan.scaled_latents(model, engine, gpu, flags.get("dcp_size", 1)),
        spare_states=int(plan.sized_with_scales(engine)),
        narrow_index=row["kv_dtype"] == "float8_e4m3fn" and settings.narrow_beside_fp8(engine, gpu),
    )


def _pools(
    model: Model, engine: Engine, gpu: Accelerator, row: dict[str, Any], resolved: settings.Settings
) -> RankPools:
    """The pools of the stage with the fewest tokens, which all stages hold."""
    flags = _pool_flags(model, engine, gpu, row, resolved)
    number = row["flags"].get("pp_size", 1)
    layout = Layout(tensor=row["flags"].get("tp_size", 1), pipeline=number)
    model = plan.counted(model, engine)
    if number == 1:
        return pools_of(pool_rule(model, engine, flags), BUDGET_BYTES)
    parts = stages(model, number, partition_of(engine, model, layout))
    rules = [plan.stage_rule(model, engine, flags, layout, part.model) for part in parts]
    caching = [rule for rule in rules if rule.cell_bytes] or rules  # a stage without caches limits no tokens
    return min((pools_of(rule, BUDGET_BYTES) for rule in caching), key=lambda one: one.tokens)


if __name__ == "__main__":
    main()
