"""Break rules that a program draws, one at a time, and say which of them the invariants find.

    python scripts/drawn_faults.py --seed 1 [--count 10] [--draws 300]

Half of the faults are values of ``data/engines/*/rules.yaml``; the others are operators, bounds and whole numbers of
``kvreport/accounting`` and ``kvreport/estimation``. Each is put into a copy of the tree. It is found if a test of
``INVARIANTS`` fails, a figure that an engine recorded is missed by more, or a drawn answer contradicts itself. What the loader
refuses is replaced by the next one drawn, and so is what changes no recorded figure and none of ``SAME`` drawn answers.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

EDGES: Final = "tests/unit/test_release_edges.py"
INVARIANTS: Final = (
    "tests/component/test_planner_spots.py",
    "tests/component/test_sglang_spots.py",
    "tests/component/test_sglang_by_release.py",
    "tests/component/test_sglang_drafts.py",
    "tests/property/test_invariants.py",
)
"""What planners recorded, both sides of every rule's releases, and what holds for every answer."""
LOAD: Final = "from kvreport.catalog.release import release_at as at; [at(one, ()) for one in ('vllm', 'sglang', 'llama_cpp')]"
SAME: Final = 2000
CHANGED: Final = 12
"""Of the answers that a fault changes so many are held against themselves and against all their neighbors."""
RUNS: Final = 8
"""Of the dry runs of llama.cpp's build one in so many is asked: each takes as long as five start-up logs."""
SECONDS: Final = 600
"""Most seconds of processor time of one run; a fault that makes a program hang is found."""
OTHER: Final = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "*": "//", "//": "*"}
OTHER_NAME: Final = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


class Place(NamedTuple):
    """Bytes of a file, and what stands there with the fault."""

    file: str
    start: int
    end: int
    put: str


def places_of_code(file: Path) -> Iterator[Place]:
    """Operators between values, bounds, and whole numbers of one file."""
    text, name = file.read_bytes(), file.relative_to(ROOT).as_posix()
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def at(line: int | None, column: int | None) -> int:
        return begins[(line or 1) - 1] + (column or 0)

    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                start, end = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
                found = re.fullmatch(r"([\s()]*)(<=|>=|//|[<>+*-])([\s()]*)", text[start:end].decode())
                words = any(isinstance(one, ast.JoinedStr) or _is(one, str) for one in (left, right))
                if found and not words:
                    yield Place(name, start, end, found[1] + OTHER[found[2]] + found[3])
            case ast.Call(func=ast.Name() | ast.Attribute() as asked):
                word = asked.id if isinstance(asked, ast.Name) else asked.attr
                end = at(asked.end_lineno, asked.end_col_offset)
                if word in OTHER_NAME:
                    yield Place(name, end - len(word), end, OTHER_NAME[word])
            case ast.Constant(value=int(value)) if not isinstance(value, bool) and value >= 1:
                put = str(value * 2 + 1 if value < 1000 else value // 2)
                end = at(node.end_lineno, node.end_col_offset)
                yield Place(name, at(node.lineno, node.col_offset), end, put)


def _is(node: ast.expr, kind: type) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, kind)


def places_of_rules(file: Path) -> Iterator[Place]:
    """True, false and numbers among the values of one file of rules."""
    text, name = file.read_bytes(), file.relative_to(ROOT).as_posix()
    for line in re.finditer(rb"^\s+values: .*$", text, re.MULTILINE):
        for found in re.finditer(rb"(?<=: )(true|false|\d+(?:\.\d+)?)(?=[,}\s])", line[0]):
            old = found[1].decode()
            number = str(float(old) * 2) if "." in old else str(int(old) * 2 + 1) if old.isdigit() else ""
            put = {"true": "false", "false": "true"}.get(old, number)
            yield Place(name, line.start() + found.start(), line.start() + found.end(), put)


def inside(known: Path, draws: int, same: int) -> str:
    """In a copy: what becomes of recorded starts and of drawn answers; the first run writes what there is without a fault."""
    import invariants

    first = not known.is_file()
    sound: dict[str, Any] = {} if first else json.loads(known.read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    said = ""
    for number, (name, judged) in enumerate(invariants.sources().items()):
        if name.startswith("run ") and number % RUNS:
            continue
        found[name] = judged()
        if not first and found[name] != sound[name]:
            said = f"changes {name}"
            invariants.recorded(name)
    changed: list[int] = []
    for seed in range(0 if said else same):
        name = str(seed)
        found[name] = hashlib.sha256(invariants.whole(seed).encode()).hexdigest()[:16]
        if not first and found[name] != sound[name]:
            said = said or f"changes answer {seed}"
            changed.append(seed)
            if len(changed) == CHANGED:
                break
    if first:
        known.write_text(json.dumps(found), encoding="utf-8")
    for seed in changed:
        invariants.whole_held(seed)
    for seed in range(draws if said else 0):
        target = invariants.offers if seed % 12 == 11 else invariants.answers
        target(random.Random(f"drawn fault {seed}"))  # noqa: S311 - examples, no secrets
    return said


def run(tree: Path, words: list[str]) -> tuple[int, str]:
    """The status and the last words of a program in a copy."""
    paths = os.pathsep.join([str(tree), str(tree / "scripts")])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    lines = (done.stdout if done.returncode == 0 or "pytest" in words else done.stderr).splitlines()
    told = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-1:]
    return done.returncode, " ".join(told)[:200]


def judged(tree: Path, known: Path, given: argparse.Namespace, *, rule: bool) -> tuple[str, str]:
    """What becomes of the fault in a copy: found, replaced or missed, and by what."""
    one = ["scripts/drawn_faults.py", "--inside", str(known), "--draws", str(given.draws)]
    pytest = ["-m", "pytest", "-q", "-x", "-n", "0", "--tb=no"]
    if rule:
        status, said = run(tree, ["-c", LOAD])
        if status:
            return "replaced", said
    status, said = run(tree, [*one, "--same", str(given.same)])
    if status:
        return "found", said
    if rule:  # a release that no drawn answer has differs at its edge
        status, by = run(tree, [*pytest, EDGES])
        if status:
            return "found", by
    if not said:
        return "replaced", "changes nothing"
    status, by = run(tree, [*pytest, *INVARIANTS])
    return ("found", by) if status else ("missed", said)


def main() -> int:
    """Draw faults until so many count; print what becomes of each, and return 1 if fewer than nine tenths are found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="which faults are drawn (0)")
    parser.add_argument("--count", type=int, default=10, help="faults that count (10)")
    parser.add_argument("--draws", type=int, default=300, help="answers drawn for each (300)")
    parser.add_argument(
        "--same", type=int, default=SAME, help=f"answers that are to differ somewhere ({SAME})"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(inside(given.inside, given.draws, given.same))
        return 0
    import seeded_faults
    import trials

    draw = random.Random(given.seed)  # noqa: S311 - examples, no secrets
    rules = [one for file in sorted(ROOT.glob("data/engines/*/rules.yaml")) for one in places_of_rules(file)]
    files = [*ROOT.glob("kvreport/accounting/**/*.py"), *ROOT.glob("kvreport/estimation/*.py")]
    code = [one for file in sorted(files) for one in places_of_code(file)]
    found = counted = 0
    with tempfile.TemporaryDirectory(prefix="kvreport-drawn-") as folder:
        tree, known = Path(folder, "tree"), ROOT / ".cache" / f"drawn-{trials.package()}-{given.same}.json"
        seeded_faults.copy_tree(tree)
        if not known.is_file():
            known.parent.mkdir(exist_ok=True)
            status, said = run(
                tree, ["scripts/drawn_faults.py", "--inside", str(known), "--same", str(given.same)]
            )
            assert status == 0, said
        while counted < given.count:
            place, begin = draw.choice(draw.choice((rules, code))), time.monotonic()
            file = tree / place.file
            sound = file.read_bytes()
            file.write_bytes(sound[: place.start] + place.put.encode() + sound[place.end :])
            what, said = judged(tree, known, given, rule=place.file.endswith(".yaml"))
            file.write_bytes(sound)
            counted, found = counted + (what != "replaced"), found + (what == "found")
            line = sound[: place.start].count(b"\n") + 1
            old = sound[place.start : place.end].decode()
            where = f"{place.file}:{line} {old!r} -> {place.put!r}"
            print(f"{what:8} {where} | {said} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"seed {given.seed}: {found} of {counted} found")
    return int(found < 0.9 * counted)


if __name__ == "__main__":
    sys.exit(main())
