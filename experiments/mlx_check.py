"""Compare our bytes of weights and caches with mlx's own, which runs on a processor without a Mac.

One layer of each kind is filled with a prompt in chunks of 2,048 tokens and then token by token, as
``mlx_lm.generate`` does; the bytes that the class holds are multiplied by the layers of the kind.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from kvreport.accounting.engines.mlx import PREFILL_STEP
from kvreport.accounting.weights import tensor_bytes
from kvreport.catalog import caches as kinds
from kvreport.catalog.load import load_catalog
from kvreport.catalog.model import Model
from kvreport.estimation import estimate

MODELS: Final = (
    "meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen3-4B", "google/gemma-3-12b-it", "openai/gpt-oss-20b",
    "deepseek-ai/DeepSeek-V2-Lite", "mistralai/Mistral-7B-v0.1",
)  # fmt: skip
MATRIX: Final = (1024, 4096)
CONTEXTS: Final = (200, 2048, 2176, 5000)
"""Below a step, a chunk, a benchmark's length, and a length that is no multiple of anything."""


@dataclass(frozen=True)
class Row:
    """One model at one length: bytes that mlx-lm's classes hold, and ours."""

    model: str
    context: int
    theirs: int
    ours: int


def cache_module() -> types.ModuleType:
    """Import ``mlx_lm.models.cache`` without the rest of the package, which needs a tokenizer."""
    spec = importlib.util.find_spec("mlx_lm")
    root = Path(str(spec.origin)).parent if spec and spec.origin else Path()
    for name in ("mlx_lm", "mlx_lm.models"):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [str(root if name == "mlx_lm" else root / "models")]
            sys.modules[name] = package
    return importlib.import_module("mlx_lm.models.cache")


def rows() -> Iterator[Row]:
    """Compare every model at every length."""
    catalog, classes = load_catalog(), cache_module()
    for name in MODELS:
        model = catalog.model(name)
        for context in CONTEXTS:
            answer = estimate(
                model, gpu="m3-ultra-512", engine="mlx", context_tokens=context, catalog=catalog
            )
            yield Row(name, context, theirs(model, classes, context), answer.kv_bytes_per_request_per_gpu)


def theirs(model: Model, classes: Any, context: int) -> int:  # noqa: ANN401 - a module
    """Bytes that mlx-lm's classes hold after a prompt and its answer, all layers."""
    total = 0
    for group in model.layers:
        for cache in group.caches:
            total += _filled(cache, classes, context) * group.count
    return total


def _filled(cache: Any, classes: Any, context: int) -> int:  # noqa: ANN401 - one of several records
    import mlx.core as mx

    if isinstance(cache, kinds.SlidingWindow):
        held, heads, widths = (
            classes.RotatingKVCache(max_size=cache.window, keep=0),
            cache.kv_heads,
            (cache.key_dim, cache.value_dim),
        )
    elif isinstance(cache, kinds.FullAttention):
        held, heads, widths = classes.KVCache(), cache.kv_heads, (cache.key_dim, cache.value_dim)
    elif isinstance(cache, kinds.Latent):
        held, heads, widths = classes.KVCache(), 1, (cache.latent_dim, cache.rope_dim)
    else:
        return 0
    most, done = 0, 0
    prompt = context if isinstance(cache, kinds.SlidingWindow) else max(context - 128, 1)
    while done < context:
        size = min(PREFILL_STEP, prompt - done) if done < prompt else 1
        held.update_and_fetch(*(mx.zeros((1, heads, size, width), dtype=mx.float16) for width in widths))
        done += size
        parts = [part for part in (held.keys, held.values) if part is not None]
        most = max(most, sum(part.nbytes for part in parts))
    return most


def weight_rows() -> Iterator[tuple[str, int, int]]:
    """Yield each format of MLX, the bytes of one matrix that ``mx.quantize`` makes of it, and ours."""
    import mlx.core as mx

    formats = load_catalog().weight_formats
    matrix = mx.zeros(MATRIX, dtype=mx.bfloat16)
    schemes = [("affine", bits, size) for bits in (2, 3, 4, 5, 6, 8) for size in (32, 64, 128)]
    for mode, bits, size in (*schemes, ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)):
        name = {"affine": f"mlx{bits}-g{size}", "nvfp4": "mlx-nvfp4"}.get(mode, mode)
        parts = mx.quantize(matrix, group_size=size, bits=bits, mode=mode)
        yield name, sum(part.nbytes for part in parts), tensor_bytes(MATRIX, formats[name])


def write(found: list[Row], path: Path) -> None:
    """Write what was compared, as ``data/llama_cpp/mlx_check.yaml`` holds it."""
    lines = ["schema_version: 1", f"package: mlx-lm {version('mlx-lm')}", "rows:"]
    for row in found:
        lines += [f"- model: {row.model}", f"  context: {row.context}"]
        lines += [f"  held: {row.theirs}", f"  ours: {row.ours}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(out: Path | None = None) -> int:
    """Print a line for each format, model and length; the exit status is 1 if one differs at all.

    Models with windows are not judged: what a window layer holds depends on where the prompt
    ends, and it is compared for a prompt that fills the context.

    Args:
        out: Where to write the comparison; None for nowhere.
    """
    wrong, found = 0, []
    catalog = load_catalog()
    for name, held, ours in weight_rows():
        wrong += held != ours
        print(f"{name:36} one matrix: mlx {held:14,} B, ours {ours:14,} B")
    for row in rows():
        found.append(row)
        off = row.ours / row.theirs - 1
        model = catalog.model(row.model)
        windows = any(isinstance(one, kinds.SlidingWindow) for group in model.layers for one in group.caches)
        wrong += off != 0 and not windows
        print(
            f"{row.model:36} {row.context:6,} tokens: mlx-lm {row.theirs:14,} B, ours {row.ours:14,} B ({off:+.2%})"
        )
    if out:
        write(found, out)
    return int(wrong > 0)
