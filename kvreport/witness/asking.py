"""Ask the engine that is installed under an interpreter, and say where its plan and ours part.

The engine runs in a process of its own (:mod:`kvreport.witness.run`) with a device that is not there, so that no GPU
is touched and no weights are read. What it prints is from outside: bounded in seconds and bytes, and judged field by
field.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport.accounting import capacity
from kvreport.accounting.engines.sglang.pools import Division, pools_of
from kvreport.errors import InputError, shorten
from kvreport.units import GIB, human_bytes

if TYPE_CHECKING:
    from kvreport.catalog.accelerator import Accelerator
    from kvreport.estimation import Estimate

ASKED: Final = ("vllm", "sglang")
SECONDS: Final = 300
"""Longest wait for one answer: an import takes 10 to 30 s, a large model's layers as long again."""
MOST_BYTES: Final = 16 << 20
EMPTY_POOL_BYTES: Final = 40 * GIB
"""The pool that is asked about where ours is empty: plans part before memory does."""
_LONGEST: Final = 300
_CAUSES: Final = {
    "not installed": tuple(f"No module named '{name}'" for name in ("vllm", "sglang", "torch")),
    "class unknown": ("failed to be inspected", "does not recognize this architecture", "are not supported"),
    "needs a GPU": ("CUDA", "accelerator device", "NVIDIA driver"),
}
_COUNTS: Final = (
    "length",
    "pool",
    "weight_bytes",
    "blocks", "tokens", "window_tokens", "state_slots", "block_tokens", "page_tokens", "max_batched_tokens", "max_seqs",
    "max_requests", "chunk_tokens", "captured_requests", "context_tokens",
)  # fmt: skip
_REALS: Final = ("concurrency", "share")
_SAID: Final = ("kv_type", "kv_dtype", "architecture", "prefix_caching", "own_class")


@dataclass(frozen=True, slots=True)
class AskedStart:
    """One start that an engine is asked about.

    Attributes:
        model: The model's id, by which SGLang knows Llama 2.
        config: The model's ``config.json``.
        quantizer: The checkpoint's ``hf_quant_config.json``, or None.
        words: Flags of the server, without its name and the model.
        pools: Bytes for the cache on one GPU.
        lengths: Tokens of a request; none for the engine's own.
    """

    model: str
    config: Mapping[str, Any]
    quantizer: Mapping[str, Any] | None
    words: tuple[str, ...]
    pools: tuple[int, ...]
    lengths: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as the other process reads it."""
        return {name: getattr(self, name) for name in self.__slots__}


def ask(
    python: str,
    engine: str,
    device: Accelerator,
    cases: Sequence[Mapping[str, Any]],
    *,
    path: Path | None = None,
    seconds: float = SECONDS,
) -> list[dict[str, Any]]:
    """Return an engine's answer to each case: its figures, or ``error`` with what it said.

    Args:
        python: The interpreter that has the engine, or torch and what else its wheel imports.
        engine: ``vllm`` or ``sglang``.
        device: The GPU that stands in; it needs a compute capability.
        cases: Starts, as :meth:`AskedStart.to_dict` has them.
        path: The folder of an unpacked wheel, instead of what is installed.
        seconds: Longest wait for all of them.

    Raises:
        InputError: If there is no such interpreter.
    """
    capability = re.fullmatch(r"(\d+)\.(\d+)", device.compute_capability or "")
    # AMD's architectures are gfx942 and the like: major release, minor one, stepping.
    amd = re.fullmatch(r"gfx(\d+)(\d)[\da-f]", device.compute_capability or "") if engine == "vllm" else None
    if (parts := capability or amd) is None:
        return [{"error": f"{device.name} has no CUDA capability to pretend"}] * len(cases)
    pretended = {
        "name": device.name,
        "memory_bytes": int((device.memory.driver_visible or device.memory.usable).value),
        "capability": [*map(int, parts.groups())],
        "gcn_arch": amd and amd[0],
    }
    question = {
        "engine": engine,
        "device": pretended,
        "path": path and str(path.absolute()),
        "cases": [*cases],
    }
    with (
        tempfile.TemporaryFile() as told,
        tempfile.TemporaryFile() as asked,
        tempfile.TemporaryDirectory() as at,
    ):
        asked.write(json.dumps(question).encode())
        asked.seek(0)
        # It runs in an empty folder, where a path from here names nothing.
        named = str(Path(python).absolute()) if os.sep in python else python
        command = [named, "-B", str(Path(__file__).with_name("run.py"))]
        try:
            process = subprocess.Popen(  # noqa: S603 - the interpreter that the user names
                command, stdin=asked, stdout=told, stderr=subprocess.DEVNULL, cwd=at, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"ask-engine: found no interpreter {shorten(python)}; allowed: the python of the environment with {engine}"
            ) from error
        why = _ended(process, told.fileno(), seconds)
        told.seek(0)
        lines = told.read(MOST_BYTES + 1).splitlines()
        if told.tell() > MOST_BYTES:
            lines, why = [], f"it printed more than {human_bytes(MOST_BYTES)}"
    found = [_judged(line) for line in lines[: len(cases)]]
    if len(found) == 1 and "cannot" in found[0]:
        return [{"error": found[0]["cannot"]}] * len(cases)
    return found + [{"error": why}] * (len(cases) - len(found))


def _ended(process: subprocess.Popen[bytes], told: int, seconds: float) -> str:
    """Wait for the end of a process, or end it; return why it said no more."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    return f"no answer within {seconds:.0f} s"
                if os.fstat(told).st_size > MOST_BYTES:
                    return ""
            else:
                return f"it ended with status {process.returncode} and no answer"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started may outlive it
        process.wait()


def _judged(line: bytes) -> dict[str, Any]:
    """Return what one line of the other process says, without what has not the form of an answer."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return {"error": "its answer is no JSON object"}
    found: dict[str, Any] = {}
    for name in ("error", "cannot", "release", *_SAID):
        if isinstance(said.get(name), str):
            found[name] = _line(said[name])
    found |= {name: said[name] for name in _SAID if isinstance(said.get(name), bool)}
    found |= _numbers(said)
    told = said.get("facts")
    if isinstance(told, dict):
        found["facts"] = {_line(name): _line(text) for name, text in told.items() if isinstance(text, str)}
    rows = said.get("at")
    found["at"] = [
        _numbers(one) | _refusal(one)
        for one in (rows if isinstance(rows, list) else ())
        if isinstance(one, dict) and type(one.get("pool")) is int
    ]
    return found


def _line(said: str) -> str:
    text = "".join(sign if sign.isprintable() else " " for sign in said[:_LONGEST])
    return " ".join(text.split())


def _numbers(said: Mapping[str, Any]) -> dict[str, Any]:
    counts = {
        name: said[name] for name in _COUNTS if type(said.get(name)) is int and 0 <= said[name] < 1 << 62
    }
    reals = {
        name: float(said[name])
        for name in _REALS
        if type(said.get(name)) in (int, float) and math.isfinite(said[name])
    }
    return counts | reals


def _refusal(said: Mapping[str, Any]) -> dict[str, str]:
    error = said.get("error")
    return {"error": shorten(error)} if isinstance(error, str) else {}


def case_of(
    result: Estimate, config: Mapping[str, Any], quantizer: Mapping[str, Any] | None = None
) -> AskedStart:
    """Return the start that an estimate describes, as its own command says it; the engine is one of :data:`ASKED`."""
    from kvreport.estimation.commands import served_by  # noqa: PLC0415

    request = result.request
    served = served_by(result)
    command = request.case.rules.command(served)
    told = () if command is None else command.words  # both engines have a server
    words = [one if isinstance(one, str) else json.dumps(dict(one)) for one in told]
    return AskedStart(
        model=request.model.id,
        config=config,
        quantizer=quantizer,
        words=tuple(words[words.index(served.model) + 1 :]),
        pools=(result.budget.kv_pool_bytes if result.budget.kv_pool_bytes > 0 else EMPTY_POOL_BYTES,),
        lengths=(request.context_tokens,),
    )


def ours(result: Estimate, pool_bytes: int, length: int | None = None) -> dict[str, int | float | None]:
    """Return our figures under the names of the engine's; no blocks and tokens where nothing starts.

    ``result``: the answer whose plan is taken. ``pool_bytes``: bytes for the cache on one GPU.
    ``length``: tokens of a request; those of the answer if not given.
    """
    request = result.request
    plans = [result.plan] if result.deployment is None else [rank.plan for rank in result.deployment.ranks]
    told = request.context_tokens  # the command says --context-length, which decides how many may run
    rules = [
        replace(plan.pool, flags=replace(plan.pool.flags, context_tokens=told))
        for plan in plans
        if isinstance(plan.pool, Division)
    ]
    if rules:
        found: dict[str, int | float | None] = {"chunk_tokens": request.serving.max_batched_tokens}
        try:
            caching = [rule for rule in rules if rule.cell_bytes] or rules
            pools = min((pools_of(rule, pool_bytes) for rule in caching), key=lambda one: one.tokens)
        except InputError:
            return found | {"tokens": None}
        names = ("tokens", "window_tokens", "state_slots", "max_requests")
        return found | {name: getattr(pools, name) for name in names}
    length = told if length is None else length
    concurrency = min(float(capacity.concurrency(pool_bytes, plan, length)) for plan in plans)
    starts = concurrency >= 1
    return {
        "blocks": min(int(capacity.blocks(pool_bytes, plan)) for plan in plans) if starts else None,
        "tokens": int(concurrency * length) if starts else None,
        "concurrency": round(concurrency, 6) if starts else None,
        "max_batched_tokens": request.serving.max_batched_tokens,
        "max_seqs": request.serving.max_seqs,
    }


def differs(result: Estimate, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each quantity in which an engine's answer is not ours: ``quantity``, ``ours``, ``engine`` and the point."""
    found = []
    for row in answer["at"]:
        said = {**answer, **row}
        pool, length = row["pool"], row.get("length")
        found += [
            {"quantity": name, "ours": value, "engine": said.get(name), "pool": pool, "length": length}
            for name, value in ours(result, pool, length).items()
            if name in said or (name == "tokens" and "error" in row)
            if said.get(name) != value
        ]
    return found


def engine_says(
    result: Estimate, python: str, files: tuple[Mapping[str, Any], Mapping[str, Any] | None] | None
) -> dict[str, Any]:
    """Return what the engine under an interpreter says of an estimate's start, as ``engine_says`` of its JSON.

    ``result``: our answer. ``python``: the interpreter. ``files``: the model's ``config.json`` and its
    ``hf_quant_config.json``; None where no config is at hand.
    """
    family = result.request.engine.family
    if family not in ASKED:
        raise InputError(_not_asked(result.request.engine.label))
    said: dict[str, Any] = {"engine": family, "release": None, "reason": None}
    if files is None:
        said["reason"] = {
            "kind": "no config",
            "text": "the engine reads a config.json; name its path, or use --fetch",
        }
        return said
    answer = ask(python, family, result.request.accelerator, [case_of(result, *files).to_dict()])[0]
    said |= _told(answer)
    if said["reason"] is None:
        names = ("quantity", "ours", "engine")
        said["differs"] = [{name: one[name] for name in names} for one in differs(result, answer)]
    return said


def _told(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer's figures under the names of our JSON, or the reason for none."""
    said: dict[str, Any] = {"release": answer.get("release"), "reason": None}
    if "error" in answer or not answer["at"]:
        text = answer.get("error", "it gave no figures")
        kind = next((kind for kind, signs in _CAUSES.items() if any(one in text for one in signs)), "refused")
        said["reason"] = {"kind": kind, "text": text}
        return said
    row = answer["at"][0]
    tokens, pool = row.get("tokens"), row.get("pool", 0)
    return said | {
        "kv_pool_bytes": pool,
        "kv_bytes_per_token": pool / tokens if tokens else None,
        "kv_pool_tokens": tokens,
        "blocks": row.get("blocks"),
        "max_concurrency": row.get("concurrency"),
        "max_batched_tokens": answer.get("max_batched_tokens", answer.get("chunk_tokens")),
        "max_seqs": answer.get("max_seqs", row.get("max_requests")),
        "refusal": row.get("error"),
    }


def compare_engines(
    pythons: Sequence[str],
    results: Sequence[Estimate],
    files: tuple[Mapping[str, Any], Mapping[str, Any] | None],
) -> list[dict[str, Any]]:
    """Return what the engines under two interpreters say of the same starts with the same pool of bytes.

    ``pythons``: the interpreters, the old one first. ``results``: our answers for one model on one GPU,
    whose commands and pools both are asked about. ``files``: the model's ``config.json`` and its
    ``hf_quant_config.json``.

    Returns:
        For each start ``old`` and ``new``, and ``differs``: each quantity with both values.

    Raises:
        InputError: If no such engine can be asked, or there is no such interpreter.
    """
    request = results[0].request
    if (family := request.engine.family) not in ASKED:
        raise InputError(_not_asked(request.engine.label))
    cases = [case_of(result, *files).to_dict() for result in results]
    sides = [ask(python, family, request.accelerator, cases) for python in pythons]
    found = []
    for old, new in zip(*sides, strict=True):
        rows = [{**side, **next(iter(side.get("at", ())), {})} for side in (old, new)]
        names = (*_COUNTS, *_REALS, *_SAID, "error")
        parted = [
            {"quantity": name, "old": rows[0].get(name), "new": rows[1].get(name)}
            for name in names
            if rows[0].get(name) != rows[1].get(name)
        ]
        found.append({"old": _told(old), "new": _told(new), "differs": parted})
    return found


def _not_asked(label: str) -> str:
    return f"ask-engine: found {label}; allowed: {' or '.join(f'--engine {one}' for one in ASKED)}"


def files_of(name: str) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
    """Return the config and the quantizer's file behind a model's name: a path, or what ``--fetch`` keeps."""
    from kvreport.architectures.hub import is_repository_id, kept  # noqa: PLC0415
    from kvreport.architectures.keys import read_json  # noqa: PLC0415

    place = Path(name).expanduser() if "\0" not in name else Path()
    folder = place if place.is_dir() else place.parent
    config = place / "config.json" if place.is_dir() else place
    if not (config.is_file() and config.suffix == ".json"):
        repository = kept(name) if is_repository_id(name) else None
        if repository is None or not (repository.folder / "config.json").is_file():
            return None
        folder, config = repository.folder, repository.folder / "config.json"
    quantizer = folder / "hf_quant_config.json"
    content = dict(read_json(config, str(config)))
    content.pop("auto_map", None)  # the checkpoint's own code is not run
    return content, dict(read_json(quantizer, str(quantizer))) if quantizer.is_file() else None
