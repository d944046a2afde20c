"""A claim that somebody just read, judged as the ledger judges published ones.

The ledger (:mod:`kvreport.evidence.claims`) needs the ways in which a figure may be meant. Here they follow from what is
claimed: the words as they stand, formats that the words do not name, and the known mistakes
(:mod:`kvreport.book.mistakes`). Of the mistakes those are kept that produce the figure; they explain it, and excuse nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from kvreport.book.expressions import PARTNER, PrintedFigure, unit_factor
from kvreport.book.mistakes import MISTAKES, mistaken
from kvreport.book.quantities import Quantities
from kvreport.catalog.claim import Claim, ClaimReading, ClaimsFile, Publication, Role, Stated
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.errors import InputError, shorten
from kvreport.evidence.claim_sentences import QUANTITIES, SIZES, Statement, read_statement
from kvreport.evidence.claims import Entry, judge
from kvreport.units import human_tokens, parse_tokens

if TYPE_CHECKING:
    from kvreport.catalog.model import Model


_COUNTS: Final = ("parameters", "active_parameters", "context_limit", "requests", "pool_tokens")
_NEED_CONTEXT: Final = ("kv_request", "requests", "pool_tokens")
_NEED_GPU: Final = ("requests", "pool_tokens")
_MOST_READINGS: Final = 8
_MOST_NUMBER: Final = 10**15
_USUAL_KV: Final = ("fp8", "bf16", "nvfp4", "q8_0", "q4_0")
_USUAL_WEIGHTS: Final = ("bf16", "fp8", "int4", "nvfp4", "mxfp4", "q4_k_m")


def check(statement: Statement, catalog: Catalog) -> Entry:
    """Judge a statement by recomputing it.

    Raises:
        InputError: If the model, the quantity, the format, the accelerator or the unit is not known, a context or an
            accelerator is missing, or the unit is not one of the quantity.
    """
    if statement.quantity not in QUANTITIES:
        near = get_close_matches(statement.quantity, QUANTITIES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(
            f"--quantity: found {shorten(statement.quantity)}; allowed: {', '.join(QUANTITIES)}{hint}"
        )
    figure = _figure(statement)
    model = catalog.model(statement.model)
    if statement.quantity in _NEED_CONTEXT and statement.context is None:
        raise InputError(f"{statement.quantity}: found no context; allowed: one, such as --context 32K")
    if statement.quantity in _NEED_GPU and statement.gpu is None:
        raise InputError(f"{statement.quantity}: found no GPU; allowed: one, such as --gpu H100")
    if statement.gpu is not None:
        statement = replace(statement, gpu=catalog.accelerator(statement.gpu).id)
    quantities = Quantities(catalog)
    readings = _chosen(replace(statement, form=_format(statement, catalog)), figure, model, quantities)
    claim = Claim(
        id="asked",
        place="as typed",
        quote=_quote(statement, model),
        stated=Stated(
            value=statement.value, unit=statement.unit, about=statement.about, relation=statement.relation
        ),
        readings=readings,
    )
    source = Publication(
        key="asked", title="A claim as typed", published="not published", evidence="unverified"
    )
    return judge(claim, ClaimsFile(source=source, claims=(claim,)), quantities)


def statement_of(text: str | None, fields: Mapping[str, str | None]) -> Statement:
    """Return the statement of a sentence or of fields; where both say something, the field holds.

    The ``fields`` are ``model``, ``quantity``, ``value``, ``unit``, ``context``, ``form`` and ``gpu`` as typed; None is not said.

    Raises:
        InputError: If the sentence is not understood, or there is none and fields are missing.
    """
    said: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if "context" in said:
        said["context"] = parse_tokens(said["context"])
    if text is not None:
        return replace(read_statement(text), **said)
    missing = [f"--{name}" for name in ("model", "quantity", "value", "unit") if name not in said]
    if missing:
        raise InputError(
            f"claim: found no {', '.join(missing)}; allowed: a sentence, or --model, --quantity "
            f"({', '.join(QUANTITIES)}), --value and --unit"
        )
    return Statement(**said)


def lines(found: Entry) -> list[str]:
    """Return what ``kvreport claim`` prints of a judged statement."""
    said = [f"{found.verdict.value}: {found.claim.quote}", f"  {found.explanation}"]
    if found.ratio is not None:
        computed, unit = found.record()["computed_value"], found.figure.unit
        said.append(f"  stated {found.figure.text} {unit}, computed {computed:,.6g} {unit}")
    return said


def record(statement: Statement, found: Entry) -> dict[str, object]:
    """Return a judged statement as ``kvreport claim --format json`` prints it."""
    judged = found.record()
    kept = ("stated_value", "stated_unit", "computed_value", "computed_unit", "verdict", "explanation")
    return {
        "statement": found.claim.quote,
        "model": statement.model,
        "quantity": statement.quantity,
        "context_tokens": statement.context,
        "format": statement.form,
        "gpu": statement.gpu,
        **{name: judged[name] for name in kept},
        "factor": judged["ratio"],
        "assumption": found.assumption or None,
        "cause": found.cause or None,
        "readings": [
            {"role": one.role, "name": one.name, "compute": one.compute} for one in found.claim.readings
        ],
    }


def answer(given: Mapping[str, str], catalog: Catalog | None = None) -> str:
    """Return ``{"result": record}`` or ``{"error": sentence}`` for fields of :func:`statement_of` as a reader typed them, or empty."""
    try:
        statement = statement_of(None, {name: value.strip() or None for name, value in given.items()})
        found = check(statement, open_catalog() if catalog is None else catalog)
    except InputError as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"result": record(statement, found)})


def _figure(statement: Statement) -> PrintedFigure:
    if re.fullmatch(r"[0-9][0-9,]*(\.[0-9]+)?", statement.value) is None or len(statement.value) > 40:
        raise InputError(
            f"--value: found {shorten(statement.value)}; allowed: a number such as 107136 or 0.86"
        )
    figure = PrintedFigure(statement.value, statement.unit, about=statement.about)
    if figure.number >= _MOST_NUMBER:
        raise InputError(
            f"--value: found {shorten(statement.value)}; allowed: a number below {_MOST_NUMBER:,}"
        )
    unit_factor(figure.unit)
    counted = statement.quantity in _COUNTS
    sized = figure.unit.split("/")[0].split(" per ")[0].strip() in SIZES
    if counted == sized:
        allowed = ", ".join(_NOUNS if counted else SIZES)
        raise InputError(f"--unit: found {shorten(figure.unit)} for {statement.quantity}; allowed: {allowed}")
    return figure


_NOUNS: Final = ("parameters", "billion", "requests", "tokens")
UNITS: Final = (*SIZES, *_NOUNS)
"""Units that a claim may be printed in."""


def _quote(statement: Statement, model: Model) -> str:
    at = f" at {human_tokens(statement.context)}" if statement.context is not None else ""
    where = f" on {statement.gpu}" if statement.gpu else ""
    form = f" in {statement.form}" if statement.form else ""
    return (
        f"{model.id}: {QUANTITIES[statement.quantity]}{at}{form}{where}: {statement.value} {statement.unit}"
    )


def _chosen(
    statement: Statement, figure: PrintedFigure, model: Model, quantities: Quantities
) -> tuple[ClaimReading, ...]:
    """The words as they stand, and of all other readings those that give the figure."""
    candidates = _readings(statement, model)
    kept = [next(candidates)]
    plain = quantities.compute(
        kept[0].compute
    )  # what cannot be computed is an error here, and no reading below
    units = [figure.unit, *([PARTNER[figure.unit]] if figure.unit in PARTNER else [])]
    for reading in candidates:
        try:
            value = quantities.compute(reading.compute)
        except InputError:
            continue  # a format that does not store this kind of cache
        if (
            len(kept) < _MOST_READINGS
            and value != plain
            and any(figure.matches(value, unit) for unit in units)
        ):
            kept.append(reading)
    return tuple(kept)


def _readings(statement: Statement, model: Model) -> Iterator[ClaimReading]:
    """Every way to understand the statement, the words as they stand first, mistakes last."""
    made = dict(_by_format(statement, model))
    first = next(iter(made))
    yield ClaimReading(name=first, compute=made[first])
    stated = statement.form is not None
    for name, compute in list(made.items())[1:]:
        role: Role = "cause" if stated else "assumption"
        words = name.replace("stored", "it was counted") if stated else f"it is {name}"
        yield ClaimReading(role=role, name=words, compute=compute)
    if statement.quantity == "kv_per_token" and statement.context is None:
        form = statement.form or model.kv_format or "bf16"
        yield ClaimReading(
            role="assumption",
            name="it is meant for the first tokens, inside every window",
            compute=f'kv_per_token("{model.id}", "{form}", at=1)',
        )
    if statement.quantity in ("kv_per_token", "kv_request"):
        yield from _mistaken(statement, model)
    if statement.quantity == "parameters":
        yield ClaimReading(
            role="assumption",
            name="those are meant that one token passes through",
            compute=f'active_parameters("{model.id}")',
        )
    if statement.quantity == "active_parameters":
        # Makers count so (gpt-oss, DeepSeek-V3, Kimi-K2): a row of the table is read, and no matrix multiplied with.
        if any(row.component == "output_head" for row in model.weights):
            yield ClaimReading(
                role="assumption",
                name="the input embedding is left out",
                compute=f'active_parameters("{model.id}") - component("{model.id}", "embedding")',
            )
        yield ClaimReading(
            role="cause", name="all parameters were counted", compute=f'parameters("{model.id}")'
        )
    if statement.quantity == "weights":
        yield ClaimReading(
            role="cause",
            name="only the parameters that one token passes through were counted, in 16 bits",
            compute=f'2 * active_parameters("{model.id}")',
        )
    if statement.quantity == "requests":
        yield ClaimReading(
            role="cause",
            name="nothing was left for the engine",
            compute=f'floor((memory("{statement.gpu}") - weights("{model.id}")) / '
            f'kv_request("{model.id}", tokens={statement.context}))',
        )


def _by_format(statement: Statement, model: Model) -> Iterator[tuple[str, str]]:
    """The quantity in every format that may be meant: the one that is said first, else the model's own."""
    context = statement.context
    match statement.quantity:
        case "kv_per_token" | "kv_request" as name:
            own = model.kv_format or "bf16"
            for form in dict.fromkeys([statement.form or own, own, *_USUAL_KV]):
                more = (
                    "" if context is None else f", {'at' if name == 'kv_per_token' else 'tokens'}={context}"
                )
                yield f"stored in {form}", f'{name}("{model.id}", "{form}"{more})'
        case "weights":
            released = model.weight_format
            for form in dict.fromkeys([statement.form or released, released, *_USUAL_WEIGHTS]):
                chosen = "" if form == released else f', "{form}"'
                yield f"stored in {form}", f'weights("{model.id}"{chosen})'
        case "state":
            yield "the shapes of its states", f'state("{model.id}")'
        case "parameters" | "active_parameters" | "context_limit" as name:
            yield "its record", f'{name}("{model.id}")'
        case "requests" | "pool_tokens" as name:
            word = "runs" if name == "requests" else name
            for stored in (None, "fp8") if statement.form is None else (statement.form,):
                kv = "" if stored is None else f', kv="{stored}"'
                label = "with the cache as served" if stored is None else f"with its cache in {stored}"
                yield label, f'{word}("{model.id}", "{statement.gpu}", tokens={context}{kv})'


def _format(statement: Statement, catalog: Catalog) -> str | None:
    """The catalog's name of the format that is said."""
    if statement.form is None:
        return None
    if statement.form in ("bf16", "fp16"):
        return "bf16"
    if statement.quantity == "weights":
        return catalog.weight_format(statement.form).name
    return catalog.kv_format(statement.form).name


def _mistaken(statement: Statement, model: Model) -> Iterator[ClaimReading]:
    """What known mistakes give, alone and then with a format that is not the one said."""
    name, context = statement.quantity, statement.context
    more = "" if context is None else f", {'at' if name == 'kv_per_token' else 'tokens'}={context}"
    own = statement.form or model.kv_format or "bf16"
    for form in dict.fromkeys((own, "bf16", "fp8")):
        for mistake, (words, _) in MISTAKES.items():
            if mistaken(model, mistake) is not model:
                counted = "" if form == own else f", in {form}"
                yield ClaimReading(
                    role="cause",
                    name=f"{words}{counted}",
                    compute=f'{name}("{model.id}", "{form}"{more}, mistake="{mistake}")',
                )
        for factor, words in ((0.5, "only keys or only values were counted"), (2, "it was counted twice")):
            if form == own:
                yield ClaimReading(
                    role="cause", name=words, compute=f'{factor} * {name}("{model.id}", "{form}"{more})'
                )


# A sentence ----------------------------------------------------------------------------------------
