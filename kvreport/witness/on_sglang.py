"""SGLang's own arguments and pool configurators, on a device that is not there; run by ``run.py``, never imported here.

The device is pretended through ``runtime_context.override_platform`` where the release has it. Releases from 0.5.16
on are followed; what a release does not have is left to the one before it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import facts
import stand_in

_GIB = 1 << 30
_MIB = 1 << 20


class SglangPlanner:
    """One release of SGLang on one kind of device."""

    def __init__(self, device: dict[str, Any]) -> None:
        """Import the engine with stand-ins; raises what the import raises."""
        stand_in.stand_in("sglang")
        stand_in.pretend(device)
        transformers: Any = importlib.import_module("transformers")
        for name in ("AutoConfig", "AutoTokenizer", "AutoProcessor", "AutoImageProcessor"):
            kind = getattr(
                transformers, name
            )  # a class may be in transformers since, and the engine's own counts
            kind.register = functools.partial(kind.register, exist_ok=True)
        self.release = importlib.metadata.version("sglang")
        _pretend(device)
        folder = Path(next(iter(importlib.import_module("sglang.srt").__path__)), "models")
        sources = (file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
        self.classes = {name for source in sources for name in re.findall(r"(?m)^class (\w+)", source)}

    def answer(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Return what the engine says of one start.

        ``folder``: a folder with the model's ``config.json``. ``case``: ``words``, or ``flags`` by the
        fields of ``ServerArgs``, and ``pools`` in bytes of one GPU.
        """
        found: dict[str, Any] = {}
        for pool in case["pools"]:
            sized = run(folder, case, pool)
            at = {
                name: sized.pop(name) for name in ("tokens", "window_tokens", "state_slots", "max_requests")
            }
            found |= sized
            found.setdefault("at", []).append({"length": sized["context_tokens"], "pool": pool} | at)
        return found | {"own_class": found["architecture"] in self.classes}


def _pretend(device: dict[str, Any]) -> None:
    """Make SGLang believe in a device."""
    (major, minor), memory = device["capability"], device["memory_bytes"] // _MIB
    capability = (major, minor)
    from sglang.srt import runtime_context  # reads the device where it asks torch

    facts = {
        "is_cuda": True,
        "is_hip": False,
        "is_npu": False,
        "is_xpu": False,
        "is_musa": False,
        "is_mps": False,
        "is_sm90": major == 9,
        "is_sm100": major == 10,
        "is_sm100_or_sm110": major == 10,
        "is_sm110": False,
        "is_sm120": major == 12,
        "is_blackwell": major in (10, 12),
        "is_hopper_with_cuda_12_3": major == 9,
        "has_amx": False,
        "has_flashinfer": True,
        "device_sm": 10 * major + minor,
        "device_capability": capability,
    }
    if hasattr(runtime_context, "override_platform"):  # since 0.5.19; earlier releases ask torch
        try:
            runtime_context.override_platform(**facts).install()
        except ValueError as error:  # an older release knows fewer facts, and says which it does not
            for name in re.findall(r"'(\w+)'", str(error)):
                facts.pop(name, None)
            runtime_context.override_platform(**facts).install()
    import sglang.srt.server_args

    if importlib.util.find_spec("sglang.srt.mem_cache.kv_cache_configurator") is not None:
        import sglang.srt.mem_cache.kv_cache_configurator  # noqa: F401 - takes the name below, and is loaded first

    module: Any
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if name.startswith("sglang") and "get_device_memory_capacity" in vars(module):
            module.get_device_memory_capacity = lambda *_, **__: float(memory)


def run(folder: str, case: dict[str, Any], pool: int) -> dict[str, Any]:  # noqa: PLR0915 - one sequence
    """Resolve the flags for one model and size its pools."""
    from sglang.srt import runtime_context as context
    from sglang.srt.distributed.utils import get_pp_indices
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
    from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
        SpecAuxHiddenStateConfig,
        resolve_spec_aux_hidden_state_config,
    )
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    for name in ("SGLANG_MAMBA_SSM_DTYPE", "SGLANG_MAMBA_CONV_DTYPE"):
        os.environ.pop(name, None)  # set by an earlier run's --mamba-ssm-dtype
    context.reset_context()
    given = _given(ServerArgs, folder, case)
    resolved = _resolved(given)
    config, widths = resolved.config, resolved.widths
    algorithm = _declared_cache(config)
    named, dtype = configure_kv_cache_dtype(
        **_taken(
            configure_kv_cache_dtype,
            server_args_kv_cache_dtype=resolved.kv_cache_dtype,
            model=types.SimpleNamespace(quant_config=types.SimpleNamespace(kv_cache_quant_algo=algorithm)),
            model_dtype=config.dtype,
            is_draft_worker=False,
            is_dflash=False,
            speculative_draft_attention_backend=None,
        )
    )
    window = getattr(config, "sliding_window_size", None)
    if config.is_hybrid_swa and window is None:
        window = getattr(config.hf_text_config, "attention_chunk_size", None)
    stages = int(given.pp_size)
    algorithm_of_drafts = SpeculativeAlgorithm.from_string(resolved.speculative_algorithm)
    layers = max(config.num_hidden_layers, config.num_attention_layers)
    beside = SpecAuxHiddenStateConfig()
    if not algorithm_of_drafts.is_none():
        beside = resolve_spec_aux_hidden_state_config(
            **_taken(
                resolve_spec_aux_hidden_state_config,
                server_args=given,
                model_config=config,
                spec_algorithm=algorithm_of_drafts,
                is_draft_worker=False,
            )
        )

    def configurator(stage: int) -> Any:
        """The pools of one pipeline stage."""
        start, end = get_pp_indices(layers, stage, stages)
        fields = {
            "device": "cuda",
            "gpu_id": 0,
            "ps": types.SimpleNamespace(
                tp_size=widths["tp_size"],
                pp_size=stages,
                pp_rank=stage,
                attn_dp_size=widths["attn_dp_size"],
            ),
            "draft_model_idx": None,
            "attn_dp_size": widths["attn_dp_size"],
            "pp_size": stages,
            "pp_group": types.SimpleNamespace(rank_in_group=stage, world_size=stages),
            "model": None,
            "model_config": config,
            "server_args": given,
            "kv_cache_dtype": dtype,
            "model_dtype": config.dtype,
            "page_size": resolved.page_size,
            "sliding_window_size": window,
            "spec_algorithm": algorithm_of_drafts,
            "is_draft_worker": False,
            "post_capture_kv_active": False,
            "spec_aux_config": beside,
            "is_hybrid_swa": config.is_hybrid_swa,
            "is_hybrid_swa_compress": getattr(config, "is_hybrid_swa_compress", False),
            "use_mla_backend": resolved.latent,
            "layer_info": resolve_layer_indices(
                **_taken(
                    resolve_layer_indices,
                    model=types.SimpleNamespace(start_layer=start, end_layer=end),
                    model_config=config,
                    is_draft_worker=False,
                    spec_algorithm=algorithm_of_drafts,
                )
            ),
            "forward_stream": None,
            "req_to_token_pool": None,
            "token_to_kv_pool_allocator": None,
            "memory_pool_config": None,
            "kv_cache_dtype_str": named or resolved.kv_cache_dtype,
        }
        return KVCacheConfigurator(**_taken(KVCacheConfigurator, **fields))

    # Stages agree on the fewest tokens: each is sized alone first, then all again with the least of them.
    most = [count for count in (resolved.max_total_tokens,) if count is not None]

    def sized_by(stage: int) -> tuple[Any, Any]:
        pools, budget = configurator(stage), pool / _GIB
        if pools.mambaish_config is not None:
            budget = pools._handle_max_mamba_cache(budget)
        own = KVCacheConfigurator._apply_token_constraints
        if stages > 1:
            KVCacheConfigurator._apply_token_constraints = lambda _, tokens: min(tokens, *most, tokens)
        try:
            return pools, pools.config_from_budget(int(budget * _GIB))
        finally:
            KVCacheConfigurator._apply_token_constraints = own  # the next flags have their own

    with resolved.topology():
        if stages > 1:
            most.append(min(sized_by(stage)[1].max_total_num_tokens for stage in range(stages)))
        pools, sized = min(
            (sized_by(stage) for stage in range(stages)), key=lambda one: one[1].max_total_num_tokens
        )
        # Context ranks hold a token's cache in turns: requests see as many tokens more.
        held = sized.max_total_num_tokens
        if hasattr(pools, "logical_token_capacity"):
            held = pools.logical_token_capacity(max_total_num_tokens=held)
        elif not config.is_hybrid_swa:  # up to 0.5.20, where the allocator widens by itself
            held *= widths["attn_dcp_size"]
        requests = pools.resolve_max_num_reqs(sized.max_total_num_tokens)
    found = {
        "tokens": held,
        "window_tokens": sized.swa_max_total_num_tokens,
        "state_slots": resolved.states() if pools.mambaish_config is not None else None,
        "max_requests": requests,
        "share": resolved.mem_fraction_static,
        "chunk_tokens": resolved.chunked_prefill_size,
        "captured_requests": resolved.graphs.decode.max_bs,
        "page_tokens": resolved.page_size,
        "context_tokens": config.context_len,
        "kv_dtype": str(dtype).removeprefix("torch."),
        "architecture": config.hf_config.architectures[0],
    }
    if case.get("facts"):
        found["facts"] = _published(folder) | facts.settings(sized, "pools")
        for name, made in (("arguments", given), ("model", config), ("cache", pools)):
            found["facts"] |= facts.settings(made, name, folder)
    return found


def _published(folder: str) -> dict[str, str]:
    """The settings that a release resolved and published for its processes."""
    from sglang.srt import runtime_context as context

    found: dict[str, str] = {}
    for name, get in vars(context).items():
        if name.startswith("get_") and name != "get_context" and not inspect.signature(get).parameters:
            with contextlib.suppress(Exception):  # not every release publishes all of them here
                found |= facts.settings(get(), name.removeprefix("get_"), folder)
    return found


def _given(kind: Any, folder: str, case: dict[str, Any]) -> Any:
    """The arguments of a start, as the engine's parser reads them or by their fields."""
    if case.get("words") is None:
        return kind(
            model_path=folder, skip_tokenizer_init=True, device="cuda", load_format="dummy", **case["flags"]
        )
    parser = argparse.ArgumentParser(exit_on_error=False)
    kind.add_cli_args(parser)
    parser.error = _refuse  # type: ignore[method-assign, assignment]
    words = ["--model-path", folder, "--skip-tokenizer-init", "--device", "cuda", "--load-format", "dummy"]
    return kind.from_cli_args(parser.parse_args([*words, *case["words"]]))


def _refuse(message: str) -> None:
    raise argparse.ArgumentError(None, message)


def _resolved(given: Any) -> Any:
    """What a release made of its arguments, under one set of names.

    Since 0.5.19 that is published in parts; before, it stands on the arguments themselves, and the widths of ranks
    come from process groups, for which the topology is put in place.
    """
    from sglang.srt import runtime_context as context

    if hasattr(context, "override_platform"):
        from sglang.srt.arg_groups.overrides import model_config_of

        context.publish(given, role="scheduler")
        schedule, parallel = context.get_schedule(), context.get_parallel()
        _stamp_widths(parallel)
        names = ("tp_size", "attn_dp_size", "attn_dcp_size")
        return types.SimpleNamespace(
            config=model_config_of(given),
            widths={name: getattr(parallel, name) for name in names},
            kv_cache_dtype=context.get_model().kv_cache_dtype,
            speculative_algorithm=context.get_spec().speculative_algorithm,
            page_size=schedule.page_size,
            latent=context.uses_mla_backend(),
            max_total_tokens=schedule.max_total_tokens,
            mem_fraction_static=schedule.mem_fraction_static,
            chunked_prefill_size=schedule.chunked_prefill_size,
            graphs=context.get_exec().graph.cuda_graph_config,
            states=lambda: schedule.max_mamba_cache_size,
            topology=contextlib.nullcontext,
        )
    if hasattr(context, "publish"):
        context.publish(given, role="scheduler")
    else:
        context.get_context().set_server_args(given)
    data = given.dp_size if given.enable_dp_attention else 1
    ranks = given.tp_size // data // getattr(given, "attn_cp_size", 1)
    widths = {
        "tp_size": given.tp_size,
        "pp_size": given.pp_size,
        "attn_tp_size": ranks,
        "attn_dp_size": data,
        "attn_dcp_size": getattr(given, "dcp_size", 1),
        "dcp_size": getattr(given, "dcp_size", 1),
        "attn_cp_size": getattr(given, "attn_cp_size", 1),
    }
    latent = given.use_mla_backend
    return types.SimpleNamespace(
        config=given.get_model_config(),
        widths=widths,
        kv_cache_dtype=given.kv_cache_dtype,
        speculative_algorithm=given.speculative_algorithm,
        page_size=given.page_size,
        latent=latent() if callable(latent) else latent,
        max_total_tokens=given.max_total_tokens,
        mem_fraction_static=given.mem_fraction_static,
        chunked_prefill_size=given.chunked_prefill_size,
        graphs=given.cuda_graph_config,
        states=lambda: _now(given, "max_mamba_cache_size"),
        topology=lambda: context.get_parallel().override(**widths),
    )


def _now(given: Any, name: str) -> Any:
    """A setting that sizing the pools changes, wherever the release keeps it."""
    from sglang.srt import runtime_context as context

    bag = getattr(context, "get_schedule", None)
    return getattr(bag() if bag is not None else given, name)


def _taken(function: Any, **named: Any) -> dict[str, Any]:
    """Those of the arguments that the release's function takes."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in named.items() if name in known}


def _stamp_widths(parallel: Any) -> None:
    """Record the widths that 0.5.19 derives when it builds process groups, which later releases derive before."""
    from sglang.srt import runtime_context as context

    if not hasattr(parallel, "stamp_derived_widths"):
        return
    data, _ = context.derive_attention_widths(
        tp_size=parallel.tp_size,
        attn_cp_size=parallel.attn_cp_size,
        dp_size=parallel.dp_size,
        enable_dp_attention=parallel.enable_dp_attention,
    )
    widths = context.derive_parallel_widths(
        tp_size=parallel.tp_size,
        attn_cp_size=parallel.attn_cp_size,
        attn_dp_size=data,
        moe_ep_size=parallel.ep_size,
        moe_dp_size=parallel.moe_dp_size,
        dcp_size=parallel.dcp_size,
        dcp_enabled=parallel.dcp_size > 1,
    )
    parallel.stamp_derived_widths(**widths)


def _declared_cache(config: Any) -> str | None:
    declared = config._parse_quant_hf_config() or {}
    inner = declared.get("quantization", declared) or {}
    if inner.get("kv_cache_quant_algo"):
        return str(inner["kv_cache_quant_algo"])
    scheme = declared.get("kv_cache_scheme")
    eight = isinstance(scheme, dict) and scheme.get("num_bits") == 8
    return "FP8" if eight and "modelopt" in str(declared.get("quant_method", "")) else None
