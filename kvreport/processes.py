"""Processes that end when they should: on a signal, with their parent, or with a sentence.

``timeout``, Docker, systemd and CI runners send SIGTERM, a closed terminal SIGHUP; both become an
orderly exit, so that whatever was registered to be cleaned up is. Workers and helpers watch their parent,
because nobody can clean up after SIGKILL but those who are left.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

from kvreport.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor, ProcessPoolExecutor

A = TypeVar("A")
B = TypeVar("B")

_AHEAD: Final = 2
"""Items that each other process is given at a time, so that it never waits for the next one."""
_ENDED_BY_SIGNAL: Final = 128
_PATIENCE_SECONDS: Final = 5.0
_LAST_PATIENCE_SECONDS: Final = 12.0
_PIPE_BYTES: Final = 16 << 10
"""A quarter of what a pipe holds on Linux: ``pipe(7)``; the rest is for what Python adds."""
COLLECTION_THRESHOLD: Final = 200_000
"""Objects allocated between two garbage collections of a build; Python's default is 700 (``gc.get_threshold``)."""
_GIVEN: Final = "kvreport-workers-"
_signalled: list[float] = []
_interrupted: list[bool] = []
_FOLLOW: Final = "from kvreport.processes import follow_standard_input as f; f(); import runpy, sys; sys.argv = sys.argv[1:]; "


def exit_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into an exit with status 128 + number, which runs exit handlers.

    Ctrl-C (SIGINT) stays a ``KeyboardInterrupt``; where that ends the process, the process does end. A handler that
    is already there is left, and so is an ignored signal (``nohup``). Only the main thread can have handlers;
    elsewhere nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _exit)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    atexit.register(_keep_the_status)


def _keep_the_status() -> None:
    # Python gives signals their default back before its last steps: a second one would end those with another status.
    if _signalled and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})


def _exit(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal calls it
    # ``timeout`` signals a process and then its group: the second one must not cut the cleaning up short.
    now = time.monotonic()
    if _signalled and now - _signalled[0] > _PATIENCE_SECONDS:
        os._exit(_ENDED_BY_SIGNAL + number)
    if not _signalled:
        _signalled.append(now)
        threading.Thread(target=_insist, args=(number,), name="insist-on-exit", daemon=True).start()
        raise SystemExit(_ENDED_BY_SIGNAL + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _interrupted:
        _interrupted.append(True)
        threading.Thread(target=_insist_at_exit, args=(number,), name="insist-on-exit", daemon=True).start()
    signal.default_int_handler(number, frame)


def _insist_at_exit(number: int) -> None:
    """End this process if its exit, once begun, does not end.

    Nobody knows what a ``KeyboardInterrupt`` is good for until it has reached the top: a notebook goes on after it.
    """
    # Python counts the main thread as ended before it waits for the others.
    threading.main_thread().join()
    _insist(number)


def _insist(number: int) -> None:
    """End this process if the exit that was asked for does not come.

    An exception raised by a handler is lost where Python ignores exceptions (a finalizer, a weak reference's
    callback), and one raised inside a lock's own code can leave the lock taken.
    """
    time.sleep(_LAST_PATIENCE_SECONDS)
    try:
        # Loaded if there are workers, for whom exit functions wait without end.
        multiprocessing = sys.modules.get("multiprocessing")
        for worker in multiprocessing.active_children() if multiprocessing else ():
            worker.terminate()
        # Sweeps the temporary folders; CPython has no public name for it.
        sweeping = threading.Thread(target=atexit._run_exitfuncs, name="sweep", daemon=True)  # noqa: SLF001
        sweeping.start()
        sweeping.join(_PATIENCE_SECONDS)
    finally:
        os._exit(_ENDED_BY_SIGNAL + number)


def collect_garbage_less() -> None:
    """Collect garbage less often in this process, and never scan what it has read so far.

    In a worker, call it once the records are loaded: they live as long as the worker. With Python's own thresholds,
    collections took a fifth of the time of a model's values, and a third of an estimate for llama.cpp.
    """
    import gc  # noqa: PLC0415 - one estimate needs none

    gc.freeze()
    gc.set_threshold(COLLECTION_THRESHOLD, *gc.get_threshold()[1:])


@contextmanager
def workers(
    count: int, initializer: Callable[..., None] | None = None, arguments: Sequence[object] = ()
) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes that outlives nothing: neither an exception nor its parent.

    Fresh, because a fork of a process that has threads (the host's, Arrow's) may hang.

    Raises:
        InputError: If the system ended a worker, which it does when memory runs out.
    """
    # One estimate needs none of these, and they take a while to import.
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415
    from multiprocessing import get_context  # noqa: PLC0415

    with _handed_over(arguments) as given:
        pool = ProcessPoolExecutor(
            count, mp_context=get_context("spawn"), initializer=_begin, initargs=(initializer, given)
        )
        try:
            yield pool
            pool.shutdown()
        except BrokenProcessPool as error:
            _end(pool)
            raise InputError(
                "workers: found one that the system ended, most often because memory ran out; allowed: fewer "
                "workers (--workers 1), or more memory"
            ) from error
        except BaseException:
            _end(pool)
            raise


def shared_out(
    items: Iterable[A], pool: Executor, others: int, there: Callable[[A], B], here: Callable[[A], B]
) -> Iterator[B]:
    """Yield what is computed of each item in order, by other processes and, while they are busy, by this one."""
    from concurrent.futures import Future  # noqa: PLC0415 - as above

    coming = iter(items)
    waiting: deque[Future[B]] = deque()

    def given() -> None:
        busy = sum(not one.done() for one in waiting)
        for item in islice(coming, max(_AHEAD * others - busy, 0)):
            waiting.append(pool.submit(there, item))

    given()
    while waiting:
        own = [] if waiting[0].done() else list(islice(coming, 1))
        if own:
            waiting.append(Future())
            waiting[-1].set_result(here(own[0]))
            given()
            continue
        yield waiting.popleft().result()
        given()


@contextmanager
def _handed_over(arguments: Sequence[object]) -> Iterator[bytes | Path]:
    """Pickle what each worker is given: as it is, or in a file if a pipe cannot hold it.

    Python writes it into a pipe whose reading end it holds itself until all is written: of a worker that ends
    before it has read as much, nobody would hear (``multiprocessing/popen_spawn_posix.py``, ``_launch``).
    """
    import pickle  # noqa: PLC0415 - as above
    from tempfile import gettempdir  # noqa: PLC0415

    from kvreport.atomic.workspace import claim, sweep  # noqa: PLC0415

    content = pickle.dumps(tuple(arguments), protocol=5)
    if len(content) <= _PIPE_BYTES:
        yield content
        return
    sweep(Path(gettempdir()), _GIVEN)
    work = claim(Path(gettempdir()), _GIVEN)
    try:
        file = work.folder / "given"
        file.write_bytes(content)
        yield file
    finally:
        work.close()


def _end(pool: ProcessPoolExecutor) -> None:
    """End every worker now; what they computed is of no use any more."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    for process in processes:
        process.terminate()
    # Last, because it takes a lock that the exception may have left taken.
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()


def _begin(initializer: Callable[..., None] | None, given: bytes | Path) -> None:
    """Make a worker leave Ctrl-C to its parent, and end with it."""
    import pickle  # noqa: PLC0415
    from multiprocessing import connection, parent_process  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        _end_after(lambda: connection.wait([parent.sentinel]))
    if initializer is not None:
        content = given if isinstance(given, bytes) else given.read_bytes()
        initializer(*pickle.loads(content))  # noqa: S301 - what the parent has written


def _end_after(wait: Callable[[], object]) -> None:
    def watch() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def follow_standard_input() -> None:
    """End this process when standard input ends, which it does with the process that holds it open."""
    _end_after(lambda: os.read(0, 1))


def run_beside(module: str, arguments: Sequence[str], cwd: str | os.PathLike[str]) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` quietly, as a process that ends when this one does."""
    code = f"{_FOLLOW}runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-c", code, module, *arguments],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
