"""Lines of llama.cpp in a real browser, held equal to Python's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from startup_logs import OLLAMA_PLACED

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

OLLAMA = """\
msg=offload library=rocm layers.requested=-1 layers.model=63 layers.offload=40 memory.available="[33.6 GiB]" \
memory.gpu_overhead="0 B" memory.required.full="20.1 GiB" memory.required.kv="1.6 GiB" memory.weights.total="15.4 GiB" \
projector.weights="795.9 MiB" projector.graph="1.0 GiB"
cmd="ollama runner --ollama-engine --ctx-size 8192 --parallel 2"
"""

READ = """([table, text]) => {
  const start = kvLogLocal.read(table, text);
  return {
    is: kvLogLocal.looksLike(table, text),
    headline: kvLogLocal.headline(table, start),
    changes: kvLogLocal.changes(table, start),
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
    opened.add_script_tag(path=repository / "docs" / "assets" / "kv-log-local.js")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "text",
    [FITS, RUNS_OUT, QUANTIZED, OLLAMA, OLLAMA_PLACED, "nothing\n"],
    ids=["fits", "out", "quantized", "ollama", "placed", "none"],
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
    if start.buffers:
        ours = diagnose_local(text)
        assert theirs["headline"] == ours.headline
        assert theirs["changes"] == list(ours.changes)
