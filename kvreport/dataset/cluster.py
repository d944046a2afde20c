"""The matrix on a cluster: its files as tasks of a Dask scheduler that is there already.

Each task computes and writes a few files of the partitioned dataset, so nothing but row counts travels back. Workers need this version of kvreport and the same folder (a shared file system). A run that
was interrupted, here or on a worker, goes on: files that are there are not computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kvreport.dataset.grid import Axes
from kvreport.dataset.partitions import Writer, write_piece
from kvreport.errors import InputError, missing, shorten

_PER_THREAD: Final = 4
"""Tasks in flight per thread of the cluster: enough to keep it busy, few enough to stay in little memory."""
_FILES: Final = 16
"""Files of a task, at most: one takes a tenth of a second, a few times what handing out a task takes."""
_SECONDS: Final = 15


@contextmanager
def writer_on(address: str) -> Iterator[Writer]:
    """Connect to a Dask scheduler while its workers write a partitioned dataset, whose folder has the same path on each.

    ``address``: the scheduler's address, such as ``tcp://10.0.0.1:8786``.

    Yields:
        What writes the files, for :func:`~kvreport.dataset.partitions.write_partitioned`.

    Raises:
        InputError: If there is no scheduler, no worker, or a worker cannot write.
    """
    with connected(address) as client:
        yield partial(_written, client)


def connected(address: str) -> Any:  # noqa: ANN401 - a client; distributed has no types
    """Return a client of a scheduler that has workers.

    Raises:
        InputError: If distributed is not installed, or nobody answers.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise InputError(f"scheduler: {missing('distributed', 'cluster')}") from error
    try:
        client = distributed.Client(address, timeout=_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"scheduler: found {shorten(address)}, {str(error) or 'no answer'}; allowed: the address of a running "
            "Dask scheduler, such as tcp://10.0.0.1:8786"
        ) from error
    if not client.nthreads():
        client.close()
        raise InputError(f"scheduler: found {shorten(address)} without a worker; allowed: one with workers")
    return client


def _written(client: Any, folder: Path, pieces: Iterable[Axes]) -> Iterator[int]:  # noqa: ANN401
    """Yield the rows of each file as its task is finished, with a bounded number of tasks in flight."""
    work = list(pieces)
    most = max(1, sum(client.nthreads().values())) * _PER_THREAD
    number = min(_FILES, max(1, len(work) // most))
    tasks = (tuple(work[at : at + number]) for at in range(0, len(work), number))
    flying = import_module("distributed").as_completed(
        [client.submit(_write, folder, task, pure=False) for task in islice(tasks, most)],
        loop=client.loop,
    )
    for future in flying:
        yield from future.result()
        future.release()
        for task in islice(tasks, 1):
            flying.add(client.submit(_write, folder, task, pure=False))


def _write(folder: Path, task: Sequence[Axes]) -> list[int]:
    return [write_piece(folder, piece) for piece in task]
