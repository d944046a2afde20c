"""llama.cpp's and Ollama's start-up lines: what a start allocated, where, and whether it ran out.

Pure functions over text. Ollama passes llama-server's lines through, so both read alike; the estimates that
Ollama printed by itself before mid-2026 are read, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, Final

from kvreport.catalog.log_lines import log_lines
from kvreport.startup_log.reading import browser_expression

MIB: Final = 1 << 20

_NUMBERS: Final = ("context", "slots", "ubatch", "batch")
"""Lines whose only group is a setting of this name."""
_AGAIN: Final = "retrying without pipeline parallelism"
_PLACED_KINDS: Final = {"model weights": "model", "kv cache": "KV", "compute graph": "compute"}
_NEED: Final = "memory.required.full="
_TELLING: Final = ("buffer", "weights", "placed", "out", "ends")
"""Lines that say where bytes are, or why a start ends."""
_PLACED_ENDS: Final = 'msg="total memory"'
_EXPECTED: Final = ("expected on devices", "CPU (expected)")
_UNDIVIDED: Final = "all"
"""The kind of bytes that a log does not divide into kinds."""
_EXPECTED_NAMES: Final = frozenset(_EXPECTED)
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
OPTIONS: Final = {
    "llama_cpp": {
        "cache": "-ctk {} -ctv {}",
        "context": "-c {}",
        "slots": "-np 1",
        "layers": "-ngl {}",
        "fewer_layers": "a smaller -ngl",
    },
    "ollama": {
        "cache": "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE={}",
        "context": "num_ctx {}",
        "slots": "OLLAMA_NUM_PARALLEL=1",
        "layers": "num_gpu {}",
        "fewer_layers": "a smaller num_gpu",
    },
}
"""How each server is told: flags of ``llama-server``; variables and model parameters of Ollama (``envconfig/config.go``,
``docs/modelfile.mdx``)."""

_HOSTS: Final = re.compile(r"^(CPU|.*_Host|.*_host)", re.IGNORECASE)


@dataclass
class LlamaStart:
    """One start of llama.cpp, as its lines tell it. Sizes are bytes, rounded as printed."""

    # Bytes by device and by kind (``model``, ``KV``, ``RS``, ``compute``, ``output``).
    buffers: dict[str, dict[str, int]] = field(default_factory=dict)
    kv_bytes: int = 0  # Keys and values of all slots.
    state_bytes: int = 0  # Recurrent states, and what compressors keep, of all slots.
    cells: list[int] = field(default_factory=list)  # Cells of each cache, the full one first.
    cache_types: tuple[str, str] | None = None  # Types of keys and values.
    context: int | None = None  # ``n_ctx``.
    slots: int | None = None  # ``n_seq_max``.
    streams: int | None = None  # Rows of cells: 1 where all slots share one.
    ubatch: int | None = None  # ``n_ubatch``.
    batch: int | None = None  # ``n_batch``.
    offloaded: tuple[int, int] | None = None  # Layers on devices and layers in all.
    architecture: str | None = None  # ``general.architecture``.
    free: dict[str, int] = field(default_factory=dict)  # Bytes free on each device at start.
    estimated: dict[str, int] = field(default_factory=dict)  # What an older Ollama expected, by part.
    build: str | None = None  # The number of the build, where the log names it.
    # Where Ollama's own engine says that its bytes lie, by device and kind, of its last attempt.
    placed: dict[str, dict[str, int]] = field(default_factory=dict)
    complete: bool = False  # True after the last line of such an attempt.
    ran_out: bool = False  # True if a line says that memory ran out.
    # Lines that say so, or end a start in another way; of the last try where one was made again.
    failures: list[str] = field(default_factory=list)
    # True if Ollama started it, which is told by variables and parameters instead of flags.
    ollama: bool = False

    @property
    def device_bytes(self) -> int:
        """Bytes of all buffers on devices."""
        return self._sum(host=False)

    @property
    def host_bytes(self) -> int:
        """Bytes of all buffers in host memory."""
        return self._sum(host=True)

    @property
    def compute_bytes(self) -> int:
        """Bytes of the compute buffers on devices."""
        return sum(kinds.get("compute", 0) for name, kinds in self.buffers.items() if not on_host(name))

    def _sum(self, *, host: bool) -> int:
        return sum(sum(kinds.values()) for name, kinds in self.buffers.items() if on_host(name) == host)

    @property
    def is_expected(self) -> bool:
        """True if the buffers are what an older Ollama expected, and not what was allocated."""
        return not _EXPECTED_NAMES.isdisjoint(self.buffers)

    @property
    def unplaced(self) -> int:
        """What an older Ollama expected all layers to need, where the log does not tell how much of it is placed."""
        return 0 if self.buffers else self.estimated.get("full", 0)

    @property
    def is_empty(self) -> bool:
        """True if no line was llama.cpp's."""
        return not (self.buffers or self.cells or self.kv_bytes or self.state_bytes or self.estimated)

    @property
    def missing(self) -> list[str]:
        """The kinds of buffers that no line states, of a start whose lines divide its bytes into kinds."""
        stated = {kind for kinds in self.buffers.values() for kind in kinds}
        if self.unplaced or self.is_expected:
            return []
        return [kind for kind in KINDS if kind not in stated and not (kind == "KV" and "RS" in stated)]


def on_host(name: str) -> bool:
    """True for a buffer in host memory, by the name that llama.cpp gives it."""
    return bool(_HOSTS.match(name))


KINDS: Final = ("model", "KV", "compute")
"""The buffers that every start has; one with recurrent states alone has no cache."""
MARKS: Final = (
    "llama_kv_cache:",
    "llama_kv_cache_unified:",
    "llama_memory_recurrent:",
    "llm_load_tensors:",
    "model buffer size =",
    "KV buffer size =",
    "RS buffer size =",
    "compute buffer size =",
    "KV self size",
    "load_tensors:",
    "sched_reserve:",
    "llama_context:",
    _NEED,
    'msg="model weights" device=',
    'msg="kv cache" device=',
    'msg="compute graph" device=',
)
"""Words of lines that only llama.cpp and Ollama print."""


def browser_table() -> dict[str, Any]:
    """The patterns of this module as plain data, for the reader in the browser."""
    named = {name: found.pattern for name, found in _find().items()} | {"hosts": _HOSTS.pattern}
    return {
        "marks": list(MARKS),
        "patterns": {name: browser_expression(found) for name, found in named.items()},
        "numbers": _NUMBERS,
        "mib": MIB,
        "units": _UNITS,
        "expected": list(_EXPECTED),
        "placedKinds": _PLACED_KINDS,
        "placedEnds": _PLACED_ENDS,
        "options": OPTIONS,
        "again": _AGAIN,
        "need": _NEED,
        "telling": list(_TELLING),
        "kinds": list(KINDS),
    }


@cache
def _find() -> dict[str, re.Pattern[str]]:
    """Every line that a start is put together from, by its name in ``data/log_lines``."""
    return {line.name: re.compile(line.expanded, re.ASCII) for one in log_lines() for line in one.starts}


def looks_like_llama_cpp(text: str) -> bool:
    """True if a log has lines that only llama.cpp prints."""
    return any(mark in text for mark in MARKS)


def read_start(lines: Iterable[str]) -> LlamaStart:
    """Read the start-up lines of llama.cpp or Ollama; other lines are passed over."""
    start = LlamaStart()
    for line in _last_start(lines):
        _read_line(start, line)
        if named := _find()["build"].search(line):
            start.build = named[1]
    if not start.buffers and start.placed:
        start.buffers = start.placed
    start.kv_bytes = start.kv_bytes or sum(kinds.get("KV", 0) for kinds in start.buffers.values())
    start.state_bytes = start.state_bytes or sum(kinds.get("RS", 0) for kinds in start.buffers.values())
    if not start.buffers and "full" in start.estimated:
        _expect(start)
    return start


def _last_start(lines: Iterable[str]) -> list[str]:
    """The lines of the last start that says where bytes are, or why it ends: those of two are no sum.

    A start begins with the number of the build, or with what an older Ollama expects.
    """
    find, begun, told = _find(), [list[str]()], [False]
    for line in lines:
        if find["build"].search(line) or _NEED in line:
            begun.append([])
            told.append(False)
        begun[-1].append(line)
        told[-1] |= _NEED in line or any(find[name].search(line) for name in _TELLING)
    return next((begun[at] for at in reversed(range(len(begun))) if told[at]), [*chain(*begun)])


def _expect(start: LlamaStart) -> None:
    """Where an older Ollama expected its bytes, of a log that has no buffer of llama.cpp's."""
    part = start.estimated
    full, cache = part["full"], part.get("kv", 0)
    weights = part.get("weights.total", 0) + part.get("projector.weights", 0)
    placed, layers = start.offloaded or (1, 1)
    share = placed / layers if layers else 0.0
    if part.get("available"):
        start.free[_EXPECTED[0]] = part["available"]
    start.kv_bytes = cache
    if not {"weights.total", "kv"} <= part.keys():
        # The need of all layers, whose parts are not told: what of it is placed is "partial".
        on_device = part.get("partial", full if placed == layers else 0) if placed else 0
        if on_device or not placed:
            sizes = zip(_EXPECTED, (on_device, full - on_device), strict=True)
            start.buffers = {name: {_UNDIVIDED: size} for name, size in sizes if size > 0}
        return
    devices = {
        "model": weights * share,
        "KV": cache * share,
        "compute": (full - weights - cache) * bool(placed),
    }
    host = {"model": weights - devices["model"], "KV": cache - devices["KV"]}
    if not placed:
        host["compute"] = full - weights - cache
    for name, kinds in zip(_EXPECTED, (devices, host), strict=True):
        known = {kind: int(size) for kind, size in kinds.items() if int(size) > 0}
        if known:
            start.buffers[name] = known


def _read_line(start: LlamaStart, line: str) -> None:
    find = _find()
    if found := find["buffer"].search(line) or find["weights"].search(line):
        kinds, kind = start.buffers.setdefault(found["device"], {}), found.groupdict().get("kind", "model")
        kinds[kind] = kinds.get(kind, 0) + _mib(found["mib"])
    elif found := find["offloaded"].search(line):
        start.offloaded = (int(found[1]), int(found[2]))
    elif found := find["layers"].search(line):
        start.offloaded = (int(found["placed"]), int(found["all"]))
    elif found := find["architecture"].search(line):
        start.architecture = found[1] or found[2]
    elif found := find["free"].search(line):
        start.free[found[1]] = int(found[2]) * MIB
    _read_cache(start, line)
    _read_placed(start, line)
    for part in find["expected"].finditer(line):
        start.estimated[part["part"]] = int(float(part["size"]) * _UNITS[part["unit"]])
    for name in _NUMBERS:
        if found := find[name].search(line):
            setattr(start, name, int(found[1]))
    _read_failure(start, line)
    start.ollama = start.ollama or bool(find["from_ollama"].search(line))


def _read_cache(start: LlamaStart, line: str) -> None:
    """Read what the cache and the states take, without the devices that have them."""
    find = _find()
    if found := find["states"].search(line) or find["compressors"].search(line.rstrip()):
        start.state_bytes += _mib(found["mib"])
    elif found := find["cache_size"].search(line):
        start.cells.append(int(found["cells"]))
    elif found := find["cells"].search(line):
        start.kv_bytes += _mib(found["mib"])
        if found["cells"]:
            start.cells.append(int(found["cells"]))
        if found["key"] and found["value"]:
            start.cache_types = (found["key"], found["value"])
        if found["streams"]:
            start.streams = int(found["streams"])


def _read_failure(start: LlamaStart, line: str) -> None:
    """Read what ends a start; a line that says so begins another try."""
    find = _find()
    if _AGAIN in line:
        start.ran_out, start.failures = False, []
    elif find["out"].search(line) or find["ends"].search(line):
        start.ran_out = start.ran_out or bool(find["out"].search(line))
        start.failures.append(line)


def _read_placed(start: LlamaStart, line: str) -> None:
    """Read what Ollama's own engine says; a line after the last of an attempt begins another."""
    if found := _find()["placed"].search(line):
        if start.complete:
            start.placed, start.complete = {}, False
        kinds = start.placed.setdefault(found["device"], {})
        kinds[_PLACED_KINDS[found["what"]]] = int(float(found["size"]) * _UNITS[found["unit"]])
    elif _PLACED_ENDS in line:
        start.complete = True


def _mib(text: str) -> int:
    return round(float(text) * MIB)
