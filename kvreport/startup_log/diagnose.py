"""What a start-up log tells: its numbers beside our prediction, and what to change.

The log's own numbers come first. Where the model is known, the pool that the log states is laid out
with our block plan, which checks the engine's token and concurrency figures against the formula; where
the accelerator is known too, the pool itself is predicted. Nothing is guessed: what the log does not
state and the caller does not say stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Final

from kvreport.accounting import kernel
from kvreport.accounting.extras import drafts
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import not_computed, trait
from kvreport.catalog.server_flags import load_server_flags
from kvreport.errors import InputError, require_text
from kvreport.estimation.hardware import listed
from kvreport.estimation.named import open_model
from kvreport.estimation.named_copies import by_name, narrowed
from kvreport.estimation.opened import said_of
from kvreport.resources import data_dir
from kvreport.startup_log.advice import changes, shorter
from kvreport.startup_log.endings import Ended, calculated, ended, holds
from kvreport.startup_log.findings import AdvisedChange, ComparedNumber, Diagnosis
from kvreport.startup_log.judge import Judgment, diagnose_start
from kvreport.startup_log.laid_out import (
    ITS_RELEASE,
    POOL_AS_STATED,
    LaidOut,
    pasted_start,
    plan_agrees,
    pool_of,
    requests_that_fit,
    share_of,
    with_fp8,
)
from kvreport.startup_log.patterns import flags_not_followed, own_folder
from kvreport.startup_log.reading import Reading
from kvreport.startup_log.reading import read_log as read_lines
from kvreport.startup_log.server_of_log import adapters_of, dense_ranks_followed, exchange_of, version_of
from kvreport.startup_log.start import Start
from kvreport.startup_log.unread_flags import flags_unread, last_command, moves_context_alone
from kvreport.units import GIB
from kvreport.words import ALL, SENTENCES


def accelerators_of(gpu: str | Sequence[str] | None, known: Catalog) -> tuple[Accelerator, ...]:
    """The accelerators that a reader of a log names, one for each device where several are.

    Args:
        gpu: A name, names, or several joined as ``"rtx-5090*2+rtx-3090"``; None or empty for none.
        known: Where they are looked up.

    Raises:
        InputError: If one is unknown.
    """
    return tuple(
        known.accelerator(str(name)) for name, times in (listed(gpu) if gpu else ()) for _ in range(times)
    )


def device_named(reading: Reading, known: Catalog, notes: list[str]) -> tuple[Accelerator, ...]:
    """The accelerator whose name the log has in the files of its kernels, if it is one that the catalog knows."""
    name = reading.text("device_name")
    if name is None:
        return ()
    try:
        found = known.accelerator(name)
    except InputError:
        return ()
    notes.append(f"The kernels in the log are for {name}, which is read as {found.name}.")
    return (found,)


NOT_FOLLOWED: Final = {
    "speculative": "speculative decoding",
    "lora": "LoRA adapters",
    "offloaded": "offloading to the host",
    "prefill_context": "prompts that are divided over ranks",
}
"""Facts that change memory and that no prediction here follows."""

AT_HOME: Final = ("llama_cpp", "ollama", "mlx")
"""Engines of which a log without their buffers states an end alone: nothing is compared."""

_QUANTITIES: Final = {
    "concurrency given pool": "concurrency",
    "tokens given pool": "kv_tokens",
    "tokens": "kv_tokens",
    "needed": "needed",
    "pool": "kv_pool",
}
"""What the judge compares, and the fact of a log that states it, in the order of an answer."""


def diagnose(
    text: str,
    *,
    model: str | None = None,
    gpu: str | Sequence[str] | None = None,
    tensor_parallel: int | None = None,
    weights: str | None = None,
    kv: str | None = None,
    draft: str | None = None,
    fetch: bool = False,
    revision: str | None = None,
    catalog: Catalog | None = None,
) -> Diagnosis:
    """Read a start-up log and compare it with a prediction.

    Args:
        text: Text of the log.
        model: Model, if the log does not name one from the catalog.
        gpu: Accelerator, if the log does not name one. For unequal GPUs, a list with one entry per rank, or
            ``"rtx-5090+rtx-3090"``.
        tensor_parallel: Number of GPUs in one replica, if the log does not state it.
        weights: Weight format; None for the released format.
        kv: KV format, if the log does not state it.
        draft: Draft model for SGLang's speculative decoding, if the log names one that is not in the catalog.
        fetch: If True, download the config of a model that is not in the catalog from the Hugging Face Hub.
        revision: Branch, tag or commit of the repository on the Hub.
        catalog: Catalog that resolves names; None for the public catalog.

    Returns:
        The numbers of the log (``reading``), their ``comparisons`` with the prediction, the ``changes`` to make, and a
        ``headline``.

    Raises:
        InputError: If the log is empty or too large, or a name is unknown.

    >>> read_log("INFO 05-28 09:13:55 [kv_cache_utils.py:634] GPU KV cache size: 107,136 tokens")
    <Diagnosis of vllm: The cache holds 107,136 tokens. If every layer keeps every token, these are 13 requests of 8K, 3 of 32K or 0 of 128K.>
    """
    require_text(text=text)
    known = open_catalog() if catalog is None else catalog
    reading = read_lines(text, own_folder(known))
    notes: list[str] = []
    home = reading.engine in AT_HOME
    record = None if home else _model(reading, model, known, notes, fetch=fetch, revision=revision)
    devices = accelerators_of(gpu, known) or device_named(reading, known, notes)
    device = min(devices, key=lambda one: one.usable_bytes, default=None)
    reading = _believed(reading, devices, known, notes)
    start, beside = None, _draft(reading, draft, known, fetch=fetch)
    old = not_computed(known.engines.values(), reading.engine or "", version_of(reading))
    if old is not None:
        notes.append(f"{old}. The lines of the log are read, and nothing is predicted.")
    elif record is not None:
        start = pasted_start(reading, record, known, devices, tensor_parallel, weights, kv, beside)
        start = _as_range(start, notes)
        if tensor_parallel is None and reading.whole("tensor_parallel") is None:
            each = " for each stage" if start.flags.layout.pipeline > 1 else ""
            notes.append(f"The log does not state a tensor-parallel size; one GPU{each} is assumed.")
    judgment = Judgment() if start is None else diagnose_start(start)
    if judgment.error is not None:
        notes.append(f"No block plan: {judgment.error}.")
    laid = with_fp8(judgment, known)
    end = ended(reading, own_folder(known))
    pool = pool_of(reading, None if laid is None else record)
    total = reading.whole("total_memory") or (device.usable_bytes if device else None)
    fits = requests_that_fit(reading, laid, pool)
    if fits is not None and not isfinite(fits):
        notes.append("The model has no KV cache, so memory does not limit its requests.")
        fits = None
    if reading.engine not in POOL_AS_STATED and old is None and not home:
        notes += _pool_notes(start, laid, device)
    if device is None and old is None:
        notes += _devices_of(reading, known)
    if laid is not None and pool is not None and pool > 0 and not plan_agrees(reading, laid, pool):
        notes.append(
            "Our plan does not match the log. The cache type, the drafts or the model differ from what the log states."
        )
    if start is not None and weights is None:
        notes += _other_format(start)
    notes += _assumed(reading, laid)
    command = last_command(text)
    unread = None if command is None else flags_unread(command, load_server_flags(data_dir()))
    if unread is not None:
        notes.append(f"{unread[1]} does not have these flags, which are ignored: {unread[0]}.")
    offered = changes(reading, laid, pool, total, fits)
    if end is not None and not offered:
        # A release that is not stated is taken as the newest, as in an estimate; a share is not guessed.
        sure = start is not None and {*start.pool_unclear} <= {ITS_RELEASE}
        offered += _remedies(end, laid if sure else None, reading, notes)
    return Diagnosis(
        reading=reading,
        concurrency=fits,
        comparisons=() if start is None else _comparisons(start, judgment),
        changes=tuple(offered),
        ended=end,
        shorter=tuple(shorter(reading, laid, pool)),
        linear=laid is None or (pool is not None and not plan_agrees(reading, laid, pool)),
        notes=tuple(notes),
    )


def _remedies(end: Ended, laid: LaidOut | None, reading: Reading, notes: list[str]) -> list[AdvisedChange]:
    """What was calculated to mend an end; in notes what was not, and what does not suffice."""
    found = {}
    if laid is not None and laid.deployment.case.accelerators:
        if "more_share" in end.remedies and holds(laid, reading):
            notes.append(SENTENCES["log_fits_by_rules"])
        else:
            found = dict(calculated(end, laid, reading))
    kinds = {
        "log_try": [words for name, words in end.remedies.items() if name not in found],
        "log_no_help": [words for name, words in end.remedies.items() if found.get(name, "") is None],
    }
    notes += [SENTENCES[name].format(remedies="; ".join(said)) for name, said in kinds.items() if said]
    return [
        AdvisedChange(name, value, words=end.remedies[name])
        for name, value in found.items()
        if value is not None
    ]


def _as_range(start: Start, notes: list[str]) -> Start:
    """A start whose weights are not compared as a point where the copy is known by its name alone."""
    if not start.model.by_name or start.flags.weight_format not in (None, "released"):
        return start
    loaded = start.printed.load
    if loaded and start.accelerator is not None:
        least, most = (one.weights() / GIB for one in (replace(start, model=narrowed(start.model)), start))
        where = "within" if least <= loaded / GIB <= most else "outside"
        notes.append(
            f"The log's weights of {loaded / GIB:.2f} GiB are {where} the range that the name allows, {least:.2f} to {most:.2f} GiB."
        )
    open_mix = "which layers its copy keeps wider"
    return replace(
        start,
        weights_unclear="the formats of the copy's layers are known by its name alone",
        pool_unclear=(*start.pool_unclear, open_mix),
    )


def _believed(reading: Reading, devices: Sequence[Accelerator], known: Catalog, notes: list[str]) -> Reading:
    """The log without figures that no machine has: a pool above the device's memory, with what the log counts in it."""
    if reading.doubtful:
        notes.append(SENTENCES["log_doubtful"].format(lines=", ".join(map(str, reading.doubtful))))
    pool, total = pool_of(reading) or reading.number("kv_pool"), reading.number("total_memory")
    of = devices or tuple(known.accelerators.values())
    most = max(one.usable_bytes for one in of) if of else inf
    limit = most if total is None else total
    if pool is None or pool <= limit:
        return reading
    notes.append(
        SENTENCES["log_beyond_memory"].format(pool=f"{pool / GIB:,.2f}", memory=f"{limit / GIB:,.2f}")
    )
    facts = {name: value for name, value in reading.facts.items() if name not in _OF_THE_POOL}
    return replace(reading, facts=facts)


_OF_THE_POOL: Final = tuple(ALL["facts_of_the_pool"])
"""Facts that a log states of its pool: its bytes, and the tokens, blocks and requests that it holds."""

_SAME_MEMORY: Final = 0.006
_MOST_OFFERED: Final = 12


def _devices_of(reading: Reading, known: Catalog) -> list[str]:
    """The accelerators that have the memory or the compute capability that a log prints; nothing where it prints none."""
    total = reading.number("total_memory") or reading.number("capacity")
    capability = reading.text("capability")
    if total is None and capability is None:
        return []
    found = [
        one.name
        for one in known.accelerators.values()
        if (total is None or abs(one.usable_bytes / total - 1) <= _SAME_MEMORY)
        and (capability is None or one.compute_capability == capability)
    ]
    if not found or len(found) > _MOST_OFFERED:
        return []
    told = [] if total is None else [f"{total / GIB:.2f} GiB of memory"]
    told += [] if capability is None else [f"compute capability {capability}"]
    return [SENTENCES["log_devices"].format(what=" and ".join(told), gpus=", ".join(sorted(found)))]


def _pool_notes(start: Start | None, laid: LaidOut | None, device: Accelerator | None) -> list[str]:
    """What a prediction of the pool lacks."""
    if device is None:
        return ["Name the GPU to have the pool predicted as well."]
    if laid is None or start is None or not start.pool_unclear:
        return []
    return [f"The pool is not predicted, because the log does not state {' nor '.join(start.pool_unclear)}."]


_SERVED_FORMATS: Final = ("bf16", "fp8", "fp8-block", "int8", "int4", "nvfp4", "mxfp4", "bnb-4bit")
_FAR: Final = 0.05
_NEAR: Final = 0.015
"""Share by which loaded weights miss a format, and by which they meet another: between the two nothing is said."""


def _other_format(start: Start) -> list[str]:
    """The weight format that a log's weights are of, where they are not those of the checkpoint as released."""
    loaded = start.printed.load
    if not loaded or start.weights_unclear is not None or start.flags.weight_format not in (None, "released"):
        return []

    def miss(form: str | None) -> float:
        try:
            asked = replace(start, flags=replace(start.flags, weight_format=form))
            return abs(asked.weights() / loaded - 1)
        except InputError:  # not a format of these weights, or of this engine
            return inf

    if miss(start.flags.weight_format) < _FAR:
        return []
    nearest, form = min((miss(form), form) for form in _SERVED_FORMATS)
    if nearest > _NEAR:
        return []
    return [
        f"The log's weights are those of {form}, not of the checkpoint as released: say --weights {form}."
    ]


def _assumed(reading: Reading, laid: LaidOut | None) -> list[str]:
    """What was taken from elsewhere than the log's own words, and what was not followed."""
    notes = []
    if reading.starts > 1:
        notes.append(
            f"The log contains {reading.starts} starts. kvreport reads the last one that ends, from line "
            f"{reading.recognised[0].number if reading.recognised else 1}."
        )
    if laid is not None and reading.engine not in POOL_AS_STATED and reading.text("engine_version") is None:
        told = version_of(reading)
        said = f"the rules of {laid.engine.label} are used"
        if told is not None:
            said = f"on its day SGLang {told} was the newest"
            said = said if reading.engine == "sglang" else f"its lines were written by vLLM {told}"
        notes.append(f"The log does not name its release; {said}.")
    inferred = None if laid is None or reading.engine != "sglang" else share_of(reading, laid.whole.model)
    if inferred is not None and reading.number("mem_fraction") is None:
        notes.append(f"The memory share, {inferred:g}, is computed from the free memory in the log.")
    followed = {"speculative"} if laid is not None and drafts(laid.whole.model) else set()
    if adapters_of(reading) != (0, 0):
        followed.add("lora")
    ignored = [
        words for name, words in NOT_FOLLOWED.items() if reading.facts.get(name) and name not in followed
    ]
    stated = {line.pattern for line in reading.recognised}
    stated -= {line.pattern for line in reading.recognised if moves_context_alone(line)}
    ignored += [words for pattern, words in flags_not_followed().items() if pattern in stated]
    if not dense_ranks_followed(reading):
        ignored.append(f"dense layers over {reading.whole('dense_ranks')} ranks")
    named = reading.text("all_to_all")
    if named not in (None, "none") and exchange_of(reading) is None:
        ignored.append(f"the buffers of {named}")
    if ignored:
        notes.append(f"Not taken into account, although it may change the memory: {', '.join(ignored)}.")
    return notes


def _model(
    reading: Reading,
    given: str | None,
    known: Catalog,
    notes: list[str],
    *,
    fetch: bool,
    revision: str | None,
) -> Model | None:
    stated = reading.text("model")
    if given is not None or (fetch and stated is not None):
        opened = open_model(given or stated or "", known, fetch=fetch, revision=revision)
        notes += said_of(opened)
        return opened.model
    if stated is None:
        notes.append("The log does not name its model. Name the model to have the numbers checked.")
        return None
    for name in names_of(stated):
        try:
            found = known.model(name)
        except InputError:
            continue
        if name != stated:
            notes.append(f"{stated} is read as {found.id}, because of its name.")
        return found
    for name in names_of(stated):
        try:
            copy = by_name(name, known)
        except InputError:
            continue
        if copy is not None:
            notes += copy[1]
            return copy[0]
    notes.append(f"The catalog does not have {stated}; name the model that it is a copy of.")
    return None


def _draft(reading: Reading, given: str | None, known: Catalog, *, fetch: bool) -> Model | None:
    """The draft model: as given, else the one that the log names, if the catalog has it; None for neither."""
    if given is not None:
        return open_model(given, known, fetch=fetch).model
    stated = reading.text("draft_from")
    for name in names_of(stated) if stated else ():
        try:
            return known.model(name)
        except InputError:
            continue
    return None


_HUB_FOLDER: Final = re.compile(r"(?:^|/)models--([^/]+?)--([^/]+)(?:/snapshots(?:/|$)|/?$)")


def names_of(stated: str) -> tuple[str, ...]:
    """The names that a model's path may stand for: itself, the repository of the Hub's cache, its last folder."""
    folder = _HUB_FOLDER.search(stated)
    if folder is not None:
        return (f"{folder[1]}/{folder[2]}",)
    last = stated.rstrip("/").rpartition("/")[2]
    return (stated, last) if "/" in stated and last and stated.count("/") != 1 else (stated,)


def _comparisons(start: Start, judgment: Judgment) -> tuple[ComparedNumber, ...]:
    """What was judged, under the names of a log's facts: sizes in bytes."""
    facts = {start.load_line: "weights", **_QUANTITIES}
    if start.accelerator is None:
        del facts[start.load_line]  # what loading adds to the weights depends on the device
    laid = judgment.deployment
    band = int(laid.uncertainty_bytes) if laid is not None and judgment.predicted else None
    judged = {one.quantity: one for one in judgment.comparisons}
    loaded = judged.get(start.load_line)
    other = loaded is not None and abs(loaded.error) > kernel.OTHER_WEIGHTS
    found = []
    # Tokens are compared end to end only where the log has no pool for them: SGLang prints none of several pools.
    of_cells = trait(start.engine, "tokens_are_cells") and "tokens given pool" not in judged
    for quantity, fact in facts.items():
        one = judged.get(quantity)
        if one is None or (other and fact == "kv_pool") or (quantity == "tokens" and not of_cells):
            continue
        if not isfinite(one.predicted) or (one.unit != "GiB" and one.predicted < 0):
            continue  # nothing in the cache of such a model grows with its context: no number bounds its requests
        if one.unit == "GiB":
            width = band if fact == "kv_pool" else None
            found.append(ComparedNumber(fact, int(one.observed * GIB), int(one.predicted * GIB), band=width))
        else:
            found.append(
                ComparedNumber(fact, one.observed, one.predicted, from_pool=quantity.endswith("given pool"))
            )
    return tuple(found)


read_log = diagnose
"""The public name: ``kvreport.read_log(text, gpu=...)``."""
