"""What a draft head builds for itself before it takes the target's: counted where an engine sizes its pools first."""

from kvreport.accounting.extras import borrowed_copies
from kvreport.catalog.load import open_catalog
from kvreport.estimation import estimate


def test_sglang_sizes_its_pools_before_a_draft_lets_go_of_embedding_and_head() -> None:
    # Qwen3.8-27B has 248,320 words of 5,120 numbers: each table takes 2.54 GB, both 5.08 GB (sglang issue 36452).
    with_draft = estimate("Qwen/Qwen3.8-27B", gpu="h100", engine="sglang", context_tokens=8192, draft="mtp")
    assert with_draft.loading_bytes["draft_copies"] == 2 * 248_320 * 5_120 * 2
    assert borrowed_copies(with_draft.request.served_model, 4) == 2 * 248_320 * 5_120 * 2 // 4


def test_without_a_draft_and_in_vllm_nothing_is_built_twice() -> None:
    catalog = open_catalog()
    assert borrowed_copies(catalog.model("Qwen/Qwen3.8-27B"), 1) == 0
    served = estimate("Qwen/Qwen3.8-27B", gpu="h100", context_tokens=8192, draft="mtp")
    assert "draft_copies" not in served.loading_bytes
