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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from kvreport.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")

_ENDED_BY_SIGNAL: Final = 128
_PATIENCE_SECONDS: Final = 5.0
_LAST_PATIENCE_SECONDS: Final = 12.0
_PIPE_BYTES: Final = 16 << 10
"""A quarter of what a pipe holds on Linux: ``pipe(7)``; the rest is for what Python adds."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD`` of glibc's malloc.h."""
_GIVEN: Final = "kvreport-workers-"
_OURS: Final = "kvreport-"
"""How the names of our own threads begin: a copy of this process takes no lock that one of them may hold."""
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
        # Sweeps the temporary folders; CPython has no public name for it.
        atexit._run_exitfuncs()  # noqa: SLF001
    finally:
        os._exit(_ENDED_BY_SIGNAL + number)


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, up to 256 MiB, instead of giving it back and asking again.

    Arrays of some hundred KiB, made and freed for each model, otherwise cost a page fault for every 4 KiB each time: a
    tenth and more of what computing the dataset takes.

    Returns:
        Whether the system's allocator can be told (glibc's can).

    Source: ``mallopt(3)``; 32 MiB is the largest threshold that glibc takes for blocks outside the heap.
    """
    import ctypes  # noqa: PLC0415 - one estimate needs none

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    told = [mallopt(_TRIM_THRESHOLD, 256 << 20), mallopt(_MMAP_THRESHOLD, 32 << 20)]
    return all(told)


@contextmanager
def workers(
    count: int, initializer: Callable[..., None] | None = None, arguments: Sequence[object] = ()
) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes that outlives nothing: neither an exception nor its parent.

    Fresh, because a fork of a process that has threads (the host's, Arrow's) may hang.

    Args:
        count: Processes.
        initializer: Called once in each of them.
        arguments: What it is called with.

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
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
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
    """Start ``python -m module`` quietly, as a process that ends when this one does.

    Args:
        module: The module.
        arguments: Its arguments.
        cwd: Where it runs.
    """
    code = f"{_FOLLOW}runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-c", code, module, *arguments],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def copied(work: Callable[[], T], here: Callable[[], T] | None = None) -> Callable[[], T] | None:
    """Let a copy of this process begin some work, beside what this one does.

    A copy has at once what this process has read; a fresh worker would have to read it again. What it writes to
    caches is written when :func:`settle_copies` returns. It ends with this process, and leaves Ctrl-C to it.

    Args:
        work: What to do. What it returns is pickled; what else it changes in memory is lost.
        here: What does it in this process if the copy failed; None for the same.

    Returns:
        What waits for the result. Where the copy failed, it does the work here, so that an error is told as always.
        None where there can be no copy (a system without a safe ``fork``, one processor, threads of others, whose
        locks nobody would release): then do the work where its result is needed.
    """
    threads = [one for one in threading.enumerate() if one is not threading.main_thread()]
    if (
        sys.platform != "linux"
        or (os.cpu_count() or 1) == 1
        or threading.current_thread() is not threading.main_thread()
        or not all(one.name.startswith(_OURS) for one in threads)
    ):
        return None
    copy = _Copy(work)

    def result() -> T:
        import pickle  # noqa: PLC0415 - one estimate needs none

        content = copy.content()
        return (here or work)() if content is None else pickle.loads(content)  # noqa: S301 - written by the copy

    return result


_leaving: Final[list[_Copy]] = []


def settle_copies() -> None:
    """Wait until every copy whose result was taken has written what it keeps."""
    while _leaving:
        _leaving.pop().leave()


class _Copy:
    """A copy of this process, with a pipe for its answer and one that ends with this process."""

    def __init__(self, work: Callable[[], object]) -> None:
        import warnings  # noqa: PLC0415 - one estimate needs none
        import weakref  # noqa: PLC0415

        self._answer, told = os.pipe()
        watched, held = os.pipe()
        # A signal must not find a copy that still takes itself for its parent.
        signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # of threads: ours are known to do no harm
                self._number = os.fork()
            if self._number == 0:
                os.close(self._answer)
                os.close(held)
                _be_a_copy(work, told, watched, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(told)
        os.close(watched)
        # At the exit of this process, or where nobody has the result's function any more, the last one comes first.
        self.leave = weakref.finalize(self, _gone, os.getpid(), self._number, held)
        self._drop = weakref.finalize(self, _dropped, os.getpid(), self._number, self._answer)

    def content(self) -> bytes | None:
        """Return what the copy answered; None if it failed."""
        answer = bytearray()
        while piece := os.read(self._answer, 1 << 20):
            answer += piece
        self._drop.detach()
        os.close(self._answer)
        _leaving.append(self)
        length = int.from_bytes(answer[:8], "big")
        return bytes(memoryview(answer)[8:]) if answer and len(answer) == 8 + length else None


def _be_a_copy(work: Callable[[], object], told: int, watched: int, signals: set[int]) -> NoReturn:
    """Do the work, answer, write what waits to be written, and end without what this process did at its exit."""
    import pickle  # noqa: PLC0415

    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        _end_after(lambda: os.read(watched, 1))
        content = pickle.dumps(work(), protocol=5)
        with open(told, "wb", buffering=0) as answer:
            for piece in (len(content).to_bytes(8, "big"), content):
                left = memoryview(piece)
                while left:
                    left = left[answer.write(left) :]
        # Waits for threads and executors, as an interpreter does at its end; CPython has no public name for it.
        threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001
    except BaseException:  # noqa: BLE001 - nothing of it may go on as its parent
        os._exit(1)
    os._exit(0)


def _gone(parent: int, number: int, held: int) -> None:
    if os.getpid() == parent:  # and not another copy, which has this one's number too
        with suppress(ChildProcessError):
            os.waitpid(number, 0)
        os.close(held)


def _dropped(parent: int, number: int, answer: int) -> None:
    """End a copy whose answer nobody wants any more."""
    if os.getpid() == parent:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        os.close(answer)
