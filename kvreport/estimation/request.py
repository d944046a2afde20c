"""What was asked, with every name resolved to a record and every number checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvreport.accounting.deployment import Case
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.parallel import MOST_RANKS, Layout
from kvreport.accounting.plan import Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.load import RELEASED, Catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError, shorten
from kvreport.units import parse_bytes, parse_tokens


@dataclass(frozen=True, slots=True)
class Request:
    """One question, resolved.

    Attributes:
        model: The model.
        accelerator: The device.
        engine: The engine.
        ceiling: The policy that reserves nothing, for comparison.
        weight_formats: Formats by name, for what released tensors carry.
        layout: How the model is spread over devices.
        context_tokens: Tokens of each request.
        weight_format: None for the checkpoint as released.
        kv_format: How growing caches are stored.
        utilization: Share of memory.
        kv_pool_bytes: Pool per device given by hand, or None.
        serving: Scheduler sizes and flags that change the block plan.
        eager: True if no graphs are captured.
        sorts: True if the engine said that sampling sorts all logits.
    """

    model: Model
    accelerator: Accelerator
    engine: Engine
    ceiling: Engine
    weight_formats: Mapping[str, WeightFormat]
    layout: Layout
    context_tokens: int
    weight_format: WeightFormat | None
    kv_format: KvFormat
    utilization: float
    kv_pool_bytes: int | None
    serving: Serving
    eager: bool
    sorts: bool

    @property
    def weight_format_name(self) -> str:
        """The name of the weight format in the dataset."""
        return RELEASED if self.weight_format is None else self.weight_format.name

    @property
    def tensor_parallel(self) -> int:
        """Devices that one copy of the model is split over."""
        return self.layout.tensor

    @property
    def stored_format(self) -> KvFormat | None:
        """``kv_format`` in the layout that the engine gives it on this device."""
        return self.case.stored_format

    @property
    def case(self) -> Case:
        """The same for the arithmetic."""
        return Case(
            model=self.model,
            engine=self.engine,
            accelerators=(self.accelerator,),
            weight_formats=(self.weight_format,),
            formats=self.weight_formats,
            kv_format=self.kv_format,
            layout=self.layout,
            serving=self.serving,
            utilization=self.utilization,
            kv_pool_bytes=self.kv_pool_bytes,
            eager=self.eager,
            sorts=self.sorts,
        )


AUTO = "auto"
"""The KV format that a checkpoint declares, else the 16-bit type it is served in."""


def resolve_model(model: str | Path | Model, catalog: Catalogue) -> Model:
    """Find a model by id, slug or alias, or read it from a ``config.json``.

    Raises:
        InputError: If there is no such model or file, naming near ones.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, Path) or is_config_path(model):
        # A reader for every family costs a tenth of a second; a catalogue's model needs none.
        from kvreport.catalog.huggingface import read_config  # noqa: PLC0415

        return read_config(model)
    return catalog.model(model)


def is_config_path(text: str) -> bool:
    """True if a model's name on the command line is the path of a config rather than an id."""
    if text.endswith(".json") or text.startswith((".", "/", "~")):
        return True
    return "\0" not in text and Path(text, "config.json").is_file()


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` if it is a whole number in range.

    Raises:
        InputError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name}: found {shorten(value)}; allowed: a whole number from {low:,} to {high:,}")
    return value


def resolve(
    model: str | Path | Model,
    *,
    gpu: str | Accelerator,
    tensor_parallel: int,
    context_tokens: int | str | None,
    weights: str | None,
    kv: str,
    engine: str | Engine,
    utilization: float | None,
    kv_pool: int | str | None,
    max_batched_tokens: int | None,
    max_seqs: int | None,
    block_size: int | None,
    eager: bool,
    sorts: bool,
    prefix_caching: bool | None,
    speculative: int,
    dcp: int,
    catalog: Catalogue,
) -> Request:
    """Resolve names against a catalogue and check numbers; the arguments are those of ``estimate``.

    Raises:
        InputError: For the first thing that cannot be resolved.
    """
    record = resolve_model(model, catalog)
    accelerator = gpu if isinstance(gpu, Accelerator) else catalog.accelerator(gpu)
    policy = engine if isinstance(engine, Engine) else catalog.engine(engine)
    refuse_unsupported(record, policy)
    engine_rules = rules(policy)
    cache = catalog.kv_format(
        (engine_rules.default_kv_format(record, accelerator) or "bf16") if kv.lower() == AUTO else kv
    )
    cache = as_declared(cache, record, catalog.kv_formats)
    if not storable_on(cache, accelerator):
        raise InputError(
            f"kv: {accelerator.name} cannot store a cache in {cache.name}; allowed: an accelerator with "
            f"{' or '.join(cache.native)}, or another format"
        )
    whole_number("tensor-parallel", tensor_parallel, 1, MOST_RANKS)
    whole_number("dcp", dcp, 1, MOST_RANKS)
    layout = Layout(tensor=tensor_parallel, decode_context=dcp)
    layout.check(record)
    tokens, rows = engine_rules.scheduler(
        accelerator,
        max_batched_tokens=_optional("max-batched-tokens", max_batched_tokens),
        max_seqs=_optional("max-seqs", max_seqs),
    )
    return Request(
        model=record,
        accelerator=accelerator,
        engine=policy,
        ceiling=catalog.engine("ceiling"),
        weight_formats=catalog.weight_formats,
        layout=layout,
        context_tokens=(
            record.context_tokens
            if context_tokens is None
            else _field("context", parse_tokens, context_tokens)
        ),
        weight_format=(
            None if weights is None or weights.lower() == RELEASED else catalog.weight_format(weights)
        ),
        kv_format=cache,
        utilization=engine_rules.share(utilization),
        kv_pool_bytes=None if kv_pool is None else _field("kv-pool", parse_bytes, kv_pool),
        serving=Serving(
            max_batched_tokens=tokens,
            max_seqs=rows,
            block_tokens=_optional("block-size", block_size, 1 << 20),
            prefix_caching=prefix_caching,
            draft_tokens=whole_number("speculative", speculative, 0, 1024),
        ),
        eager=eager,
        sorts=sorts,
    )


def refuse_unsupported(model: Model, engine: Engine) -> None:
    """Refuse a model that the engine does not run.

    Raises:
        InputError: If the model's record says so, with its reason.
    """
    for name in (engine.name, engine.family):
        if name in model.unsupported_by:
            raise InputError(f"engine: {engine.label} does not run {model.id}: {model.unsupported_by[name]}")


def storable_on(kv_format: KvFormat, accelerator: Accelerator) -> bool:
    """True if the accelerator can keep a cache in this format."""
    return kv_format.stored_by(accelerator.compute_capability, accelerator.vendor)


def as_declared(asked: KvFormat, model: Model, formats: Mapping[str, KvFormat]) -> KvFormat:
    """What a format means for a model that declares a packed layout of the same width: that layout.

    DeepSeek-V4 asked for FP8 keeps its own 584-byte states; there is no other FP8 cache of it.
    """
    own = formats.get(model.kv_format) if model.kv_format else None
    packed = own is not None and own.wide_rope_bytes > 0 and own.bits == asked.bits
    return own if own is not None and packed and not asked.wide_rope_bytes else asked


def automatic_kv_format(model: Model) -> str:
    """What ``auto`` means: the KV format that the checkpoint declares, else the served type."""
    if model.kv_format is not None:
        return model.kv_format
    return "bf16"


def _optional(name: str, value: int | None, high: int = 1 << 30) -> int | None:
    return None if value is None else whole_number(name, value, 1, high)


def _field(name: str, parse: Callable[[str | int], int], value: str | int) -> int:
    try:
        return parse(value)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
