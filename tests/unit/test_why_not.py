"""Why it does not fit, as a structure: every sum is the estimate's own, every lever is what its flags give."""

from __future__ import annotations

import json
import shlex

import pytest

import kvreport
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.estimation.remedies import remedies
from kvreport.estimation.why_not import why_not
from kvreport.publish import known_logs
from kvreport.publish.page_data import gather

CATALOG = open_catalog()
SHORT = [
    ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm-80gb", {"context_tokens": 8192}),
    ("Qwen/Qwen3-32B", "rtx-4090", {"context_tokens": 32768}),
    ("openai/gpt-oss-120b", "h100-sxm-80gb", {"moe_backend": "marlin"}),
    ("Qwen/Qwen3.6-27B-FP8", "h100-sxm-80gb", {}),
    ("deepseek-ai/DeepSeek-V3", "h100-sxm-80gb", {"tensor_parallel": 8, "context_tokens": 32768}),
]


def asked(model, gpu, options):
    return kvreport.estimate(model, gpu=gpu, **options)


@pytest.mark.parametrize(("model", "gpu", "options"), SHORT)
def test_the_waterfall_adds_up_to_what_is_short(model, gpu, options):
    result = asked(model, gpu, options)
    why = why_not(result, CATALOG)
    assert why is not None
    terms = {one.term: one.size_bytes for one in why.waterfall}
    parts = ("usable", "not_taken", "weights", "load_overhead", "activations", "non_framework", "graphs")
    assert sum(terms.get(name, 0) for name in parts) == terms["kv_pool"]
    assert max(terms["kv_pool"], 0) == result.budget.kv_pool_bytes
    wanted = terms.get("request", terms.get("state_slots", 0))
    assert terms["kv_pool"] + wanted == terms["short"] == -result.shortfall_bytes < 0


@pytest.mark.parametrize(("model", "gpu", "options"), SHORT)
def test_levers_hold_the_remedies_and_say_what_is_still_short(model, gpu, options):
    result = asked(model, gpu, options)
    why = why_not(result, CATALOG)
    tried = {one.flags: one for one in why.levers}
    for remedy in remedies(result, CATALOG.kv_formats):
        if remedy.flags.count("--") == 1:
            assert tried[remedy.flags].enough
            assert tried[remedy.flags].requests == remedy.requests
    for one in why.levers:
        assert one.enough == (one.verdict in ("fits", "tight"))
        assert one.enough or one.reason or one.shortfall_bytes or one.verdict == "max_seqs_exceeds_states"
    assert {"gpu", "engine"} <= {one.lever for one in why.levers}


ASKED_AGAIN = [
    (
        "google/gemma-4-12B-it",
        "gh200-144gb",
        {"engine": "sglang-0.5.20", "max_seqs": 1, "tensor_parallel": 4, "pipeline_parallel": 3},
    ),
    ("moonshotai/Kimi-K2.6", "8xb200", {"weights": "bf16", "context": 8192}),
    ("meta-llama/Llama-3.1-405B-Instruct", "h100-sxm-80gb", {"tensor_parallel": 8, "max_seqs": 2}),
]


@pytest.mark.parametrize(("model", "gpu", "options"), ASKED_AGAIN)
def test_another_device_layout_or_engine_gives_what_asking_for_it_gives(model, gpu, options, capsys):
    words = {"gpu": gpu} | {name.replace("_", "-"): str(value) for name, value in options.items()}
    assert (
        main(["estimate", model, *(f"--{name}={value}" for name, value in words.items()), "--format", "json"])
        == 0
    )
    for lever in json.loads(capsys.readouterr().out)["why_not"]["levers"]:
        if lever["lever"] not in ("layout", "gpu", "engine") or lever["verdict"] is None:
            continue
        laid = ("tensor-parallel", "pipeline-parallel") if lever["lever"] == "layout" else (lever["lever"],)
        kept = [f"--{name}={value}" for name, value in words.items() if name not in laid]
        if "--gpu" in lever["flags"]:
            kept = [word for word in kept if not word.startswith("--gpu=")]
        assert main(["estimate", model, *kept, *lever["flags"].split(), "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["max_concurrent_requests"], found["verdict"]) == (
            lever["requests"],
            lever["verdict"],
        ), lever


def test_a_machine_of_more_devices_than_a_layout_takes_is_a_refused_change():
    """A domain of Trainium3 has 1,152 devices: its layout of data-parallel attention was an error instead of an answer."""
    why = why_not(asked("deepseek-ai/DeepSeek-V3", "trainium3", {"context_tokens": 8192}), CATALOG)
    refused = [one for one in why.levers if one.verdict is None]
    assert any("data-parallel: found 1152" in one.reason for one in refused)


def test_what_fits_has_no_reason():
    assert why_not(asked("Qwen/Qwen3-8B", "h100-sxm-80gb", {"context_tokens": 4096}), CATALOG) is None


def test_a_refusal_is_told_with_the_engines_and_gpus_that_run_it():
    why = why_not(asked("openai/gpt-oss-20b", "t4", {"context_tokens": 4096}), CATALOG)
    assert why.verdict == "format_not_supported"
    assert why.reason
    assert any(one.enough and one.lever == "gpu" for one in why.levers)


def test_json_has_it_and_the_text_names_logs_of_the_same_pair(capsys):
    words = shlex.split("estimate openai/gpt-oss-120b --gpu h100 --context 128K --moe-backend marlin")
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["why_not"]
    assert found["waterfall"][0]["term"] == "usable"
    assert all(one["model"] for one in found["logs"])
    assert any(one["kv_tokens"] or one["pool_gib"] for one in found["logs"])
    assert main(words) == 0
    said = capsys.readouterr().out
    assert (
        "Published logs on this GPU: this model, or one with the same shapes\n  openai/gpt-oss-120b " in said
    )
    assert "Tried, and not enough" in said
    assert main(["estimate", "qwen3-8b", "--gpu", "h100", "--context", "4K", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["why_not"] is None


def test_the_logs_of_a_site_are_published_by_model_and_gpu():
    names, gpus = "openai/gpt-oss-120b,Qwen/Qwen3-8B", "h100-sxm-80gb,l4"
    site = gather(CATALOG, models=names, gpus=gpus, version="1")
    ((address, content),) = known_logs.files(site)
    found = json.loads(content)
    assert address == "downloads/v1/logs.json"
    logs = found["openai--gpt-oss-120b"]["h100-sxm-80gb"]
    assert {False, True} == {one["starts"] for one in logs}
