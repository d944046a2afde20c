"""What vLLM's releases do where more than one rule of ``data/engines/vllm/rules.yaml`` says it.

A rule alone is asked for by name (:class:`~kvreport.catalog.release.Release`). Every boundary was read in the Python packages of
the releases on both sides of it; 0.21.0 is not on the package index any more and is taken to be as 0.22.
"""

from __future__ import annotations

from typing import Literal, cast

from kvreport.catalog.engine import Engine
from kvreport.catalog.release import Release, release_of

Sampler = Literal["sort", "probabilities", "copied", "logits"]


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

    Lists of classes are in the engine's record: ``second_runner`` (``DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES``) and
    ``first_runner_rocm`` (``ROCM_DEFAULT_MRV1_ARCHITECTURES``).
    ``VLLM_USE_V2_MODEL_RUNNER`` goes before all of them.

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
    served = release.word("second_runner")
    if served == "none":
        return False
    if engine.model_runner is not None:
        return engine.model_runner == "second"
    if vendor == "AMD" and engine.lists("first_runner_rocm", architecture):
        return False
    listed = engine.lists("second_runner", architecture)
    match served:
        case "all":
            return True
        case "plain listed":
            return listed and not experts and not quantized
        case "listed":
            return listed
    if not attention or (states and not (listed and served == "listed with states or dense")):
        return False
    return listed or not experts


def steps_in_flight(engine: Engine, *, stages: int, second: bool) -> int:
    """Scheduler steps whose tokens a window reserves memory for (``max_concurrent_batches``).

    Each pipeline stage works on a step of its own. The second model runner schedules one more; the first one schedules
    none ahead where there are stages.
    """
    usual = engine.steps_in_flight
    if stages == 1 or release_of(engine).count("steps_in_flight") == 1:
        return usual
    return stages + (second and usual > 1)


def state_slots(release: Release, *, caching: bool, checkpoint: bool) -> int:
    """Blocks of state that a request is charged for, without speculation.

    ``caching``: True with prefix caching. ``checkpoint``: True if layers keep a state from inside a
    prefill (:func:`keeps_checkpoint`), which takes one more.
    """
    slots = release.count("state_slots_cached") if caching else 1
    return slots + (checkpoint and slots > 1)


def keeps_checkpoint(engine: Engine, mechanism: str, architecture: str) -> bool:
    """Whether layers of a kind keep a state from inside a prefill in a block of its own.

    The engine's record lists classes with layers of their own: ``state_kept`` (Kimi-K3 since 0.29.0,
    ``models/kimi_k3/nvidia/kda.py``), and ``state_not_kept``, whose layers cannot hand out a state.
    """
    release = release_of(engine)
    if engine.lists("state_not_kept", architecture):
        return False
    early = mechanism == "kda" and engine.lists("state_kept", architecture)
    return early or mechanism in release.names("states_kept_in_prefill")


def encoder_profiled(release: Release, *, second: bool) -> bool:
    """Whether images are encoded while memory is measured."""
    return not second or release.has("second_runner_encodes")


def sampler(release: Release, *, second: bool, flashinfer: bool | None = None) -> Sampler:
    """How the sampling step is computed that runs while memory is measured (``_dummy_sampler_run``).

    ``flashinfer``: whether FlashInfer's sampler is installed, which runs on NVIDIA's devices only; None
    for how the release is published.

    Returns:
        ``sort`` where all logits are sorted, ``probabilities`` where masks and probabilities of all logits
        are kept (FlashInfer's sampler, Triton's), ``copied`` where the logits and a 32-bit copy are (the
        second runner, which samples without parameters), ``logits`` where nothing but the logits is.
    """
    if not second and flashinfer is not None and release.word("sampler_by_installation") != "never":
        return "probabilities" if flashinfer else "sort"
    return cast("Sampler", release.word("second_sampler" if second else "sampler"))


def sampler_is_open(release: Release, *, second: bool) -> bool:
    """True where the sampler depends on whether FlashInfer is installed: the published images hold it, a plain installation does not."""
    return not second and release.word("sampler_by_installation") == "installed"
