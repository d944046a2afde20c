"""``kvreport log``: what a start-up log tells."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from kvreport.cli.numbers import whole
from kvreport.cli.output import Add, add_data_option, add_fetch_options, write, write_json

_EPILOG = """\
examples:
  kvreport log vllm.log
  kvreport log vllm.log --gpu H100
  kvreport log vllm.log --gpu rtx-5070ti --gpu rtx-5090
  kvreport log vllm.log --model ORG/NAME --fetch
  journalctl -u vllm | kvreport log - --model Qwen/Qwen2.5-7B
  llama-server -m model.gguf 2>&1 | kvreport log - --model Qwen/Qwen3-30B-A3B
"""


def register(add: Add) -> None:
    """Add the command."""
    command = add(
        "log",
        _run,
        "Read an engine's start-up log: its numbers, ours, and what to change.",
        _EPILOG,
    )
    command.add_argument("file", metavar="FILE", help="the log, or - for standard input")
    command.add_argument(
        "--model", metavar="MODEL", help="the model, if the log does not name it as the catalog does"
    )
    command.add_argument(
        "--gpu",
        metavar="GPU",
        action="append",
        help="the accelerator, to predict the pool; repeat it, rank by rank, for unequal GPUs",
    )
    command.add_argument(
        "--tensor-parallel",
        "--tp",
        type=whole(1, 1024),
        metavar="N",
        help="GPUs of one copy, if the log does not say",
    )
    command.add_argument("--weights", metavar="FORMAT", help="weight format (as released)")
    command.add_argument("--kv", metavar="FORMAT", help="KV format, if the log does not say")
    command.add_argument(
        "--draft",
        metavar="MODEL",
        help="draft model of SGLang's speculative decoding (the one that the log names): a catalog name or a config.json",
    )
    command.add_argument("--format", choices=("text", "json"), default="text", help="what to print (text)")
    add_fetch_options(command)
    add_data_option(command)


def read_text(name: str) -> str:
    """Return the text of a log, or of standard input for ``-``: PowerShell's ``>`` writes UTF-16, everything else UTF-8."""
    from kvreport.startup_log import MAX_CHARACTERS

    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as log:
        # One byte more than is read as a log: it tells that there is more, whatever the file's size.
        content = log.read(MAX_CHARACTERS * 4 + 1)
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if wide else "utf-8-sig", errors="replace")


def _run(options: argparse.Namespace) -> int:
    from kvreport.catalog.load import open_catalog
    from kvreport.startup_log import MAX_CHARACTERS, diagnose
    from kvreport.startup_log.lines import lines
    from kvreport.startup_log.llama_cpp import looks_like_llama_cpp
    from kvreport.startup_log.local import diagnose_local

    log_text = read_text(options.file)
    if looks_like_llama_cpp(log_text):
        local = diagnose_local(
            log_text[:MAX_CHARACTERS],
            model=options.model,
            fetch=options.fetch,
            revision=options.revision,
            catalog=open_catalog(options.data),
        )
        if options.format == "json":
            write_json(local.to_dict())
        else:
            for line in local.lines():
                write(line)
        return 0
    found = diagnose(
        log_text,
        model=options.model,
        gpu=options.gpu,
        tensor_parallel=options.tensor_parallel,
        weights=options.weights,
        kv=options.kv,
        draft=options.draft,
        fetch=options.fetch,
        revision=options.revision,
        catalog=open_catalog(options.data),
    )
    if options.format == "json":
        write_json(found.to_dict())
    else:
        for line in lines(found):
            write(line)
    return 0
