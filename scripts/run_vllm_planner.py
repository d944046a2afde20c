"""Ask vLLM's own planner again what a recorded run asked, with a pretended device, one JSON line each.

    python scripts/run_vllm_planner.py ROWS.jsonl CONFIGS --python PYTHON [--path UNPACKED] [--layouts] > records.jsonl

ROWS and CONFIGS are as ``scripts/check_planner.py`` describes them; of a row, its flags, lengths and pools are taken, and not its
answer. The tokens of a step are the engine's default. A row that repeats the flags of an earlier one is asked with
``--block-size 16``. With ``--layouts``, rows of 1 or 8 tensor ranks are asked over pipeline stages instead, and all over
decode-context ranks. No GPU is needed and no weights are read (:mod:`kvreport.witness`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from check_planner import ACCELERATORS

from kvreport.catalog.load import load_catalog
from kvreport.units import GIB
from kvreport.witness.asking import ask

FLAGS = ("id", "run", "gpu", "tp", "dcp", "kv_cache_dtype", "enable_prefix_caching")
GIVEN_BLOCK = 16
SECONDS = 36_000
AT_ONCE = 100
"""Cases of one process of the engine; what it answered is printed when it ends."""
STAGES = (2, 3, 4, 8)
CONTEXT_RANKS = (2, 4, 8, 16)
UNQUANTIZED = ("auto_map", "quantization_config", "compression_config")


def laid_out(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row over stages, and over context ranks."""
    if row["run"] == "main" and row["dcp"] == 1:
        if row["tp"] in (1, 8):
            yield from (row | {"pp": stages} for stages in STAGES)
        yield from (row | {"dcp": ranks} for ranks in CONTEXT_RANKS if row["tp"] % ranks == 0)


def words(row: dict[str, Any]) -> list[str]:
    """Return the flags of a row's server."""
    caching = "" if row["enable_prefix_caching"] else "no-"
    told = [f"--{caching}enable-prefix-caching"]
    for flag, name in {
        "tensor-parallel-size": "tp",
        "pipeline-parallel-size": "pp",
        "decode-context-parallel-size": "dcp",
        "kv-cache-dtype": "kv_cache_dtype",
        "block-size": "given_block",
    }.items():
        told += [f"--{flag}", str(row[name])] if row.get(name) else []
    return told


def asked(rows: list[dict[str, Any]], *, layouts: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows to ask, each set of flags once, without what was answered."""
    met: set[tuple[Any, ...]] = set()
    for row in rows:
        for one in laid_out(row) if layouts else (row,):
            kept = {name: one[name] for name in FLAGS} | {"pp": one.get("pp", 1)}
            again = (flags := tuple(kept.values())) in met
            met.add(flags)
            if not (again and layouts):
                yield kept | {"given_block": GIVEN_BLOCK if again else None, "per_len": one["per_len"]}


def main() -> None:
    """Ask all rows, device by device."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("rows", type=Path)
    arguments.add_argument("configs", type=Path)
    arguments.add_argument("--python", required=True)
    arguments.add_argument("--path", type=Path)
    arguments.add_argument("--layouts", action="store_true")
    given = arguments.parse_args()
    told = [json.loads(line) for line in given.rows.read_text(encoding="utf-8").splitlines()]
    rows = [*asked(told, layouts=given.layouts)]
    catalog = load_catalog()
    for gpu, device in ACCELERATORS.items():
        of = [row for row in rows if row["gpu"] == gpu and _source(given.configs, row).is_file()]
        for start in range(0, len(of), AT_ONCE):
            part = of[start : start + AT_ONCE]
            cases = [_case(given.configs, row) for row in part]
            answers = ask(
                given.python, "vllm", catalog.accelerator(device), cases, path=given.path, seconds=SECONDS
            )
            for row, answer in zip(part, answers, strict=True):
                if "error" in answer:
                    print(f"no plan: {row['id']} {' '.join(words(row))}: {answer['error']}", file=sys.stderr)
                    continue
                told = {"vllm": answer["release"], "max_num_batched_tokens": answer["max_batched_tokens"]}
                print(json.dumps(row | told | {"per_len": _by_length(answer["at"])}), flush=True)


def _source(configs: Path, row: dict[str, Any]) -> Path:
    return configs / (row["id"].replace("/", "--") + ".json")


def _case(configs: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Return the start of a row, as the engine is asked about it."""
    record = json.loads(_source(configs, row).read_text(encoding="utf-8"))
    kept = row["run"] == "checkpoint_quantization_kept"
    left_out = UNQUANTIZED[:1] if kept else UNQUANTIZED
    config = {name: value for name, value in record.get("config", record).items() if name not in left_out}
    case = {"model": row["id"], "config": config, "quantizer": None, "words": words(row)}
    case["pools"] = [at["gib"] * GIB for at in row["per_len"][0]["at"]]
    return case | {"lengths": [one["max_model_len"] for one in row["per_len"]]}


def _by_length(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {"blocks": "num_blocks", "tokens": "tokens", "concurrency": "concurrency", "error": "error"}
    found: dict[int, list[dict[str, Any]]] = {}
    for one in points:
        at = {"gib": one["pool"] // GIB} | {said: one[name] for name, said in names.items() if name in one}
        found.setdefault(one["length"], []).append(at | {"block_tokens": one.get("block_tokens")})
    return [{"max_model_len": length, "at": at} for length, at in found.items()]


if __name__ == "__main__":
    main()
