"""Lines of llama.cpp in a real browser, held equal to Python's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from startup_logs import OLLAMA_CUT, OLLAMA_PLACED

from kvreport.publish.browser import script as browser_script
from kvreport.startup_log import table
from kvreport.startup_log.llama_cpp import browser_table, looks_like_llama_cpp, read_start
from kvreport.startup_log.local import diagnose_local

pytestmark = [pytest.mark.browser]

FITS = """\
llama_prepare_model_devices: using device Vulkan0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23594 MiB free
load_tensors: offloaded 40/49 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   166.92 MiB
load_tensors:      Vulkan0 model buffer size = 10524.42 MiB
llama_context: n_ctx         = 8192
llama_context: n_seq_max     = 4
llama_kv_cache: size =  768.00 MiB (  8192 cells,  48 layers,  4/1 seqs), K (f16):  384.00 MiB, V (f16):  384.00 MiB
llama_kv_cache:    Vulkan0 KV buffer size =   768.00 MiB
llama_memory_recurrent: size = 201.00 MiB (4 cells, 32 layers, 4 seqs),
sched_reserve:    Vulkan0 compute buffer size =   368.04 MiB
sched_reserve: Vulkan_Host compute buffer size =    64.05 MiB
"""
RUNS_OUT = FITS + "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: Out of memory\n"
QUANTIZED = RUNS_OUT.replace("f16", "q8_0").replace("load_tensors: offloaded 40/49 layers to GPU\n", "")

NO_CACHE = (
    FITS
    + """\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 4294967296
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
"""
)
AGAIN = (
    NO_CACHE + "W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
)
NO_FLASH = FITS + "llama_init_from_model: V cache quantization requires flash_attn\n"

OLLAMA = """\
msg=offload library=rocm layers.requested=-1 layers.model=63 layers.offload=40 memory.available="[33.6 GiB]" \
memory.gpu_overhead="0 B" memory.required.full="20.1 GiB" memory.required.kv="1.6 GiB" memory.weights.total="15.4 GiB" \
projector.weights="795.9 MiB" projector.graph="1.0 GiB"
cmd="ollama runner --ollama-engine --ctx-size 8192 --parallel 2"
"""

OLLAMA_UNKNOWN = OLLAMA_CUT.replace('memory.required.partial="22.5 GiB"', "")

KILLED = OLLAMA_PLACED + "Error: llama runner process has terminated: signal: killed\n"

UNIFIED = (
    "llama_kv_cache_unified: size = 4096.00 MiB ( 32768 cells,  32 layers,  1/1 seqs), K (f16): 2048.00 MiB\n"
)
SPLIT = "llama_kv_cache: size = 768.00 MiB ( 8192 cells,  48 layers,  4/4 seqs), K (f16): 384.00 MiB\n"
SELF = """\
llama_kv_cache_init: kv_size = 512, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = 12
llama_init_from_model: KV self size  =    9.00 MiB, K (f16):    4.50 MiB, V (f16):    4.50 MiB
"""
RECURRENT = "llama_kv_cache_recurrent: KV self size  =  201.00 MiB, K (f32): 9.00 MiB, V (f32): 192.00 MiB\n"
WEIGHTS = "llm_load_tensors:        CPU buffer size =   245.62 MiB\nllm_load_tensors:      CUDA0 buffer size =  5049.71 MiB\n"
BUFFER = "llama_kv_cache_unified:      CUDA0 KV buffer size = 4096.00 MiB\n"

READ = """([table, text]) => {
  const start = kvLogLocal.read(table, text);
  const failed = kvLogLines.readLog(kvTable, start.failures.join("\\n"));
  const end = kvLogLines.ended(kvTable, { recognised: [], ...failed }, start.ollama ? "ollama" : "llama_cpp");
  return {
    is: kvLogLocal.looksLike(table, text),
    headline: kvLogLocal.headline(table, start, end),
    changes: kvLogLocal.changes(table, start, end),
    buffers: start.buffers,
    cells: start.cells,
    cache: start.cache,
    states: start.states,
    free: start.free,
  };
}"""


@pytest.fixture(scope="module")
def page(browser: Any, repository: Path) -> Iterator[Any]:
    opened = browser.new_page()
    opened.add_script_tag(content=browser_script())
    for name in ("kv-capacity.js", "kv-loglines.js", "kv-log-local.js"):
        opened.add_script_tag(path=repository / "docs" / "assets" / name)
    opened.evaluate("(table) => { window.kvTable = table; }", table())
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "text",
    [
        FITS,
        RUNS_OUT,
        QUANTIZED,
        NO_CACHE,
        AGAIN,
        f"build: 6730 (e60f241ea)\n{FITS}build: 6730 (e60f241ea)\n{QUANTIZED}build: 6730 (e60f241ea)\n",
        OLLAMA + OLLAMA_CUT,
        NO_FLASH,
        OLLAMA,
        OLLAMA_CUT,
        OLLAMA_UNKNOWN,
        OLLAMA_PLACED,
        KILLED,
        UNIFIED,
        SPLIT,
        SELF,
        RECURRENT,
        BUFFER,
        WEIGHTS,
        UNIFIED + "cudaMalloc failed: out of memory\n",
        "nothing\n",
    ],
    ids=[
        "fits",
        "out",
        "quantized",
        "cache",
        "again",
        "restarted",
        "ollama twice",
        "flash",
        "ollama",
        "cut",
        "unknown",
        "placed",
        "killed",
        "unified",
        "split",
        "self size",
        "recurrent",
        "buffer",
        "older weights",
        "cache, then out",
        "none",
    ],
)
def test_the_browser_reads_local_starts_as_python_does(page: Any, text: str) -> None:
    theirs = page.evaluate(READ, [browser_table(), text])
    start = read_start(text.splitlines())
    assert theirs["is"] == looks_like_llama_cpp(text)
    assert theirs["buffers"] == start.buffers
    assert (theirs["cells"], theirs["cache"], theirs["states"]) == (
        start.cells,
        start.kv_bytes,
        start.state_bytes,
    )
    assert theirs["free"] == start.free
    if not start.is_empty:
        ours = diagnose_local(text)
        assert theirs["headline"] == ours.headline
        assert theirs["changes"] == list(ours.changes)


def test_the_browser_does_not_sum_what_no_line_states(page: Any) -> None:
    """A line of mid 2025 was not understood, and that of today had 0.00 GiB on devices."""
    for text in (UNIFIED, UNIFIED.replace("_unified", "")):
        theirs = page.evaluate(READ, [browser_table(), text])
        assert theirs["is"]
        assert theirs["headline"].startswith("The cache takes 4.00 GiB: 32,768 cells of 131,072 bytes")
        assert "0.00 GiB" not in theirs["headline"]
    theirs = page.evaluate(READ, [browser_table(), BUFFER])
    assert theirs["is"]
    assert theirs["headline"].endswith("buffer of: weights, working memory. The sum excludes these parts.")
