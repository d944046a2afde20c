"""Sizing in JavaScript and in Python side by side: what a page would fetch, workloads, and both answers."""

from __future__ import annotations

import json
import math
import random
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from kvreport.accounting.offers import Choices, Offer
from kvreport.accounting.parallel import Layout
from kvreport.accounting.ranking import Ranking, rank
from kvreport.accounting.sizing import Load
from kvreport.catalog.accelerator import Accelerator, current_since
from kvreport.catalog.load import open_catalog
from kvreport.estimation.hardware import listed
from kvreport.publish import device_columns, engine_profiles, profiles, sizer_data
from kvreport.publish.page_data import gather
from kvreport.publish.site_data import SiteData

CATALOG = open_catalog()
# Every field of a deployment that both sides have; times are compared within rounding.
EXACT = (
    "gpu",
    "layout",
    "ranks",
    "weights",
    "kv",
    "each",
    "held",
    "replicas",
    "devices",
    "memory",
    "sure",
    "binds",
    "request",
)


def searched_layouts() -> tuple[Layout, ...]:
    """Every layout beside tensor parallelism that `kvreport size` tries."""
    grid = CATALOG.grid
    return tuple(Layout(**one.model_dump()) for one in (*grid.layouts, *grid.sizing_layouts))


@cache
def site(model: str) -> SiteData:
    return gather(CATALOG, models=model, version="test")


def workloads(model: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Workloads of every kind, the same every time."""
    draw = random.Random(f"{model} {seed}" if seed else model)  # noqa: S311 - a spread of cases, no secret
    found = []
    for _ in range(count):
        longest = min(int(2 ** draw.uniform(7, 16)), CATALOG.model(model).context_tokens)
        output = draw.randint(1, max(1, longest // 3))
        prompt = draw.randint(1, longest - output)
        mean = draw.randint(1, longest)
        found.append(
            {
                "concurrent": draw.choice([1, 3.5, 40, 64, 700]),
                "longest": longest,
                "mean": mean,
                "prompt": prompt,
                "output": output,
                "ttft": draw.choice([None, None, 0.2, 2.0, 20.0]),
                "tpot": draw.choice([None, None, 0.01, 0.03, 0.2]),
                "burst": draw.choice([1, 1.5, 3]),
                "spares": draw.choice([0, 1]),
                "prefix": draw.choice([0, 0, min(prompt, mean) // 2]),
                "efficiency": draw.choice([0.6, 1.0]),
            }
        )
    return found


def in_words(work: dict[str, Any]) -> Load:
    """The workload as Python takes it."""
    return Load(
        concurrent=work["concurrent"],
        longest_tokens=work["longest"],
        mean_tokens=work["mean"],
        prompt_tokens=work["prompt"],
        output_tokens=work["output"],
        ttft_s=work["ttft"],
        tpot_s=work["tpot"],
        burst=work["burst"],
        spare_replicas=work["spares"],
        shared_prefix_tokens=work["prefix"],
        efficiency=work["efficiency"],
    )


def machine_of(text: str) -> tuple[Accelerator, ...]:
    """The devices of a machine such as ``rtx-5090*2+rtx-3090``."""
    return tuple(CATALOG.accelerator(str(name)) for name, number in listed(text) for _ in range(number))


def in_python(
    model: str,
    work: dict[str, Any],
    options: dict[str, Any],
    engine_name: str = CATALOG.grid.engine,
) -> Ranking:
    """The package's ranking of a workload."""
    record = CATALOG.model(model)
    engine = CATALOG.engine(engine_name)
    prices = options["prices"] or {}
    machines = [machine_of(name) for name in options["gpus"] or () if "+" in name]
    return rank(
        [record],
        in_words(work),
        [
            *(
                Offer.unequal(
                    one,
                    options["available"],
                    fmean(prices[device.id] for device in one) if prices else None,
                )
                for one in machines
            ),
            *(
                Offer(gpu, options["available"], prices.get(gpu.id))
                for gpu in site(model).gpus
                if options["gpus"] is None or gpu.id in options["gpus"]
            ),
        ],
        Choices(
            engine=engine,
            formats=CATALOG.weight_formats,
            weight_formats={
                name: None if name == "released" else CATALOG.weight_format(name)
                for name in options["weights"]
            },
            kv_formats={name: CATALOG.kv_format(name) for name in options["kv"]},
            all_kv_formats=CATALOG.kv_formats,
            tensor_parallel=tuple(site(model).axes.tensor_parallel),
            layouts=() if options["layouts"] else searched_layouts(),
            current_since=None
            if options["gpus"] is not None or prices
            else current_since(CATALOG.accelerators.values()),
            support=CATALOG.support,
        ),
    )


IN_BROWSER = """([data, works, options]) => works.map((work) => {
  work.peak = Math.ceil(work.concurrent * work.burst);
  const found = kvSizing.rank(data.site, data.peaks, data.model, data.times, work, options);
  return {
    refused: found.refused,
    relax: found.deployments.length ? null : kvSizing.whatToRelax(data.site, work, options, found),
    deployments: found.deployments.map((one) => ({
      gpu: one.gpu.id, layout: one.layout.label, ranks: one.ranks, weights: one.weightFormat, kv: one.kv, each: one.each, held: one.held,
      replicas: one.replicas, devices: one.devices, memory: one.memory, sure: one.sure, binds: one.binds,
      request: one.request, tpot: Number.isNaN(one.tpot) ? null : one.tpot, ttft: Number.isNaN(one.ttft) ? null : one.ttft,
    })),
  };
})"""


def under(given: dict[str, Any], model: str, engine: str) -> dict[str, Any]:
    """What the page would have after its engine switch, in the words of its scripts."""
    other = site(model).under(engine)
    usual = {gpu.id for gpu in other.gpus if gpu.is_commonly_rented}
    facts = json.loads(profiles.encode(profiles.site_facts(other)))
    decided = json.loads(profiles.encode(engine_profiles.facts_of(other, other.models[0], usual)))
    gpus = [
        {**gpu, "laid": own["kind"]} for gpu, own in zip(facts["gpus"], given["site"]["gpus"], strict=True)
    ]
    peaks = {gpu["id"]: {**given["peaks"]["gpus"][gpu["id"]], "seqs": gpu["step"][1]} for gpu in gpus}
    return {
        **given,
        "site": {**given["site"], "engine": facts["engine"], "gpus": gpus},
        "model": {**given["model"], **decided},
        "peaks": {**given["peaks"], "gpus": peaks},
    }


@cache
def data(model: str) -> dict[str, Any]:
    """What the page would fetch, through JSON as it would; nobody changes it."""
    here = site(model)
    record = here.models[0]
    return json.loads(
        json.dumps(
            {
                "site": profiles.site_facts(here),
                "peaks": sizer_data.peaks_facts(here),
                "model": profiles.model_facts(here, record, further=True)
                | device_columns.reserve_rates(here, record),
                "times": sizer_data.times_facts(here, record),
            }
        )
    )


def compare(theirs: dict[str, Any], ranking: Ranking, work: object) -> int:
    """Hold a browser's ranking equal to Python's and return how many deployments were compared."""
    memory = {reason: number for reason, number in ranking.refused.items() if reason != "support"}
    assert theirs["refused"] == memory, work
    assert len(theirs["deployments"]) == len(ranking.deployments), work
    for one, ours in zip(theirs["deployments"], ranking.deployments, strict=True):
        mine = {
            "gpu": ours.offer.accelerator.id,
            "layout": ours.layout.label,
            "ranks": ours.tensor_parallel,
            "weights": ours.weight_format,
            "kv": ours.kv_format,
            "each": ours.users_each,
            "held": ours.users_held,
            "replicas": list(ours.replicas),
            "devices": ours.devices,
            "memory": ours.memory_bytes,
            "sure": ours.sure,
            "binds": ours.binds,
            "request": ours.request_bytes,
        }
        assert {name: one[name] for name in EXACT} == mine, work
        for name, seconds in (("tpot", ours.tpot_bound_s), ("ttft", ours.ttft_bound_s)):
            if math.isnan(seconds):
                assert one[name] is None
            else:
                assert one[name] == pytest.approx(seconds, rel=1e-9)
    return len(ranking.deployments)
