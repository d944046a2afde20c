"""``kvreport claim``: a published figure, recomputed, with the cause where it does not hold."""

from __future__ import annotations

import argparse

from kvreport.cli.output import REQUIREMENT_NOT_MET, given, write_answer

_OUTPUTS = ("text", "json")


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import open_catalog
    from kvreport.errors import InputError
    from kvreport.evidence.claim_check import check, lines, record, statement_of
    from kvreport.evidence.claims import ClaimVerdict

    forms = [one for one in options.format if one not in _OUTPUTS]
    if len(forms) > 1:
        raise InputError(f"--format: found {len(forms)} formats; allowed: one, and text or json")
    fields = given(options, "model quantity value unit context gpu")
    statement = statement_of(options.text, {**fields, "form": forms[0] if forms else None})
    found = check(statement, open_catalog(options.data))
    form = "json" if "json" in options.format else "text"
    write_answer(form, lambda: record(statement, found), lambda: lines(found))
    return REQUIREMENT_NOT_MET if found.verdict is ClaimVerdict.CONTRADICTED else 0
