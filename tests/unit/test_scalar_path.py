"""One estimate is plain numbers: it needs neither numpy nor pandas, and arrays give the same."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from kvreport import estimate
from kvreport.accounting import numeric as xp
from kvreport.accounting.deployment import lay_out
from kvreport.catalog.load import open_catalog
from kvreport.estimation.request import resolve
from kvreport.query import Query

QUESTIONS = [
    ("Qwen/Qwen2.5-7B", "h100-sxm-80gb", {"context_tokens": 8192}),
    ("deepseek-ai/DeepSeek-V3", "h200-sxm-141gb", {"tensor_parallel": 8}),
    ("openai/gpt-oss-120b", "h100-sxm-80gb", {"engine": "sglang"}),
    ("openai/gpt-oss-20b", "h100-sxm-80gb", {"engine": "tensorrt_llm"}),
    ("Qwen/Qwen2.5-7B", "h100-sxm-80gb", {"engine": "transformers", "context_tokens": 100}),
    ("meta-llama/Llama-3.3-70B-Instruct", "h100-sxm-80gb", {"pipeline_parallel": 4, "weights": "fp8"}),
    ("tiiuae/Falcon-H1-0.5B-Instruct", "h100-sxm-80gb", {"engine": "sglang", "tensor_parallel": 2}),
    ("Qwen/Qwen2.5-7B", "rtx-4090-24gb", {"engine": "llama_cpp"}),
]

_SCRIPT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "pandas", "pyarrow", "scipy"):
            raise ModuleNotFoundError(f"{name} is not to be imported here")
sys.meta_path.insert(0, Refuse())
import json, kvreport
answers = [kvreport.estimate(m, gpu=g, **options).to_dict() for m, g, options in json.loads(sys.argv[1])]
print(json.dumps(answers, default=str))
"""


def test_estimates_import_no_numpy_and_are_the_same_without_it() -> None:
    asked = [sys.executable, "-c", _SCRIPT, json.dumps(QUESTIONS)]
    run = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    here = [estimate(model, gpu=gpu, **options).to_dict() for model, gpu, options in QUESTIONS]  # type: ignore[arg-type]
    assert json.loads(run.stdout) == json.loads(json.dumps(here, default=str))


def test_the_command_imports_no_numpy_either() -> None:
    script = _SCRIPT.partition("import json, kvreport")[0] + "from kvreport.cli import main\nsys.exit(main())"
    asked = ["estimate", "Qwen/Qwen2.5-7B", "--gpu", "h100-sxm-80gb", "--context", "8K"]
    run = subprocess.run(
        [sys.executable, "-c", script, *asked], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "requests at 8K fit" in run.stdout


@pytest.mark.parametrize("question", QUESTIONS[:3])
def test_numbers_and_arrays_go_through_one_formula(question: tuple[str, str, dict[str, object]]) -> None:
    model, gpu, options = question
    catalog = open_catalog()
    laid = lay_out(resolve(Query(model=model, gpu=gpu, **options), catalog).case)
    contexts = [1, 17, 4096, 100_000]
    for asked in (laid.requests, laid.verdicts, laid.shortfall, laid.concurrency, laid.printed_tokens):
        together = np.asarray(asked(np.asarray(contexts)))
        assert together.tolist() == [asked(tokens) for tokens in contexts]
        assert all(type(asked(tokens)) in (int, float) for tokens in contexts)
    codes, held = laid.verdicts(np.asarray(contexts)), laid.requests(np.asarray(contexts))
    limits = laid.limited_by(contexts, held, codes, None).tolist()
    assert limits == [laid.limited_by(n, laid.requests(n), laid.verdicts(n), None) for n in contexts]


def test_plain_numbers_stay_plain() -> None:
    assert type(xp.integers(True)) is int
    assert xp.integers([1, 2]).dtype == np.int64
    assert xp.logical_not(values=False) is True
    assert xp.divide(1, 0) == math.inf
    assert math.isnan(float(xp.divide(0, 0)))
    assert xp.fmax(math.nan, 2.0) == 2.0
    assert xp.log10(0) == -math.inf
    assert xp.where(condition=True, then=1, otherwise=2) == 1
    assert xp.where(np.asarray([True, False]), 1, 2).tolist() == [1, 2]
    assert xp.select([False, True], [1, 2], 3) == 2
    assert xp.select([np.asarray([False, True])], [1], 3).tolist() == [3, 1]
    assert xp.full_like(np.zeros((2, 3)), 7).shape == (2, 3)
