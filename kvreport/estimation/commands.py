"""How to serve it: the command that starts an engine with the numbers of an answer.

What an engine is told is its own (:meth:`kvreport.accounting.engines.protocol.EngineRules.command`); here an answer
becomes :class:`Served`, and words become a line for a shell.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, get_args

from kvreport.accounting.compute_type import WIDE, computed_in, stored_type
from kvreport.accounting.engines.by_family import FAMILIES
from kvreport.accounting.engines.command import Command, Served
from kvreport.accounting.extras import METHODS
from kvreport.accounting.shares import stated_share
from kvreport.catalog.load import RELEASED
from kvreport.catalog.release import release_of, trait
from kvreport.catalog.server_flags import flag_names, with_flags
from kvreport.estimation.config_overrides import key_tree
from kvreport.words import COMMAND_NOTES, ONLINE_WEIGHTS

if TYPE_CHECKING:
    from kvreport.estimation.answer import Estimate
    from kvreport.estimation.request import Request
    from kvreport.query import Query

OWN_DRAFT: Final = "mtp"
"""Names a checkpoint's own prediction layer as its draft."""
Server = Literal["vllm", "sglang", "tensorrt_llm"]
SERVERS: Final[tuple[Server, ...]] = get_args(Server)
"""Engines that a command starts."""

_PLAIN_KV: Final = frozenset({"bf16"})


def serving_command(server: Server, served: Served) -> str:
    """Return the command as one line for a shell; names are quoted.

    Raises:
        KeyError: For an engine that is no server.
    """
    command = FAMILIES[server].command(served)
    if command is None:
        raise KeyError(server)
    return shell_line(command)


def shell_line(command: Command) -> str:
    """A command as one line for a shell: arguments in JSON are compact, names are quoted."""
    words = (
        word if isinstance(word, str) else json.dumps(dict(word), separators=(",", ":"))
        for word in command.words
    )
    background = (*command.server, "&") if command.server else ()
    return " ".join((*command.environment, *background, *map(shlex.quote, words)))


def checkpoint_note(served: Served) -> str | None:
    """Say what the command cannot: that a checkpoint in another format must be found first."""
    if served.weight_format == RELEASED or served.weight_format in ONLINE_WEIGHTS:
        return None
    return COMMAND_NOTES["checkpoint"].format(model=served.model, format=served.weight_format)


def adapters_note(estimate: Estimate) -> str | None:
    """Say what the command cannot of adapters: SGLang wants to know which layers they change (``lora_hook.py``, 0.5.23)."""
    family = estimate.request.engine.family
    note = COMMAND_NOTES.get(f"adapters_{family}")
    if note is None or not estimate.request.lora_slots[0]:
        return None
    flags = flag_names(family)
    return note.format(paths=flags["lora_paths"], modules=flags["lora_target_modules"])


def nodes_note(served: Served) -> str | None:
    """Say what the command cannot where a replica stands in several servers: who is first, and which this is."""
    if served.layout.nodes == 1:
        return None
    vllm = COMMAND_NOTES["nodes_by_data" if served.layout.data > 1 else "nodes_by_rank"]
    return with_flags(COMMAND_NOTES["nodes"]).format(nodes=served.layout.nodes, vllm=with_flags(vllm))


def pool_note(estimate: Estimate) -> str | None:
    """Say where a pool that is given by hand can only be less than the engine's own."""
    flag = trait(estimate.request.engine, "pool_cap")
    if not flag or estimate.request.kv_pool_bytes is None or estimate.kv_pool_tokens is None:
        return None
    return COMMAND_NOTES["pool"].format(flag=flag, engine=estimate.request.engine.label)


def _each_runs(estimate: Estimate) -> int | None:
    """Requests at once that a data rank is told to run; None where nothing was asked."""
    query, laid = estimate.request.query, estimate.deployment
    if query is None or query.max_seqs is None:
        return None
    if laid is None or estimate.request.layout.data == 1:
        return query.max_seqs
    return laid.max_requests


def served_by(estimate: Estimate) -> Served:
    """What the serving command of an estimate must say: what was asked for, and what the verdict rests on."""
    request, query = estimate.request, estimate.request.query
    layout, engine = request.layout, request.case.rules
    default = engine.default_kv_format(request.model, request.accelerator) or "bf16"
    tokens = estimate.kv_pool_tokens
    usual = stated_share(request.engine, None) if request.kv_pool_bytes is None else request.utilization
    return Served(
        model=request.model.id,
        layout=layout,
        context_tokens=request.context_tokens,
        max_seqs=_each_runs(estimate),
        weight_format=RELEASED if request.weight_format_name == WIDE else request.weight_format_name,
        kv_format=request.kv_format.name,
        kv_is_own=request.kv_format.name in (default, WIDE),
        utilization=request.utilization if request.utilization != usual else None,
        dtype=_stated_type(request),
        max_batched_tokens=None if query is None else query.max_batched_tokens,
        eager=request.eager,
        kv_pool_bytes=request.kv_pool_bytes,
        pool_tokens=None if request.kv_pool_bytes is None else tokens and tokens // layout.data,
        caches=request.serving,
        images=request.images,
        lora_slots=request.lora_slots,
        offload_bytes=request.kv_offload_bytes,
        inputs=tuple(sorted(request.inputs.items())) if request.images else (),
        draft=None
        if request.draft is None
        or query is None
        or query.draft is None
        or str(query.draft).lower() == OWN_DRAFT
        else str(query.draft),
        draft_method=request.text_draft
        or (None if request.draft is None else METHODS.get(request.draft.model.family)),
        model_runner=_told(query, "model_runner") or "",
        state_type=_told(query, "mamba_ssm_cache_dtype"),
        index_type=_told(query, "indexer_kv_dtype"),
        expert_kernels=_told(query, "moe_backend")
        if release_of(request.engine).has("moe_backend_flag")
        else None,
        changed_keys=key_tree(query.hf_overrides) if query is not None and query.hf_overrides else {},
        any_context=query is not None and query.any_context,
    )


def _told(query: Query | None, name: str) -> str | None:
    """What was asked for by an option that is the engine's own choice if it is not given; None for that."""
    told = None if query is None else getattr(query, name)
    return None if told in (None, "auto") else str(told)


def _stated_type(request: Request) -> str | None:
    """The type to state: the one asked for, or the one that the release falls back to on this device."""
    if request.support is None or request.dtype is not None:
        return request.dtype
    model, engine = request.model, request.engine
    form = model.weight_format if request.weight_format is None else request.weight_format.name
    ruling = request.support.ruling(engine.family, engine.version)
    falls = computed_in(ruling, request.accelerator, model, form, None)
    own = model.dtype if request.weight_format is None or form == WIDE else stored_type(model, form)
    return falls if falls not in (own, model.dtype) and model.weight_format in _PLAIN_KV else None


def estimate_command(estimate: Estimate) -> str | None:
    """The command that starts the engine as an estimate describes it; None where it does not start.

    None, too, for engines without a server, and for devices that differ, which no flag tells.
    """
    command = _command_of(estimate)
    return None if command is None else shell_line(command)


def options_of(estimate: Estimate) -> Mapping[str, object]:
    """What the file that an estimate's command names must say; empty where it names none."""
    command = _command_of(estimate)
    return {} if command is None else command.options


def _command_of(estimate: Estimate) -> Command | None:
    request = estimate.request
    if estimate.verdict not in ("fits", "tight") or len({one.id for one in request.accelerators}) > 1:
        return None
    return request.case.rules.command(served_by(estimate))
