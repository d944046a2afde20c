"""Run SGLang's own argument resolution and pool configurators with a pretended device, one JSON line each.

    python scripts/run_sglang_planner.py CONFIGS FLAGS.json --python PYTHON [--path UNPACKED] [--gpu NAME] > records.jsonl

CONFIGS is a folder with one JSON file per model: a ``config.json``, alone or under the key ``config``
(with the checkpoint's ``hf_quant_config`` beside it, if it has one); a ``note`` that speaks of class defaults says
that no checkpoint's config was at hand. FLAGS.json is a list of objects of ``ServerArgs`` fields; every model is run
under each. A draft model is named by its file in ``CONFIGS/drafts``. No GPU is needed and no weights are read
(:mod:`kvreport.witness`); the budget of the pools is 40 GiB. ``scripts/check_sglang.py`` compares the records.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from kvreport.catalog.load import load_catalog
from kvreport.units import GIB
from kvreport.witness.asking import ask

BUDGET = 40 * GIB
SECONDS = 36_000
DRAFT = "speculative_draft_model_path"


def _read(source: Path) -> dict[str, Any]:
    record = json.loads(source.read_text())
    config = {name: value for name, value in record.get("config", record).items() if name != "auto_map"}
    defaults = "class defaults" in str(record.get("note"))
    return {"config": config, "quantizer": record.get("hf_quant_config"), "class_defaults": defaults}


def main() -> None:
    """Run every model under every set of flags."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("configs", type=Path)
    arguments.add_argument("flags", type=Path)
    arguments.add_argument("--python", required=True)
    arguments.add_argument("--path", type=Path)
    arguments.add_argument("--gpu", default="h100-sxm-80gb")
    asked = arguments.parse_args()
    cases, rows = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for source in sorted(asked.configs.glob("*.json")):
            case = _read(source)
            for flags in json.loads(asked.flags.read_text()):
                told = dict(flags)
                if told.get(DRAFT) is not None:
                    beside = Path(scratch, told[DRAFT])
                    beside.mkdir(exist_ok=True)
                    draft = _read(asked.configs / "drafts" / f"{told[DRAFT]}.json")
                    (beside / "config.json").write_text(json.dumps(draft["config"]))
                    told[DRAFT] = str(beside)
                cases.append({**case, "model": source.stem, "words": None, "flags": told, "pools": [BUDGET]})
                row = {"id": source.stem.replace("--", "/", 1), "gpu": asked.gpu, "flags": flags}
                rows.append(row | {"class_defaults": case["class_defaults"]})
        device = load_catalog().accelerator(asked.gpu)
        answers = ask(asked.python, "sglang", device, cases, path=asked.path, seconds=SECONDS)
    for row, answer in zip(rows, answers, strict=True):
        at = answer.pop("at", [{}]) or [{}]
        none = {
            "window_tokens": None,
            "state_slots": None,
            "chunk_tokens": -1,
        }  # -1 is no count that comes back
        print(json.dumps(row | none | {"sglang": answer.pop("release", None)} | answer | at[0]))


if __name__ == "__main__":
    main()
