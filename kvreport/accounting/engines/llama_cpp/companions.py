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

from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.network import Attention, Block, LatentAttention
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.planner import Backend, plan
from kvreport.accounting.engines.llama_cpp.tensors import (
    F32,
    Graph,
    Tensor,
    add,
    graph_input,
    like,
    mul_mat,
    permute,
    reshape,
    weight,
)

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.reading import LocalModel

DEFAULT_DRAFT_TOKENS: Final = 3
"""Draft tokens per step where nobody states them (``common_params_speculative_draft::n_max``, ``common/common.h``)."""

MAX_IMAGE_TOKENS: Final = 4096
"""Tokens of the largest image of a projector with dynamic size (``set_limit_image_tokens``, ``clip.cpp``)."""


@dataclass(frozen=True)
class Projector:
    """A vision encoder with its projector.

    Attributes:
        tensors: Its tensors.
        patches: Patches of the largest image.
        hidden: Width of a patch.
        inner: Width inside the feed-forward network.
        heads: Attention heads.
        patch_elements: Elements of one patch of the image.
    """

    tensors: tuple[LocalTensor, ...]
    patches: int
    hidden: int
    inner: int
    heads: int
    patch_elements: int

    @property
    def weights(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def compute(self) -> int:
        """Bytes of its compute buffer for the largest image: a plain encoder with flash attention."""
        graph = _encoder(self)
        return max(plan(graph, (Backend("device"), Backend("host", 32))))


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
    """Options of the context that drafts: the same cells and slots, 16-bit caches, logits of one token per slot."""
    return replace(
        options,
        type_k="f16",
        type_v="f16",
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
    """A model's prediction blocks as a model: blocks like the last with attention, the trunk's head.

    Args:
        local: The trunk.
        tensors: Tensors of the prediction blocks.
    """
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


def _encoder(projector: Projector) -> Graph:
    """One layer of a vision encoder, and the projection of patches before it."""
    graph, tokens, hidden = Graph(), projector.patches, projector.hidden
    image = graph_input(projector.patch_elements, tokens)
    stream = mul_mat(weight(projector.patch_elements, hidden, home=0), image)
    stream = add(stream, weight(hidden, tokens, home=0))
    for _ in range(2):
        stream = add(stream, _attend(projector, like("norm", stream)))
        cur = mul_mat(weight(hidden, projector.inner, home=0), like("norm", stream))
        stream = add(stream, mul_mat(weight(projector.inner, hidden, home=0), like("unary", cur)))
    stream.is_output = True
    graph.expand(stream)
    return graph


def _attend(projector: Projector, cur: Tensor) -> Tensor:
    tokens, hidden, heads = projector.patches, projector.hidden, max(projector.heads, 1)
    width = hidden // heads
    parts = []
    for index in range(3):
        part = reshape(mul_mat(weight(hidden, hidden, home=0), cur), width, heads, tokens)
        if index < 2:
            part = like("rope", part)
        parts.append(permute(part, 0, 2, 1, 3))
    mixed = Tensor("flash_attn", (width, heads, tokens), F32, tuple(parts))
    return mul_mat(weight(hidden, hidden, home=0), reshape(mixed, hidden, tokens))
