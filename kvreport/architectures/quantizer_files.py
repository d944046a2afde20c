"""The files that quantizers write beside ``config.json``, when the config itself is silent.

AutoGPTQ writes ``quantize_config.json``, AutoAWQ ``quant_config.json``, ModelOpt
``hf_quant_config.json``, msModelSlim (Ascend) ``quant_model_description.json`` and ExLlamaV3
``quantization_config.json``. Each states its method by its name alone, so it is named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvreport.architectures.keys import Keys, read_json

FILES: Final = (
    "hf_quant_config.json",
    "quant_model_description.json",
    "quantization_config.json",
    "quantize_config.json",
    "quant_config.json",
)
"""Names looked for, in this order; the first that is there counts."""

_METHODS: Final = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
_DESCRIPTION: Final = "quant_model_description.json"


def quantizer_file(folder: Path) -> Keys | None:
    """Return what a quantizer wrote into the folder, or None if it wrote nothing.

    Raises:
        InputError: If the file cannot be read as JSON.
    """
    for name in FILES:
        path = folder / name
        if path.is_file():
            return Keys(described(name, read_json(path, str(path))), str(path))
    return None


def described(name: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a quantizer's file with the method that its name stands for."""
    if name == _DESCRIPTION:
        return {"model_quant_type": "FLOAT", **data}
    if name in _METHODS and "quant_method" not in data:
        return {"quant_method": _METHODS[name], **data}
    return data
