"""Publish predictions for new models before anybody's log of them is known.

    python scripts/forecast.py --day 2026-11-28

Adds one run to ``data/forecasts.yaml``: every model of the catalog that was released in the three months up to its newest
release, on twelve machines, with the defaults of the newest vLLM at 32,768 tokens. A model on a machine is predicted once:
what the file has is kept as it is, and a run that would add nothing is not written. Nothing here reads a clock.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import yaml

from kvreport.atomic.files import write_whole
from kvreport.catalog.forecasts import Forecast, ForecastRun, Forecasts
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate
from kvreport.resources import data_dir

MACHINES: Final = (
    ("h100-sxm-80gb", 1),
    ("h100-sxm-80gb", 8),
    ("h200-sxm-141gb", 8),
    ("b200-sxm-180gb", 8),
    ("b300-sxm-288gb", 8),
    ("mi300x", 8),
    ("mi355x", 8),
    ("a100-sxm4-80gb", 1),
    ("l40s", 1),
    ("rtx-pro-6000-ws", 1),
    ("rtx-5090", 1),
    ("dgx-spark-gb10", 1),
)
CONTEXT: Final = 32_768
MONTHS: Final = 3


def new_models(catalog: Catalog) -> list[Model]:
    """Models released in the last months up to the newest release of the catalog, whose own dates are to the month."""
    dated = {
        id_: model
        for id_, model in catalog.models.items()
        if re.fullmatch(r"\d{4}-\d\d", model.release or "")
    }
    newest = max(map(_month, dated.values()))
    return [dated[id_] for id_ in sorted(dated) if _month(dated[id_]) > newest - MONTHS]


def _month(model: Model) -> int:
    year, month = (model.release or "").split("-")
    return int(year) * 12 + int(month)


def rules_of(folder: Path) -> str:
    """The data's release, and a digest of every engine's rules."""
    digest = sha256()
    for path in sorted((folder / "engines").rglob("*.yaml")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return f"{(folder / 'RELEASE').read_text().strip()}, engines {digest.hexdigest()[:12]}"


def predicted(
    catalog: Catalog, models: Iterable[Model], known: set[tuple[str, str, int]]
) -> Iterator[Forecast]:
    """Yield what is not predicted yet; a model that the engine cannot be asked about is passed over."""
    for model in models:
        for gpu, devices in MACHINES:
            if (model.id, gpu, devices) in known:
                continue
            try:
                asked: dict[str, Any] = {"tensor_parallel": devices, "context_tokens": CONTEXT}
                found = estimate(model, gpu=gpu, engine="vllm", catalog=catalog, **asked)
            except InputError:
                continue
            yield Forecast(
                model=model.id,
                gpu=gpu,
                devices=devices,
                tokens=found.kv_pool_tokens,
                requests=found.max_concurrent_requests,
                verdict=found.verdict,
                pool_bytes=max(int(found.deployment.pool_bytes), 0),
                band_bytes=int(found.budget.uncertainty_bytes),
            )


def add(catalog: Catalog, known: Forecasts | None, day: str) -> Forecasts | None:
    """Return the file's content with one more run; None if there is nothing new to predict."""
    runs = () if known is None else known.runs
    seen = {one.key for run in runs for one in run.forecasts}
    made = tuple(predicted(catalog, new_models(catalog), seen))
    if not made:
        return None
    engine = catalog.engine("vllm")
    run = ForecastRun(
        day=day,
        rules=rules_of(catalog.folder),
        engine="vllm",
        release=engine.version,
        context_tokens=CONTEXT,
        utilization=engine.utilization,
        forecasts=made,
    )
    return Forecasts(runs=(*runs, run))


def main() -> None:
    """Add a run."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--day", required=True, help="the day of the predictions, as 2026-11-28")
    day = arguments.parse_args().day
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
        arguments.error(f"--day: found {day!r}; allowed: a day, as 2026-11-28")
    found = add(open_catalog(), Forecasts.read(data_dir()), day)
    if found is not None:
        content = yaml.safe_dump(
            found.model_dump(exclude_none=True), sort_keys=False, width=200, default_flow_style=None
        )
        write_whole(data_dir() / Forecasts.FILE, content.encode())


if __name__ == "__main__":
    main()
