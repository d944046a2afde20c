"""Answers as pandas data frames: the matrix, the out-of-memory boundary, the models, a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
import pandas as pd

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.dataset.arrow import capacity_table
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix as cubes
from kvreport.dataset.small_tables import model_rows
from kvreport.errors import InputError, require_numbers, require_text
from kvreport.estimation.difference import Difference, Side, compare
from kvreport.estimation.estimate import estimate
from kvreport.query import require_known, several, several_of
from kvreport.units import parse_tokens


def matrix(
    models: str | Sequence[str] = "*",
    gpus: str | Sequence[str] = "*",
    *,
    contexts: int | str | Sequence[int | str] | None = None,
    tensor_parallel: int | Sequence[int] | None = None,
    weights: str | Sequence[str] | None = None,
    kv: str | Sequence[str] | None = None,
    engine: str | None = None,
    catalog: Catalog | None = None,
) -> pd.DataFrame:
    """Compute every combination as a data frame with the columns of the published dataset.

    Args:
        models: Shell pattern for model ids. Separate several patterns with commas, or pass a list.
        gpus: Shell pattern for accelerator slugs, or several patterns.
        contexts: Contexts in tokens, such as 8192 or "8K"; None for the published contexts.
        tensor_parallel: Tensor-parallel sizes; None for the published layouts.
        weights: Weight formats. Include ``released`` for weights as released.
        kv: KV formats.
        engine: Engine whose rules apply.
        catalog: Catalog that resolves names; None for the public catalog.

    Returns:
        A data frame with one row per combination and the columns of ``capacity.parquet``.

    Raises:
        InputError: If a name is unknown, a number is out of range, or no combination is left.

    >>> rows = matrix(["Qwen/Qwen3-32B"], "h100-sxm-80gb", contexts=["8K"], tensor_parallel=[1, 2])
    >>> rows[["tensor_parallel", "max_concurrent_requests"]].drop_duplicates("tensor_parallel").shape
    (2, 2)
    """
    known = open_catalog() if catalog is None else catalog
    if engine is not None:
        require_text(engine=engine)
    chosen = axes(
        known,
        models=_patterns("models", models),
        gpus=_patterns("gpus", gpus),
        contexts=None if contexts is None else [parse_tokens(one) for one in several(contexts)],
        tensor_parallel=None
        if tensor_parallel is None
        else several_of("tensor-parallel", tensor_parallel, int),
        weights=None if weights is None else several_of("weights", weights, str),
        kv=None if kv is None else several_of("kv", kv, str),
        engine=engine,
    )
    frames = [capacity_table(cube).to_pandas(strings_to_categorical=True) for cube in cubes(chosen)]
    if not frames:
        return pd.DataFrame()
    names = list(frames[0].columns)
    joined = pd.concat([frame.astype({"model": "object"}) for frame in frames], ignore_index=True)
    return pd.DataFrame(joined[names])


def _patterns(name: str, given: str | Sequence[str]) -> str:
    """Several patterns as one text, as the command line writes them."""
    listed = [given] if isinstance(given, str) or not isinstance(given, Sequence) else list(given)
    for one in listed:
        require_text(**{name: one})
    return ",".join(listed)


def boundary(
    model: str | Model,
    *,
    gpu: str | Accelerator | Sequence[str | Accelerator],
    requests: int | Sequence[int] | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Query
) -> pd.DataFrame:
    """Compute the out-of-memory boundary: the longest context per request, by number of concurrent requests.

    Args:
        model: Same as in :func:`kvreport.estimate`.
        gpu: Same as in :func:`kvreport.estimate`.
        requests: Numbers of concurrent requests; None for powers of two up to the number that runs at 1K.
        **options: Same as in :func:`kvreport.estimate`.

    Returns:
        A data frame with the columns ``requests`` and ``max_context_tokens``.

    Raises:
        InputError: Same as in :func:`kvreport.estimate`.

    >>> rows = boundary("Qwen/Qwen3-32B", gpu="h200-sxm-141gb", requests=[1, 2])
    >>> list(rows.columns), len(rows)
    (['requests', 'max_context_tokens'], 2)
    """
    answer = estimate(model, gpu=gpu, **options)
    copies = answer.request.layout.data
    if requests is None:
        most = max((row.max_concurrent_requests for row in answer.by_context), default=1)
        counts = [1 << power for power in range(max(most, 1).bit_length())]
    else:
        counts = several_of("requests", requests, int)
    longest = np.asarray(answer.longest_of([-(-count // copies) for count in counts]), dtype=np.int64)
    return pd.DataFrame({"requests": counts, "max_context_tokens": longest})


def list_models(pattern: str = "*", *, catalog: Catalog | None = None) -> pd.DataFrame:
    """List the models of the catalog whose id, name or alias matches a pattern.

    Args:
        pattern: Shell pattern, or a part of the name.
        catalog: Catalog to search; None for the public catalog.

    Returns:
        A data frame with one row per model and the columns of ``models.csv``.

    >>> "Qwen/Qwen3-32B" in set(list_models("qwen3-32b")["model"])
    True
    """
    require_text(pattern=pattern)
    known = open_catalog() if catalog is None else catalog
    wanted = pattern.lower()
    if not any(sign in wanted for sign in "*?["):
        wanted = f"*{wanted}*"
    chosen = [
        model
        for model in known.models.values()
        if any(fnmatchcase(name.lower(), wanted) for name in (model.id, model.name, *model.aliases))
    ]
    return pd.DataFrame(model_rows(tuple(chosen), known.weight_formats))


_COMPARED: Final = ("tensor_parallel", "context_tokens", "weights", "kv")


def diff(
    old: str | Model,
    new: str | Model,
    *,
    gpu: str,
    old_engine: str = "vllm",
    new_engine: str | None = None,
    catalog: Catalog | None = None,
    **options: Any,  # noqa: ANN401 - what compare takes
) -> Difference:
    """Compare two models or configs, or one model under two engine releases, and name the term that changed the answer.

    Args:
        old: The first model or config.
        new: The second model or config.
        gpu: Accelerator.
        old_engine: Engine of the first model, optionally with a release.
        new_engine: Engine of the second model; None for the same engine.
        catalog: Catalog that resolves names; None for the public catalog.
        **options: ``tensor_parallel``, ``context_tokens``, ``weights`` and ``kv``.

    Returns:
        The requests and verdicts of both sides (``old``, ``new``, ``old_verdict``, ``new_verdict``) and ``effects``, the terms
        that changed, largest first.

    Raises:
        InputError: If kvreport has no answer for one of the two sides, or an option is not listed above.

    >>> found = diff("Qwen/Qwen3-32B", "Qwen/Qwen3-32B", gpu="h200-sxm-141gb", old_engine="vllm@0.19.1")
    >>> found.old_verdict, found.new_verdict
    ('fits', 'fits')
    """
    require_known(options)
    for name in options:
        if name not in _COMPARED:
            raise InputError(
                f"{name}: found an option that diff does not take; allowed: {', '.join(_COMPARED)}"
            )
    require_numbers(whole=True, tensor_parallel=options.get("tensor_parallel", 1))
    known = open_catalog() if catalog is None else catalog
    return compare(Side(known, old, old_engine), Side(known, new, new_engine or old_engine), gpu, **options)
