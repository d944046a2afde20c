"""What is loaded with a model: a draft model, prediction blocks, a vision projector.

A draft model is a second model with a context of the same size and 16-bit caches
(``common_base_params_to_speculative`` in ``common/speculative.cpp``). Prediction blocks (NextN, MTP) are in the
model's own file; their context shares the trunk's embedding and head and has a cache of those blocks only
(``create_memory`` in ``src/llama-model.cpp``). A projector is a model of its own on the first device
(``tools/mtmd/clip.cpp``). llama.cpp 0c1e57098.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kvreport.accounting.engines.llama_cpp.network import Attention, Block, LatentAttention
from kvreport.accounting.engines.llama_cpp.options import LocalOptions

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
    from kvreport.accounting.engines.llama_cpp.reading import LocalModel
    from kvreport.accounting.engines.llama_cpp.vision import Projector

DEFAULT_DRAFT_TOKENS: Final = 3
"""Draft tokens per step where nobody states them (``common_params_speculative_draft::n_max``, ``common/common.h``)."""


@dataclass(frozen=True)
class Companions:
    """Everything that is loaded besides a model.

    Attributes:
        draft: A draft model.
        prediction: The model's own prediction blocks, as a network of their own.
        projector: A vision projector.
        projector_on_host: True with ``--no-mmproj-offload``.
    """

    draft: LocalModel | None = None
    prediction: LocalModel | None = None
    projector: Projector | None = None
    projector_on_host: bool = False


ALONE: Final = Companions()


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
