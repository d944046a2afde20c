"""Hold the answers of two versions against each other: the net under a refactoring.

    python scripts/compare_answers.py record BEFORE.jsonl      # every command, each engine and release, every layout
    python scripts/compare_answers.py record AFTER.jsonl --as BEFORE.jsonl     # the same, though the catalog has grown
    python scripts/compare_answers.py compare BEFORE.jsonl AFTER.jsonl
    python scripts/compare_answers.py folders site-before/downloads site-after/downloads    # published JSON by value
    python scripts/compare_answers.py datasets BEFORE.parquet AFTER.parquet                 # rows by key

``record`` asks whichever kvreport is imported. Its questions are drawn from the catalog, so they are the same each time
while no model or machine is new; ``--as`` asks what an earlier record asked. ``compare``, ``folders`` and
``datasets`` allow what is new (keys, files, columns, rows whose key columns are new) and name everything else that
differs, by kind of question; the exit status is 1 if anything does. ``--only KIND`` asks one kind.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

SEED = 20261128
# Under five minutes of one core together: an estimate for llama.cpp takes seconds, one for a server a tenth of one.
SERVERS = 450
LOCALS = {"llama-cpp": 15, "ollama": 15, "mlx": 15}
_SHOWN = 5
_KEYS = (
    "model",
    "gpu",
    "engine",
    "layout",
    "tensor_parallel",
    "weight_format",
    "kv_format",
    "context_tokens",
)
_SERVER_FLAGS: list[list[str]] = [
    [],
    [],
    ["--kv", "fp8"],
    ["--weights", "fp8"],
    ["--weights", "int4", "--kv", "fp8"],
    ["--eager"],
    ["--max-batched-tokens", "4096", "--max-seqs", "64"],
    ["--utilization", "0.8"],
    ["--kv-pool", "20GiB"],
    ["--block-size", "32"],
    ["--no-prefix-caching"],
    ["--prefix-caching"],
    ["--draft", "mtp", "--num-speculative-tokens", "2"],
    ["--draft", "meta-llama/Llama-3.2-1B-Instruct", "--num-speculative-tokens", "3"],
    ["--max-loras", "4", "--max-lora-rank", "32"],
    ["--limit-mm-per-prompt", "image=0"],
    ["--kv-offload", "64GiB"],
    ["--held-by-others", "2GiB"],
    ["--sampler", "flashinfer"],
    ["--mamba-ssm-cache-dtype", "float32"],
    ["--dtype", "float32"],
    ["--require", "8"],
]
_MLX_FLAGS: list[list[str]] = [[], ["--kv", "q8_0"], ["--max-seqs", "8"], ["--max-batched-tokens", "512"]]
_LOCAL_FLAGS: list[list[str]] = [
    [],
    ["--parallel", "1"],
    ["--parallel", "2", "--kv-unified"],
    ["--ubatch-size", "2048", "--flash-attn", "on"],
    ["--flash-attn", "off"],
    ["--n-gpu-layers", "20"],
    ["--n-cpu-moe", "8"],
    ["--cpu-moe"],
    ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on"],
    ["--swa-full"],
    ["--fit"],
    ["--no-kv-offload"],
    ["--host-memory", "64GiB"],
    ["--spec-type", "draft-mtp"],
    ["--cache-ram", "0"],
]
_LAYOUTS: list[list[str]] = [
    [],
    [],
    ["--tp", "2"],
    ["--tp", "4"],
    ["--tp", "8"],
    ["--dp", "8", "--expert-parallel"],
    ["--tp", "2", "--dp", "4", "--expert-parallel"],
    ["--tp", "4", "--pp", "2"],
    ["--pp", "3"],
    ["--tp", "8", "--dcp", "4"],
    ["--tp", "8", "--pp", "2", "--nodes", "2"],
    ["--dp", "2"],
]
Question = list[str]


def questions(folder: Path) -> Iterator[tuple[str, Question]]:
    """Yield the same questions every time, each with its kind; files that they name are written into the folder."""
    from kvreport.catalog.load import open_catalog

    known = open_catalog()
    draw = random.Random(SEED)  # noqa: S311 - a sample, not a secret
    for source in (_servers, _locals, _own, _sizes, _commands, _logs):
        yield from source(known, draw, folder)


def _releases(known: Any) -> list[str]:
    """Return every engine, and each edge of a record's releases as ``family@release``."""
    names = [name for name, one in sorted(known.engines.items()) if one.family not in _LOCAL]
    edges = {
        f"{one.family.replace('_', '-')}@{one.version}"
        for one in known.engines.values()
        if one.family in ("vllm", "sglang") and one.version
    }
    return [*names, *sorted(edges)]


_LOCAL = ("llama_cpp", "ollama", "mlx")
_LOCAL_MIXES = ["q4_k_m", "q8_0", "bf16", "q6_k", "iq4_xs", "mlx-4bit"]


def _dealt(draw: random.Random, items: Sequence[Any]) -> Iterator[Any]:
    """Every item in a drawn order, then every one in another: none is left out by chance."""
    while True:
        yield from draw.sample(items, len(items))


def _servers(known: Any, draw: random.Random, _: Path) -> Iterator[tuple[str, Question]]:
    models, gpus, engines = sorted(known.models), sorted(known.accelerators), _releases(known)
    contexts = ["1K", "8K", "32K", "128K"]
    layouts, flags = _dealt(draw, _LAYOUTS), _dealt(draw, _SERVER_FLAGS)
    for number in range(SERVERS):
        engine = engines[number // 2 % len(engines)] if number % 2 else "vllm"
        gpu = draw.choice(gpus) if draw.random() < 0.5 else draw.choice(_COMMON)
        asked = ["estimate", draw.choice(models), "--gpu", gpu, "--engine", engine]
        asked += [*next(layouts), "--context", draw.choice(contexts), *next(flags), *_form(draw)]
        yield f"estimate {known.engines[engine].family if engine in known.engines else engine}", asked
    yield (
        "unequal GPUs",
        [
            "estimate",
            "Qwen/Qwen3-32B",
            "--gpu",
            "rtx-5090",
            "--gpu",
            "rtx-4090",
            "--format",
            "json",
        ],
    )


_COMMON = ["h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "rtx-4090", "mi300x", "a100-sxm-80gb"]


def _form(draw: random.Random) -> list[str]:
    """Mostly JSON, where every figure is; the text is compared as well."""
    return ["--format", "json"] if draw.random() < 0.8 else []


def _locals(known: Any, draw: random.Random, _: Path) -> Iterator[tuple[str, Question]]:
    models = sorted(known.models)
    homes = sorted(
        name
        for name, one in known.accelerators.items()
        if name.startswith(("rtx-", "m1", "m2", "m3", "m4", "m5", "rx-", "arc-", "ryzen"))
    )
    for engine, count in LOCALS.items():
        # mlx-lm has none of llama.cpp's options: with them it would give refusals only.
        flags = _dealt(draw, _MLX_FLAGS if engine == "mlx" else _LOCAL_FLAGS)
        mixes = _dealt(draw, _LOCAL_MIXES)
        for _number in range(count):
            asked = ["estimate", draw.choice(models), "--gpu", draw.choice(homes), "--engine", engine]
            asked += ["--context", draw.choice(["4K", "32K", "128K"])]
            if draw.random() < 0.7:
                asked += ["--weights", next(mixes)]
            yield f"estimate {engine}", [*asked, *next(flags), *_form(draw)]


def _own(_: Any, draw: random.Random, folder: Path) -> Iterator[tuple[str, Question]]:
    """Configs and a GGUF file that the catalog does not have: as models, and as records of a catalog."""
    import brought
    import huggingface_configs

    (folder / "tiny.gguf").write_bytes(brought.gguf_file())
    yield "gguf", ["estimate", "tiny.gguf", "--gpu", "rtx-4090", "--engine", "llama-cpp", "--format", "json"]
    for number, (config, _total) in enumerate(huggingface_configs.COUNTED.values()):
        name = f"config-{number}.json"
        (folder / name).write_text(json.dumps(config), encoding="utf-8")
        yield "model", ["model", name]
        asked = ["estimate", name, "--gpu", draw.choice(_COMMON), *draw.choice(_LAYOUTS), "--context", "8K"]
        yield "estimate of a config", [*asked, "--format", "json"]


def _sizes(known: Any, draw: random.Random, _: Path) -> Iterator[tuple[str, Question]]:
    served = sorted(known.models)
    for _number in range(24):
        asked = ["size", draw.choice(served), "--gpu", draw.choice(_COMMON), "--concurrent", "16"]
        asked += ["--context", draw.choice(["4K", "32K"]), *draw.choice([[], ["--kv", "auto,fp8"]])]
        yield "size", [*asked, "--engine", draw.choice(["vllm", "sglang"]), *_form(draw)]
    for model in ("Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b"):
        words = f"size {model} --gpu rtx-4090 --gpu m4-* --engine llama-cpp --context 32K --concurrent 2"
        yield "size", shlex.split(words)
    yield (
        "size",
        shlex.split(
            "size deepseek-ai/DeepSeek-V3 --gpu h200-sxm-141gb --layouts dp8-ep,tp8 --context 32K --concurrent 64"
        ),
    )


def _commands(_: Any, __: random.Random, folder: Path) -> Iterator[tuple[str, Question]]:
    h100 = ["--gpu", "h100-sxm-80gb", "--context", "8K,64K", "--format", "json"]
    yield "diff", ["diff", "vllm@0.11.0", "vllm", "--model", "qwen/*", *h100]
    yield "diff", ["diff", "sglang@0.5.9", "sglang", "--model", "deepseek*/*", "--tp", "8", *h100]
    yield "diff", ["diff", "Qwen/Qwen3-32B", "Qwen/Qwen2.5-32B-Instruct", *h100]
    rows = ["timestamp,prompt_tokens,output_tokens"]
    rows += [f"{at * 0.7:.1f},{1500 + at * 37 % 4000},{200 + at * 13 % 600}" for at in range(300)]
    (folder / "trace.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for model in ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3.6-27B"):
        yield "replay", ["replay", "trace.csv", model, "--gpu", "H100", "--format", "json"]
    yield (
        "replay",
        shlex.split("replay mooncake-conversation Qwen/Qwen3-32B --gpu H200 --limit 1000 --format json"),
    )
    for kind in ("models", "gpus", "engines", "formats"):
        yield "list", ["list", kind, "--format", "json"]
    for file in sorted((ROOT / "data/observations").glob("*.yaml")):
        if file.name != "layouts.yaml":
            yield "validate", ["validate", str(file.relative_to(ROOT)), "--format", "json"]


def _logs(_: Any, __: random.Random, folder: Path) -> Iterator[tuple[str, Question]]:
    """The lines of every observation, as the log that they were cut from, and every log that a test reads."""
    from startup_logs import LINES, LLAMA_CPP, LOGS, OLLAMA_PLACED

    from kvreport.catalog.observation import load_observations

    told: dict[str, tuple[str, list[str]]] = {}
    for one in load_observations(ROOT / "data"):
        asked = ["--model", one.model_id] if one.model_id else []
        asked += ["--gpu", one.gpu] if one.gpu else []
        told[one.id] = ("\n".join(one.origin.lines), asked if one.origin.lines else [])
    told |= {f"test-{name}": (text, []) for name, text in LOGS.items()}
    told |= {"llama": (LLAMA_CPP, []), "ollama": (OLLAMA_PLACED, []), "lines": ("\n".join(LINES), [])}
    for path in sorted((ROOT / "tests").glob("*/test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "read_log" in source or "diagnose" in source or "read_start" in source:
            texts = [one.value for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Constant)]
            logs = [text for text in texts if isinstance(text, str) and "\n" in text.strip()]
            told |= {f"{path.stem}-{crc32(text.encode()):08x}": (text, []) for text in logs}
    for name, (text, asked) in told.items():
        if text.strip():
            (folder / f"{name}.log").write_text(f"{text}\n", encoding="utf-8")
            yield "log", ["log", f"{name}.log", "--format", "json", *asked]


def record(out: Path, only: str | None, earlier: Path | None) -> int:
    """Ask every question and write its answer, or its error, a line each."""
    from kvreport.cli import main
    from kvreport.processes import collect_garbage_less

    collect_garbage_less()
    lines = []
    seconds: Counter[str] = Counter()
    began = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "data").symlink_to(ROOT / "data")
        os.chdir(place)
        try:
            asked = list(questions(Path(place)))  # which writes the files that they name
            if earlier is not None:
                lines_before = map(json.loads, earlier.read_text("utf-8").splitlines())
                asked = [(one["kind"], one["asked"]) for one in lines_before]
            for kind, words in asked:
                if only is None or kind == only:
                    start = time.process_time()
                    lines.append(json.dumps(_ask(main, kind, words)))
                    seconds[kind] += time.process_time() - start
        finally:
            os.chdir(began)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for kind, spent in seconds.most_common():
        print(f"{kind:<28}{spent:>8.1f} s of processor time")
    return 0


def _ask(main: Callable[[list[str]], int], kind: str, words: Question) -> dict[str, Any]:
    printed, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
        try:
            status = main(words)
        except SystemExit as left:
            status = int(left.code or 0)
    answer: Any = printed.getvalue() or complained.getvalue()
    with contextlib.suppress(ValueError):
        answer = json.loads(printed.getvalue())
    return {"kind": kind, "asked": words, "status": status, "answer": answer}


def compare(before: Path, after: Path) -> int:
    """Print what differs, key by key, and how many answers of each kind are equal."""
    old, new = (
        {(one["kind"], *one["asked"]): one for one in map(json.loads, path.read_text("utf-8").splitlines())}
        for path in (before, after)
    )
    equal: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    for asked, was in old.items():
        now = new.get(asked)
        faults = ["not asked after"] if now is None else list(_of_answers(was, now))
        (differing if faults else equal)[was["kind"]] += 1
        if faults and differing[was["kind"]] <= _SHOWN:
            print(f"[{was['kind']}]", *was["asked"], *(f"\n    {fault}" for fault in faults[:6]))
    for kind in sorted(equal | differing):
        print(f"{kind:<28}{equal[kind]:>6} equal{differing[kind]:>6} differ")
    print(f"{sum(equal.values())} of {len(old)} answers equal")
    return 1 if differing else 0


def _of_answers(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if was["status"] != now["status"]:
        yield f"exit {was['status']} -> {now['status']}: {str(now['answer'])[:160]}"
    else:
        yield from _differences("", was["answer"], now["answer"])


def _differences(place: str, was: Any, now: Any) -> Iterator[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was:
            if key not in now:
                yield f"{place}.{key}: gone"
            else:
                yield from _differences(f"{place}.{key}", was[key], now[key])
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _differences(f"{place}[{number}]", one, other)
    elif isinstance(was, str) and isinstance(now, str) and was != now and "\n" in was:
        pairs = zip(was.splitlines(), now.splitlines(), strict=False)
        first = next(((one, other) for one, other in pairs if one != other), ("(length)", "(length)"))
        yield f"{place}: {first[0]!r} -> {first[1]!r}"
    elif was != now:
        yield f"{place}: {str(was)[:120]!r} -> {str(now)[:120]!r}"


def folders(before: Path, after: Path) -> int:
    """Compare the JSON files of two folders by value; files that are new are allowed."""
    differing = 0
    files = sorted(before.rglob("*.json"))
    for file in files:
        name = file.relative_to(before)
        other = after / name
        faults = (
            list(_differences("", json.loads(file.read_bytes()), json.loads(other.read_bytes())))
            if other.is_file()
            else ["gone"]
        )
        differing += bool(faults)
        if faults and differing <= _SHOWN * 4:
            print(name, *(f"\n    {fault}" for fault in faults[:6]))
    print(f"{len(files) - differing} of {len(files)} files equal")
    return 1 if differing or not files else 0


def datasets(before: Path, after: Path) -> int:
    """Join two datasets on the key columns of the older one and compare every column that both have."""
    import duckdb

    con = duckdb.connect()
    con.execute("SET preserve_insertion_order=false")
    old, new = (f"read_parquet('{path}')" for path in (before, after))
    shared = [
        row[0]
        for row in con.execute(
            f"SELECT column_name FROM (DESCRIBE SELECT * FROM {old}) INTERSECT "  # noqa: S608 - local files
            f"SELECT column_name FROM (DESCRIBE SELECT * FROM {new})"
        ).fetchall()
    ]
    key = [name for name in _KEYS if name in shared]
    rest = [name for name in shared if name not in key]
    on = " AND ".join(f"o.{name} = n.{name}" for name in key)
    count = con.execute(f"SELECT count(*) FROM {old}").fetchone()  # noqa: S608
    joined = con.execute(
        "SELECT count(*), "  # noqa: S608
        + ", ".join(f"count(*) FILTER (o.{name} IS DISTINCT FROM n.{name})" for name in rest)
        + f" FROM {old} o JOIN {new} n ON {on}"
    ).fetchone()
    assert count is not None
    assert joined is not None
    print(f"rows before {count[0]:,}, with the same key after {joined[0]:,}")
    differing = {name: number for name, number in zip(rest, joined[1:], strict=True) if number}
    print("columns that differ:", differing or "none")
    return 1 if differing or joined[0] != count[0] else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare", "folders", "datasets"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", metavar="KIND", help="record one kind of question")
    parser.add_argument(
        "--as", dest="earlier", type=Path, metavar="BEFORE.jsonl", help="ask what an earlier record asked"
    )
    asked = parser.parse_args()
    if asked.action == "record":
        earlier = None if asked.earlier is None else asked.earlier.resolve()
        return record(asked.files[0].resolve(), asked.only, earlier)
    action = {"compare": compare, "folders": folders, "datasets": datasets}[asked.action]
    return action(asked.files[0], asked.files[1])


if __name__ == "__main__":
    sys.exit(main())
