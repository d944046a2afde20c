"""SGLang's pools as a block plan: pages of cells that every token takes one of."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final

from kvreport.accounting.engines.sglang import compressed, flag_combinations, settings, shapes
from kvreport.accounting.engines.sglang.pools import (
    MOST_REQUESTS,
    Division,
    PoolFlags,
    pool_rule,
)
from kvreport.accounting.extras import draft_alone, drafts_blocks, drafts_itself
from kvreport.accounting.kv_cache import SERVED_BYTES, require_storable
from kvreport.accounting.parallel import Layout, stage_layers
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.stages import partition_of
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import CrossAttention
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.catalog.release import release_of, trait
from kvreport.catalog.remembered import remembered
from kvreport.errors import InputError

if TYPE_CHECKING:
    from kvreport.accounting.case import Case

GROWING: Final = frozenset({"full", "sliding", "chunked", "latent", "cross"})
"""Kinds of caches that a KV format stores; others keep their own type."""

_DRAFT: Final = "draft "
"""How layers of a draft are named that :func:`kvreport.accounting.extras.with_draft` puts after the target's."""

WINDOW_SHARE: Final = 0.8
"""``swa_full_tokens_ratio``: tokens of the window pool per token of the full one."""

TENTH: Final = 0.1
"""Both for classes with many small states and windows (``model_overrides/inkling.py``, 0.5.16 to 0.5.23)."""

STATE_SHARE: Final = 0.9
"""``mamba_full_memory_ratio``: the state pool over the token pool."""


def plan(
    model: Model,
    engine: Engine,
    case: Case,
    stage: Model | None = None,
) -> BlockPlan:
    """How requests are laid into the pools of one rank.

    ``stage``: the layers of a pipeline stage as a model; None for all.

    Raises:
        InputError: If the release refuses the combination, or the format cannot store one of the model's caches.
    """
    reason = flag_combinations.refusal(model, engine, case.kv_format, case.accelerator, case.layout)
    if reason is not None:
        raise InputError(reason)
    heads = max(case.layout.tensor // case.layout.decode_context, 1)
    draft_bytes = own_draft_bytes(model, engine, heads, element_bytes(case.kv_format))
    asked, model = model, counted(model, engine)
    stage = None if stage is None else counted(stage, engine)
    flags = replace(pool_flags(model, engine, case), draft_bytes=draft_bytes)

    def rule_with(flags: PoolFlags) -> Division:
        return (
            stage_rule(model, engine, flags, case.layout, stage) if stage else pool_rule(model, engine, flags)
        )

    rule = rule_with(flags)
    if not rule.cell_bytes:
        return _states_only(rule)
    # The allocator hands out pages of all context ranks at once (``kv_cache_configurator.py``, 0.5.15 to 0.5.23).
    page = flags.page_tokens * rule.turns
    block = ceil(rule.cell_bytes * page)
    encoder = encoder_tokens(model)
    terms = [Term("full", block, step_tokens=page)]
    if encoder:
        terms.append(Term("cross", constant_bytes=-(-encoder // page) * block))
    return BlockPlan(
        block_bytes=block,
        profile=CacheProfile(tuple(terms)),
        block_tokens=page,
        notes=(
            *_notes(rule, encoder),
            *_uncounted(rule, rule_with, model, engine, case),
            *(() if model is asked or draft_bytes else (_UNCOUNTED_DRAFT.format(engine.label),)),
        ),
        pool=rule,
    )


def counted(model: Model, engine: Engine) -> Model:
    """A model with its draft's layers, without those that the engine does not count when it sizes the pools.

    Prediction layers of the target's own are counted for classes whose draft path the engine fills in, and since
    0.5.20 where the config says ``num_nextn_predict_layers`` (``spec_aux_hidden_state.py``). The caches of others come
    out of what is kept free. Drafts of blocks are counted in every release, as layers of the target or by
    their own widths (:func:`own_draft_bytes`).
    """
    drafts = {group.name for group in model.layers if group.name.startswith(_DRAFT)}
    if not drafts or compressed.is_compressed(model):
        return model
    release = release_of(engine)
    windowed = shapes.layers(model, engine).windowed
    if drafts_blocks(model):
        counted_here = not windowed and not release.has("block_drafts_by_own_widths")
    else:
        own = engine.lists("own_drafts_counted", model.architecture)
        counts = release.has("drafts_beside_windows" if windowed else "weighs_drafts")
        counted_here = counts and (own or not drafts_itself(model))
    if counted_here:
        return model
    values = {name: getattr(model, name) for name in type(model).model_fields}
    values["layers"] = tuple(group for group in model.layers if group.name not in drafts)
    return type(model).model_construct(**values)


def own_draft_bytes(model: Model, engine: Engine, ranks: int, element: float) -> int:
    """Bytes of one token in the layers of a draft that is counted by its own widths: one that drafts blocks.

    ``srt/speculative/dflash_utils.py::dflash_draft_cell_size_per_token``; the draft's cache has the type of
    the target's. Compressed pools are widened instead.

    ``ranks``: ranks that divide the heads. ``element``: bytes of one cached element.
    """
    early = not release_of(engine).has("block_drafts_by_own_widths")
    if early or not drafts_blocks(model) or compressed.is_compressed(model):
        return 0
    draft = draft_alone(model)
    layers = sum(group.count for group in draft.layers)
    return int(shapes.token_elements(draft, ranks) * layers * element)


def stage_rule(model: Model, engine: Engine, flags: PoolFlags, layout: Layout, stage: Model) -> Division:
    """Which pools a pipeline stage has.

    Every stage sets as much aside for states as the stage with most of them needs, and up to 0.5.16 as much as the whole
    model does (``kv_cache_configurator.py::_handle_max_mamba_cache``). Up to 0.5.20 a stage with a window pool counts
    the layers of the whole model (``pool_configurator.py::HybridSWAPoolConfigurator``).
    """
    rule = pool_rule(stage, engine, flags)
    if shapes.layers(model, engine).windowed and not release_of(engine).has("windows_of_stage"):
        rule = pool_rule(model, engine, flags)
    one = pool_rule(model, engine, flags).state_bytes
    if not one:
        return rule
    keeping = {
        index
        for group in model.layers
        if any(cache.kind == "state" for cache in group.caches)
        for index in group.indices
    }
    sizes = partition_of(engine, model, layout)
    dealt = stage_layers(model.layer_count, layout.pipeline, sizes)
    most = max(len(keeping & set(layers)) for layers in dealt) if sized_with_scales(engine) else len(keeping)
    return replace(rule, state_bytes=int(one * (most / len(keeping))))


def pool_flags(
    model: Model,
    engine: Engine,
    case: Case,
) -> PoolFlags:
    """What SGLang makes of the flags where pools are concerned.

    Raises:
        InputError: If the format cannot store one of the model's caches.
    """
    serving, kv_format = case.serving, case.kv_format
    layout, accelerator = case.layout, case.accelerator
    for cache in model.every_cache:
        if cache.kind in GROWING and cache.kind != "shared":
            require_storable(cache.kind, kv_format)
    prefix_cache = serving.prefix_caching is not False
    backend = settings.attention_backend(model, engine, accelerator, prefix_cache)
    requests, chunk_tokens = step_sizes(serving)
    if requests is None and serving.draft_tokens:
        requests = trait(engine, "drafting_requests")
    if requests is None and compressed.is_compressed(model):
        requests = settings.COMPRESSED_REQUESTS
    return PoolFlags(
        element_bytes=element_bytes(kv_format),
        attention_ranks=layout.tensor,
        data_ranks=layout.data,
        context_ranks=layout.decode_context,
        page_tokens=settings.page_size(model, engine, backend, serving.block_tokens),
        context_tokens=model.context_tokens,
        window_share=serving.window_share or default_window_share(model, engine),
        state_share=default_state_share(model, engine),
        states_per_request=settings.states_per_request(
            model, engine, prefix_cache=prefix_cache, overlap=True, staged=layout.pipeline > 1
        ),
        max_requests=None if requests is None else max(1, requests // layout.data),
        max_states=None if serving.max_states is None else max(1, serving.max_states // layout.data),
        prefix_cache=prefix_cache,
        overlap=layout.pipeline == 1,
        chunk_tokens=settings.chunk_of(model, engine, chunk_tokens, layout.data),
        draft_tokens=serving.draft_tokens + 1 if serving.draft_tokens else 0,
        scaled_latents=sized_with_scales(engine)
        and scaled_latents(model, engine, accelerator, layout.decode_context),
        spare_states=int(sized_with_scales(engine)),
        narrow_index=settings.narrows_index(model, engine, kv_format, accelerator),
    )


def sized_with_scales(engine: Engine) -> bool:
    """False where pools are sized as if a latent in FP8 had no scales, and allocated with them."""
    return release_of(engine).has("sized_with_scales")


def step_sizes(serving: Serving) -> tuple[int | None, int]:
    """Requests at once where they are given, and tokens of a chunk where a window pool is sized by both, else 0.

    Without a prefix cache, that is (0.5.23, ``compute_swa_request_cap``).
    """
    told = serving.seqs_told or serving.max_seqs != MOST_REQUESTS
    return (
        serving.max_seqs if told else None,
        serving.max_batched_tokens if serving.prefix_caching is False else 0,
    )


@remembered
def device_traits(
    model: Model, engine: Engine, kv_format: KvFormat | None, accelerator: Accelerator | None
) -> tuple[Hashable, ...]:
    """What of a device decides the pools of a model, with a prefix cache and without one."""
    caching, without = (settings.attention_backend(model, engine, accelerator, one) for one in (True, False))
    return (
        settings.paged_as(model, engine, caching),
        settings.paged_as(model, engine, without),
        scaled_latents(model, engine, accelerator),
        settings.narrows_index(model, engine, kv_format, accelerator),
        flag_combinations.stores_narrow(kv_format, accelerator),
    )


def default_window_share(model: Model, engine: Engine) -> float:
    """``swa_full_tokens_ratio`` where it is not given: less for compressed caches, and for classes that the engine lists."""
    if compressed.is_compressed(model):
        return compressed.WINDOW_SHARE
    return TENTH if engine.lists("tenth_shares", model.architecture) else WINDOW_SHARE


def default_state_share(model: Model, engine: Engine) -> float:
    """``mamba_full_memory_ratio`` where it is not given: less for classes that the engine lists."""
    return TENTH if engine.lists("tenth_shares", model.architecture) else STATE_SHARE


def scaled_latents(
    model: Model, engine: Engine, accelerator: Accelerator | None, context_ranks: int = 1
) -> bool:
    """True if sparse latents in FP8 keep scales: on Blackwell TensorRT-LLM's kernels, on AMD TileLang's read plain rows.

    But for a class that FlashInfer serves on SM12x (``_dsa_split_backend_resolution``). Where context ranks divide
    the tokens, TensorRT-LLM's kernels are taken everywhere in newer releases
    (``model_overrides/deepseek_v2.py::_dsa_dcp_overrides``).

    ``accelerator``: the device; None for a Hopper GPU. ``context_ranks``: ranks that divide the tokens of
    a request (``--dcp-size``).
    """
    plain = context_ranks > 1 and release_of(engine).has("index_on_every_rank")
    if plain or (accelerator is not None and accelerator.vendor == "AMD"):
        return False
    if shapes.indexer_of(model) is None:
        return False
    major = settings.capability(accelerator)
    if major == settings.CONSUMER_BLACKWELL:
        return engine.lists("scaled_on_sm120", model.architecture)
    return major < settings.BLACKWELL


def element_bytes(kv_format: KvFormat | None) -> float:
    """Bytes of one cached element, its share of a scale included."""
    if kv_format is None:
        return SERVED_BYTES
    scale = kv_format.scale_bytes / kv_format.scale_every if kv_format.scale_every else 0.0
    return kv_format.bits / 8 + (scale if kv_format.bits < 8 else 0.0)


def default_kv_format(model: Model, accelerator: Accelerator | None) -> str | None:
    """The KV format that ``auto`` means, by name.

    What a checkpoint declares; for sparse latents the device decides instead: FP8 from Blackwell on, the
    model's type below (``_dsa_kv_cache_dtype_default``).
    """
    sparse = shapes.latent_of(model) is not None and shapes.indexer_of(model) is not None
    if not sparse or compressed.is_compressed(model):
        return model.kv_format
    return "fp8" if settings.capability(accelerator) >= 10 else None


def _states_only(rule: Division) -> BlockPlan:
    """A model that caches no tokens: a request holds states, which get their share of the pool alone."""
    share = rule.flags.state_share / (1 + rule.flags.state_share)
    held = ceil(rule.state_bytes * rule.flags.states_per_request / share)
    return BlockPlan(
        block_bytes=held,
        profile=CacheProfile((Term("state", constant_bytes=held),)),
        block_tokens=rule.flags.context_tokens,
        notes=tuple(_notes(rule)),
    )


def encoder_tokens(model: Model) -> int:
    """Tokens of an encoder's output that a request keeps: they take slots of all layers, like its own tokens.

    ``managers/schedule_batch.py::prepare_encoder_info_extend`` takes them off the slots that a request is given (0.5.9).
    """
    return max(
        (cache.encoder_tokens for cache in model.every_cache if isinstance(cache, CrossAttention)),
        default=0,
    )


_UNCOUNTED_DRAFT: Final = (
    "the draft's layers are not counted by {}: their cache comes out of what it keeps free"
)


def _uncounted(
    rule: Division,
    rule_with: Callable[[PoolFlags], Division],
    model: Model,
    engine: Engine,
    case: Case,
) -> list[str]:
    """Up to 0.5.16 sparse latents in FP8 are sized without their scales and a wide rotary part, and stored with them.

    ``get_cell_size_per_token`` and ``calculate_mla_kv_cache_dim`` of ``model_runner_kv_cache_mixin.py`` (0.5.9, 0.5.13).
    """
    stored = scaled_latents(model, engine, case.accelerator, case.layout.decode_context)
    if rule.flags.scaled_latents or rule.flags.element_bytes != 1 or not stored:
        return []
    taken = rule_with(replace(rule.flags, scaled_latents=True)).cell_bytes
    if taken <= rule.cell_bytes:
        return []
    said = f"{engine.label} counts {rule.cell_bytes:,.0f} B for a token and takes {taken:,.0f} B"
    return [f"{said}: scales of FP8 latents are not counted, and come out of what it keeps free"]


def _notes(rule: Division, encoder: int = 0) -> list[str]:
    notes = []
    flags = rule.flags
    if encoder:
        notes.append(
            f"{encoder:,} encoder tokens of a request with an image or sound take slots of all layers"
        )
    if rule.window is not None and not rule.shared_window:
        if rule.fixed_window is None:
            notes.append(
                f"sliding-window layers have a pool of {flags.window_share} cells per cell of full attention"
            )
        else:
            notes.append(
                f"sliding-window layers have a pool of {rule.fixed_window:,} cells, sized by the requests at once"
            )
    if rule.state_bytes:
        share = flags.state_share / (1 + flags.state_share)
        notes.append(
            f"{share:.0%} of the pool is kept for recurrent states, {flags.states_per_request} per request"
        )
    return notes
