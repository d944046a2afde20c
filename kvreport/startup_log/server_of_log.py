"""The server that wrote a log, as the log tells it: its release, its kernels, how it spreads the model, what drafts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvreport.accounting import parallel
from kvreport.accounting.engines.by_family import rules
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import engine_for_version, plain_release
from kvreport.errors import InputError
from kvreport.query import options
from kvreport.startup_log.reading import Reading
from kvreport.startup_log.release import release_of_day, release_of_places

_METHODS_BESIDE: Final = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH", "DSPARK")
"""Algorithms that a draft model is named for (``srt/speculative/spec_info.py``, 0.5.23)."""
_OWN_METHODS: Final = ("EAGLE", "NEXTN")
DEFAULT_STEPS: Final = 3
RUNNERS: Final = {"gpu_model_runner": "first", "model_runner": "second", "0": "first", "1": "second"}
"""The files that load a model (``v1/worker/gpu_model_runner.py`` and ``v1/worker/gpu/model_runner.py``), which lines begin with, and
the values of ``VLLM_USE_V2_MODEL_RUNNER``."""
_EXPERT_KERNELS: Final = {
    "vllm_experts_triton": "triton",
    "vllm_experts_marlin": "marlin",
    "vllm_experts_mega": "mega_moe",
}


def adapters_of(reading: Reading) -> tuple[int, int]:
    """LoRA adapters that vLLM holds at once and their largest rank; one of rank 16 where the log states neither."""
    if not reading.facts.get("lora") or reading.engine not in (None, "vllm"):
        return 0, 0
    return reading.whole("lora_slots") or 1, reading.whole("lora_rank") or 16


def of_class(layout: parallel.Layout, model: Model, engine: Engine) -> parallel.Layout:
    """The layout without the options that the model's class does not ask for: the engine divides over all ranks."""
    refuses = rules(engine).refuses
    if refuses(model, replace(layout, head_by_data_rank=False)) is not None:
        layout = replace(layout, whole_dense=False)
    if refuses(model, replace(layout, whole_dense=False)) is not None:
        layout = replace(layout, head_by_data_rank=False)
    return layout


def replica_of(devices: Sequence[Accelerator], layout: parallel.Layout) -> tuple[Accelerator, ...]:
    """The devices of one data rank, place by place, where they differ; empty where they do not.

    Args:
        devices: One accelerator, or one for each rank.
        layout: How the log's flags spread the model.

    Raises:
        InputError: If several are listed, and not one for each rank.
    """
    ranks = layout.tensor * layout.pipeline
    if len(devices) > 1 and len(devices) not in (ranks, layout.devices):
        raise InputError(
            f"gpu: found {len(devices)} devices for a log of {ranks} ranks; allowed: one accelerator, or one for each rank"
        )
    return tuple(devices[:ranks]) if len({one.id for one in devices}) > 1 else ()


def layout_of(reading: Reading, tensor_parallel: int | None = None) -> parallel.Layout:
    """How a log's flags spread the model.

    SGLang's data-parallel attention divides the tensor-parallel devices among the data ranks; without it data ranks
    are copies of the whole, of which one is looked at.
    """
    ranks, data = (
        tensor_parallel or reading.whole("tensor_parallel") or 1,
        reading.whole("data_parallel") or 1,
    )
    stages = reading.whole("pipeline_parallel") or 1
    experts = bool(reading.facts.get("expert_parallel"))
    if reading.engine == "sglang":
        experts = (reading.whole("expert_size") or 1) > 1 or exchange_of(reading) is not None
        data = data if reading.facts.get("data_attention") else 1
        ranks = max(ranks // data, 1)
    partition = reading.text("pipeline_partition")
    return parallel.Layout(
        tensor=ranks,
        pipeline=stages,
        data=data,
        expert=experts,
        decode_context=reading.whole("context_parallel") or 1,
        nodes=reading.whole("nodes") or 1,
        partition=tuple(map(int, partition.split(","))) if partition and stages > 1 else (),
        redundant_experts=(reading.whole("redundant_experts") or 0) if experts else 0,
        all_to_all=exchange_of(reading) or "",
        whole_encoders=bool(reading.facts.get("whole_encoders")),
        whole_dense=reading.whole("dense_ranks") == 1 < ranks * data,
        head_by_data_rank=data > 1 and bool(reading.facts.get("head_by_data_rank")),
    )


def dense_ranks_followed(reading: Reading) -> bool:
    """True if dense layers are divided over all ranks or none, as SGLang lets them be."""
    layout, asked = layout_of(reading), reading.whole("dense_ranks")
    return asked in {None, 1, layout.tensor * layout.data}


def exchange_of(reading: Reading) -> str | None:
    """The kernels that exchange tokens, by vLLM's names, where their buffers are known; None where they are not."""
    named = reading.text("all_to_all")
    if reading.engine == "sglang":
        mode = "high_throughput" if reading.text("deepep_mode") == "normal" else "low_latency"
        return f"deepep_{mode}" if named == "deepep" else None
    known = next(option.choices for option in options() if option.name == "all2all_backend")
    return named if named in known else None


def own_drafts(reading: Reading, model: Model) -> int:
    """Tokens that SGLang drafts with the prediction layers of the checkpoint; 0 where another model drafts, or none.

    Three where the log does not say (``speculative_hook.py::_auto_choose_speculative_params``, 0.5.23).
    """
    method = (reading.text("draft_method") or "").upper()
    named, served = reading.text("draft_from"), reading.text("model")
    if reading.engine != "sglang" or method not in _OWN_METHODS or named not in (None, "None", served):
        return 0
    if (reading.whole("draft_branches") or 1) > 1 or not any(row.component == "mtp" for row in model.weights):
        return 0
    return reading.whole("draft_steps") or DEFAULT_STEPS


def drafted_tokens(reading: Reading, model: Model, draft: Model | None) -> int:
    """Tokens that SGLang drafts, with layers of the checkpoint's own or with a draft model; 0 where that is not known.

    A block of DFlash has the target's own token among those verified, one of DSpark has not
    (``speculative_hook.py::_handle_dflash``, ``_handle_dspark``, 0.5.23). Trees are not counted.
    """
    own = own_drafts(reading, model)
    method = (reading.text("draft_method") or "").upper()
    if own or draft is None or reading.engine != "sglang" or method not in _METHODS_BESIDE:
        return own
    block, verified = reading.whole("draft_block"), reading.whole("draft_verified")
    if method == "DSPARK":
        return block or max((verified or 0) - 1, 0)
    if method == "DFLASH":
        return max((block or verified or 0) - 1, 0)
    if (reading.whole("draft_branches") or 1) > 1:
        return 0
    return reading.whole("draft_steps") or max((verified or DEFAULT_STEPS + 1) - 1, 1)


def with_kernel(reading: Reading, engine: Engine) -> Engine:
    """The record with the kernel of MXFP4 experts, and the model runner, that the log names."""
    named = [line.pattern for line in reading.recognised if line.pattern in _EXPERT_KERNELS]
    told = {"expert_kernel": _EXPERT_KERNELS[named[-1]]} if named else {}
    runner = reading.text("model_runner") if reading.engine == "vllm" else None
    if runner:
        told["model_runner"] = RUNNERS[runner]
    return engine.model_copy(update=told) if told else engine


def engine_of(reading: Reading, known: Catalog) -> Engine:
    """The rules of the version that wrote the log; the newest where it does not say."""
    version = version_of(reading) or ""
    if reading.engine == "tensorrt_llm":
        return known.engine("tensorrt-llm")
    if reading.engine == "sglang":
        named = engine_for_version(known.engines.values(), "sglang", version or None)
        return named or known.engine("sglang")
    stated = re.match(r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)", version)
    if stated is not None:
        try:
            return rules(known.engine(f"vllm@{stated[1]}")).at_release(version)
        except InputError:
            pass
    return known.engine("vllm")


def version_of(reading: Reading) -> str | None:
    """The version that wrote a log: as it says, else as the places of its lines tell; None if neither does."""
    stated = reading.text("engine_version")
    if stated is not None and plain_release(stated):
        return stated
    if reading.engine == "sglang":
        day = day_of(reading)
        return None if day is None else release_of_day(day, "sglang")
    return release_of_places(reading.places)


def day_of(reading: Reading) -> str | None:
    """The day that SGLang's lines begin with, such as ``[2026-08-27 03:45:41 TP0]``; None where none does."""
    found = (re.match(r"\[(20[0-9]{2}-[01][0-9]-[0-3][0-9]) ", line.text) for line in reading.recognised)
    return next((one[1] for one in found if one is not None), None)
