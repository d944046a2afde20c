"""vLLM's own arguments, layers and planner, on a device that is not there; run by ``run.py``, never imported here.

The server's flags are resolved by ``EngineArgs.create_engine_config``. The model is made by the engine's own class
with its weights on torch's ``meta`` device, one pipeline stage after another; its layers say what cache they need,
and ``get_kv_cache_configs`` plans it, as ``EngineCore._initialize_kv_caches`` does. Collectives have no other side:
groups of ranks know their sizes alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import types
from typing import Any

import facts
import stand_in

_GROUPS = ("_WORLD", "_TP", "_ETP", "_DCP", "_PP", "_DP", "_EP", "_EPLB", "_PCP")


def _of(*places: str) -> Any:
    """Return ``module:name`` from the first place that has it, as releases move things."""
    why: Exception | None = None
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(f"vllm.{module}"), name)
        except (ImportError, AttributeError) as error:
            why = error
    raise ImportError(f"{places[0]}: {why}")


class _ProcessGroup(types.SimpleNamespace):
    """A process group whose further calls have no other side."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: stand_in.Nothing()


class RankGroup:
    """A group of ranks that knows its size and which of them this is."""

    def __init__(self, size: int, rank: int = 0) -> None:
        """Be one of so many ranks."""
        self.world_size, self.rank, self.rank_in_group, self.local_rank = size, rank, rank, 0
        self.ranks, self.is_first_rank, self.is_last_rank = list(range(size)), rank == 0, rank == size - 1
        self.first_rank, self.last_rank, self.unique_name = 0, size - 1, f"group of {size}"
        self.device_communicator = self.mq_broadcaster = None
        told = {"size": lambda: size, "rank": lambda: rank, "world_size": size}
        self.device_group = self.cpu_group = _ProcessGroup(**told)
        self.use_custom_op_call = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: stand_in.Nothing()


class VllmPlanner:
    """One release of vLLM on one kind of device."""

    def __init__(self, device: dict[str, Any]) -> None:
        """Import the engine with stand-ins; raises what the import raises."""
        stand_in.stand_in("vllm")
        import torch

        stand_in.pretend(device)
        stand_in.pretend_operators()
        vllm = importlib.import_module("vllm")
        # An unpacked wheel beside an installed one: its own version counts.
        self.release = str(getattr(vllm, "__version__", "") or importlib.metadata.version("vllm"))
        platforms: Any = importlib.import_module("vllm.platforms")
        place, name = ("rocm", "RocmPlatform") if device.get("gcn_arch") else ("cuda", "NonNvmlCudaPlatform")
        base = getattr(importlib.import_module(f"vllm.platforms.{place}"), name)
        base.device_count = classmethod(
            lambda _: 1 << 10
        )  # a layout is planned for one rank, whatever is in a node
        self.platform = platforms._current_platform = base()
        self.torch: Any = torch
        self.args = _of("engine.arg_utils:EngineArgs")
        registry: Any = importlib.import_module("vllm.model_executor.models.registry")
        registry._run_in_subprocess = lambda function: function()
        self.usage = _of("usage.usage_lib:UsageContext").OPENAI_API_SERVER
        self.state: Any = importlib.import_module("vllm.distributed.parallel_state")
        self.current = _of("config:set_current_vllm_config")
        self.made = _of("model_executor.model_loader.utils:initialize_model")
        self.typed = _of("utils.torch_utils:set_default_torch_dtype")

    def answer(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Return what the engine says of one start.

        ``folder``: a folder with the model's ``config.json``. ``case``: ``words``, ``pools`` in bytes of
        one GPU, ``lengths`` in tokens.
        """
        parser = self.args.add_cli_args(
            _of("utils.argparse_utils:FlexibleArgumentParser", "utils:FlexibleArgumentParser")()
        )
        parser.exit_on_error, parser.error = False, _refuse
        words = ["--model", folder, "--load-format", "dummy", "--skip-tokenizer-init", *case["words"]]
        config = self.args.from_cli_args(parser.parse_args(words)).create_engine_config(self.usage)
        parallel = config.parallel_config
        made = [
            self._specs(config, stage, told=stage == 0 and bool(case.get("facts")))
            for stage in range(parallel.pipeline_parallel_size)
        ]
        stages = [specs for specs, *_ in made]
        own_length = config.model_config.max_model_len
        cache, scheduler = config.cache_config, config.scheduler_config
        found: dict[str, Any] = {
            "max_batched_tokens": scheduler.max_num_batched_tokens,
            "max_seqs": scheduler.max_num_seqs,
            "share": cache.gpu_memory_utilization,
            "prefix_caching": bool(cache.enable_prefix_caching),
            "kv_type": str(cache.cache_dtype),
            "architecture": config.model_config.architectures[0],
            "weight_bytes": max(weights for _, weights, _ in made),
            "at": [],
        }
        if case.get("facts"):
            found["facts"] = facts.settings(config, "config", folder) | made[0][2]
        for length in case["lengths"] or [own_length]:
            config.model_config.max_model_len = length
            for pool in case["pools"]:
                found["at"].append({"length": length, "pool": pool} | self._planned(config, stages, pool))
        return found

    def _specs(self, config: Any, stage: int, *, told: bool) -> tuple[dict[str, Any], int, dict[str, str]]:
        """What the layers of one pipeline stage ask for, the bytes of their weights before loading adds to them, and its facts."""
        parallel = config.parallel_config
        sizes = {
            "_PP": parallel.pipeline_parallel_size,
            "_TP": parallel.tensor_parallel_size,
            "_DP": parallel.data_parallel_size,
            "_DCP": getattr(parallel, "decode_context_parallel_size", 1),
            "_PCP": getattr(parallel, "prefill_context_parallel_size", 1),
        }
        sizes["_EP"] = sizes["_EPLB"] = sizes["_TP"] * sizes["_DP"]
        sizes["_ETP"], sizes["_WORLD"] = sizes["_TP"], sizes["_TP"] * sizes["_PP"]
        for name in _GROUPS:
            if hasattr(self.state, name):
                setattr(self.state, name, RankGroup(sizes[name], stage if name == "_PP" else 0))
        self._process_group(sizes["_WORLD"])
        with contextlib.suppress(ImportError):  # some layers take their scratch space while they are made
            _of("v1.worker.workspace:init_workspace_manager")(self.torch.device("meta"))
        compilation = config.compilation_config
        compilation.static_forward_context.clear()
        with (
            self.current(config),
            self.typed(config.model_config.dtype),
            self.torch.device("meta"),
            stand_in.on_meta() as meta,
        ):
            model = self.made(config)
            if stage == 0 and hasattr(self.platform, "update_block_size_for_backend"):
                self.platform.update_block_size_for_backend(config)
            specs: dict[str, Any] = _of("v1.worker.gpu.attn_utils:get_kv_cache_spec")(config)
            with contextlib.suppress(ImportError):
                resolve = _of("v1.attention.backends.utils:resolve_kv_cache_layout")
                backends = _of(
                    "v1.attention.backends.utils:get_current_attn_backends",
                    "v1.worker.worker_base:get_current_attn_backends",
                )(config)
                layouts = _of(
                    "v1.attention.backends.utils:get_supported_kv_cache_layouts",
                    "v1.worker.worker_base:get_supported_kv_cache_layouts",
                )(backends)
                resolve(config, [[one.name for one in layouts]], [*specs.values()])
            weights = sum(one.numel() * one.element_size() for one in model.parameters())
            said = self._facts(model, specs, meta.made) if told else {}
        del model
        return specs, weights, said

    def _facts(self, model: Any, specs: dict[str, Any], made: dict[int, Any]) -> dict[str, str]:
        """What a model keeps once each layer made of its weights what it makes of them after they are loaded."""
        for module in model.modules():
            method = getattr(module, "quant_method", None)
            with contextlib.suppress(Exception):  # some call kernels, and leave the weights as they are
                if method is not None:
                    method.process_weights_after_loading(module)
        kinds = {
            "cache": facts.caches(specs),
            "tensor": facts.tensors(model, made),
            "module": facts.modules(model),
        }
        return {f"{kind} {at}": said for kind, found in kinds.items() for at, said in found.items()}

    def _process_group(self, size: int) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        distributed = self.torch.distributed
        if distributed.is_initialized():
            distributed.destroy_process_group()
        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)

    def _planned(self, config: Any, stages: list[dict[str, Any]], pool: int) -> dict[str, Any]:
        core = "v1.core.kv_cache_planning", "v1.core.kv_cache_utils"

        def named(name: str) -> Any:
            return _of(*(f"{place}:{name}" for place in core))

        specs = [dict(stage) for stage in stages]
        config.cache_config.num_gpu_blocks_override = None
        try:
            groups = [named("get_global_kv_cache_groups")(config, specs)]
        except ImportError:
            groups = []
        try:
            made = named("get_kv_cache_configs")(config, specs, [pool] * len(specs), *groups)
        except (ValueError, ZeroDivisionError) as error:  # a pool too small, or a stage without a cache
            return {"error": str(error).split(".")[0][:200]}
        whole = named("generate_scheduler_kv_cache_config")(made)
        tokens, concurrency = named("get_kv_cache_capacity")(config, whole)
        return {
            "blocks": whole.num_blocks,
            "tokens": tokens,
            "concurrency": round(concurrency, 6),
            "block_tokens": min((one.kv_cache_spec.block_size for one in whole.kv_cache_groups), default=0),
        }


def _refuse(message: str) -> None:
    raise argparse.ArgumentError(None, message)
