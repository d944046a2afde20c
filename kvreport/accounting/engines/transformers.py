"""transformers' ``generate``: one tensor per layer, grown as it goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.kv_cache import cache_terms, state_tensor_bytes
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.catalog.caches import Indexer, RecurrentState, StateTensor
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model

if TYPE_CHECKING:
    from kvreport.accounting.case import Case


@dataclass(frozen=True, slots=True)
class Transformers(EngineRules):
    """The rules of one transformers release."""

    def plan(self, case: Case) -> BlockPlan:
        """What ``generate`` holds, without blocks."""
        return tensor_plan(case.model, case.kv_format, case.layout.tensor)


def tensor_plan(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> BlockPlan:
    """What ``generate`` holds, tensor by tensor, as transformers 5.23 keeps it.

    A window keeps one token less than it looks back, because the token that asks brings its own;
    index keys stay in the model's type; a convolution's state keeps one column more than the
    products need, and a recurrent state is float32 whatever the model's type. Four classes differ:
    MiniMax's lightning state and xLSTM's have the model's type (``modeling_minimax.py``,
    ``modeling_xlstm.py``), and so have a convolution and the delayed value beside it, which keep no column
    more (``modeling_zaya.py``); RWKV's shifted tokens are no convolution (``modeling_rwkv.py``). Found equal to
    the byte on real tensors (``experiments/check.py``).
    """
    return BlockPlan(block_bytes=1, profile=CacheProfile.of(_tensors(model, kv_format, tensor_parallel)))


def _tensors(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> Iterator[Term]:
    for group in model.layers:
        for cache in group.caches:
            if isinstance(cache, Indexer):
                plain = cache.model_copy(update={"scaled": False})
                yield from (term.scaled(group.count) for term in cache_terms(plain))
            elif isinstance(cache, RecurrentState):
                size = sum(_state_tensor(cache, tensor, tensor_parallel) for tensor in cache.tensors)
                yield Term("state", constant_bytes=size).scaled(group.count)
            else:
                for term in cache_terms(cache, kv_format, tensor_parallel=tensor_parallel):
                    yield term.without_asking_token.scaled(group.count)


def _state_tensor(state: RecurrentState, tensor: StateTensor, tensor_parallel: int) -> int:
    delayed = state.mechanism == "short_conv" and any(other.name == "recurrent" for other in state.tensors)
    shifted = state.mechanism == "rwkv" and tensor.name == "conv"
    if delayed or shifted or (state.mechanism == "lightning" and tensor.name == "recurrent"):
        return state_tensor_bytes(tensor, tensor_parallel)
    if state.mechanism == "mlstm":
        return state_tensor_bytes(tensor.model_copy(update={"precision": "model"}), tensor_parallel)
    if tensor.name == "conv":
        return state_tensor_bytes(tensor.model_copy(update={"columns": tensor.columns + 1}), tensor_parallel)
    precision = "float32" if tensor.precision == "model" else tensor.precision
    return state_tensor_bytes(tensor.model_copy(update={"precision": precision}), tensor_parallel)
