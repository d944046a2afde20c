"""Start commands of servers as people paste them, and the answers that they get."""

from __future__ import annotations

import json
import shlex

import pytest

from kvreport.cli import main
from kvreport.cli.server_command import data_attention, without_server_command
from kvreport.errors import InputError

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["estimate", *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("pasted", "ours"),
    [
        (f"vllm serve {MODEL} -tp 2", f"{MODEL} --engine vllm -tp 2"),
        (f"vllm serve --model {MODEL}", f"{MODEL} --engine vllm"),
        (f"/opt/venv/bin/vllm serve {MODEL}", f"{MODEL} --engine vllm"),
        (
            f"python3.11 -m vllm.entrypoints.openai.api_server --model={MODEL} -pp 2",
            f"{MODEL} --engine vllm -pp 2",
        ),
        (
            f"python -m sglang.launch_server --model-path {MODEL} --tp 2",
            f"{MODEL} --engine sglang --tp-size 2",
        ),
        (f"sglang serve --model {MODEL} --ep=2", f"{MODEL} --engine sglang --ep-size=2"),
        (
            f"docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.27.1 --model {MODEL}",
            f"{MODEL} --engine vllm@0.27.1",
        ),
        (f"docker run vllm/vllm-openai:latest --model {MODEL}", f"{MODEL} --engine vllm"),
        (
            f"docker run lmsysorg/sglang:v0.5.18-cu129 python3 -m sglang.launch_server --model-path {MODEL}",
            f"{MODEL} --engine sglang@0.5.18",
        ),
        (
            f"podman run registry.example/a/vllm-openai:v0.30.0 vllm serve {MODEL}",
            f"{MODEL} --engine vllm@0.30.0",
        ),
        (
            f"vllm serve {MODEL} --served-model-name a b --lora-modules x=y z=w --port 1",
            f"{MODEL} --engine vllm --port 1",
        ),
        (
            f"vllm serve {MODEL} --enable-lora --max-loras 4",
            f"{MODEL} --engine vllm --max-loras 4 --max-lora-rank 16",
        ),
        (f"vllm serve {MODEL} --engine vllm@0.25.0", f"{MODEL} --engine vllm@0.25.0"),
    ],
)
def test_a_pasted_command_names_model_engine_and_flags(pasted: str, ours: str) -> None:
    assert without_server_command(shlex.split(pasted)) == ours.split()
    assert without_server_command([pasted]) == ours.split()


def test_words_before_the_command_and_variables_and_the_shells_words_around_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"HF_TOKEN=x CUDA_VISIBLE_DEVICES=0,1 vllm serve {MODEL} \\\n  -tp 2 2>&1 | tee log.txt"
    assert without_server_command(["--gpu", "h100", text]) == [
        *("--gpu", "h100", MODEL, "--engine", "vllm", "-tp", "2")
    ]
    assert "not read: HF_TOKEN, CUDA_VISIBLE_DEVICES" in capsys.readouterr().err


def test_words_that_are_no_command_stay_as_they_are() -> None:
    for words in (["llama 3.1 8b", "--gpu", "h100"], ["--engine", "vllm 0.27.1", MODEL], [MODEL], []):
        assert without_server_command(words) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm serve --port 1", "found no model; allowed: vllm serve MODEL, or --model MODEL"),
        ("sglang serve --port 1", "found no model; allowed: --model-path MODEL"),
        ("vllm serve 'org/m", "allowed: closed quotes"),
    ],
)
def test_a_command_that_cannot_be_read_says_why(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("|", r"\|")):
        without_server_command([text])


def test_a_pasted_command_is_answered_as_its_flags_are(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = answered(
        capsys,
        "--gpu",
        "h200",
        *[
            "vllm",
            "serve",
            "deepseek-ai/DeepSeek-V3",
            "-dp",
            "8",
            "-ep",
            "--max-model-len",
            "32768",
            "--trust-remote-code",
        ],
    )
    ours = answered(
        capsys,
        "deepseek-ai/DeepSeek-V3",
        *["--gpu", "h200", "--data-parallel", "8", "--expert-parallel", "--context", "32768"],
    )
    assert theirs == ours
    assert theirs["layout"]["name"] == "dp8-ep"


def test_data_attention_of_sglang_divides_the_gpus_that_tp_size_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = answered(
        capsys,
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 4 --enable-dp-attention "
        "--ep 8 --context-length 32768",
        "--gpu",
        "h200",
    )
    assert theirs["layout"]["name"] == "dp4-tp2-ep"
    ours = answered(
        capsys,
        "deepseek-ai/DeepSeek-V3",
        *[
            "--gpu",
            "h200",
            "--engine",
            "sglang",
            "--tp",
            "2",
            "--dp",
            "4",
            "--expert-parallel",
            "--context",
            "32768",
        ],
    )
    assert theirs == ours


def test_experts_of_sglang_divided_over_all_gpus_of_tensor_parallelism() -> None:
    assert data_attention(["m", "--tp-size", "8", "--ep-size=8"]) == [
        *("m", "--tensor-parallel", "8", "--expert-parallel")
    ]
    plain = ["m", "--tp-size", "8", "--ep-size", "1"]
    assert data_attention(plain) == plain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--tp-size 8 --dp-size 3 --enable-dp-attention", "allowed: a divisor of 8"),
        ("--tp-size 8 --dp-size 2", "starts 2 copies of the server"),
        ("--tp-size 8 --ep-size 4", "allowed: 1 or 8"),
        ("--tp-size 0 --dp-size 2", "allowed: a whole number of at least 1"),
        ("--dp-size", "allowed: a whole number of at least 1"),
    ],
)
def test_sizes_of_sglang_that_are_no_layout_are_refused(words: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        data_attention(words.split())
