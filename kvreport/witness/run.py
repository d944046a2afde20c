"""Answer cases with an engine's own code: one JSON object on standard input, one line for each case on standard output.

    PYTHON kvreport/witness/run.py < QUESTION.json

The question has ``engine`` (``vllm`` or ``sglang``), ``device`` (:func:`stand_in.pretend`), ``path`` (the folder of an
unpacked wheel, or null for the engine that is installed) and ``cases``: ``model`` (its id), ``config``, ``quantizer`` (the checkpoint's
``hf_quant_config.json`` or null), ``words`` (flags of the server, the model left out), ``pools`` (bytes) and
``lengths`` (tokens). An answer is the engine's figures, or ``error``: what it said.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

_LONGEST = 400
"""Characters of an error that are told."""


def main() -> None:
    """Read the question, answer its cases."""
    question = json.load(sys.stdin)
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an engine prints is no answer
    sys.argv = sys.argv[:1]
    with tempfile.TemporaryDirectory(prefix="kvreport-witness-") as scratch:
        offline = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK")
        os.environ.update(dict.fromkeys(offline, "1"), CUDA_VISIBLE_DEVICES="", VLLM_PLUGINS="")
        os.environ.update(VLLM_CACHE_ROOT=scratch, VLLM_LOGGING_LEVEL="CRITICAL", HF_HOME=scratch)
        warnings.filterwarnings("ignore")
        if question["path"]:
            sys.path.insert(0, question["path"])
        try:
            engine = question["engine"]
            planner = getattr(importlib.import_module(f"on_{engine}"), f"{engine.title()}Planner")
            planner = planner(question["device"])
        except BaseException as error:  # noqa: BLE001 - why nothing can be asked is the answer
            print(json.dumps({"cannot": _said(error)}), file=told, flush=True)
            return
        logging.disable(logging.CRITICAL)
        variables = dict(os.environ)
        for number, case in enumerate(question["cases"]):
            os.environ.clear()  # some classes set variables of their process, which would answer the next case
            os.environ.update(variables)
            named = re.sub(r"[^\w.-]+", "--", case.get("model", ""))[:80].strip(".")
            folder = Path(scratch) / str(number) / (named or "model")
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
            if case.get("quantizer"):
                (folder / "hf_quant_config.json").write_text(json.dumps(case["quantizer"]), encoding="utf-8")
            try:
                found: dict[str, Any] = planner.answer(str(folder), case)
            except BaseException as error:  # noqa: BLE001 - the engine's refusal is the answer
                found = {"error": _said(error)}
            print(json.dumps({"release": planner.release} | found), file=told, flush=True)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST]


if __name__ == "__main__":
    main()
