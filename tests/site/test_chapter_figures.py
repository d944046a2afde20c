"""Figures of the chapters, each computed a second time by plain arithmetic over the catalog's records.

Nothing here comes from kvreport but the page's text: `tests/chapter_figures.yaml` has the sentences and the expressions, and
the functions below are the book's formulas, written out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml
from chapters import shown

TESTS: Final = Path(__file__).parents[1]
DATA: Final = TESTS.parent / "data"
STATED: Final = yaml.safe_load((TESTS / "chapter_figures.yaml").read_text(encoding="utf-8"))
FIGURE: Final = r"(\d[\d,]*(?:\.\d+)?)"
K, KIB, MIB, GIB = 2**10, 2**10, 2**20, 2**30


def model(name: str) -> SimpleNamespace:
    """Dimensions of a model and the elements of its matrices."""
    record = yaml.safe_load((DATA / "models" / f"{name}.yaml").read_text(encoding="utf-8"))
    counted: Counter[str] = Counter()
    for row in record["weights"]:
        elements, copies = math.prod(row["shape"]), row.get("count", 1)
        counted[row["component"]] += elements * copies
        if row["component"] in {"attention", "dense_mlp"} and len(row["shape"]) == 2:
            counted["linear"] += elements * copies
            counted["rows"] += row["shape"][0] * copies
            counted["groups of 128"] += elements // 128 * copies
            counted["groups of 16"] += elements // 16 * copies
            counted["matrices"] += copies
    parts = {"embedding", "output_head", "norms", "linear", "rows", "matrices"}
    dims: dict[str, Any] = {part: counted[part] for part in parts}
    dims["parameters"] = sum(math.prod(row["shape"]) * row.get("count", 1) for row in record["weights"])
    dims |= {"groups128": counted["groups of 128"], "groups16": counted["groups of 16"]}
    dims |= {"heads": record["attention_heads"], "hidden": record["hidden_size"], "layers": 0}
    for group in record["layers"]:
        count = sum(
            int(last or first) - int(first) + 1
            for first, _, last in (one.partition("-") for one in group["layers"].split(","))
        )
        dims["layers"] += count
        for cache_ in group["caches"]:
            kind = cache_["kind"]
            if kind in {"full", "sliding"}:
                assert cache_["key_dim"] == cache_["value_dim"]
                dims |= {"kv_heads": cache_["kv_heads"], "head_dim": cache_["key_dim"]}
                dims["full_layers" if kind == "full" else "window_layers"] = count
                dims["window"] = cache_.get("window", dims.get("window"))
            elif kind == "latent":
                dims |= {"latent": cache_["latent_dim"], "rope": cache_["rope_dim"]}
            else:
                widths = {"float32": 4, None: 2}
                dims["state"] = count * sum(
                    one["channels"] * one["columns"] * widths[one.get("precision")]
                    for one in cache_["tensors"]
                )
    return SimpleNamespace(**dims)


def accelerator(name: str) -> SimpleNamespace:
    record = yaml.safe_load((DATA / "accelerators" / f"{name}.yaml").read_text(encoding="utf-8"))
    return SimpleNamespace(
        label=int(record["memory"]["advertised_label"].removesuffix(" GB")),
        usable=record["memory"]["usable"]["value"],
        bandwidth=record["bandwidth_bytes_per_s"]["value"],
        rate=record["rates"]["bf16"]["value"],
        rate8=record["rates"]["fp8"]["value"],
    )


def per_layer(m: Any) -> float:
    """Bytes of a key and a value of every KV head in 16 bits."""
    return 2 * m.kv_heads * m.head_dim * 2


def token(m: Any, bits: int = 16) -> float:
    return 2 * m.layers * m.kv_heads * m.head_dim * bits / 8


def latent(m: Any) -> float:
    return m.layers * (m.latent + m.rope) * 2


def windowed(m: Any, tokens: int) -> float:
    return per_layer(m) * (m.full_layers * tokens + m.window_layers * min(tokens, m.window))


def weights8(m: Any) -> float:
    """One byte per number of a linear layer and a float32 per row; the other numbers in 16 bits."""
    return m.linear + 4 * m.rows + 2 * (m.parameters - m.linear)


def weights_int4(m: Any) -> float:
    """Half a byte per number, a 16-bit scale and a 4-bit zero point per group of 128."""
    return m.linear / 2 + 2.5 * m.groups128 + 2 * (m.parameters - m.linear)


def weights_nvfp4(m: Any) -> float:
    """Half a byte per number, an 8-bit scale per group of 16, a float32 per matrix."""
    return m.linear / 2 + m.groups16 + 4 * m.matrices + 2 * (m.parameters - m.linear)


def read(m: Any, requests: int, tokens: int) -> float:
    """Bytes that a decode step reads: weights without the embedding, and every request's cache."""
    return 2 * (m.parameters - m.embedding) + requests * tokens * token(m)


def done(m: Any, requests: int, tokens: int) -> float:
    """Operations of a decode step: two per number of a matrix, and scores and sums of attention."""
    attention = 4 * m.layers * m.heads * m.head_dim * tokens
    return requests * (2 * (m.linear + m.output_head) + attention)


def decode(m: Any, gpu: Any, requests: int, tokens: int) -> float:
    return max(read(m, requests, tokens) / gpu.bandwidth, done(m, requests, tokens) / gpu.rate)


def attended(m: Any, tokens: int, cached: int) -> float:
    """Operations of attention of a prompt: each token with all before it and itself."""
    pairs = (tokens * (tokens + 1) - cached * (cached + 1)) / 2
    return 4 * m.layers * m.heads * m.head_dim * pairs


def prefill(m: Any, gpu: Any, tokens: int, cached: int = 0) -> float:
    """Seconds that a prompt takes: only its last token passes the output head."""
    work = 2 * m.linear * (tokens - cached) + 2 * m.output_head + attended(m, tokens, cached)
    return max(work / gpu.rate, 2 * (m.parameters - m.embedding) / gpu.bandwidth)


def read8(m: Any, requests: int, tokens: int, gpus: int) -> float:
    """Bytes that each GPU reads in a decode step with weights and cache in 8 bits."""
    return (weights8(m) - 2 * m.embedding + requests * tokens * token(m, 8)) / gpus


def done8(m: Any, requests: int, tokens: int, gpus: int) -> float:
    """Operations of a decode step in units of one at the 16-bit rate: 8-bit layers run twice as fast."""
    assert not tokens
    return requests * (2 * m.linear * 989 / 1979 + 2 * m.output_head) / gpus


def prefill8(m: Any, gpu: Any, tokens: int, gpus: int, cached: int = 0) -> float:
    """Seconds that a prompt takes with weights and cache in 8 bits."""
    eight = 2 * m.linear * (tokens - cached) + attended(m, tokens, cached)
    return (eight / gpu.rate8 + 2 * m.output_head / gpu.rate) / gpus


@cache
def names() -> dict[str, Any]:
    functions = (per_layer, token, latent, windowed, weights8, weights_int4, weights_nvfp4, read, done)
    functions += (decode, prefill, read8, done8, prefill8, math.ceil, min, max, sum, range)
    return (
        {"K": K, "KiB": KIB, "MiB": MIB, "GiB": GIB}
        | {one.__name__: one for one in functions}
        | {alias: model(name) for alias, name in STATED["models"].items()}
        | {alias: accelerator(name) for alias, name in STATED["accelerators"].items()}
    )


def sentence(says: str) -> re.Pattern[str]:
    return re.compile(FIGURE.join(re.escape(part) for part in says.split("{}")))


def faults(one: dict[str, Any], text: str) -> list[str]:
    """Figures of a sentence that its expressions do not give, to the digits printed."""
    match = sentence(one["says"]).search(text)
    if match is None:
        return [f"nothing like {one['says']}"]
    assert len(match.groups()) == len(one["is"])
    said = []
    for printed, expression in zip(match.groups(), one["is"], strict=True):
        value = float(eval(str(expression), {"__builtins__": {}, **names()}))  # noqa: S307
        plain = printed.replace(",", "")
        half = 0.5 * 10.0 ** -len(plain.partition(".")[2])
        if abs(float(plain) - value) > half * 1.000001:
            said.append(f"{one['says']}: {printed} is printed, and {expression} is {value:,.6g}")
    return said


CASES: Final = [(chapter, one) for chapter, listed in STATED["chapters"].items() for one in listed]


@pytest.mark.parametrize(
    ("chapter", "one"), CASES, ids=lambda one: one if isinstance(one, str) else one["says"][:40]
)
def test_a_figure_of_a_chapter_is_what_plain_arithmetic_gives(chapter: str, one: dict[str, Any]) -> None:
    assert not faults(one, shown(f"chapters/{chapter}.py"))


@pytest.mark.parametrize("chapter", STATED["chapters"])
def test_each_figure_that_changes_is_noticed(chapter: str) -> None:
    text = shown(f"chapters/{chapter}.py")
    for one in STATED["chapters"][chapter]:
        match = sentence(one["says"]).search(text)
        assert match is not None
        for n, printed in enumerate(match.groups(), 1):
            plain = printed.replace(",", "")
            digits = len(plain.partition(".")[2])
            other = f"{float(plain) + 2 * 10.0**-digits:.{digits}f}"
            assert faults(
                one, f"{match[0][: match.start(n) - match.start()]}{other}{text[match.end(n) :]}"
            ), printed


def test_every_chapter_has_its_figures_computed_twice() -> None:
    counted = {
        chapter: sum(len(one["is"]) for one in listed) for chapter, listed in STATED["chapters"].items()
    }
    assert len(counted) == 14
    assert min(counted.values()) >= 5
    assert sum(counted.values()) >= 630
