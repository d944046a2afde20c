"""Ollama behind the engine protocol: it starts llama-server with defaults of its own.

``llm/llama_server.go`` (``startLlamaServer``, ``PredictServerVRAM``), ``server/routes.go`` and ``server/sched.go``
of Ollama fb30760 (2026-08-21), which runs llama-server b10488: ``-c num_ctx*parallel -np parallel`` always explicit,
so slots never share a row of cells; ``num_ctx`` from the memory of all devices where nobody states it; a micro-batch
by context and headroom; ``--fit`` decides what stays on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kvreport.accounting.engines.command import Command, Served
from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp
from kvreport.catalog.caches import FullAttention, SlidingWindow
from kvreport.catalog.engine import Engine
from kvreport.catalog.local_architectures import OllamaModel, OllamaNames
from kvreport.catalog.model import Model

CONTEXT_TIERS: Final = ((47 << 30, 262144), (23 << 30, 32768), (0, 4096))
"""Least memory of all devices, and the context that Ollama then takes by itself (``server/routes.go``)."""

_SMALL_CARD: Final = 8 << 30
_LARGE, _MEDIUM, _USUAL, _CONSTRAINED = 2048, 1024, 512, 256
_SURCHARGE: Final = {_LARGE: 2 << 30, _MEDIUM: 768 << 20}
_HEADROOM: Final = {_LARGE: 60, _MEDIUM: 75}
"""``automaticGenerationBatch`` in ``server/sched.go``: what a larger micro-batch adds, and the percentage of memory
that the prediction may take for it."""


def default_context(total_bytes: int, model: Model) -> int:
    """``num_ctx`` where nobody states it.

    ``total_bytes``: memory of all devices together.
    """
    usual = next(context for least, context in CONTEXT_TIERS if total_bytes >= least)
    return min(usual, model.context_tokens)


def predicted_bytes(model: Model, file_bytes: int, context: int) -> int:
    """What Ollama expects before it starts the server: the file and plain 16-bit caches of every layer.

    ``file_bytes``: size of its file. ``context``: cells of all slots.
    """
    heads = [c.kv_heads for c in model.every_cache if isinstance(c, FullAttention | SlidingWindow)]
    width = model.hidden_size // model.attention_heads if model.attention_heads else 0
    return file_bytes + 2 * model.layer_count * min(heads, default=1) * width * context * 2


def automatic_batch(
    context: int, predicted: int, available: int, *, flash_off: bool = False, card_bytes: int = 0
) -> int:
    """The micro-batch where nobody states it.

    ``context``: cells of all slots. ``predicted``: bytes expected (:func:`predicted_bytes`).
    ``available``: bytes free on all devices. ``flash_off``: True with flash attention off on CUDA.
    ``card_bytes``: memory of the smallest CUDA device.
    """
    if flash_off:
        return _CONSTRAINED if context > 4096 and 0 < card_bytes <= _SMALL_CARD else _USUAL
    batch = _LARGE if context > 32768 else (_MEDIUM if context > 4096 else _USUAL)
    while batch > _USUAL and not _has_headroom(batch, predicted, available):
        batch //= 2
    return batch


def _has_headroom(batch: int, predicted: int, available: int) -> bool:
    threshold = available * 80 // 100
    if predicted > threshold or predicted > available * _HEADROOM[batch] // 100:
        return False
    return _SURCHARGE[batch] <= threshold - predicted


def _environment(options: LocalOptions) -> tuple[str, ...]:
    """The variables of ``ollama serve`` that lay a model out as asked; layers only where they were stated."""
    words = [f"OLLAMA_CONTEXT_LENGTH={options.context // options.slots}"]
    words += [f"OLLAMA_NUM_PARALLEL={options.slots}"] if options.slots > 1 else []
    words += [f"OLLAMA_KV_CACHE_TYPE={options.type_k}"] if options.type_k != "f16" else []
    words += ["OLLAMA_FLASH_ATTENTION=0"] if options.flash == "off" else []
    return tuple(words)


def modelfile(name: str, context: int, options: LocalOptions | None = None) -> str:
    """An Ollama Modelfile with the same parameters: the only place for a micro-batch and a number of layers.

    ``name``: model in Ollama's library. ``context``: tokens of one slot.
    """
    lines = [f"FROM {name}", f"PARAMETER num_ctx {context}"]
    if options is not None and options.ubatch_given:
        lines.append(f"PARAMETER num_batch {options.ubatch}")
    if options is not None and options.gpu_layers is not None:
        lines.append(f"PARAMETER num_gpu {options.gpu_layers}")
    return "\n".join(lines)


def _library_name(model: Model) -> str | None:
    """The name of Ollama's library that carries a model, the first one listed; None if there is none."""
    return next((name for name, held in OllamaNames.need().names.items() if held.model == model.id), None)


@dataclass(frozen=True, slots=True)
class Ollama(LlamaCpp):
    """The rules of one Ollama release."""

    fits_by_itself: ClassVar[bool] = True

    def at_release(self, version: str) -> Engine:
        """One record for all releases that start llama-server."""
        return self.engine

    def local_options(
        self,
        options: LocalOptions,
        model: Model,
        total_bytes: int,
        tensors: Sequence[LocalTensor] = (),
        architecture: str = "",
    ) -> LocalOptions:
        """One slot unless asked for more, every slot with the whole ``num_ctx``, never unified.

        Architectures of the record's list ``one_slot`` get one slot whatever is asked for (``Scheduler.load`` in
        ``server/sched.go``).
        """
        slots = 1 if self.engine.lists("one_slot", architecture) else options.parallel or 1
        cells = options.context if options.is_unified else options.context // options.slots
        each = cells or default_context(total_bytes, model)
        found = replace(options, parallel=slots, unified=False, context=each * slots)
        if options.ubatch_given:
            return found
        file_bytes = sum(tensor.nbytes for tensor in tensors)
        predicted = predicted_bytes(model, file_bytes, found.context)
        batch = automatic_batch(
            found.context, predicted, total_bytes, flash_off=not options.uses_flash, card_bytes=total_bytes
        )
        return replace(found, ubatch=batch, batch=batch)

    def usual_mix(self, model: Model) -> str:
        """The mix behind the model's plain name in Ollama's library; Q4_K_M for models that it does not carry.

        A tag without a quantization is the one that ``ollama run`` pulls (``data/llama_cpp/ollama.yaml``).
        """
        name = _library_name(model)
        return OllamaModel(model=model.id).format if name is None else OllamaNames.need().names[name].format

    def reason_of_mix(self, model: Model) -> str:
        """The command that pulls that mix."""
        name = _library_name(model)
        return (
            "what Ollama takes where no tag says more" if name is None else f"what 'ollama run {name}' pulls"
        )

    @staticmethod
    def command(served: Served) -> Command | None:
        """``ollama run`` beside a server that was started with these variables; a Modelfile has the same parameters."""
        told = served.local
        if told is None:
            return None
        each = told.options.context // told.options.slots
        return Command(
            ("ollama", "run", told.name),
            _environment(told.options),
            server=("ollama", "serve"),
            modelfile=modelfile(told.name, each, told.options),
        )
