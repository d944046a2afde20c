"""llama.cpp's start-up lines, verbatim from public logs."""

from __future__ import annotations

import pytest
from startup_logs import LLAMA_CPP as QWEN
from startup_logs import OLLAMA_CUT, OLLAMA_PLACED

from kvreport.startup_log.llama_cpp import looks_like_llama_cpp, read_start
from kvreport.startup_log.local import diagnose_local

MIB = 1 << 20

GEMMA = """\
llama_prepare_model_devices: using device Vulkan0 (NVIDIA GeForce RTX 3080 Ti) (0000:01:00.0) - 11312 MiB free
llama_kv_cache:    Vulkan0 KV buffer size =   128.00 MiB
llama_kv_cache:    Vulkan0 KV buffer size =  1920.00 MiB
sched_reserve:    Vulkan0 compute buffer size =   541.07 MiB
"""


def test_a_start_of_llama_server() -> None:
    """Every buffer where it is, cells, types and layers."""
    assert looks_like_llama_cpp(QWEN)
    start = read_start(QWEN.splitlines())
    assert start.buffers["Vulkan0"] == {"model": round(17524.42 * MIB), "compute": round(368.04 * MIB)}
    assert start.host_bytes == sum(round(size * MIB) for size in (166.92, 0.58, 64.05))
    assert start.kv_bytes == 768 * MIB
    assert start.cells == [8192]
    assert start.cache_types == ("f16", "f16")
    assert (start.context, start.ubatch, start.offloaded) == (8192, 2048, (49, 49))
    assert not start.ran_out


def test_two_caches_add_up() -> None:
    """Window layers have a cache of their own; both buffers are one device's."""
    start = read_start(GEMMA.splitlines())
    assert start.buffers["Vulkan0"]["KV"] == 2048 * MIB
    assert start.free == {"Vulkan0": 11312 * MIB}


def test_two_starts_are_no_sum() -> None:
    """A server that was started anew has its memory once: the last start that says where it is counts."""
    build = "build: 6730 (e60f241ea) with cc (Ubuntu 13.3.0) for x86_64-linux-gnu\n"
    last = read_start(GEMMA.splitlines())
    for text in (build + QWEN + build + GEMMA, build + GEMMA + build + "main: loading model\n"):
        start = read_start(text.splitlines())
        assert (start.buffers, start.cells, start.build) == (last.buffers, last.cells, "6730")


def test_states_and_refusals() -> None:
    """Recurrent states are read, and a start that ran out says so."""
    lines = [
        "llama_memory_recurrent: size = 201.00 MiB (4 cells, 32 layers, 4 seqs),",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0: cudaMalloc failed: out of memory",
    ]
    start = read_start(lines)
    assert start.state_bytes == 201 * MIB
    assert start.ran_out


def test_estimates_of_an_older_ollama() -> None:
    """Before mid-2026 Ollama printed what it expected."""
    start = read_start(['msg=offload memory.required.full="21.9 GiB" memory.required.kv="1.5 GiB"'])
    assert start.estimated["full"] == int(21.9 * (1 << 30))
    assert not start.is_empty


def test_foreign_text_is_empty() -> None:
    """Nothing is made of lines of something else."""
    assert read_start(["INFO 10-01 vllm engine started", ""]).is_empty


OLLAMA = """\
msg=offload library=rocm layers.requested=-1 layers.model=63 layers.offload=63 layers.split="" \
memory.available="[33.6 GiB]" memory.gpu_overhead="0 B" memory.required.full="20.1 GiB" memory.required.partial="20.1 GiB" \
memory.required.kv="1.6 GiB" memory.required.allocations="[20.1 GiB]" memory.weights.total="15.4 GiB" \
memory.weights.repeating="14.3 GiB" memory.graph.full="565.0 MiB" projector.weights="795.9 MiB" projector.graph="1.0 GiB"
msg="starting llama server" cmd="ollama runner --ollama-engine --ctx-size 8192 --batch-size 512 --parallel 2"
"""


def test_an_older_ollama_alone_tells_where_it_expects_its_bytes() -> None:
    """A log without llama.cpp's own lines (July 2025, a Gemma 3 of 27B): all on the device, and then 40 of 63 layers."""
    assert looks_like_llama_cpp(OLLAMA)
    start = read_start(OLLAMA.splitlines())
    gib = 1 << 30
    assert start.device_bytes == pytest.approx(20.1 * gib, abs=3)
    assert start.host_bytes == 0
    assert start.buffers["expected on devices"]["model"] == int(15.4 * gib) + int(795.9 * MIB)
    assert (start.offloaded, start.context, start.slots) == ((63, 63), 8192, 2)
    assert start.free == {"expected on devices": int(33.6 * gib)}
    cut = read_start(OLLAMA.replace("layers.offload=63", "layers.offload=40").splitlines())
    assert cut.device_bytes + cut.host_bytes == pytest.approx(20.1 * gib, abs=6)
    assert cut.host_bytes == pytest.approx(23 / 63 * (15.4 * gib + 795.9 * MIB + 1.6 * gib), rel=1e-6)
    none = read_start(OLLAMA.replace("layers.offload=63", "layers.offload=0").splitlines())
    assert (none.device_bytes, list(none.buffers)) == (0, ["CPU (expected)"])


def test_the_need_of_all_layers_is_not_what_is_placed() -> None:
    """A line that was cut before its weights: what is placed is ``partial``, or unknown without it."""
    gib = 1 << 30
    cut = diagnose_local(OLLAMA_CUT)
    assert "takes 22.50 GiB on devices, 18.80 GiB in host memory, with 44 of 81 layers" in cut.headline
    assert "weights, cache and working memory 22.50 GiB; 22.90 GiB were free" in "\n".join(cut.lines())
    unknown = diagnose_local(OLLAMA_CUT.replace('memory.required.partial="22.5 GiB"', ""))
    assert "takes an unknown part of the 41.30 GiB that all layers need on devices" in unknown.headline
    assert unknown.start.buffers == {}
    every = read_start(OLLAMA_CUT.replace("44", "81").replace("22.5", "41.3").splitlines())
    assert (every.device_bytes, every.host_bytes) == (int(41.3 * gib), 0)
    none = read_start(OLLAMA_CUT.replace("44", "0").replace("22.5", "0").splitlines())
    assert (none.device_bytes, none.host_bytes) == (0, int(41.3 * gib))


def test_ollamas_own_engine_tells_where_its_bytes_lie() -> None:
    assert looks_like_llama_cpp(OLLAMA_PLACED)
    start = read_start(OLLAMA_PLACED.splitlines())
    gib = 1 << 30
    # The last attempt counts: the first line's 21.4 GiB were one that was given up.
    assert start.buffers["CUDA0"]["model"] == int(19.9 * gib)
    assert start.buffers["CPU"] == {
        "model": int(28.3 * gib),
        "KV": int(1.5 * gib),
        "compute": int(270.6 * (1 << 20)),
    }
    assert start.kv_bytes == int(1.1 * gib) + int(1.5 * gib)
    assert (start.offloaded, start.context, start.slots) == ((20, 49), 65_536, 2)
    assert not start.is_expected
    # The printed total is that of these parts.
    assert (start.device_bytes + start.host_bytes) / gib == pytest.approx(51.9, abs=0.05)


def test_buffers_of_llama_cpp_count_before_what_ollama_says() -> None:
    both = OLLAMA_PLACED + "load_tensors:        CUDA0 model buffer size =  4455.34 MiB\n"
    assert read_start(both.splitlines()).buffers == {"CUDA0": {"model": round(4455.34 * (1 << 20))}}


UNIFIED = """\
llama_kv_cache_unified: size = 4096.00 MiB ( 32768 cells,  32 layers,  1/1 seqs), K (f16): 2048.00 MiB, V (f16): 2048.00 MiB
"""
"""As llama.cpp printed it until August 2025 (pull request 15467)."""
SELF_SIZE = """\
llama_kv_cache_init: kv_size = 32768, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = 32, can_shift = 1
llama_init_from_model: KV self size  = 4096.00 MiB, K (f16): 2048.00 MiB, V (f16): 2048.00 MiB
"""


@pytest.mark.parametrize(
    "line",
    [
        UNIFIED,
        UNIFIED.replace("1/1 seqs", "1 seqs"),
        UNIFIED.replace("_unified", ""),
        SELF_SIZE,
    ],
)
def test_the_cache_alone_is_no_sum_of_a_start(line: str) -> None:
    """The size of the cache is stated under the names of every release, and what no line states is not 0 GiB."""
    assert looks_like_llama_cpp(line)
    found = diagnose_local(line)
    assert found.start.cache_types == ("f16", "f16")
    assert "The cache takes 4.00 GiB: 32,768 cells of 131,072 bytes, one for each token." in found.headline
    assert found.headline.endswith(
        "No line of the log states a buffer, so the memory that the start takes is not known."
    )
    assert "0.00 GiB" not in found.headline
    told = found.to_dict()
    assert [told[f"{name}_bytes"] for name in ("device", "host", "cache", "compute")] == [
        None,
        None,
        4 << 30,
        None,
    ]


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("llama_kv_cache_unified:      CUDA0 KV buffer size = 4096.00 MiB", "weights, working memory"),
        ("load_tensors:        CUDA0 model buffer size = 4096.00 MiB", "cache, working memory"),
        ("llm_load_tensors:      CUDA0 buffer size =  4096.00 MiB", "cache, working memory"),
        ("llama_context:      CUDA0 compute buffer size = 4096.00 MiB", "weights, cache"),
        ('msg="kv cache" device=CUDA0 size="4.0 GiB"', "weights, working memory"),
    ],
)
def test_a_sum_names_what_no_line_states(line: str, missing: str) -> None:
    assert looks_like_llama_cpp(line)
    assert diagnose_local(line).headline == (
        f"The start takes 4.00 GiB on devices. No line of the log states the buffer of: {missing}."
        " The sum excludes these parts."
    )


def test_states_of_a_recurrent_model_of_mid_2025() -> None:
    start = read_start(
        [
            "llama_kv_cache_recurrent: kv_size = 4, n_seq_max = 4, type_k = 'f32', type_v = 'f32', n_layer = 32",
            "llama_kv_cache_recurrent: KV self size  =  201.00 MiB, K (f32):    9.00 MiB, V (f32):  192.00 MiB",
        ]
    )
    assert (start.state_bytes, start.kv_bytes, start.cells) == (201 * MIB, 0, [])
