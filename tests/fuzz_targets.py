"""What is fuzzed by the thousand: each target gives one generated input to a public interface and judges the answer.

An input is made of its target's name and a seed, so a seed is all that has to be reported. A target returns what
became of the input (``answered`` or ``refused``) and raises on anything else: an exception that is no
:class:`~kvreport.errors.InputError`, or an answer that cannot be right. Targets that ask several questions
of one drawing say how many.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gzip
import io
import json
import random
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Final
from unittest import mock
from urllib.parse import unquote_to_bytes

import brought
import checkpoints
import fake_hub
import invariants
import javascript
import kernel_calls
import mutants
import numpy as np
import page_states
import rows
import traces
import yaml
from huggingface_configs import COUNTED
from startup_logs import LINES, NOISE, NUMBERS

import kvreport
from kvreport import resources
from kvreport.accounting import capacity, kernel
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.architectures import read_config
from kvreport.architectures.assumptions import CORE
from kvreport.architectures.checkpoint import TOLERANCE
from kvreport.architectures.gguf import read_gguf
from kvreport.architectures.hub import fault_of, fetch, kept
from kvreport.architectures.keys import Keys
from kvreport.architectures.reader import read_config_report
from kvreport.architectures.registry import find_architecture, known_classes
from kvreport.architectures.safetensors import read_witness
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.claim import ClaimsFile
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import Formats, Grid
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.observation import ObservationsFile
from kvreport.catalog.peer import PeersFile
from kvreport.catalog.planner_check import PlannerCheck
from kvreport.catalog.release import RulesFile
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.cli import main, parser
from kvreport.dataset import grid
from kvreport.dataset.matrix import Cube, matrix
from kvreport.errors import CatalogError, InputError
from kvreport.estimation.conclusion import headline
from kvreport.estimation.opening import open_folder, open_name
from kvreport.publish.browser import script
from kvreport.resources import data_dir
from kvreport.startup_log import FACTS, diagnose, patterns, read_log
from kvreport.startup_log.lines import lines as laid_out
from kvreport.startup_log.reading import LARGEST, MAX_LINE
from kvreport.traffic.readers import read_lines, read_trace
from kvreport.traffic.trace import Trace
from kvreport.units import GIB, human_tokens, parse_bytes, parse_tokens
from tests.record_files import stated_record

Draw = random.Random
Outcome = tuple[str, int]
"""What became of an input, and how many inputs it was."""
ANSWERED: Final[Outcome] = ("answered", 1)
REFUSED: Final[Outcome] = ("refused", 1)
DATA: Final = data_dir()
SENTENCE: Final = 2000
"""Characters that a refusal may have."""
SECONDS: Final = 2.0
"""Processor time that a file may take, however it is written."""
FEW: Final = 1 << 40
"""No machine holds so many requests: as many would say that a request costs nothing."""


@cache
def catalog() -> Catalog:
    """The public catalog, opened once."""
    return open_catalog()


@cache
def model_ids() -> list[str]:
    return sorted(catalog().models)


@cache
def gpu_ids() -> list[str]:
    return sorted(catalog().accelerators)


# --- what holds for every answer -------------------------------------------------------------------


def one_sentence(error: InputError, where: str = "") -> Outcome:
    """Hold a refusal to one readable line a fault, which names the file where there is one."""
    faults = error.faults if isinstance(error, CatalogError) else ()
    assert all(str(one).startswith(where) and one.found and one.allowed for one in faults), error
    for line in map(str, faults or [error]):
        assert line.isprintable(), ascii(line)
        assert 10 <= len(line) <= SENTENCE, len(line)
        assert where in line, line
    return REFUSED


@contextlib.contextmanager
def soon() -> Iterator[None]:
    """Hold what is done to :data:`SECONDS`."""
    began = time.process_time()
    yield
    assert time.process_time() - began < SECONDS


def finite(found: Any, name: str = "") -> None:
    """Hold every number of an answer: finite, and not negative."""
    if isinstance(found, dict):
        for key, value in found.items():
            # What is taken is negative in a waterfall, and an engine that does not start prints a negative pool.
            if key not in ("waterfall", "pool_gib"):
                finite(value, key)
    elif isinstance(found, list | tuple):
        for value in found:
            finite(value, name)
    elif isinstance(found, int | float) and not isinstance(found, bool):
        assert isfinite(found), name
        assert found >= 0, (name, found)


STARTS: Final = {"fits", "tight", "may_fit"}


def sensible(found: dict[str, Any], *, given_pool: bool = False) -> None:
    """Hold an estimate, as JSON, against itself: parts add up, and the verdict and its numbers agree."""
    json.dumps(found, allow_nan=False)
    finite(found)
    most, by_memory = found["max_concurrent_requests"], found["max_concurrent_requests_by_memory"]
    assert most < FEW, most
    assert by_memory is None or most <= by_memory < FEW, (most, by_memory)
    assert sum(found["weight_bytes_by_component"].values()) == found["weight_bytes_per_gpu"]
    assert found["parameters"]["total"] >= found["parameters"]["active"] > 0
    parameters = dict(found["parameters"]["by_component"])
    parameters.pop("mtp", None)  # layers for multi-token prediction are not of the total
    assert sum(parameters.values()) == found["parameters"]["total"]
    verdict = found["verdict"]
    if verdict in ("fits", "tight"):
        assert most >= 1, verdict
        assert found["shortfall_bytes"] == 0, verdict
    elif verdict not in STARTS:
        assert most == 0, (verdict, most)
    if verdict in ("weights_exceed_memory", "cache_exceeds_pool"):
        assert found["shortfall_bytes"] > 0, verdict
    counts = [row["max_concurrent_requests"] for row in found["by_context"]]
    assert counts == sorted(counts, reverse=True), counts
    budget = found["budget"]
    taken = sum(budget[part] for part in ("weights", "activations", "non_framework", "graphs"))
    if verdict in ("fits", "tight") and not given_pool:
        assert taken <= budget["total_bytes"], budget
    if not given_pool and budget["kv_pool_bytes"]:
        assert taken + budget["kv_pool_bytes"] <= budget["total_bytes"], budget


def ask(model: str | Model, **question: Any) -> dict[str, Any] | None:
    """Return an estimate as JSON, held against itself; None where it is refused in one sentence."""
    try:
        found = kvreport.estimate(model, **question).to_dict()
    except InputError as error:
        one_sentence(error)
        return None
    sensible(found, given_pool="kv_pool" in question)
    return found


def outcome(*answers: dict[str, Any] | None) -> Outcome:
    """Count questions that were asked together."""
    return ("answered" if answers and answers[0] is not None else "refused"), len(answers)


# --- configs -----------------------------------------------------------------------------------------


@cache
def configs() -> list[str]:
    """Published configs, and every class with all of its defaults stated."""
    found = [config for config, _ in COUNTED.values()]
    for architecture in known_classes():
        defaults = find_architecture(Keys({"architectures": [architecture]}, "test")).defaults
        stated = {name: list(v) if isinstance(v, tuple) else v for name, v in defaults.items()}
        found.append({"architectures": [architecture], **stated})
    return [json.dumps(config) for config in found]


@cache
def complete() -> list[str]:
    """Published configs that state every core dimension."""
    found = []
    for config, _ in COUNTED.values():
        with contextlib.suppress(InputError):
            read_config(config, id="a/b")
            found.append(json.dumps(config))
    assert len(found) > 20
    return found


OPTIONAL: Final = (
    "dtype", "head_dim", "hf_quant_config", "layer_types", "num_experts", "quantization_config", "rope_scaling",
    "sliding_window", "text_config", "tie_word_embeddings", "vision_config",
)  # fmt: skip
"""Keys that many classes read and few configs state."""
NESTED: Final = ("quant_method", "rope_type", "factor", "bits", "config_groups", "ignore", "hidden_size")


def config_mutation(draw: Draw) -> Outcome:
    """A config in which things are missing, added, doubled, moved or something else: a model, or one sentence."""
    config = mutants.tree(draw, mutants.fresh(draw.choice(configs())), skip=("architectures",))
    if draw.random() < 0.4:
        odd = {name: draw.choice(mutants.ODD) for name in draw.sample(NESTED, 2)}
        config[draw.choice(OPTIONAL)] = draw.choice((odd, draw.choice(mutants.ODD)))
    if draw.random() < 0.1:
        config = {"architectures": config.pop("architectures", None), "text_config": config}
    try:
        model = read_config(config, id="a/b", assume_defaults=draw.random() < 0.8)
    except InputError as error:
        return one_sentence(error, "config: ")
    assert len(model.pattern) == model.layer_count
    assert sum(row.parameters for row in model.weights) > 0
    if draw.random() < 0.25:
        ask(
            model,
            gpu=draw.choice(gpu_ids()),
            tensor_parallel=draw.choice((1, 2, 8)),
            context_tokens=draw.choice((1, 8192, 1 << 20)),
        )
    return ANSWERED


def core_dimension(draw: Draw) -> Outcome:
    """A core dimension that is missing, null or misspelt is refused, or said to be assumed, or plays no part."""
    config = mutants.fresh(draw.choice(complete()))
    whole = read_config_report(config, id="a/b")
    section = config
    for name in ("text_config", "thinker_config"):
        if isinstance(section.get(name), dict):
            section = section[name]
    known = sorted(CORE & section.keys())
    if not known:
        return REFUSED
    key = draw.choice(known)
    value = section.pop(key)
    kind = draw.randrange(4)
    word = mutants.misspelled(draw, key)
    if kind == 1:
        section[key] = None
    elif kind >= 2 and word not in CORE and word != key:
        section[word] = value
    try:
        less = read_config_report(config, id="a/b")
    except InputError as error:
        return one_sentence(error)
    same = (less.model.layers, less.model.weights) == (whole.model.layers, whole.model.weights)
    told = any(key in line for line in less.assumptions)
    assert same or told, f"{key} of {config['architectures']} left out as {word!r}, and nobody says so"
    return ANSWERED


def config_relation(draw: Draw) -> Outcome:
    """Order and strange keys change nothing; more layers or words never make a model smaller."""
    text = draw.choice(complete())
    base = read_config(mutants.fresh(text), id="a/b")
    config = mutants.fresh(text)
    section = config.get("text_config", config)
    items = list(section.items())
    draw.shuffle(items)
    section.clear()
    section.update(items)
    section[f"zz_{draw.randrange(10**6)}"] = draw.choice((1, "x", None, [1], {"a": 1}))
    shuffled = read_config(config, id="a/b")
    assert (shuffled.layers, shuffled.weights) == (base.layers, base.weights)
    key = draw.choice(("num_hidden_layers", "vocab_size", "intermediate_size"))
    if type(section.get(key)) is not int:
        return "answered", 1
    section[key] += draw.choice((1, 2, 8, 64)) * (128 if key != "num_hidden_layers" else 1)
    try:
        more = read_config(config, id="a/b")
    except InputError as error:
        one_sentence(error)
        return "answered", 2
    assert sum(r.parameters for r in more.weights) >= sum(r.parameters for r in base.weights), key
    if key == "num_hidden_layers":
        assert more.layer_count > base.layer_count
    return "answered", 2


# --- the catalog -----------------------------------------------------------------------------------

OTHERS: Final[dict[str, type[Any]]] = {
    "accelerators/h100-sxm-80gb.yaml": Accelerator,
    "accelerators/mi300x.yaml": Accelerator,
    "engines/vllm.yaml": Engine,
    "engines/vllm-0.11.yaml": Engine,
    "engines/sglang.yaml": Engine,
    "formats.yaml": Formats,
    "grid.yaml": Grid,
    "engines/vllm/rules.yaml": RulesFile,
    "claims/source-1.yaml": ClaimsFile,
    "observations/sglang-8.yaml": ObservationsFile,
    "peers.yaml": PeersFile,
    "planner_check.yaml": PlannerCheck,
}


def short(data: Any) -> Any:
    """Leave the first few of a long list: a fault in the hundredth is the same fault."""
    if isinstance(data, dict):
        return {key: short(value) for key, value in data.items()}
    return [short(value) for value in data[:12]] if isinstance(data, list) else data


@cache
def records() -> list[tuple[str, type[Any], str]]:
    """Records as JSON: every fifth model, and what else a catalog holds."""
    names = [f"models/{path.name}" for path in sorted((DATA / "models").glob("*.yaml"))[::5]]
    kinds: dict[str, type[Any]] = {**dict.fromkeys(names, Model), **OTHERS}
    return [(name, kind, json.dumps(short(stated_record(name)))) for name, kind in kinds.items()]


def record_mutation(draw: Draw) -> Outcome:
    """A record of the catalog in which things are something else: faults of one line, or answers."""
    others = draw.random() < 0.3
    name, kind, text = draw.choice(records()[-len(OTHERS) :] if others else records()[: -len(OTHERS)])
    data = mutants.tree(draw, mutants.fresh(text), skip=("sources",))
    if draw.random() < 0.1:
        data = draw.choice(mutants.ODD)
    try:
        with soon():
            record = validate(kind, data, name)
    except CatalogError as error:
        return one_sentence(error, name)
    ranks, context = draw.choice((1, 2, 3, 8)), draw.choice((1, 4096, 131_072, 1 << 20))
    if isinstance(record, Model):
        gpu = draw.choice(("h100-sxm-80gb", "mi300x", "rtx-4090", "b200-sxm-180gb"))
        engine = draw.choice(("vllm", "vllm", "ceiling", "sglang"))
        if gpu in gpu_ids():
            first = ask(record, gpu=gpu, tensor_parallel=ranks, context_tokens=context, engine=engine)
            longer = ask(record, gpu=gpu, tensor_parallel=ranks, context_tokens=context + 512, engine=engine)
            monotone(first, longer)
    return ANSWERED


YAML_SIGNS: Final = (*"-?:,[]{}#&*!|>'\"%@` \n\t", "a", "1", "? ", "- ", ": ", "<<", "---\n")


def record_text(draw: Draw) -> Outcome:
    """The text of a record with other signs or bytes in it, or signs alone: a document, or one line that names the file."""
    name, kind, stated = draw.choice(records())
    path = DATA / name
    text = path.read_text(encoding="utf-8") if path.is_file() else yaml.safe_dump(json.loads(stated))
    match draw.randrange(4):
        case 0:
            content = mutants.octets(draw, text.encode())
        case 1:
            content = "".join(draw.choices(YAML_SIGNS, k=draw.randrange(60))).encode()
        case _:
            content = mutants.text(draw, text).encode(errors="surrogatepass")
    path = scratch() / "record.yaml"
    path.write_bytes(content)
    try:
        with soon():
            record = validate(kind, read_yaml(path, "record.yaml"), "record.yaml")
    except CatalogError as error:
        return one_sentence(error, "record.yaml")
    if isinstance(record, Model):
        ask(record, gpu="h100-sxm-80gb", tensor_parallel=draw.choice((1, 8)), context_tokens=8192)
    return ANSWERED


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kvreport-fuzz-")


def scratch() -> Path:
    """A folder for files that a target needs; it goes with the process."""
    return Path(_scratch().name)


# --- estimates ---------------------------------------------------------------------------------------


def monotone(shorter: dict[str, Any] | None, longer: dict[str, Any] | None) -> None:
    """A longer context never costs less and never serves more, but where a server keeps less (``kept_less_beyond``)."""
    if shorter is None or longer is None:
        return
    assert shorter["kv_bytes_per_request_per_gpu"] <= longer["kv_bytes_per_request_per_gpu"]
    assert shorter["kv_bytes_per_token_per_gpu"] >= longer["kv_bytes_per_token_per_gpu"]  # windows are full
    kept_less = (
        shorter["context_tokens"] <= kernel.INDEXED_CONTEXT < longer["context_tokens"]
        and longer["budget"]["kv_pool_bytes"] > shorter["budget"]["kv_pool_bytes"]
    )
    for name in ("max_concurrent_requests", "max_concurrent_requests_ceiling"):
        if kept_less and name == "max_concurrent_requests":
            continue
        if shorter[name] is not None:  # None: nothing in memory limits them
            assert longer[name] is not None
            assert shorter[name] >= longer[name], name


def question(draw: Draw) -> dict[str, Any]:
    """Draw a question about a model of the catalog."""
    asked: dict[str, Any] = {
        "gpu": draw.choice(gpu_ids()),
        "tensor_parallel": draw.choice((1, 1, 2, 4, 8, 16)),
        "context_tokens": int(2 ** draw.uniform(0, 21)),
    }
    for name, values, share in (
        ("weights", ("bf16", "fp8", "int4", "nvfp4", "mxfp4"), 0.3),
        ("kv", ("bf16", "fp8", "int8"), 0.3),
        ("engine", ("ceiling", "sglang", "vllm@0.11.0", "vllm@0.19.0", "tensorrt-llm", "transformers"), 0.3),
        ("utilization", (0.3, 0.5, 0.8, 0.95, 1.0), 0.3),
        ("max_batched_tokens", (256, 2048, 16_384, 65_536), 0.2),
        ("max_seqs", (1, 16, 256, 4096), 0.2),
        ("eager", (True,), 0.1),
        ("data_parallel", (2, 8), 0.15),
        ("pipeline_parallel", (2, 4), 0.15),
        ("expert_parallel", (True,), 0.1),
        ("decode_context_parallel", (2, 8), 0.1),
        ("block_size", (1, 16, 64, 256), 0.1),
        ("num_speculative_tokens", (1, 5), 0.1),
        ("prefix_caching", (True, False), 0.1),
        ("nodes", (2,), 0.05),
        ("kv_pool", (1 << 20, 10 * GIB, 1 << 38), 0.05),
        ("memory", (8 * GIB, 80 * GIB), 0.05),
    ):
        if draw.random() < share:
            asked[name] = draw.choice(values)
    if "num_speculative_tokens" in asked and draw.random() < 0.7:
        asked["draft"] = "ngram"
    return asked


def estimate_relation(draw: Draw) -> Outcome:
    """A question and a neighbor of it: longer, with more memory, with lighter formats."""
    model, asked = draw.choice(model_ids()), question(draw)
    first = ask(model, **asked)
    if first is None:
        return REFUSED
    kind = draw.randrange(4)
    if kind == 0:
        other = ask(
            model, **{**asked, "context_tokens": asked["context_tokens"] + draw.choice((1, 15, 4096))}
        )
        monotone(first, other)
    elif kind == 1 and "kv_pool" not in asked and "memory" not in asked:
        share = min(1.0, first["budget"]["utilization"] + 0.02)
        other = ask(model, **{**asked, "utilization": share})
        if other is not None:
            assert other["budget"]["kv_pool_bytes"] >= first["budget"]["kv_pool_bytes"]
            if other["verdict"] in STARTS and first["max_concurrent_requests_by_memory"] is not None:
                assert (
                    other["max_concurrent_requests_by_memory"] >= first["max_concurrent_requests_by_memory"]
                )
    elif kind == 2:
        other = ask(model, **{**asked, "context_tokens": first["context_tokens"]})
        assert other == first or "context_tokens" not in asked
    else:
        # One that fits at the longest context that is said to fit.
        longest = first["max_context_tokens"]
        if not longest or first["verdict"] not in STARTS:
            return ANSWERED
        other = ask(model, **{**asked, "context_tokens": longest})
        assert other is not None
        by_memory = other["max_concurrent_requests_by_memory"]
        assert by_memory is None or by_memory >= 1, longest
    return outcome(first, other) if kind != 1 or "kv_pool" not in asked else ANSWERED


def matrix_cells(draw: Draw) -> Outcome:
    """Axes drawn by chance: rows say what single estimates say."""
    models = draw.sample(model_ids(), 2)
    gpus = draw.sample(gpu_ids(), draw.randrange(1, 4))
    contexts = sorted({int(2 ** draw.uniform(0, 20)) for _ in range(draw.randrange(1, 4))})
    try:
        axes = grid.axes(
            catalog(),
            models=",".join(models),
            gpus=",".join(gpus),
            contexts=contexts,
            tensor_parallel=draw.sample((1, 2, 3, 4, 8, 16), draw.randrange(1, 3)),
            weights=draw.choice((None, ["released"], ["fp8"], ["released", "int4"])),
            kv=draw.choice((None, ["auto"], ["fp8"], ["bf16", "fp8"])),
            engine=draw.choice(("vllm", "vllm", "vllm-0.11", "ceiling", "sglang")),
        )
    except InputError as error:
        return one_sentence(error)
    cells = 0
    for cube in matrix(axes):
        numbers = cube.values["max_concurrent_requests"]
        assert (numbers >= 0).all()
        assert (numbers[..., :-1] >= numbers[..., 1:]).all(), "a longer context serves more"
        cells += compare_cell(draw, cube)
    return "answered", 1 + cells


def compare_cell(draw: Draw, cube: Cube) -> int:
    """Hold one row of a cube against the estimate of the same question; return how many were asked."""
    possible = np.argwhere(cube.possible).tolist()
    if not possible:
        return 0
    where, column = tuple(draw.choice(possible)), draw.randrange(len(cube.contexts))
    row, layout = rows.row_of(cube, where, column), cube.layouts[where[1]]
    if row["max_concurrent_requests"] >= kernel.UNLIMITED_REQUESTS:
        return 0  # a row without a number; an estimate refuses the question
    asked = rows.asked(cube, where, cube.contexts[column], cube.engine)
    answer = kvreport.estimate(cube.model, **asked)
    found = answer.to_dict()
    sensible(found)
    if (asked["weights"], asked["kv"]) != (found["weight_format"], found["kv_format"]):
        return 0  # an estimate serves float32 where a device has no 16-bit type of the model; a row is its formats
    nodes = found["layout"]["nodes"]
    if nodes != layout.nodes:
        # The estimate takes as many machines as the devices need, and says so; a row names none.
        assert f"in {nodes} machines" in headline(answer)
        assert any(said.startswith(f"nodes {nodes}:") for said in found["assumptions"])
        assert found["layout"]["gpus_per_node"] * nodes == found["layout"]["gpus"]
        if row["verdict"] == "engine_does_not_run" != found["verdict"]:
            # A computer's own chip cannot stand next to others: the row is of one machine, and refuses.
            assert catalog().accelerator(asked["gpu"]).is_computer
            assert row["max_concurrent_requests"] == 0
            for name in ("weight_bytes_per_gpu", "kv_bytes_per_request_per_gpu"):
                assert row[name] == found[name], name
            return 1
    if nodes != layout.nodes:  # bounds of a step are of links that the row's one machine does not have
        row = {name: value for name, value in row.items() if not name.endswith("_ms_lower_bound")}
    rows.same(row, rows.in_columns(found), (cube.model.id, asked))
    return 1


# --- logs --------------------------------------------------------------------------------------------


def log_text(draw: Draw) -> str:
    """Real lines of start-up logs, some of them damaged, or bytes of any kind."""
    if draw.random() < 0.3:
        return draw.randbytes(draw.randrange(2000)).decode(draw.choice(("utf-8", "utf-16")), "replace")
    found = []
    for _ in range(draw.randrange(1, 7)):
        line = draw.choice(LINES)
        for _ in range(draw.randrange(3)):
            kind = draw.randrange(5)
            if kind == 0 and (spots := list(re.finditer(r"[0-9][0-9.,]*", line))):
                spot = draw.choice(spots)
                number = draw.choice((*NUMBERS, str(draw.getrandbits(draw.randrange(1, 70)))))
                line = line[: spot.start()] + number + line[spot.end() :]
            elif kind == 1:
                at = draw.randrange(len(line) + 1)
                line = line[:at] + draw.choice(NOISE) + line[at:]
            elif kind == 2:
                at = draw.randrange(len(line) + 1)
                line = line[:at] + line[at + draw.randrange(1, 30) :]
            elif kind == 3:
                line *= 2
            else:
                line += draw.choice(LINES)
        found.append(line)
    return draw.choice(("\n", "\n", "\r", "")).join(found)


PATTERN_NAMES: Final = {pattern.name for pattern in patterns()}


def check_reading(reading: Any) -> None:
    """Hold what was read of a log: known facts, and no number that no machine has."""
    assert set(reading.facts) <= set(FACTS)
    for value in reading.facts.values():
        assert isinstance(value, str) or (isfinite(value) and abs(value) <= LARGEST)
    for line in reading.recognised:
        assert line.pattern in PATTERN_NAMES
        assert len(line.text) <= MAX_LINE
        assert "{" not in line.says or "{" in line.text, line


def log_mutation(draw: Draw) -> Outcome:
    """A damaged log, or bytes of any kind: facts or one sentence, and the same whatever ends a log's lines."""
    text = log_text(draw)
    try:
        reading = read_log(text)
    except InputError as error:
        return one_sentence(error)
    check_reading(reading)
    if not any(sign in text for sign in "\r\x85\u2028\x1c\x0b\x0c"):
        again = read_log(text.replace("\n", "\r\n"))
        assert again.facts == reading.facts
    if draw.random() < 0.4:
        diagnosed(draw, text)
    return ANSWERED


def diagnosed(draw: Draw, text: str) -> None:
    """Diagnose a log, with facts that it may contradict."""
    try:
        found = diagnose(
            text,
            model=draw.choice((None, *model_ids()[::9])),
            gpu=draw.choice((None, *gpu_ids())),
            tensor_parallel=draw.choice((None, 1, 2, 3, 8)),
        )
    except InputError as error:
        one_sentence(error)
        return
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_dict()["headline"] == found.headline == laid_out(found)[0]
    assert found.concurrency is None or isfinite(found.concurrency)


ISSUE: Final = (
    "### Your current environment\n\n<details>\n\n```text\n{}\n```\n\n</details>\n\n- [x] I searched\n",
    "**Describe the bug**\nIt OOMs :(\n```\n{}\n```\nAny idea? cc @someone #1234\n",
    "> {}\n\nSame here on 4.51.0, see https://example.org/a?b=c&d=1\n",
    "| step | log |\n|---|---|\n| start | `{}` |\n",
    "    {}\n",
)
PREFIXES: Final = (
    "",
    "(EngineCore_0 pid=1159) INFO 09-10 23:48:00 [gpu_worker.py:276] ",
    "INFO 07-24 10:00:01 ",
    "vllm-1  | ",
    "2026-01-02T03:04:05.678901234Z stdout F ",
    "\x1b[36m(APIServer pid=1)\x1b[0m ",
)


def printed_log(draw: Draw) -> Outcome:
    """Numbers printed as vLLM prints them, within an issue's text, are read as they were."""
    tokens, length = draw.randrange(16, 10**8), draw.choice((4096, 32_768, 131_072, draw.randrange(1, 10**7)))
    pool, weights = draw.randrange(1, 30_000) / 100, draw.randrange(1, 60_000) / 100
    ratio = max(1, round(100 * tokens / length)) / 100
    before = draw.choice(PREFIXES)
    written = [
        f"{before}Model loading took {weights:.2f} GiB and {draw.randrange(1, 999)}.{draw.randrange(100):02} seconds",
        f"{before}Available KV cache memory: {pool:.2f} GiB",
        f"{before}GPU KV cache size: {tokens:,} tokens",
        f"{before}Maximum concurrency for {length:,} tokens per request: {ratio:.2f}x",
    ]
    form = draw.choice(ISSUE)
    text = (
        form.format("\n".join(written)) if "```" in form else "".join(form.format(line) for line in written)
    )
    reading = read_log(text)
    check_reading(reading)
    facts = reading.facts
    assert facts["kv_tokens"] == tokens, text
    assert facts["concurrency_len"] == length, text
    assert facts["concurrency"] == ratio, text
    assert abs(float(facts["weights"]) - weights * GIB) <= 1, text
    assert abs(float(facts["kv_pool"]) - pool * GIB) <= 1, text
    if draw.random() < 0.05:
        diagnosed(draw, text)
    return ANSWERED


# --- files of weights --------------------------------------------------------------------------------


def gguf(draw: Draw) -> Outcome:
    """The header of a GGUF file with other bytes in it: a model whose bytes are those of its tensors, or a sentence."""
    keys: dict[str, Any] = dict(brought.GGUF_KEYS)
    rows = brought.gguf_tensors(draw.choice((256, 1000, 32_000)), draw.choice((brought.Q4_K, brought.Q6_K)))
    if draw.random() < 0.6:
        for _ in range(draw.randrange(1, 4)):
            key = draw.choice(sorted(keys))
            if isinstance(keys[key], int):
                keys[key] = draw.choice((0, 1, 2, 3, 7, 2**16, 2**31, 2**32 - 1, draw.randrange(1, 5000)))
            else:
                keys[key] = draw.choice(("qwen3", "gemma3", "deepseek2", "mamba", "x", "", "<b>", "مرحبا"))
        if draw.random() < 0.3:
            del rows[draw.randrange(len(rows))]
        raw = brought.gguf_header(keys, rows)
    else:
        raw = mutants.octets(draw, brought.gguf_header(keys, rows))
    path = scratch() / "model.gguf"
    path.write_bytes(raw)
    try:
        found = read_gguf(path)
    except InputError as error:
        return one_sentence(error, "model.gguf")
    assert sum(tensor.nbytes for tensor in found.tensors) > 0
    if draw.random() < 0.02:
        try:
            answer = kvreport.estimate(str(path), gpu="rtx-4090", engine="llama-cpp", context_tokens=4096)
        except InputError as error:
            one_sentence(error)
        else:
            told = answer.to_dict()
            json.dumps(told, allow_nan=False)
            finite(told)
    return ANSWERED


def safetensors(draw: Draw) -> Outcome:
    """A folder with a config and the headers of its tensors, changed: read with the bytes of the headers, or refused."""
    layers, hidden, heads = draw.choice((1, 2, 3)), draw.choice((64, 128, 256)), draw.choice((2, 4))
    kv_heads = draw.choice((1, 2, heads))
    tensors = checkpoints.llama(layers, hidden, heads, kv_heads, 4 * hidden, 1000)
    config = {
        "architectures": [draw.choice(("LlamaForCausalLM", "LlamaForCausalLM", "StrangeForCausalLM"))],
        "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": 4 * hidden, "vocab_size": 1000,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    kind = draw.random()
    header = checkpoints.header(tensors)
    if kind < 0.5:
        header = mutants.octets(draw, header)
    elif kind < 0.8:
        document = mutants.tree(draw, json.loads(header[8:]))
        text = json.dumps(document).encode()
        header = len(text).to_bytes(8, "little") + text
    else:
        config = mutants.tree(draw, config, skip=("architectures",))
    folder = scratch() / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(header)
    try:
        witness = read_witness(folder)
        opened = open_folder(folder, catalog())
    except InputError as error:
        return one_sentence(error)
    assert witness is not None
    if kind >= 0.8 and sum(row.parameters for row in opened.model.weights) > 0:
        stored = sum(tensor.elements for tensor in witness.tensors)
        mine = sum(row.parameters for row in opened.model.weights)
        near = abs(mine - stored) <= TOLERANCE * stored
        assert near or any("come from the files" in line for line in opened.assumptions), (mine, stored)
    ask(opened.model, gpu="h100-sxm-80gb", context_tokens=4096) if draw.random() < 0.2 else None
    return ANSWERED


# --- the command line --------------------------------------------------------------------------------

COMMON: Final = frozenset(
    {
        "--context",
        "--kv",
        "--weights",
        "--utilization",
        "--max-seqs",
        "--tensor-parallel",
        "--eager",
        "--kv-pool",
        "--memory",
    }
)
NAMED: Final = ("llama-3.1-8b", "qwen3-8b", "gpt-oss-20b", "deepseek-v3.2")
VALUES: Final = (
    "", " ", "0", "1", "-1", "8", "1e3", "10**9", "1000000000", "99999999999999999999", "nan", "inf", "-inf", "0.5", "1.5",
    "32K", "1M", "8,192", "1_000", "0K", "-32K", "40GiB", "0GB", "H100", "h100-sxm-80gb", "H100*8", "H100*0", "*", "fp8",
    "bf16", "int4", "x", "--", "-", "../..", "/dev/null", "image=2", "image=", "=", "image=-1", "é", "مرحبا", "\u202e", "🦙",
    "<script>", "a" * 3000, "vllm@0.11", "vllm@", "@", "sglang", "llama-cpp", "true", "on", "null", "%s", "{0}", "\n", "[1]",
)  # fmt: skip


USUAL: Final = {
    "N": ("1", "1", "2", "4", "8", "256"), "F": ("0.5", "0.9", "1"), "SIZE": ("1GiB", "40GiB", "64GB"),
    "TOKENS": ("1", "1000", "8K", "128K"), "TIME": ("30ms", "2s"), "FORMAT": ("fp8", "bf16", "int4", "auto"),
    "NAME": ("vllm", "vllm@0.19.0", "sglang", "tensorrt-llm", "llama-cpp", "mlx", "ceiling", "transformers"),
}  # fmt: skip
"""Values by what help calls them."""
NOT_DRAWN: Final = ("--fetch", "--trace", "--lengths", "--mmproj")
"""Flags that ask a network, or read a file."""


@cache
def command_flags(command: str) -> list[tuple[str, tuple[str, ...]]]:
    """The flags of a command, and values that each has a use for; none where no value stands after it."""
    (found,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return [
        (
            action.option_strings[0],
            () if action.nargs == 0 else tuple(action.choices or USUAL.get(str(action.metavar), VALUES)),
        )
        for action in found.choices[command]._actions
        if action.option_strings and action.option_strings[0] not in NOT_DRAWN
    ]


def opened(data: str | None = None) -> Catalog:
    """What a command opens: the public catalog once for all of them."""
    return catalog() if data is None else open_catalog(data)


def told_by(words: list[str]) -> tuple[int, str, str]:
    """The exit status of a command line, what it prints, and what it says on standard error."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        mock.patch("kvreport.catalog.load.open_catalog", opened),
    ):
        try:
            status = main(words)
        except SystemExit as end:  # --help and --version
            status = int(end.code or 0)
    return status, out.getvalue(), errors.getvalue()


def command_line(draw: Draw) -> Outcome:
    """Words after a command: status 0 with an answer, 2 with one line, 3 where a requirement is not met."""
    plain = draw.random() < 0.5  # as people ask: flags that every server has, with values that they have
    command = (
        "estimate"
        if plain
        else draw.choice(("estimate",) * 8 + ("size", "size", "list", "diff", "nothing", "model"))
    )
    words = [command]
    if draw.random() < 0.95:
        words.append(
            draw.choice(
                ("gpus", "models", "x")
                if command == "list"
                else (*NAMED, *NAMED, draw.choice(model_ids()), "x", "")
            )
        )
    if draw.random() < 0.9:
        words += ["--gpu", draw.choice(("H100", "h100-sxm-80gb", "rtx-4090", "mi300x", "H100*8", "x"))]
    if command == "size" and draw.random() < 0.8:
        words += [
            "--context",
            draw.choice(("8K", "1000", "128K")),
            "--concurrent",
            draw.choice(("1", "4", "300")),
        ]
    known = command_flags(command if command in ("estimate", "size") else "estimate")
    known = [pair for pair in known if pair[0] in COMMON] if plain else known
    for _ in range(draw.randrange(4)):
        flag, usual = draw.choice(known)
        words.append(mutants.misspelled(draw, flag) if draw.random() < 0.05 else flag)
        if usual:
            words.append(draw.choice(usual if plain or draw.random() < 0.6 else VALUES))
    if draw.random() < 0.3:
        words += ["--require", draw.choice(("0", "1", "10", "100000", "-1", "x"))]
    words += ["--format", "json"] if draw.random() < 0.7 else []
    status, out, said = told_by(words)
    assert status in (0, 2, 3), (words, status)
    if status == 2:
        lines = [line for line in said.splitlines() if line.startswith("kvreport: error: ")]
        assert lines, (words, said)
        assert all(len(line) <= SENTENCE for line in lines), words
        return REFUSED
    assert out, words
    if "json" in words and "-h" not in words and command in ("estimate", "size"):
        told = json.loads(out, parse_constant=not_a_number)
    if "json" in words and "-h" not in words and command == "estimate":
        finite(told)
        required = words[words.index("--require") + 1] if "--require" in words else "0"
        assert (status == 3) == (told["max_concurrent_requests"] < int(required)), words
    return ANSWERED


def not_a_number(name: str) -> float:
    """Refuse NaN and infinity, which JSON does not have."""
    raise AssertionError(name)


# --- sizes -----------------------------------------------------------------------------------------------


def sizing(draw: Draw) -> Outcome:
    """A workload: what is offered holds it, an estimate of the same serves, and twice the load needs no fewer GPUs."""
    model, concurrent = draw.choice(model_ids()), int(2 ** draw.uniform(0, 11))
    asked: dict[str, Any] = {
        "gpus": draw.sample(gpu_ids(), draw.randrange(1, 3)),
        "context": int(2 ** draw.uniform(0, 18)),
        "tensor_parallel": draw.choice(([1], [1, 2], [4, 8], None)),
    }
    for name, values, share in (
        ("weights", (["fp8"], ["released", "int4"]), 0.3),
        ("kv", (["fp8"], ["auto", "fp8"]), 0.2),
        ("engine", ("sglang", "vllm@0.19.0"), 0.2),
        ("utilization", (0.5, 0.8, 0.95), 0.2),
        ("max_seqs", (1, 64, 4096), 0.2),
        ("burst", (1.5, 10.0), 0.2),
        ("spare_replicas", (1, 3), 0.1),
        ("shared_prefix", (16, 1000), 0.1),
        ("tpot_s", (0.005, 0.05), 0.1),
        ("efficiency", (0.1, 1.0), 0.1),
    ):
        if draw.random() < share:
            asked[name] = draw.choice(values)
    try:
        found = kvreport.size(model, concurrent=concurrent, **asked)
    except InputError as error:
        return one_sentence(error)
    json.dumps(found.to_dict(), allow_nan=False)
    work, best = found.workload, found.ranking.deployments[0]
    for one in found.ranking.deployments:
        assert 1 <= one.users_each <= one.users_held, one
        assert one.replicas[1] * one.users_each >= work.peak, one
        assert one.replicas[0] <= one.replicas[1] <= one.replicas[2], one
    if best.layout.is_tensor_only:
        served = ask(
            model,
            gpu=best.offer.accelerator.id,
            tensor_parallel=best.layout.tensor,
            weights=best.weight_format,
            kv=best.kv_format,
            context_tokens=work.longest_tokens,
            max_seqs=best.users_each,  # as in the command that is printed with it
            **{name: asked[name] for name in ("engine", "utilization") if name in asked},
        )
        assert served is not None
        assert served["verdict"] in STARTS, served["verdict"]
    try:
        more = kvreport.size(model, concurrent=2 * concurrent, **asked)
    except InputError as error:
        one_sentence(error)
        return ANSWERED
    fewest = [min(one.devices for one in each.ranking.deployments) for each in (found, more)]
    assert fewest[0] <= fewest[1], fewest
    return "answered", 2


# --- numbers as people write them ----------------------------------------------------------------------


def written_number(draw: Draw) -> Outcome:
    """A size or a context as text: a number within its bounds, or one sentence; what is printed is read again."""
    tokens = int(2 ** draw.uniform(0, 30))
    again = parse_tokens(human_tokens(tokens).replace(" ", "")) if tokens % 1024 == 0 else tokens
    assert abs(again - tokens) <= tokens * 0.06, tokens
    assert parse_tokens(f"{tokens:,}") == tokens == parse_tokens(str(tokens))
    text = mutants.text(
        draw, draw.choice(("32K", "1M", "8,192", "40GiB", "80 GB", "1.5M", "0.5GiB", str(tokens)))
    )
    for parse, most in ((parse_tokens, 1 << 30), (parse_bytes, 1 << 60)):
        try:
            value = parse(text)
        except InputError as error:
            one_sentence(error)
        else:
            assert 0 < value <= most
            assert type(value) is int
    return "answered", 3


# --- in the browser ------------------------------------------------------------------------------------

BATCH: Final = 500
"""Inputs of one run of the JavaScript engine."""


def browser_arithmetic(draw: Draw) -> Outcome:
    """Calls of the kernel: JavaScript answers what Python answers."""
    calls = [
        kernel_calls.calls_of(draw.choice(kernel_calls.functions()), draw, 1)[0] for _ in range(BATCH * 4)
    ]
    for made, answer in zip(calls, javascript.call(kernel_script(), calls), strict=True):
        kernel_calls.agree(*made, answer)
    return "answered", len(calls)


@cache
def kernel_script() -> str:
    return script()


def page_state(draw: Draw) -> Outcome:
    """States of a page: the scripts answer what the package answers."""
    assert page_states.compare_states(draw, BATCH) > BATCH // 4
    return "answered", BATCH


def page_address(draw: Draw) -> Outcome:
    """Addresses of a page: a state in its bounds, the same when it is written and read again."""
    return "answered", page_states.compare_addresses(draw, BATCH * 4)


def array_arithmetic(draw: Draw) -> Outcome:
    """Cache terms and pools: the array code answers what the kernel answers."""
    terms = [
        (draw.randrange(1 << 22), draw.choice((1, 4, 16, 128, 784)), draw.choice((0, 0, 127, 512, 4096)))
        for _ in range(draw.randrange(6))
    ]
    constant, block, kept = draw.randrange(1 << 30), draw.randrange(1, 1 << 24), draw.randrange(3)
    growing = [Term("full", rate, step, cap or UNBOUNDED) for rate, step, cap in terms]
    profile = CacheProfile((Term("state", constant_bytes=constant), *growing))
    plan = BlockPlan(block, profile, kept_blocks=kept)
    pool, contexts = (
        draw.randrange(-(1 << 36), 1 << 39),
        sorted(int(2 ** draw.uniform(0, 24)) for _ in range(4)),
    )
    together = capacity.users(np.int64(pool), plan, np.array(contexts))
    for context, number in zip(contexts, together, strict=True):
        request = kernel.request_bytes(constant, terms, context)
        assert request == profile.request_bytes(context)
        assert (
            kernel.num_requests(pool, block, kept, request) == number == capacity.users(pool, plan, context)
        )
    assert list(together) == sorted(together, reverse=True)
    return "answered", len(contexts)


# --- commands with drafts --------------------------------------------------------------------------------

DRAFTED: Final = (
    "Qwen/Qwen3-8B",
    "zai-org/GLM-4.7-Flash",
    "Qwen/Qwen3.5-4B",
    "google/gemma-3-12b-it",
    "Qwen/Qwen3-32B",
)
"""Models with prediction layers of their own and without, with windows and with states."""
METHODS: Final = (
    "ngram",
    "ngram",
    "suffix",
    "mtp",
    "mtp",
    "deepseek_mtp",
    "draft_model",
    "eagle3",
    "dspark",
    "medusa",
)
FOREIGN: Final = (None, True, -1, 0, 1.5, "", [], {}, 10**400, "ngram", "x\x00", "\u202e", "9" * 5000, "mtp")
"""Values of JSON where a name or a number of tokens belongs."""


def draft_flags(draw: Draw, server: str) -> list[str]:
    """Flags of speculative decoding as a server has them, some with values that it would refuse."""
    tokens: Any = draw.choice((1, 2, 3, 5, 7, 24))
    model = draw.choice((None, None, "Qwen/Qwen3-0.6B", "ngram", "[ngram]", "suffix", "x"))
    if server == "vllm":
        stated = {
            "method": draw.choice(METHODS),
            "model": model,
            "num_speculative_tokens": tokens,
            "prompt_lookup_max": 4,
        }
        stated = {key: value for key, value in stated.items() if value is not None and draw.random() < 0.9}
        if draw.random() < 0.15:
            stated[draw.choice((*stated, "method", "x", "quantization"))] = draw.choice(FOREIGN)
        if draw.random() < 0.1:
            return ["--speculative-config", mutants.text(draw, json.dumps(stated))]
        if draw.random() < 0.2:
            return [
                word for key, value in stated.items() for word in (f"--speculative-config.{key}", str(value))
            ]
        return [draw.choice(("--speculative-config", "--speculative_config", "-sc")), json.dumps(stated)]
    if server == "sglang":
        flags = {
            "--speculative-algorithm": draw.choice(("NGRAM", "EAGLE", "NEXTN", "STANDALONE", "DFLASH", "x")),
            "--speculative-num-draft-tokens": tokens + 1,
            "--speculative-num-steps": tokens,
            "--speculative-draft-model-path": model,
        }
    else:
        flags = {
            "--spec-type": draw.choice(
                ("ngram-simple", "ngram-mod", "ngram-cache", "draft-mtp", "draft-simple", "none")
            ),
            draw.choice(("--spec-draft-n-max", "--draft-max", "--spec-ngram-mod-n-max", "--draft")): tokens,
        }
    words = []
    for flag, value in flags.items():
        if value is not None and draw.random() < 0.7:
            words += [flag, str(draw.choice(FOREIGN) if draw.random() < 0.05 else value)]
    return words


def drafting_command(draw: Draw) -> Outcome:
    """A server's command with drafts: one sentence, or an answer whose own command gives the same answer and method."""
    server = draw.choice(("vllm", "vllm", "sglang", "llama"))
    model = draw.choice(DRAFTED)
    start = {
        "vllm": ["vllm", "serve", model, "--max-model-len", "8192"],
        "sglang": ["sglang", "serve", "--model-path", model, "--context-length", "8192"],
        "llama": ["llama-server", "-m", model, "-c", "8192"],
    }[server]
    gpu = ["--gpu", draw.choice(("h200", "mi300x", "rtx-4090")), "--format", "json"]
    words = [*start, *draft_flags(draw, server)]
    status, out, said = told_by(["estimate", *(words if draw.random() < 0.5 else [shlex.join(words)]), *gpu])
    assert status in (0, 2), (words, status)
    if status == 2:
        assert said.count("kvreport: error: ") == 1, (words, said)
        assert len(said) <= SENTENCE, words
        return REFUSED
    first = json.loads(out, parse_constant=not_a_number)
    finite(first)
    command = first["command"]
    if command is None or ".gguf" in command:  # nothing starts, or a file that nobody has here
        return ANSWERED
    of_text = [name for name in ("ngram", "suffix") if f'"{name}"' in command or name.upper() in command]
    assert not of_text or first["extras"]["draft"] is None, (words, command)
    assert of_text == ["ngram"] or "NGRAM" not in words, (words, command)
    status, out, said = told_by(["estimate", command, *gpu])
    assert status == 0, (words, command, said)
    again = json.loads(out)
    for name in ("command", "max_concurrent_requests", "max_concurrent_requests_ceiling", "extras"):
        assert again[name] == first[name], (words, command, name)
    return ANSWERED


# --- traces ------------------------------------------------------------------------------------------


def drawn_trace(draw: Draw) -> tuple[str, list[float] | None]:
    """A trace of some form as text, and its times where the text states them."""
    count = draw.randrange(1, 12)
    moments = [0.0]
    for _ in range(count - 1):
        moments.append(round(moments[-1] + draw.choice((0, 0.001, 0.5, 1, 3.25, 3600)), 3))
    name, clock = draw.choice(traces.TIME_NAMES), draw.choice(sorted(traces.CLOCKS))
    kind = draw.random()
    if kind < 0.5:
        rows = [
            {"id": n, name: at, "usage": {"prompt_tokens": draw.randrange(1, 9000), "completion_tokens": n}}
            for n, at in enumerate(traces.written(name, clock, moments))
        ]
        return traces.FORMS[draw.choice(sorted(traces.FORMS))](rows), moments
    if kind < 0.8:
        block, rows = draw.choice((16, 64, 512)), []
        for n, at in enumerate(moments):
            length = draw.randrange(1, 4000)
            ids = [draw.randrange(20) for _ in range(-(-length // block))]
            row = {
                "timestamp": round(at * 1000),
                "input_length": length,
                "output_length": n,
                "block_size": block,
            }
            named = {"hash_ids": ids} if draw.random() < 0.7 else {"hash_ranges": [[0, len(ids) - 1]]}
            rows.append(row | named)
        form = draw.choice((traces.as_json_lines, traces.as_json_array))
        return form(rows), moments
    if kind < 0.9:
        turns = [{"t": at, "in": 130 + n, "out": n, "hash_ids": [1, 2, 3]} for n, at in enumerate(moments)]
        return json.dumps({"id": "a", "block_size": 64, "requests": turns}) + "\n", moments
    made = "".join(f"{draw.randrange(1, 9999)},{n}\n" for n in range(count))
    return made, None


def hold_trace(trace: Trace) -> None:
    """Hold what every trace that is read has: bounded lengths, times in order that start where something states it."""
    assert len(trace) > 0
    assert list(trace.arrival_s) == sorted(trace.arrival_s)
    assert all(isfinite(at) and at >= 0 for at in trace.arrival_s)
    assert all(1 <= tokens <= 1 << 30 for tokens in trace.prompt_tokens)
    assert all(0 <= tokens <= 1 << 30 for tokens in trace.output_tokens)
    assert len(trace.starts) == len(trace) + 1
    assert trace.arrivals in ("recorded", "at_once", "sessions_at_once", "rate")
    if trace.arrivals == "at_once":
        assert trace.duration_s == 0


def trace_text(draw: Draw) -> Outcome:
    """A trace with other text in it: read within its bounds, or refused; unchanged, with its times."""
    text, moments = drawn_trace(draw)
    kind = draw.random()
    if kind < 0.25:
        trace = read_lines(text.splitlines(keepends=True), "trace")
        hold_trace(trace)
        if moments is None:
            assert trace.arrivals == "at_once"
        else:
            assert trace.arrivals == "recorded"
            assert np.allclose(trace.arrival_s, moments, atol=2e-3)
        return ANSWERED
    if kind < 0.5 and text[0] in "[{":
        lines = [json.loads(line) for line in text.splitlines()] if text[0] == "{" else json.loads(text)
        changed = mutants.tree(draw, lines)
        text = (
            "".join(json.dumps(row) + "\n" for row in changed)
            if text[0] == "{" and isinstance(changed, list)
            else json.dumps(changed)
        )
    else:
        text = mutants.text(draw, text)
    rate = draw.choice((None, None, 0.5, 2.0))
    limit = draw.choice((None, None, 1, 3))
    try:
        trace = read_lines(text.splitlines(keepends=True), "trace", rate=rate, limit=limit)
    except InputError as error:
        return one_sentence(error)
    hold_trace(trace)
    return ANSWERED


def trace_file(draw: Draw) -> Outcome:
    """A file of a trace, packed or not, with other bytes in it."""
    raw = drawn_trace(draw)[0].encode()
    if draw.random() < 0.7:
        raw = gzip.compress(raw * draw.choice((1, 1, 50)), compresslevel=draw.choice((1, 9)), mtime=0)
    if draw.random() < 0.9:
        raw = mutants.octets(draw, raw)
    path = scratch() / "trace"
    path.write_bytes(raw)
    try:
        trace = read_trace(path, limit=draw.choice((None, None, 2)))
    except InputError as error:
        return one_sentence(error)
    hold_trace(trace)
    return ANSWERED


def trace_in_browser(draw: Draw) -> Outcome:
    """Traces, most of them changed: the browser's reader makes of each what the package's does."""
    texts = []
    for _ in range(BATCH):
        text, _ = drawn_trace(draw)
        texts.append(mutants.text(draw, text) if draw.random() < 0.7 else text)
    # Lone halves of a character and what Python alone splits lines at do not reach a file's reader.
    texts = [text.replace("\r", "").encode("utf-8", "replace").decode() for text in texts]
    for text, theirs in zip(texts, traces.in_browser(texts), strict=True):
        trace = None
        with contextlib.suppress(InputError):
            trace = read_lines(io.StringIO(text), "trace")
        assert ("error" in theirs) == (trace is None), (text, theirs)
        if trace is None:
            assert theirs["name"] == "Error", (text, theirs)
            continue
        assert theirs["prompts"] == list(trace.prompt_tokens), text
        assert theirs["outputs"] == list(trace.output_tokens), text
        assert theirs["arrivals"] == trace.arrivals, text
        assert np.allclose(theirs["times"], trace.arrival_s, atol=1e-5), (
            text,
            theirs["times"],
            trace.arrival_s,
        )
        assert (theirs["block"], theirs["distinct"]) == (trace.block_tokens, trace.num_nodes), text
    return "answered", BATCH


# --- the Hub -----------------------------------------------------------------------------------------

HUB_NAME: Final = "some-org/Some-Model-7B"
HUB_CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1536, "vocab_size": 4096,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
HUB_TENSORS: Final = checkpoints.llama(4, 512, 8, 2, 1536, 4096)


def hub_files() -> dict[str, bytes]:
    """Small files of a repository."""
    index = {"metadata": {"total_size": checkpoints.total(HUB_TENSORS)}, "weight_map": {}}
    return {
        "config.json": json.dumps(HUB_CONFIG).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }


@cache
def hub() -> fake_hub.FakeHub:
    """A Hub on this machine that lives as long as the process."""
    made = fake_hub.FakeHub({HUB_NAME: hub_files()})
    served = contextlib.ExitStack()
    served.enter_context(fake_hub.serve(made))
    atexit.register(served.close)
    return made


def hub_answers(draw: Draw) -> Outcome:
    """A Hub that lies, cuts and changes its answers: what is kept can be read; a refusal keeps nothing."""
    known = hub()
    known.lies.clear()
    known.cut.clear()
    listing = f"/api/models/{HUB_NAME}/revision/main"
    paths = {
        listing: json.dumps(
            {"sha": fake_hub.SHA, "siblings": [{"rfilename": one} for one in hub_files()]}
        ).encode()
    }
    paths |= {f"/{HUB_NAME}/resolve/{fake_hub.SHA}/{name}": data for name, data in hub_files().items()}
    for path, whole in paths.items():
        kind = draw.random()
        if kind < 0.3:
            known.lies[path] = json.dumps(mutants.tree(draw, json.loads(whole))).encode(
                "utf-8", "surrogatepass"
            )
        elif kind < 0.4:
            known.lies[path] = mutants.octets(draw, whole)
        elif kind < 0.45:
            known.lies[path] = draw.choice((b"", b"[" * 20_000, b"<html>", b"\xff", b"null", b"{}"))
        elif kind < 0.55:
            known.cut[path] = draw.randrange(len(whole))
    cache_folder = scratch() / "hub"
    shutil.rmtree(cache_folder, ignore_errors=True)
    try:
        found = fetch(HUB_NAME, cache=cache_folder, endpoint=known.endpoint)
    except InputError as error:
        assert not [path for path in cache_folder.rglob("*") if path.is_file()]
        return one_sentence(error, HUB_NAME)
    assert fault_of(found.folder) is None
    again = kept(HUB_NAME, cache=cache_folder)
    assert again is not None
    assert again.folder == found.folder
    return ANSWERED


def hub_cache(draw: Draw) -> Outcome:
    """A damaged cache of the Hub: what is kept is answered or refused, and --fetch puts it right."""
    known = hub()
    known.lies.clear()
    known.cut.clear()
    root = scratch() / "damaged"
    shutil.rmtree(root, ignore_errors=True)
    home = root / "kvreport" / "hub"
    fetch(HUB_NAME, cache=home, endpoint=known.endpoint)
    files = sorted(path for path in home.rglob("*") if path.is_file())
    for _ in range(draw.randrange(1, 3)):
        path = draw.choice(files)
        kind = draw.random()
        if path.is_dir() or not path.exists():
            continue
        if kind < 0.6:
            path.write_bytes(mutants.octets(draw, path.read_bytes()))
        elif kind < 0.75:
            path.write_bytes(draw.choice((b"", b"\xff\xfe", b"\x00" * 40, b"<html>", b"[" * 20_000)))
        elif kind < 0.85:
            path.unlink()
        elif kind < 0.95:
            path.unlink()
            path.mkdir()
        else:
            path.unlink()
            path.symlink_to(path)
    address = {"XDG_CACHE_HOME": str(root), "HF_ENDPOINT": known.endpoint}
    outcome = ANSWERED
    with mock.patch.dict("os.environ", address):
        try:
            open_name(HUB_NAME, catalog())
        except InputError as error:
            outcome = one_sentence(error)
        if (home / HUB_NAME.replace("/", "--") / "commits" / fake_hub.SHA / "config.json").is_file():
            opened = open_name(HUB_NAME, catalog(), fetching=True)
            assert opened.model.id == HUB_NAME
    return outcome


# --- logs as containers write them ---------------------------------------------------------------------


def docker_json(line: str) -> str:
    """A line of Docker's json-file driver."""
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-28T03:00:01.123456789Z"})


CONTAINERS: Final[dict[str, Callable[[str], str]]] = {
    "docker": docker_json,
    "json lines": lambda line: json.dumps({"ts": 1, "level": "info", "message": line}),
    "json, message first": lambda line: json.dumps({"message": line, "level": "info"}, separators=(",", ":")),
    "cri": lambda line: f"2026-01-02T03:04:05.678901234Z stderr F {line}",
    "journald": lambda line: f"Nov 28 03:00:01 gpu-7 vllm[1234]: {line}",
    "compose": lambda line: f"vllm-1  | {line}",
    "kubectl": lambda line: f"[pod/vllm-0/vllm] {line}",
    "csv cell": lambda line: f'"2026-11-28","{line}","info"',
}


@cache
def silent_lines() -> list[str]:
    """Lines of published logs that state nothing, so that only those of the target are compared."""
    return [line for line in LINES if line.strip() and not read_log(line).facts]


def container_log(draw: Draw) -> Outcome:
    """A start-up log as a container's runtime stores it says what the same lines say alone."""
    version = draw.choice(("0.33.0", "0.11.0rc2.dev14+g1a2b3c4", "0.19.1", "0.31.0.post1", "0.9.2"))
    tokens, pool = draw.randrange(16, 10**8), draw.randrange(1, 30_000) / 100
    length = draw.choice((4096, 32_768, 131_072))
    lines = [
        f"INFO 11-28 03:00:00 [api_server.py:1] vLLM API server version {version}",
        f"INFO args: --model meta-llama/Llama-3.1-8B-Instruct --max-model-len {length}",
        f"INFO 11-28 03:00:01 [gpu_worker.py:298] Available KV cache memory: {pool:.2f} GiB",
        f"INFO 11-28 03:00:01 [kv_cache_utils.py:1013] GPU KV cache size: {tokens:,} tokens",
        f"INFO 11-28 03:00:01 [kv_cache_utils.py:1017] Maximum concurrency for {length:,} tokens per request: 1.00x",
    ]
    extra = [draw.choice(silent_lines()) for _ in range(draw.randrange(4))]
    plain_facts = read_log("\n".join([*extra, *lines])).facts
    name = draw.choice(sorted(CONTAINERS))
    facts = read_log("\n".join(CONTAINERS[name](line) for line in [*extra, *lines])).facts
    assert facts["engine_version"] == version, (name, facts["engine_version"])
    for fact in ("kv_tokens", "kv_pool", "concurrency_len", "concurrency", "max_model_len"):
        assert facts.get(fact) == plain_facts.get(fact), (name, fact, facts.get(fact), plain_facts.get(fact))
    return ANSWERED


# --- fragments of addresses ------------------------------------------------------------------------------

_DECODED: Final = re.compile(r"  function decoded\(part\) \{\n.*?\n  \}\n", re.DOTALL)


def page_fragment(draw: Draw) -> Outcome:
    """Fragments of a page's address: decoded as the standard says, or left as they stand, and never an error."""
    words = (
        "%",
        "%41",
        "%C3%A9",
        "%ff",
        "of-h100",
        "%E0%A4%A",
        "#",
        "é",
        "%u0041",
        "%%",
        "a b",
        "%2",
        "__proto__",
    )
    parts = ["".join(draw.choices(words, k=draw.randrange(1, 5))) for _ in range(BATCH)]
    found = _DECODED.search((resources.assets_dir() / "kvreport.js").read_text(encoding="utf-8"))
    assert found is not None
    for part, got in zip(parts, traces.run(f"{found[0]} return given.map(decoded);", parts), strict=True):
        raw = unquote_to_bytes(part)
        well_formed = re.fullmatch(r"(?:[^%]|%[0-9A-Fa-f]{2})*", part) is not None
        try:
            expected = raw.decode("utf-8") if well_formed else part
        except UnicodeDecodeError:
            expected = part
        assert got == expected, (part, got)
    return "answered", BATCH


TARGETS: Final[dict[str, Callable[[Draw], Outcome]]] = {
    "config mutation": config_mutation,
    "core dimension": core_dimension,
    "config relation": config_relation,
    "record mutation": record_mutation,
    "record text": record_text,
    "estimate relation": estimate_relation,
    "matrix cells": matrix_cells,
    "log mutation": log_mutation,
    "printed log": printed_log,
    "GGUF header": gguf,
    "safetensors header": safetensors,
    "command line": command_line,
    "size relation": sizing,
    "written number": written_number,
    "array arithmetic": array_arithmetic,
    "browser arithmetic": browser_arithmetic,
    "page state": page_state,
    "page address": page_address,
    "drafting command": drafting_command,
    "trace text": trace_text,
    "trace file": trace_file,
    "trace in the browser": trace_in_browser,
    "Hub answers": hub_answers,
    "Hub cache": hub_cache,
    "container log": container_log,
    "page fragment": page_fragment,
    "any engine's answer": invariants.answers,
    "any engine's offer": invariants.offers,
}

SHARES: Final = {
    "config mutation": 150,
    "core dimension": 8,
    "config relation": 5,
    "record mutation": 75,
    "record text": 20,
    "estimate relation": 130,
    "matrix cells": 2,
    "log mutation": 120,
    "printed log": 50,
    "GGUF header": 10,
    "safetensors header": 10,
    "command line": 22,
    "size relation": 5,
    "written number": 94,
    "array arithmetic": 60,
    "browser arithmetic": 5,
    "page state": 4,
    "page address": 20,
    "drafting command": 5,
    "trace text": 30,
    "trace file": 10,
    "trace in the browser": 20,
    "Hub answers": 5,
    "Hub cache": 5,
    "container log": 20,
    "page fragment": 10,
    "any engine's answer": 100,
    "any engine's offer": 5,
}
"""How many of a thousand inputs each target is given: an input costs from microseconds to ten milliseconds."""


def drawn(target: str, seed: int) -> Draw:
    """Return the source of one input: the same for the same target and seed, on every machine."""
    return random.Random(f"{target} {seed}")  # noqa: S311 - examples, no secrets


def tried(target: str, seed: int) -> Outcome:
    """Give a target one input.

    Raises:
        AssertionError: With target and seed, where the input breaks something.
    """
    try:
        return TARGETS[target](drawn(target, seed))
    except Exception as error:
        told = f"fuzz target {target!r}, seed {seed}: {type(error).__name__}: {error}"
        raise AssertionError(told) from error
