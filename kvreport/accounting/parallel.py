"""How a model is spread over devices: what divides, what replicates, what is refused.

Four ways, and they multiply: *tensor* parallel divides each layer's matrices and heads, *pipeline*
parallel deals out whole layers, *data* parallel repeats the whole, and *decode context* parallel
divides the tokens of a cache among the ranks of a tensor-parallel group that would otherwise hold
copies of it. The rules are those of vLLM 0.33 (``config/parallel.py``, ``config/model.py``,
``distributed/utils.py``); other engines differ in details, not in kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final

from kvreport.accounting.weights import output_side, padded_vocabulary, parameters
from kvreport.catalog.caches import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    SlidingWindow,
)
from kvreport.catalog.model import Component, Model, WeightGroup
from kvreport.errors import InputError, UndividedError, shorten

MOST_RANKS: Final = 1024
"""Largest size looked at; the largest systems sold as one have a few hundred devices."""

SERVER_DEVICES: Final = 8
"""Devices of a usual server."""

_DEGREE: Final = re.compile(r"(?P<way>tp|pp|dp|dcp|ep)(?P<degree>[0-9]{1,5})?")

_WHOLE_TOWERS: Final[frozenset[Component]] = frozenset({"vision", "audio"})
"""Engines can keep these whole on every rank, so they never forbid a size."""

_HeadedCache = FullAttention | SlidingWindow | ChunkedAttention | CrossAttention


def check_tensor_parallel(model: Model, tensor_parallel: int) -> None:
    """Refuse a tensor-parallel size that the model's shapes do not allow.

    Query heads and the wide sides of matrices must divide. KV heads must divide or be divided
    (beyond one per rank they replicate). State groups never refuse: they are extended.

    Raises:
        UndividedError: With what does not divide, and the sizes that work.
    """
    if not 1 <= tensor_parallel <= MOST_RANKS:
        raise InputError(f"tensor parallel: found {tensor_parallel}; allowed: 1 to {MOST_RANKS}")
    reason = next(_obstacles(model, tensor_parallel), None)
    if reason is not None:
        sizes = ", ".join(str(size) for size in allowed_tensor_parallel(model))
        raise UndividedError(
            f"{model.id}: tensor parallel: found {tensor_parallel}, which does not divide {reason}; "
            f"allowed up to 16: {sizes}"
        )


def allowed_tensor_parallel(model: Model, limit: int = 16) -> tuple[int, ...]:
    """Tensor-parallel sizes up to ``limit`` that the model's shapes allow, ascending."""
    return tuple(size for size in range(1, limit + 1) if next(_obstacles(model, size), None) is None)


def check_context_parallel(model: Model, tensor_parallel: int, context_parallel: int) -> None:
    """Refuse a decode-context-parallel size that the layout does not allow.

    It must divide the tensor-parallel size. With KV heads there must be copies to take the place
    of: more ranks than heads, at most as many parts as copies, and query heads per KV head that
    divide by it. Windows and chunks are not divided by tokens, so a model that has them is refused;
    recurrent states stay whole.

    Raises:
        InputError: With the rule that is broken.
    """
    if context_parallel == 1:
        return
    if context_parallel < 1 or tensor_parallel % context_parallel:
        raise InputError(
            f"decode context parallel: found {context_parallel}; allowed: a divisor of the "
            f"tensor-parallel size {tensor_parallel}"
        )
    for cache in model.every_cache:
        if isinstance(cache, SlidingWindow | ChunkedAttention):
            raise InputError(
                f"{model.id}: decode context parallel: found {context_parallel}; allowed: 1, "
                f"because the model has {cache.kind} layers, whose tokens cannot be divided"
            )
        if isinstance(cache, FullAttention):
            copies = tensor_parallel // cache.kv_heads
            per_head = model.attention_heads // cache.kv_heads
            if copies <= 1:
                raise InputError(
                    f"{model.id}: decode context parallel: found {context_parallel}; allowed: 1, because "
                    f"{tensor_parallel} ranks hold {cache.kv_heads} KV heads once, or more tensor ranks than KV heads, "
                    "which make copies that it divides"
                )
            if context_parallel > copies or per_head % context_parallel:
                raise InputError(
                    f"{model.id}: decode context parallel: found {context_parallel}; allowed: at most the {copies} "
                    f"copies that {tensor_parallel} ranks hold of {cache.kv_heads} KV heads, and a divisor of "
                    f"{per_head} query heads per KV head"
                )


def stage_layers(layer_count: int, stages: int, partition: tuple[int, ...] = ()) -> tuple[range, ...]:
    """Which layers each pipeline stage runs.

    Layers that are left over go one each to the stages before the last, which already has the
    output head.

    ``partition``: layers of each stage, where they were given (``VLLM_PP_LAYER_PARTITION``).

    Raises:
        InputError: If there are more stages than layers, or a partition does not have all of both.
    """
    if not 1 <= stages <= layer_count:
        raise InputError(f"pipeline parallel: found {stages}; allowed: 1 to {layer_count} layers")
    if partition and (len(partition) != stages or sum(partition) != layer_count or min(partition) < 1):
        given = ",".join(map(str, partition))
        raise InputError(
            f"pipeline partition: found {given}; allowed: {stages} numbers of at least 1 with the sum {layer_count}"
        )
    sizes = list(partition) or [layer_count // stages] * stages
    for back in range(0 if partition else layer_count % stages):
        sizes[-2 - back] += 1
    bounds = accumulate(sizes, initial=0)
    return tuple(range(first, last) for first, last in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class Layout:
    """A way to spread one model over devices."""

    tensor: int = 1  # Ranks that share each layer.
    pipeline: int = 1  # Stages that share the layers.
    data: int = 1  # Ranks of data parallelism: each runs attention for requests of its own.
    # True if routed experts are divided over all ranks of a stage (``tensor`` x ``data``).
    expert: bool = False
    decode_context: int = 1  # Parts that a cache's tokens are divided into, inside the tensor-parallel group.
    nodes: int = 1  # Servers that the devices stand in.
    # Layers of each pipeline stage as given; empty for the engine's own division.
    partition: tuple[int, ...] = ()
    # Further copies of experts (``--eplb-config.num_redundant_experts``), which are divided over the ranks
    # with the rest.
    redundant_experts: int = 0
    all_to_all: str = ""  # Kernels that exchange tokens between expert ranks; empty for the engine's default.
    # True if each tensor-parallel rank has encoders of images and sound whole, and encodes some of the inputs
    # (``--mm-encoder-tp-mode data``).
    whole_encoders: bool = False
    # True if each rank has dense MLPs of a mixture whole (SGLang's ``--moe-dense-tp-size 1``).
    whole_dense: bool = False
    # True if the output head is divided over the ranks of one data rank (SGLang's ``--enable-dp-lm-head``).
    head_by_data_rank: bool = False

    @property
    def devices(self) -> int:
        """Devices that the layout takes; expert and context parallelism take no more of them."""
        return self.tensor * self.pipeline * self.data

    @property
    def is_tensor_only(self) -> bool:
        """True if the model is only divided by tensor parallelism."""
        return self.devices == self.tensor and not self.expert and self.decode_context == 1

    @property
    def is_row_of_cards(self) -> bool:
        """True if it is a pipeline inside one machine, which needs no scale-up link and any number of devices."""
        alone = self.data == self.nodes == self.decode_context == 1 and not self.expert
        return self.pipeline > 1 and alone

    @property
    def wants_link(self) -> bool:
        """True if its devices are to have a scale-up link."""
        return not (self.is_tensor_only or self.is_row_of_cards)

    @property
    def order(self) -> int:
        """Place among layouts of the same hardware: tensor parallelism first, combinations last.

        Layouts that add one way of dividing the model come in the order data ranks, pipeline stages, context ranks.
        """
        data = int(self.data > 1 or self.expert)
        stages, contexts = int(self.pipeline > 1), int(self.decode_context > 1)
        return 8 * (data + stages + contexts) + 4 * contexts + 2 * stages + data

    @property
    def expert_ranks(self) -> int:
        """Ranks that routed experts are divided over (vLLM 0.33, ``fused_moe/config.py``)."""
        return self.tensor * self.data

    @property
    def label(self) -> str:
        """The name in the dataset: ``tp8``, ``dp8-ep``, ``tp8-dcp8``, ``pp2-tp8``."""
        parts = [
            f"pp{self.pipeline}" * (self.pipeline > 1),
            f"dp{self.data}" * (self.data > 1),
            f"tp{self.tensor}" * (self.tensor > 1 or self.data == 1),
            "ep" * self.expert,
            f"dcp{self.decode_context}" * (self.decode_context > 1),
        ]
        return "-".join(part for part in parts if part)

    @classmethod
    def named(cls, text: str) -> Layout:
        """Read a name such as ``tp2-dp8-ep``; servers of eight devices are taken where there are more than eight.

        Raises:
            InputError: If it is no layout's name.
        """
        found: dict[str, int] = {}
        for part in text.strip().lower().split("-"):
            match = _DEGREE.fullmatch(part)
            expert = match is not None and match["way"] == "ep"
            if (
                match is None
                or match["way"] in found
                or (expert and match["degree"])
                or not (expert or match["degree"])
            ):
                raise InputError(
                    f"layout: found {shorten(text)}; allowed: tp, pp, dp and dcp with a number, and ep, joined by "
                    "hyphens, such as tp2-dp8-ep"
                )
            found[match["way"]] = int(match["degree"] or 1)
        if min(found.values()) < 1 or max(found.values()) > MOST_RANKS:
            raise InputError(f"layout: found {shorten(text)}; allowed: degrees from 1 to {MOST_RANKS}")
        made = cls(
            tensor=found.get("tp", 1),
            pipeline=found.get("pp", 1),
            data=found.get("dp", 1),
            expert="ep" in found,
            decode_context=found.get("dcp", 1),
        )
        return replace(made, nodes=-(-made.devices // SERVER_DEVICES))

    def check(self, model: Model) -> None:
        """Refuse a layout that the model's shapes do not allow.

        Raises:
            InputError: With the rule that is broken.
        """
        for name, number in (("data parallel", self.data), ("nodes", self.nodes)):
            if number < 1:
                raise InputError(f"{name}: found {number}; allowed: 1 or more")
        check_tensor_parallel(model, self.tensor)
        check_context_parallel(model, self.tensor, self.decode_context)
        stage_layers(model.layer_count, self.pipeline, self.partition)
        if self.redundant_experts and not self.expert:
            raise InputError(
                f"redundant experts: found {self.redundant_experts} without expert parallelism; allowed: "
                "--expert-parallel, which gives each rank whole experts"
            )
        if self.expert:
            self._check_experts(model)
        elif self.data > 1:
            self._check_slices(model)
        if self.devices % self.nodes:
            raise InputError(
                f"nodes: found {self.nodes} for {self.devices} devices; allowed: a divisor of {self.devices}"
            )

    def _check_slices(self, model: Model) -> None:
        """Without expert parallelism every expert is cut into as many slices as there are ranks."""
        for row in model.weights:
            if row.component == "routed_experts":
                for reason in _row_obstacle(row, self.expert_ranks):
                    raise InputError(
                        f"{model.id}: data parallel: found {self.expert_ranks} ranks, which do not divide {reason}; "
                        "allowed: --expert-parallel, which keeps experts whole"
                    )

    def _check_experts(self, model: Model) -> None:
        if model.experts is None:
            raise InputError(
                f"{model.id}: expert parallel: found a model without routed experts; allowed: leave it out"
            )
        if self.expert_ranks > model.experts.routed:
            raise InputError(
                f"{model.id}: expert parallel: found {self.expert_ranks} ranks for {model.experts.routed} experts; "
                f"allowed: at most {model.experts.routed} ranks"
            )
        over = (model.experts.routed + self.redundant_experts) % self.expert_ranks
        if self.redundant_experts and over:
            raise InputError(
                f"{model.id}: redundant experts: found {self.redundant_experts} for {model.experts.routed} experts on "
                f"{self.expert_ranks} ranks, which do not get equally many; allowed: "
                f"{self.redundant_experts + self.expert_ranks - over}, or any number that makes the sum a multiple"
            )


LARGE_MIXTURE: Final = 100_000_000_000
"""Parameters from which a mixture of experts is deployed over several data ranks."""

TWO_NODES: Final = 200_000_000_000
"""Parameters from which a model is deployed over two servers."""


ONE_CARD: Final = 12_000_000_000
"""Parameters from which a card of 24 GB does not hold a model in 16 bits, so that cards are put in a row."""

SEARCHED_NODES: Final = 2
"""Servers that a deployment of a smaller model is not spread over."""


def suits(layout: Layout, model: Model) -> bool:
    """True if people deploy models like this one so.

    Data-parallel attention with expert parallelism serves latents, which tensor parallelism would copy, and
    large mixtures. Tensor parallelism over two servers serves what one does not hold. Decode context parallelism takes the
    place of copies, of latents and of KV heads. Pipeline stages serve what needs two servers, or several cards of one machine.
    """
    latent = any(cache.kind == "latent" for cache in model.every_cache)
    size = parameters(model)
    if layout.is_row_of_cards:
        return size >= ONE_CARD
    if layout.is_tensor_only:
        return size >= TWO_NODES
    if layout.decode_context > 1 and not latent and not _takes_copies(layout, model):
        return False
    if layout.pipeline > 1 or layout.nodes > SEARCHED_NODES:
        return size >= TWO_NODES and (layout.data == 1 or model.experts is not None)
    if layout.data > 1 or layout.expert:
        return model.experts is not None and (latent or size >= LARGE_MIXTURE)
    return layout.decode_context > 1


def _takes_copies(layout: Layout, model: Model) -> bool:
    """True if the parts of a context are as many as the copies of KV heads that some ranks would hold."""
    heads = {cache.kv_heads for cache in model.every_cache if isinstance(cache, FullAttention)}
    return bool(heads) and layout.tensor > layout.decode_context == layout.tensor // max(heads)


def _obstacles(model: Model, ranks: int) -> Iterator[str]:
    """What ``ranks`` does not divide, in words, in the order of the model's file."""
    if ranks == 1:
        return
    skipped = _WHOLE_TOWERS | frozenset(model.not_loaded)
    for row in model.weights:
        if row.component not in skipped:
            yield from _row_obstacle(row, ranks)
    for cache in model.every_cache:
        if isinstance(cache, _HeadedCache):
            yield from _kv_heads_obstacle(cache.kv_heads, ranks)


def _row_obstacle(row: WeightGroup, ranks: int) -> Iterator[str]:
    match row.split:
        case "heads" if row.heads is not None and row.heads % ranks:
            yield f"the {row.heads} heads of {row.name}"
        case "kv_heads" if row.heads is not None:
            yield from _kv_heads_obstacle(row.heads, ranks)
        case "vocabulary" if padded_vocabulary(row.shape[0]) % ranks:
            yield f"the {padded_vocabulary(row.shape[0])} rows of the padded vocabulary"
        case "columns" if output_side(row.shape) % ranks:
            yield f"the {output_side(row.shape)} rows of {row.name}"
        case "rows" if row.shape[-1] % ranks:
            yield f"the {row.shape[-1]} columns of {row.name}"
        case "experts" if len(row.shape) > 1 and all(side % ranks for side in row.shape[-2:]):
            yield f"either side of {row.name}"
        case _:
            return


def _kv_heads_obstacle(kv_heads: int, ranks: int) -> Iterator[str]:
    if kv_heads % ranks and ranks % kv_heads:
        yield f"the {kv_heads} KV heads, nor is divided by them"
