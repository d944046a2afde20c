"""What options of a question do to the model, the engine and the release that it names, and which it does not follow.

``assumed`` collects what an answer takes for granted; ``text_draft`` is the method that drafts from text, if one is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvreport.accounting.engines.step import DraftKind
from kvreport.accounting.extras import (
    Draft,
    is_head,
    own_prediction_layer,
    with_draft,
)
from kvreport.accounting.state_types import with_precisions
from kvreport.accounting.text_drafts import TEXT_DRAFTS, drafts_from_text
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import release_of
from kvreport.catalog.support import Support
from kvreport.errors import InputError, shorten
from kvreport.estimation.commands import OWN_DRAFT
from kvreport.estimation.named import resolve_model
from kvreport.estimation.not_followed import NotFollowed, not_followed
from kvreport.query import Query, options, several_of
from kvreport.resources import read_table
from kvreport.words import ENGINES

_EXPERT_KERNELS: Final[dict[str, Any]] = read_table("kernels of experts")
"""What serves 4-bit experts by ``--moe-backend`` where they are padded in their own way or exchange tokens by themselves (0.33.0
``config/kernel.py``, ``MEGA_MOE_BACKENDS``; the last on AMD's devices). Others are not followed."""


def with_kernel(query: Query, engine: Engine, assumed: list[str]) -> Engine:
    """The record with the kernels of MXFP4 experts that are asked for.

    Raises:
        InputError: If the engine has no such choice.
    """
    named = query.moe_backend
    if named in (None, "auto"):
        return engine
    if "moe_backend_flag" not in release_of(engine).values:
        raise InputError(
            f"moe-backend: found {shorten(named)} for {engine.label}; allowed with vLLM, which has such a choice"
        )
    kernel = _EXPERT_KERNELS.get(named)
    if kernel != named:
        followed = "not followed" if kernel is None else "experts process only the tokens of their own rank"
        assumed.append(
            f"moe-backend {shorten(named)}: {followed}; experts are padded as by the release's own choice"
        )
    return engine.model_copy(update={"expert_kernel": kernel})


def with_runner(
    query: Query, engine: Engine, draft: Draft | None, text_draft: str | None, assumed: list[str]
) -> Engine:
    """The record with the model runner that is asked for, or that a draft model is left to.

    Raises:
        InputError: If the engine has no such choice, or its release none yet.
    """
    release = release_of(engine)
    two = release.values.get("second_runner", "none") != "none"
    if query.model_runner in (None, "auto"):
        if draft is None and text_draft is None:
            return engine
        kind: DraftKind = "head" if draft is not None and is_head(draft) else "model"
        if text_draft is not None:
            kind = "suffix" if text_draft == "suffix" else "ngram"
        if not two or kind in release.names("second_runner_drafts"):
            return engine
        named = {"ngram": "n-grams", "suffix": "suffix decoding"}.get(kind, "draft models")
        assumed.append(f"first model runner: the second one has no {named} in this release")
        # The first runner takes no second step in flight beside drafts from the text (0.26.0 to 0.33.0 config/vllm.py).
        steps = {} if text_draft is None else {"steps_in_flight": 1}
        return engine.model_copy(update={"model_runner": "first", **steps})
    if not two:
        raise InputError(
            f"model-runner: found {query.model_runner} for {engine.label}; allowed with vLLM since 0.22, which has such a choice"
        )
    return engine.model_copy(update={"model_runner": query.model_runner})


def text_draft_of(query: Query, engine: Engine) -> str | None:
    """The method that drafts from text where one is asked for; None otherwise.

    Raises:
        InputError: If the engine does not have it, or the number of tokens is not stated.
    """
    named = query.draft.lower() if isinstance(query.draft, str) else ""
    if named not in TEXT_DRAFTS:
        return None
    if not drafts_from_text(engine.family, named):
        having = " or ".join(ENGINES[family.replace("_", "-")] for family in TEXT_DRAFTS[named])
        raise InputError(
            f"draft: found {named} for {engine.label}; allowed with {having}, which have it, or a draft model"
        )
    if not query.num_speculative_tokens:
        raise InputError(
            f"draft: found {named} without a number of tokens; allowed: --num-speculative-tokens N"
        )
    return named


def drafted_tokens(query: Query, draft: Draft | None, text_draft: str | None, assumed: list[str]) -> int:
    """Tokens drafted in a step; 0 without speculative decoding."""
    if draft is not None and not query.num_speculative_tokens:
        assumed.append("num-speculative-tokens 1: not stated")
        return 1
    return query.num_speculative_tokens if draft is not None or text_draft is not None else 0


def draft_of(query: Query, target: Model, catalog: Catalog, assumed: list[str]) -> Draft | None:
    """The draft model that is asked for, or the checkpoint's own prediction layers; None without speculative decoding.

    Raises:
        InputError: If it is not known, or the model has no prediction layers of its own.
    """
    if query.draft is None and not query.num_speculative_tokens:
        return None
    if query.draft is None:
        if not any(row.component == "mtp" for row in target.weights):
            raise InputError(
                f"num-speculative-tokens: found {query.num_speculative_tokens} without a draft, and {target.id} has no "
                "MTP layers; allowed: --draft MODEL, or --draft ngram for drafts from the text"
            )
        assumed.append(f"draft {OWN_DRAFT}: the checkpoint's own MTP layers, because no draft was named")
        return with_draft(target, own_prediction_layer(target))
    if isinstance(query.draft, str) and query.draft.lower() == OWN_DRAFT:
        return with_draft(target, own_prediction_layer(target))
    try:
        draft = resolve_model(query.draft, catalog)
    except InputError as error:
        raise InputError(f"draft: {error}") from error
    return with_draft(target, draft)


def with_index_type(
    query: Query, engine: Engine, model: Model, device: Accelerator
) -> tuple[Model, tuple[NotFollowed, ...]]:
    """A model with the type of index keys that was asked for, where its class in vLLM takes one."""
    asked = query.indexer_kv_dtype
    if asked in (None, "auto"):
        return model, ()
    name = "index_keys_typed_on_amd" if device.vendor.upper() == "AMD" else "index_keys_typed"
    if not engine.lists(name, model.architecture):
        said = f"no effect: {engine.label} stores index keys of {model.architecture or model.id} in one type here"
        return model, (NotFollowed("--indexer-kv-dtype", asked, None, said),)
    return (with_precisions(model, (("index", "float8"),)) if asked == "fp8" else model), ()


ENCODES_VIDEOS: Final = "one_encoder_of_images_and_videos"
"""The engine's list of classes whose encoder of images reads videos, too."""


def serves_images(limits: Mapping[str, int], model: Model, engine: Engine) -> bool:
    """False where images are limited to none and nothing else is asked for: text only.

    Where one encoder reads images and videos, videos must be limited to none, too: it is left out only if it serves
    nothing (vLLM 0.15.1 to 0.33.0, ``models/interfaces.py``, ``_mark_tower_model``).
    """
    if limits.get("image") != 0 or any(limits.values()):
        return True
    return "video" not in limits and engine.lists(ENCODES_VIDEOS, model.architecture)


def inputs_of(limits: Mapping[str, int] | Sequence[str] | str | None) -> dict[str, int]:
    """Inputs of a kind per prompt, as far as they are limited.

    Raises:
        InputError: If a limit is no number of inputs of a kind.
    """
    if limits is None:
        return {}
    if isinstance(limits, Mapping):
        pairs = {str(name): number for name, number in limits.items()}
    else:
        pairs = {}
        for text in several_of("limit-mm-per-prompt", limits, str, none=True):
            if text.lstrip().startswith("{"):
                pairs |= _inputs_in_json(text)
                continue
            for pair in text.split(","):
                name, mark, number = pair.partition("=")
                if not mark or not (number.isascii() and number.strip().isdigit() and len(number) < 10):
                    raise InputError(
                        f"limit-mm-per-prompt: found {shorten(text)}; allowed: KIND=N, such as image=2 or image=0,video=0"
                    )
                pairs[name.strip().lower()] = int(number)
    for name, value in pairs.items():
        if name not in ("image", "video", "audio"):
            raise InputError(f"limit-mm-per-prompt: found {shorten(name)}; allowed: image, video, audio")
        whole_number(f"limit-mm-per-prompt {name}", value, 0, 1 << 16)
    return pairs


def _inputs_in_json(text: str) -> dict[str, int]:
    """Limits as vLLM's own flag takes them: numbers by kind, or objects with a ``count``."""
    try:
        found = json.loads(text)
        stated = {name: each["count"] if isinstance(each, dict) else each for name, each in found.items()}
    except (ValueError, KeyError, AttributeError, RecursionError):
        stated = None
    if stated is None or not all(type(each) is int for each in stated.values()):
        raise InputError(
            f'limit-mm-per-prompt: found {shorten(text)}; allowed: KIND=N, such as image=2, or {{"image": 2}}'
        )
    return {name.lower(): each for name, each in stated.items()}


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` if it is a whole number from ``low`` to ``high``; ``name`` says what it is in the message.

    Raises:
        InputError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name}: found {shorten(value)}; allowed: a whole number from {low:,} to {high:,}")
    return value


def sampler_not_followed(query: Query, engine: Engine, accelerator: Accelerator) -> list[str]:
    """That a sampler was asked for where the release, or the device, has one alone."""
    asked = query.sampler
    if asked in (None, "auto"):
        return []
    on_device = asked == "sort" or accelerator.vendor.upper() == "NVIDIA"
    if release_of(engine).word("sampler_by_installation") != "never" and on_device:
        return []
    return [f"sampler {asked}: not followed; {engine.label} has one sampler on {accelerator.name}"]


SORTS: Final = {"sort": True, "flashinfer": False}
"""What ``--sampler`` says of sorting; nothing with ``auto``."""


def unused(query: Query, engine: Engine, support: Support | None, nodes: int) -> tuple[NotFollowed, ...]:
    """What is given and not followed; options that the engine does not have are refused.

    ``nodes``: machines that the deployment spans.

    Raises:
        InputError: If the engine has no such option, or a rank is given without adapters.
    """
    found = not_followed(query, engine, support, nodes=nodes)
    if query.mamba_ssm_cache_dtype not in (None, "auto") and not engine.device_classes:
        raise InputError(
            f"mamba-ssm-cache-dtype: found {query.mamba_ssm_cache_dtype} for {engine.label}; allowed with vLLM and "
            "SGLang, which have such a flag"
        )
    if query.sampler not in (None, "auto") and "sampler_by_installation" not in release_of(engine).values:
        raise InputError(
            f"sampler: found {query.sampler} for {engine.label}; allowed with vLLM, whose releases up to 0.16 have such a choice"
        )
    default = next(option.default for option in options() if option.name == "max_lora_rank")
    if query.max_lora_rank != default and not query.max_loras:
        raise InputError(
            f"max-lora-rank: found {query.max_lora_rank} without adapters; allowed with --max-loras of at least 1"
        )
    return found
