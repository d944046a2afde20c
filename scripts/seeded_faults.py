"""Seed the faults of tests/seeded_faults.yaml one at a time and say which of them the tests of `make test` notice.

    python scripts/seeded_faults.py [--only ID ...] [--jobs N] [--limit SECONDS] [--at-least N] [--record]

Each fault is put into a copy of the tree, and the tests that execute its lines run there, cheapest first, until one fails.
Coverage says which tests those are: the fast tests run once under it, and what they told is kept in ``.cache/``; files of
tests that changed run again, all with ``--record``. Where none of them fails, the other tests of the same files
follow, and for pages and their scripts the tests that start a build or a browser, those that name the changed file first.
A failure counts only if the same test passes without the fault. Status 1 if fewer faults are found than ``--at-least``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import coverage
import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = "tests/seeded_faults.yaml"
MAP: Final = ".cache/seeded_faults.json"
OUTCOMES: Final = "KVREPORT_FAULT_OUTCOMES"
"""The variable that names the file which the tests of a run append their outcomes to."""
RECORDED: Final = ("tests/unit", "tests/property", "tests/component")
"""Where the tests are that run in one process, so that coverage sees what each executes."""
OWN_TEST: Final = "tests/test_seeded_faults.py"
"""The test of the list itself, which every fault would fail; it is left out of the copies."""
BUILT: Final = ("docs/", "templates/", "kvreport/site/", "kvreport/publish/", "kvreport/adapters/")
"""What the tests with builds and browsers execute in processes of their own."""
AT_ONCE: Final = 60
"""Files of tests that are recorded at once: a run that is stopped goes on after the last that were."""
BATCHES: Final = (4.0, 30.0, float("inf"))
"""Seconds of tests in the first runs for a fault: most are found by the cheapest tests, and collecting a file costs, too."""


@dataclass(frozen=True)
class Fault:
    """One edit of one file."""

    id: str  # Its name on the command line.
    file: str  # The file, from the root.
    kind: str  # What is wrong: a sign, an off-by-one, a constant, a dropped term or two that are swapped.
    find: str  # What stands there, exactly once.
    put: str  # What stands there with the fault.

    def seeded(self, text: str) -> str:
        """Return the file's text with the fault.

        Raises:
            ValueError: If the text to replace does not stand exactly once.
        """
        if (count := text.count(self.find)) != 1:
            raise ValueError(
                f"{self.id}: found {count} times in {self.file}: {self.find!r}; allowed: once. "
                f"Give the fault its new text in {LIST}, or one of the same kind in the code that took its place"
            )
        return text.replace(self.find, self.put)

    def lines(self, text: str) -> tuple[int, ...]:
        """Return the lines of the statements that the fault changes; none where they run at import, or are not Python."""
        if not self.file.endswith(".py"):
            return ()
        first = text[: text.index(self.find)].count("\n") + 1 + (len(self.find) - len(self.find.lstrip("\n")))
        last = first + self.find.strip("\n").count("\n")
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        inside = [one for one in functions if one.lineno < first and last <= (one.end_lineno or 0)]
        statements = [
            node
            for one in inside
            for node in ast.walk(one)
            if isinstance(node, ast.stmt) and node.lineno <= last and first <= (node.end_lineno or 0)
        ]
        simple = [
            node for node in statements if not hasattr(node, "body") and not isinstance(node, ast.Match)
        ]
        spans = {line for node in simple for line in range(node.lineno, (node.end_lineno or 0) + 1)}
        return tuple(sorted(spans | set(range(first, last + 1)))) if inside else ()


@dataclass
class Tests:
    """What the fast tests do."""

    seconds: dict[str, float] = field(default_factory=dict)  # Seconds of each test that passes.
    # Tests that execute the lines of a fault, by its id; any line of its file where those run at import.
    of_fault: dict[str, list[str]] = field(default_factory=dict)
    # Tests that execute any line of a faulted file.
    of_file: dict[str, list[str]] = field(default_factory=dict)
    # What each fault replaced when its tests were recorded.
    finds: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # Digest of each file of tests that was recorded.

    def of(self, fault: Fault) -> list[str]:
        """Return the tests that execute a fault's lines; those of its file, where it replaces something else now."""
        recorded = self.finds.get(fault.id) == fault.find
        found = self.of_fault[fault.id] if recorded else self.of_file[fault.file]
        return [test for test in found if test in self.seconds]

    def replace(self, files: Collection[str], other: Tests) -> None:
        """Take what was recorded of some files of tests in place of what was known of them."""
        known = self.seconds.items()
        self.seconds = {name: took for name, took in known if file_of(name) not in files} | other.seconds
        for mine, theirs in ((self.of_fault, other.of_fault), (self.of_file, other.of_file)):
            for key, names in theirs.items():
                mine[key] = sorted(
                    {one for one in mine.get(key, ()) if file_of(one) not in files} | set(names)
                )
        self.digests |= other.digests


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


@dataclass
class Result:
    """What became of a fault: the test that noticed it, the tests that did not, and the seconds that took."""

    fault: Fault
    test: str | None = None
    tried: int = 0
    seconds: float = 0.0
    stopped: bool = False
    passed_over: list[str] = field(default_factory=list)


def load_faults(root: Path) -> list[Fault]:
    """Read the list."""
    return [Fault(**entry) for entry in yaml.safe_load((root / LIST).read_text(encoding="utf-8"))]


def copy_tree(target: Path) -> None:
    """Copy what git knows or would take, and the browser's runtimes that a build has fetched."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and name != OWN_TEST and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    if (fetched := ROOT / ".cache" / "kvreport").is_dir():
        shutil.copytree(fetched, target / ".cache" / "kvreport", symlinks=True)


def run_tests(tree: Path, names: Sequence[str], *more: str, limit_s: float) -> list[tuple[str, str, float]]:
    """Run tests in a tree and return the name, outcome and seconds of each; a failed collection counts as a failure."""
    (tree / ".cache").mkdir(exist_ok=True)
    outcomes, chosen = tree / ".cache" / "outcomes", tree / ".cache" / "chosen"
    outcomes.write_text("")
    chosen.write_text("\n".join(names))
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "seeded_faults", "--tb=no"),
        *("--no-header", "-m", "not nightly", *more, f"@{chosen}"),
    ]
    paths = os.pathsep.join([str(tree), str(tree / "scripts")])
    environment = os.environ | {"PYTHONPATH": paths, OUTCOMES: str(outcomes), "KVREPORT_UNSHRUNK": "1"}
    with (
        (tree / ".cache" / "output").open("w+b") as said,
        subprocess.Popen(
            command, cwd=tree, env=environment, stdout=said, stderr=said, start_new_session=True
        ) as process,
    ):
        try:
            process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode in (3, 4):  # pytest's own failure, and a wrong use of it
            said.seek(0)
            raise RuntimeError(said.read()[-2000:].decode(errors="replace"))
    return [tuple(json.loads(line)) for line in outcomes.read_text().splitlines()]


def record(faults: Sequence[Fault], jobs: int, files: Sequence[str]) -> Tests:
    """Run files of fast tests under coverage in a copy, and return what they do."""
    faulted = sorted({fault.file for fault in faults})
    found = Tests(finds={fault.id: fault.find for fault in faults}, digests=digests_of(files))
    with tempfile.TemporaryDirectory(prefix="kvreport-faults-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        (tree / "record.ini").write_text(
            "[run]\ndata_file = .cache/coverage\ninclude =\n"
            + "".join(f"    {tree / one}\n" for one in faulted)
        )
        spread = ("-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder")
        watched = ("--cov", "--cov-config=record.ini", "--cov-context=test", "--cov-report=")
        outcomes = run_tests(tree, files, *spread, *watched, limit_s=3600)
        data = coverage.CoverageData(str(tree / ".cache" / "coverage"))
        data.read()
        lines = {one: data.contexts_by_lineno(str(tree / one)) for one in faulted}
    failed = {name for name, outcome, _ in outcomes if outcome == "failed"}
    for name, _, took in outcomes:
        if name not in failed:
            found.seconds[name] = found.seconds.get(name, 0.0) + took
    for one in faulted:
        found.of_file[one] = tests_in(names for names in lines[one].values())
    for fault in faults:
        own = fault.lines((ROOT / fault.file).read_text(encoding="utf-8"))
        executing = tests_in(lines[fault.file].get(line, ()) for line in own)
        found.of_fault[fault.id] = executing if own else found.of_file[fault.file]
    return found


def tests_in(contexts: Iterable[Iterable[str]]) -> list[str]:
    """The tests that some of coverage's contexts are of, without the phase of the test."""
    return sorted({one.partition("|")[0] for each in contexts for one in each} - {""})


def digests_of(files: Iterable[str]) -> dict[str, str]:
    """The digest of each file."""
    return {one: sha256((ROOT / one).read_bytes()).hexdigest() for one in files}


def known_tests(faults: Sequence[Fault], jobs: int, *, again: bool) -> Tests:
    """Return what the fast tests do: as kept, but for files of tests that are new or changed."""
    kept = ROOT / MAP
    files = [path for folder in RECORDED for path in sorted((ROOT / folder).rglob("test_*.py"))]
    digests = digests_of(path.relative_to(ROOT).as_posix() for path in files)
    known = Tests() if again or not kept.is_file() else Tests(**json.loads(kept.read_text(encoding="utf-8")))
    if not {fault.file for fault in faults} <= known.of_file.keys():
        known = Tests()
    changed = [file for file, digest in digests.items() if known.digests.get(file) != digest]
    if changed:
        print(
            f"recording what the tests of {len(changed)} files execute (once; some minutes) ...", flush=True
        )
        found = record(load_faults(ROOT), jobs, changed)
        if known.digests:
            known.replace(changed, found)
        else:
            known = found
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(asdict(known)), encoding="utf-8")
        print(f"{len(known.seconds):,} tests, {sum(known.seconds.values()):,.0f} s of tests", flush=True)
    return known


def in_batches(names: Iterable[str], seconds: dict[str, float]) -> Iterator[list[str]]:
    """Yield tests, file by file, the files with the cheapest tests first, in runs that grow."""
    by_file: dict[str, list[str]] = {}
    for name in names:
        by_file.setdefault(file_of(name), []).append(name)
    cost = {file: 0.5 + sum(seconds.get(name, 1.0) for name in tests) for file, tests in by_file.items()}
    files = sorted(by_file, key=lambda file: cost[file])
    for most in BATCHES:
        batch, total = [], 0.0
        while files and (not batch or total + cost[files[0]] <= most):
            total += cost[files[0]]
            batch += sorted(by_file[files.pop(0)], key=lambda name: seconds.get(name, 1.0))
        if batch:
            yield batch


def slow_files(tree: Path, fault: Fault) -> list[list[str]]:
    """Return the files with builds and browsers, those that name the changed file first; none for other code."""
    if not fault.file.startswith(BUILT):
        return []
    known = {path.relative_to(tree).as_posix(): path for path in sorted((tree / "tests").rglob("test_*.py"))}
    texts = {
        name: path.read_text(encoding="utf-8")
        for name, path in known.items()
        if not name.startswith(RECORDED)
    }
    stem = Path(fault.file).stem
    words = {stem, stem.removeprefix("kv-"), stem.replace("kv-", "").replace("-", "_")}
    naming = [
        name for name, text in texts.items() if any(word in name or f"{word}." in text for word in words)
    ]
    others = [name for name in texts if name not in naming]
    return [[name] for name in naming] + ([others] if others else [])


def steps(tree: Path, fault: Fault, tests: Tests) -> Iterator[list[str]]:
    """Yield what to run for a fault, run by run."""
    executing = tests.of(fault)
    yield from in_batches(executing, tests.seconds)
    files = {file_of(name) for name in executing}
    further = [name for name in tests.seconds if file_of(name) in files and name not in set(executing)]
    yield from in_batches(further, tests.seconds)
    yield from slow_files(tree, fault)


def seek(tree: Path, fault: Fault, tests: Tests, limit_s: float) -> Result:
    """Put a fault into a tree, run tests until one notices it, and take the fault out again."""
    result, start = Result(fault), time.monotonic()
    file = tree / fault.file
    sound = file.read_text(encoding="utf-8")
    seeded = fault.seeded(sound)
    try:
        for names in steps(tree, fault, tests):
            left = limit_s - (time.monotonic() - start)
            if left <= 0:
                result.stopped = True
                break
            file.write_text(seeded, encoding="utf-8")
            outcomes = run_tests(
                tree, [name for name in names if name not in result.passed_over], "-x", limit_s=left
            )
            result.tried += len({name for name, _, _ in outcomes})
            failed = next((name for name, outcome, _ in outcomes if outcome == "failed"), None)
            if failed is None:
                continue
            file.write_text(sound, encoding="utf-8")
            again = run_tests(tree, [failed], limit_s=max(left, 120.0))
            if again and all(outcome != "failed" for _, outcome, _ in again):
                result.test = failed
                break
            result.passed_over.append(failed)
    finally:
        file.write_text(sound, encoding="utf-8")
    result.seconds = time.monotonic() - start
    return result


def main(words: Sequence[str]) -> int:
    """Seed the faults, print what becomes of each, and return 1 if too few are found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="ID", nargs="+", help="these faults only")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="faults at once (2)")
    parser.add_argument(
        "--limit", metavar="SECONDS", type=float, default=600.0, help="most seconds for one fault (600)"
    )
    parser.add_argument(
        "--at-least", metavar="N", type=int, help="faults that must be found (48, or all of --only)"
    )
    parser.add_argument(
        "--record", action="store_true", help="ask coverage again which tests execute which lines"
    )
    options = parser.parse_args(words)
    faults = load_faults(ROOT)
    if unknown := set(options.only or ()) - {fault.id for fault in faults}:
        parser.error(
            f"--only: found {', '.join(sorted(unknown))}; allowed: {', '.join(one.id for one in faults)}"
        )
    faults = [fault for fault in faults if options.only is None or fault.id in options.only]
    try:
        for fault in faults:
            fault.seeded((ROOT / fault.file).read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        print(f"seeded faults: {error}", file=sys.stderr)
        return 2
    tests = known_tests(faults, options.jobs, again=options.record)
    start, found = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="kvreport-faults-", ignore_cleanup_errors=True) as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(min(options.jobs, len(faults))):
            tree = Path(folder, str(number))
            copy_tree(tree)
            trees.put(tree)

        def one(fault: Fault) -> Result:
            tree = trees.get()
            try:
                return seek(tree, fault, tests, options.limit)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(options.jobs) as pool:
            for result in pool.map(one, faults):
                found += result.test is not None
                says = f"found by {result.test}" if result.test else "NOT FOUND"
                says += " within the limit" if result.stopped and not result.test else ""
                print(
                    f"{result.fault.id:26} {result.fault.kind:10} {result.seconds:6.1f} s {result.tried:5} tests  {says}",
                    flush=True,
                )
    least = options.at_least if options.at_least is not None else len(faults) if options.only else 48
    print(f"{found} of {len(faults)} found in {time.monotonic() - start:,.0f} s; at least {least} must be.")
    return int(found < least)


# --- as a plugin of pytest, in the runs above -----------------------------------------------------------


class _Recorder:
    """Write outcomes for the run that asked, and forget what functions remember when a file of tests begins.

    A value that an earlier file left in a cache hides the lines that made it from the tests after.
    """

    file = ""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        name = item.nodeid.partition("::")[0]
        if name != self.file:
            self.file = name
            for each in [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]:
                if str(each.__module__).startswith("kvreport.") and ".catalog." not in str(each.__module__):
                    each.cache_clear()


class _Reporter:
    """Append each test's outcome and seconds."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, name: str, outcome: str, seconds: float) -> None:
        with Path(self.path).open("a", encoding="utf-8") as out:
            out.write(json.dumps([name, outcome, seconds]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.write(report.nodeid, report.outcome, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(report.nodeid, "failed", 0.0)


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a run of this program: the controller writes, each process that runs tests forgets."""
    path = os.environ.get(OUTCOMES)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(path), "fault-reporter")
    if path and config.pluginmanager.hasplugin("_cov"):
        config.pluginmanager.register(_Recorder(), "fault-recorder")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
