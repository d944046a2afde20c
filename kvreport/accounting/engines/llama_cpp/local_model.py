"""A model as llama.cpp loads it, with what is loaded beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.network import (
    Attention,
    Block,
    LatentAttention,
    Mixture,
    Network,
)
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.catalog.local_architectures import LocalArchitecture
from kvreport.catalog.model import Model

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
    from kvreport.accounting.engines.llama_cpp.projector import Projector


@dataclass(frozen=True)
class Companions:
    """Everything that is loaded besides a model."""

    draft: LocalModel | None = None
    prediction: LocalModel | None = None  # The model's own prediction blocks, as a network of their own.
    projector: Projector | None = None  # A vision projector.
    projector_on_host: bool = False  # True with ``--no-mmproj-offload``.


ALONE: Final = Companions()


@dataclass(frozen=True, eq=False)
class LocalModel:
    """A model as llama.cpp would load it; the same only as itself: thousands of tensors are not compared to find it again."""

    model: Model  # The catalog's record.
    architecture: LocalArchitecture  # What llama.cpp knows of its class.
    network: Network  # The network it runs.
    tensors: tuple[LocalTensor, ...]  # Every tensor of its file, types not chosen yet unless a file said so.
    companions: Companions = ALONE  # What is loaded with it.

    @property
    def has_experts(self) -> bool:
        """True if a layer is a mixture of experts."""
        return any(isinstance(block.feed, Mixture) for block in self.network.blocks)

    @cached_property
    def sizes_by_shape(self) -> tuple[tuple[tuple[int, int, int], int], ...]:
        """Bytes of the largest tensor of each shape: what a copy of it to a device takes."""
        sizes: dict[tuple[int, int, int], int] = {}
        for tensor in self.tensors:
            if tensor.is_matrix:
                shape = (tensor.columns, tensor.rows // tensor.stack, tensor.stack)
                sizes[shape] = max(sizes.get(shape, 0), tensor.nbytes)
        return tuple(sorted(sizes.items()))


def companion_options(options: LocalOptions) -> LocalOptions:
    """Options of the context that drafts: the same cells and slots, caches of its own types, logits of one token per slot."""
    return replace(
        options,
        type_k=options.draft_type_k,
        type_v=options.draft_type_v,
        gpu_layers=None,
        cpu_moe=0,
        overrides=(),
        tensor_split=(),
        outputs=options.slots,
        draft=0,
        mtp=False,
        embeddings=False,
    )


def prediction_model(local: LocalModel, tensors: tuple[LocalTensor, ...]) -> LocalModel | None:
    """A model's prediction blocks as a model: blocks like the last with attention, the trunk's head."""
    attending = [
        block for block in local.network.blocks if isinstance(block.mixer, Attention | LatentAttention)
    ]
    full = [block for block in attending if not (isinstance(block.mixer, Attention) and block.mixer.window)]
    if not tensors or not attending:
        return None
    first = min(tensor.layer for tensor in tensors)
    count = max(tensor.layer for tensor in tensors) - first + 1
    block: Block = (full or attending)[-1]
    network = replace(
        local.network,
        blocks=(block,) * count,
        tied=False,
        per_layer=0,
        predicts=True,
        rollback=False,
        late_rows=True,
        late_before_norm=False,
        hidden_output=True,
    )
    moved = tuple(replace(tensor, layer=tensor.layer - first) for tensor in tensors)
    return replace(local, network=network, tensors=moved, companions=ALONE)
