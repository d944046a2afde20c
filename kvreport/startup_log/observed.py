"""A published observation as a start: its model, device, flags and printed figures for the one judge.

:func:`published_start` makes the record that :func:`kvreport.startup_log.start.diagnose_start` judges.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.extras import own_prediction_layer, with_draft
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import CacheSettings
from kvreport.accounting.state_types import with_state_type
from kvreport.accounting.weights import is_hashed, row_bytes
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import RecurrentState
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Observation
from kvreport.catalog.release import trait
from kvreport.errors import InputError
from kvreport.estimation.named_copies import by_name
from kvreport.startup_log.start import STATED_WITHIN, Figures, Flags, Start
from kvreport.units import GIB, MIB

_EXTENDED: Final = re.compile(r"yarn|rope|overrid|longer|allow_long", re.IGNORECASE)
"""Flags that let a context be longer than the model's."""

LAST_DIGIT: Final = 0.006
"""Half of the last digit of a printed concurrency, and a little."""


def published_start(
    catalog: Catalog,
    observation: Observation,
    engine: Engine,
    model: Model,
    *,
    own: bool,
    ranges: bool = False,
) -> Start:
    """An observation with the rules and the model to predict it with.

    Args:
        catalog: Accelerators and formats.
        observation: What was published.
        engine: The record of its engine, at the log's release.
        model: The model, or one of the same shapes.
        own: True if it is the checkpoint itself.
        ranges: True to take a copy whose mix the source does not tell as the range of its name, which constants cannot be fitted to.
    """
    told = {"expert_kernel": observation.expert_kernel, "model_runner": observation.model_runner}
    told = {name: value for name, value in told.items() if value}
    release = engine.model_copy(update=line_printed(observation) | told)
    if tables_on_host(observation) or _loaded_less_than_tables(catalog, observation, model):
        lists = release.architectures | {"tables_on_host": (model.architecture,)}
        release = release.model_copy(update={"architectures": lists})
    copy = _copy(catalog, observation, model) if ranges and not own else None
    model = with_state_type(copy or model, state_type(observation))
    drafts = drafts_itself(observation, model)
    device = device_of(catalog, observation)
    layout = _layout(observation)
    if layout.whole_encoders and rules(release).refuses(model, Layout(whole_encoders=True)):
        # The engine divides the weights whatever the flag says.
        layout = replace(layout, whole_encoders=False)
    named = observation.kernels_of
    flags = _flags(observation, layout, drafts=drafts, own=own)
    # Computers that are joined are several machines, which few sources say.
    joined = device is not None and device.is_computer and flags.layout.devices > device.most_per_machine
    start = Start(
        known=catalog,
        engine=release,
        # llama.cpp keeps the prediction layer in a context of its own, whose buffers it prints apart.
        model=model
        if not drafts or trait(release, "allocates_at_start")
        else with_draft(model, own_prediction_layer(model)).whole,
        accelerator=device,
        replica=tuple(map(catalog.accelerator, observation.gpus)),
        kernels_of=None if named is None else catalog.accelerator(named),
        flags=flags if copy is None else replace(flags, weight_format="released"),
        printed=_figures(observation, model),
        published=True,
        as_range=copy is not None,
        released=bool(re.fullmatch(r"[\d.]+", observation.engine_version or "")) and not joined,
        most_tokens=model.context_tokens if own and not _EXTENDED.search(observation.flags or "") else None,
    )
    return replace(
        start,
        weights_unclear=_weights_unclear(observation, start.flags, drafts=drafts),
        plan_unclear=_plan_unclear(observation, start),
    )


def _copy(catalog: Catalog, observation: Observation, base: Model) -> Model | None:
    """The copy as an answer has it that knows its name alone: a range; None where its formats are stated or unknown."""
    if not (observation.shapes_weights is None if observation.mix_open is None else observation.mix_open):
        return None
    try:
        found = by_name(observation.model, catalog, base)
    except InputError:
        return None
    return found[0] if found is not None and found[0].by_name else None


def _flags(observation: Observation, layout: Layout, *, drafts: bool, own: bool) -> Flags:
    return Flags(
        weight_format=_weight_format(observation) if own else observation.shapes_weights,
        kv_format=observation.kv_format,
        layout=layout,
        context_tokens=observation.context_tokens,
        max_batched_tokens=observation.max_batched_tokens,
        max_seqs=observation.max_seqs,
        offline=bool(observation.offline),
        caches=CacheSettings(
            block_tokens=observation.block_tokens,
            prefix_caching=_prefix_caching(observation),
            draft_tokens=_draft_tokens(observation),
            draft_in_model=drafts,
            window_share=window_share(observation),
            max_states=states_given(observation),
        ),
        utilization=share_taken(observation),
        stated_utilization=observation.utilization,
        share_of_free=bool(observation.static_share),
        eager=bool(observation.eager),
        sorts=observation.sorts,
        compiled=bool(observation.compiled) or not compiles(observation),
        images=serves_images(observation),
        clips=not re.search(_NO_AUDIO, (observation.flags or "").lower()),
        videos=_serves("video", observation),
        images_through=images_through(observation),
        encodes_at_start=encodes_at_start(observation),
        kv_pool_bytes=pool_given(observation),
        lora_slots=adapter_slots(observation),
    )


def _weight_format(observation: Observation) -> str | None:
    """The checkpoint's format: as stated; as released where all flags are, and none of them converts it."""
    if observation.weight_format is None and observation.quantization is None and observation.complete:
        return "released"
    return observation.weight_format


def _figures(observation: Observation, model: Model) -> Figures:
    printed = observation.printed
    halves = None
    if printed.k_gib is not None and printed.v_gib is not None:
        halves = (printed.k_gib + printed.v_gib + (printed.state_gib or 0)) * GIB
    if printed.state_gib is None and _keeps_states(model):
        halves = None
    return Figures(
        load=_bytes(printed.model_load_gib),
        pool=_bytes(printed.available_kv_gib),
        halves=halves,
        tokens=printed.kv_tokens,
        concurrency=printed.max_concurrency,
        free=_bytes(printed.free_gpu_gib),
        refused=printed.fits is False,
        cells=printed.context_cells or observation.context_tokens,
        cache=_bytes(printed.kv_mib, MIB),
        values=_bytes(printed.v_mib, MIB),
        states=_bytes(printed.state_mib, MIB),
        streams=_streams(observation),
    )


def _streams(observation: Observation) -> int:
    """Rows of cells, as llama.cpp's quoted line says: ``4/1 seqs`` are four slots that share one."""
    found = (re.search(r"\d+/(\d+) seqs", line) for line in observation.origin.lines)
    return next((int(one[1]) for one in found if one), 1)


def _keeps_states(model: Model) -> bool:
    """True if some layers keep a state, which takes a part of the budget that halves do not tell."""
    return any(isinstance(cache, RecurrentState) for group in model.layers for cache in group.caches)


def _bytes(size: float | None, unit: int = GIB) -> float | None:
    return None if size is None else size * unit


def _layout(observation: Observation) -> Layout:
    ranks, data = observation.tensor_parallel or 1, observation.data_parallel or 1
    # SGLang's data-parallel attention divides the tensor-parallel devices among the data ranks.
    shared = data > 1 and observation.devices == ranks
    return Layout(
        tensor=max(ranks // data, 1) if shared else ranks,
        pipeline=observation.pipeline_parallel or 1,
        data=data,
        expert=bool(observation.expert_parallel),
        decode_context=observation.context_parallel or 1,
        partition=observation.pipeline_partition,
        whole_encoders=re.search(_WHOLE_ENCODERS, _said(observation)) is not None,
    )


def _weights_unclear(observation: Observation, flags: Flags, *, drafts: bool) -> str | None:
    if flags.weight_format is None:
        return "how the checkpoint is stored is not known well enough"
    if observation.speculative and not drafts and observation.printed.model_load_gib is not None:
        return "a draft model is loaded too"
    return None


def _plan_unclear(observation: Observation, start: Start) -> str | None:
    if not start.engine.device_classes:
        return "keys and values have different types" if observation.kv_format is None else None
    if observation.context_tokens is None and not trait(start.engine, "tokens_are_cells"):
        return "the context is not stated"
    if observation.kv_format is None and not observation.complete:
        return "the KV format is not stated"
    if observation.speculative and start.flags.caches.draft_tokens == 0:
        return "the draft model is not described"
    if start.accelerator is None and (observation.tensor_parallel or 1) > 1:
        return "devices differ or are not named, and the smallest rank decides"
    return None


def _draft_tokens(observation: Observation) -> int:
    # vLLM's name, llama.cpp's names of the option and of the state copies that it makes for drafts, SGLang's steps.
    said = observation.speculative or ""
    found = re.search(r"(?:num_speculative_tokens|n_max|rs_seq|steps)\D+(\d+)|(\d+) steps", said)
    return int(found[1] or found[2]) if found else 0


def serves_images(observation: Observation) -> bool:
    """False if the engine was told to serve text only: no images and no videos, which one encoder reads."""
    if re.search(r"language[_ -]model[_ -]only|text only", _said(observation)):
        return False
    return _serves("image", observation) or _serves("video", observation)


def _serves(kind: str, observation: Observation) -> bool:
    """False if the engine was told to take none of a kind of inputs (``--limit-mm-per-prompt``), as JSON or in words."""
    return not re.search(rf"\b{kind}(?:['\"]: ?| )0\b", _said(observation))


def _said(observation: Observation) -> str:
    return f"{observation.towers or ''} {observation.flags or ''}".lower()


_WHOLE_ENCODERS: Final = r"mm[-_]encoder[-_]tp[-_]mode\W{1,4}data\b|mm[-_]enable[-_]dp[-_]encoder\b"
"""vLLM's and SGLang's flag for an encoder that each rank has whole."""

_NO_AUDIO: Final = r"audio['\"]: ?0"


def _flag(observation: Observation, said: str) -> str | None:
    """The value of a flag that the source names, as the expression's only group has it; None where it does not."""
    found = re.search(said, observation.flags or "")
    return found[1] if found else None


def images_through(observation: Observation) -> str:
    """What SGLang was told to send images through (``--mm-feature-transport``); "" where nothing is said."""
    return _flag(observation, r"mm[-_]feature[-_]transport[ =:']+(cpu|cuda_ipc|cuda_vmm)") or ""


def encodes_at_start(observation: Observation) -> bool:
    """False with ``--skip-mm-profiling``: ``v1/worker/gpu_model_runner.py::profile_run`` then encodes nothing."""
    return not re.search(r"skip[-_]mm[-_]profiling", observation.flags or "")


def compiles(observation: Observation) -> bool:
    """False where the flags ask vLLM for mode 0, which compiles nothing (``config/compilation.py::CompilationMode.NONE``)."""
    return not re.search(r"compilation mode (?:0|none)\b", (observation.flags or "").lower())


def tables_on_host(observation: Observation) -> bool:
    """True if the flags keep tables that rows are looked up in on the host, where the release's default is the device.

    vLLM: ``--engram-config '{"cpu_offload": true}'`` (0.30.0 ``config/engram.py::EngramConfig``), before it ``VLLM_PLE_CPU_OFFLOAD=1``
    (observation obs-222); SGLang: ``--ple-offload-embedding``; or in words.
    """
    said = r"ple[-_](?:cpu[-_]offload|offload[-_]embedding)\b(?!\W{1,2}(?:0|false))|cpu_offload['\"]?[:=] ?true|\btables? of embeddings (?:kept )?on the host"
    return re.search(said, (observation.flags or "").lower()) is not None


def _loaded_less_than_tables(catalog: Catalog, observation: Observation, model: Model) -> bool:
    """True if loading took less memory than the tables of hashed n-grams are as released: they are not on the device."""
    loaded, ranks = _bytes(observation.printed.model_load_gib), observation.tensor_parallel or 1
    tables = (row for row in model.weights if is_hashed(model, row))
    each = (row_bytes(model, row, None, catalog.weight_formats, ranks) for row in tables)
    return loaded is not None and loaded < sum(each)


def state_type(observation: Observation) -> str | None:
    """The type of recurrent states that the flags ask for (vLLM's and SGLang's spelling); None for the usual."""
    return _flag(observation, r"mamba[-_]ssm[-_](?:cache[-_])?dtype[=: ]+['\"]?(float32|bfloat16|float16)\b")


def window_share(observation: Observation) -> float | None:
    """SGLang's ``--swa-full-tokens-ratio``, as the flags say; None for the default.

    ik_llama.cpp keeps window layers as full attention: its logs of Gemma 3 have all cells in each of 62 layers.
    """
    if observation.engine == "ik-llama.cpp":
        return 1.0
    share = _flag(observation, r"swa[-_]full[-_]tokens[-_]ratio[=: ]+(0?\.\d+|1(?:\.0)?)")
    return float(share) if share else None


def states_given(observation: Observation) -> int | None:
    """SGLang's ``--max-mamba-cache-size``, as the flags say; None where the budget decides."""
    most = _flag(observation, r"max[-_]mamba[-_]cache[-_]size[=: ]+(\d+)")
    return int(most) if most else None


def drafts_itself(observation: Observation, model: Model) -> bool:
    """True if drafts come from the model's own layers, which are loaded then: prediction layers (``mtp``) or DSpark's.

    DSpark is the checkpoint's own where its Markov head stands among the layers that draft, as in DeepSeek V4's.
    """
    said = re.search(r"\b(mtp|dspark)\b", observation.speculative or "", re.IGNORECASE)
    if not said or "assistant" in (observation.speculative or ""):
        return False
    sign = "markov_head" if said[1].lower() == "dspark" else ""
    return any(row.component == "mtp" and sign in row.name for row in model.weights)


def adapter_slots(observation: Observation) -> tuple[int, int]:
    """LoRA adapters held at once and their largest rank; vLLM's defaults are one of rank 16."""
    said = observation.lora or ""
    if not re.search(r"lora", said, re.IGNORECASE):
        return 0, 0
    held = re.search(r"max_loras\W+(\d+)", said)
    rank = re.search(r"max_lora_rank\W+(\d+)", said)
    return int(held[1]) if held else 1, int(rank[1]) if rank else 16


def pool_given(observation: Observation) -> int | None:
    """The pool of one device that the flags ask for, which replaces the budget; None without one."""
    size = _flag(observation, r"kv[-_]cache[-_]memory(?:[-_]bytes)?\W{1,4}(\d{6,})\b")
    return int(size) if size else None


def device_of(catalog: Catalog, observation: Observation) -> Accelerator | None:
    """The device of an observation: as named, else one of the same kernels with the memory that was found."""
    named = observation.gpus[0] if observation.gpus else observation.gpu
    if named is None and observation.printed.total_gpu_gib is not None and observation.tensor_parallel == 1:
        named = observation.kernels_of
    return device_found(catalog.accelerator(named), observation) if named else None


def device_found(accelerator: Accelerator, observation: Observation) -> Accelerator:
    """The device with the memory that the engine found."""
    return accelerator.as_found(_bytes(observation.printed.total_gpu_gib), wsl=bool(observation.wsl))


def line_printed(observation: Observation) -> dict[str, str]:
    """Which figure the line of tokens is, where a build between releases prints it and tells by itself.

    Tokens of whole requests agree with the concurrency; tokens of blocks do not where layers differ.
    """
    printed, context = observation.printed, observation.context_tokens
    if not re.search(r"dev|rc", observation.engine_version or "") or not context:
        return {}
    if not printed.kv_tokens or not printed.max_concurrency:
        return {}
    same = abs(printed.kv_tokens / context - printed.max_concurrency) <= LAST_DIGIT
    return {"token_line": "concurrency" if same else "blocks"}


def find_model(catalog: Catalog, observation: Observation) -> tuple[Model | None, bool]:
    """The model to predict with, and whether it is the checkpoint itself rather than one shaped like it."""
    for name, own in ((observation.model_id, True), (observation.shapes_of, False)):
        if name is None:
            continue
        if name in catalog.models:
            return catalog.models[name], own
        for model in catalog.models.values():
            if name in model.aliases or name in model.predecessor_ids:
                return model, own
    return None, False


def share_taken(observation: Observation) -> float | None:
    """The utilization that an engine ran with.

    Where it printed all parts of its budget, their sum over its memory; a published table may
    state another by mistake. Some releases keep the estimate of their graphs out of the parts
    that they print: where the sum with it is what the source states, that is the share.
    Elsewhere what the source states.
    """
    printed = observation.printed
    parts = (
        printed.model_load_gib,
        printed.available_kv_gib,
        printed.peak_activation_gib,
        printed.non_torch_gib,
    )
    known = [part for part in parts if part is not None]
    if printed.total_gpu_gib is None or len(known) < len(parts):
        return observation.utilization or observation.static_share or _static_share(observation)
    share = round(sum(known) / printed.total_gpu_gib, 3)
    stated = observation.utilization
    if stated is not None and printed.cudagraph_est_gib is not None:
        with_graphs = (sum(known) + printed.cudagraph_est_gib) / printed.total_gpu_gib
        if abs(with_graphs - stated) <= STATED_WITHIN:
            return stated
    return share


def _static_share(observation: Observation) -> float | None:
    """SGLang's share by what is left free behind its pools, of a log that does not show its flags; else None.

    What it keeps free is one less the share of what was free before loading
    (0.5.23 ``mem_cache/kv_cache_configurator.py::_profile_available_bytes``).
    """
    printed = observation.printed
    pool = printed.kv_gib
    if pool is None and printed.k_gib is not None and printed.v_gib is not None:
        pool = printed.k_gib + printed.v_gib
    left, taken = printed.free_after_load_gib, printed.model_load_gib
    if observation.engine != "sglang" or observation.complete or observation.speculative:
        return None
    if pool is None or left is None or taken is None or left + taken <= 0:
        return None
    share = static_share(left, left + taken, pool + (printed.state_gib or 0.0))
    return share if 0 < share < 1 else None


def static_share(left: float, before: float, pools: float) -> float:
    """The share of what was free that weights and pools take, as the lines of a start tell it.

    Args:
        left: What is free once the weights are loaded.
        before: What was free before.
        pools: What all pools take.
    """
    return round(1 - (left - pools) / before, 3)


def _prefix_caching(observation: Observation) -> bool | None:
    said = (observation.flags or "").lower()
    if re.search(
        r"prefix.caching'?[:= ]+(off|false)|no.enable.prefix|no prefix caching|disable.radix.cache(?!\w*[=: ]+false)",
        said,
    ):
        return False
    asked = re.search(
        r"enable-prefix-caching|enable.prefix.caching'?[:= ]+true|(^|[,;] )prefix caching( on| and|[,;]|$)",
        said,
    )
    return True if asked else None
