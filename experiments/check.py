"""The check against the installed transformers: parameters to the last digit, caches to the byte.

``python -m experiments check`` takes the configs that lie here, or any ``config.json`` files. For
each it builds the published model on the meta device and counts its parameters, and builds a
narrowed one with real tensors, prefills it below and past its window, and adds up its cache.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub.errors import StrictDataclassError

from experiments import theory
from experiments.cache import held
from experiments.e2 import count
from experiments.models import SMALL_LENGTHS, SMALL_WINDOW, Subject, build, known, narrow, of_config, subject
from experiments.prefill import prefill, tokens
from kvreport.accounting.weights import parameters as whole_parameters
from kvreport.errors import InputError

LARGEST: Final = 300_000_000
"""Parameters of a narrowed model; a larger one would take minutes and gigabytes."""

_TROUBLE: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    IndexError,
    StrictDataclassError,
)
"""What transformers raises over a config that it cannot build."""


@dataclass(frozen=True)
class Finding:
    """What comparing one model gave."""

    model: str  # Its id.
    what: str  # ``parameters`` or ``cache at 200``.
    theirs: int | None  # What transformers has; None if it could not be built.
    ours: int  # What we count.
    note: str = ""  # Why it could not be built, or what was counted with.

    @property
    def agrees(self) -> bool | None:
        """Whether they are equal; None if there was nothing to compare."""
        return None if self.theirs is None else self.theirs == self.ours


def check(configs: Sequence[Path]) -> int:
    """Compare and print; returns 1 if anything differs."""
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    found: list[Finding] = []
    for model_id, full in _subjects(configs):
        if isinstance(full, str):
            print(f"{model_id}: not read: {full}", flush=True)
            continue
        for finding in (parameters(full), *caches(full)):
            found.append(finding)
            if not finding.agrees:
                state = "not built" if finding.agrees is None else "DIFFERS"
                print(f"{finding.model}: {finding.what}: {state}: transformers {finding.theirs}, kvreport {finding.ours} {finding.note}", flush=True)  # fmt: skip
    for what in ("parameters", *(f"cache at {length}" for length in SMALL_LENGTHS)):
        of = [finding for finding in found if finding.what == what]
        equal = sum(finding.agrees is True for finding in of)
        differ = sum(finding.agrees is False for finding in of)
        print(f"{what}: {equal} equal, {differ} differ, {len(of) - equal - differ} could not be built")
    return int(any(finding.agrees is False for finding in found))


def _subjects(configs: Sequence[Path]) -> Iterator[tuple[str, Subject | str]]:
    if not configs:
        for model_id in known():
            yield model_id, subject(model_id)
    for path in configs:
        content = json.loads(path.read_text(encoding="utf-8"))
        config = content.get("config", content) if isinstance(content.get("config"), dict) else content
        model_id = path.stem if path.name != "config.json" else path.resolve().parent.name
        model_id = model_id.replace("--", "/", 1) if "--" in model_id else f"local/{model_id}"
        try:
            yield model_id, of_config(config, model_id)
        except InputError as error:
            yield model_id, str(error)


def parameters(full: Subject) -> Finding:
    """Count the parameters of the published model on the meta device.

    With its towers where the config describes them, else its text part; never with draft layers.
    """
    towers = any(key in full.config for key in ("vision_config", "audio_config"))
    ours = whole_parameters(full.record) if towers else theory.parameter_count(full)
    try:
        net = build(full, device="meta", attention="eager", text_only=not towers)
    except _TROUBLE as error:
        return Finding(full.id, "parameters", None, ours, _short(error))
    note = ""
    if net.get_output_embeddings() is None:
        # Of some classes only the body can be built by itself.
        head = sum(row.parameters for row in full.record.weights if row.component == "output_head")
        ours, note = ours - head, "without the output head"
    theirs, buffers = count(net, ours)
    if buffers:
        note = f"with the stored buffer {buffers}"
    return Finding(full.id, "parameters", theirs, ours, note)


def caches(full: Subject) -> Iterator[Finding]:
    """Prefill the narrowed model and add up its cache's tensors."""
    small = full
    try:
        small = narrow(full, window=SMALL_WINDOW)
        shapes = _build(small, "meta")
        size = sum(parameter.numel() for parameter in shapes.parameters())
        if size > LARGEST:
            raise ValueError(f"{size:,} parameters when narrowed, too large here")
        net = _build(small, "cpu")
    except _TROUBLE as error:
        for length in SMALL_LENGTHS:
            yield Finding(
                full.id, f"cache at {length}", None, theory.cache_bytes(small, length), _short(error)
            )
        return
    for length in SMALL_LENGTHS:
        ours = theory.cache_bytes(small, length)
        try:
            real = held(prefill(net, tokens(small, 1, length, "cpu"))).shape_bytes
        except _TROUBLE as error:
            yield Finding(full.id, f"cache at {length}", None, ours, _short(error))
        else:
            yield Finding(full.id, f"cache at {length}", real, ours, small.narrowed)


def _build(small: Subject, device: str):  # noqa: ANN202
    try:
        return build(small, device=device)
    except ValueError:  # a class without scaled_dot_product_attention
        return build(small, device=device, attention="eager")


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
