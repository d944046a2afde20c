"""``kvreport log``: what a start-up log tells."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from kvreport.cli.output import given, write_answer
from kvreport.startup_log import MAX_CHARACTERS


def read_text(name: str, most: int = MAX_CHARACTERS * 4) -> str:
    """Return the text of a file, or of standard input for ``-``: PowerShell's ``>`` writes UTF-16, everything else UTF-8."""
    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as log:
        # One byte more than is read: it tells that there is more, whatever the file's size.
        content = log.read(most + 1)
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if wide else "utf-8-sig", errors="replace")


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import open_catalog
    from kvreport.startup_log import diagnose
    from kvreport.startup_log.lines import lines
    from kvreport.startup_log.llama_cpp import looks_like_llama_cpp
    from kvreport.startup_log.local import diagnose_local

    log_text = read_text(options.file)
    if looks_like_llama_cpp(log_text):
        local = diagnose_local(
            log_text[:MAX_CHARACTERS],
            **given(options, "model fetch revision"),
            catalog=open_catalog(options.data),
        )
        write_answer(options.format, local.to_dict, local.lines)
        return 0
    found = diagnose(
        log_text,
        **given(options, "model gpu tensor_parallel weights kv draft fetch revision"),
        catalog=open_catalog(options.data),
    )
    write_answer(options.format, found.to_dict, lambda: lines(found))
    return 0
