"""Whole models through the block planner, against vLLM 0.33.0's own planner run without a GPU.

For a pool of 40 GiB the engine's planner printed these blocks, tokens and concurrency; the layers of several pipeline
stages were dealt to as many workers, each with such a pool. The models come from the catalog; nothing but the flags
goes in. ``scripts/check_planner.py`` does the same for a whole recorded run.
"""

import importlib
import json
from pathlib import Path

import pytest
import yaml

from kvreport.accounting import capacity
from kvreport.accounting.case import Case
from kvreport.accounting.deployment import Deployment, lay_out
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.accounting.shares import pool_bytes
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.units import GIB
from scripts import check_planner as script
from tests.trunk import plan

ROOT = Path(__file__).resolve().parents[2]
H100 = "h100-sxm-80gb"

# fmt: off
SPOTS = [
    # model, gpu, tp, dcp, pp, kv, batched, context, block bytes, blocks, tokens, concurrency
    ("openai/gpt-oss-120b", H100, 1, 1, 1, None, 8192, 131_072, 589_824, 72_817, 1_034_609, 7.893442),
    ("openai/gpt-oss-120b", "b200-sxm-180gb", 8, 1, 1, "fp8", 16_384, 131_072, 36_864, 1_165_084, 14_899_979, 113.677822),
    ("openai/gpt-oss-120b", "a100-sxm4-80gb", 1, 1, 1, None, 2048, 131_072, 589_824, 72_817, 1_128_564, 8.610264),
    ("openai/gpt-oss-120b", "mi300x", 1, 1, 1, None, 16_384, 131_072, 2_359_296, 18_204, 930_953, 7.102614),
    ("openai/gpt-oss-120b", "mi300x", 8, 1, 1, "fp8", 16_384, 131_072, 147_456, 291_271, 14_895_619, 113.644557),
    ("google/gemma-3-27b-it", H100, 1, 1, 1, None, 8192, 131_072, 1_310_720, 32_768, 291_658, 2.22518),
    ("google/gemma-3-27b-it", "a100-sxm4-80gb", 8, 1, 1, None, 2048, 131_072, 163_840, 262_144, 3_395_902, 25.908678),
    ("Qwen/Qwen3.6-27B", H100, 1, 1, 1, None, 8192, 131_072, 54_525_952, 787, 617_686, 4.712575),
    ("Qwen/Qwen3.6-27B", H100, 8, 1, 1, "fp8", 8192, 131_072, 6_815_744, 6_301, 4_945_417, 37.730539),
    ("deepseek-ai/DeepSeek-V3", H100, 8, 1, 1, None, 8192, 131_072, 1_124_352, 38_199, 611_184, 4.662964),
    ("deepseek-ai/DeepSeek-V3", H100, 8, 1, 1, "fp8", 8192, 131_072, 2_248_704, 19_099, 1_222_336, 9.325684),
    ("deepseek-ai/DeepSeek-V3", "b200-sxm-180gb", 8, 1, 1, None, 16_384, 131_072, 2_248_704, 19_099, 611_168, 4.662842),
    ("deepseek-ai/DeepSeek-V3", H100, 8, 8, 1, None, 8192, 131_072, 1_124_352, 38_199, 4_889_472, 37.303711),
    ("moonshotai/Kimi-K3", H100, 1, 1, 3, None, 8192, 32_768, None, 719, 1_570_679, 47.933333),
    ("moonshotai/Kimi-K3", H100, 8, 1, 8, None, 8192, 32_768, None, 12_136, 7_647_547, 233.384615),
    ("moonshotai/Kimi-K3", H100, 8, 1, 4, "fp8", 8192, 32_768, None, 6_935, 7_330_518, 223.709677),
    ("Qwen/Qwen3.6-27B", H100, 1, 1, 3, None, 8192, 32_768, None, 2_100, 1_404_342, 42.857143),
    ("Qwen/Qwen3.6-27B", H100, 1, 1, 8, "fp8", 8192, 32_768, None, 6_553, 7_157_623, 218.433333),
    ("deepseek-ai/DeepSeek-V4-Pro", H100, 8, 1, 3, None, 8192, 32_768, None, 81_940, 199_718, 6.094912),
    ("deepseek-ai/DeepSeek-V4-Pro", H100, 1, 1, 8, None, 8192, 32_768, None, 224_594, 547_418, 16.705891),
]
# fmt: on


def laid(
    catalog: Catalog, model: str, layout: Layout, gpu: str, kv: str | None = None, batched: int = 8192
) -> Deployment:
    return lay_out(
        Case(
            model=catalog.model(model),
            engine=catalog.engine("vllm"),
            accelerators=(catalog.accelerator(gpu),),
            formats=catalog.weight_formats,
            kv_format=catalog.kv_format(kv) if kv else None,
            layout=layout,
            serving=Serving(max_batched_tokens=batched),
        )
    )


@pytest.mark.parametrize(
    "spot", SPOTS, ids=lambda spot: f"{spot[0]}-{spot[1]}-tp{spot[2]}-pp{spot[4]}-{spot[5]}"
)
def test_blocks_tokens_and_concurrency_are_those_that_the_engine_prints(
    catalog: Catalog, spot: tuple
) -> None:
    model, gpu, tp, dcp, pp, kv, batched, context, block, blocks, tokens, concurrency = spot
    layout = Layout(tensor=tp, decode_context=dcp, pipeline=pp)
    plans = [rank.plan for rank in laid(catalog, model, layout, gpu, kv, batched).ranks]
    assert block in (None, plans[0].block_bytes)
    assert min(int(capacity.blocks(40 * GIB, plan)) for plan in plans) == blocks
    printed = min(float(capacity.concurrency(40 * GIB, plan, context)) for plan in plans)
    assert round(printed, 6) == concurrency
    assert int(printed * context) == tokens


def test_the_script_compares_a_recorded_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, *_, batched, context, _, blocks, tokens, concurrency = SPOTS[5]
    stem = model.replace("/", "--")
    config = yaml.safe_load((ROOT / "experiments" / "configs" / f"{stem}.yaml").read_text(encoding="utf-8"))
    (tmp_path / f"{stem}.json").write_text(json.dumps(config["config"]), encoding="utf-8")
    at = {"gib": 40, "num_blocks": blocks, "tokens": tokens, "concurrency": concurrency}
    row = {"id": model, "run": "main", "gpu": "H100", "tp": 1, "dcp": 1, "kv_cache_dtype": "auto"}
    row |= {"enable_prefix_caching": True, "max_num_batched_tokens": batched, "given_block": None}
    row |= {"per_len": [{"max_model_len": context, "at": [at, at | {"num_blocks": blocks * 2}]}]}
    (tmp_path / "records.jsonl").write_text(json.dumps(row), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["check_planner", str(tmp_path / "records.jsonl"), str(tmp_path)])
    script.main()
    assert "points 2  equal 1 (50.00%)" in capsys.readouterr().out


def test_vllm_is_asked_again_what_a_recorded_run_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    recorder = importlib.import_module("run_vllm_planner")
    config = {"architectures": ["A"], "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "a--b.json").write_text(json.dumps({"config": config}), encoding="utf-8")
    row = {"id": "a/b", "run": "main", "gpu": "H100", "tp": 8, "dcp": 1, "kv_cache_dtype": "fp8"}
    row |= {
        "enable_prefix_caching": True,
        "per_len": [{"max_model_len": 2048, "at": [{"gib": 40, "num_blocks": 1}]}],
    }
    rows = [row, row, row | {"id": "a/none"}, row | {"gpu": "B200", "run": "checkpoint_quantization_kept"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    asked = []

    def answers(*told: object, **_: object) -> list[dict]:
        *_, device, cases = told
        asked.extend((device.id, case) for case in cases)
        at = {
            "length": 2048,
            "pool": 40 * GIB,
            "blocks": 5,
            "tokens": 80,
            "concurrency": 2.5,
            "block_tokens": 16,
        }
        first = {"release": "0.33.0", "max_batched_tokens": 8192, "at": [at]}
        return [first, *({"error": "ValueError: none"} for _ in cases[1:])]

    monkeypatch.setattr(recorder, "ask", answers)
    command = ["run_vllm_planner", str(tmp_path / "rows.jsonl"), str(tmp_path), "--python", "p"]
    monkeypatch.setattr("sys.argv", command)
    recorder.main()
    told = capsys.readouterr()
    first, second = map(json.loads, told.out.splitlines())
    assert (first["vllm"], first["max_num_batched_tokens"], first["given_block"]) == ("0.33.0", 8192, None)
    point = {"gib": 40, "num_blocks": 5, "tokens": 80, "concurrency": 2.5, "block_tokens": 16}
    assert first["per_len"] == [{"max_model_len": 2048, "at": [point]}]
    assert second["gpu"] == "B200"
    assert told.err.startswith("no plan: a/b --enable-prefix-caching --tensor-parallel-size 8")
    assert [device for device, _ in asked] == [H100, H100, "b200-sxm-180gb"]
    assert [case["words"][-2:] for _, case in asked[:2]] == [
        ["--kv-cache-dtype", "fp8"],
        ["--block-size", "16"],
    ]
    assert [case["config"] == config for _, case in asked] == [False, False, True]

    asked.clear()
    monkeypatch.setattr("sys.argv", [*command, "--layouts"])
    recorder.main()
    layouts = [" ".join(case["words"][-6:-2]) for _, case in asked]
    assert sum("--pipeline-parallel-size 1" in one for one in layouts) == len(recorder.CONTEXT_RANKS) - 1
    assert len(layouts) == len(recorder.STAGES) + len(recorder.CONTEXT_RANKS) - 1


def test_a_request_that_needs_the_null_block_too_is_refused_and_the_longest_said(
    catalog: Catalog,
) -> None:
    # Llama-3.1-70B at 131,072 tokens needs exactly 40 GiB; the engine refuses and estimates 131,056.
    found = plan(
        catalog.model("meta-llama/Llama-3.1-70B-Instruct"),
        catalog.engine("vllm"),
        serving=Serving(max_batched_tokens=8192),
        accelerator=catalog.accelerator(H100),
    )
    assert int(capacity.users(40 * GIB, found, 131_072)) == 0
    assert int(capacity.longest_context(40 * GIB, found, 131_072)) == 131_056


def test_prefix_caching_off_takes_one_state_and_no_checkpoint_alignment(catalog: Catalog) -> None:
    # Logs of 0.19, where prefix caching was off for these models, set 784 tokens per block.
    found = plan(
        catalog.model("Qwen/Qwen3.6-27B"),
        catalog.engine("vllm"),
        serving=Serving(max_batched_tokens=8192, prefix_caching=False),
        accelerator=catalog.accelerator(H100),
    )
    assert found.block_tokens == 784
    assert int(found.profile.request_bytes(784)) == 4 * found.block_bytes


def test_sequences_that_share_cells_each_keep_a_window_in_llama_cpp(catalog: Catalog) -> None:
    # Four sequences of 4096-token windows and a micro-batch exceed 8192 cells, so that a log of
    # four sequences in one row shows 8192 cells for the windows, as many as for full attention.
    gemma, engine = catalog.model("google/gemma-2-9b"), catalog.engine("llama-cpp")
    alone, together = (plan(gemma, engine, serving=Serving(1, sequences=n)) for n in (1, 4))
    caps = [min(term.cap_tokens for term in found.profile.terms) for found in (alone, together)]
    assert caps == [4096 + 512, 4 * 4096 + 512]


def test_heads_that_do_not_divide_are_refused_with_what_would_work(catalog: Catalog) -> None:
    with pytest.raises(
        InputError, match=r"tensor parallel: found 8, which does not divide .*allowed up to 16: 1, 2, 4"
    ):
        plan(
            catalog.model("Qwen/Qwen2.5-7B"),
            catalog.engine("vllm"),
            serving=Serving(max_batched_tokens=8192),
            tensor_parallel=8,
        )


def test_the_ceiling_reproduces_a_published_rule_of_thumb(catalog: Catalog) -> None:
    # "Understanding KV Cache in LLM Inference" (JingchaoZhang.github.io) prints 504, 126, 31 and 7
    # users of Qwen2.5-7B at 2K, 8K, 32K and 128K on an H100: 85% of what the weights leave.
    engine = catalog.engine("ceiling")
    model = catalog.model("Qwen/Qwen2.5-7B")
    weights = 2 * sum(group.parameters for group in model.weights)
    pool = pool_bytes(engine, catalog.accelerator(H100).usable_bytes, weights, utilization=0.85)
    found = plan(model, engine, serving=Serving(max_batched_tokens=1))
    users = capacity.users(pool, found, [2048, 8192, 32_768, 131_072])
    assert users.tolist() == [504, 126, 31, 7]


def test_a_state_models_kernels_divide_by_their_channels(catalog: Catalog) -> None:
    # Jamba on eight H100 in the engine's planner: 8,192 channels of depthwise kernels divide.
    found = plan(
        catalog.model("ai21labs/Jamba-v0.1"),
        catalog.engine("vllm"),
        serving=Serving(max_batched_tokens=8192),
        tensor_parallel=8,
        accelerator=catalog.accelerator(H100),
    )
    assert found.block_tokens == 80


def test_a_stage_without_layers_of_a_group_still_gives_it_blocks(catalog: Catalog) -> None:
    # Qwen3.6-27B has 3 groups of states and 1 of attention: 8 stages of 8 layers each keep all four.
    whole = laid(catalog, "Qwen/Qwen3.6-27B", Layout(), H100)
    staged = laid(catalog, "Qwen/Qwen3.6-27B", Layout(pipeline=8), H100)
    blocks = int(whole.plan.profile.request_bytes(32_768)) // whole.plan.block_bytes
    for rank in staged.ranks:
        assert int(rank.plan.profile.request_bytes(32_768)) // rank.plan.block_bytes == blocks


def test_a_stage_without_any_cache_is_refused_as_the_engine_fails_on_it(catalog: Catalog) -> None:
    # Layers 60 to 69 of this model have no attention; the engine's planner divides by the size of their cache.
    with pytest.raises(InputError, match=r"stage of layers 60 to 69 without a cache.*fewer stages"):
        laid(catalog, "nvidia/Llama-3_3-Nemotron-Super-49B-v1", Layout(pipeline=8), H100)
