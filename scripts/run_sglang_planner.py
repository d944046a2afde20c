"""Run SGLang's own argument resolution and pool configurators with a pretended device, one JSON line each.

    python scripts/run_sglang_planner.py CONFIGS FLAGS.json [--gpu NAME] > records.jsonl

CONFIGS is a folder with one JSON file per model: a ``config.json``, alone or under the key ``config``
(with the checkpoint's ``hf_quant_config`` beside it, if it has one); a ``note`` that speaks of class defaults says
that no checkpoint's config was at hand. FLAGS.json is a list of objects of
``ServerArgs`` fields; every model is run under each. A draft model is named by its file in ``CONFIGS/drafts``. No GPU is needed and no weights are read: the device
is pretended through ``runtime_context.override_platform``, the budget of the pools is 40 GiB.

SGLang and its torch, torchvision and transformers must be importable; packages with compiled kernels may be missing,
empty modules stand in for them. ``scripts/check_sglang.py`` compares the records with this project.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import os
import re
import sys
import tempfile
import types
import warnings
from pathlib import Path
from typing import Any

GIB = 1 << 30
BUDGET_GIB = 40.0
DEVICES = {
    "h100-sxm-80gb": (81559, (9, 0)),
    "b200-sxm-180gb": (183359, (10, 0)),
    "rtx-4090": (24564, (8, 9)),
    "rtx-pro-6000-ws": (97887, (12, 0)),
    "a100-sxm4-40gb": (40960, (8, 0)),
}
"""Memory that the driver prints, MiB, and compute capability."""

KERNELS = [
    "sgl_kernel",
    "flashinfer",
    "vllm",
    "torchaudio",
    "deep_gemm",
    "llguidance",
    "tvm_ffi",
    "tilelang",
    "cuda",
    "nvtx",
    "cutlass",
    "flash_attn",
    "quack",
    "torchcodec",
    "numba",
    "sgl_flash_mla",
    "deep_ep",
    "kernels",
    "humming",
    "torch_memory_saver",
    "av",
    "flash_mla",
    "aiter",
    "nvshmem",
    "smg_grpc_servicer",
    "openai_harmony",
    "py_spy",
    "tml_renderers",
    "deepseek_recipe",
    "timm",
    "triton",
    "xgrammar",
    "outlines",
    "torchvision",
    "blobfile",
    "watchfiles",
    "decord",
]
"""Packages that an empty module may stand in for."""

OPTIONAL = ("torchcodec", "decord", "timm", "torchvision")
"""Packages that transformers looks for; pretending to have them would lead it astray."""


class Nothing:
    """Stands for any name of a package that is not installed."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take anything."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *given: object, **named: object) -> object:
        if len(given) == 1 and callable(given[0]) and not named and not isinstance(given[0], Nothing):
            return given[0]
        return Nothing()

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __getitem__(self, key: object) -> Nothing:
        return Nothing()

    def __or__(self, other: object) -> Nothing:
        return Nothing()

    __ror__ = __or__

    def __iter__(self) -> Any:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __get_pydantic_core_schema__(self, *_: object) -> dict[str, str]:
        return {"type": "any"}


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds empty modules for packages that are not installed."""

    def __init__(self, names: list[str]) -> None:
        """Stand in for these top-level packages."""
        self.names = frozenset(names)

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        """A package, if it is one of those."""
        del path, target
        if name.split(".", maxsplit=1)[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An empty module whose every name is :class:`Nothing`."""
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__file__ = spec.name

        def named(name: str) -> Nothing:
            if name.startswith("__") and name.endswith("__"):
                raise AttributeError(name)
            return Nothing()

        module.__getattr__ = named  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def stand_in() -> None:
    """Put empty modules in place of kernel packages that are not installed, and versions with them."""
    missing = [name for name in KERNELS if name not in OPTIONAL and importlib.util.find_spec(name) is None]
    sys.meta_path.append(Absent(missing))
    real = importlib.metadata.version

    def version(name: str) -> str:
        try:
            return real(name)
        except importlib.metadata.PackageNotFoundError:
            return "99.0.0"

    importlib.metadata.version = version


def pretend(gpu: str) -> None:
    """Make torch and SGLang believe in a device."""
    import torch

    memory, capability = DEVICES[gpu]
    major, minor = capability
    torch.version.cuda = "13.0"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.get_device_capability = lambda *_, **__: capability
    torch.cuda.get_device_name = lambda *_: gpu
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

    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if name.startswith("sglang") and "get_device_memory_capacity" in vars(module):
            module.get_device_memory_capacity = lambda *_, **__: float(memory)


def run(folder: str, flags: dict[str, Any]) -> dict[str, Any]:
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
    given = ServerArgs(
        model_path=folder, skip_tokenizer_init=True, device="cuda", load_format="dummy", **flags
    )
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
    stages = int(flags.get("pp_size", 1))
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
        pools, budget = configurator(stage), BUDGET_GIB
        if pools.mambaish_config is not None:
            budget = pools._handle_max_mamba_cache(budget)
        own = KVCacheConfigurator._apply_token_constraints
        if stages > 1:
            KVCacheConfigurator._apply_token_constraints = lambda _, tokens: min(tokens, *most, tokens)
        try:
            return pools, pools.config_from_budget(int(budget * GIB))
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
    return {
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


def own_classes() -> set[str]:
    """Names of all classes in the engine's models; others it serves through transformers."""
    import sglang.srt

    folder = Path(next(iter(sglang.srt.__path__)), "models")
    sources = (file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    return {name for source in sources for name in re.findall(r"(?m)^class (\w+)", source)}


def _declared_cache(config: Any) -> str | None:
    declared = config._parse_quant_hf_config() or {}
    inner = declared.get("quantization", declared) or {}
    if inner.get("kv_cache_quant_algo"):
        return str(inner["kv_cache_quant_algo"])
    scheme = declared.get("kv_cache_scheme")
    eight = isinstance(scheme, dict) and scheme.get("num_bits") == 8
    return "FP8" if eight and "modelopt" in str(declared.get("quant_method", "")) else None


def _written(source: Path, folder: Path) -> Path:
    """A model folder with the config alone, as the engine reads it."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    record = json.loads(source.read_text())
    config = dict(record.get("config", record))
    config.pop("auto_map", None)
    if not config.get("architectures"):
        known = CLASSES.get(config.get("model_type"))
        if known:
            config["architectures"] = [known if isinstance(known, str) else known[0]]
    place = folder / source.stem
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config))
    if record.get("hf_quant_config"):
        (place / "hf_quant_config.json").write_text(json.dumps(record["hf_quant_config"]))
    return place


def main() -> None:
    """Run every model under every set of flags."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("configs", type=Path)
    arguments.add_argument("flags", type=Path)
    arguments.add_argument("--gpu", choices=sorted(DEVICES), default="h100-sxm-80gb")
    asked = arguments.parse_args()
    sys.argv = sys.argv[:1]
    warnings.filterwarnings("ignore")
    stand_in()
    pretend(asked.gpu)
    logging.disable(logging.CRITICAL)
    release, classes = importlib.metadata.version("sglang"), own_classes()
    with tempfile.TemporaryDirectory() as scratch:
        for source in sorted(asked.configs.glob("*.json")):
            place = _written(source, Path(scratch))
            defaults = "class defaults" in str(json.loads(source.read_text()).get("note"))
            for flags in json.loads(asked.flags.read_text()):
                row = {
                    "id": source.stem.replace("--", "/", 1),
                    "sglang": release,
                    "gpu": asked.gpu,
                    "flags": flags,
                    "class_defaults": defaults,
                }
                draft = flags.get("speculative_draft_model_path")
                told = flags
                if draft is not None:
                    beside = _written(asked.configs / "drafts" / f"{draft}.json", Path(scratch))
                    told = {**flags, "speculative_draft_model_path": str(beside)}
                try:
                    row |= run(str(place), told)
                    row["own_class"] = row["architecture"] in classes
                except BaseException as error:  # noqa: BLE001 - the engine's refusal is the answer
                    row["error"] = f"{type(error).__name__}: {error}"[:300]
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
