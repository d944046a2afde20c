"""The experiments' command: ``run`` them, or ``check`` configs against the installed transformers."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path

EXPERIMENTS = {
    "e1": ("e1-cache-bytes", 240),
    "e2": ("e2-batch-memory", 180),
    "e3": ("e3-boundary", 420),
    "e4": ("e4-head-sharing", 60),
    "e5": ("e5-time", 300),
    "e6": ("e6-paged", 120),
    "e7": ("e7-fixed-costs", 60),
}
"""Each experiment's full name, and the seconds that it may take on one GPU; together 23 minutes."""

SMALL = {"cpu": ("e1", "e2", "e4", "e6"), "meta": ("e1", "e2")}
"""What can be said without a GPU."""

MEASUREMENTS = Path(__file__).resolve().parents[1] / "data" / "measurements"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run", help="run experiments, each in a process of its own, and write their JSON"
    )
    run.add_argument(
        "experiments", nargs="*", metavar="E", help=f"which: {', '.join(EXPERIMENTS)}; all by default"
    )
    run.add_argument("--device", choices=("cuda", "cpu", "meta"), default="cuda")
    run.add_argument("--out", type=Path, default=MEASUREMENTS, help="folder of the JSON files")
    run.add_argument("--share", type=float, default=1.0, help="share of each experiment's time to take")
    check = commands.add_parser("check", help="compare parameters and caches with the installed transformers")
    check.add_argument("configs", nargs="*", type=Path, help="config.json files; ours by default")
    classes = commands.add_parser(
        "classes", help="compare every generating class of the installed transformers"
    )
    classes.add_argument("only", nargs="*", help="classes or model types; all by default")
    classes.add_argument("--out", type=Path, help="where to write class_check.yaml")
    classes.add_argument("--quick", action="store_true", help="leave out the changes of one key at a time")
    classes.add_argument(
        "--journal", type=Path, help="file of finished classes; those are not checked again unless named"
    )
    classes.add_argument("--jobs", type=int, default=1, help="processes that check classes side by side")
    commands.add_parser("pooling", help="compare embedding, classifying and bare classes of their defaults")
    llama = commands.add_parser(
        "llama-check", help="compare buffers with what the installed llama.cpp plans (needs llama-cpp-python)"
    )
    llama.add_argument("only", nargs="*", help="architectures; all by default")
    llama.add_argument("--out", type=Path, help="where to write check.yaml")
    mlx = commands.add_parser(
        "mlx-check", help="compare cache bytes with the installed mlx-lm's cache classes"
    )
    mlx.add_argument("--out", type=Path, help="where to write mlx_check.yaml")
    starts = commands.add_parser(
        "starts",
        help="start the installed vLLM with random weights, and compare its logs with what we compute",
    )
    starts.add_argument("only", nargs="*", metavar="NAME", help="starts; all by default")
    starts.add_argument("--gpu", required=True, help="the accelerator, by its name in the catalog")
    starts.add_argument("--out", type=Path, default=Path("build/starts"), help="folder of the logs")
    begin = commands.add_parser("begin", help=argparse.SUPPRESS)
    begin.add_argument("name")
    begin.add_argument("folder", type=Path)
    one = commands.add_parser("one", help=argparse.SUPPRESS)
    one.add_argument("experiment", choices=tuple(EXPERIMENTS))
    one.add_argument("device")
    one.add_argument("out", type=Path)
    one.add_argument("share", type=float)
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if chosen.command == "check":
        return importlib.import_module("experiments.check").check(chosen.configs)
    if chosen.command == "classes":
        module = importlib.import_module("experiments.classes")
        settings = {"changes": not chosen.quick, "journal": chosen.journal, "jobs": chosen.jobs}
        return int(module.check_all(chosen.out, chosen.only, **settings))
    if chosen.command == "pooling":
        return int(importlib.import_module("experiments.pooling").check())
    if chosen.command == "mlx-check":
        return int(importlib.import_module("experiments.mlx_check").main(chosen.out))
    if chosen.command == "llama-check":
        return int(importlib.import_module("experiments.llama_check").check_all(chosen.out, chosen.only))
    if chosen.command == "starts":
        return int(importlib.import_module("experiments.starts").check(chosen.only, chosen.out, chosen.gpu))
    if chosen.command == "begin":
        importlib.import_module("experiments.starts").begin(chosen.name, chosen.folder)
        return 0
    if chosen.command == "one":
        return _one(chosen.experiment, chosen.device, chosen.out, chosen.share)
    return _run(chosen)


def _run(chosen: argparse.Namespace) -> int:
    unknown = [name for name in chosen.experiments if name not in EXPERIMENTS]
    if unknown:
        print(f"found {unknown[0]!r}; allowed: {', '.join(EXPERIMENTS)}", file=sys.stderr)
        return 2
    wanted = chosen.experiments or list(SMALL.get(chosen.device, EXPERIMENTS))
    worst = 0
    for name in wanted:
        print(f"--- {EXPERIMENTS[name][0]} on {chosen.device}", flush=True)
        command = [sys.executable, "-m", "experiments", "one", name, chosen.device, str(chosen.out)]
        seconds = _seconds(name, chosen.device) * chosen.share
        try:
            done = subprocess.run([*command, str(chosen.share)], timeout=seconds * 1.5 + 120, check=False)
            worst = max(worst, abs(done.returncode))
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after its time; what it had saved stays", flush=True)
            worst = 1
    return min(worst, 1)


def _seconds(name: str, device: str) -> float:
    """Time of one experiment; a CPU takes longer for far smaller models, and costs nothing."""
    return EXPERIMENTS[name][1] * (1 if device == "cuda" else 10)


def _one(name: str, device: str, out: Path, share: float) -> int:
    import torch

    from experiments.device import Device
    from experiments.record import Log

    full_name = EXPERIMENTS[name][0]
    seconds = _seconds(name, device)
    if device != "cuda":
        torch.set_num_threads(1)
    module = importlib.import_module(f"experiments.{name}")
    if hasattr(module, "begin"):
        module.begin()
    try:
        here = Device(device)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    log = Log(full_name, here, out, seconds=seconds * share, settings=dict(getattr(module, "SETTINGS", {})))
    module.run(log, here)
    log.save()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
