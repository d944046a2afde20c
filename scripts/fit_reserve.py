"""Fit the reserve's coefficients on the published start-up logs, and write them into the engines.

    python scripts/fit_reserve.py [--configs FOLDER] [--write]

Rows are the vLLM observations of ``data/observations`` that say enough: the model is known, the
device's memory too (printed or in the catalogue; not memory shared with a CPU, where other
processes move the figure), utilisation, loaded weights and pool. A row gives the whole reserve,

    utilisation * memory - weights - pool,

and where the engine printed its parts, activations, non-framework memory and graphs each on their
own. Rows that print graphs and no whole count for the graphs.

The formula is :func:`kvreport.accounting.engines.vllm.reserve.reserve`. Its coefficients are chosen by least
absolute deviations of relative errors, by coordinate descent over a geometric grid: no random
start, no outlier removed by hand. The counts that follow from how the engine is written are where
it starts. Sampling is fitted for each engine version; everything else is shared. Then each family
of models is left out in turn, the fit made without it, and the family predicted: those errors are
what an unseen log must expect, and their 80th percentile becomes the uncertainty.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvreport.accounting.engines.registry import rules
from kvreport.accounting.engines.vllm.reserve import own_expert_kernels, reserve
from kvreport.catalog.engine import Engine, engine_for_version
from kvreport.catalog.huggingface import read_config
from kvreport.catalog.load import Catalogue, load_catalogue
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Observation, load_observations
from kvreport.errors import InputError
from kvreport.resources import data_dir
from kvreport.startup_log.observed import Start, find_model, serves_images, share_taken, unified
from kvreport.units import GIB

SHARED = {
    "forward_bytes_per_hidden": 6.0,
    "forward_bytes_per_inner": 6.5,
    "expert_bytes_per_hidden": 4.0,
    "vision_bytes_per_width": 1.8e6,
    "non_framework_bytes": 0.13 * GIB,
    "non_framework_parallel_bytes": 0.3 * GIB,
    "graph_bytes_per_layer": 1.4e5,
    "graph_bytes_per_expert_layer": 2e5,
    "graph_bytes_per_indexed_layer": 2e5,
    "graph_bytes_per_split_layer": 3e5,
}
CURRENT = ("vllm-0.23", "vllm-0.25", "vllm")
SAMPLING = {"vllm-0.7": 38.0, "vllm-0.10": 14.0, "vllm-0.11": 38.0, "vllm-0.19": 14.0} | dict.fromkeys(
    CURRENT, 38.0
)
SAME_SAMPLING = (("vllm-0.7",), ("vllm-0.10",), ("vllm-0.11",), ("vllm-0.19",), CURRENT)
"""Releases that sample the same way share one figure. Those read from 0.22 to 0.33 run the sampler that
sorts, too, while they measure (``_dummy_sampler_run``), as those of late 2025 did."""

ALL_SORT = ("vllm-0.7", "vllm-0.11", *CURRENT)
SORTING = "vllm-0.11"
"""A run of another release that says it falls back to PyTorch's sampling takes this one's figure."""

STEPS = np.geomspace(0.9, 1 / 0.9, 9)
FLOOR_BYTES = 0.25 * GIB
"""Errors are relative to the measured figure plus this, so that small terms do not decide."""


@dataclass(frozen=True)
class Row:
    observation: Observation
    engine: Engine
    model: Model
    tokens: int
    rows: int
    own_expert_kernels: bool
    measured: dict[str, float]

    @property
    def family(self) -> str:
        return self.model.architecture


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--configs", type=Path, help="folder with configs of models not in the catalogue")
    arguments.add_argument("--write", action="store_true", help="write data/engines/vllm*.yaml")
    given = arguments.parse_args()
    catalogue = load_catalogue()
    rows = list(collect(catalogue, load_observations(data_dir()), given.configs))
    fitted = fit(rows)
    print(f"{len(rows)} rows of {len({row.family for row in rows})} families")
    for name, value in fitted.items():
        print(f"  {name:40s} {value:.4g}")

    left_out: dict[str, float] = {}
    for family in sorted({row.family for row in rows}):
        without = fit([row for row in rows if row.family != family])
        for row in rows:
            if row.family == family:
                left_out[row.observation.id] = predicted(row, without)["total"]
    errors = []
    print("id        engine     measured  predicted  left out  (GiB)")
    whole_rows = [row for row in rows if "total" in row.measured]
    for row in whole_rows:
        found, blind = predicted(row, fitted)["total"], left_out[row.observation.id]
        errors.append(abs(blind - row.measured["total"]))
        print(
            f"{row.observation.id:9s} {row.engine.name:10s} {row.measured['total'] / GIB:8.2f} "
            f"{found / GIB:9.2f} {blind / GIB:9.2f}   {row.model.id} tp{row.observation.tensor_parallel}"
        )
    for row in rows:
        if "graphs" in row.measured:
            print(
                f"{row.observation.id:9s} graphs     {row.measured['graphs'] / GIB:8.2f} "
                f"{predicted(row, fitted)['graphs'] / GIB:9.2f}             {row.model.id}"
            )
    measured = np.array([row.measured["total"] for row in whole_rows])
    share = float(np.quantile(np.array(errors) / (measured + FLOOR_BYTES), 0.8))
    print(
        f"left-out error: median {np.median(errors) / GIB:.2f} GiB, 80 % {np.quantile(errors, 0.8) / GIB:.2f} GiB"
    )
    fitted["uncertainty_share"] = round(share, 3)
    fitted["uncertainty_bytes"] = float(round(share * FLOOR_BYTES, -6))
    if given.write:
        for engine in catalogue.engines.values():
            if engine.family == "vllm":
                write(data_dir() / "engines" / f"{engine.name}.yaml", coefficients(fitted, engine.name))


def collect(catalogue: Catalogue, observations: tuple[Observation, ...], configs: Path | None):
    for observation in observations:
        printed = observation.printed
        whole = None not in (observation.utilization, printed.model_load_gib, printed.available_kv_gib)
        graphs = captured(observation)
        if observation.engine != "vllm" or (not whole and graphs is None):
            continue
        if observation.gpu is None or unified(observation) or observation.speculative or observation.lora:
            continue
        engine = engine_for_version(catalogue.engines.values(), "vllm", observation.engine_version)
        model = find_model(catalogue, observation)[0] or from_config(
            observation.model_id or observation.model, configs
        )
        if engine is None or model is None:
            continue
        start = Start(catalogue, observation, engine, model, own=True)
        laid = start.laid_out() if whole else None
        whole = whole and (laid is None or start.same_rank(laid))
        accelerator = catalogue.accelerator(observation.gpu)
        total = printed.total_gpu_gib * GIB if printed.total_gpu_gib is not None else accelerator.usable_bytes
        tokens, rows = rules(engine).scheduler(
            accelerator,
            max_batched_tokens=observation.max_batched_tokens,
            max_seqs=observation.max_seqs,
            offline=bool(observation.offline),
        )
        measured: dict[str, float] = {}
        if whole:
            used = share_taken(observation) * total
            measured["total"] = used - (printed.model_load_gib + printed.available_kv_gib) * GIB
            if measured["total"] <= 0:
                continue
        if whole and printed.peak_activation_gib is not None:
            measured["activations"] = printed.peak_activation_gib * GIB
        if whole and printed.non_torch_gib is not None:
            measured["non_framework"] = printed.non_torch_gib * GIB
        if graphs is not None:
            measured["graphs"] = graphs
        if measured:
            yield Row(observation, engine, model, tokens, rows, own_expert_kernels(accelerator), measured)


def captured(observation: Observation) -> float | None:
    """Bytes of graphs: what the engine expected, else what it found free memory to have lost.

    The loss is the figure of a moment in which other memory is given back, too, so that it may
    be negative; such a one says nothing.
    """
    printed = observation.printed
    if observation.eager:
        return None
    if printed.cudagraph_est_gib is not None:
        return printed.cudagraph_est_gib * GIB
    found = printed.cudagraph_gib
    return found * GIB if found is not None and found > 0 else None


def from_config(model_id: str, configs: Path | None) -> Model | None:
    path = None if configs is None else configs / f"{model_id.replace('/', '--')}.json"
    if path is None or not path.is_file():
        return None
    content = json.loads(path.read_text())
    try:
        return read_config(content.get("config", content), id=model_id)
    except InputError:
        return None


def predicted(row: Row, values: dict[str, float]) -> dict[str, float]:
    engine = row.engine.model_copy(update={"coefficients": coefficients(values, row.engine.name)})
    arguments = {
        "max_batched_tokens": row.tokens,
        "max_seqs": row.rows,
        "tensor_parallel": row.observation.tensor_parallel or 1,
        "eager": bool(row.observation.eager),
        "images": serves_images(row.observation),
        "own_expert_kernels": row.own_expert_kernels,
        "sorts": bool(row.observation.sorts),
    }
    kept = reserve(row.model, engine, **arguments)
    # The estimate is printed by releases that do not take it off the pool, too.
    graphs = reserve(row.model, engine.model_copy(update={"graphs_reserved": True}), **arguments).graphs
    return {
        "total": kept.total,
        "activations": kept.activations,
        "non_framework": kept.non_framework,
        "graphs": graphs,
    }


def coefficients(values: dict[str, float], engine: str) -> dict[str, float]:
    own = {name: value for name, value in values.items() if "@" not in name}
    own["sampling_bytes_per_logit"] = values[f"sampling_bytes_per_logit@{engine}"]
    sorting = engine if engine in ALL_SORT else SORTING
    own["sorting_bytes_per_logit"] = values[f"sampling_bytes_per_logit@{sorting}"]
    own.setdefault("uncertainty_bytes", 0.0)
    own.setdefault("uncertainty_share", 0.0)
    return dict(sorted(own.items()))


def fit(rows: list[Row]) -> dict[str, float]:
    values = SHARED | {f"sampling_bytes_per_logit@{name}": start for name, start in SAMPLING.items()}
    together = [(name,) for name in SHARED] + [
        tuple(f"sampling_bytes_per_logit@{name}" for name in same) for same in SAME_SAMPLING
    ]
    best = cost(rows, values)
    for _ in range(60):
        before = best
        for names in together:
            for step in STEPS:
                tried = values | {name: values[name] * float(step) for name in names}
                found = cost(rows, tried)
                if found < best - 1e-9:
                    best, values = found, tried
        if before - best < 1e-6:
            break
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def cost(rows: list[Row], values: dict[str, float]) -> float:
    """Mean relative deviation, with a weak pull towards the starting counts."""
    total = 0.0
    for row in rows:
        found = predicted(row, values)
        for name, measured in row.measured.items():
            total += abs(found[name] - measured) / (measured + FLOOR_BYTES)
    # Releases that share a figure pull once.
    starts = SHARED | {f"sampling_bytes_per_logit@{same[0]}": SAMPLING[same[0]] for same in SAME_SAMPLING}
    pull = sum(abs(np.log(values[name] / start)) for name, start in starts.items())
    return total / len(rows) + 0.01 * pull


def write(path: Path, values: dict[str, float]) -> None:
    lines = ["coefficients:"] + [f"  {name}: {value!r}" for name, value in values.items()]
    text = re.sub(r"coefficients:\n(?:  \w+: .*\n)+", "\n".join(lines) + "\n", path.read_text())
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    main()
