"""Words and names that Python and the browser share: verdicts, reasons, limits.

They stand in ``words.json``; :mod:`kvreport.publish.browser` puts the same file into the site's
scripts. Keys are what the command line and the dataset say, values are for readers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from kvreport.resources import package_dir

ALL: Final[dict[str, Any]] = json.loads((package_dir() / "words.json").read_text(encoding="utf-8"))
"""The whole file."""

VERDICTS: Final[tuple[str, ...]] = tuple(ALL["verdicts"])
"""Names of the verdicts by their number in :mod:`kvreport.accounting.kernel`."""

REQUEST_STEPS: Final[tuple[int, ...]] = tuple(ALL["request_steps"])
"""Lower edges of the color steps of a number of requests: half decades."""

NO_REQUEST: Final[dict[str, tuple[str, str]]] = {
    name: (word, reason) for name, (word, reason) in ALL["no_request"].items()
}
"""For each verdict that holds no request: the word in the cell, and the reason in full."""

LAYOUT_ORDER: Final[str] = ALL["layout_order"]

WAYS: Final[dict[str, str]] = ALL["ways"]
"""How a layout divides a model, by the part of its label; ``{number}`` is put in."""

ENGINES: Final[dict[str, str]] = ALL["engines"]
"""What engines are called, by the names of their records and of logs."""

MODEL_SIZES: Final[tuple[tuple[str, int], ...]] = tuple(ALL["model_sizes"].items())
"""Classes of models by size: what each is called, and the billions of parameters that it begins with."""

LIMITS: Final[dict[str, str]] = ALL["limits"]
"""What keeps one more request from a replica, for a page."""

ATTENTION_TYPES: Final[dict[str, str]] = ALL["attention_types"]
"""Labels of the attention types of models, by id."""

ONLINE_WEIGHTS: Final[frozenset[str]] = frozenset(ALL["online_weights"])
"""Weight formats that vLLM and SGLang make from a 16-bit checkpoint while loading."""

TWO_BYTE_KV: Final[frozenset[str]] = frozenset(ALL["two_byte_kv"])
"""What logs call a KV cache of two bytes per element."""

CHANGES: Final[dict[str, str]] = ALL["changes"]
"""What to change after a start-up, by the change's name; ``{value}`` is put in."""

COMMAND_NOTES: Final[dict[str, str]] = ALL["command_notes"]
"""What a serving command cannot say by itself; values are put in."""

RELAX: Final[dict[str, str]] = ALL["relax"]
"""Why nothing serves a workload and what would, by the reason of a ranking; values are put in."""


def engine_name(record: str) -> str:
    """Return what people call an engine and its release, from the name of its record.

    Args:
        record: As ``vllm``, ``vllm 0.11.0``, ``vllm@0.20.1`` or ``sglang-0.5.13``.

    >>> engine_name("vllm@0.20.1"), engine_name("tensorrt_llm 1.2.1"), engine_name("aphrodite")
    ('vLLM 0.20.1', 'TensorRT-LLM 1.2.1', 'aphrodite')
    """
    found = re.fullmatch(r"(.+?)(?:[ @-](\d.*))?", record)
    if found is None:
        return record
    name = ENGINES.get(found[1].replace("_", "-"), found[1])
    return f"{name} {found[2]}" if found[2] else name


def release_name(record: str) -> str:
    """Return an engine's name with its release, also where a log states none.

    >>> release_name("vllm@0.20.1"), release_name("vllm")
    ('vLLM 0.20.1', 'vLLM, release not stated')
    """
    name = engine_name(record)
    return name if name.rpartition(" ")[2][:1].isdigit() else f"{name}, release not stated"


def format_name(name: str) -> str:
    """Return how text writes the name of a format.

    >>> format_name("mxfp4"), format_name("fp8-block"), format_name("q4_k_m")
    ('MXFP4', 'FP8-block', 'Q4_K_M')
    """
    head, dash, tail = name.partition("-")
    return f"{head.upper()}{dash}{tail}"


KV_NAMES: Final[dict[str, dict[str, str]]] = ALL["kv_names"]
"""A server's names of KV formats, where they are not ours, by server."""

CACHE_KINDS: Final[dict[str, str]] = ALL["cache_kinds"]
"""What the cache of a kind of layers is called."""

COMPONENTS: Final[dict[str, str]] = ALL["components"]
"""What weights are for, by component."""

LOADING: Final[dict[str, str]] = ALL["loading"]
"""What loading adds to the weights, by purpose."""

SENTENCES: Final[dict[str, str]] = ALL["sentences"]
"""Conclusions, by verdict and by what limits; ``{values}`` are put in, ``**…**`` is emphasised."""

CELLS: Final[dict[str, str]] = ALL["cells"]
"""What a cell or a row says where no request fits."""

CAPTIONS: Final[dict[str, str]] = ALL["captions"]
"""Captions of the tables of requests; ``devices`` is ``fewest`` or a number of GPUs."""

Pieces = tuple[tuple[str, bool], ...]
"""Text in pieces: (text, emphasised)."""


def counted(number: float, forms: str, text: str | None = None) -> str:
    """Return a number with its noun, singular or plural.

    Args:
        number: Decides the form.
        forms: The forms, divided by ``|``: the singular and the plural.
        text: The number as it is shown; by default with commas.

    >>> counted(1, "request|requests"), counted(1200, "request|requests")
    ('1 request', '1,200 requests')
    """
    return f"{f'{number:,}' if text is None else text} {noun_for(number, forms)}"


def noun_for(number: float, forms: str) -> str:
    """Return the form of a noun that goes with a number.

    >>> noun_for(1, "request|requests")
    'request'
    """
    singular, _, plural = forms.partition("|")
    return singular if number == 1 or not plural else plural


def pieces(*sentences: str) -> Pieces:
    """Return filled sentences as pieces, with a space between two.

    >>> pieces("It serves **3 requests**.", "Tight.")
    (('It serves ', False), ('3 requests', True), ('. Tight.', False))
    """
    parts = " ".join(sentences).split("**")
    return tuple((part, bool(place % 2)) for place, part in enumerate(parts) if part)


def notebook_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return what a notebook shows of an answer: a sentence and a table, both escaped."""

    def row(cells: Iterable[object], tag: str) -> str:
        told = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in told) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<p>{escape(title)}</p><table>{row(head, 'th')}{body}</table>"
