"""Compare our buffers with llama.cpp's own, for every architecture that both know.

A sparse file of a real shape for each architecture, planned by the installed llama.cpp for several settings; keys,
values, states, output and compute buffers are held against ours to the printed digit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from experiments.llama_files import write_sparse
from kvreport.accounting.engines.llama_cpp.layout import lay_out_local
from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.weights import parameters
from kvreport.catalog.load import Catalog, load_catalog
from kvreport.catalog.local_architectures import LocalArchitectures
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.home_case import open_local

SETTINGS: Final[tuple[dict[str, Any], ...]] = (
    {"ctx": 4096},
    {"ctx": 8192, "ub": 1024},
    {"ctx": 4096, "np": 4, "unified": True},
    {"ctx": 4096, "np": 3},
    {"ctx": 4096, "k": "q8_0", "v": "q8_0"},
    {"ctx": 8192, "fa": "off"},
)
"""Settings that change each rule: cells, micro-batch, slots, streams, types, scores without flash attention."""

PRINTED: Final = 0.011 * (1 << 20)
"""llama.cpp prints hundredths of a MiB, and two caches may be rounded each."""

CLOSE: Final = 0.02
QUANTITIES: Final = ("kv", "state", "output", "compute")


@dataclass
class Outcome:
    """What came out for one architecture."""

    architecture: str  # Name in a GGUF file.
    model: str  # The model whose shape was taken.
    error: str | None = None  # Why nothing was compared; None if something was.
    compared: int = 0  # Settings compared.
    exact: dict[str, int] | None = None  # Settings equal to the printed digit, by quantity.
    within: int = 0  # Settings whose compute buffer is within two percent.
    largest: float = 0.0  # Largest relative difference of a compute buffer.
    # Settings at which llama.cpp itself stops with a failed assertion.
    ended: list[str] = field(default_factory=list)


def smallest_of_each(catalog: Catalog) -> Iterator[tuple[str, Model]]:
    """The smallest model of each architecture that llama.cpp converts."""
    known = LocalArchitectures.need()
    by_name: dict[str, Model] = {}
    for model in catalog.models.values():
        found = known.by_class.get(model.architecture)
        if found is not None and "mlx" not in model.weight_format:
            other = by_name.get(found.name)
            if other is None or parameters(model) < parameters(other):
                by_name[found.name] = model
    yield from sorted(by_name.items())


def compare(architecture: str, model: Model, folder: Path) -> Outcome:
    """Compare one model for every setting.

    Args:
        architecture: Name in a GGUF file.
        model: Whose shape to take.
        folder: Where the sparse file goes.
    """
    outcome = Outcome(architecture, model.id)
    try:
        local, _ = open_local(model, "q8_0", None)
    except InputError as error:
        outcome.error = str(error)
        return outcome
    path = folder / "model.gguf"
    write_sparse(local, path)
    rows = _plan(path, SETTINGS)
    if len(rows) == 1 and rows[0].get("ended"):
        rows = [_plan(path, (setting,))[0] for setting in SETTINGS]
    if len(rows) < len(SETTINGS):
        outcome.error = rows[0]["error"]
        return outcome
    outcome.exact = dict.fromkeys(QUANTITIES, 0)
    for setting, row in zip(SETTINGS, rows, strict=True):
        _judge(outcome, local, setting, row)
    return outcome


def _plan(path: Path, settings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What llama.cpp plans for each setting; one row with an error where the whole process ended."""
    command = [sys.executable, "-m", "experiments.llama_run", str(path), json.dumps(list(settings))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if not done.returncode:
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows
    lines = done.stderr.strip().splitlines()
    said = [line.rpartition("/")[2] for line in lines if "ASSERT" in line] or lines[-1:]
    return [{"error": (said or [f"ended with {done.returncode}"])[0][:300], "ended": True}]


def _judge(outcome: Outcome, local: LocalModel, setting: dict[str, Any], row: dict[str, Any]) -> None:
    if row.get("ended"):
        outcome.ended.append(f"{setting}: {row['error']}")
        return
    ours = ours_of(local, setting)
    if "error" in row or ours is None:
        if ("error" in row) == (ours is None):
            return
        outcome.error = f"{setting}: llama.cpp: {row.get('error', 'starts')}; ours: {'refused' if ours is None else 'starts'}"
        return
    outcome.compared += 1
    for name in QUANTITIES:
        exact = abs(row[name] - ours[name]) <= PRINTED
        if outcome.exact is not None:
            outcome.exact[name] += exact
        if not exact and os.environ.get("LLAMA_CHECK_VERBOSE"):
            print(
                f"  {outcome.architecture} {setting} {name}: {row[name] / 2**20:.2f} ours {ours[name] / 2**20:.2f}"
            )
    off = abs(row["compute"] - ours["compute"]) / max(row["compute"], 1)
    outcome.within += off <= CLOSE
    outcome.largest = max(outcome.largest, off)


def ours_of(local: LocalModel, setting: dict[str, Any]) -> dict[str, int] | None:
    """Our bytes for one setting; None where we refuse it."""
    options = LocalOptions(
        context=setting["ctx"],
        parallel=setting.get("np", 1),
        unified=setting.get("unified", False),
        ubatch=setting.get("ub", 512),
        type_k=setting.get("k", "f16"),
        type_v=setting.get("v", "f16"),
        flash=setting.get("fa", "auto"),
    )
    try:
        host = lay_out_local(local, options).host
    except InputError:
        return None
    return {"kv": host.kv, "state": host.state, "output": host.output, "compute": host.compute}


def check_all(out: Path | None, only: Iterable[str]) -> int:
    """Compare every architecture, print a line for each and write the result.

    Args:
        out: Where to write ``llama_check.yaml``; None writes nothing.
        only: Architectures; all if empty.
    """
    import yaml

    wanted, outcomes = set(only), []
    with tempfile.TemporaryDirectory() as folder:
        for architecture, model in smallest_of_each(load_catalog()):
            if wanted and architecture not in wanted:
                continue
            outcome = compare(architecture, model, Path(folder))
            outcomes.append(outcome)
            print(_line(outcome), flush=True)
    good = [one for one in outcomes if one.error is None]
    print(f"{len(good)} of {len(outcomes)} architectures compared")
    if out is not None:
        out.write_text(yaml.safe_dump(_record(outcomes), sort_keys=False, width=110), encoding="utf-8")
    return 0


def _line(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"{outcome.architecture:16} {outcome.model:44} {outcome.error}"
    exact = outcome.exact or {}
    parts = ", ".join(f"{name} {exact[name]}" for name in QUANTITIES)
    return f"{outcome.architecture:16} {outcome.model:44} of {outcome.compared}: {parts}; compute off {outcome.largest:.1%}"


def _package() -> str:
    """The package whose library was asked."""
    import llama_cpp

    return f"llama-cpp-python {llama_cpp.__version__}"


def _record(outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "build": LocalArchitectures.need().build,
        "package": _package(),
        "settings": [dict(setting) for setting in SETTINGS],
        "architectures": [
            {
                "architecture": one.architecture,
                "model": one.model,
                "compared": one.compared,
                **(one.exact or dict.fromkeys(QUANTITIES, 0)),
                "within_2_percent": one.within,
                "largest_difference": round(one.largest, 4),
                **({"ended": one.ended} if one.ended else {}),
                **({"error": one.error} if one.error else {}),
            }
            for one in outcomes
        ],
    }
