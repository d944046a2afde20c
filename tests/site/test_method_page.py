"""The page about the method says how the memory next to weights and cache is computed, under a heading of its own."""

from __future__ import annotations

import re
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


def test_each_formula_cites_the_function_that_it_was_read_in(repository: Path) -> None:
    """A reader found formulas and no code: paths are those that the rules cite, in the release that was read last."""
    text = (repository / "docs" / "about" / "method.md").read_text(encoding="utf-8")
    engines = repository / "data" / "engines"
    cited = re.findall(r"\[`([\w/]+\.py)(?:::(\w+))?`\]\((https://github.com/\S+?)\)", text)
    assert len(cited) >= 6
    for path, name, url in cited:
        family = "vllm" if "vllm-project" in url else "sglang"
        rules = (engines / family / "rules.yaml").read_text(encoding="utf-8")
        assert path in rules, path
        assert name in rules, name
        revision = re.search(r"revision: (v[\d.]+)", rules)
        assert revision is not None
        assert f"/blob/{revision[1]}/" in url
        assert url.endswith(f"/{path}")
