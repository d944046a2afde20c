"""One quantity, one value: figures that stand in several places, read from what a reader sees.

Expressions and tables are computed, so each is right for what it computes. Two of them can still answer one question in two
ways. Here every quantity that once had two values names its places, and all of them must agree to the digits printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from chapters import quantities, resolved, shown

import kvreport
from kvreport.accounting.kv_cache import held
from kvreport.catalog.load import open_catalog
from kvreport.catalog.strict_files import read_yaml
from kvreport.publish.traffic_data import curve_of, left_out
from kvreport.units import GIB, MIB

REPOSITORY: Final = Path(__file__).parents[2]
DOCS, DATA = REPOSITORY / "docs", REPOSITORY / "data"
TRACE, SMALL = "mooncake-conversation", "Qwen/Qwen2.5-7B-Instruct"


@dataclass(frozen=True)
class Place:
    """Where a figure stands: its page, what stands around it with the figure as a group, and what one of its unit is."""

    page: str
    around: str
    unit: float = 1


@dataclass(frozen=True)
class Quantity:
    """One quantity: where it stands, and what else computes it."""

    name: str
    places: tuple[Place, ...]
    computed: Callable[[], float] | None = None


def number(text: str) -> tuple[float, float]:
    """A figure, and half of its last digit."""
    plain = text.replace(",", "")
    return float(plain), 0.5 * 10.0 ** -len(plain.partition(".")[2])


def faults(quantity: Quantity, pages: Mapping[str, str] | None = None) -> list[str]:
    """Places where a quantity is missing, and pairs of values that no rounding reconciles."""
    found, said = [], []
    for place in quantity.places:
        text = (pages or {}).get(place.page) or shown(place.page)
        figures = re.findall(place.around, text)
        if not figures:
            said.append(f"{place.page}: nothing like {place.around}")
        for figure in figures:
            value, half = number(figure)
            found.append((f"{place.page}: {figure}", value * place.unit, half * place.unit * 1.001))
    if quantity.computed is not None:
        found.append(("computed", quantity.computed(), 0.0))
    for n, (where, value, half) in enumerate(found):
        for other, second, other_half in found[:n]:
            if abs(value - second) > half + other_half:
                said.append(f"{quantity.name}: {other}, and {where}")
    return said


def hits_here() -> float:
    """Hit rate that the traffic page computes for the cache size of the chapter's table."""
    catalog = quantities().catalog
    model = catalog.model(SMALL)
    token = int(held(model, None).marginal_bytes(1 << 20))
    ((rate, _),) = curve_of(TRACE, 16, model.context_tokens, (int(172.2337424 * GIB) // (token * 16),))
    return rate


def working_set(gigabytes: int) -> float:
    sizes = read_yaml(DATA / "home" / "machines.yaml", "machines")["apple"]["working_set"]
    return next(one["mib"] for one in sizes if one["size"] == gigabytes) * MIB


def graphs_since() -> float:
    """The first release whose rules subtract graphs."""
    engines = (one for one in open_catalog().engines.values() if one.family == "vllm" and one.graphs_reserved)
    first = min(tuple(map(int, one.versions[0].split("."))) for one in engines if one.versions)
    return float(f"{first[0]}.{first[1]}")


def average_of_link(page: str, words: str) -> float:
    """Tokens that a request of a link to the sizer holds on average: its prompt and half of its answer."""
    source = (DOCS / page).read_text(encoding="utf-8")
    link = re.search(rf"\[{words}\]\([^)?]*\?([^)]*)\)", source)
    assert link is not None
    asked = dict(one.split("=") for one in link[1].split("&"))
    return float(asked["prompt"]) + float(asked["output"]) / 2


def first_token() -> float:
    """Seconds of the chain's prompt in eight bits, as every page with an estimate states them."""
    answer = kvreport.estimate(
        "llama-3.1-70b", gpu="H200", context_tokens=7000, tensor_parallel=4, weights="fp8", kv="fp8"
    )
    return (answer.prefill_ms_lower_bound or 0) / 1000


def ask(expression: str) -> Callable[[], float]:
    return lambda: quantities().compute(expression)


CHAIN, RATIO = "chapters/14-one-decision-chain.py", "questions/prefill-decode-ratio.md"
MACS, SLOTS, OLLAMA = "questions/macs.md", "questions/parallel-slots.md", "questions/ollama-on-cpu.md"
FIGURE = r"(\d[\d,]*(?:\.\d+)?)"
QWEN = '"Qwen/Qwen2.5-7B", "H100", tokens=37'
NVL = '"qwen3.6-27b", "h100-nvl-94gb", tokens=131072, weights="fp8", kv="fp8", utilization=0.75'

QUANTITIES: Final = (
    Quantity(
        "hit rate of the assistant's hour in 172 GiB",
        (Place("chapters/13-how-real-traffic-fills-the-cache.py", rf" 172 {FIGURE}% [\d.]+%", 0.01),),
        hits_here,
    ),
    Quantity(
        "requests that the chat trace loses at 32K",
        (Place("chapters/13-how-real-traffic-fills-the-cache.py", rf"excludes {FIGURE} of 12,031"),),
        lambda: left_out(TRACE, quantities().catalog.model(SMALL).context_tokens),
    ),
    Quantity(
        "bound of experiment 5, ms",
        (
            Place("chapters/09-prefill-and-decode.py", rf"decode of one token 476(?:\.\d+)? {FIGURE}"),
            Place("evidence/claims.json", r'"s5-e5-decode",[^}]*?"computed_value": (\d+\.\d+)'),
            Place("evidence/claims.json", r'"s5-e5-prefill",[^}]*?"computed_value": (\d+\.\d+)'),
        ),
        ask(f"decode_time({QWEN}) * 1000"),
    ),
    Quantity(
        "seconds that reading the weights takes in the chain, ms",
        (Place(CHAIN, rf"Multiplying by the weights 1 {FIGURE}"),),
        ask('decode_time("llama-3.1-70b", "H200", tp=2, weights="fp8", tokens=0) * 1000'),
    ),
    Quantity(
        "seconds until the chain's first token on four GPUs",
        (Place(CHAIN, rf"4 38\d [\d.]+ [\d.]+ {FIGURE}"),),
        first_token,
    ),
    Quantity(
        "tokens per second of 128 requests of 2K",
        (
            Place("chapters/09-prefill-and-decode.py", rf"128 2K [^×]{{0,60}}? ms {FIGURE} tokens/s"),
            Place("chapters/09-prefill-and-decode.py", r"128 14\.74 45\.51 168\.6 (\d,\d+)"),
        ),
        ask('128 / decode_time("llama-3.1-8b", "H100", batch=128, tokens=2048)'),
    ),
    Quantity(
        "reading a prompt of 4,000 tokens, 3,000 of them cached, ms",
        (Place("chapters/11-beyond-one-gpu.py", rf"3,000 12\.67 74% {FIGURE}"),),
        ask('prefill_time("llama-3.1-8b", "H100", tokens=4000, cached=2992) * 1000'),
    ),
    Quantity(
        "replicas of the chain",
        (Place(CHAIN, rf"Decision 6: plan {FIGURE} replicas"),),
        lambda: (
            -(
                -sum(
                    number(one)[0] for one in re.findall(rf"replicas kept busy by \w+ {FIGURE}", shown(CHAIN))
                )
                // 1
            )
        ),
    ),
    Quantity(
        "prefill GPUs per decode GPU, 7,000 and 500 tokens",
        (
            Place(CHAIN, rf"Show the answer {FIGURE} GPUs\. It is the ratio of the two loads in decision 6"),
            Place(RATIO, rf"\| 7,000 \| 500 \| 163 \| {FIGURE}"),
        ),
    ),
    Quantity(
        "requests in flight that the chain sends to the sizer and to the command",
        (
            Place(CHAIN, rf"concurrent={FIGURE}"),
            Place(RATIO, rf"--concurrent {FIGURE}"),
            Place(CHAIN, rf"requests in flight {FIGURE}"),
        ),
    ),
    Quantity(
        "usable memory of a 32 GB Mac",
        (Place(MACS, rf"\| {FIGURE}\u00a0?\s?GiB \| 32", GIB),),
        lambda: working_set(32),
    ),
    Quantity(
        "usable memory of a 96 GB Mac",
        (Place(MACS, rf"\| {FIGURE}\u00a0?\s?GiB \| 96", GIB),),
        lambda: working_set(96),
    ),
    Quantity(
        "one slot on an RTX 3060, tokens",
        (Place(SLOTS, rf"longest context of one slot is {FIGURE}"),),
        ask('longest("llama-3.1-8b", "rtx-3060-12gb", engine="llama-cpp", weights="q4_k_m", parallel=1)'),
    ),
    Quantity(
        "longest context of a slot on an RTX 3060, cut to 1K",
        (Place(SLOTS, rf"longest context of one slot \(rounded down to a multiple of 1K\) is {FIGURE}"),),
        ask('slot_context("llama-3.1-8b", "rtx-3060-12gb")'),
    ),
    Quantity(
        "longest num_ctx of Qwen3 32B on an RTX 4090, tokens",
        (Place(OLLAMA, rf"longest with all layers on the GPU, exact \| {FIGURE}"),),
        ask('longest("qwen3-32b", "rtx-4090", engine="llama-cpp", parallel=1, weights="q4_k_m")'),
    ),
    Quantity(
        "longest num_ctx of Qwen3 32B on an RTX 4090, cut to 1K",
        (Place(OLLAMA, rf"with all layers on the GPU, rounded down to a multiple of 1K \| {FIGURE}"),),
        ask('slot_context("qwen3-32b", "rtx-4090")'),
    ),
    Quantity(
        "KV pool of Llama 3.1 8B on an H100 with the default steps, GiB",
        (Place("questions/batched-tokens.md", rf"\| 8,192 \| 1,024 \| [\d.]+\s?GiB \| {FIGURE}", GIB),),
        ask('pool("llama-3.1-8b", "H100")'),
    ),
    Quantity(
        "requests of 128K on an H100 NVL",
        (
            Place("chapters/06-forgetting-on-purpose.py", rf"the NVL holds {FIGURE}"),
            Place("chapters/06-forgetting-on-purpose.py", rf"The memory is still enough for {FIGURE}"),
            Place("chapters/06-forgetting-on-purpose.py", rf"requests that memory holds {FIGURE}"),
        ),
        ask(f"fits({NVL})"),
    ),
    Quantity(
        "requests of 128K on an H100 NVL, eight sequences",
        (Place("chapters/06-forgetting-on-purpose.py", rf"An H100 NVL then holds {FIGURE}"),),
        ask(f"fits({NVL}, max_seqs=8)"),
    ),
    Quantity(
        "4-bit weights of Llama 3.1 8B without scales, GiB",
        (
            Place(
                "chapters/07-weights-are-not-the-cache.py",
                rf"Weights, without scales.{{0,400}}? 4 16 4 {FIGURE} GiB",
            ),
        ),
        ask(
            '(weights("llama-3.1-8b") - 2 * (component("llama-3.1-8b", "embedding") + component("llama-3.1-8b", "output_head"))) '
            '/ 4 / GiB + 2 * (component("llama-3.1-8b", "embedding") + component("llama-3.1-8b", "output_head")) / GiB'
        ),
    ),
    Quantity(
        "release since which graphs are subtracted",
        (
            Place("questions/cuda-graphs.md", r"Since release (0\.\d+), vLLM subtracts"),
            Place("chapters/12-what-the-log-says.py", r"Since vLLM (0\.\d+), CUDA graphs"),
        ),
        graphs_since,
    ),
    Quantity(
        "requests of 6,000 tokens on one H200",
        (
            Place("chapters/10-sizing-a-deployment.py", rf"reserve reduces the number to {FIGURE}"),
            Place("chapters/10-sizing-a-deployment.py", rf"One H200 holds {FIGURE}"),
            Place("chapters/10-sizing-a-deployment.py", rf"1 × H200 [\d,]+ {FIGURE}"),
        ),
    ),
    Quantity(
        "tokens that a request of the sizer's example holds",
        (Place("chapters/10-sizing-a-deployment.py", rf"with {FIGURE} tokens per request on average"),),
        lambda: average_of_link("chapters/10-sizing-a-deployment.py", "this example in the sizer"),
    ),
)
SEEDS: Final = (
    ("hit rate of the assistant's hour in 172 GiB", "19.3"),
    ("bound of experiment 5, ms", "4.547"),
    ("seconds until the chain's first token on four GPUs", "0.137"),
    ("tokens per second of 128 requests of 2K", "8,685"),
    ("reading a prompt of 4,000 tokens, 3,000 of them cached, ms", "15.97"),
    ("replicas of the chain", "7"),
    ("prefill GPUs per decode GPU, 7,000 and 500 tokens", "2.2"),
    ("usable memory of a 32 GB Mac", "21.33"),
    ("one slot on an RTX 3060, tokens", "32,768"),
    ("requests of 128K on an H100 NVL", "8"),
    ("4-bit weights of Llama 3.1 8B without scales, GiB", "5.33"),
    ("release since which graphs are subtracted", "0.21"),
    ("requests of 6,000 tokens on one H200", "64"),
    ("tokens that a request of the sizer's example holds", "6,000"),
)
"""Second values that once stood on a page."""
NEVER: Final = {
    r"out of memory at noon|runs servers out of memory": "a full cache queues and preempts; nothing crashes",
    r"purchase that costs nothing": "an FP8 cache costs some quality (chapter 7)",
}
"""What a page must not say, and what another page says."""


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda one: one.name)
def test_a_quantity_has_one_value(quantity: Quantity) -> None:
    assert not faults(quantity)


@pytest.mark.parametrize(
    ("quantity", "place"),
    [(one, place) for one in QUANTITIES for place in one.places],
    ids=lambda one: getattr(one, "name", getattr(one, "page", "")),
)
def test_a_second_value_seeded_in_any_place_is_found(quantity: Quantity, place: Place) -> None:
    match = re.search(place.around, shown(place.page))
    assert match is not None
    value, half = number(match[1])
    digits = len(match[1].partition(".")[2])
    other = f"{value + max(3 * half, 0.15 * value):.{digits}f}"
    text = shown(place.page)
    assert faults(quantity, {place.page: f"{text[: match.start(1)]}{other}{text[match.end(1) :]}"})


@pytest.mark.parametrize(("name", "other"), SEEDS)
def test_each_seed_is_found(name: str, other: str) -> None:
    quantity = next(one for one in QUANTITIES if one.name == name)
    for place in quantity.places:
        text = shown(place.page)
        match = re.search(place.around, text)
        assert match is not None
        seeded = f"{text[: match.start(1)]}{other}{text[match.end(1) :]}"
        assert not faults(quantity, {place.page: text})
        assert faults(quantity, {place.page: seeded}), place


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "chapters").glob("*.py"))
)
def test_no_chapter_says_what_another_one_contradicts(page: str) -> None:
    for words, why in NEVER.items():
        assert not re.search(words, (DOCS / page).read_text(encoding="utf-8")), why


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "questions").glob("*.md")))
def test_a_readers_row_repeats_no_other_row_of_its_table(page: str) -> None:
    """As a page opens, the row of its own case stood once more under the name of its model."""
    text = re.sub(r"<[^<>]*>", "", resolved(f"questions/{page}"))
    rows = [
        [" ".join(cell.split()) for cell in row.strip("|").split("|")]
        for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    own = [row for row in rows if row[0].startswith("**") and len(row) > 2]
    names = {other[0] for other in rows}
    assert not [row for row in own for other in rows if other is not row and row[1:] == other[1:]]
    assert not [row for row in own if row[0].split("**")[1] in names]
