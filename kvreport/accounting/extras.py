"""What else lives in the memory: a draft model, LoRA adapters, KV blocks kept on the host.

Images and other encoder inputs are part of an engine's reserve; a record of them is here so that answers
can list them beside the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.accounting.parallel import Layout
from kvreport.accounting.weights import is_down, is_tied, output_side
from kvreport.catalog.caches import FullAttention
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Component, LayerGroup, Model, WeightGroup
from kvreport.catalog.release import trait
from kvreport.catalog.remembered import remembered
from kvreport.catalog.variant import is_matrix
from kvreport.errors import InputError

ADAPTED: Final[frozenset[Component]] = frozenset(
    {"attention", "dense_mlp", "shared_experts", "routed_experts", "recurrent"}
)
"""Components whose linear layers adapters can change (vLLM 0.33, ``lora/utils.py``)."""

_BORROWED: Final[frozenset[Component]] = frozenset({"embedding", "output_head"})
"""A one-layer draft head reads the target's embedding and output head (vLLM 0.33, ``spec_decode/eagle.py``)."""


METHODS: Final = {"EAGLE": "eagle", "EAGLE-3": "eagle3", "DFlash": "dflash", "DSpark": "dspark"}
"""How draft heads draft, by their family (``vllm/config/speculative.py``, vLLM 0.33)."""

_OF_BLOCKS: Final = ("DFlash", "DSpark", "Domino")
"""Families whose drafts are a block of tokens: they have neither embedding nor output head unless of their own
(SGLang 0.5.13 to 0.5.23 ``models/dflash.py``)."""

EAGLE3_WORDS: Final = 32_000
"""Words of an EAGLE-3 head's output (``draft_vocab_size`` in sgl-project/SpecForge, ``configs/`` for Llama 3 70B, Mistral Small,
Phi-4 mini, Qwen2.5 7B, Qwen3 4B and 32B, and QwQ). Heads for Gemma 3 have all words of the target."""

_DRAFT: Final = "draft."
"""Begins the names of a draft's weights beside those of its target."""

_PREDICTION: Final = "prediction layer"
_LAYER: Final = "draft "
BLOCK_LAYER: Final = "draft block "
"""Begin the names of a draft's layers behind those of its target; the latter where blocks of tokens are drafted."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft model beside a target."""

    model: Model  # The draft model, or the target's own prediction layers as one.
    whole: Model  # The target with the draft's layers after its own: what shares the pool.
    borrows: bool  # True if the draft reads the target's embedding and output head.


def is_head(draft: Draft) -> bool:
    """True for a draft that reads the target's hidden states, False for a language model of its own."""
    return draft.borrows or draft.model.family in METHODS


def with_draft(target: Model, draft: Model) -> Draft:
    """Put a draft model's layers and weights after the target's, as one model.

    A draft of few layers with the target's width and vocabulary is a head (EAGLE, MTP): it borrows embedding
    and output head, but for an output head of fewer words, which no target has (EAGLE-3). Any other is a model of its
    own (``--speculative-model`` of a smaller sibling).

    Raises:
        InputError: If the draft was trained on another vocabulary.
    """
    borrows = draft.hidden_size == target.hidden_size and draft.layer_count <= 2
    if not borrows and abs(draft.vocabulary - target.vocabulary) > max(target.vocabulary // 100, 256):
        raise InputError(
            f"draft: found {draft.id} with {draft.vocabulary:,} tokens in its vocabulary; allowed: a draft with "
            f"the {target.vocabulary:,} tokens of {target.id}"
        )
    first, named = target.layer_count, BLOCK_LAYER if draft.family in _OF_BLOCKS else _LAYER
    moved = tuple(
        LayerGroup(name=f"{named}{group.name}", layers=_shifted(group.indices, first), caches=group.caches)
        for group in draft.layers
    )
    rows = tuple(_rows(draft, borrows=borrows))
    values = {name: getattr(target, name) for name in type(target).model_fields}
    values |= {"layers": (*target.layers, *moved), "weights": (*target.weights, *rows)}
    return Draft(draft, type(target).model_construct(**values), borrows)


def own_prediction_layer(target: Model) -> Model:
    """A model's own layer for multi-token prediction, as a draft.

    Its cache is that of the target's last layer with attention, and with index keys if it has an indexer. One that the
    checkpoint numbers as a first layer is of the kind of the target's first (vLLM 0.33, exaone4.py: ``layer_types[0]``).
    One attention keeps one cache, where layers of the target have two (vLLM 0.33, ``longcat_flash_mtp.py``).

    Raises:
        InputError: If the checkpoint has no such layer.
    """
    rows = tuple(row for row in target.weights if row.component == "mtp")
    if not rows:
        raise InputError(
            f"draft: {target.id} has no MTP layers; allowed: the name or config.json of a draft model"
        )
    keeping = [group for group in target.layers if any(cache.kind != "state" for cache in group.caches)]
    if any(".indexer." in row.name for row in rows):
        keeping = [
            group for group in keeping if any(cache.kind == "indexer" for cache in group.caches)
        ] or keeping
    numbered_first = any(row.name.startswith("mtp.layers.0.") for row in rows)
    last = (keeping or list(target.layers))[0 if numbered_first else -1]
    twice = any(".self_attn.*." in row.name for row in target.weights if row.component != "mtp")
    caches = last.caches[: len(last.caches) // 2] if twice else last.caches
    values = {name: getattr(target, name) for name in type(target).model_fields}
    values |= {
        "layers": (LayerGroup(name=_PREDICTION, layers="0", caches=caches),),
        "weights": rows,
        "not_loaded": (),
    }
    return type(target).model_construct(**values)


def eagle3_bytes(target: Model, tensor: int = 1) -> int | None:
    """Return the bytes per GPU of an EAGLE-3 head with the target's sizes; None for targets whose heads differ from them.

    Those have experts, latents, states or sliding windows. One layer of the target's kind that reads twice its width, the matrix that joins three hidden states, and an output
    head of fewer words (``models/llama_eagle3.py``, vLLM 0.33). The joining matrix is on every GPU.
    """
    every = [cache for group in target.layers for cache in group.caches]
    caches = [cache for cache in every if isinstance(cache, FullAttention)]
    if target.experts or target.intermediate_size is None or not caches or len(caches) < len(every):
        return None
    kept = max(caches, key=lambda cache: cache.kv_heads * cache.key_dim)
    width, query = target.hidden_size, target.attention_heads * kept.key_dim
    kv = 2 * kept.kv_heads * kept.key_dim
    layer = 2 * width * (query + kv) + query * width + 3 * width * target.intermediate_size
    divided = layer + EAGLE3_WORDS * width
    return SERVED_BYTES * (-(-divided // tensor) + 3 * width * width)


def _rows(draft: Model, *, borrows: bool) -> Iterator[WeightGroup]:
    own = frozenset(draft.not_loaded) - {"mtp"}
    for row in draft.weights:
        fewer = row.component == "output_head" and row.shape[0] < draft.vocabulary
        if row.component in own or (borrows and row.component in _BORROWED and not fewer):
            continue
        # The target leaves its own prediction layers out; a draft's are what is served.
        part: Component = "other" if row.component == "mtp" else row.component
        yield row.model_copy(update={"name": f"{_DRAFT}{row.name}", "component": part})


def _shifted(indices: tuple[int, ...], first: int) -> str:
    return ",".join(str(index + first) for index in indices)


def drafts(model: Model) -> bool:
    """Whether a model has a draft's weights beside its own (:func:`with_draft`)."""
    return bool(draft_rows(model))


def borrowed_copies(model: Model, tensor_parallel: int) -> int:
    """Bytes of an embedding and an output head that a draft builds for itself before it takes the target's.

    0 where there is no draft, one with an embedding of its own, or one of blocks, which builds neither. A head of
    its own is none that it gives up.
    """
    draft = [row.component for row in model.weights if row.name.startswith(_DRAFT)]
    if not draft or "embedding" in draft or drafts_blocks(model):
        return 0
    tables = 1 if "output_head" in draft else 2
    rows = [row for row in model.weights if row.component == "embedding" and len(row.shape) == 2]
    rows = [row for row in rows if row.split == "vocabulary" and not row.name.startswith(_DRAFT)]
    return sum(tables * row.shape[0] * row.shape[1] * SERVED_BYTES // tensor_parallel for row in rows[:1])


def drafts_blocks(model: Model) -> bool:
    """Whether a model has a draft's layers behind its own that draft a block of tokens at once."""
    return any(group.name.startswith(BLOCK_LAYER) for group in model.layers)


def drafts_itself(model: Model) -> bool:
    """Whether a model has prediction layers of its own checkpoint behind its layers (:func:`with_draft`)."""
    return any(group.name == f"{_LAYER}{_PREDICTION}" for group in model.layers)


def draft_alone(model: Model) -> Model:
    """The layers of a draft that :func:`with_draft` put behind its target's, as a model of their own."""
    values = {name: getattr(model, name) for name in type(model).model_fields}
    values["layers"] = tuple(group for group in model.layers if group.name.startswith(_LAYER))
    return type(model).model_construct(**values)


@remembered
def draft_rows(model: Model) -> tuple[WeightGroup, ...]:
    """The weights of a draft that :func:`with_draft` put beside its target's; empty without one."""
    return tuple(row for row in model.weights if row.name.startswith(_DRAFT))


def vocabulary_slots(model: Model, max_loras: int, max_rank: int, places: int) -> int:
    """Bytes of adapter slots of embedding and output head, which every rank has whole; arguments as of :func:`lora_bytes`.

    Each has a factor of a row for every word of the vocabulary and one of the model's width (0.11.2
    ``lora/layers/vocal_parallel_embedding.py``, 0.33.0 ``lora/layers/vocab_parallel_embedding.py`` and
    ``logits_processor.py``). ``places`` says of how many modules slots are made.
    """
    return places * max_loras * max_rank * (model.vocabulary + model.hidden_size) * SERVED_BYTES


def vocabulary_modules(engine: Engine, model: Model) -> int:
    """Of how many modules with a row for every word adapters have slots.

    Embedding and output head of classes that name them (``lora/utils.py::get_supported_lora_modules``).

    One more where the head is the very object of the embedding: it is found under both names, and slots are made for
    each and for the head's logits (0.19.1 to 0.27.1 ``lora/model_manager.py::_create_lora_modules``; ``models/qwen3.py``,
    whose head is a module of its own since 0.28.0).
    """
    if not engine.lists("vocabulary_adapted", model.architecture):
        return 0
    return 3 if is_tied(model) and engine.lists("head_is_embedding", model.architecture) else 2


def adapted_if_named(engine: Engine) -> frozenset[str]:
    """Components of the weights that have slots for adapters only where an adapter, or a flag, names them."""
    return frozenset(trait(engine, "adapted_if_named") or ())


def lora_bytes(
    model: Model, layout: Layout, max_loras: int, max_rank: int, without: frozenset[str] = frozenset()
) -> int:
    """Bytes of adapter slots on one device.

    Each slot holds two factors per linear layer, ``rank x input`` and ``output x rank``, 16 bits each. Of a
    layer divided by columns the second is divided, of one divided by rows the first
    (vLLM 0.33, ``lora/layers/column_parallel_linear.py``, ``row_parallel_linear.py``); experts have factors of
    their own each, divided as their matrices are (``lora/layers/fused_moe.py::_create_lora_b_weights``).

    ``max_loras``: slots (``--max-loras``). ``max_rank``: rank of each slot (``--max-lora-rank``).
    ``without``: components that have no slots unless an adapter names them.
    """
    if not max_loras:
        return 0
    total = 0
    for row in model.weights:
        if (
            row.component not in ADAPTED - without
            or row.component in model.not_loaded
            or not is_matrix(row.shape)
        ):
            continue
        out, inner = output_side(row.shape), row.shape[-1]
        ranks = layout.expert_ranks if row.component == "routed_experts" else layout.tensor
        matrices = row.count
        if len(row.shape) > 2:
            for side in row.shape[:-2]:
                matrices *= side
        match row.split:
            case "experts" if layout.expert:
                matrices = -(-matrices // ranks)
            case split if split == "rows" or (split == "experts" and is_down(row)):
                inner = -(-inner // ranks)
            case "replicated":
                pass
            case _:
                out = -(-out // ranks)
        total += matrices * max_rank * (inner + out)
    return max_loras * total * SERVED_BYTES
