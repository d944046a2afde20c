"""What an estimate answers: the records, and the objects that they are printed as."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Final, TypeVar

from kvreport.accounting.budget import Budget
from kvreport.accounting.capacity import Verdict, blocks, start_verdict
from kvreport.accounting.deployment import Deployment, lay_out
from kvreport.accounting.engines.vllm.towers import DYNAMIC_IMAGE_TOKENS, Tower, clip_tokens
from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.weights import (
    active_parameters,
    on_host,
    parameters,
    parameters_by_component,
    row_bytes,
)
from kvreport.catalog.model import Model
from kvreport.estimation.commands import estimate_command
from kvreport.estimation.first_sight import first_sight
from kvreport.estimation.not_followed import open_terms, outside_band, within_band
from kvreport.estimation.request import Request
from kvreport.units import gib
from kvreport.words import format_name, notebook_table


@dataclass(frozen=True, slots=True)
class AtContext:
    """What depends on the context: the answer for one length of requests."""

    context_tokens: int  # Length of each request.
    kv_bytes_per_request_per_gpu: int  # Everything that the engine reserves for one request on one GPU.
    max_concurrent_requests: int  # Requests that run at once.
    max_concurrent_requests_by_memory: int  # Requests that the pool of this start holds.
    max_concurrent_requests_ceiling: int  # Upper bound on the requests, without reserve or rounding.
    limited_by: str  # What limits the number of requests.
    shortfall_bytes: int  # Bytes per GPU that are missing for one request; 0 if it fits.
    verdict: str  # Whether one request fits.

    @property
    def counts(self) -> dict[str, Any]:
        """The fields by name, for an estimate, which has them of the context that was asked for."""
        return {name: getattr(self, name) for name in AtContext.__slots__}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name; None for counts that memory does not limit."""
        return {name: _limit(name, value) for name, value in self.counts.items()}


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(AtContext):
    """The result of :func:`kvreport.estimate`: how many requests fit, and why.

    All sizes are whole bytes on one GPU (device).

    Attributes:
        request: The question, with names replaced by records.
        deployment: The deployment, with one entry for each rank that differs from the others; None for engines that place
            layers on devices themselves.
        parameters: Parameter counts: ``total``, ``active`` and ``by_component``.
        weights_by_component: Bytes of the weights on one device, by component.
        weight_bytes_per_gpu: Bytes of the checkpoint's tensors on one device.
        loading_bytes: Bytes that loading adds to the weights on one device, by purpose. ``budget.weights`` includes these bytes.
        kv_bytes_per_token_per_gpu: Bytes of one additional token at this context, without rounding to blocks.
        kv_bytes_per_token_reserved_per_gpu: Bytes of one additional token in whole blocks, averaged over the tokens of a
            block.
        state_bytes_per_request_per_gpu: Bytes of the recurrent states of one request, which do not depend on its length.
        context_tokens: Length of each request.
        kv_bytes_per_request_per_gpu: Everything that the engine reserves for one request: blocks, windows and states.
        budget: The memory of one device by use.
        plan: How the engine divides the pool into blocks.
        held: The cache that the architecture needs, before the engine rounds it.
        max_concurrency: Maximum concurrency as the engine prints it; None if nothing limits it.
        max_concurrent_requests: Requests that the engine runs at once, limited by memory, ``max_num_seqs`` and state
            slots; 0 if the engine does not start.
        max_concurrent_requests_by_memory: Requests that the computed pool holds, regardless of ``max_num_seqs``. For
            engines that reserve states first, the number that would run if ``max_num_seqs`` were equal to it. With a
            larger ``max_num_seqs``, vLLM reserves more memory outside the pool.
        max_concurrent_requests_ceiling: Upper bound on the requests, for an engine without reserve or rounding.
        limited_by: What limits the number of requests.
        shortfall_bytes: Bytes per GPU that are missing for one request; 0 if it fits.
        kv_pool_tokens: Size of the pool in tokens, as the engine's log prints it; None if memory does not limit the tokens.
        max_context_tokens: The longest single request that fits, up to the model's limit.
        verdict: The verdict, with the same names as in the dataset.
        verdict_reason: A reason for the verdict other than the amount of memory, for example that the engine refuses
            the model or that an option changes memory in an unknown way. Empty if memory alone decides.
        optimistic: A second estimate for a quantized copy of which only the name is known, with every layer in the
            smallest format that the name allows. The other fields then assume the largest. None if the formats are known.
        decode_ms_lower_bound: Lower bound in milliseconds on a decode step with all these requests; None if nothing fits
            or the GPU's rates are unknown.
        prefill_ms_lower_bound: Lower bound in milliseconds on the prefill of one prompt of this length, or None.
        by_context: The answers for common context lengths.
    """

    request: Request
    deployment: Deployment | None
    parameters: dict[str, Any]
    weights_by_component: dict[str, int]
    weight_bytes_per_gpu: int
    loading_bytes: dict[str, int]
    kv_bytes_per_token_per_gpu: int
    kv_bytes_per_token_reserved_per_gpu: int
    state_bytes_per_request_per_gpu: int
    budget: Budget
    plan: BlockPlan
    held: CacheProfile
    max_concurrency: float | None
    kv_pool_tokens: int | None
    max_context_tokens: int
    decode_ms_lower_bound: float | None
    prefill_ms_lower_bound: float | None
    by_context: tuple[AtContext, ...]
    verdict_reason: str = field(default="", kw_only=True)
    optimistic: Estimate | None = field(default=None, kw_only=True)

    @property
    def explanation(self) -> tuple[str, ...]:
        """The calculation, one line per step."""
        from kvreport.estimation.explanation import explain  # noqa: PLC0415 - it is built on this

        return tuple(explain(self))

    at_home: ClassVar[bool] = False
    """True for an engine that allocates everything at start, whose answer says itself what would make it fit."""

    def __repr__(self) -> str:
        """A line: the question and its answer."""
        request = self.request
        return (
            f"<Estimate {request.model.id} on {request.layout.devices} x {request.accelerator.id}: "
            f"{self.max_concurrent_requests:,} requests at {request.context_tokens:,} tokens, {self.verdict}>"
        )

    @property
    def formats(self) -> str:
        """Weight format, cache format and engine, as the second line of the printed answer states them."""
        request = self.request
        cache, by = request.kv_format, request.engine.label
        stored, _ = request.case.rules.stored(request.model, cache, request.accelerator)
        if stored is not None and stored.bits != cache.bits:
            by = f"{by} (which stores it in {stored.bits:g} bits)"
        if self.by_name:
            least, most = self.range_of("weight_bytes_per_gpu")
            return (
                f"weights {format_name(request.model.weight_format)} by its name: {gib(least)} to {gib(most)} GiB per GPU, "
                f"cache {cache.label}, {by}"
            )
        if request.weight_format is None:
            named = f"{request.model.weight_words}, cache {cache.label}"
        else:
            named = f"{request.weight_format_name}, cache {cache.name}"
        return f"weights {named}, {by}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Warnings to show before any number."""
        return ()

    @property
    def memory_rows(self) -> list[tuple[str, int]]:
        """The memory of the fullest device by use: names and bytes."""
        limits = self.budget
        if self.request.kv_pool_bytes is not None:
            return [("weights", limits.weights), ("KV pool, as given", limits.kv_pool_bytes)]
        taken = limits.requested_bytes
        return [
            ("usable memory", limits.total_bytes),
            (f"  not taken (utilization {limits.utilization:g})", max(limits.total_bytes - taken, 0)),
            ("  weights", limits.weights),
            ("  activations", limits.activations),
            ("  non-framework", limits.non_framework),
            ("  graphs", limits.graphs),
            ("  KV pool", limits.kv_pool_bytes),
        ]

    @property
    def on_this_machine(self) -> list[str]:
        """Other settings that fit on the same devices, one per line; empty for server engines."""
        return []

    @property
    def own_arithmetic(self) -> list[str]:
        """The calculation for an engine without a block pool, one line per step; empty for other engines."""
        return []

    @property
    def command(self) -> str | None:
        """The command that starts this deployment; None if it does not start."""
        return estimate_command(self)

    def longest_of(self, counts: Iterable[int]) -> list[int]:
        """For each number of requests on one data-parallel rank, the longest context of each request; 0 if none fits."""
        laid = lay_out(self.request.case).at_any_length()
        # A model without a cache has no pool: whether it runs at all is in its own longest context.
        return [min(int(laid.boundary(count)), self.max_context_tokens) for count in counts]

    @property
    def too_large(self) -> str:
        """The reason that the weights do not fit, or an empty string."""
        return "its weights alone are too large"

    @property
    def engine_words(self) -> str:
        """Text before the headline if the engine was inferred from other options."""
        return ""

    @property
    def outgrows(self) -> str:
        """Text after the headline if what the server keeps as it runs exceeds the memory that is left."""
        return ""

    def runs_on(self, devices: str) -> str:
        """The verb and the devices of the headline, such as ``fits on one H100 SXM 80GB``."""
        most = self.range_of("max_concurrent_requests")[1]
        return f"{'fits' if most == 1 else 'fit'} on {devices}"

    @property
    def most_requests_flag(self) -> str:
        """The engine's flag that limits concurrent requests independently of memory."""
        return "max-num-seqs"

    @property
    def start_shortage_bytes(self) -> int | None:
        """Bytes that the engine requests at start-up beyond the free memory; None if they do not decide the verdict."""
        if self.deployment is None or self.deployment.start_shortage is None:
            return None
        short, band = map(int, self.deployment.start_shortage)
        by_start = Verdict(int(start_verdict(short, band))).label
        if by_start == Verdict.FITS.label or by_start != self.verdict:
            return None
        return short if short <= 0 or short == self.shortfall_bytes else None

    @property
    def by_name(self) -> bool:
        """True if only the name of a quantized copy states the formats of its layers. Counts are then ranges."""
        return self.optimistic is not None

    @property
    def band_bytes(self) -> int:
        """Uncertainty of the pool in bytes, without the range of formats that the name of a copy allows."""
        return (self.optimistic or self).budget.uncertainty_bytes

    def range_of(self, name: str) -> tuple[Any, Any]:
        """Return the smallest and the largest value of a field. The two are equal if the formats are known."""
        ends = [getattr(one, name) for one in (self, self.optimistic or self)]
        return (ends[0], ends[1]) if None in ends or ends[0] <= ends[1] else (ends[1], ends[0])

    def range_at(self, row: AtContext, name: str) -> tuple[int, int]:
        """Return the smallest and the largest value of a field for one of the contexts."""
        other = self.optimistic or self
        best = next((one for one in other.by_context if one.context_tokens == row.context_tokens), row)
        least, most = sorted((getattr(row, name), getattr(best, name)))
        return least, most

    def to_frame(self) -> Any:  # noqa: ANN401 - a pandas data frame; pandas is an extra
        """Return the answers by context as a pandas data frame, one row per context. Needs ``kvreport[data]``."""
        # An extra, imported by name where it is asked for: nothing below the dataset depends on it.
        return import_module("pandas").DataFrame([row.to_dict() for row in self.by_context])

    def _repr_html_(self) -> str:
        """A table of contexts, for notebooks."""
        rows = (
            (row.context_tokens, row.max_concurrent_requests, row.verdict.replace("_", " "))
            for row in self.by_context
        )
        return notebook_table(repr(self), ("context (tokens)", "requests", "verdict"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport estimate --format json`` prints."""
        request = self.request
        seen = first_sight(request.engine.family)
        return {
            "model": request.model.id,
            "gpu": request.accelerator.id,
            "tensor_parallel": request.tensor_parallel,
            "context_tokens": request.context_tokens,
            "weight_format": request.weight_format_name,
            "kv_format": request.kv_format.name,
            "engine": request.engine.name,
            "engine_version": request.engine.version,
            "release_read": request.release_read or request.engine.version,
            "max_batched_tokens": request.serving.max_batched_tokens,
            "max_seqs": request.max_seqs,
            "parameters": self.parameters,
            "weight_bytes_per_gpu": self.weight_bytes_per_gpu,
            "weight_bytes_by_component": self.weights_by_component,
            "loading_bytes": self.loading_bytes,
            "kv_bytes_per_token_per_gpu": self.kv_bytes_per_token_per_gpu,
            "kv_bytes_per_token_reserved_per_gpu": self.kv_bytes_per_token_reserved_per_gpu,
            "state_bytes_per_request_per_gpu": self.state_bytes_per_request_per_gpu,
            "kv_bytes_per_request_per_gpu": self.kv_bytes_per_request_per_gpu,
            "budget": {
                "total_bytes": self.budget.total_bytes,
                "utilization": self.budget.utilization,
                "weights": self.budget.weights,
                "activations": self.budget.activations,
                "non_framework": self.budget.non_framework,
                "graphs": self.budget.graphs,
                "kv_pool_bytes": self.budget.kv_pool_bytes,
                "uncertainty_bytes": self.budget.uncertainty_bytes,
            },
            "block_tokens": self.plan.block_tokens,
            "block_bytes": self.plan.block_bytes,
            "max_concurrency": self.max_concurrency,
            "max_concurrent_requests": self.max_concurrent_requests,
            "max_concurrent_requests_by_memory": _counted(self.max_concurrent_requests_by_memory),
            "limited_by": self.limited_by,
            "max_concurrent_requests_ceiling": _counted(self.max_concurrent_requests_ceiling),
            "kv_pool_tokens": self.kv_pool_tokens,
            "max_context_tokens": self.max_context_tokens,
            "verdict": self.verdict,
            "verdict_reason": self.verdict_reason or self._no_cache(),
            "command": self.command,
            "shortfall_bytes": self.shortfall_bytes,
            "uncertainty_bytes": self.budget.uncertainty_bytes,
            "uncertainty_unknown": open_terms(request.not_followed),
            "layout": layout_to_dict(request.layout),
            "per_rank": self._per_rank(),
            "kv_cache_bytes": self._kv_cache_bytes(),
            "host_bytes": self._host_bytes(),
            "extras": self._extras(),
            "assumptions": list(request.assumptions),
            "not_read": list(request.not_read),
            "not_followed": [one.to_dict() for one in request.not_followed],
            "decode_ms_lower_bound": self.decode_ms_lower_bound,
            "prefill_ms_lower_bound": self.prefill_ms_lower_bound,
            "by_context": [row.to_dict() | self._row_range(row) for row in self.by_context],
            "explanation": list(self.explanation),
            "by_name": self.by_name,
            "range": self._range(),
            "first_sight": None if seen is None else seen.to_dict(),
        }

    def _no_cache(self) -> str | None:
        """What the number of requests is where the model keeps no cache and it runs: the scheduler's limit alone."""
        if not self.max_concurrent_requests or self.max_concurrent_requests_by_memory < UNLIMITED_REQUESTS:
            return None
        return (
            f"No KV cache: memory limits no number of requests; {self.max_concurrent_requests:,} is "
            f"{self.most_requests_flag} alone"
        )

    def _range(self) -> dict[str, list[Any]] | None:
        """Least and most of each number that the name of a copy leaves open; None where its mix is known."""
        if self.optimistic is None:
            return None
        found = {name: [_limit(name, end) for end in self.range_of(name)] for name in _RANGED}
        pools = sorted(one.budget.kv_pool_bytes for one in (self, self.optimistic))
        return found | {"kv_pool_bytes": pools, "verdict": [self.verdict, self.optimistic.verdict]}

    def _row_range(self, row: AtContext) -> dict[str, Any]:
        if self.optimistic is None:
            return {}
        return {
            "range": {
                name: [_limit(name, end) for end in self.range_at(row, name)] for name in _RANGED_BY_CONTEXT
            }
        }

    def _per_rank(self) -> dict[str, Any]:
        """What one data rank holds, and where the memory of each device that differs goes."""
        copies, context = self.request.layout.data, self.request.context_tokens
        names = self.request.accelerators
        return {
            "data_ranks": copies,
            "max_concurrency": None if self.max_concurrency is None else self.max_concurrency / copies,
            "max_concurrent_requests": self.max_concurrent_requests // copies,
            "max_concurrent_requests_by_memory": _counted(self.max_concurrent_requests_by_memory // copies),
            "kv_pool_tokens": None if self.kv_pool_tokens is None else self.kv_pool_tokens // copies,
            "gpus": [
                {
                    "ranks": list(rank.places),
                    "gpu": names[rank.places[0] if len(names) > 1 else 0].id,
                    "layers": [rank.layers.start, rank.layers.stop - 1],
                    "weight_bytes": int(rank.weight_bytes),
                    "resident_bytes": int(rank.resident_bytes),
                    "reserve_bytes": rank.reserve.total,
                    "total_bytes": int(rank.total_bytes),
                    "kv_pool_bytes": max(int(rank.pool_bytes), 0),
                    "kv_bytes_per_request": int(rank.plan.request_bytes(context)),
                    "max_concurrent_requests_by_memory": _counted(int(rank.own_requests(context))),
                }
                for rank in (self.deployment.ranks if self.deployment else ())
            ],
        }

    def _kv_cache_bytes(self) -> int:
        """Cells and states that the engine allocates at start on one device: whole blocks of the pool."""
        return int(blocks(self.budget.kv_pool_bytes, self.plan)) * self.plan.block_bytes

    def _host_bytes(self) -> dict[str, int]:
        asked = self.request
        names, ranks = on_host(asked.engine, asked.model, asked.accelerator), asked.layout.tensor
        tables = sum(
            row_bytes(asked.model, row, asked.weight_format, asked.formats, ranks) * ranks
            for row in asked.model.weights
            if row.name in names
        )
        return {"weights": tables, "cache": asked.kv_offload_bytes * asked.layout.data, "compute": 0}

    def inputs_per_prompt(self) -> dict[str, Any]:
        """Return the number of inputs per prompt, and the tokens of the largest image in the prompt and in the encoder cache."""
        request = self.request
        tower = Tower.of(request.model) if request.images else None
        largest = DYNAMIC_IMAGE_TOKENS if tower is not None and tower.merged else None
        images, clips = request.inputs.get("image"), request.inputs.get("audio")
        heard = clip_tokens(request.model, request.engine, request.context_tokens) if request.images else None
        return {
            "images": request.images,
            "limits": dict(request.inputs) or None,
            "tokens_per_largest_image": largest,
            "tokens_of_images_per_prompt": None if largest is None or images is None else images * largest,
            "cache_bytes_per_largest_image": None
            if largest is None or tower is None
            else largest * tower.outputs * request.model.hidden_size * SERVED_BYTES,
            "tokens_per_longest_audio": heard,
            "tokens_of_audio_per_prompt": None if heard is None or clips is None else clips * heard,
            "cache_bytes_per_longest_audio": None
            if heard is None
            else heard * request.model.hidden_size * SERVED_BYTES,
        }

    def _engines_per_gpu(self) -> int:
        return 1 if self.request.query is None else self.request.query.engines_per_gpu

    @property
    def offloaded_tokens(self) -> int | None:
        """Tokens of requests of this context that the host memory of one data rank keeps; None for a model without a cache."""
        if self.deployment is None or not self.kv_bytes_per_token_per_gpu:
            return None
        return self.deployment.host_tokens(self.request.kv_offload_bytes, self.context_tokens)

    @property
    def shared_memory_bytes(self) -> int:
        """Bytes of ``/dev/shm`` of a node that evicted blocks take: whole, also where a data rank is on several nodes."""
        asked, laid = self.request, self.deployment
        if not asked.kv_offload_bytes or laid is None or not laid.host_memory.mapped:
            return 0
        return asked.kv_offload_bytes * max(asked.layout.data // asked.layout.nodes, 1)

    def _extras(self) -> dict[str, Any]:
        request = self.request
        slots, rank = request.lora_slots
        return {
            "draft": request.draft
            and {
                "model": request.draft.model.id,
                "tokens": request.serving.draft_tokens,
                "layers": request.draft.model.layer_count,
                "shares_embedding": request.draft.borrows,
            },
            "lora": {"slots": slots, "max_rank": rank, "bytes": self.loading_bytes.get("lora_adapters", 0)}
            if slots
            else None,
            "encoder": self.inputs_per_prompt(),
            "held_by_others": {"bytes": request.held_bytes, "engines_per_gpu": self._engines_per_gpu()}
            if request.held_bytes
            else None,
            "offload": {
                "bytes": request.kv_offload_bytes,
                "tokens": self.offloaded_tokens,
                "copies": None if self.deployment is None else self.deployment.host_memory.copies,
                "shared_memory_bytes": self.shared_memory_bytes,
                "adds_concurrency": False,
            }
            if request.kv_offload_bytes
            else None,
        }


_RANGED_BY_CONTEXT: Final = (
    "max_concurrent_requests",
    "max_concurrent_requests_by_memory",
    "max_concurrent_requests_ceiling",
)
_RANGED: Final = (
    "weight_bytes_per_gpu",
    "max_concurrency",
    *_RANGED_BY_CONTEXT,
    "kv_pool_tokens",
    "max_context_tokens",
    "shortfall_bytes",
)
"""What depends on the formats of layers, and is given with its least and its most for a copy known by its name."""

_BY_MEMORY: Final = ("max_concurrent_requests_by_memory", "max_concurrent_requests_ceiling")


def _counted(requests: int) -> int | None:
    """A count for JSON: None where requests hold no cache, so that memory limits nothing."""
    return None if requests >= UNLIMITED_REQUESTS else requests


def _limit(name: str, value: Any) -> Any:  # noqa: ANN401 - any field of a record
    return _counted(value) if name in _BY_MEMORY else value


def layout_to_dict(layout: Layout) -> dict[str, Any]:
    """Return a layout's name and degrees, as every JSON answer has them."""
    return {
        "name": layout.label,
        "tensor_parallel": layout.tensor,
        "pipeline_parallel": layout.pipeline,
        "data_parallel": layout.data,
        "expert_parallel": layout.expert,
        "decode_context_parallel": layout.decode_context,
        "nodes": layout.nodes,
        "gpus_per_node": layout.devices // layout.nodes,
        "pipeline_partition": list(layout.partition) or None,
        "num_redundant_experts": layout.redundant_experts,
        "all2all_backend": layout.all_to_all or None,
        "mm_encoder_tp_mode": "data" if layout.whole_encoders else "weights",
        "moe_dense_tp_size": 1 if layout.whole_dense else None,
        "enable_dp_lm_head": layout.head_by_data_rank,
        "gpus": layout.devices,
    }


STANDARD_CONTEXTS: Final = tuple(1 << power for power in range(11, 21))
"""2K to 1M: the contexts of an estimate's table."""


def table_contexts(model: Model, asked: int) -> list[int]:
    """The usual contexts up to the model's limit, the limit itself, and what was asked."""
    known = {tokens for tokens in STANDARD_CONTEXTS if tokens <= model.context_tokens}
    return sorted(known | {model.context_tokens, asked})


def parameter_counts(model: Model) -> dict[str, Any]:
    """Number of parameters: ``total``, ``active`` and ``by_component``."""
    return {
        "total": parameters(model),
        "active": active_parameters(model),
        "by_component": {str(part): number for part, number in parameters_by_component(model).items()},
    }


_SHORT: Final = (
    Verdict.MAX_SEQS_EXCEEDS_STATES.label,
    Verdict.CACHE_EXCEEDS_POOL.label,
    Verdict.WEIGHTS_EXCEED_MEMORY.label,
)
STARTS: Final = (Verdict.FITS.label, Verdict.TIGHT.label)
REFUSED: Final = (Verdict.ENGINE_DOES_NOT_RUN.label, Verdict.FORMAT_NOT_SUPPORTED.label)
POSSIBLE: Final = (*STARTS, Verdict.MAY_FIT.label)
_Answer = TypeVar("_Answer", bound=Estimate)


def between_ends(widest: _Answer, narrowest: _Answer) -> _Answer:
    """Join the two ends of a copy whose weights are a range; ``may_fit`` where they decide whether a request fits."""
    spread = max(narrowest.budget.kv_pool_bytes - widest.budget.kv_pool_bytes, 0)
    return replace(
        widest,
        optimistic=narrowest,
        verdict=_between(widest.verdict, narrowest.verdict),
        by_context=tuple(
            replace(row, verdict=_between(row.verdict, best.verdict))
            for row, best in zip(widest.by_context, narrowest.by_context, strict=True)
        ),
        budget=replace(widest.budget, uncertainty_bytes=widest.budget.uncertainty_bytes + spread),
    )


def with_open_terms(result: _Answer) -> _Answer:
    """An answer that nothing surely fits where options change memory which it does not follow: by how much is not known.

    ``fits`` is then ``tight``, and the verdict's reason names the parts of the memory; other answers stay as they are.
    """
    said = outside_band(result.request.not_followed)
    if not said or result.verdict in REFUSED:
        return result
    options = result.request.not_followed
    rows = (replace(row, verdict=within_band(row.verdict, options)) for row in result.by_context)
    return replace(
        result,
        verdict=within_band(result.verdict, options),
        by_context=tuple(rows),
        verdict_reason="; ".join(dict.fromkeys([*filter(None, [result.verdict_reason]), *said])),
        optimistic=None if result.optimistic is None else with_open_terms(result.optimistic),
    )


def _between(widest: str, narrowest: str) -> str:
    """The verdict of a copy whose weights are a range: that of its wide end, unless the range decides."""
    return Verdict.MAY_FIT.label if widest in _SHORT and narrowest in STARTS else widest
