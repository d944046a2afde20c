"""A pasted log as an observation that can be sent: release, settings, figures, lines, and what is predicted now.

The record is one of ``data/observations``, so that ``kvreport validate`` judges it. A prediction is made when the log
is read and stays with the record: whoever adds the log later sees how well it was met before any rule was changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from kvreport.catalog.load import Catalog
from kvreport.catalog.observation import Observation
from kvreport.catalog.shelf import validate
from kvreport.errors import InputError
from kvreport.startup_log.diagnose import accelerators_of, device_named, names_of
from kvreport.startup_log.laid_out import stored_as, told_all
from kvreport.startup_log.reading import Reading, longest_of, plain_text, read_log, refused, tokens_of
from kvreport.startup_log.server_of_log import (
    RUNNERS,
    adapters_of,
    day_of,
    drafted_tokens,
    exchange_of,
    layout_of,
    version_of,
)
from kvreport.startup_log.unread_flags import last_command
from kvreport.units import GIB

ENGINES: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt-llm",
}
"""The catalog's name of each engine whose logs become observations."""

_PRINTED: Final[Mapping[str, str]] = {
    "kv_pool": "available_kv_gib",
    "consumed": "consumed_gib",
    "weights": "model_load_gib",
    "total_memory": "total_gpu_gib",
    "free_memory": "free_gpu_gib",
    "before_load": "free_gpu_gib",
    "non_framework": "non_torch_gib",
    "activations": "peak_activation_gib",
    "graphs": "cudagraph_gib",
    "graphs_estimate": "cudagraph_est_gib",
    "needed": "kv_needed_gib",
    "key_bytes": "k_gib",
    "value_bytes": "v_gib",
    "after_load": "free_after_load_gib",
    "after_pool": "free_after_pool_gib",
}
"""Facts in bytes, and the field of a record that has them in GiB."""

_FLAGS: Final[Mapping[str, str]] = {
    "no_prefix_caching": "no_enable_prefix_caching",
    "caches_prefixes": "enable_prefix_caching=true",
    "state_dtype": "mamba_ssm_cache_dtype={}",
    "window_share": "swa_full_tokens_ratio={}",
    "states_set": "max_mamba_cache_size={}",
    "images_through": "mm_feature_transport={}",
    "no_encoding": "skip_mm_profiling",
    "text_only": "language_model_only",
    "no_audio": "limit_mm_per_prompt audio': 0",
    "no_videos": "limit_mm_per_prompt video 0",
}
"""Facts that a record keeps among its flags, as they are read there."""

_NOT_KEPT: Final[Mapping[str, str]] = {
    "nodes": "several servers",
    "redundant_experts": "redundant experts",
    "all_to_all": "kernels that exchange tokens",
    "whole_encoders": "encoders whole on each rank",
    "dense_ranks": "ranks of dense layers",
    "head_by_data_rank": "an output head for each data-parallel rank",
    "offloaded": "weights in the host's memory",
    "most_tokens": "a pool with a cap",
}
"""Facts that a record has no field for."""

_SECRET: Final = re.compile(
    r"(?i)(api[-_]?key|token|secret|password|passwd|credential)(['\"]?\s*[=:]\s*|\s+)"
    r"(?:\[[^\]]{0,400}\]|['\"][^'\"]{0,400}['\"]|[^\s'\",)]{4,400})"
    r"|\b(?:hf|sk|nvapi|ghp)[-_][A-Za-z0-9_-]{12,}"
)
_LINES: Final = 80
_LINE: Final = 400


def without_secrets(line: str) -> str:
    """Return a line without keys and tokens that grant access.

    >>> without_secrets("vllm serve m --api-key sk-abcdefghijklmnop --port 80")
    'vllm serve m --api-key … --port 80'
    >>> without_secrets("GPU KV cache size: 29,120 tokens")
    'GPU KV cache size: 29,120 tokens'
    """
    return _SECRET.sub(lambda found: f"{found[1]}{found[2]}…" if found[1] else "…", line)


def observe(
    text: str,
    *,
    gpu: str | Sequence[str] | None,
    known: Catalog,
    model: str | None = None,
    name: str | None = None,
) -> Observation:
    """Return a start-up log as an observation, without a prediction.

    Args:
        text: The log.
        gpu: The accelerator that it ran on, one for each rank where they differ; None where the log names it.
        known: Where names are looked up.
        model: The model, if the log does not name it as the catalog does.
        name: Its id; None for one made of what the log says.

    Raises:
        InputError: If it is no log of a server, the device is not known, or a name is.
    """
    reading = read_log(text)
    engine = ENGINES.get(reading.engine or "")
    if engine is None:
        raise InputError(
            f"log: found {'no line of a known engine' if reading.engine is None else reading.engine}; allowed: a start-up "
            "log of vLLM, SGLang or TensorRT-LLM"
        )
    devices = accelerators_of(gpu, known) or device_named(reading, known, [])
    if not devices:
        raise InputError("gpu: found nothing, and the log names none; allowed: --gpu with the accelerator")
    told = _record(text, reading, engine, devices, known, model)
    digest = sha256(repr(sorted(told.items())).encode()).hexdigest()[:10]
    return validate(Observation, {"id": name or f"log-{digest}", **told}, "log")


def _record(
    text: str,
    reading: Reading,
    engine: str,
    devices: Sequence[Any],
    known: Catalog,
    model: str | None,
) -> dict[str, Any]:
    layout = layout_of(reading)
    found = _model_id(reading, model, known)
    served = known.models.get(found) if found else None
    drafted = drafted_tokens(reading, served, None) if served is not None else 0
    slots, rank = adapters_of(reading)
    ids = [one.id for one in devices]
    complete = _complete(text, reading)
    stated = reading.text("kv_dtype")
    data = layout.data if layout.data > 1 else None
    lines = [without_secrets(one.text)[:_LINE] for one in reading.recognised]
    told = {
        "engine": engine,
        "engine_version": version_of(reading),
        "model": reading.text("model") or model or "not named",
        "model_id": found,
        "quantization": reading.text("quantization"),
        "weight_format": "released" if served is not None and not served.by_name else None,
        "kv_format": "auto" if stated is None and complete else stored_as(stated),
        "gpu_named": ", ".join(dict.fromkeys(one.name for one in devices)),
        "gpu": ids[0] if len(set(ids)) == 1 else None,
        "gpus": ids if len(set(ids)) > 1 else None,
        "gpu_certainty": "named",
        "devices": layout.devices,
        "tensor_parallel": layout.tensor * (layout.data if engine == "sglang" else 1),
        "pipeline_parallel": layout.pipeline if layout.pipeline > 1 else None,
        "pipeline_partition": list(layout.partition) or None,
        "data_parallel": data,
        "context_parallel": layout.decode_context if layout.decode_context > 1 else None,
        "expert_parallel": layout.expert or None,
        "utilization": reading.number("utilization"),
        "utilization_from": "stated" if reading.number("utilization") is not None else None,
        "static_share": reading.number("mem_fraction"),
        "context_tokens": longest_of(reading),
        "max_batched_tokens": reading.whole("max_batched_tokens") or reading.whole("chunked_prefill"),
        "max_seqs": reading.whole("max_seqs") if engine == "vllm" else None,
        **{fact: True for fact in ("sorts", "compiled", "wsl", "eager") if reading.facts.get(fact)},
        "model_runner": RUNNERS.get(reading.text("model_runner") or ""),
        "block_tokens": reading.whole("block_tokens"),
        "speculative": _drafts(reading, drafted),
        "lora": f"lora, max_loras={slots}, max_lora_rank={rank}" if slots else None,
        "flags": "; ".join(
            words.format(reading.facts[fact]) for fact, words in _FLAGS.items() if reading.facts.get(fact)
        )
        or None,
        "needs": [words for fact, words in _NOT_KEPT.items() if reading.facts.get(fact)] or None,
        "printed": _printed(reading),
        "completeness": "full" if complete else "partial",
        "origin": {
            "kind": "start-up log",
            "date": day_of(reading),
            "lines": list(dict.fromkeys(line for line in lines if line))[:_LINES],
        },
    }
    return {field: value for field, value in told.items() if value is not None}


def _model_id(reading: Reading, given: str | None, known: Catalog) -> str | None:
    stated = reading.text("model")
    for name in (given,) if given else names_of(stated) if stated else ():
        try:
            return known.model(name).id
        except InputError:
            if given:
                raise
    return None


def _complete(text: str, reading: Reading) -> bool:
    """True if the log has the settings as a whole, and all that bear on memory have a field."""
    whole = told_all(reading) or last_command(text) is not None or "non-default args" in plain_text(text)
    unkept = any(reading.facts.get(fact) for fact in _NOT_KEPT) and exchange_of(reading) is None
    return whole and not unkept and version_of(reading) is not None and not reading.doubtful


def _drafts(reading: Reading, tokens: int) -> str | None:
    if not reading.facts.get("speculative") and not reading.facts.get("draft_method") and not tokens:
        return None
    said = [reading.text("draft_method") or "speculative decoding"]
    said += ["mtp"] if tokens else []
    steps = tokens or reading.whole("draft_steps")
    return " ".join([*said, *([f"num_speculative_tokens={steps}"] if steps else [])])


def _printed(reading: Reading) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for fact, field in _PRINTED.items():
        value = reading.number(fact)
        if value is not None:
            found[field] = round(value / GIB, 4)
    if reading.engine == "sglang" and "available_kv_gib" in found:
        found["kv_gib"] = found.pop("available_kv_gib")
    states = [reading.number(name) for name in ("conv_bytes", "ssm_bytes")]
    if any(states):
        found["state_gib"] = round(sum(one or 0 for one in states) / GIB, 4)
    wholes = {
        "kv_tokens": tokens_of(reading),
        "gpu_blocks": reading.whole("gpu_blocks"),
        "longest_context": reading.whole("storable"),
        "max_concurrency": reading.number("concurrency"),
        "max_requests": reading.whole("max_running"),
    }
    found |= {name: value for name, value in wholes.items() if value is not None}
    if refused(reading) or any(name in reading.facts for name in ("needed", "storable", "state_blocks")):
        found["fits"] = False
    return found
