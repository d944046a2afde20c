"""Contexts beyond a model's own: keys of its config that a command changes, and leave to go beyond the limit, by release."""

from __future__ import annotations

import json

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation.config_overrides import overridden
from kvreport.estimation.named import engine_named
from kvreport.startup_log.reading import read_log
from kvreport.startup_log.unread_flags import moves_context_alone

CATALOG = open_catalog()
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("engine", "keys", "longest"),
    [
        ("vllm@0.11.0", {"rope_scaling": YARN}, 131072),
        ("vllm@0.29.0", {"rope_parameters": YARN}, 131072),
        ("vllm@0.30.0", {"rope_parameters": YARN}, 40960),  # the factor is counted as applied from here on
        ("vllm", {"rope_parameters": YARN, "max_position_embeddings": 131072}, 131072),
        ("vllm", {"rope_parameters": {"full_attention": YARN | {"rope_type": "linear"}}}, 163840),
        ("vllm", {"rope_scaling": {"type": "llama3", "factor": 8}}, 40960),
        ("sglang", {"rope_scaling": YARN}, 40960),
        ("sglang", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 163840),
        ("sglang", "max_position_embeddings=65536", 65536),
        ("vllm", ["rope-parameters.rope-type=dynamic", "rope_parameters.factor=2"], 81920),
    ],
)
def test_the_longest_context_follows_the_engine_s_own_rule(engine, keys, longest):
    record = CATALOG.model("Qwen/Qwen3-8B")
    stated = json.dumps(keys) if isinstance(keys, dict) else keys
    found, passed_over = overridden(stated, engine_named(CATALOG, engine), record)
    assert found.context_tokens == longest
    assert not passed_over


def test_a_model_with_an_encoder_reads_its_section_and_other_keys_are_named():
    record, engine = CATALOG.model("Qwen/Qwen3.6-27B"), engine_named(CATALOG, "vllm@0.27.1")
    inside, _ = overridden({"text_config": {"max_position_embeddings": 786432}}, engine, record)
    beside, named = overridden({"max_position_embeddings": 786432, "hidden_size": 64}, engine, record)
    assert (inside.context_tokens, beside.context_tokens) == (786432, record.context_tokens)
    assert [(one.value, one.term is None) for one in named] == [
        ("max_position_embeddings", True),
        ("hidden_size", False),
    ]


@pytest.mark.parametrize(
    "stated", ["rope_scaling", "[1]", '{"max_position_embeddings": 0}', '{"model_max_length": "long"}']
)
def test_what_is_no_change_is_refused(stated):
    with pytest.raises(InputError, match="hf-overrides: found"):
        overridden(stated, engine_named(CATALOG, "vllm"), CATALOG.model("Qwen/Qwen3-8B"))


ASKED = "vllm serve Qwen/Qwen3-8B --max-model-len 131072"
SGLANG = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-length 131072"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (ASKED, "context_exceeds_model"),
        (f"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 {ASKED}", "fits"),
        (f"{ASKED} --hf-overrides.max_position_embeddings 131072", "fits"),
        (f"{ASKED} --rope-scaling '{json.dumps(YARN)}' --engine vllm@0.11.0", "fits"),
        (f"{SGLANG} --json-model-override-args '{json.dumps({'rope_scaling': YARN})}'", "context_exceeds_model"),
        (f"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 {SGLANG}", "fits"),
    ],
)  # fmt: skip
def test_a_pasted_command_is_followed_and_written_again(capsys, command, verdict):
    assert main(["estimate", command, "--gpu", "h100", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == verdict
    assert not told["not_followed"]
    if verdict == "fits":
        assert told["max_context_tokens"] == 131072
        named = ("_LEN=1 " in command, "hf-overrides" in told["command"])
        assert named in ((True, False), (False, True))
        assert told["command"].startswith(command.split()[0])


@pytest.mark.parametrize(
    ("keys", "alone"), [(YARN, True), (YARN | {"x": {}}, True), ({}, True), ({"factor": 2}, True)]
)
def test_a_log_names_changed_dimensions_alone(keys, alone):
    line = "INFO non-default args: {'model': 'm', 'hf_overrides': %s, 'max_model_len': 9}"
    for more, expected in (({}, alone), ({"num_hidden_layers": 2}, False)):
        reading = read_log(line % repr({"text_config": {"rope_parameters": keys, **more}}))
        assert any(moves_context_alone(one) for one in reading.recognised) == expected
