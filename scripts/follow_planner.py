"""Run an engine's own planner over the hard models of ``experiments/configs``, and say where our plan differs.

    python scripts/follow_planner.py vllm 0.33.0 --python PYTHON [--path UNPACKED] [--configs FOLDER] > records.jsonl

``make follow`` calls it with the wheel that it unpacked. Hard are models that keep more than one plain cache. Each is
asked under several layouts on three devices, with the flags of the start command that kvreport prints; pools of 10
and 40 GiB and two lengths make four points of each case. One record is a line: what was asked and answered.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from kvreport.architectures import read_config
from kvreport.catalog.load import load_catalog
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB
from kvreport.witness import asking

ROOT: Final = Path(__file__).resolve().parents[1]
CONFIGS: Final = ROOT / "experiments" / "configs"
LAYOUTS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "h100-sxm-80gb": ({"tensor_parallel": 1}, {"tensor_parallel": 8}, {"pipeline_parallel": 2}),
    "b200-sxm-180gb": ({"tensor_parallel": 8}, {"tensor_parallel": 1, "kv": "fp8"}),
    "rtx-4090": ({"tensor_parallel": 2},),
}
POOLS: Final = (10 * GIB, 40 * GIB)
LENGTHS: Final = (2048, 8192)
SECONDS: Final = 3000
TERMS: Final = {
    "blocks": "bytes of a block and what it holds",
    "tokens": "the printed tokens",
    "concurrency": "blocks of a request",
    "window_tokens": "share of windows",
    "state_slots": "share of states",
    "max_requests": "requests at once",
    "max_batched_tokens": "tokens of a step by default",
    "chunk_tokens": "tokens of a prefill chunk by default",
    "max_seqs": "sequences by default",
}
"""The rule, in words, that a quantity of the planner rests on."""


def hard_models(configs: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield id and config of every model whose layers keep more than one plain cache."""
    for path in sorted([*configs.glob("*.yaml"), *configs.glob("*.json")]):
        read = json.loads if path.suffix == ".json" else yaml.safe_load  # to YAML, 1e-05 is a text
        record = read(path.read_text(encoding="utf-8"))
        config = {name: value for name, value in record.get("config", record).items() if name != "auto_map"}
        name = record.get("id") or path.stem.replace("--", "/", 1)
        try:
            model = read_config(config, id=name)
        except InputError:
            continue
        plain = all(cache.kind == "full" for layers in model.layers for cache in layers.caches)
        if not plain and config.get("architectures"):
            yield name, config


def records(
    family: str, release: str, python: str, path: Path | None, configs: Path
) -> Iterator[dict[str, Any]]:
    """Yield what was asked of an engine, what it answered and what differs."""
    catalog = load_catalog()
    models = {name: (config, read_config(config, id=name)) for name, config in hard_models(configs)}
    for gpu, layouts in LAYOUTS.items():
        asked, cases, ours = [], [], []
        for name, (config, model) in models.items():
            for layout in layouts:
                row = {"id": name, "gpu": gpu, "layout": layout}
                try:
                    longest = min(LENGTHS[-1], model.context_tokens or LENGTHS[-1])
                    told = {"gpu": gpu, "context_tokens": longest, "engine": f"{family}@{release}"}
                    result = estimate(model, catalog=catalog, **told, **layout)
                except InputError as error:
                    yield row | {"refused": str(error)}
                    continue
                case = asking.case_of(result, config).to_dict()
                cases.append(case | {"pools": POOLS, "lengths": (LENGTHS[0], longest)})
                asked.append(row | {"words": case["words"]})
                ours.append(result)
        device = catalog.accelerator(gpu)
        answers = asking.ask(python, family, device, cases, path=path, seconds=SECONDS) if cases else []
        for row, result, answer in zip(asked, ours, answers, strict=True):
            parted = [] if "error" in answer else asking.differs(result, answer)
            yield row | {"verdict": result.verdict, "answer": answer, "differs": parted}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a report: cases, points that are equal, and what differs, by rule."""
    for row in rows:  # another library plans for a class that the engine has not
        if row.get("answer", {}).get("own_class") is False:
            row["answer"] = {"error": "served through transformers, without a class of the engine's own"}
    both = [row for row in rows if "answer" in row and "error" not in row["answer"]]
    points = sum(len(row["answer"]["at"]) for row in both)
    unequal = sum(len({(one["pool"], one["length"]) for one in row["differs"]}) for row in both)
    lines = [
        f"{len({row['id'] for row in rows})} models, {len(rows)} cases: the engine planned {len(both)}.",
        f"Points: {points - unequal} of {points} equal.",
        "",
    ]
    by_term: dict[str, list[str]] = {}
    for row in both:
        for one in row["differs"]:
            said = f"{row['id']} {row['gpu']} {row['layout']}: {one['ours']} for {one['engine']}"
            by_term.setdefault(one["quantity"], []).append(said)
    for name, said in sorted(by_term.items()):
        models = {one.split()[0] for one in said}
        lines += [
            f"- {name} ({TERMS.get(name, name)}): {len(said)} points of {len(models)} models, first {said[0]}"
        ]
    for title, kept in (
        ("Refused here", [(row["id"], row["refused"]) for row in rows if "refused" in row]),
        ("Not answered by the engine", [
            (row["id"], row["answer"]["error"]) for row in rows if "error" in row.get("answer", {})
        ]),
    ):  # fmt: skip
        counted = Counter(" ".join(text.split())[:160] for _, text in kept)
        lines += ["", f"{title}: {len(kept)}."] if kept else []
        lines += [f"- {number}: {text}" for text, number in counted.most_common(12)]
    return lines


def main(words: list[str]) -> int:
    """Print records, and the summary on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", choices=asking.ASKED)
    parser.add_argument("release")
    parser.add_argument(
        "--python", required=True, help="interpreter with CPU PyTorch and what the wheel imports"
    )
    parser.add_argument("--path", type=Path, help="folder of an unpacked wheel")
    parser.add_argument("--configs", type=Path, default=CONFIGS, help="folder with configs")
    given = parser.parse_args(words)
    rows = []
    for row in records(given.engine, given.release, given.python, given.path, given.configs):
        rows.append(row)
        print(json.dumps(row), flush=True)
    print("\n".join(summary(rows)), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
