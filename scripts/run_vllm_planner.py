"""Run vLLM's own planner over pipeline stages and decode-context ranks without a GPU, one JSON line each.

    python scripts/run_vllm_planner.py RECORDS.jsonl CONFIGS > laid_out.jsonl

RECORDS holds what the engine's layers ask for on one rank (``layer_specs``: kind, sizes, first and last layer), as
its model classes said it; ``scripts/check_planner.py`` describes the format. CONFIGS is a folder with one JSON file
per model. The cache specifications are built again from the record, dealt out to workers by the engine's
``get_pp_indices``, and planned by its ``get_global_kv_cache_groups`` and ``get_kv_cache_configs``: which groups there
are, the blocks of the smallest worker, tokens and concurrency. A run over one worker is made first and must repeat
the record; a model of which it does not is left out and said.

vLLM (without its compiled parts) and torch must be importable; empty modules stand in for what the planner does not
use. Between 0 and 1 numbers are refusals: ``error`` is then the engine's first line.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import logging
import re
import sys
import types
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

GIB = 1 << 30
STAGES = (2, 3, 4, 8)
CONTEXT_RANKS = (2, 4, 8, 16)
APART = (
    "vllm.config",
    "vllm.distributed",
    "vllm.model_executor",
    "vllm.multimodal",
    "vllm.platforms",
    "vllm.v1.metrics",
    "vllm.v1.request",
    "vllm.v1.utils",
)
"""Parts of the engine that the planner imports and does not use here."""
ABSENT = ("PIL", "regex", "cbor2", "prometheus_client", "transformers", "cloudpickle", "zmq", "msgspec")


class _Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds empty modules under some names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        del path, target
        inside = any(name == one or name.startswith(f"{one}.") for one in self.names)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if inside else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []

        def named(name: str) -> MagicMock:
            if name.startswith("__"):
                raise AttributeError(name)
            return MagicMock(name=name)

        module.__getattr__ = named  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("records", type=Path)
    arguments.add_argument("configs", type=Path)
    given = arguments.parse_args()
    sys.meta_path.insert(0, _Empty(APART))
    sys.meta_path.append(_Empty(tuple(name for name in ABSENT if importlib.util.find_spec(name) is None)))
    planner = Planner()
    rows = [json.loads(line) for line in given.records.read_text().splitlines()]
    met = set()
    for row in rows:
        key = tuple(row[name] for name in ("id", "gpu", "tp", "kv_cache_dtype", "block_size"))
        if row["run"] != "main" or row["dcp"] != 1 or row["disable_hybrid"] or key in met:
            continue
        met.add(key)
        try:
            whole, specs = planner.repeated(row, _positions(given.configs, row))
        except (ValueError, AssertionError, KeyError, NotImplementedError, OSError, StopIteration) as error:
            print(f"left out: {row['id']} tp {row['tp']}: {error}", file=sys.stderr)
            continue
        layers = _layers(given.configs, row)
        for stages in STAGES:
            if stages <= layers and row["tp"] in (1, 8):
                bounds = [planner.indices(layers, rank, stages) for rank in range(stages)]
                workers = [
                    {name: spec for name, spec in specs.items() if first <= _number(name) < last}
                    for first, last in bounds
                ]
                _print(row, planner.run(whole, workers, 1), pp=stages, partition=[b - a for a, b in bounds])
        for ranks in CONTEXT_RANKS:
            if planner.divides(specs, row, ranks):
                _print(row, planner.run(whole, [specs], ranks), dcp=ranks)


def _print(row: dict[str, Any], lengths: list[dict[str, Any]], **layout: Any) -> None:
    kept = {name: value for name, value in row.items() if name not in ("layer_specs", "groups", "per_len")}
    print(json.dumps(kept | {"pp": 1, "partition": None} | layout | {"per_len": lengths}))


def _number(name: str) -> int:
    return int(re.search(r"\.(\d+)\.", name)[1])  # type: ignore[index]


def _config(configs: Path, row: dict[str, Any]) -> dict[str, Any]:
    content = json.loads((configs / (row["id"].replace("/", "--") + ".json")).read_text())
    return content.get("config", content)


def _layers(configs: Path, row: dict[str, Any]) -> int:
    """Layers that the config states, those without a cache among them."""
    config = _config(configs, row)
    text = next(
        (config[name] for name in ("text_config", "llm_config", "language_config") if name in config), config
    )
    names = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    counted = next((text[name] for name in names if name in text), None)
    return counted or len(text.get("hybrid_override_pattern") or text["layers_block_type"])


def _positions(configs: Path, row: dict[str, Any]) -> list[list[int]]:
    """Which layers each specification of a record belongs to: the layers of its kind in the config's own list."""
    from kvreport.architectures import read_config

    if len(row["layer_specs"]) == 1 and row["layer_specs"][0]["num_layers"] == _layers(configs, row):
        return [list(range(row["layer_specs"][0]["num_layers"]))]
    model = read_config(_config(configs, row), id=row["id"])
    found = []
    for one in row["layer_specs"]:
        first, last = _number(one["first"]), _number(one["last"])
        fitting = [
            inside
            for groups in _unions(model.layers)
            if len(inside := sorted(index for group in groups for index in group.indices))
            == one["num_layers"]
            and (inside[0], inside[-1]) == (first, last)
        ]
        if not fitting:
            raise ValueError(f"the layers of {one['first']} cannot be told")
        found.append(fitting[0])
    return found


def _unions(groups: Any) -> Any:
    for size in range(1, len(groups) + 1):
        yield from itertools.combinations(groups, size)


class Planner:
    """The engine's planner with the least of a configuration that it asks for."""

    def __init__(self) -> None:
        import torch
        import vllm
        from vllm.v1 import kv_cache_interface
        from vllm.v1.attention.backend import MultipleOf
        from vllm.v1.core import kv_cache_config_builder, kv_cache_planning, kv_cache_utils
        from vllm.v1.kv_cache_layout import KVCacheLayout

        logging.disable(logging.WARNING)
        self.torch, self.interface, self.multiple = torch, kv_cache_interface, MultipleOf
        self.planning, self.utils, self.layout = kv_cache_planning, kv_cache_utils, KVCacheLayout
        builder = kv_cache_planning.DefaultKVCacheConfigBuilder
        kv_cache_config_builder.get_kv_cache_config_builder = lambda _: builder()
        source = Path(inspect.getfile(vllm)).with_name("distributed") / "utils.py"
        tree = ast.parse(source.read_text())
        wanted = next(node for node in tree.body if getattr(node, "name", "") == "get_pp_indices")
        names: dict[str, Any] = {
            "envs": types.SimpleNamespace(VLLM_PP_LAYER_PARTITION=None),
            "logger": logging.getLogger("partition"),
        }
        exec(compile(ast.Module([wanted], []), str(source), "exec"), names)  # noqa: S102 - the engine's own function
        self.indices = names["get_pp_indices"]

    def layers(self, row: dict[str, Any], positions: list[list[int]], checkpoints: int) -> dict[str, Any]:
        """The specification of every layer, in the order in which the engine meets them."""
        named = []
        for place, (one, indices) in enumerate(zip(row["layer_specs"], positions, strict=True)):
            spec = self._spec(one["spec"] | {"num_prefill_checkpoint_blocks": checkpoints})
            before, tail = re.split(r"\.\d+\.", one["first"], maxsplit=1)
            if len(indices) != one["num_layers"]:
                raise ValueError(f"{one['num_layers']} layers of {one['first']}, {len(indices)} told")
            named += [(index, place, f"{before}.{index}.{tail}", spec) for index in indices]
        return {name: spec for _, _, name, spec in sorted(named, key=lambda item: item[:2])}

    def _spec(self, said: dict[str, Any]) -> Any:
        kind = getattr(self.interface, said["kind"])
        known = set(inspect.signature(kind).parameters)
        values = {name: value for name, value in said.items() if name in known}
        for name, read in {
            "dtype": lambda text: getattr(self.torch, text),
            "dtypes": lambda texts: tuple(getattr(self.torch, text) for text in texts),
            "shapes": lambda rows: tuple(map(tuple, rows)),
            "kv_quant_mode": lambda text: self.interface.KVQuantMode[text],
            "tokens_per_state": lambda text: int(text) if Fraction(text).denominator == 1 else Fraction(text),
            "block_stride_alignment": lambda text: self.multiple(int(re.findall(r"\d+", str(text))[0])),
            "mamba_type": lambda text: self.interface.MambaAttentionBackendEnum[text.split(".")[-1]],
        }.items():
            if name in values:
                values[name] = read(values[name])
        return kind(**values)

    def divides(self, specs: dict[str, Any], row: dict[str, Any], ranks: int) -> bool:
        """True if the engine takes this many decode-context ranks (``config/model.py``, ``config/parallel.py``)."""
        if row["tp"] % ranks:
            return False
        kinds = {type(spec).__name__ for spec in specs.values()}
        return kinds <= {"MLAAttentionSpec", "MambaSpec"}

    def repeated(
        self, row: dict[str, Any], positions: list[list[int]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A record whose figures one worker repeats, with what it leaves out, and the specification of each layer.

        Left out are whether layers lie side by side in a block, and a state's blocks for checkpoints of a prefill.

        Raises:
            ValueError: If nothing repeats it.
        """
        for interleaved, checkpoints in itertools.product((False, True), (0, 1)):
            specs = self.layers(row, positions, checkpoints)
            tried = row | {"interleaved": interleaved}
            try:
                if self._repeats(tried, specs):
                    return tried, specs
            except (NotImplementedError, ValueError):
                continue
        raise ValueError("one worker does not repeat the record")

    def _repeats(self, row: dict[str, Any], specs: dict[str, Any]) -> bool:
        found = [at for length in self.run(row, [specs], 1) for at in length["at"]]
        recorded = [at for length in row["per_len"] for at in length["at"]]
        names = ("num_blocks", "tokens", "concurrency")
        return all(
            [one.get(name) for name in names] == [other.get(name) for name in names]
            for one, other in zip(found, recorded, strict=True)
        )

    def run(
        self, row: dict[str, Any], workers: list[dict[str, Any]], context_ranks: int
    ) -> list[dict[str, Any]]:
        """Blocks, tokens and concurrency at the lengths and pools of a record."""
        found = []
        for length in row["per_len"]:
            config = self._config(row, length["max_model_len"], len(workers), context_ranks)
            specs = [dict(worker) for worker in workers]
            groups = self.planning.get_global_kv_cache_groups(config, specs)
            at = []
            for recorded in length["at"]:
                entry: dict[str, Any] = {"gib": recorded["gib"]}
                try:
                    pools = [recorded["gib"] * GIB] * len(workers)
                    made = self.planning.get_kv_cache_configs(config, specs, pools, groups)
                    whole = self.utils.generate_scheduler_kv_cache_config(made)
                    tokens, concurrency = self.utils.get_kv_cache_capacity(config, whole)
                    entry |= {
                        "num_blocks": whole.num_blocks,
                        "tokens": tokens,
                        "concurrency": round(concurrency, 6),
                    }
                except (ValueError, ZeroDivisionError) as error:  # a stage without any cache
                    entry["error"] = recorded.get("error") or str(error).split(".")[0]
                at.append(entry)
            found.append({"max_model_len": length["max_model_len"], "at": at})
        return found

    def _config(self, row: dict[str, Any], length: int, stages: int, context_ranks: int) -> Any:
        layout = next(
            (one for one in self.layout if one.is_block_outermost and row.get("interleaved")),
            next(one for one in self.layout if not one.is_block_outermost),
        )
        empty = types.SimpleNamespace
        return empty(
            model_config=empty(
                max_model_len=length, original_max_model_len=length, supports_kv_cache_grouping=False
            ),
            parallel_config=empty(
                tensor_parallel_size=row["tp"],
                pipeline_parallel_size=stages,
                decode_context_parallel_size=context_ranks,
            ),
            scheduler_config=empty(disable_hybrid_kv_cache_manager=row["disable_hybrid"]),
            cache_config=empty(
                num_gpu_blocks_override=None,
                mamba_cache_mode=row["mamba_cache_mode"],
                block_size=row["block_size"],
                enable_prefix_caching=row["enable_prefix_caching"],
                prefix_cache_retention_interval=0,
                get_resolved_kv_cache_layout=lambda: layout,
            ),
            attention_config=empty(hisparse_config=None),
            speculative_config=None,
            device_config=empty(device_type="cuda"),
            max_in_flight_tokens=row["max_in_flight_tokens"],
            num_prefill_lookahead_tokens=0,
        )


if __name__ == "__main__":
    main()
