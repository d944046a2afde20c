"""Buffers that llama.cpp 0c1e57098 itself planned, where its caches or its graph differ from the usual ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.llama_files import tensor_table, write_sparse
from kvreport.accounting.engines.llama_cpp.cells_and_states import stored_caches
from kvreport.accounting.engines.llama_cpp.layout import lay_out_local
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.architectures.gguf import read_gguf
from kvreport.catalog.caches import FullAttention
from kvreport.catalog.load import Catalog
from kvreport.estimation.home_case import open_local
from kvreport.startup_log.llama_cpp import read_start

MIB = 1 << 20
PRINTED = 0.011


@pytest.mark.parametrize(
    ("model", "options", "printed"),
    [
        # Unfolded latents, index keys with values, and compressed cells.
        ("openbmb/MiniCPM3-4B-GPTQ-Int4", {}, {"kv": 3100.00, "state": 0.00, "compute": 61.51}),
        ("MiniMaxAI/MiniMax-M3", {}, {"kv": 594.00, "state": 0.00}),
        ("RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8", {}, {"kv": 63.50, "state": 11.64}),
        (
            "RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8",
            {"parallel": 4, "unified": True},
            {"kv": 254.00, "state": 46.56},
        ),
        ("RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8", {"parallel": 3}, {"kv": 151.13, "state": 34.92}),
        # One key for every token beside keys and values.
        ("Qwen/Qwen3.8-Flash-Next", {}, {"kv": 108.00}),
        # Several streams, and networks of many widths.
        ("google/gemma-3n-E4B-it", {}, {"compute": 156.02}),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {}, {"compute": 236.01}),
        # Without flash attention, values of a layer without heads are as wide as the widest.
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {"context": 8192, "flash": "off"}, {"kv": 2064.00}),
    ],
)
def test_caches_and_buffers_are_what_the_log_printed(
    catalog: Catalog, model: str, options: dict[str, Any], printed: dict[str, float]
) -> None:
    local, _ = open_local(catalog.model(model), "q8_0", None)
    host = lay_out_local(local, LocalOptions(**{"context": 4096, "parallel": 1} | options)).host
    for name, size in printed.items():
        assert getattr(host, name) / MIB == pytest.approx(size, abs=PRINTED), name


@pytest.mark.parametrize(
    "model",
    [
        "google/gemma-3n-E4B-it",
        "openbmb/MiniCPM3-4B-GPTQ-Int4",
        "RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8",
        "Qwen/Qwen3.8-Flash-Next",
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="a sparse file takes its whole length there")
def test_a_file_says_the_same(catalog: Catalog, model: str, tmp_path: Path) -> None:
    """A header as the converter writes it has the caches and states of the record."""
    known, _ = open_local(catalog.model(model), "q8_0", None)
    write_sparse(known, tmp_path / "model.gguf")
    file = read_gguf(tmp_path / "model.gguf")
    read, _ = open_local(file.model, None, file)
    options = LocalOptions(context=4096, parallel=1)
    ours, theirs = lay_out_local(known, options).host, lay_out_local(read, options).host
    assert (theirs.kv, theirs.state) == (ours.kv, ours.state)


def test_size_counts_unfolded_latents(catalog: Catalog) -> None:
    """The same holds where no file is laid out."""
    model = catalog.model("openbmb/MiniCPM3-4B-GPTQ-Int4")
    (found,) = stored_caches(model, model.layers[0].caches)
    assert found == FullAttention(kv_heads=40, key_dim=96, value_dim=64)


def test_the_log_names_compressor_states() -> None:
    """Each kind of compressor has a line; its buffer's line is not counted again."""
    start = read_start(
        [
            "llama_dsv4_comp_state:        CPU DSV4 csa state buffer size =     1.31 MiB",
            "llama_dsv4_comp_state: csa ratio = 4, state = 8 x 1024, streams = 1, rs_seq = 0, layers = 21, size =    1.31 MiB",
        ]
    )
    assert start.state_bytes == round(1.31 * MIB)


@pytest.mark.parametrize(
    "model",
    [
        "bigscience/bloom",
        "google/gemma-3n-E4B-it",
        "moonshotai/Kimi-K3",
        "Qwen/Qwen-7B",
        "Qwen/Qwen3.8-Flash-Next",
        "RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8",
    ],
)
def test_sparse_files_name_each_tensor_once(catalog: Catalog, model: str) -> None:
    """llama.cpp refuses a file with a name twice."""
    local, _ = open_local(catalog.model(model), "q8_0", None)
    names = [row.name for row in tensor_table(local)]
    assert len(names) == len(set(names))
    assert not any(".*." in name for name in names)


@pytest.mark.parametrize(
    ("model", "published"),
    # Sizes that bartowski's repositories state, in GB; these files are made with an importance matrix.
    [("meta-llama/Llama-3.1-8B-Instruct", 3.27), ("Qwen/Qwen3-8B", 3.37)],
)
def test_iq3_xxs_is_as_published(catalog: Catalog, model: str, published: float) -> None:
    local, _ = open_local(catalog.model(model), "iq3_xxs", None)
    assert sum(tensor.nbytes for tensor in local.tensors) / 1e9 == pytest.approx(published, abs=0.011)
