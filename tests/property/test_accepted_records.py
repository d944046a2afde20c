"""Whatever validation accepts is answered: estimates, sizes, rows and pages of every accepted record.

A record here is a real one in which numbers were changed, most often everywhere where they stand, so that
what the record states twice still agrees and validation lets it pass.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from math import isfinite
from typing import Any, Final

import mutants
import pytest
import yaml
from fuzzing import counted, examples

from kvreport.accounting.profile import UNBOUNDED
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.base import Record
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import Formats, Grid
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.shelf import validate
from kvreport.dataset import grid
from kvreport.dataset.matrix import matrix
from kvreport.errors import CatalogError, InputError
from kvreport.estimation.estimate import estimate
from kvreport.estimation.size import size
from kvreport.resources import data_dir
from kvreport.site import build as pages
from tests.record_files import stated_record

DATA: Final = data_dir()
MODELS: Final = (
    "meta-llama--Llama-3.1-8B-Instruct",
    "deepseek-ai--DeepSeek-V3.2",
    "deepseek-ai--DeepSeek-V4-Flash",
    "Qwen--Qwen3.6-27B",
    "google--gemma-3n-E4B-it",
    "openai--gpt-oss-20b",
    "tiiuae--falcon-mamba-7b",
    "meta-llama--Llama-3.2-11B-Vision-Instruct",
    "MiniMaxAI--MiniMax-M3",
    "Zyphra--Zamba2-2.7B",
)
OTHERS: Final[dict[str, type[Record]]] = {
    "accelerators/h100-sxm-80gb.yaml": Accelerator,
    "accelerators/mi300x.yaml": Accelerator,
    "engines/vllm.yaml": Engine,
    "engines/vllm-0.11.yaml": Engine,
    "engines/sglang.yaml": Engine,
    "formats.yaml": Formats,
    "grid.yaml": Grid,
}


@cache
def stated(name: str) -> str:
    return json.dumps(stated_record(name))


def accepted(names: Sequence[str], number: int) -> Iterator[tuple[str, Any, Record]]:
    """Of so many changes to records those that validation accepts: the record's name, its data and the record."""
    for seed in range(examples(number)):
        draw = random.Random(seed)  # noqa: S311 - examples, no secrets
        name = draw.choice(names)
        data = mutants.tree(draw, json.loads(stated(name)), skip=("sources",))
        counted("records")
        with suppress(CatalogError):
            made = validate(OTHERS.get(name, Model), data, name)
            counted("accepted")
            yield name, data, made


PUBLIC: Final = open_catalog(DATA)  # its own: what is open for all stays whole
PUBLIC.__dict__["models"] = {m.id: m for m in (PUBLIC.model(name.replace("--", "/", 1)) for name in MODELS)}
PUBLIC.__dict__["accelerators"] = {
    name: PUBLIC.accelerator(name) for name in ("h100-sxm-80gb", "h100-pcie-80gb", "mi300x", "rtx-4090")
}
_SHELVES: Final = {"models": "_models", "accelerators": "_accelerators", "engines": "_engines"}


def catalog_with(**changes: Any) -> Catalog:
    """A small public catalog in which some records are others."""
    found = copy.copy(PUBLIC)
    found.__dict__["_known"] = {}
    _ = PUBLIC.engines
    for name, change in changes.items():
        records = change
        if name in _SHELVES:
            records = {**getattr(PUBLIC, name), record_key(change): change}
            shelf = copy.copy(getattr(PUBLIC, _SHELVES[name]))
            shelf._read = {key.replace("/", "--"): record for key, record in records.items()}
            found.__dict__[_SHELVES[name]] = shelf
        found.__dict__[name] = records
    return found


def record_key(record: Any) -> str:
    return record.name if isinstance(record, Engine) else record.id


LLAMA: Final = PUBLIC.model("meta-llama/Llama-3.1-8B-Instruct")
LATENT: Final = PUBLIC.model("deepseek-ai/DeepSeek-V3.2")
H100: Final = PUBLIC.accelerator("h100-sxm-80gb")


def require_sense(found: dict[str, Any]) -> None:
    """Hold what is true of every answer: finite, not negative, and no count that no machine reaches."""
    json.dumps(found, allow_nan=False)
    for name, value in found.items():
        if isinstance(value, dict):
            require_sense(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            assert isfinite(value), name
            assert value >= 0, name
    assert found.get("max_concurrent_requests", 0) < UNBOUNDED


def answered(catalog: Catalog, model: Model, device: Accelerator, engine: str = "vllm") -> None:
    """Estimate, size and compute rows; a refusal is one sentence."""
    if catalog._unknown_formats():
        return
    counted("answered")
    for ranks, context, weights, kv in (
        (1, 8192, None, "auto"),
        (3, 1 << 20, None, "fp8"),
        (8, 1, "fp8", "auto"),
    ):
        try:
            found = estimate(
                model, gpu=device, tensor_parallel=ranks, context_tokens=context, weights=weights, kv=kv,
                engine=engine, catalog=catalog,
            )  # fmt: skip
        except InputError:
            continue
        require_sense(found.to_dict())
    try:
        axes = grid.axes(catalog, models=model.id, gpus=device.id, contexts=[1024, 131072], engine=engine)
    except InputError:
        return
    for cube in matrix(axes):
        assert (cube.values["max_concurrent_requests"] >= 0).all()
    try:
        best = size([model.id], concurrent=64, context=8192, gpus=[device.id], engine=engine, catalog=catalog)
    except InputError:
        return
    json.dumps(best.to_dict(), allow_nan=False)


def test_every_accepted_model_is_answered() -> None:
    for _, _, model in accepted([f"models/{name}.yaml" for name in MODELS], 100):
        assert isinstance(model, Model)
        answered(catalog_with(models=model), model, H100)


def test_every_other_accepted_record_is_answered() -> None:
    for _, _, record in accepted(sorted(OTHERS), 100):
        answered_with(record)


def answered_with(record: Record) -> None:
    """Answer questions about a public model with a catalog in which a record is another one."""
    match record:
        case Accelerator():
            answered(catalog_with(accelerators=record), LLAMA, record)
        case Engine():
            answered(catalog_with(engines=record), LLAMA, H100, record.name)
        case Formats():
            changes = {
                "formats": record,
                "weight_formats": {item.name: item for item in record.weights},
                "kv_formats": {item.name: item for item in record.kv},
            }
            answered(catalog_with(**changes), LLAMA, H100)
            answered(catalog_with(**changes), LATENT, H100)
        case Grid():
            answered(catalog_with(grid=record), LLAMA, H100)


PAGED: Final = ("models/meta-llama--Llama-3.1-8B-Instruct.yaml", "models/deepseek-ai--DeepSeek-V4-Flash.yaml",
                "accelerators/h100-sxm-80gb.yaml", "engines/vllm.yaml", "formats.yaml", "grid.yaml")  # fmt: skip


@pytest.mark.slow
def test_every_accepted_record_has_its_pages(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, data, _ in islice(accepted(PAGED, 100), examples(4)):
        _has_its_pages(tmp_path_factory, name, data)


def _has_its_pages(tmp_path_factory: pytest.TempPathFactory, name: str, data: Any) -> None:
    folder = tmp_path_factory.mktemp("catalog")
    stem = name if name.startswith("models/") else PAGED[0]
    for kept in (stem, "accelerators/h100-sxm-80gb.yaml", "formats.yaml", "grid.yaml", "RELEASE"):
        (folder / kept).parent.mkdir(exist_ok=True)
        shutil.copy(DATA / kept, folder / kept)
    shutil.copytree(DATA / "engines", folder / "engines")
    place = folder / name
    if name.startswith("models/"):
        place = folder / f"models/{data['id'].replace('/', '--')}.yaml"
        (folder / name).unlink()
    elif name.startswith("accelerators/"):
        (folder / name).unlink()
        place = folder / f"accelerators/{data['id']}.yaml"
    place.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    catalog = open_catalog(folder)
    if catalog.faults():
        return
    counted("sites")
    try:
        report = pages.build(data=folder, cache=tmp_path_factory.mktemp("cache"), dataset=False)
    except InputError:  # such as that no model is left that the engine runs
        return
    assert len(report.pages) >= 6


def test_compression_that_sglang_has_no_pools_for_is_answered_too() -> None:
    catalog = open_catalog()
    model = catalog.model("deepseek-ai/DeepSeek-V4-Flash")
    layers = tuple(
        group.model_copy(
            update={
                "caches": tuple(
                    cache.model_copy(update={"stride": 16}) if getattr(cache, "stride", 1) == 128 else cache
                    for cache in group.caches
                )
            }
        )
        for group in model.layers
    )
    changed_model = model.model_copy(update={"layers": layers})
    asked = {"gpu": "h200-sxm-141gb", "tensor_parallel": 8}
    # A number of pools that its configurators do not have would be wrong without a word.
    with pytest.raises(InputError, match="for latents of 16 tokens are not computed here; allowed: vllm"):
        estimate(changed_model, engine="sglang", **asked)
    assert estimate(changed_model, engine="vllm", **asked).kv_pool_tokens
