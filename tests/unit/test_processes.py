"""Processes end on a signal, with their parent, or with a sentence."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvreport.errors import InputError
from kvreport.processes import COLLECTION_THRESHOLD, collect_garbage_less, workers

PROGRAM = """
import signal, sys, time
from pathlib import Path
from tempfile import gettempdir
from kvreport.atomic.workspace import claim
from kvreport.processes import exit_on_signals, run_beside, workers

def sleep(seconds):
    import os
    os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: two workers share the pipe
    time.sleep(seconds)

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests were started with nohup
    exit_on_signals()
    work = claim(Path(sys.argv[1]), "work-")
    beside = run_beside("timeit", ["-n1", "-r1", "import time; time.sleep(60)"], ".")
    print(beside.pid, flush=True)
    with workers(2) as pool:
        list(pool.map(sleep, [60, 60]))
"""


def lives(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
def test_a_signal_ends_workers_and_helpers_too(tmp_path: Path, name: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout as said:
        children = [int(said.readline()) for _ in range(3)]
    assert all(map(lives, children))
    number = getattr(signal, name)
    parent.send_signal(number)
    if name in ("SIGTERM", "SIGHUP"):
        parent.send_signal(number)  # as `timeout` does: once to the process, once to its group
    try:
        status = parent.wait(20)
    finally:
        parent.kill()
        parent.wait()
    assert status == {"SIGKILL": -9, "SIGINT": -2}.get(name, 128 + number)
    end = time.monotonic() + 20
    while any(map(lives, children)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(lives, children))
    left = [path.name for path in tmp_path.glob("work-*")]
    assert bool(left) is (name == "SIGKILL")  # nobody can clean up after that but the next


DEAF = """
import signal, sys, time
from pathlib import Path
from kvreport import processes
from kvreport.atomic.workspace import claim

class Deaf:
    def __del__(self):  # what is raised in here, Python prints and forgets
        print("ready", flush=True)
        time.sleep(60)

signal.signal(signal.SIGHUP, signal.SIG_DFL)
processes._LAST_PATIENCE_SECONDS = 0.5
processes.exit_on_signals()
work = claim(Path(sys.argv[1]), "work-")
Deaf()
time.sleep(60)
"""


def said_until_ended_by(number: int, program: str, folder: Path) -> str:
    """What a program says after "ready", which a signal then ends; it leaves no temporary folder."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        assert list(folder.glob("work-*"))
        parent.send_signal(number)
        try:
            assert parent.wait(20) == 128 + number
        finally:
            parent.kill()
        said = parent.stdout.read()
    assert not list(folder.glob("work-*"))
    return said


def test_a_signal_whose_exception_is_lost_ends_the_process_all_the_same(tmp_path: Path) -> None:
    assert said_until_ended_by(signal.SIGHUP, DEAF, tmp_path) == ""


STUCK = """
import signal, sys, threading, time
from pathlib import Path
from kvreport import processes
from kvreport.atomic.workspace import claim

processes._LAST_PATIENCE_SECONDS = 0.2
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started the tests behind itself
processes.exit_on_signals()
work = claim(Path(sys.argv[1]), "work-")
threading.Thread(target=time.sleep, args=(60,)).start()  # whose end the exit waits for
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("told", flush=True)
    time.sleep(1)  # as a notebook goes on with what comes next
    print("went on", flush=True)
"""


def test_ctrl_c_that_ends_a_process_ends_it_though_a_thread_does_not(tmp_path: Path) -> None:
    assert said_until_ended_by(signal.SIGINT, STUCK, tmp_path) == "told\nwent on\n"


LOCKED = """
import sys, time
from pathlib import Path
from kvreport import processes
from kvreport.atomic.workspace import claim

processes._LAST_PATIENCE_SECONDS = 0.2

if __name__ == "__main__":
    processes.exit_on_signals()
    work = claim(Path(sys.argv[1]), "work-")
    with processes.workers(1) as pool:
        assert pool.submit(abs, -1).result() == 1
        pool.submit(time.sleep, 60)
        pool._shutdown_lock.acquire()  # as a signal leaves it that comes right after it is taken
        print("ready", flush=True)
        time.sleep(60)
"""


def test_a_signal_that_leaves_the_lock_of_the_workers_taken_ends_the_process_all_the_same(
    tmp_path: Path,
) -> None:
    assert said_until_ended_by(signal.SIGTERM, LOCKED, tmp_path) == ""


WORKER_LEFT = """
import sys, time
from pathlib import Path
from kvreport import processes
from kvreport.atomic.workspace import claim

processes._LAST_PATIENCE_SECONDS = 0.2

if __name__ == "__main__":
    processes.exit_on_signals()
    work = claim(Path(sys.argv[1]), "work-")
    with processes.workers(1) as pool:
        assert pool.submit(abs, -1).result() == 1
        pool.submit(time.sleep, 60)
        print("ready", flush=True)
        try:
            time.sleep(60)
        except SystemExit:
            pass  # as in a finalizer
        time.sleep(60)
"""


def test_a_signal_that_is_lost_while_a_worker_is_busy_ends_the_process_all_the_same(tmp_path: Path) -> None:
    assert said_until_ended_by(signal.SIGTERM, WORKER_LEFT, tmp_path) == ""


ENDED_BEFORE = """
import os, signal, sys, time
from kvreport.errors import InputError
from kvreport.processes import workers

if __name__ == "__main__":
    try:
        with workers(1, print, (b"x" * 4_000_000,)) as pool:
            list(pool.map(abs, [1]))
    except InputError as error:
        print(error)
else:
    os.kill(os.getpid(), signal.SIGKILL)  # a worker, before it has read what it is given
"""


def test_a_worker_that_ends_before_it_has_begun_is_a_sentence_too(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(ENDED_BEFORE, encoding="utf-8")
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    said = subprocess.check_output([sys.executable, str(script)], timeout=60, text=True, env=environment)
    assert "found one that the system ended" in said
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def end_myself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_the_system_ended_is_a_sentence() -> None:
    with (
        pytest.raises(InputError, match="found one that the system ended, most often because memory ran out"),
        workers(2) as pool,
    ):
        list(pool.map(end_myself, [1, 2]))


def test_an_error_of_a_worker_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="invalid literal"), workers(1) as pool:
        list(pool.map(int, ["x"]))


def test_a_matrix_ends_on_sigterm_without_leaving_anything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvreport", "matrix", "--out", str(tmp_path / "out"), "--workers", "2"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not list(tmp_path.glob("out/.kvreport-files-*/models/*")) and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=30)
    assert run.returncode == 128 + signal.SIGTERM, said
    assert b"Traceback" not in said
    assert not list((tmp_path / "out").iterdir())


def test_nobody_listening_is_no_fault(repository: Path) -> None:
    for redirection in (">&-", "2>&-", ">&- 2>&-"):
        line = f"{sys.executable} -m kvreport --version {redirection}"
        assert subprocess.run(line, shell=True, cwd=repository, check=False).returncode == 0  # noqa: S602


def _collections() -> tuple[int, int]:
    return gc.get_threshold()[0], gc.get_freeze_count()


def test_a_worker_that_keeps_its_records_collections_for_garbage_seldom() -> None:
    here = gc.get_freeze_count()  # a library of the tests may have frozen what it loaded
    with workers(1, collect_garbage_less) as pool:
        most, frozen = pool.submit(_collections).result()
    assert most == COLLECTION_THRESHOLD
    assert frozen > 0
    assert gc.get_freeze_count() == here
