"""How llama.cpp is started, in its own words, and what its defaults make of that."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from kvreport.accounting.engines.command import Command, LocalServed, Word
from kvreport.accounting.engines.llama_cpp.types import cache_type
from kvreport.accounting.text_drafts import LOCAL_TEXT_DRAFTS
from kvreport.catalog.release import release_at, release_number
from kvreport.catalog.server_flags import flag_names
from kvreport.errors import InputError
from kvreport.units import MIB

FAMILY: Final = "llama_cpp"

DEFAULT_SLOTS: Final = 4
"""Slots of llama-server without ``--parallel``; the cache is unified then (``tools/server/server.cpp``)."""

CELL_MULTIPLE: Final = 256
"""Cells are allocated in multiples of this (``llama-context.cpp``, ``llama-kv-cache-iswa.cpp``)."""

DEFAULT_CACHE_RAM: Final = 8192 << 20
"""Host memory that llama-server's prompt cache may grow to (``--cache-ram``, ``common/common.h``)."""

DEFAULT_CHECKPOINTS: Final = 32
"""Checkpoints of windows and states that a slot may keep in host memory (``--ctx-checkpoints``)."""

SplitMode = Literal["layer", "row", "none"]
FlashAttention = Literal["on", "off", "auto"]


@dataclass(frozen=True)
class LocalOptions:
    """Options of ``llama-server``."""

    context: int = 0  # ``--ctx-size``: cells of all slots together; 0 is the model's own context.
    parallel: int | None = None  # ``--parallel``: slots; None is the server's default.
    unified: bool | None = None  # ``--kv-unified``; None is the server's default (on without ``--parallel``).
    type_k: str = "f16"  # ``--cache-type-k``.
    type_v: str = "f16"  # ``--cache-type-v``.
    batch: int = 2048  # ``--batch-size``.
    ubatch: int = 512  # ``--ubatch-size``.
    flash: FlashAttention = "auto"  # ``--flash-attn``.
    swa_full: bool = False  # ``--swa-full``: window layers keep every token.
    gpu_layers: int | None = None  # ``--n-gpu-layers``; None is all.
    cpu_moe: int = 0  # ``--n-cpu-moe``: layers, from the first, whose routed experts stay on the CPU.
    split_mode: SplitMode = "layer"
    # ``--tensor-split``: shares of the devices; empty is by free memory.
    tensor_split: tuple[float, ...] = ()
    kv_offload: bool = True  # False with ``--no-kv-offload``.
    op_offload: bool = True  # False with ``--no-op-offload``.
    # Tokens of a micro-batch whose logits are computed; None is the server's rule.
    outputs: int | None = None
    draft: int = 0  # Draft tokens per step (speculative decoding); states are kept once more for each.
    draft_type_k: str = "f16"  # ``--cache-type-k-draft``, of the context that drafts.
    draft_type_v: str = "f16"  # ``--cache-type-v-draft``.
    embeddings: bool = False  # True if embeddings are returned beside logits.
    # ``--override-tensor``: patterns and the buffer types that matching tensors go to (``CPU``, ``CUDA0``,
    # ...); the first that matches wins.
    overrides: tuple[tuple[str, str], ...] = ()
    main_gpu: int = 0  # ``--main-gpu``: the device that ``--split-mode none`` uses.
    ngram: str = ""  # The method that drafts from text (``--spec-type ngram-…``), or empty.
    # True with ``--spec-type draft-mtp``: the file's prediction blocks are loaded and draft tokens.
    mtp: bool = False
    ubatch_given: bool = True  # False if nobody stated ``--ubatch-size``, so that Ollama may choose one.
    cache_ram: int = DEFAULT_CACHE_RAM  # ``--cache-ram``: bytes that the prompt cache may take.
    checkpoints: int = DEFAULT_CHECKPOINTS  # ``--ctx-checkpoints``: checkpoints per slot.
    # True for builds that keep attention masks in 32 bits beside the 16-bit copies they use.
    wide_masks: bool = False
    # Backends that reserve 16-bit copies of the caches that flash attention reads.
    cache_copies: tuple[str, ...] = ("cuda", "metal")

    @property
    def slots(self) -> int:
        """Sequences that the server keeps apart (``n_seq_max``)."""
        return DEFAULT_SLOTS if self.parallel is None else self.parallel

    @property
    def is_unified(self) -> bool:
        """True if all slots share one row of cells."""
        return self.parallel is None if self.unified is None else self.unified

    @property
    def uses_flash(self) -> bool:
        """True unless flash attention is off."""
        return self.flash != "off"

    def check(self, *, latent: bool = False) -> None:
        """Refuse what llama.cpp refuses.

        ``latent``: True for a model with latent attention.

        Raises:
            InputError: Which option, what was found, what is allowed.
        """
        for field, value, least in (
            ("--parallel", self.slots, 1),
            ("--ubatch-size", self.ubatch, 1),
            ("--batch-size", self.batch, 1),
            ("--context", self.context, 0),
            ("--n-cpu-moe", self.cpu_moe, 0),
        ):
            if value < least:
                raise InputError(f"{field}: found {value}; allowed: {least} or more")
        key, value_type = (
            cache_type(self.type_k, "--cache-type-k"),
            cache_type(self.type_v, "--cache-type-v"),
        )
        if value_type.quantized and not self.uses_flash:
            raise InputError(
                f"--cache-type-v: found {value_type.name} with --flash-attn off; llama.cpp stores quantized "
                "values only with flash attention: use --flash-attn on, or --cache-type-v f16"
            )
        if latent and key != value_type:
            raise InputError(
                f"--cache-type-k: found {key.name} with --cache-type-v {value_type.name}; latent attention keeps "
                f"one cache, so both must be the same: --cache-type-v {key.name}"
            )


def parse_overrides(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Read ``--override-tensor`` values: ``PATTERN=BUFFER`` with commas between them.

    ``texts``: one text per flag.

    Returns:
        Patterns and buffer types, in order.

    Raises:
        InputError: If a part has no buffer type, or its pattern is no regular expression.
    """
    found = []
    for part in (piece for text in texts for piece in text.split(",") if piece):
        pattern, equals, buffer = part.rpartition("=")
        if not equals or not pattern or not buffer:
            raise InputError(
                f"--override-tensor: found {part!r}; allowed: PATTERN=BUFFER, such as ffn_.*_exps=CPU"
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(
                f"--override-tensor: found {pattern!r}: {error}; allowed: a regular expression"
            ) from error
        found.append((pattern, buffer))
    return tuple(found)


def padded(cells: int) -> int:
    """Cells rounded up as llama.cpp allocates them."""
    return -(-cells // CELL_MULTIPLE) * CELL_MULTIPLE


def for_build(options: LocalOptions, version: str) -> LocalOptions:
    """Options with what an older build does differently, by ``data/engines/llama_cpp/rules.yaml``.

    ``version``: a build such as ``b9849``, or a commit, which means the current rules.
    """
    release = release_at(FAMILY, release_number(FAMILY, version))
    outputs = 0 if options.outputs is None and release.has("whole_batch_outputs") else options.outputs
    copies = tuple(one for one in options.cache_copies if one in release.names("cache_copies"))
    wide = options.wide_masks or release.has("wide_masks")
    return replace(options, outputs=outputs, wide_masks=wide, cache_copies=copies)


_ALL_LAYERS: Final = 1 << 12
"""More layers than any model has: all experts on the CPU."""


def server_command(served: LocalServed) -> Command:
    """How llama-server is started."""
    options = served.options
    source = ["-m", served.file] if served.repository is None else ["-hf", served.repository]
    words: list[Word] = ["llama-server", *source, *flags(options)]
    drafted = [flag_names("llama_cpp")["spec_draft_n_max"], str(options.draft)]
    if served.draft is not None:
        words += ["-md", served.draft, *drafted]
    if options.ngram:
        usual, flag = LOCAL_TEXT_DRAFTS[options.ngram]
        words += ["--spec-type", options.ngram]
        words += [flag, str(options.draft)] if options.draft != usual else []
    if options.mtp:
        words += ["--spec-type", "draft-mtp", *drafted]
    if served.projector is not None:
        words += ["--mmproj", served.projector]
        words += [] if served.projector_offload else ["--no-mmproj-offload"]
    words += [] if served.changes else ["--fit", "off"]
    return Command(tuple(words))


def flags(options: LocalOptions) -> list[Word]:
    """Flags of ``llama-server`` that differ from its defaults, the context always."""
    words: list[Word] = ["-c", str(options.context)]
    words += [] if options.parallel is None else ["-np", str(options.parallel)]
    if options.unified and options.parallel is not None:
        words.append("-kvu")
    stated = (
        ("-b", options.batch, 2048), ("-ub", options.ubatch, 512), ("-ngl", options.gpu_layers, None),
        ("-ctk", options.type_k, "f16"), ("-ctv", options.type_v, "f16"), ("-fa", options.flash, "auto"),
        ("-sm", options.split_mode, "layer"), ("-mg", options.main_gpu, 0),
    )  # fmt: skip
    for flag, value, usual in stated:
        words += [flag, str(value)] if value != usual else []
    if options.cache_ram != DEFAULT_CACHE_RAM:
        words += ["--cache-ram", str(options.cache_ram // MIB)]
    if options.checkpoints != DEFAULT_CHECKPOINTS:
        words += ["--ctx-checkpoints", str(options.checkpoints)]
    if options.cpu_moe:
        words += ["--cpu-moe"] if options.cpu_moe > _ALL_LAYERS else ["--n-cpu-moe", str(options.cpu_moe)]
    if options.tensor_split:
        words += ["-ts", ",".join(f"{share:g}" for share in options.tensor_split)]
    if options.overrides:
        words += ["-ot", ",".join(f"{pattern}={buffer}" for pattern, buffer in options.overrides)]
    switches = (
        ("--swa-full", options.swa_full), ("--no-kv-offload", not options.kv_offload),
        ("--no-op-offload", not options.op_offload),
    )  # fmt: skip
    return words + [flag for flag, on in switches if on]
