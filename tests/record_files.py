"""Records of the public catalog as the data that a file would state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvreport.catalog.load import open_catalog
from kvreport.catalog.shelf import read_yaml
from kvreport.resources import data_dir


def stated_record(name: str) -> Any:
    """What a file states; of an engine whose family's rules make its record, what a file of its own would state.

    Args:
        name: Such as ``models/Qwen--Qwen3-8B.yaml`` or ``engines/vllm-0.11.yaml``.
    """
    path = data_dir() / name
    if path.is_file() or not name.startswith("engines/"):
        return read_yaml(path, name)
    return open_catalog().engine(Path(name).stem).model_dump(mode="json", exclude_defaults=True)
