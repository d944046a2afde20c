"""What a start of llama.cpp or Ollama tells: where its bytes lie, our figures for them, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from kvreport.accounting.engines.llama_cpp.options import LocalOptions, for_build
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.planner import Scratch
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.named import open_model
from kvreport.estimation.opened import said_of
from kvreport.startup_log.endings import Ended, ended
from kvreport.startup_log.llama_cpp import OPTIONS, LlamaStart, on_host, read_start
from kvreport.startup_log.local_start import Buffers, diagnose_local_start, local_start
from kvreport.startup_log.patterns import own_folder
from kvreport.startup_log.reading import read_log
from kvreport.units import GIB, count

SIXTEEN_BIT: Final = ("f16", "bf16")
QUANTIZED: Final = "q8_0"
QUANTIZED_SHARE: Final = 34 / 64
"""Bytes of a block of 32 elements in ``q8_0``, 34, against 64 in 16 bits (``ggml-common.h``)."""

SPARE_BYTES: Final = GIB
"""Left free on a device (``--fit-target``, 1 GiB by default)."""

WORDS: Final = {
    "model": "weights",
    "KV": "cache",
    "RS": "recurrent states",
    "compute": "working memory",
    "output": "output",
    "all": "weights, cache and working memory",
}


@dataclass(frozen=True, slots=True)
class LocalDiagnosis:
    """A start of llama.cpp or Ollama, understood."""

    start: LlamaStart  # What its lines state.
    computed: Buffers | None  # Our figures for the same cells; None where the model is not known.
    changes: tuple[str, ...]  # What to change, one sentence each.
    notes: tuple[str, ...]  # What is missing for more.
    ended: Ended | None = None  # How the start ended, where a line of it tells.

    @property
    def headline(self) -> str:
        """The conclusion in one sentence."""
        start, taken = self.start, self._taken()
        if self.ended is not None or start.ran_out:
            end = self.ended.sentence if self.ended else "The server does not start: memory ran out."
            return " ".join((end, *([f"Until then, it took {taken}."] if taken else []), *self._parts()))
        told = [f"The start takes {taken}."] if taken else []
        if start.context is not None:
            slots = f", shared by {start.slots} requests" if start.slots and start.slots > 1 else ""
            told = [f"It starts with {start.context:,} tokens{slots}{f': {taken}' if taken else ''}."]
        return " ".join((*told, *self._parts(), *self._missing()))

    def _taken(self) -> str:
        """What the buffers take; empty where no line states one."""
        start = self.start
        sides = (("on devices", False), ("in host memory", True))
        placed = {on_host(name) for name in start.buffers}
        taken = ", ".join(
            f"{(start.host_bytes if host else start.device_bytes) / GIB:.2f} GiB {where}"
            for where, host in sides
            if host in placed or (placed and not start.missing)
        )
        if start.unplaced:
            taken = f"an unknown part of the {start.unplaced / GIB:.2f} GiB that all layers need on devices"
        if taken and start.offloaded and start.offloaded[0] < start.offloaded[1]:
            taken += f", with {start.offloaded[0]} of {start.offloaded[1]} layers on the GPU"
        return taken

    def _parts(self) -> Iterator[str]:
        """What the log states of the cache and of the states, where no line has their buffers."""
        start = self.start
        if start.kv_bytes and "KV" in start.missing:
            told = f"The cache takes {start.kv_bytes / GIB:.2f} GiB"
            if len(start.cells) == 1 and start.cells[0]:
                each = int(start.kv_bytes / (start.cells[0] * (start.streams or 1)) + 0.5)
                told += f": {start.cells[0]:,} cells of {each:,} bytes, one for each token"
                told += f" of each of {start.streams} requests" if (start.streams or 1) > 1 else ""
            yield f"{told}."
        if start.state_bytes and not any("RS" in kinds for kinds in start.buffers.values()):
            yield f"The recurrent states take {start.state_bytes / GIB:.2f} GiB."

    def _missing(self) -> Iterator[str]:
        missing = [WORDS[kind] for kind in self.start.missing]
        if not self.start.buffers and missing:
            yield "No line of the log states a buffer, so the memory that the start takes is not known."
        elif missing:
            yield f"No line of the log states the buffer of: {', '.join(missing)}. The sum excludes these parts."

    def lines(self) -> Iterator[str]:
        """Print it."""
        yield self.headline
        yield ""
        for device, kinds in self.start.buffers.items():
            parts = ", ".join(f"{WORDS[kind]} {size / GIB:.2f} GiB" for kind, size in kinds.items())
            free = self.start.free.get(device)
            yield f"  {device}: {parts}" + (f"; {free / GIB:.2f} GiB were free" if free else "")
        if self.start.offloaded:
            yield "  {} of {} layers are on devices".format(*self.start.offloaded)
        if not self.start.is_expected:
            for part, size in self.start.estimated.items():
                yield f"  Ollama expected {size / GIB:.2f} GiB ({part})"
        if self.computed is not None:
            yield ""
            yield "Compared with our numbers:"
            yield from (f"  {line}" for line in self._beside())
        if self.changes:
            yield ""
            yield "What to change:"
            yield from (f"  {line}" for line in self.changes)
        if self.notes:
            yield ""
            yield from self.notes

    def _beside(self) -> Iterator[str]:
        if self.computed is None:
            return
        for name, stated, ours in (
            ("cache", self.start.kv_bytes, self.computed.cache),
            ("recurrent states", self.start.state_bytes, self.computed.states),
            ("working memory", self.start.compute_bytes, self.computed.compute),
        ):
            if stated:
                apart = (ours - stated) / stated
                yield f"{name}: log {stated / GIB:.2f} GiB, we compute {ours / GIB:.2f} GiB ({apart:+.1%})"

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport log --format json`` prints."""
        start = self.start
        return {
            "engine": "llama_cpp",
            "headline": self.headline,
            "ran_out": start.ran_out,
            "buffers": {device: dict(kinds) for device, kinds in start.buffers.items()},
            "device_bytes": start.device_bytes if start.buffers else None,
            "host_bytes": start.host_bytes if start.buffers else None,
            "cache_bytes": None if "KV" in start.missing and not start.kv_bytes else start.kv_bytes,
            "state_bytes": start.state_bytes,
            "compute_bytes": None if "compute" in start.missing else start.compute_bytes,
            "cells": list(start.cells),
            "cache_types": list(start.cache_types) if start.cache_types else None,
            "context_tokens": start.context,
            "slots": start.slots,
            "layers_on_devices": start.offloaded[0] if start.offloaded else None,
            "layers": start.offloaded[1] if start.offloaded else None,
            "free_bytes": dict(start.free),
            "computed": None
            if self.computed is None
            else {
                "cache_bytes": self.computed.cache,
                "state_bytes": self.computed.states,
                "compute_bytes": self.computed.compute,
            },
            "changes": list(self.changes),
            "notes": list(self.notes),
        }


def diagnose_local(
    text: str,
    *,
    model: str | None = None,
    fetch: bool = False,
    revision: str | None = None,
    catalog: Catalog | None = None,
) -> LocalDiagnosis:
    """Read a start of llama.cpp or Ollama, and compare it.

    Args:
        text: The log.
        model: The model, whose sizes are compared with the log's.
        fetch: True to ask the Hub for a model that is not known.
        revision: Branch, tag or commit of the Hub's repository.
        catalog: Where names are looked up; None for the public catalog.

    Raises:
        InputError: If no line is llama.cpp's, or the model is unknown.
    """
    start = read_start(text.splitlines())
    if start.is_empty and not start.failures:
        raise InputError(
            "log: found no start-up line of llama.cpp or Ollama; allowed: the lines of one start"
        )
    known = open_catalog() if catalog is None else catalog
    notes: list[str] = []
    computed = None
    if model is None:
        notes.append("Name the model (--model) to have the log's cache compared with ours.")
    else:
        opened = open_model(model, known, fetch=fetch, revision=revision)
        notes += said_of(opened)
        computed = _computed(start, opened.model, notes)
    end = _ended(start, known)
    said = (*_changes(start), *_further(end))
    return LocalDiagnosis(start, computed, said, tuple(notes), end)


_CALCULATED: Final = ("smaller_cache", "shorter", "fewer_requests", "fewer_layers")
"""Remedies that :func:`_changes` gives with what they save."""


def _ended(start: LlamaStart, known: Catalog) -> Ended | None:
    """How a start ended, by its lines that say so."""
    if not start.failures:
        return None
    reading = read_log("\n".join(start.failures), own_folder(known))
    return ended(replace(reading, engine="ollama" if start.ollama else "llama_cpp"), own_folder(known))


def _further(end: Ended | None) -> Iterator[str]:
    """Remedies of an end that no line of the log has numbers for."""
    for name, words in end.remedies.items() if end is not None else ():
        if name not in _CALCULATED:
            yield words


def _computed(start: LlamaStart, model: Model, notes: list[str]) -> Buffers | None:
    cells = max(start.cells, default=start.context or 0)
    keys, values = start.cache_types or ("f16", "f16")
    if not cells:
        notes.append("The log does not state the number of cells, so nothing is compared.")
        return None
    options = LocalOptions(
        context=start.context or cells,
        parallel=start.slots or 1,
        unified=start.streams in (None, 1),
        type_k=keys,
        type_v=values,
        gpu_layers=None if start.offloaded is None else start.offloaded[0],
    )
    options = replace(options, batch=start.batch or options.batch, ubatch=start.ubatch or options.ubatch)
    options = options if start.build is None else for_build(options, start.build)
    try:
        return diagnose_local_start(
            local_start(model, None, options, printed={}, devices=tuple(_devices(start)))
        ).buffers
    except InputError as error:
        notes.append(f"Nothing is compared: {error}.")
        return None


def _devices(start: LlamaStart) -> Iterator[LocalDevice]:
    for name in start.buffers:
        if not on_host(name):
            backend = name.upper()
            yield LocalDevice(
                name,
                start.free.get(name, _UNKNOWN),
                align=32 if backend.startswith(("METAL", "MTL")) else 128,
                offloads=backend.startswith("CUDA"),
                pipelines=True,
                scratch=_scratch(backend),
            )


def _scratch(backend: str) -> Scratch:
    if backend.startswith(("METAL", "MTL")):
        return "metal"
    return "cuda" if backend.startswith(("CUDA", "ROCM", "HIP", "MUSA")) else "none"


_UNKNOWN: Final = 1 << 60
"""Free bytes where a log does not state them: nothing is judged by them."""


def _changes(start: LlamaStart) -> Iterator[str]:
    """What makes a start that ran out fit, or gives a start that fits more of the device."""
    kept = start.offloaded is not None and start.offloaded[0] < start.offloaded[1]
    options = OPTIONS["ollama" if start.ollama else "llama_cpp"]
    if start.ran_out or kept:
        if start.kv_bytes and (start.cache_types or SIXTEEN_BIT)[0] in SIXTEEN_BIT:
            saved = start.kv_bytes * (1 - QUANTIZED_SHARE)
            flags = options["cache"].replace("{}", QUANTIZED)
            yield f"store the cache as {QUANTIZED} ({flags}): {saved / GIB:.2f} GiB less"
        if start.context and start.context > 1:
            half = options["context"].format(start.context // 2)
            less = f": {start.kv_bytes / 2 / GIB:.2f} GiB less" if start.kv_bytes else ""
            yield f"halve the context ({half}){less}"
        if start.slots and start.slots > 1:
            yield f"serve one request at a time ({options['slots']}), which leaves it the whole context"
    if start.ran_out:
        if start.offloaded:
            fewer = options["layers"].format(max(start.offloaded[0] * 3 // 4, 0))
            yield f"leave layers in host memory ({fewer})"
        else:
            yield f"leave layers in host memory ({options['fewer_layers']}), or use smaller weights"
    elif kept:
        more = _layers_that_fit(start)
        if more:
            all_layers = options["layers"].format((start.offloaded or (0, 0))[0] + more)
            yield f"put {count(more)} more layers on the device ({all_layers})"


def _layers_that_fit(start: LlamaStart) -> int:
    """Further layers that free memory holds: each as large as those that are there."""
    placed, whole = start.offloaded or (0, 0)
    free = sum(start.free.values())
    device = sum(kinds.get("model", 0) for name, kinds in start.buffers.items() if name in start.free)
    if not (placed and free and device):
        return 0
    spare = free - start.device_bytes - SPARE_BYTES
    return max(0, min(int(spare // (device / placed)), whole - placed))
