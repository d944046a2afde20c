"""``kvreport mcp`` and ``kvreport completion``: the same functions for assistants and for shells."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer


def print_completion(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.cli import parser
    from kvreport.errors import InputError

    try:
        import shtab
    except ImportError as error:
        raise InputError("completion: found no package 'shtab'; allowed: pip install shtab") from error
    print(shtab.complete(parser(), shell=options.shell))
    return 0


def serve_mcp(options: argparse.Namespace) -> int:
    """Carry out the command."""
    server(options.data).run()
    return 0


def server(data: str | None = None) -> MCPServer[Any]:
    """Return an MCP server whose tools answer what the commands answer.

    Raises:
        InputError: If the optional package is not installed, or there is no such catalog.
    """
    from kvreport.errors import InputError, missing

    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError as error:
        raise InputError(f"mcp: {missing('mcp', 'mcp')}") from error

    from kvreport import __version__
    from kvreport.catalog.load import open_catalog

    catalog = open_catalog(data)
    made: MCPServer[Any] = MCPServer(
        "kvreport",
        version=__version__,
        instructions=(
            "Memory and capacity of language models on accelerators, computed from architecture facts. Sizes are "
            "bytes per GPU unless a name says otherwise; counts are of the whole deployment. Names come from "
            "list_names; an error says what is allowed."
        ),
    )
    for tool in _tools(catalog):
        made.tool()(_said(tool))
    return made


def _said(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool whose bad input is told to whoever called it, and not only to a log."""
    from mcp.server.mcpserver.exceptions import ToolError

    from kvreport.errors import InputError

    @wraps(tool)
    def answer(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the tool
        try:
            return tool(*arguments, **named)
        except InputError as error:
            raise ToolError(str(error)) from error

    return answer


def _tools(catalog: Any) -> list[Any]:  # noqa: ANN401 - functions whose signatures the server reads
    from kvreport.cli.catalog_lists import rows_of
    from kvreport.estimation.difference import Side, compare
    from kvreport.estimation.estimate import estimate as estimate_one
    from kvreport.estimation.named import is_config_path
    from kvreport.estimation.size import size as size_all

    def named(model: str) -> str:
        from kvreport.errors import InputError

        if is_config_path(model):  # an assistant passes on what others wrote: no file is read for it
            raise InputError("model: found the path of a file; allowed: a model of the catalog")
        return model

    def estimate(
        model: str,
        gpu: str,
        context_tokens: int | None = None,
        tensor_parallel: int = 1,
        weights: str | None = None,
        kv: str = "auto",
        engine: str = "vllm",
    ) -> dict[str, Any]:
        """How many requests of one context run at once on a GPU, and where its memory goes."""
        return estimate_one(
            named(model),
            gpu=gpu,
            context_tokens=context_tokens,
            tensor_parallel=tensor_parallel,
            weights=weights,
            kv=kv,
            engine=engine,
            catalog=catalog,
        ).to_dict()

    def size(
        model: str, concurrent_requests: int, context_tokens: int, gpus: list[str] | None = None
    ) -> dict[str, Any]:
        """Which GPUs, how many and with which flags serve so many concurrent requests, best first."""
        return size_all(
            named(model),
            concurrent=concurrent_requests,
            context=context_tokens,
            gpus=gpus or (),
            catalog=catalog,
        ).to_dict()

    def diff(
        model: str,
        old_engine: str,
        new_engine: str,
        gpu: str,
        context_tokens: int = 8192,
        tensor_parallel: int = 1,
    ) -> dict[str, Any]:
        """What an engine release changed in capacity (vllm@0.11.0 against vllm), and which term did it."""
        return compare(
            Side(catalog, named(model), old_engine),
            Side(catalog, named(model), new_engine),
            gpu,
            tensor_parallel=tensor_parallel,
            context_tokens=context_tokens,
        ).to_dict()

    def list_names(kind: str, pattern: str = "*") -> list[dict[str, Any]]:
        """Names of models, gpus, engines or formats that match a pattern."""
        return rows_of(catalog, kind, pattern)

    return [estimate, size, diff, list_names]
