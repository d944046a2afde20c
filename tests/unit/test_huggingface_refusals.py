"""Configs that cannot be read without guessing: one clear line each, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_configs import DEEPSEEK_V3, GEMMA_3_27B, LLAMA_3_1_8B
from reading import read_trimmed as read_config

from kvreport.errors import InputError


def refusal(config: dict[str, Any] | Path) -> str:
    with pytest.raises(InputError) as caught:
        read_config(config, id="a/b")
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", -4096),
        ("hidden_size", 0),
        ("hidden_size", "4096"),
        ("hidden_size", 4096.0),
        ("hidden_size", True),
        ("hidden_size", 10**30),
        ("hidden_size", [4096]),
        ("num_hidden_layers", 2_000_000),
        ("num_hidden_layers", {}),
        ("num_key_value_heads", 64),
        ("vocab_size", float("nan")),
        ("max_position_embeddings", float("inf")),
        ("tie_word_embeddings", "yes"),
        ("torch_dtype", "int3"),
        ("rope_scaling", "yarn"),
        ("quantization_config", ["fp8"]),
        ("architectures", "LlamaForCausalLM"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_what_is_allowed(key: str, value: object) -> None:
    text = refusal({**LLAMA_3_1_8B, key: value})
    assert text.startswith(f"config: {key}")
    assert "found " in text
    assert "allowed: " in text


def test_heads_must_divide() -> None:
    assert "num_attention_heads: found 32; allowed: a multiple of num_key_value_heads (5)" in refusal(
        {**LLAMA_3_1_8B, "num_key_value_heads": 5}
    )


def test_a_list_must_have_one_entry_per_layer() -> None:
    text = refusal({**LLAMA_3_1_8B, "architectures": ["Qwen3ForCausalLM"], "layer_types": ["full_attention"]})
    assert text.startswith("config: layer_types: found 'a list of 1'; allowed: a list of 32")


def test_an_unknown_kind_of_layer_is_named_with_its_index() -> None:
    kinds = ["full_attention"] * 31 + ["telepathy"]
    text = refusal({**LLAMA_3_1_8B, "architectures": ["Qwen3ForCausalLM"], "layer_types": kinds})
    assert text.startswith("config: layer_types[31]: found 'telepathy'; allowed: one of ")


def test_a_fault_inside_a_nested_part_says_where() -> None:
    text = {**GEMMA_3_27B["text_config"], "num_hidden_layers": -1}
    assert refusal({**GEMMA_3_27B, "text_config": text}).startswith(
        "config: text_config.num_hidden_layers: found -1; allowed: a whole number from 1 to "
    )


def test_a_missing_size_without_a_class_default_is_an_error() -> None:
    # Nemotron-NAS's class lives in the checkpoint's repository.
    text = refusal(
        {"architectures": ["DeciLMForCausalLM"], "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9}
    )
    assert text.startswith("config: num_hidden_layers: found nothing; allowed: a whole number")


def test_a_class_default_that_stood_in_is_written_down() -> None:
    config = {key: value for key, value in DEEPSEEK_V3.items() if key != "num_hidden_layers"}
    notes = " ".join(read_config(config, id="a/b").notes)
    assert "The config leaves out some values" in notes
    assert "num_hidden_layers = 61" in notes


def test_more_experts_than_there_are_cannot_be_read() -> None:
    assert "num_experts_per_tok: found 300; allowed: a whole number from 1 to 256" in refusal(
        {**DEEPSEEK_V3, "num_experts_per_tok": 300}
    )


def test_a_model_beyond_reason_is_refused() -> None:
    huge = {
        **DEEPSEEK_V3,
        "hidden_size": 1 << 20,
        "moe_intermediate_size": 1 << 20,
        "n_routed_experts": 1 << 14,
    }
    assert "parameters; allowed: at most" in refusal(huge).replace("'", "")


def write(folder: Path, text: str, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "found JSON that ends early, in line 1, column 1"),
        ("{", "found JSON that ends early, in line 1, column 2"),
        ('{"hidden_size": 4096,\n "layers": 32', "found JSON that ends early, in line 2"),
        (
            '{"hidden_size": 4096\n "layers": 32}',
            "found no JSON in line 2, column 2 (expecting ',' delimiter)",
        ),
        ("[]", "found a list"),
        ("42", "found a int"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ("[" * 100_000, "allowed: "),
        ('{"vocab_size": ' + "9" * 5_000 + "}", "allowed: "),
        ("model: llama", "allowed: JSON"),
    ],
)
def test_a_file_that_is_not_a_json_object_is_one_clear_line(tmp_path: Path, text: str, named: str) -> None:
    found = refusal(write(tmp_path, text))
    assert named in found
    assert "config.json" in found


def test_bytes_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"architectures": ["\xff\xfe"]}')
    assert "not UTF-8 at position 20" in refusal(path)


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nothing.json")
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert "not a regular file" in refusal(pipe)


def test_a_file_beyond_reason_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(17 << 20)
    assert "at most 16,777,216 bytes" in refusal(path)


def test_numbers_that_nobody_computes_with_may_be_infinite(tmp_path: Path) -> None:
    # Published configs of Nemotron carry "time_step_limit": [0.0, Infinity].
    path = write(tmp_path, json.dumps({**LLAMA_3_1_8B, "time_step_limit": [0.0, float("inf")]}))
    assert read_config(path).id == f"local/{tmp_path.name}"


def test_the_id_comes_from_the_folder_or_the_config(tmp_path: Path) -> None:
    folder = tmp_path / "My Model (v2)"
    folder.mkdir()
    write(folder, json.dumps(LLAMA_3_1_8B))
    assert read_config(folder).id == "local/My-Model-v2"
    write(folder, json.dumps({**LLAMA_3_1_8B, "_name_or_path": "acme/Llama-Mine"}))
    assert read_config(folder / "config.json").id == "acme/Llama-Mine"
    write(folder, json.dumps({**LLAMA_3_1_8B, "_name_or_path": "../../etc/passwd"}))
    assert read_config(folder).id == "local/My-Model-v2"


def test_the_same_fault_is_named_in_every_run() -> None:
    """Sets of strings have another order in every process, so that kinds of layers must not be visited in theirs."""
    config = {
        "architectures": ["MiMoV2FlashForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 12,
        "num_attention_heads": 63,
        "num_key_value_heads": 4,
        "intermediate_size": 16384,
        "vocab_size": 152576,
        "max_position_embeddings": 262144,
        "head_dim": 192,
    }
    program = (
        "import json, sys\n"
        "from kvreport.architectures import read_config\n"
        "try:\n    read_config(json.loads(sys.argv[1]), id='a/b', assume_defaults=True)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program, json.dumps(config)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "0123"
    }
    assert len(said) == 1
    assert "num_attention_heads" in said.pop()
