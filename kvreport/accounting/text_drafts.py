"""Methods of speculative decoding that draft from text that was seen, without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TEXT_DRAFTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ngram": ("vllm", "sglang", "tensorrt_llm"),
    "suffix": ("vllm",),
}
"""Methods that draft from text that was seen, with the engines that have them: no weights, no cache, no device memory.

vLLM 0.33 keeps their tables in host memory (``v1/spec_decode/ngram_proposer.py``, ``suffix_decoding.py``), as do SGLang 0.5.23
(``speculative/ngram_worker.py``) and TensorRT-LLM (``llmapi/llm_args.py::NGramDecodingConfig``). vLLM's ``ngram_gpu`` is
another one: it holds the tokens of all requests on the device (``v1/worker/gpu_model_runner.py``).
"""


def drafts_from_text(family: str, method: str) -> bool:
    """Whether an engine's family has a method that drafts from text."""
    return family in TEXT_DRAFTS[method]


LOCAL_TEXT_DRAFTS: Final[Mapping[str, tuple[int, str]]] = {
    "ngram-simple": (48, "--spec-ngram-simple-size-m"),
    "ngram-map-k": (48, "--spec-ngram-map-k-size-m"),
    "ngram-map-k4v": (48, "--spec-ngram-map-k4v-size-m"),
    "ngram-mod": (64, "--spec-ngram-mod-n-max"),
    "ngram-cache": (8, ""),
}
"""Values of ``--spec-type`` that draft from text: tokens per step where nobody states them, and the flag that states them.

They load nothing and keep no copies of states; logits of the drafted tokens are computed as for any draft
(``common/speculative.cpp::common_speculative_n_max``, ``common/common.h::need_n_rs_seq``, llama.cpp of 2026).
"""
