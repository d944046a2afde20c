"""The flags that each engine's own server takes, read from its argument parser; commands are held to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from kvreport.catalog.base import SCHEMA_VERSION, Record, Source, Text
from kvreport.catalog.shelf import read_yaml, validate


class ServerFlags(Record):
    """One engine's server.

    Attributes:
        family: The engine's family.
        release: Whose parser was read: a version or a commit.
        command: How the server is started.
        source: Where the flags stand.
        flags: Every flag, as written on the command line.
    """

    family: Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp"]
    release: Text
    command: Text
    source: Source
    flags: Annotated[tuple[Text, ...], Field(min_length=1)]


class AllServerFlags(Record):
    """The content of ``server_flags.yaml``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    servers: Annotated[tuple[ServerFlags, ...], Field(min_length=1)]


def load_server_flags(data_dir: Path) -> dict[str, ServerFlags]:
    """Read ``server_flags.yaml`` of a catalog's folder, by family.

    Raises:
        CatalogError: If the file is not right.
    """
    path = data_dir / "server_flags.yaml"
    found = validate(AllServerFlags, read_yaml(path, path.name), path.name)
    return {server.family: server for server in found.servers}
