"""The device under experiment: its memory, its clock, and what it is called.

Everything that only a CUDA device can say is here, so that an experiment reads the same on a CPU.
On a CPU there is no allocator to ask; sizes then come from the tensors themselves.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import torch

LIBRARIES: Final = ("torch", "transformers", "numpy", "triton", "accelerate")
REFUSALS: Final = ("out of memory", "ALLOC_FAILED", "NOT_INITIALIZED")
MACHINES: Final = {"x86_64": "x86-64", "aarch64": "64-bit Arm", "arm64": "64-bit Arm"}


@dataclass(frozen=True)
class Clocked:
    """Times of one repeated call."""

    seconds: float  # The median.
    raw: tuple[float, ...]  # Every timed call, in order.


class Device:
    """A CUDA device, a CPU, or the meta device, which has shapes and no memory.

    Attributes:
        kind: ``cuda``, ``cpu`` or ``meta``.
    """

    def __init__(self, kind: str) -> None:
        """Take the first device of a kind.

        Raises:
            RuntimeError: If there is no CUDA device and one was asked for.
        """
        if kind == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("no CUDA device is visible to PyTorch; say --device cpu for the small runs")
        self.kind = kind

    @property
    def is_cuda(self) -> bool:
        """True where an allocator and a device clock can be asked."""
        return self.kind == "cuda"

    def describe(self) -> dict[str, Any]:
        """Return the machine's class; no host name, no path, no serial number."""
        if not self.is_cuda:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            kind = MACHINES.get(platform.machine(), platform.machine())
            what = f"{kind} container, {cores} cores"
            if self.kind == "meta":
                return {
                    "label": f"meta device, {what}",
                    "note": "transformers' own code decides the shapes; nothing is stored",
                }
            return {"label": what}
        properties = torch.cuda.get_device_properties(0)
        return {
            "label": properties.name,
            "accelerator": properties.name,
            "driver": _nvidia_smi("driver_version") or None,
            "memory_bytes": torch.cuda.mem_get_info(0)[1],
            "note": f"compute capability {properties.major}.{properties.minor}, "
            f"{properties.multi_processor_count} multiprocessors",
        }

    def slug(self) -> str:
        """Return a short name for file names: ``h200``, ``cpu``, ``meta``."""
        if not self.is_cuda:
            return self.kind
        words = torch.cuda.get_device_name(0).lower().replace("nvidia", "").replace("geforce", "").split()
        return "-".join(words) or "cuda"

    def versions(self) -> dict[str, str]:
        """Return the versions of what took part."""
        found = (
            {"python": platform.python_version(), "kvreport": version("kvreport")}
            if _has("kvreport")
            else {"python": platform.python_version()}
        )
        for name in LIBRARIES:
            if _has(name):
                found[name] = version(name)
        if self.is_cuda:
            found["cuda"] = torch.version.cuda or "unknown"
        return found

    def allocated(self) -> int:
        """Bytes in tensors; 0 where nobody counts them."""
        return torch.cuda.memory_allocated() if self.is_cuda else 0

    def reserved(self) -> int:
        """Bytes that the allocator has taken from the driver."""
        return torch.cuda.memory_reserved() if self.is_cuda else 0

    def peak(self) -> int:
        """Most bytes in tensors since :meth:`forget_peak`."""
        return torch.cuda.max_memory_allocated() if self.is_cuda else 0

    def peak_reserved(self) -> int:
        """Most bytes that the allocator held since :meth:`forget_peak`."""
        return torch.cuda.max_memory_reserved() if self.is_cuda else 0

    def forget_peak(self) -> None:
        """Begin a new peak."""
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats()

    def free(self) -> int:
        """Bytes that the driver could still give."""
        return torch.cuda.mem_get_info(0)[0] if self.is_cuda else 0

    def total(self) -> int:
        """Bytes of the device as the driver counts them."""
        return torch.cuda.mem_get_info(0)[1] if self.is_cuda else 0

    def sync(self) -> None:
        """Wait until everything queued is done."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def clear(self) -> None:
        """Give back what nobody refers to."""
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()

    def clock(self, call: Callable[[], object], *, repeats: int = 9, warmups: int = 3) -> Clocked:
        """Time a call: warm-ups first, then every repeat by itself, by the device's own events.

        Args:
            call: What to time.
            repeats: Timed calls; the median is taken.
            warmups: Calls before that, not timed.
        """
        for _ in range(warmups):
            call()
        self.sync()
        seconds = []
        for _ in range(repeats):
            if self.is_cuda:
                start = torch.cuda.Event(enable_timing=True)
                end = torch.cuda.Event(enable_timing=True)
                start.record()
                call()
                end.record()
                end.synchronize()
                seconds.append(start.elapsed_time(end) / 1e3)
            else:
                begun = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - begun)
        return Clocked(statistics.median(seconds), tuple(seconds))

    def attempt(self, call: Callable[[], object]) -> bool:
        """Return whether a call ends without the allocator refusing; memory is given back either way."""
        try:
            call()
            self.sync()
        except torch.OutOfMemoryError:
            return False
        except RuntimeError as error:
            # Libraries beside the allocator say it in their own words.
            if not any(word in str(error) for word in REFUSALS):
                raise
            return False
        finally:
            self.clear()
        return True


def used_by_all() -> int | None:
    """Return the bytes in use on the first device as the driver's tool counts them, or None."""
    text = _nvidia_smi("memory.used")
    return int(text) << 20 if text.isdigit() else None


def _nvidia_smi(field: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--id=0", f"--query-gpu={field}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _has(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
