"""What is fuzzed by the thousand: each target gives one generated input to a public interface and judges the answer.

An input is made of its target's name and a seed, so a seed is all that has to be reported. A target returns what
became of the input (``answered`` or ``refused``) and raises on anything else: an exception that is no
:class:`~kvreport.errors.InputError`, or an answer that cannot be right. Targets that ask several questions
of one drawing say how many.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import shlex
import tempfile
from collections.abc import Callable
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Final
from unittest import mock

import brought
import checkpoints
import javascript
import kernel_calls
import mutants
import numpy as np
import page_states
from huggingface_configs import COUNTED
from startup_logs import LINES, NOISE, NUMBERS

import kvreport
from kvreport.accounting import capacity, kernel
from kvreport.accounting.capacity import Limit, Verdict
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import UNBOUNDED, CacheProfile, Term
from kvreport.architectures import read_config
from kvreport.architectures.assumptions import CORE
from kvreport.architectures.checkpoint import TOLERANCE
from kvreport.architectures.gguf import read_gguf
from kvreport.architectures.keys import Keys
from kvreport.architectures.reader import read_config_report
from kvreport.architectures.registry import find_architecture, known_classes
from kvreport.architectures.safetensors import read_witness
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import Formats, Grid
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.shelf import read_yaml, validate
from kvreport.cli import main, parser
from kvreport.dataset import grid
from kvreport.dataset.matrix import Cube, matrix
from kvreport.errors import CatalogError, InputError
from kvreport.estimation.explanation import headline
from kvreport.estimation.opening import open_folder
from kvreport.publish.browser import script
from kvreport.resources import data_dir
from kvreport.startup_log import FACTS, PATTERNS, diagnose, read_log
from kvreport.startup_log.reading import LARGEST, MAX_LINE
from kvreport.units import GIB, human_tokens, parse_bytes, parse_tokens

Draw = random.Random
Outcome = tuple[str, int]
"""What became of an input, and how many inputs it was."""
ANSWERED: Final[Outcome] = ("answered", 1)
REFUSED: Final[Outcome] = ("refused", 1)
DATA: Final = data_dir()
SENTENCE: Final = 2000
"""Characters that a refusal may have."""
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
    for line in str(error).splitlines() if isinstance(error, CatalogError) else [str(error)]:
        assert line.isprintable(), ascii(line)
        assert 10 <= len(line) <= SENTENCE, len(line)
        assert where in line, line
    return REFUSED


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
        found = kvreport.estimate(model, catalog=catalog(), **question).to_dict()
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


def config_mutation(draw: Draw) -> Outcome:
    """A config in which things are missing, doubled, moved or something else: a model, or one sentence."""
    config = mutants.tree(draw, mutants.fresh(draw.choice(configs())), skip=("architectures",))
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
}


@cache
def records() -> list[tuple[str, type[Any], str]]:
    """Records as JSON: every fifth model, and what else a catalog holds."""
    names = [f"models/{path.name}" for path in sorted((DATA / "models").glob("*.yaml"))[::5]]
    kinds: dict[str, type[Any]] = {**dict.fromkeys(names, Model), **OTHERS}
    return [(name, kind, json.dumps(read_yaml(DATA / name, name))) for name, kind in kinds.items()]


def record_mutation(draw: Draw) -> Outcome:
    """A record of the catalog in which things are something else: faults of one line, or answers."""
    others = draw.random() < 0.3
    name, kind, text = draw.choice(records()[-len(OTHERS) :] if others else records()[: -len(OTHERS)])
    data = mutants.tree(draw, mutants.fresh(text), skip=("sources",))
    try:
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


def record_text(draw: Draw) -> Outcome:
    """The text of a record with other signs in it: a document, or one line that names the file."""
    name, kind, _ = draw.choice(records())
    text = mutants.text(draw, (DATA / name).read_text(encoding="utf-8"))
    path = scratch() / "record.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    try:
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
    """A longer context never costs less and never serves more."""
    if shorter is None or longer is None:
        return
    assert shorter["kv_bytes_per_request_per_gpu"] <= longer["kv_bytes_per_request_per_gpu"]
    assert shorter["kv_bytes_per_token_per_gpu"] >= longer["kv_bytes_per_token_per_gpu"]  # windows are full
    for name in ("max_concurrent_requests", "max_concurrent_requests_ceiling"):
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
    where, column = draw.choice(possible), draw.randrange(len(cube.contexts))
    g, t, w, k = where
    layout = cube.layouts[t]
    if cube.values["max_concurrent_requests"][g, t, w, k, column] >= kernel.UNLIMITED_REQUESTS:
        return 0  # a row without a number; an estimate refuses the question
    answer = kvreport.estimate(
        cube.model,
        gpu=cube.gpus[g],
        tensor_parallel=layout.tensor,
        data_parallel=layout.data,
        expert_parallel=layout.expert,
        pipeline_parallel=layout.pipeline,
        decode_context_parallel=layout.decode_context,
        weights=cube.weight_formats[w],
        kv=cube.kv_formats[k],
        context_tokens=cube.contexts[column],
        catalog=catalog(),
        engine=cube.engine,
    )
    found = answer.to_dict()
    sensible(found)
    if (cube.weight_formats[w], cube.kv_formats[k]) != (found["weight_format"], found["kv_format"]):
        return 0  # an estimate serves float32 where a device has no 16-bit type of the model; a row is its formats
    row = {name: values[g, t, w, k, column] for name, values in cube.values.items()}
    nodes = found["layout"]["nodes"]
    if nodes != layout.nodes:
        # The estimate takes as many machines as the devices need, and says so; a row names none.
        assert f"in {nodes} machines" in headline(answer)
        assert any(said.startswith(f"nodes {nodes}:") for said in found["assumptions"])
        assert found["layout"]["gpus_per_node"] * nodes == found["layout"]["gpus"]
        if Verdict(int(row["verdict"])).label == "engine_does_not_run" != found["verdict"]:
            # A computer's own chip cannot stand next to others: the row is of one machine, and refuses.
            assert catalog().accelerator(cube.gpus[g]).is_computer
            assert row["max_concurrent_requests"] == 0
            for name in ("weight_bytes_per_gpu", "kv_bytes_per_request_per_gpu"):
                assert row[name] == found[name], name
            return 1
    assert Verdict(int(row["verdict"])).label == found["verdict"]
    assert Limit(int(row["limited_by"])).label == found["limited_by"]
    assert row["shortfall_bytes_per_gpu"] == found["shortfall_bytes"]
    assert row["kv_pool_bytes_per_gpu"] == found["budget"]["kv_pool_bytes"]
    for name in (
        "max_concurrent_requests",
        "weight_bytes_per_gpu",
        "kv_bytes_per_request_per_gpu",
        "max_context_tokens",
    ):
        assert row[name] == found[name], name
    return 1


# --- logs --------------------------------------------------------------------------------------------


def log_lines(draw: Draw) -> list[str]:
    """Real lines of start-up logs, some of them damaged."""
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
    return found


PATTERN_NAMES: Final = {pattern.name for pattern in PATTERNS}


def check_reading(reading: Any) -> None:
    """Hold what was read of a log: known facts, and no number that no machine has."""
    assert set(reading.facts) <= set(FACTS)
    for value in reading.facts.values():
        assert isinstance(value, str) or (isfinite(value) and abs(value) <= LARGEST)
    for line in reading.recognised:
        assert line.pattern in PATTERN_NAMES
        assert len(line.text) <= MAX_LINE


def log_mutation(draw: Draw) -> Outcome:
    """A damaged log: facts or one sentence, and the same whatever ends its lines."""
    lines = log_lines(draw)
    try:
        reading = read_log("\n".join(lines))
    except InputError as error:
        return one_sentence(error)
    check_reading(reading)
    if not any(sign in line for line in lines for sign in "\r\n\x85\u2028\x1c\x0b\x0c"):
        again = read_log("\r\n".join(lines))
        assert again.facts == reading.facts
    if draw.random() < 0.05:
        diagnosed(draw, "\n".join(lines))
    return ANSWERED


def diagnosed(draw: Draw, text: str) -> None:
    """Diagnose a log, with facts that it may contradict."""
    try:
        found = diagnose(
            text,
            model=draw.choice((None, *model_ids()[::9])),
            gpu=draw.choice((None, *gpu_ids())),
            tensor_parallel=draw.choice((None, 1, 2, 3, 8)),
            catalog=catalog(),
        )
    except InputError as error:
        one_sentence(error)
        return
    json.dumps(found.to_dict(), allow_nan=False)
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
            answer = kvreport.estimate(
                str(path), gpu="rtx-4090", engine="llama-cpp", context_tokens=4096, catalog=catalog()
            )
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
        assert near or any("taken from the files" in line for line in opened.assumptions), (mine, stored)
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
        found = kvreport.size(model, concurrent=concurrent, catalog=catalog(), **asked)
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
        more = kvreport.size(model, concurrent=2 * concurrent, catalog=catalog(), **asked)
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
}

SHARES: Final = {
    "config mutation": 50,
    "core dimension": 8,
    "config relation": 5,
    "record mutation": 25,
    "record text": 5,
    "estimate relation": 130,
    "matrix cells": 2,
    "log mutation": 60,
    "printed log": 50,
    "GGUF header": 10,
    "safetensors header": 10,
    "command line": 22,
    "size relation": 5,
    "written number": 144,
    "array arithmetic": 110,
    "browser arithmetic": 110,
    "page state": 4,
    "page address": 245,
    "drafting command": 5,
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
