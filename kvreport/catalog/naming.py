"""What a record without a name of its own is called: derived from its id and from its original's name."""

from __future__ import annotations

import re
from typing import Final

_SEPARATOR: Final = re.compile(r"[-_ ]+")
_BITS: Final = re.compile(r"(\d+)bit")
_ACRONYMS: Final = frozenset(
    {
        "awq",
        "gptq",
        "fp8",
        "fp4",
        "nvfp4",
        "mxfp4",
        "int4",
        "int8",
        "gguf",
        "exl2",
        "qat",
        "bnb",
        "w8a8",
        "w4a16",
    }
)
"""Names of quantization methods and formats that are written in capitals."""

_TUNED: Final = frozenset({"it", "instruct", "chat", "hf"})
"""Words of ids that our names leave out: the tuning that everybody serves."""

_MLX: Final = "mlx"
"""Part of the name of organizations that publish copies for MLX; such copies run nowhere else."""


def copy_name(copy_id: str, original_id: str, original_name: str) -> str:
    """Return what a quantized copy is called: its original's name and what its id adds.

    ``casperhansen/llama-3.3-70b-instruct-awq`` of ``Llama 3.3 70B`` is ``Llama 3.3 70B AWQ``.
    """
    organization, _, name = copy_id.rpartition("/")
    known = {word.lower() for word in _SEPARATOR.split(original_id.rpartition("/")[2])}
    added = [word for word in _SEPARATOR.split(name) if word and word.lower() not in known | _TUNED]
    if _MLX in organization.lower() and _MLX not in (word.lower() for word in added):
        added.insert(next((n for n, word in enumerate(added) if _written(word) != word), len(added)), _MLX)
    return " ".join([original_name, *(_written(word) for word in added)])


def _written(word: str) -> str:
    """Return a word of an id as readers write it: methods in capitals, ``4bit`` as ``4-bit``."""
    if (bits := _BITS.fullmatch(word.lower())) is not None:
        return f"{bits[1]}-bit"
    return word.upper() if word.lower() in {*_ACRONYMS, _MLX} else word
