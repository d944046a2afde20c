"""Start commands of servers as people paste them, and the answers that they get."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from kvreport.catalog.server_flags import load_server_flags
from kvreport.cli import main
from kvreport.cli.server_command import data_attention, without_server_command
from kvreport.errors import InputError
from kvreport.resources import data_dir

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
            f"{MODEL} --engine vllm --served-model-name a --lora-modules x=y --port 1",
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
        *shlex.split(
            "vllm serve deepseek-ai/DeepSeek-V3 -dp 8 -ep --max-model-len 32768 --trust-remote-code"
        ),
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
        *shlex.split("--gpu h200 --engine sglang --tp 2 --dp 4 --expert-parallel --context 32768"),
    )
    assert theirs == ours


def test_experts_of_sglang_divided_over_all_gpus_of_tensor_parallelism() -> None:
    assert data_attention(["m", "--tp-size", "8", "--ep-size=8"]) == [
        *("m", "--tensor-parallel", "8", "--expert-parallel")
    ]
    assert data_attention(["m", "--tp-size", "8", "--ep-size", "1"]) == ["m", "--tp-size", "8"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--tp-size 8 --dp-size 3 --enable-dp-attention", "allowed: a divisor of 8"),
        ("--tp-size 0 --dp-size 2", "allowed: a whole number of at least 1"),
        ("--dp-size", "allowed: a whole number of at least 1"),
    ],
)
def test_sizes_of_sglang_that_are_no_layout_are_refused(words: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        data_attention(words.split())


@pytest.mark.parametrize(
    ("words", "layout", "said"),
    [
        ("--tp 8 --dp 2", "tp8", ("--dp-size", "the server starts 2 copies of itself")),
        ("--tp 8 --ep 4", "tp8-ep", ("--ep-size", "counted as 8")),
        ("--tp 8 --attn-dp-size 8 --ep 8", "dp8-ep", None),
    ],
)
def test_layouts_of_sglang_that_are_counted_otherwise_say_so(
    capsys: pytest.CaptureFixture[str], words: str, layout: str, said: tuple[str, str] | None
) -> None:
    asked = (
        f"python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --context-length 8192 {words}"
    )
    found = answered(capsys, asked, "--gpu", "h200")
    assert found["layout"]["name"] == layout
    told = {one["flag"]: one["effect"] for one in found["not_followed"]}
    assert set(told) == ({said[0]} if said else set())
    assert said is None or said[1] in told[said[0]]


STARTED = [
    f"numactl --cpunodebind=0 vllm serve {MODEL} -tp 2",
    f"env HF_HOME=/x vllm serve {MODEL} -tp 2",
    f"bash -c 'cd /srv && vllm serve {MODEL} -tp 2 | tee log'",
    f'sh -lc "export A=b; exec vllm serve {MODEL} -tp 2"',
    f"kubectl exec -it pod/a -c server -- vllm serve {MODEL} -tp 2",
    f"docker run --gpus all --ipc=host -e A=b vllm/vllm-openai:v0.33.0 --model {MODEL} -tp 2",
    f"podman run --device nvidia.com/gpu=all docker.io/vllm/vllm-openai:v0.33.0 --model {MODEL} -tp 2",
    f"nerdctl run --gpus all vllm/vllm-openai:v0.33.0 bash -c 'vllm serve {MODEL} -tp 2'",
    f"docker exec -d name vllm serve {MODEL} -tp 2",
    f"python3 -m vllm.entrypoints.openai.api_server --model {MODEL} -tp 2",
    f"python -u -m vllm.entrypoints.cli.main serve {MODEL} -tp 2",
    f"vllm serve {MODEL} `\n  -tp 2",
    f"vllm serve {MODEL} ^\n  -tp 2",
    f"uv run --with vllm vllm serve {MODEL} -tp 2",
    f"uvx vllm serve {MODEL} -tp 2",
    f"srun -N1 --gres=gpu:2 vllm serve {MODEL} -tp 2",
    f"torchrun --nproc-per-node 2 -m vllm.entrypoints.openai.api_server --model {MODEL} -tp 2",
    f"nohup vllm serve {MODEL} -tp 2 > log.txt 2>&1 &",
    f"CUDA_VISIBLE_DEVICES=0,1 vllm serve {MODEL} -tp 2",
    f"python3 -m dynamo.vllm --model {MODEL} -tp 2",
]
"""One start of vLLM, as other programs begin it."""


STARTERS = [
    "numactl --cpunodebind=0 --membind=0", "env HF_HOME=/x", "nohup", "nice -n 5", "time", "sudo -E", "exec", "stdbuf -oL", "setsid",
    "taskset -c 0-15", "uv run", "uv run --with vllm", "uvx", "conda run -n x", "poetry run", "pixi run", "srun -N1 --gpus=8",
    "kubectl exec -it pod-0 --", "oc exec pod-0 -c main --", "docker exec -it name", "docker run --rm --gpus all own/image:1",
    "podman run --device nvidia.com/gpu=all own/image:1", "apptainer exec --nv x.sif", "torchrun --nproc-per-node 1", "mpirun -n 1",
    "timeout 60", "systemd-run --user --scope -p MemoryMax=90%", "nsys profile", "HF_HOME=/x CUDA_VISIBLE_DEVICES=0,1",
]  # fmt: skip
SERVERS = {
    "vllm serve org/m --port 1": "org/m --engine vllm --port 1",
    "python -m vllm.entrypoints.openai.api_server --model org/m --port 1": "org/m --engine vllm --port 1",
    "python3 -m dynamo.vllm --model org/m --port 1": "org/m --engine vllm --port 1",
    "python3 -m dynamo.sglang --model-path org/m --port 1": "org/m --engine sglang --port 1",
    "python3 -m dynamo.trtllm --model-path org/m --port 1": "org/m --engine tensorrt-llm --port 1",
    "python3 -m sglang.launch_server --model-path org/m --port 1": "org/m --engine sglang --port 1",
    "sglang serve --model-path org/m --port 1": "org/m --engine sglang --port 1",
    "trtllm-serve org/m --port 1": "org/m --engine tensorrt-llm --port 1",
    "mlx_lm.server --model org/m --port 1": "org/m --engine mlx --port 1",
    "llama-server -m m.gguf --port 1": "m.gguf --engine llama-cpp --port 1 --fit",
    "llama serve -hf org/m-GGUF:Q4_K_M --port 1": "org/m-GGUF:Q4_K_M --engine llama-cpp --port 1 --fit",
    "lms load m-8b": "m-8b --engine llama-cpp",
    "ollama run m:8b": "m:8b --engine ollama",
}


@pytest.mark.parametrize("starter", STARTERS)
def test_each_server_is_found_behind_each_starter(starter: str) -> None:
    for written, ours in SERVERS.items():
        for text in (
            f"{starter} {written}",
            f"{starter} bash -c {shlex.quote(written)}",
            f"cd /x && {starter} {written} > log 2>&1 &",
        ):
            assert without_server_command([text]) == ours.split(), text
        split = without_server_command(["--gpu", "h100", *shlex.split(f"{starter} {written}")])
        assert sorted(split) == sorted(["--gpu", "h100", *ours.split()]), (starter, written)


@pytest.mark.parametrize("text", STARTED)
def test_a_command_is_found_behind_what_starts_it(text: str) -> None:
    for words in ([text], shlex.split(re.sub(r"[`^]\n", "", text).removesuffix("> log.txt 2>&1 &"))):
        found = without_server_command(["--gpu", "h100", *words])
        engine = "vllm@0.33.0" if "v0.33.0" in text else "vllm"
        assert found == ["--gpu", "h100", MODEL, "--engine", engine, "-tp", "2"], words


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (f"trtllm-serve {MODEL} --tp_size 2", f"{MODEL} --engine tensorrt-llm --tp_size 2"),
        (f"trtllm-serve serve {MODEL} --tp_size 2", f"{MODEL} --engine tensorrt-llm --tp_size 2"),
        ("mlx_lm.server --model mlx-community/M-4bit", "mlx-community/M-4bit --engine mlx"),
        ("python -m mlx_lm server --model mlx-community/M-4bit", "mlx-community/M-4bit --engine mlx"),
        ("lms load m-8b --context-length 8192 -y", "m-8b --engine llama-cpp --context 8192"),
        ("llama serve -hf org/M-GGUF:Q4_K_M -c 4096", "org/M-GGUF:Q4_K_M --engine llama-cpp -c 4096 --fit"),
        (
            "numactl -N 0 llama-server -m /m/M-Q4_K_M.gguf -np 2",
            "/m/M-Q4_K_M.gguf --engine llama-cpp -np 2 --fit",
        ),
        (
            r"C:\llama\llama-server.exe -m D:\m\M-Q4_K_M.gguf -np 2",
            "D:/m/M-Q4_K_M.gguf --engine llama-cpp -np 2 --fit",
        ),
        (f"srun -n 8 sglang serve --model-path {MODEL} --tp 2", f"{MODEL} --engine sglang --tp-size 2"),
    ],
)
def test_servers_of_every_engine_are_read(text: str, ours: str) -> None:
    assert without_server_command([text]) == ours.split()


def test_variables_that_change_memory_are_followed_or_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--gpu", "h100", "--context", "8K"]
    text = f"docker run -e VLLM_USE_V2_MODEL_RUNNER=1 -e PYTORCH_CUDA_ALLOC_CONF=x:1 --mount type=bind,src=/a vllm/vllm-openai:v0.33.0 --model {MODEL}"
    found = answered(capsys, text, *asked)
    [entry] = found["not_followed"]
    assert (entry["flag"], entry["value"], entry["term"]) == (
        "PYTORCH_CUDA_ALLOC_CONF",
        "x:1",
        "what the allocator keeps",
    )
    stages = answered(capsys, f"VLLM_PP_LAYER_PARTITION=10,22 HF_TOKEN=x vllm serve {MODEL} -pp 2", *asked)
    ours = answered(capsys, f"vllm serve {MODEL} -pp 2", "--pipeline-partition", "10,22", *asked)
    assert stages == ours
    sized = f"PYTORCH_CUDA_ALLOC_CONF=x:1 vllm serve {MODEL}"
    assert main(["size", sized, *asked, "--concurrent", "4"]) == 0
    assert (
        "PYTORCH_CUDA_ALLOC_CONF x:1: not followed; what the allocator keeps may differ"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_every_variable_is_followed_or_changes_a_named_term(family: str) -> None:
    groups = load_server_flags(data_dir())[family].variables
    assert groups
    for group in groups:
        assert group.effect in ("followed", "changes")
        assert group.changes
        assert group.read


def test_a_quoted_command_of_too_many_words_is_refused_before_it_is_searched() -> None:
    with pytest.raises(InputError, match="found 10,001 words"):
        without_server_command(["docker run " * 5000 + "vllm"])


def test_a_command_with_line_ends_of_windows_goes_on_in_the_next_line() -> None:
    words = without_server_command(["vllm serve org/m \\\r\n  --max-model-len 8192 \\\r\n  -tp 2"])
    assert words == ["org/m", "--engine", "vllm", "--max-model-len", "8192", "-tp", "2"]


@pytest.mark.parametrize("between", ["&", "&&", ";", "|"])
def test_a_second_server_is_not_passed_over(between: str) -> None:
    """The first one was answered, as if it had the GPU to itself."""
    with pytest.raises(InputError, match="kvreport preflight answers each"):
        without_server_command([f"vllm serve org/m -tp 2 {between} vllm serve org/n"])
