"""Why two answers differ: each term of the budget, and what it alone would have changed.

Concurrency is ``(memory x share - weights - reserve) / bytes per request``. Between two engine releases,
two catalogs or two checkpoints several of these move at once; the term that did it is the one that,
moved alone, changes the answer most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from kvreport.accounting.capacity import Verdict
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.answer import REFUSED, Estimate
from kvreport.estimation.conclusion import beyond_limit
from kvreport.estimation.estimate import estimate
from kvreport.estimation.hardware import listed
from kvreport.resources import read_table
from kvreport.units import human_bytes

WORDS: Final[dict[str, str]] = read_table("terms of a difference")
"""The terms in words, in the order of the budget."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides one answer, in bytes on one device."""

    memory_bytes: int  # What weights, reserve and pool may take together.
    weight_bytes: int  # The checkpoint's tensors.
    loading_bytes: int  # What loading adds to them.
    activation_bytes: int  # Peak of a step.
    non_framework_bytes: int  # Driver context, communication buffers and workspaces.
    graph_bytes: int  # Captured graphs.
    request_bytes: int  # One request of the asked context.

    @classmethod
    def of(cls, answer: Estimate) -> Terms:
        """Read the terms off an estimate."""
        budget = answer.budget
        return cls(
            memory_bytes=round(budget.total_bytes * budget.utilization),
            weight_bytes=budget.weights - sum(answer.loading_bytes.values()),
            loading_bytes=sum(answer.loading_bytes.values()),
            activation_bytes=budget.activations,
            non_framework_bytes=budget.non_framework,
            graph_bytes=budget.graphs,
            request_bytes=answer.kv_bytes_per_request_per_gpu,
        )

    @property
    def pool_bytes(self) -> int:
        """What is left for the cache; negative where nothing is."""
        taken = self.weight_bytes + self.loading_bytes + self.activation_bytes
        return self.memory_bytes - taken - self.non_framework_bytes - self.graph_bytes

    @property
    def requests(self) -> float:
        """Requests that the pool holds, before blocks that the engine keeps for itself; 0 without a pool."""
        return max(self.pool_bytes, 0) / max(self.request_bytes, 1)


@dataclass(frozen=True, slots=True)
class Effect:
    """One term that moved."""

    term: str  # Its name.
    old: int  # Bytes before.
    new: int  # Bytes after.
    requests: float  # How many more requests would fit if this term alone had moved.

    def __str__(self) -> str:
        """Say what moved, by how much, and what that alone does."""
        sign = "+" if self.new >= self.old else "-"
        moved = f"{sign}{human_bytes(abs(self.new - self.old))}"
        if self.term == "request_bytes":
            moved = f"{human_bytes(self.old)} to {human_bytes(self.new)}"
        return f"{WORDS[self.term]} {moved} ({self.requests:+.2f} requests alone)"


def effects(old: Terms, new: Terms) -> tuple[Effect, ...]:
    """Return every term that moved, the one that did it first.

    That is the one with the largest effect in the direction in which the answer moved; terms that moved it
    the other way come after. Where nothing fits before or after, no single term changes the count; the terms then come by bytes.
    """
    found = []
    for field in fields(Terms):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if was != now:
            alone = replace(old, **{field.name: now}).requests - old.requests
            found.append(Effect(field.name, was, now, alone))
    moved = new.requests - old.requests
    return tuple(sorted(found, key=lambda e: (e.requests * moved < 0, -abs(e.requests), -abs(e.new - e.old))))


@dataclass(frozen=True, slots=True)
class Difference:
    """One question with two answers."""

    model: str  # What was asked about; two names with an arrow between where they differ.
    gpu: str  # Accelerator.
    tensor_parallel: int  # Devices of one copy.
    context_tokens: int  # Tokens of each request.
    old: float | None  # Requests that ran at once before, or None with the reason in ``note``.
    new: float | None  # Requests that run at once now, likewise.
    old_verdict: str  # Verdict before.
    new_verdict: str  # Verdict now.
    effects: tuple[Effect, ...] = ()  # What moved, the largest effect first.
    note: str = ""  # Why there is no answer on one side.
    # Tokens of the pool as the log line printed them; None without an answer or a line.
    old_tokens: int | None = None
    new_tokens: int | None = None  # The same now.
    same_requests: bool = False  # Whether as many whole requests run at once as before.
    same_line: bool = True  # Whether both print one kind of log line: two releases of one engine do.

    @property
    def printed_only(self) -> bool:
        """Whether pool and requests are the same, and the engine's log line counts them otherwise."""
        line = (self.old_tokens, self.old) != (self.new_tokens, self.new)
        return self.same_requests and self.old_verdict == self.new_verdict and not self.effects and line

    @property
    def decreased(self) -> bool:
        """Whether fewer requests fit than before."""
        return (self.new or 0) < (self.old or 0) and not self.printed_only

    @property
    def changed(self) -> bool:
        """Whether the count, the verdict or any term differs."""
        return bool(self.effects) or (self.old, self.old_verdict) != (self.new, self.new_verdict)

    @property
    def on_neither(self) -> bool:
        """Whether the question runs on neither side."""
        return self.old is None and self.new is None

    @property
    def factor(self) -> float:
        """New over old; infinite where nothing fitted before, 1 where neither side holds a request."""
        old, new = self.old or 0.0, self.new or 0.0
        return new / old if old else (float("inf") if new else 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport diff --format json`` prints."""
        return {
            "model": self.model,
            "gpu": self.gpu,
            "tensor_parallel": self.tensor_parallel,
            "context_tokens": self.context_tokens,
            "old": {"max_concurrency": self.old, "verdict": self.old_verdict},
            "new": {"max_concurrency": self.new, "verdict": self.new_verdict},
            "changed": self.changed,
            "cause": self.effects[0].term if self.effects else None,
            "terms": [
                {"term": one.term, "old_bytes": one.old, "new_bytes": one.new, "requests_alone": one.requests}
                for one in self.effects
            ],
            "note": self.note,
            "printed": {
                "old_tokens": self.old_tokens,
                "new_tokens": self.new_tokens,
                "only": self.printed_only,
            },
        }


_HOLDS_NOTHING: Final = (*REFUSED, Verdict.CONTEXT_EXCEEDS_MODEL.label)


def counted(answer: Estimate | None) -> Estimate | None:
    """Return an answer, or None: what a release or the model refuses holds nothing, whatever its memory would."""
    return None if answer is None or answer.verdict in _HOLDS_NOTHING else answer


def _reason(answer: Estimate) -> str:
    return answer.verdict_reason if answer.verdict in REFUSED else beyond_limit(answer.request)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a model in a catalog under an engine."""

    catalog: Catalog
    model: str | Model
    engine: str | Engine = "vllm"


def compare(
    old: Side,
    new: Side,
    gpu: str | Accelerator,
    *,
    tensor_parallel: int = 1,
    context_tokens: int | str = 8192,
    weights: str | None = None,
    kv: str = "auto",
) -> Difference:
    """Answer one question on both sides, and find the terms that moved.

    ``gpu``: accelerator, or the GPUs of one machine (``rtx-5090+rtx-3090``), tensor parallel over all.
    ``tensor_parallel``: GPUs of one replica. ``weights``: weight format. ``kv``: KV format.

    Raises:
        InputError: If neither side can be answered.
    """
    answers: list[Estimate | None] = []
    notes: list[str] = []
    devices = sum(number for _, number in listed(gpu))
    tensor_parallel = max(tensor_parallel, devices)
    for side in (old, new):
        try:
            found = estimate(
                side.model,
                gpu=gpu,
                tensor_parallel=tensor_parallel,
                context_tokens=context_tokens,
                weights=weights,
                kv=kv,
                engine=side.engine,
                catalog=side.catalog,
            )
        except InputError as error:
            notes.append(str(error))
            found = None
        answers.append(found)
    known = answers[1] or answers[0]
    if known is None:
        raise InputError(notes[0])
    before, after = (counted(one) for one in answers)
    notes += [_reason(one) for one in answers if one is not None and one.verdict in _HOLDS_NOTHING]
    names = [answer.request.model.id for answer in answers if answer is not None]
    return Difference(
        model=names[0] if len(set(names)) == 1 else " -> ".join(names),
        gpu=str(gpu) if devices > 1 else known.request.accelerator.id,
        tensor_parallel=tensor_parallel,
        context_tokens=known.request.context_tokens,
        old=None if before is None else before.max_concurrency,
        new=None if after is None else after.max_concurrency,
        old_verdict="no answer" if answers[0] is None else answers[0].verdict,
        new_verdict="no answer" if answers[1] is None else answers[1].verdict,
        effects=effects(Terms.of(before), Terms.of(after)) if before and after else (),
        note="; ".join(dict.fromkeys(notes)),
        old_tokens=None if before is None else before.kv_pool_tokens,
        new_tokens=None if after is None else after.kv_pool_tokens,
        same_requests=before is not None
        and after is not None
        and before.max_concurrent_requests == after.max_concurrent_requests,
        same_line=len({one.request.engine.family for one in answers if one is not None}) == 1,
    )


def compare_all(
    pairs: Sequence[tuple[Side, Side]],
    gpus: Sequence[str],
    contexts: Sequence[int | str],
    tensor_parallel: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Difference]:
    """Compare many; a pair that neither side answers is left out.

    ``contexts``: lengths of a request. ``tensor_parallel``: GPUs of one replica. ``progress``: told how far
    it is.

    Returns:
        What changed most comes first: by factor, losses before gains of the same size.
    """
    found = []
    for number, (old, new) in enumerate(pairs):
        progress(f"diff: {number} of {len(pairs)} models")
        for gpu in gpus:
            for context in contexts:
                try:
                    found.append(
                        compare(old, new, gpu, tensor_parallel=tensor_parallel, context_tokens=context)
                    )
                except InputError:
                    continue
    return sorted(found, key=_size, reverse=True)


def _size(one: Difference) -> tuple[float, bool]:
    factor = one.factor
    return (max(factor, 1 / factor) if factor else float("inf"), factor < 1)
