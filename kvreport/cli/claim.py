"""``kvreport claim``: a published figure, recomputed, with the cause where it does not hold."""

from __future__ import annotations

import argparse

from kvreport.cli.output import REQUIREMENT_NOT_MET, Add, add_data_option, write, write_json

_EPILOG = """\
examples:
  kvreport claim "Kimi-K3 107136 B/token"
  kvreport claim "Llama 3.1 8B takes 8 GB at 128K in fp16"
  kvreport claim --model glm-5 --quantity kv_request --value 17.18 --unit GB --context 200K

A figure is held to the digits that it is printed with. Exit status 3 means that it is contradicted.
"""
_OUTPUTS = ("text", "json")


def register(add: Add) -> None:
    """Add the command."""
    command = add("claim", _run, "Recompute a figure that somebody published.", _EPILOG)
    command.add_argument("text", metavar="TEXT", nargs="?", help="model, number and unit in one sentence")
    command.add_argument("--model", metavar="MODEL", help="the model, by any name that the catalog knows")
    command.add_argument("--quantity", metavar="NAME", help="kv_per_token, kv_request, weights, parameters …")
    command.add_argument("--value", metavar="NUMBER", help="the number as printed")
    command.add_argument("--unit", metavar="UNIT", help="its unit as printed: GB is 10^9 bytes, GiB 2^30")
    command.add_argument("--context", metavar="TOKENS", help="tokens of a request (32K is 32,768)")
    command.add_argument("--gpu", metavar="GPU", help="the accelerator, where requests or tokens are counted")
    command.add_argument(
        "--format",
        action="append",
        default=[],
        metavar="FORMAT",
        help="format of the cache or the weights as stated (fp8); text or json is what to print (text)",
    )
    add_data_option(command)


def _run(options: argparse.Namespace) -> int:
    from kvreport.catalog.load import open_catalog
    from kvreport.errors import InputError
    from kvreport.evidence.claim_check import check, lines, record, statement_of
    from kvreport.evidence.claims import ClaimVerdict

    forms = [one for one in options.format if one not in _OUTPUTS]
    if len(forms) > 1:
        raise InputError(f"--format: found {len(forms)} formats; allowed: one, and text or json")
    fields = {
        name: getattr(options, name) for name in ("model", "quantity", "value", "unit", "context", "gpu")
    }
    statement = statement_of(options.text, {**fields, "form": forms[0] if forms else None})
    found = check(statement, open_catalog(options.data))
    if "json" in options.format:
        write_json(record(statement, found))
    else:
        for line in lines(found):
            write(line)
    return REQUIREMENT_NOT_MET if found.verdict is ClaimVerdict.CONTRADICTED else 0
