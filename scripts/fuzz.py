"""Give generated inputs to every public interface by the thousand, and judge each answer.

    python scripts/fuzz.py [--inputs N] [--seed FIRST] [--only TARGET] [--write]

The targets and what they hold are in ``tests/fuzz_targets.py``. An input is its target's name and a seed: a failure prints
both, and ``--only TARGET --seed SEED --inputs 1`` tries it again. Prints how many inputs each target was given and how
many were refused; status 1 if one broke something. ``--write`` adds the counts to ``data/trials.yaml``.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

import fuzz_targets  # noqa: E402 - the tests' own, on the path only now
import trials  # noqa: E402

SHOWN = 3
"""Failures of one place in the code that are printed."""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inputs", type=int, default=1_000_000, help="inputs of all targets together [1000000]"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each target [0]")
    parser.add_argument("--only", action="append", choices=sorted(fuzz_targets.TARGETS), metavar="TARGET")
    parser.add_argument("--write", action="store_true", help="add the counts to data/trials.yaml")
    return parser.parse_args()


def fuzz(name: str, wanted: int, seed: int) -> dict[str, int]:
    """Try one target from a seed on until it was given so many inputs; print what breaks."""
    counts: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    begin, first = time.process_time(), seed
    while counts["inputs"] < wanted:
        try:
            what, inputs = fuzz_targets.TARGETS[name](fuzz_targets.drawn(name, seed))
        except Exception as error:  # noqa: BLE001 - any is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} {Path(frame.filename).name}:{frame.lineno}"
            broken[place] += 1
            counts["inputs"] += 1
            if broken[place] <= SHOWN:
                print(f"{name}, seed {seed}: {place}: {ascii(str(error))[:400]}", flush=True)
        else:
            counts["inputs"] += inputs
            counts["refused"] += inputs if what == "refused" else 0
        seed += 1
    found = {"inputs": counts["inputs"], "refused": counts["refused"], "broken": sum(broken.values())}
    print(
        f"{name}: {found['inputs']:,} inputs, {found['refused']:,} refused, {found['broken']:,} broke something; "
        f"seeds {first:,} to {seed - 1:,}, {time.process_time() - begin:.0f} s",
        flush=True,
    )
    return found


def main() -> int:
    """Try every target."""
    args = arguments()
    names = args.only or list(fuzz_targets.TARGETS)
    shares = {name: fuzz_targets.SHARES[name] for name in names}
    found = {
        name: fuzz(name, max(1, round(args.inputs * share / sum(shares.values()))), args.seed)
        for name, share in shares.items()
    }
    total = sum(one["inputs"] for one in found.values())
    broken = sum(one["broken"] for one in found.values())
    print(f"fuzzed: {total:,} inputs, {broken:,} broke something")
    if args.write:
        trials.add_counts(args.seed, found)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
