"""The JSON of the command line satisfies its schemas, and a schema keeps what an earlier one promised."""

from __future__ import annotations

import copy
import json

import jsonschema
import pytest

from kvreport.cli import main
from kvreport.publish import schemas


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("estimate", "estimate qwen/qwen2.5-7b --gpu b200 --context 32K"),
        ("estimate", "estimate deepseek-ai/DeepSeek-V4-Pro --gpu h200 --tp 8"),
        ("estimate", "estimate mamba-codestral-7b-v0.1 --gpu l40s --engine transformers"),
        ("estimate", "estimate llama-3.1-70b --gpu rtx-4090"),
        ("estimate", "estimate llama-3.1-8b --gpu h100 --engine ceiling"),
        ("size", "size openai/gpt-oss-120b --concurrent 40 --context 32K"),
        ("size", "size qwen/qwen2.5-7b --users 500 --requests-per-minute 0.5 --latency 20 --context 8K"),
        ("diff", "diff vllm-0.19 vllm --model mistralai/* --context 4K"),
        ("claim", "claim --model qwen3-8b --quantity kv_per_token --value 144 --unit KiB"),
        ("list", "list models qwen"),
        ("list", "list formats"),
    ],
)
def test_answers_satisfy_their_schema(capsys: pytest.CaptureFixture[str], name: str, command: str) -> None:
    assert main([*command.split(), "--format", "json"]) == 0
    schema = schemas.read(name)
    assert schema is not None
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(capsys.readouterr().out), schema)


def test_a_schema_is_the_narrowest_that_its_samples_satisfy() -> None:
    found = schemas.derive("x", [{"a": 1, "b": None}, {"a": 2, "b": "x", "c": [1.5, 2]}])
    assert found["required"] == ["a", "b"]
    assert found["properties"]["b"]["type"] == ["null", "string"]
    assert found["properties"]["c"]["items"]["type"] == "number"
    assert schemas.derive("x", [{"a/b": 1, "c/d": 2}])["additionalProperties"]["type"] == "integer"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"a": "1", "b": None}, found)
    jsonschema.validate({"a": 1, "b": None, "further": True}, found)


def test_a_promise_cannot_be_broken() -> None:
    old = schemas.read("estimate")
    assert old is not None
    assert list(schemas.narrowed(old, old)) == []
    for change, said in (
        (lambda new: new["properties"].pop("verdict"), "/verdict: is gone"),
        (lambda new: new["required"].remove("verdict"), "/verdict: is no longer always there"),
        (
            lambda new: new["properties"]["verdict"].update(type="integer"),
            "/verdict: string is no longer among its types",
        ),
    ):
        new = copy.deepcopy(old)
        change(new)
        assert said in " ".join(schemas.narrowed(old, new))
    wider = copy.deepcopy(old)
    wider["properties"]["more"] = {"type": "string"}
    wider["required"].append("more")
    assert list(schemas.narrowed(old, wider)) == []


def test_what_an_earlier_schema_says_of_a_field_stays() -> None:
    old = {"properties": {"a": {"type": "string", "description": "A word."}, "b": {"type": "string"}}}
    new = schemas.derive("x", [{"a": "y", "b": "z", "c": 1}])
    told = schemas.with_words(new, old)
    assert told["properties"]["a"]["description"] == "A word."
    assert "description" not in told["properties"]["b"]
    assert told["properties"]["c"] == new["properties"]["c"]
