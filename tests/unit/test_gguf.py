"""GGUF files: headers written here byte by byte, whole, split and damaged."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from brought import F32, Q4_K, Q6_K, TensorRow, gguf_tensors
from brought import GGUF_KEYS as KEYS
from brought import gguf_header as header
from hypothesis import given
from hypothesis import strategies as st

from kvreport.architectures.gguf import read_gguf
from kvreport.architectures.gguf_header import read_header
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.home_answer import LocalEstimate

BLOCK = {F32: (1, 4), Q4_K: (256, 144), Q6_K: (256, 210)}


def tensors() -> list[TensorRow]:
    return gguf_tensors(1000, Q6_K)


def size_of(rows: list[tuple[str, tuple[int, ...], int]]) -> int:
    total = 0
    for _, shape, kind in rows:
        block, size = BLOCK[kind]
        count = 1
        for extent in shape:
            count *= extent
        total += count // block * size
    return total


def test_a_file_becomes_a_model(tmp_path: Path) -> None:
    """Dimensions from metadata, bytes from the tensor table, no class table asked."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(header(KEYS, tensors()))
    found = read_gguf(path)
    assert found.model.layer_count == 2
    assert found.model.vocabulary == 1000
    assert found.model.layers[0].caches[0].model_dump()["kv_heads"] == 2
    assert sum(tensor.nbytes for tensor in found.tensors) == size_of(tensors())


def test_an_estimate_of_a_file(tmp_path: Path) -> None:
    """Weights of the file on device and host; the tied matrix on both."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(header(KEYS, tensors()))
    answer = estimate(str(path), gpu="rtx-4090", engine="llama-cpp", context_tokens=4096, parallel=1)
    assert isinstance(answer, LocalEstimate)
    table = 512 * 1000 // 256 * 210
    assert answer.local.host.weights == table
    assert answer.local.devices[0].weights == size_of(tensors())
    # Two layers, 2 heads of 64, keys and values, 16 bits.
    assert answer.local.kv_cache_bytes == 2 * 4096 * 2 * 2 * 64 * 2


def test_a_split_file_needs_all_parts(tmp_path: Path) -> None:
    """Parts add up; a missing one is named."""
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))
    first.write_bytes(header(KEYS, tensors()[:4]))
    with pytest.raises(InputError, match=r"m-00002-of-00002\.gguf"):
        read_header(first)
    second.write_bytes(header({"split.no": 1}, tensors()[4:]))
    assert len(read_header(first).tensors) == len(tensors())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04 no model", "no GGUF header"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "metadata keys"),
        (header(KEYS, tensors())[:-40], "inside its header"),
        (header(KEYS, [("x.weight", (512, 2), 99)]), "unknown to this version"),
        (header(KEYS, [("x.weight", (100, 2), Q4_K)]), "multiple of 256"),
        (header({}, tensors()), "general.architecture"),
        (header({"general.architecture": "llama"}, tensors()), "block_count"),
    ],
)
def test_damaged_files_are_one_sentence(tmp_path: Path, raw: bytes, words: str) -> None:
    """Truncated, foreign and hostile files are refused with what is wrong."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=words) as caught:
        read_gguf(path)
    assert "\n" not in str(caught.value)


@given(
    cut=st.integers(0, 1500), flips=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=4)
)
def test_random_damage_never_escapes(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flips: list[tuple[int, int]]
) -> None:
    """Whatever the bytes, the answer is a model or an InputError."""
    raw = bytearray(header(KEYS, tensors())[: max(cut, 1)])
    for place, value in flips:
        if place < len(raw):
            raw[place] = value
    path = tmp_path_factory.mktemp("gguf") / "random.gguf"
    path.write_bytes(bytes(raw))
    with contextlib.suppress(InputError):
        read_gguf(path)


def test_a_file_without_an_engine_is_llama_cpps(tmp_path: Path) -> None:
    """vLLM reads no GGUF files; a name of Ollama's library means Ollama."""
    path = tmp_path / "model.gguf"
    path.write_bytes(header(KEYS, tensors()))
    assert estimate(path, gpu="rtx-4090").request.engine.family == "llama_cpp"
    assert estimate("qwen3:8b", gpu="rtx-4090").request.engine.family == "ollama"


def test_short_host_memory_is_said(tmp_path: Path) -> None:
    """The headline names the memory that is missing, not the weights on the GPU."""
    path = tmp_path / "model.gguf"
    path.write_bytes(header(KEYS, tensors()))
    found = estimate(path, gpu="rtx-4090", n_gpu_layers=0, host_memory="1MiB")
    assert isinstance(found, LocalEstimate)
    assert "stay in host memory" in found.too_large


def test_an_unknown_architecture_and_a_projector_are_named(tmp_path: Path) -> None:
    """An architecture that the build lacks is computed and said; a projector is refused with its flag."""
    keys = {key.replace("llama.", "newer."): value for key, value in KEYS.items()}
    keys["general.architecture"] = "newer"
    path = tmp_path / "model.gguf"
    path.write_bytes(header(keys, tensors()))
    said = estimate(path, gpu="rtx-4090").request.assumptions
    assert any(text.startswith("architecture newer is unknown") for text in said)
    path.write_bytes(header({"general.architecture": "clip"}, []))
    with pytest.raises(InputError, match="--mmproj"):
        estimate(path, gpu="rtx-4090")


def test_keys_of_an_unknown_architecture_that_nobody_used_are_listed(tmp_path: Path) -> None:
    """A window without its pattern is no guess; sizes of weights are in the tensor table."""
    keys = {key.replace("llama.", "newer."): value for key, value in KEYS.items()}
    keys |= {"general.architecture": "newer", "newer.attention.sliding_window": 1024}
    keys |= {"newer.kv_sharing_period": 4, "newer.expert_shared_count": 1, "newer.zero": 0}
    path = tmp_path / "model.gguf"
    path.write_bytes(header(keys, tensors()))
    found = estimate(path, gpu="rtx-4090")
    unused = ["newer.attention.sliding_window", "newer.kv_sharing_period"]
    assert list(found.request.not_read) == found.to_dict()["not_read"] == unused
    path.write_bytes(header({**KEYS, "llama.kv_sharing_period": 4}, tensors()))
    assert not estimate(path, gpu="rtx-4090").request.not_read


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "transformers", "vllm@0.23.0"])
def test_a_server_is_not_answered_in_16_bits_for_a_file(tmp_path: Path, engine: str) -> None:
    """The bytes of the file are those of its types, and a server is told what to give."""
    path = tmp_path / "model.gguf"
    path.write_bytes(header(KEYS, tensors()))
    with pytest.raises(InputError, match=r"the file is for llama\.cpp; allowed: --engine llama-cpp"):
        estimate(path, gpu="rtx-4090", engine=engine)
    bound = estimate(path, gpu="rtx-4090", engine="ceiling")
    assert bound.budget.weights == size_of(tensors())


@pytest.mark.parametrize("name", ["\x1b[31mllama", "x" * 3000, "<b>", "ll ama", "\u202ellama"])
def test_an_architecture_that_is_no_name_is_refused_in_one_short_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(header({**KEYS, "general.architecture": name}, tensors()))
    with pytest.raises(InputError, match=r"tiny\.gguf: general\.architecture: found ") as caught:
        read_gguf(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_tensor_with_a_long_name_is_refused_in_one_short_line(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(header(KEYS, [("\x1b[31m" + "a" * 5000, (512, 512), 99)]))
    with pytest.raises(InputError, match="found tensor type 99") as caught:
        read_header(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(("pattern", "layers"), [(1, ""), (2, "0")])
def test_the_last_layer_of_each_period_sees_everything(tmp_path: Path, pattern: int, layers: str) -> None:
    """llama.cpp, ``llama_hparams::set_swa_pattern``: layer ``il`` has a window where ``il % n < n - 1``."""
    path = tmp_path / "model.gguf"
    keys = {"llama.attention.sliding_window": 1024, "llama.attention.sliding_window_pattern": pattern}
    path.write_bytes(header(KEYS | keys, tensors()))
    windowed = [group.layers for group in read_gguf(path).model.layers if group.caches[0].kind == "sliding"]
    assert windowed == ([layers] if layers else [])
