"""What a model's weights weigh, by component, format and rank.

A format rarely covers the whole model: embeddings, output head, norms and the router usually stay
at 16 bits, and every quantised block pays for its scale. So bytes are counted tensor by tensor.
``None`` as a format means "as released": each tensor in the format that the checkpoint has it in.

What is counted is the tensors, exactly. What an engine adds while loading (repacked layouts,
position tables, workspaces) is part of its budget, :mod:`kvreport.accounting.budget`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil, prod
from typing import Final, get_args

from kvreport.accounting.kv_cache import SERVED_BYTES, heads_per_rank
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.layouts import layout
from kvreport.catalog.model import Component, Model, WeightGroup
from kvreport.catalog.release import trait
from kvreport.catalog.remembered import remembered
from kvreport.catalog.variant import is_matrix
from kvreport.errors import Fault, InputError
from kvreport.units import GIB

COMPONENTS: Final[tuple[Component, ...]] = get_args(Component)
"""All components, in the order in which they are shown."""

VOCABULARY_MULTIPLE: Final = 64
"""Engines pad embedding and output head to whole multiples of this many rows (vLLM 0.33)."""

_DTYPE_BYTES: Final = {"bfloat16": 2, "float16": 2, "float32": 4}
_INACTIVE: Final[frozenset[Component]] = frozenset({"vision", "audio", "mtp"})

ComponentBytes = dict[Component, int]

_Part = tuple[tuple[int, ...], tuple[int, int]]
"""The shape to count of some tensors, and the part of it that one rank holds as a fraction."""


def tensor_bytes(
    shape: tuple[int, ...], weight_format: WeightFormat | None, plain_bytes: int = SERVED_BYTES
) -> int:
    """Bytes of one tensor, whole, as an engine holds it.

    ``ceil(elements * bits / 8) + ceil(blocks * scale_bytes) + ceil(inputs * column_bytes) + tensor_bytes``,
    where the last block of a row or column counts in full.

    ``shape``: output dimension first; leading dimensions beyond two are stacked matrices.
    ``weight_format``: how it is stored; None means unquantised. ``plain_bytes``: bytes of one unquantised
    element.
    """
    return _rank_bytes(shape, weight_format, None, plain_bytes, (1, 1))


def weights_by_component(
    model: Model,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    tensor_parallel: int = 1,
    *,
    without: Collection[Component] | None = None,
    expert_ranks: int | None = None,
    whole_experts: bool = False,
    redundant_experts: int = 0,
    component_ranks: Mapping[Component, int] | None = None,
    on_host: Collection[str] = (),
) -> ComponentBytes:
    """Bytes that one rank holds, by component; components without weights are left out.

    Args:
        model: The model.
        weight_format: The format the model is converted to; None means as released.
        formats: Weight formats by name, for the names that released tensors carry.
        tensor_parallel: Ranks that the weights are divided by. Whether the model can be divided so
            is :func:`kvreport.accounting.parallel.check_tensor_parallel`'s question.
        without: Components that are not loaded; None means the model's own ``not_loaded``.
        expert_ranks: Ranks that routed experts are divided over, where those are more than
            ``tensor_parallel`` (data-parallel attention); None for as many.
        whole_experts: True if a rank holds whole experts (expert parallelism) rather than a slice of each;
            the fullest rank counts (vLLM 0.33, ``fused_moe/layer.py::determine_expert_map``).
        redundant_experts: Further copies of experts that are divided over the ranks with the rest.
        component_ranks: Ranks that other components are divided over, where an engine divides them otherwise.
        on_host: Names of rows that an engine keeps in host memory.

    Returns:
        Bytes per rank. Unquantised tensors count 2 bytes per element, as engines serve float32
        checkpoints at 16 bits; the vocabulary is padded as engines pad it.

    Raises:
        InputError: If a released tensor names a format that ``formats`` does not have.
    """
    skipped = frozenset(model.not_loaded if without is None else without)
    tied = is_tied(model)
    total = dict.fromkeys(COMPONENTS, 0)
    ranks_of = dict(component_ranks or {})
    if expert_ranks:
        ranks_of["routed_experts"] = expert_ranks
    for row in model.weights:
        if row.component not in skipped and row.name not in on_host:
            ranks = ranks_of.get(row.component, tensor_parallel)
            part = _part(row, ranks)
            if whole_experts:
                part = part[0], _whole_experts(model, row, ranks, redundant_experts) or part[1]
            total[row.component] += _row_bytes(model, row, weight_format, formats, part, tied=tied)
    return {component: size for component, size in total.items() if size}


def row_bytes(
    model: Model,
    row: WeightGroup,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    tensor_parallel: int = 1,
) -> int:
    """Bytes that one rank holds of one row's tensors, all ``count`` of them.

    ``weight_format``: the format that the model is converted to; None for the released format. ``formats``: weight
    formats by name, for what released tensors carry. ``tensor_parallel``: ranks that share each layer.
    """
    part = _part(row, tensor_parallel)
    return _row_bytes(model, row, weight_format, formats, part, tied=is_tied(model))


def whole_row_bytes(model: Model, formats: Mapping[str, WeightFormat]) -> tuple[int, ...]:
    """Bytes of each row as released, whole and without padding: what its tensors are in an engine."""
    return tuple(
        row_bytes(model, row.model_copy(update={"split": "replicated"}), None, formats)
        for row in model.weights
    )


def is_tied(model: Model) -> bool:
    """True if the embedding is the output head, too."""
    return all(row.component != "output_head" for row in model.weights)


def _row_bytes(
    model: Model,
    row: WeightGroup,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    part: _Part,
    *,
    tied: bool,
) -> int:
    shape, share = part
    if row.stored_bytes is not None and weight_format is None:
        return _stored_share(row.stored_bytes, row, shape, share)
    form = format_of(model, row, weight_format, formats)
    bits = None if form is None else _wider_bits(row, form, tied=tied)
    return row.count * _rank_bytes(shape, form, bits, SERVED_BYTES, share)


def _stored_share(stored: int, row: WeightGroup, shape: tuple[int, ...], share: tuple[int, int]) -> int:
    """One rank's part of bytes that a file's header states, the vocabulary padded as always."""
    part, whole = share
    return -(-stored * part * prod(shape) // (whole * prod(row.shape)))


def _whole_experts(model: Model, row: WeightGroup, ranks: int, redundant: int = 0) -> tuple[int, int] | None:
    """The share of a layer's experts on the fullest of ``ranks``; None for a row that has none."""
    if row.component != "routed_experts" or model.experts is None or row.split != "experts":
        return None
    return -(-(model.experts.routed + redundant) // ranks), model.experts.routed


def weight_bytes(
    model: Model,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    tensor_parallel: int = 1,
    *,
    without: Collection[Component] | None = None,
) -> int:
    """Bytes that one rank holds: the sum of :func:`weights_by_component`.

    ``weight_format``: the format that the model is converted to; None for the released format. ``formats``: weight
    formats by name, for what released tensors carry. ``tensor_parallel``: ranks that share each layer.
    ``without``: components that are not loaded; None for the model's own ``not_loaded``.
    """
    return sum(weights_by_component(model, weight_format, formats, tensor_parallel, without=without).values())


def released_bytes(model: Model, formats: Mapping[str, WeightFormat]) -> int:
    """Bytes of the whole checkpoint as published: every component, in its own type, unpadded.

    Rows whose bytes were read from a file's header count with these.

    Raises:
        InputError: If a tensor names a format that ``formats`` does not have.
    """
    plain = _DTYPE_BYTES[model.dtype]
    return sum(_published_bytes(model, row, formats, plain) for row in model.weights)


_TOTALS_WITHIN: Final = 0.0015
"""A listed total has two decimals of a GiB; what a checkpoint keeps in float32 is within this too."""
_ROUNDED_GIB: Final = 0.006


@remembered
def contradiction(model: Model, formats: Mapping[str, WeightFormat]) -> Fault | None:
    """What a record says of its weights that its own tensors do not make; None where they agree."""
    where, form = f"models/{model.slug}.yaml", formats.get(model.weight_format)
    if (
        form is not None
        and form.bits < SERVED_BYTES * 8
        and all(row.released is None for row in model.weights)
    ):
        return Fault(
            where,
            "weight_format",
            f"{form.name}, and no tensor states a format",
            f"weights with 'released: {form.name}', a copy with quantized_from, or bf16",
        )
    total = model.published_total
    if total is None:
        return None
    listed = (total.gib - total.unused_gib) / total.copies
    counted = released_bytes(model, formats) / GIB
    if abs(counted - listed) <= max(_TOTALS_WITHIN * listed, _ROUNDED_GIB):
        return None
    return Fault(
        where,
        "published_total",
        f"{listed:.2f} GiB, where the record's tensors make {counted:.2f} GiB",
        f"tensors within {_TOTALS_WITHIN:.2%} of the total",
    )


def _published_bytes(model: Model, row: WeightGroup, formats: Mapping[str, WeightFormat], plain: int) -> int:
    if row.stored_bytes is not None:
        return row.stored_bytes
    form = format_of(model, row, None, formats)
    index = form.index_bytes * _inputs(row.shape) if form is not None else 0
    return row.count * (tensor_bytes(row.shape, form, plain) + index)


def parameters_by_component(model: Model) -> ComponentBytes:
    """Parameters of every component, whether an engine loads it or not."""
    total = dict.fromkeys(COMPONENTS, 0)
    for row in model.weights:
        total[row.component] += row.parameters
    return {component: number for component, number in total.items() if number}


def parameters(model: Model) -> int:
    """All parameters of the text model and its towers, without layers for multi-token prediction.

    The usual meaning of a model's size; what transformers counts for the same class.
    """
    return sum(row.parameters for row in model.weights if row.component != "mtp")


def active_parameters(model: Model) -> int:
    """Parameters that one token of text passes through.

    Everything but vision, audio and multi-token prediction, with routed experts counted by the
    share that a token is sent to. As in published counts, the embedding and the output head count in
    full, and so do tables beside them with a row for every token or position (Gemma 3n's per-layer
    embeddings); tables of hashed n-grams, which have many times as many rows, do not count.
    """
    total = 0
    for row in model.weights:
        if row.component in _INACTIVE or is_hashed(model, row):
            continue
        if row.component == "routed_experts" and model.experts is not None:
            total += row.parameters * model.experts.per_token // model.experts.routed
        else:
            total += row.parameters
    return total


def is_hashed(model: Model, row: WeightGroup) -> bool:
    """True for a table of hashed n-grams: it has more rows than there are tokens or positions to look up."""
    return row.looked_up and row.shape[0] > max(model.vocabulary, model.context_tokens)


def on_host(engine: Engine, model: Model, accelerator: Accelerator | None = None) -> frozenset[str]:
    """Names of weight rows that lie in host memory by default, on a device or on most.

    Tables of hashed n-grams lie in pinned memory of the host, for the classes that the release lists: by default since 0.30 of vLLM
    (``config/engram.py::EngramConfig.cpu_offload``; 0.29.0 keeps them on the device), and on NVIDIA GPUs since 0.5.20 of SGLang
    (``arg_groups/model_overrides/qwen4_exp.py``, ``ple_offload_embedding``). Where a device has no such memory apart,
    SGLang's load overhead counts them.
    """
    if not engine.lists("tables_on_host", model.architecture):
        return frozenset()
    apart = accelerator is None or (accelerator.vendor.upper() == "NVIDIA" and not accelerator.is_unified)
    if not apart and trait(engine, "tables_need_host_apart"):
        return frozenset()
    return frozenset(row.name for row in model.weights if is_hashed(model, row))


def rank_elements(row: WeightGroup, tensor_parallel: int = 1) -> int:
    """Elements of all of a row's tensors that one rank holds (and multiplies with)."""
    shape, (part, whole) = _part(row, tensor_parallel)
    return row.count * -(-prod(shape) * part // whole)


def output_side(shape: tuple[int, ...]) -> int:
    """The output dimension: the first of a vector or a depthwise kernel, else the last but one."""
    kernel = len(shape) == 3 and shape[-2] == 1
    return shape[0] if len(shape) == 1 or kernel else shape[-2]


def is_down(row: WeightGroup) -> bool:
    """Whether a matrix is the last of an MLP: tensor ranks divide its input, the inner side."""
    return row.name.endswith(("down_proj.weight", "w2.weight"))


def padded_vocabulary(rows: int) -> int:
    """Rows of an embedding or output head as an engine allocates them."""
    return -(-rows // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def format_of(
    model: Model, row: WeightGroup, asked: WeightFormat | None, formats: Mapping[str, WeightFormat]
) -> WeightFormat | None:
    """The format of one row, None where it stays in the plain type.

    Raises:
        InputError: If the row names a format that ``formats`` does not have.
    """
    if asked is not None:
        return asked if row.component in asked.quantises and is_matrix(row.shape) else None
    if row.released is None:
        return None
    # A layout that its name states needs no entry in the caller's table.
    found = formats.get(row.released) or layout(row.released)
    if found is None:
        raise InputError(
            f"{model.id}: weights: {row.name}: found released format {row.released!r}; "
            f"allowed: {', '.join(formats)}"
        )
    return found


def _wider_bits(row: WeightGroup, form: WeightFormat, *, tied: bool) -> float | None:
    module = row.name.removesuffix(".weight").rpartition(".")[2]
    for wider in form.wider:
        if (
            wider.component == row.component
            and (not wider.names or module in wider.names)
            and (tied or not wider.tied_only)
        ):
            return wider.bits
    return None


def _part(row: WeightGroup, ranks: int) -> _Part:
    """The shape to count, and the part of it that one rank holds as a fraction."""
    shape = row.shape
    match row.split:
        case "replicated":
            return shape, (1, 1)
        case "vocabulary":
            padded = padded_vocabulary(shape[0])
            return (padded, *shape[1:]), (-(-padded // ranks), padded)
        case "heads" | "kv_heads" | "groups":
            heads = row.heads or 1
            return shape, (heads_per_rank(heads, ranks), heads)
        case "columns":
            side = output_side(shape)
            return shape, (-(-side // ranks), side)
        case "rows":
            return shape, (-(-shape[-1] // ranks), shape[-1])
        case "experts":
            return shape, (1, ranks)


def _rank_bytes(
    shape: tuple[int, ...],
    form: WeightFormat | None,
    bits: float | None,
    plain_bytes: int,
    share: tuple[int, int],
) -> int:
    """Bytes of one rank's part of a tensor.

    The part is a share of the elements and of the scales: exact wherever a rank's slice holds whole
    blocks, which is where engines accept the division.
    """
    part, whole = share
    elements = -(-prod(shape) * part // whole)
    if form is None:
        return elements * plain_bytes
    size = ceil(elements * (form.bits if bits is None else bits) / 8)
    if form.block is not None and bits is None:
        scales = -(-_blocks(shape, form.block) * part // whole)
        size += ceil(scales * form.scale_bytes)
    if form.column_bytes:
        size += ceil(-(-_inputs(shape) * part // whole) * form.column_bytes)
    return size + form.tensor_bytes


def _inputs(shape: tuple[int, ...]) -> int:
    """Inputs of a matrix; of stacked matrices, those of all."""
    return prod(shape[:-2]) * shape[-1]


def _blocks(shape: tuple[int, ...], block: tuple[int, int]) -> int:
    """Blocks that share one scale; a 0 in ``block`` means the whole side."""
    rows, columns = (shape[-2], shape[-1]) if len(shape) > 1 else (1, shape[0])
    down = -(-rows // (block[0] or rows))
    across = -(-columns // (block[1] or columns))
    return prod(shape[:-2]) * down * across
