"""Make the n-th change of the file system fail, or end the process there, as SQLite's tests do."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from kvreport.atomic import folders

CHANGES = ("rename", "replace", "link", "mkdir", "fsync")
KILLED = 77


class Faults:
    """A counter that strikes once.

    Attributes:
        count: Changes so far.
        struck: The name of the change that failed.
    """

    def __init__(self, at: int, strike: Callable[[], None]) -> None:
        self.at, self._strike = at, strike
        self.count = 0
        self.struck = ""

    def pass_by(self, name: str) -> None:
        self.count += 1
        if self.count == self.at:
            self.struck = name
            self._strike()


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_memory() -> None:
    raise MemoryError


def death() -> None:
    os._exit(KILLED)


class _Writing:
    """A file whose writes are counted; half of the content of the one that fails is there."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, content: Any) -> int:
        if self._faults.count + 1 == self._faults.at:
            self._file.write(content[: len(content) // 2])
            self._file.flush()
        self._faults.pass_by("write")
        return self._file.write(content)

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def injected(at: int, strike: Callable[[], None] = full_disk, under: Path | None = None) -> Iterator[Faults]:
    """Let the n-th change fail: a write, rename, link, fsync or a new folder.

    Args:
        at: Which, from 1; 0 for none, to count them.
        strike: What happens there.
        under: Count only what happens to names below this folder.
    """
    faults = Faults(at, strike)

    def concerns(*names: object) -> bool:
        return under is None or any(
            isinstance(name, str | os.PathLike) and Path(os.fspath(name)).is_relative_to(under)
            for name in names
        )

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            if concerns(*arguments) or name == "fsync":
                faults.pass_by(name)
            return real(*arguments, **named)

        return change

    real_open = io.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        made = real_open(file, mode, *arguments, **named)
        writes = any(sign in mode for sign in "wxa") and isinstance(file, str | os.PathLike)
        return _Writing(made, faults) if writes and concerns(file) else made

    patches = [mock.patch.object(os, name, counted(name, getattr(os, name))) for name in CHANGES]
    patches += [
        mock.patch.object(io, "open", opened),
        mock.patch.object(builtins, "open", opened),
        mock.patch.object(shutil, "_USE_CP_SENDFILE", False),
        mock.patch.object(folders, "exchange", counted("exchange", folders.exchange)),
    ]
    for patch in patches:
        patch.start()
    try:
        yield faults
    finally:
        for patch in reversed(patches):
            patch.stop()


def every(
    run: Callable[[], object], check: Callable[[bool], None], strike: Callable[[], None] = full_disk
) -> int:
    """Run something until no change of it fails any more, each time with the next one failing.

    Args:
        run: What is tried; called in a state that it makes itself.
        check: Called after each with whether it ended well.
        strike: What happens at the change.

    Returns:
        How many changes were failed.
    """
    at = 0
    while True:
        at += 1
        well = True
        with injected(at, strike) as faults:
            try:
                run()
            except (OSError, MemoryError):
                well = False
            except ValueError as error:  # a sentence that names the fault
                if error.__cause__ is None:
                    raise
                well = False
        if not faults.struck:
            return at - 1
        check(well)


def every_death(run: Callable[[], object], check: Callable[[], None]) -> int:
    """Run something in a child that dies at its first change, at its second, and so on, until it lives."""
    at = 0
    while True:
        at += 1
        child = os.fork()
        if child == 0:
            try:
                with injected(at, death):
                    run()
            except BaseException:  # noqa: BLE001 - a child must never return to the test runner
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, KILLED), code
        if code == 0:
            return at - 1
        check()
