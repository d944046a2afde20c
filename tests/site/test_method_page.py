"""The page about the method says how the memory next to weights and cache is computed, under a heading of its own."""

from __future__ import annotations

from pathlib import Path

from kvreport import estimate


def test_what_an_engine_reserves_has_a_heading_and_a_paragraph_each(repository: Path) -> None:
    text = (repository / "docs" / "about" / "method.md").read_text(encoding="utf-8")
    section = text.split("\n### Activations, CUDA graphs")[1].split("\n## ")[0]
    for term in ("**Activations.**", "**CUDA graphs.**", "**Non-framework memory**"):
        assert term in section


def test_the_flags_that_the_page_names_change_these_terms() -> None:
    usual = estimate("llama-3.1-8b", gpu="h100").budget
    small = estimate("llama-3.1-8b", gpu="h100", max_batched_tokens=4096, max_seqs=64).budget
    eager = estimate("llama-3.1-8b", gpu="h100", eager=True).budget
    assert small.activations < usual.activations
    assert small.graphs < usual.graphs
    assert eager.graphs == 0
