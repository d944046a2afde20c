"""Which rules an engine's record asks for, by family."""

from __future__ import annotations

from typing import Final

from kvreport.accounting.engines.ceiling import Ceiling
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp
from kvreport.accounting.engines.mlx import Mlx
from kvreport.accounting.engines.ollama import Ollama
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.sglang.rules import Sglang
from kvreport.accounting.engines.tensorrt_llm import TensorRtLlm
from kvreport.accounting.engines.transformers import Transformers
from kvreport.accounting.engines.vllm.rules import Vllm
from kvreport.catalog.engine import Engine

FAMILIES: Final[dict[str, type[EngineRules]]] = {
    "ceiling": Ceiling,
    "llama_cpp": LlamaCpp,
    "mlx": Mlx,
    "ollama": Ollama,
    "sglang": Sglang,
    "tensorrt_llm": TensorRtLlm,
    "transformers": Transformers,
    "vllm": Vllm,
}
"""The rules of each family; a new engine is one entry and one module."""


def rules(engine: Engine) -> EngineRules:
    """The rules of an engine's record."""
    return FAMILIES[engine.family](engine)
