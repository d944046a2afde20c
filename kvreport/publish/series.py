"""The matrix as pages read it: one series of contexts per configuration.

Pages never compute capacity; they read the cubes that the published dataset is written from. This
module turns a cube into series by configuration, and picks the configurations that a page shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from kvreport.accounting import kernel
from kvreport.accounting.capacity import Verdict
from kvreport.dataset.matrix import Cube
from kvreport.units import shortfall
from kvreport.words import CELLS, counted

_PER_CONTEXT: Final = {
    "max_concurrent_requests": "users",
    "max_concurrent_requests_ceiling": "ceiling",
    "kv_bytes_per_token_per_gpu": "token_bytes",
    "kv_bytes_per_request_per_gpu": "request_bytes",
    "shortfall_bytes_per_gpu": "short",
}
_PER_CONFIG: Final = {
    "weight_bytes_per_gpu": "weight_bytes",
    "state_bytes_per_request_per_gpu": "state_bytes",
    "kv_pool_bytes_per_gpu": "pool_bytes",
    "max_context_tokens": "longest",
}


USEFUL_TOKENS: Final = kernel.USEFUL_TOKENS
"""A configuration serves if one request of this context fits; less is no service."""


class Config(NamedTuple):
    """What is served on what: every key of the dataset but the context."""

    model: str
    gpu: str
    tensor_parallel: int
    weight_format: str
    kv_format: str


@dataclass(frozen=True, slots=True)
class Series:
    """One configuration at every context of the grid."""

    config: Config  # Which configuration.
    contexts: tuple[int, ...]  # Contexts in tokens, ascending.
    users: tuple[int, ...]  # Simultaneous requests at each.
    ceiling: tuple[int, ...]  # The same with nothing reserved.
    verdicts: tuple[str, ...]
    token_bytes: tuple[int, ...]  # Bytes of one further token at each, per device.
    request_bytes: tuple[int, ...]  # Bytes that one request reserves at each, per device.
    short: tuple[int, ...]  # Bytes that one request lacks at each, per device; 0 where it fits.
    weight_bytes: int  # Weights on one device.
    state_bytes: int  # Constant bytes of a request on one device.
    pool_bytes: int  # The cache pool of one device.
    longest: int  # The longest single request that fits, in tokens.

    @property
    def serves(self) -> bool:
        """Whether it serves at all: one request of 8K, or of the longest context below, fits."""
        below = [n for n, context in enumerate(self.contexts) if context <= USEFUL_TOKENS]
        supported = [n for n in below if self.verdicts[n] != "context_exceeds_model"]
        return bool(supported) and self.holds(supported[-1])

    def holds(self, index: int) -> bool:
        """Whether a request of the context at ``index`` fits and the model supports it."""
        return self.verdicts[index] in ("fits", "tight") and self.users[index] > 0

    def at(self, context: int) -> int:
        """Return the index of a context.

        Raises:
            ValueError: The grid does not have it.
        """
        return self.contexts.index(context)

    def line(self, users: Sequence[int] | None = None) -> tuple[tuple[int, int], ...]:
        """Return (context, users) wherever a request fits, for a chart."""
        counts = self.users if users is None else users
        return tuple(
            (self.contexts[n], counts[n])
            for n in range(len(self.contexts))
            if self.verdicts[n] != "context_exceeds_model" and counts[n] > 0
        )


def series(cube: Cube) -> dict[Config, Series]:
    """Return the series of each configuration of one model's cube, in the cube's order.

    Combinations that cannot be configured are left out, as they are in the dataset, and so are layouts other
    than tensor parallelism, which pages show apart.
    """
    labels = np.array([verdict.label for verdict in Verdict], dtype=object)
    verdicts = labels[cube.values["verdict"]].tolist()
    columns = {name: cube.values[name].tolist() for name in _PER_CONTEXT}
    firsts = {name: cube.values[name][..., 0].tolist() for name in _PER_CONFIG}
    found = {}
    for g, t, w, k in zip(*(axis.tolist() for axis in np.nonzero(cube.possible)), strict=True):
        if not cube.layouts[t].is_tensor_only:
            continue
        config = Config(
            cube.model.id, cube.gpus[g], cube.tensor_parallel[t], cube.weight_formats[w], cube.kv_formats[k]
        )
        fields: dict[str, Any] = {
            **{field: tuple(columns[name][g][t][w][k]) for name, field in _PER_CONTEXT.items()},
            **{field: firsts[name][g][t][w][k] for name, field in _PER_CONFIG.items()},
        }
        judged = tuple(verdicts[g][t][w][k])
        found[config] = Series(config=config, contexts=cube.contexts, verdicts=judged, **fields)
    return found


def smallest_serving(candidates: Iterable[Series]) -> Series | None:
    """Return the series with the fewest devices that serves at all, or None."""
    serving = [one for one in candidates if one.serves]
    return min(serving, key=lambda one: one.config.tensor_parallel) if serving else None


class ModelRefusal(NamedTuple):
    """Why nothing offered serves a model: what it shares with others, and its own figure."""

    kind: str  # Key of the group's sentence in ``words.json`` (``group_…``, ``row_…``).
    number: int
    short_bytes: int  # Bytes missing per device, or 0 where bytes are not the reason.

    @property
    def group(self) -> str:
        """The sentence that all of a kind share."""
        alone = f"group_{self.kind}_alone"
        if self.number == 1 and alone in CELLS:
            return CELLS[alone]
        return CELLS[f"group_{self.kind}"].format(number=counted(self.number, "GPU|GPUs"))

    @property
    def note(self) -> str:
        """What is missing here, or ""."""
        if not self.short_bytes:
            return ""
        name = "note_over" if self.kind == "weights" else "note_short"
        return CELLS[name].format(short=shortfall(self.short_bytes))


def refusal_of(candidates: Sequence[Series], usable_bytes: int) -> ModelRefusal:
    """Return why none of a model's splits on one kind of device serves the shortest context.

    No candidate serves, and there is none where the model cannot be split so.
    """
    if not candidates:
        return ModelRefusal("support", 0, 0)
    widest = max(candidates, key=lambda one: one.config.tensor_parallel)
    # Of the contexts that the model reaches: beyond its limit, memory decides nothing.
    at = max(
        (
            n
            for n, context in enumerate(widest.contexts)
            if context <= USEFUL_TOKENS
            and not widest.holds(n)
            and widest.verdicts[n] != "context_exceeds_model"
        ),
        default=0,
    )
    number, short = widest.config.tensor_parallel, widest.short[at]
    match widest.verdicts[at]:
        case "weights_exceed_memory":
            over = widest.weight_bytes - usable_bytes
            return ModelRefusal("weights", number, over if over > 0 else short)
        case "max_seqs_exceeds_states":
            return ModelRefusal("seqs", number, 0)
        case "may_fit":
            return ModelRefusal("may_fit", number, short)
        case "context_exceeds_model":
            return ModelRefusal("limit", 0, 0)
        case "engine_does_not_run":
            return ModelRefusal("support", 0, 0)
        case "format_not_supported":
            return ModelRefusal("format", 0, 0)
        case _:
            return ModelRefusal("cache", number, short)
