"""What was given as a model: a catalogue name, a config, a folder with its weights, a Hub repository.

One door for everything that names a model, with what has to be said about how it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvreport.accounting.weights import whole_row_bytes
from kvreport.architectures.checkpoint import confront
from kvreport.architectures.headers import read_headers
from kvreport.architectures.instead import CONFIG_FILES, config_file
from kvreport.architectures.keys import Keys, read_json
from kvreport.architectures.reader import read_config
from kvreport.architectures.registry import find_architecture
from kvreport.architectures.safetensors import Witness, read_witness
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError


@dataclass(frozen=True, slots=True)
class Opened:
    """A model, and how it came to be.

    Attributes:
        model: The model.
        assumptions: What was not stated, and where files were believed instead; one sentence each.
        not_read: Keys of the config that look like sizes and were not used.
    """

    model: Model
    assumptions: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


def open_folder(path: Path, catalogue: Catalogue, **fields: Any) -> Opened:  # noqa: ANN401 - fields of the record
    """Read a config, and hold it against the weights that lie beside it.

    Args:
        path: A folder, a ``config.json`` in it, or one of its safetensors files or their index.
        catalogue: For the weight formats.
        **fields: What :func:`kvreport.architectures.reader.read_config` takes.

    Raises:
        InputError: If the config cannot be read, or a file beside it is damaged.
    """
    given = path.parent if path.suffix == ".safetensors" or path.name.endswith(".index.json") else path
    config = config_file(given)
    witness = read_witness(config.parent) if config.name in CONFIG_FILES else None
    raw = read_json(config, str(config)) if witness is not None else {}
    if witness is not None and witness.tensors and not _known(raw):
        identity = str(fields.get("id") or f"local/{config.resolve().parent.name}")
        reading = read_headers(raw, witness, id=identity, where=str(config))
        return Opened(reading.model, reading.assumptions)
    model = read_config(config, **fields)
    if witness is None:
        return Opened(model)
    return hear(model, witness, catalogue, raw)


def _known(config: Mapping[str, Any]) -> bool:
    try:
        find_architecture(Keys(config, "config"))
    except InputError:
        return False
    return True


def hear(model: Model, witness: Witness, catalogue: Catalogue, config: Mapping[str, Any]) -> Opened:
    """Hold a model against its files' own word."""
    served = whole_row_bytes(model, catalogue.weight_formats)
    verdict = confront(model, witness, served, plain_bytes=plain_bytes(config))
    return Opened(verdict.model, () if verdict.sentence is None else (verdict.sentence,))


def plain_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of an unquantized element in the files: 4 where the config says float32."""
    sections = [config, *(part for part in config.values() if isinstance(part, dict))]
    named = [section.get("torch_dtype") or section.get("dtype") for section in sections]
    first = next((name for name in named if isinstance(name, str)), "")
    return 4 if first.removeprefix("torch.") == "float32" else 2
