"""Tensors of a GGUF file as inventory entries: layer numbers out of names, stacked experts kept whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.types import GgmlType

_BLOCK: Final = re.compile(r"^blk\.(\d+)\.(.+)$")


def local_tensor(name: str, shape: Sequence[int], kind: GgmlType) -> LocalTensor:
    """One tensor of a file.

    ``name``: its name. ``kind``: its storage type.
    """
    found = _BLOCK.match(name)
    layer, rest = (int(found[1]), found[2]) if found else (-1, name)
    role = rest.removesuffix(".weight")
    if role == "ssm_conv1d":
        return LocalTensor(role, layer, prod(shape), 1, 1, kind)
    stack = shape[2] if len(shape) > 2 else 1
    return LocalTensor(role, layer, shape[0], prod(shape[1:]), stack, kind)
