"""What changed between vLLM's releases, as far as memory knows of it: one function per rule.

Every boundary was read in the Python packages of the releases on both sides of it (0.6.4, 0.6.6, 0.7.3,
0.8.0, 0.8.4, 0.8.5, 0.9.0, 0.9.2, 0.10.0, 0.10.1.1, 0.10.2, 0.11.0 to 0.20.2 but for patch releases, 0.22 to
0.33 likewise); 0.21.0 is not on the package index any more and is taken to be as 0.22. A release is a
tuple of numbers, ``(0, 20, 1)``; none means the newest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

from kvreport.accounting.engines.step import DraftKind
from kvreport.accounting.kernel import LARGEST_CAPTURE
from kvreport.catalog.engine import Engine, version_number

Release = tuple[int, ...]
TokenLine = Literal["concurrency", "blocks"]
PackedBlocks = Literal["widest", "tuples"]
Sampler = Literal["sort", "probabilities", "copied", "logits"]

NEWEST: Final[Release] = (0, 33)

PATCHES_LEAVE_MAIN: Final[Release] = (0, 11, 2)
"""The first patch that was cut from a branch of its release; those before were cut from the main branch."""

SAMPLER_BY_FLAG: Final[Release] = (0, 11, 1)
"""The first release that takes FlashInfer's sampler only where ``VLLM_USE_FLASHINFER_SAMPLER`` is set; those before take
it wherever it is installed (``v1/sample/ops/topk_topp_sampler.py``, 0.11.0 and 0.11.1)."""

FIRST_ENGINE_ENDS: Final[Release] = (0, 8)
"""The first engine (V0) is the default up to 0.7."""


@lru_cache(maxsize=1024)
def release_number(version: str) -> Release:
    """The release whose rules a version follows; empty where it names none.

    Builds of the main branch are named after the next patch of the last release that they descend from
    (``0.19.2rc1.dev134+g0`` after 0.19.1), and follow the release that was cut from the main branch next: the next
    minor one since 0.11.2, the patch itself before. Without a commit since the release (``0.16.1.dev0+g0.rocm``) they
    are that release with changes of their own. Candidates of a minor release (``0.11.0rc2``) follow it. A build of a
    clone without tags (``0.1.dev15312+g0``) tells no release.
    """
    number = version_number(version)
    if len(number) < 2 or not re.search(r"dev|rc", version):
        return number
    patch = number[2] if len(number) > 2 else 0
    if patch == 0 or number < PATCHES_LEAVE_MAIN:
        return number
    if re.search(r"\.dev0\b", version):
        return (*number[:2], patch - 1)
    return (number[0], number[1] + 1, 0)


def release_of(engine: Engine) -> Release:
    """The release whose rules a record stands for."""
    return release_number(engine.version or "") or NEWEST


def default_utilization(release: Release) -> float:
    """Share of memory taken by default (``config/cache.py``): 0.92 since 0.20.0."""
    return 0.92 if release >= (0, 20) else 0.9


def token_line(release: Release) -> TokenLine:
    """What "GPU KV cache size" counts: concurrency times the context since 0.20.1.

    ``v1/core/kv_cache_utils.py::_report_kv_cache_config``; before, blocks of one group times its tokens.
    """
    return "concurrency" if release >= (0, 20, 1) else "blocks"


def concurrency_from_tokens(release: Release) -> bool:
    """True up to 0.8: "Maximum concurrency" is tokens of all blocks over the context.

    0.8.4 ``v1/core/kv_cache_utils.py:636``; 0.9.2 divides by the blocks of one request.
    """
    return release < (0, 9)


def graphs_reserved(release: Release) -> bool:
    """Whether the graphs' estimate is taken off the pool.

    ``envs.py``, ``VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS``: true since 0.20.0. It is measured and
    printed from 0.18.0 on.
    """
    return release >= (0, 20)


_GATHERS_TOKENS_SINCE: Final = (0, 18)
"""The first release whose experts take the gathered tokens of all data ranks at once (0.18.1 to 0.33.0
``fused_moe/modular_kernel.py::_allocate_buffers``, ``prepare_finalize/naive_dp_ep.py``). Earlier ones compute in chunks of
16,384 (0.17.0 ``modular_kernel.py::_chunk_info``)."""


def gathers_tokens(release: Release) -> bool:
    """Whether buffers of experts are as large as the tokens of all data ranks."""
    return release >= _GATHERS_TOKENS_SINCE


EXPERT_KERNELS_FLAG_SINCE: Final = (0, 17)
"""The first release that has ``--moe-backend`` (0.17.0 ``engine/arg_utils.py``, and not 0.16.0)."""

SECOND_RUNNER_SINCE: Final = (0, 22)
"""The first release that serves some models with the second model runner without being told (``config/vllm.py``)."""

_NEVER: Final = (1 << 16,)

_DRAFTS_SINCE: Final[Mapping[DraftKind, Release]] = {
    "head": (0, 22),
    "model": (0, 31),
    "ngram": (0, 32),
    "suffix": _NEVER,
}
"""The releases whose second model runner has drafts of a kind (0.26.0 to 0.33.0
``config/vllm.py::_get_v2_model_runner_unsupported_features``)."""


def falls_back_for_draft(release: Release, drafts: DraftKind) -> bool:
    """Whether a model that drafts in this way is left to the first model runner."""
    return release < _DRAFTS_SINCE[drafts]


def second_runner(
    engine: Engine,
    architecture: str,
    *,
    experts: bool,
    states: bool,
    attention: bool = True,
    quantized: bool = False,
    vendor: str = "NVIDIA",
) -> bool:
    """Whether the second model runner serves a model by default.

    ``config/vllm.py::use_v2_model_runner`` and ``_is_default_v2_model_runner_model``: listed classes from
    0.22 on (unquantized and without experts up to 0.23), all without experts and states from 0.25 on,
    everything since 0.29. The lists are in the engine's record: ``second_runner``
    (``DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES``), ``second_runner_nvidia`` and ``first_runner_rocm``
    (``ROCM_DEFAULT_MRV1_ARCHITECTURES``). ``VLLM_USE_V2_MODEL_RUNNER`` goes before all of them.

    Args:
        engine: The record of the release.
        architecture: The model's class.
        experts: True for a mixture of experts.
        states: True if some layers keep a recurrent state.
        attention: False for a model of states alone.
        quantized: True if the weights are quantized.
        vendor: Who makes the devices, in capitals.
    """
    release = release_of(engine)
    if release < SECOND_RUNNER_SINCE:
        return False
    if engine.model_runner is not None:
        return engine.model_runner == "second"
    if vendor == "AMD" and engine.lists("first_runner_rocm", architecture, release):
        return False
    if release >= (0, 29):
        return True
    listed = engine.lists("second_runner", architecture, release)
    if vendor != "NVIDIA" and engine.lists("second_runner_nvidia", architecture, release):
        listed = False
    if release < (0, 24):
        return listed and not experts and not quantized
    if release < (0, 25):
        return listed
    if not attention or (states and not (listed and release >= (0, 27))):
        return False
    return listed or not experts


def compiles_on_copies(release: Release) -> bool:
    """Whether compiling takes memory of the size of the embedding table while memory is measured.

    ``config/compilation.py`` sets ``benchmark_combo_kernel`` from PyTorch 2.9 on (0.11.1); PyTorch 2.14 (0.33.0)
    measures no kernel any more that reads single rows of a table (``_inductor/scheduler.py``).
    """
    return (0, 11, 1) <= release < (0, 33)


def charges_all_that_stays(release: Release) -> bool:
    """Whether everything that stays allocated after the measuring run is charged, and not weights and peak alone.

    Since 0.27 (``utils/mem_utils.py::memory_profiling``, ``total_consumed``) what the device lost is taken, so that the
    buffers that a model runner makes beside the weights count. Up to 0.26 the peak was counted from what was allocated
    when the run began.
    """
    return release >= (0, 27)


def measures_links(release: Release) -> bool:
    """Whether what links to other ranks take is charged: up to 0.22.

    Since 0.23 the process group is bound to its device (``distributed/parallel_state.py``, ``device_id``), so that PyTorch
    makes its communicators when they are set up, before vLLM first looks at the memory (``v1/worker/gpu_worker.py::
    init_device``). Before, it made one at the first exchange of logits, in the measuring run.
    """
    return release < (0, 23)


def makes_handles_first(release: Release) -> bool:
    """Whether the handles of linear algebra are made before the first look at memory: since 0.33.0.

    ``v1/worker/gpu_worker.py::init_device`` multiplies two small matrices before it looks, so that the handles "count as
    baseline", and 0.31.0 and 0.32.0 do not. ``v1/worker/xpu_worker.py`` has a function of its own, which does not either.
    """
    return release >= (0, 33)


def keeps_freed_copy(release: Release, *, second: bool, experts: bool) -> bool:
    """Whether the copy that compiling is measured on is charged once more at a first start: in 0.28 to 0.30.

    What is freed stays reserved where a smaller allocation lies in it, and is charged with all that stays
    (:func:`charges_all_that_stays`): on devices with a large workspace (``reserve.large_workspace``). 0.31 splits no such
    block any more while it measures (``v1/worker/gpu_worker.py::determine_available_memory``,
    ``_scoped_allocator_max_split``). All four first starts of 0.28 to 0.30 without experts on Blackwell cards show it, one of
    two on an H100, and few on Ada and Ampere. The same model under the same release kept it on an RTX 5090, and not on an L4
    (Qwen3-14B-AWQ, 0.28.0). With experts, four of five starts of the second model runner show it (apron-002, -003, -007,
    eve-001; not first-022), and none of the first runner (eve-007, -008). Starts of 0.27 show none.

    Args:
        release: The release.
        second: True for the second model runner.
        experts: True for a mixture of experts.
    """
    return (0, 28) <= release < (0, 31) and (second or not experts)


def largest_capture(release: Release, *, blackwell: bool) -> int:
    """Tokens of the largest graph that is captured by default: 1,024 on data-center Blackwell GPUs since 0.28.0, else 512.

    ``config/vllm.py::_set_cudagraph_sizes``, ``default_max_graph_size``.
    """
    return 1024 if blackwell and release >= (0, 28) else LARGEST_CAPTURE


def captures_on_intel(release: Release) -> bool:
    """Whether graphs are captured on Intel's devices by default: since 0.31.0.

    ``platforms/xpu.py::check_and_update_config``: up to 0.30 ``VLLM_XPU_ENABLE_XPU_GRAPH`` must be set (false in ``envs.py`` of
    0.29.0 and 0.30.0), and 0.31 captures where PyTorch can. Nor does ``v1/worker/gpu_worker.py`` of 0.28.0 to 0.30.0 estimate
    graphs there.
    """
    return release >= (0, 31)


def second_runner_estimates_graphs(release: Release) -> bool:
    """Whether the second runner takes its graphs off the pool: since 0.29.0.

    ``v1/worker/gpu/model_runner.py::profile_cudagraph_memory`` returns 0 up to 0.28.
    """
    return release >= (0, 29)


def divides_picked(release: Release) -> bool:
    """Whether FlashAttention serves the picked tokens of a 16-bit latent on Hopper: since 0.25.0.

    ``platforms/cuda.py::_get_backend_priorities``, ``FLASH_ATTN_MLA_SPARSE``; before, FlashMLA's kernel of prefill, which
    divides nothing.
    """
    return release >= (0, 25)


def steps_in_flight(release: Release) -> int:
    """Scheduler steps that a window reserves for: two since 0.26.0.

    ``v1/kv_cache_interface.py::SlidingWindowSpec.max_memory_usage_bytes`` takes one step of tokens up to
    0.25 and ``max_in_flight_tokens`` (``config/vllm.py``) after.
    """
    return 2 if release >= (0, 26) else 1


def state_prefix_caching(release: Release) -> bool:
    """Whether prefix caching is on by default for models that mix attention and states: since 0.28.0.

    ``engine/arg_utils.py::_set_default_chunked_prefill_and_prefix_caching_args`` takes what
    ``config/model.py::is_prefix_caching_supported`` says, and excepts these models in 0.26 and 0.27. Models of
    states alone never cache by default.
    """
    return release >= (0, 28)


def state_slots(release: Release, *, caching: bool, checkpoint: bool) -> int:
    """Blocks of state that a request is charged for, without speculation.

    ``v1/kv_cache_interface.py::MambaSpec.max_memory_usage_bytes``: one; two with prefix caching from 0.15
    on; one more for layers that keep a state inside a prefill (:func:`keeps_checkpoint`).
    """
    if not caching or release < (0, 15):
        return 1
    return 2 + checkpoint


def keeps_checkpoint(engine: Engine, mechanism: str, architecture: str) -> bool:
    """Whether layers of a kind keep a state from inside a prefill in a block of its own.

    Where ``num_prefill_checkpoint_blocks`` is set: Mamba-2 and every KDA since 0.32.0 (``mamba_mixer2.py``,
    ``models/glm5next/common/kda.py``), gated DeltaNet since 0.33.0 (``qwen_gdn_linear_attn.py``). The engine's
    record lists classes with layers of their own: ``state_kept`` (Kimi-K3 since 0.29.0,
    ``models/kimi_k3/nvidia/kda.py``), and ``state_not_kept``, whose layers cannot hand out a state.
    """
    release = release_of(engine)
    if engine.lists("state_not_kept", architecture, release):
        return False
    first: dict[str, Release] = {"mamba2": (0, 32), "kda": (0, 32), "gated_deltanet": (0, 33)}
    early = mechanism == "kda" and engine.lists("state_kept", architecture, release)
    return early or (mechanism in first and release >= first[mechanism])


def latent_hybrid_tokens(release: Release) -> int:
    """Tokens that blocks of a model of latents and states are a multiple of.

    64 up to 0.19 (``models/config.py::HybridAttentionMambaModelConfig``), the kernel's own up to 0.26, 128
    since 0.27.0 (``platforms/interface.py::_align_hybrid_block_size``).
    """
    if release >= (0, 27):
        return 128
    return 64 if release < (0, 20) else 1


def packed_blocks(release: Release) -> PackedBlocks:
    """How unequal pages are packed: in whole tuples up to 0.23, by the widest group after."""
    return "widest" if release >= (0, 24) else "tuples"


def expert_workspace_kept(release: Release) -> bool:
    """Whether the buffers that experts compute in stay allocated: since 0.13.0 (``v1/worker/workspace.py``)."""
    return release >= (0, 13)


def streams_buffer_kept(release: Release) -> bool:
    """Whether models of several residual streams keep those of one step without a draft model: up to 0.26.

    ``models/deepseek_v4/nvidia/model.py``, ``_mtp_hidden_buffer``; made for a draft only since 0.27.0
    (``needs_mtp_hidden_states``).
    """
    return release < (0, 27)


def expands_latents(release: Release) -> bool:
    """Whether the measuring run expands the latents of a chunk of context: since 0.11.0.

    ``v1/attention/backends/mla/common.py::MLACommonImpl.forward`` without metadata (0.8.5 to 0.10.2 return at once), since 0.28
    ``model_executor/layers/attention/mla_attention.py``.
    """
    return release >= (0, 11)


def encoder_profiled(release: Release, *, second: bool) -> bool:
    """Whether images are encoded while memory is measured; the second runner does so since 0.27."""
    return release >= (0, 27) if second else True


def vendored_triton_kernels(release: Release) -> bool:
    """Whether OpenAI's Triton kernels come with the package: since 0.12.0 (``third_party``).

    Without them Hopper computes MXFP4 experts with Marlin's kernels
    (``quantization/mxfp4.py::get_mxfp4_backend``).
    """
    return release >= (0, 12)


def sampler(release: Release, *, second: bool, flashinfer: bool | None = None) -> Sampler:
    """How the sampling step is computed that runs while memory is measured.

    ``v1/sample/ops/topk_topp_sampler.py`` and ``_dummy_sampler_run``; in the second runner
    ``v1/worker/gpu/sample/sampler.py``.

    Args:
        release: The release.
        second: True for the second model runner.
        flashinfer: Whether FlashInfer's sampler is installed, which runs on NVIDIA's devices only; None for how the
            release is published.

    Returns:
        ``sort`` where all logits are sorted, ``probabilities`` where masks and probabilities of all logits
        are kept (FlashInfer's sampler, Triton's since 0.17), ``copied`` where the logits and a 32-bit copy are (the
        second runner, which samples without parameters), ``logits`` where nothing but the logits is: that runner
        changed them in place in 0.26, copies only what a request's parameters change since 0.28
        (``needs_logits_processing``), and measures with all of them since 0.33 (``v1/worker/gpu/model_runner.py::_dummy_sampler_run``).
    """
    if second:
        if release >= (0, 33):
            return "probabilities"
        return "logits" if release >= (0, 28) or (0, 26) <= release < (0, 27) else "copied"
    if release < FIRST_ENGINE_ENDS:
        return "sort"
    if release < (0, 11):
        return "sort" if flashinfer is False else "probabilities"
    if release < (0, 17):
        # Logs of 0.11.0 are mostly of plain installations, which sort.
        return "probabilities" if flashinfer else "sort"
    return "probabilities"


def sampler_is_open(release: Release, *, second: bool) -> bool:
    """True where the sampler depends on whether FlashInfer is installed: 0.8.5 to 0.11.0.

    The published images hold it, a plain installation does not. From 0.11.1 to 0.16 it sorts unless
    ``VLLM_USE_FLASHINFER_SAMPLER`` is set.
    """
    return not second and (0, 8) <= release < SAMPLER_BY_FLAG


def behavior(release: Release) -> dict[str, object]:
    """The fields of an engine's record that a release decides, by name."""
    return {
        "utilization": default_utilization(release),
        "token_line": token_line(release),
        "graphs_reserved": graphs_reserved(release),
        "steps_in_flight": steps_in_flight(release),
        "state_prefix_caching": state_prefix_caching(release),
        "packed_blocks": packed_blocks(release),
        "expert_workspace_kept": expert_workspace_kept(release),
        "streams_buffer_kept": streams_buffer_kept(release),
    }
