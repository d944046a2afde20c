"""``make bench``: measure, print a table, write ``build/bench.json`` (and the page, with ``--page``).

Nothing here is a test: numbers depend on the machine and on what else it does. The budgets beside
them are the project's own (docs/about/performance.md).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import site, sizer

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "build" / "bench.json"
PAGE = ROOT / "docs" / "about" / "performance.md"

PARTS = ("estimate", "sizer", "matrix", "stream", "site")
GROWTH = "growth"
"""Sites of one, three and ten times the models, ten minutes and more: measured where it is asked for."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

LOG = """\
INFO Initializing a V1 LLM engine (v0.20.1) with config: model='Qwen/Qwen2.5-7B', dtype=torch.bfloat16, \
max_seq_len=32768, tensor_parallel_size=1, pipeline_parallel_size=1, kv_cache_dtype=auto
INFO Model loading took 14.25 GiB memory and 2.1 seconds
INFO Available KV cache memory: 55.00 GiB
INFO GPU KV cache size: 1,029,680 tokens
INFO Maximum concurrency for 32,768 tokens per request: 31.42x
"""
"""The lines of a start that ``kvreport log`` reads."""


def main() -> None:
    """Run what was asked for."""
    options = _options()
    chosen = set(options.only or PARTS)
    result: dict[str, object] = {"machine": machine()}
    if options.more and RESULT.is_file():
        result = json.loads(RESULT.read_text())
    RESULT.parent.mkdir(exist_ok=True)
    for name in (*PARTS, GROWTH):
        if name in chosen:
            result.update(measured(name))
            # What was measured is kept, although a later part may fail.
            RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for line in table(result):
        print(line)
    print(f"\n{RESULT.relative_to(ROOT)}")
    if options.page:
        PAGE.write_text(page(result), encoding="utf-8")
        print(PAGE.relative_to(ROOT))


def measured(part: str) -> dict[str, object]:
    """Return what one part of the measurements found."""
    match part:
        case "estimate":
            return {"estimate": {**task("estimate"), **commands()}}
        case "sizer":
            return {"sizer": sizer.measure()}
        case "matrix":
            return {
                "compute": task("compute"),
                "compute_by_all": task("compute_by_all"),
                "publish": task("publish"),
            }
        case "stream":
            return {"stream": {rows: task("stream", rows) for rows in ("10000000", "100000000")}}
        case "site":
            return {"site": site.measure()}
        case _:
            return {"growth": site.growth()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=(*PARTS, GROWTH))
    parser.add_argument("--more", action="store_true", help="add to what the last run measured")
    parser.add_argument("--page", action="store_true", help="write docs/about/performance.md too")
    return parser.parse_args()


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    cpu = "unknown"
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        cpu = names[0] if names else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        # Above the number of processors, others were waiting too and every wall-clock time is too long.
        "load_average": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def task(name: str, *arguments: str) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    print(f"· {name} {' '.join(arguments)}", file=sys.stderr)
    (ROOT / "build").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "bench.tasks", name, *arguments],
        cwd=ROOT / "build",
        env=site.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def commands() -> dict[str, float]:
    """Commands as a user types them: an estimate of a catalog's model and of a config that is in none, and a log."""
    kvreport = Path(sys.executable).with_name("kvreport")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_text(json.dumps(CONFIG))
        log = Path(folder, "start.log")
        log.write_text(LOG)
        asked = {
            "command_s": ["estimate", "Qwen/Qwen2.5-7B", "--gpu", "H100"],
            "command_config_s": ["estimate", config, "--gpu", "H100"],
            "command_log_s": ["log", log],
        }
        return {name: _median([kvreport, *words]) for name, words in asked.items()}


def _median(command: list[object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(
            [str(word) for word in command], check=True, stdout=subprocess.DEVNULL, env=site.environment()
        )
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def table(result: dict[str, object]) -> list[str]:
    """The results against their budgets."""
    facts = result["machine"]
    lines = [", ".join(f"{value}" for value in facts.values()), ""]
    rows = [("what", "measured", "budget", "")]
    rows += [
        (what, f"{value:,.4g} {unit}", budget, _mark(value, limit))
        for what, value, unit, budget, limit in _figures(result)
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines += [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return lines


def page(result: dict[str, object]) -> str:
    """The results as a page of the site; figures stand in a block, which prose checks leave alone."""
    measured = "\n".join(table(result)[2:])
    facts = result["machine"]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"""---
title: Performance
description: Measured time and memory of kvreport, compared with its budgets.
---

# Performance

Measured with `make bench` on {day}: {facts["cpu"]}, {facts["processors"]} processors, Python {facts["python"]},
{facts["system"]}; load average {facts["load_average"]} when it began. Every line was measured in a separate
process. *Budget* is the limit that the project sets. A line without a budget is for information.

```text
{measured}
```

`make bench` prints the same table for your machine and writes it, with more detail, to `build/bench.json`; the sites
with more models, which take longer than all the rest, come with `make bench BENCH_ARGS="--only growth --more"`. The
tests measure no time, because results would depend on other work of the machine.

## What the lines mean

- **computed**: rows of the matrix in memory, one processor, nothing written; per second of processor time. With 128
  contexts per configuration the arithmetic dominates. In the published grid a configuration has eleven contexts, and its
  block plan costs more than its rows. *With n processes* each computes a share, as `kvreport matrix --shard` does, per
  second of time.
- **all lines**: Python writes its bytecode, as it does unless it is told not to.
- **published dataset**: every file under `downloads/`, checked against its description, with all processors.
- **streamed**: `kvreport matrix --partitioned`, one process. Memory does not grow with the rows.
- **cold, warm**: `mkdocs build` with empty caches, every chapter executed and every chart drawn; and again with
  nothing changed.
- **one model changed, one template changed**: `mkdocs build` after the vocabulary of one model changed, and after the
  template with an accelerator's sources changed. The result is byte-identical to a cold build.
- **floor**: MkDocs Material alone, given the finished content of the same pages. The ratio to it is what the report
  costs.
- **models, cold, no chapters**: a site made with `kvreport init`. Its catalog has a third of our models, then three and ten times as
  many, copied under other names. The sites are compared in processor time.
- **pages**: the largest of its kind, as sent with gzip.
"""


def _mark(value: float, limit: float) -> str:
    """A positive limit is the most allowed, a negative one the least."""
    if limit == 0:
        return ""
    return "ok" if (value <= limit if limit > 0 else value >= -limit) else "over"


def _figures(result):
    if "estimate" in result:
        one = result["estimate"]
        yield "kvreport.estimate(), first call", one["first_s"] * 1e3, "ms", "≤ 500 ms", 500
        yield "kvreport.estimate(), after it (median)", one["median_s"] * 1e3, "ms", "≤ 2 ms", 2
        yield "kvreport estimate MODEL", one["command_s"] * 1e3, "ms", "≤ 500 ms", 500
        yield "kvreport estimate config.json", one["command_config_s"] * 1e3, "ms", "≤ 500 ms", 500
        yield "kvreport log FILE", one["command_log_s"] * 1e3, "ms", "", 0
    if "sizer" in result:
        one = result["sizer"]
        yield "kvreport size, all accelerators", one["command_s"], "s", "≤ 1 s", 1
        yield "the sizer's ranking in Chromium", one["browser_ms"], "ms", "≤ 50 ms", 50
    if "compute" in result:
        one = result["compute"]
        yield (
            f"computed, {one['dense_rows']:,} rows, 128 contexts",
            one["dense_rows_per_s"] / 1e6,
            "M rows/s",
            "≥ 5 M rows/s",
            -5,
        )
        yield (
            f"computed, published {one['published_rows']:,} rows",
            one["published_rows_per_s"] / 1e6,
            "M rows/s",
            "≥ 2 M rows/s",
            -2,
        )
        shared = result["compute_by_all"]
        yield f"  with {shared['processes']} processes", shared["rows_per_s"] / 1e6, "M rows/s", "", 0
        one = result["publish"]
        yield f"published dataset, {one['rows']:,} rows", one["s"], "s", "≤ 10 s", 10
        yield "  processor time", one["cpu_s"], "s", "", 0
        yield "  rows written per second", one["rows_per_s"] / 1e6, "M rows/s", "", 0
        yield (
            "  peak memory, all processes",
            one["peak_bytes_all_processes"] / 2**30,
            "GiB",
            "≤ 2 GB",
            2e9 / 2**30,
        )
        yield "  capacity.parquet", one["capacity_parquet_bytes"] / 1e6, "MB", "", 0
        yield "  capacity.csv.gz", one["capacity_csv_bytes"] / 1e6, "MB", "", 0
    for one in result.get("stream", {}).values():
        yield f"streamed {one['rows']:,} rows, one process", one["rows_per_s"] / 1e6, "M rows/s", "", 0
        yield "  peak memory", one["peak_bytes"] / 2**30, "GiB", "≤ 2 GB", 2e9 / 2**30
    yield from site.figures(result.get("site", {}))
    yield from site.growth_figures(result.get("growth", {}))


if __name__ == "__main__":
    main()
