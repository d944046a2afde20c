"""One measurement each, run in a process of its own so that its memory is its own.

``python -m bench.tasks NAME [ARGUMENTS]`` prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

REPEATS = 5


def compute(models: str = "*") -> dict[str, float]:
    """Rows per second of the published grid and of one with 128 contexts, on one core, nothing written.

    Seconds are processor time, so that what else the machine does counts less; the best of three. Garbage is collected
    as in the processes that compute the published dataset.
    """
    from kvreport import processes
    from kvreport.catalog.load import load_catalog
    from kvreport.dataset.grid import axes
    from kvreport.dataset.matrix import matrix

    catalog = load_catalog()
    published = axes(catalog, models=models)
    # 128 contexts, and as many models, evenly drawn, as make ten million rows.
    wide = axes(catalog, models=models, contexts=[1024 * (i + 1) for i in range(128)])
    rows = wide.rows_per_pair * len(wide.accelerators) * len(wide.models)
    dense = replace(wide, models=wide.models[:: max(1, round(rows / 12_000_000))])
    processes.collect_garbage_less()
    result: dict[str, float] = {}
    for name, chosen in (("published", published), ("dense", dense)):
        times = []
        for _ in range(3):
            began = time.process_time()
            rows = _rows(matrix(chosen))
            times.append(time.process_time() - began)
        result[f"{name}_rows"] = rows
        result[f"{name}_s"] = min(times)
        result[f"{name}_rows_per_s"] = rows / min(times)
    return result


def compute_by_all(models: str = "*") -> dict[str, float]:
    """Rows per second of the published grid with all processors, nothing written; the best of three.

    Each process computes one part of it, as ``kvreport matrix --shard`` does.
    """
    from kvreport import processes
    from kvreport.catalog.load import load_catalog
    from kvreport.dataset.grid import axes
    from kvreport.dataset.staged_files import available_processors

    count = available_processors()
    times = []
    with processes.workers(count, _read_axes, (axes(load_catalog(), models=models),)) as pool:
        list(pool.map(_of_part, [(n + 1, 1000) for n in range(count)]))  # every process has begun
        for _ in range(3):
            began = time.perf_counter()
            rows = sum(pool.map(_of_part, [(n + 1, 4 * count) for n in range(4 * count)]))
            times.append(time.perf_counter() - began)
    return {"processes": count, "rows": rows, "s": min(times), "rows_per_s": rows / min(times)}


_axes: list = []


def _read_axes(axes) -> None:
    from kvreport import processes

    _axes[:] = [axes]
    processes.collect_garbage_less()


def _of_part(shard: tuple[int, int]) -> int:
    from kvreport.dataset.matrix import matrix

    return _rows(matrix(_axes[0], shard))


def publish(models: str = "*") -> dict[str, float]:
    """The published dataset, every file of it, with all processors; the best of three.

    What else a machine does only ever adds time.
    """
    import pyarrow.parquet as pq

    from kvreport.catalog.load import load_catalog
    from kvreport.dataset.grid import axes
    from kvreport.dataset.staged_files import available_processors
    from kvreport.dataset.write import publish as write

    catalog = load_catalog()
    times, processor = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            out = Path(folder)
            used, began = _processor_seconds(), time.perf_counter()
            write(catalog, axes(catalog, models=models), out, version="2026.01.01")
            times.append(time.perf_counter() - began)
            processor.append(_processor_seconds() - used)
            rows = pq.read_metadata(out / "capacity.parquet").num_rows
            size = {path.name: path.stat().st_size for path in out.iterdir() if path.is_file()}
    spent = min(times)
    self, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    own, child = self.ru_maxrss << 10, children.ru_maxrss << 10
    return {
        "rows": rows,
        "s": spent,
        "cpu_s": min(processor),
        "rows_per_s": rows / spent,
        # No process was larger than the largest, so their sum was at most this.
        "peak_bytes_all_processes": own + child * available_processors(),
        "capacity_parquet_bytes": size["capacity.parquet"],
        "capacity_csv_bytes": sum(
            value for name, value in size.items() if name.startswith("capacity") and "csv" in name
        ),
    }


def stream(rows: str, models: str = "*") -> dict[str, float]:
    """A matrix of about so many rows, streamed into a partitioned Parquet dataset, in one process."""
    from kvreport.catalog.load import load_catalog
    from kvreport.dataset.grid import axes
    from kvreport.dataset.matrix import matrix
    from kvreport.dataset.partitions import write_partitioned

    catalog = load_catalog()
    per_context = _rows(matrix(axes(catalog, models=models, contexts=[8192])))
    number = max(1, round(int(rows) / per_context))
    chosen = axes(catalog, models=models, contexts=[512 * (i + 1) for i in range(number)])
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        used, began = _processor_seconds(), time.perf_counter()
        written = write_partitioned(chosen, Path(folder))
        spent = time.perf_counter() - began
        used = _processor_seconds() - used
        files = list(Path(folder).rglob("*.parquet"))
        size = sum(path.stat().st_size for path in files)
    return {
        "rows": written,
        "files": len(files),
        "s": spent,
        "cpu_s": used,
        "rows_per_s": written / spent,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "bytes": size,
    }


def estimate() -> dict[str, float]:
    """One estimate as the documentation has it, by name in one process: the first, and the median of many."""
    import kvreport

    times = []
    for _ in range(200):
        began = time.perf_counter()
        kvreport.estimate("Qwen/Qwen2.5-7B", gpu="H100", context_tokens=8192)
        times.append(time.perf_counter() - began)
    return {"first_s": times[0], "median_s": statistics.median(times)}


def _processor_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _rows(cubes) -> int:
    return sum(cube.rows for cube in cubes)


TASKS = {task.__name__: task for task in (compute, compute_by_all, publish, stream, estimate)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
