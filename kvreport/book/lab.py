"""What a reader does in a chapter: predict and reveal, check an exercise, take a quiz.

Every piece is complete as HTML: the question, and the answer folded under it. The site's script
``kv-book.js`` turns it into a form that locks the answer until the reader has committed to one. What
a reader enters stays in that browser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kvreport.book.html import Html, identity, inline, plain


@dataclass(frozen=True, slots=True)
class AnswerOption:
    """One of several answers."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a quiz."""

    ask: str  # The question.
    options: tuple[AnswerOption, ...]  # Two to five answers, exactly one of them right.


def right(text: str, why: str) -> AnswerOption:
    """Return the right answer of a choice."""
    return AnswerOption(text, why, right=True)


def wrong(text: str, why: str) -> AnswerOption:
    """Return a wrong answer of a choice, with the mistake behind it."""
    return AnswerOption(text, why)


def _gap(unit: str) -> str:
    """Return what separates a number from its unit: nothing before a percent sign."""
    return "" if unit == "%" else " "


def _unit(unit: str, shown: str) -> str:
    """Return a unit as it stands after a number: ``1 request``, ``2 requests``."""
    return unit.removesuffix("s") if shown == "1" else unit


def guess(
    ask: str, answer: float, *, unit: str, low: float, high: float, why: str, digits: int = 0, step: str = "1"
) -> Html:
    """Ask for a number, and compare it with the computed one.

    ``low`` and ``high`` are what can be entered, in the ``step`` of the field (``any`` for fractions); ``digits`` are the decimals
    of the answer as shown.

    Raises:
        ValueError: If the answer is outside of what can be entered.
    """
    _within(answer, low, high)
    shown = f"{answer:,.{digits}f}"
    name = identity("guess", ask)
    return Html(
        f'<section class="kv-guess" data-kv-guess="{name}" data-answer="{answer:.10g}" data-shown="{shown}"'
        f' data-low="{low:.10g}" data-high="{high:.10g}" data-step="{step}" data-unit="{escape(unit, quote=True)}"'
        f' aria-labelledby="kv-ask-{name}">'
        f'<p class="kv-ask" id="kv-ask-{name}"><strong>Predict.</strong> {inline(ask)}</p>'
        f'<details class="kv-predict"><summary>Show the answer</summary>'
        f"<p><strong>{shown}{_gap(unit)}{escape(_unit(unit, shown))}.</strong> {inline(why)}</p></details></section>"
    )


def choose(ask: str, *options: AnswerOption) -> Html:
    """Ask for one of several answers before the text gives it.

    Raises:
        ValueError: If not exactly one is right.
    """
    return Html(_choice("guess", "<strong>Predict.</strong> ", Item(ask, options)))


def item(ask: str, *options: AnswerOption) -> Item:
    """Return one question of a quiz."""
    return Item(ask, options)


def quiz(*items: Item) -> Html:
    """Ask a chapter's final questions; wrong answers are explained.

    Raises:
        ValueError: If a question has not exactly one right answer.
    """
    asked = "".join(f"<li>{_choice('quiz', '', one)}</li>" for one in items)
    return Html(f'<ol class="kv-quiz" data-kv-quiz="{len(items)}">{asked}</ol>')


def exercise(
    ask: str,
    answer: float,
    *,
    unit: str,
    solution: str,
    within: float = 0.02,
    traps: Mapping[float, str] | None = None,
    more: Sequence[Html] = (),
    digits: int = 0,
) -> Html:
    """Set an exercise whose answer is a number that the page checks.

    The largest difference that still counts as right is ``within``, a share of the answer. ``traps`` are common wrong answers with
    the mistake that leads to each, and ``more`` are further pieces of the solution. A mistake that leads to a right answer, as it
    can for another model, is not listed.
    """
    name = identity("exercise", ask)
    others = {
        value: text for value, text in (traps or {}).items() if abs(value - answer) > within * abs(answer)
    }
    caught = json.dumps([[value, plain(text)] for value, text in others.items()], ensure_ascii=False)
    mistakes = "".join(
        f"<li>{value:,.{digits}f}{_gap(unit)}{escape(unit)}: {inline(text)}</li>"
        for value, text in others.items()
    )
    listed = f"<p>Common wrong answers:</p><ul>{mistakes}</ul>" if mistakes else ""
    return Html(
        f'<section class="kv-exercise" data-kv-exercise="{name}" data-answer="{answer:.10g}"'
        f' data-within="{within:g}" data-unit="{escape(unit, quote=True)}" data-traps="{escape(caught, quote=True)}"'
        f' aria-labelledby="kv-ask-{name}">'
        f'<p class="kv-ask" id="kv-ask-{name}">{inline(ask)}</p>'
        f'<details class="kv-fold"><summary>Solution</summary>'
        f"<p><strong>{answer:,.{digits}f}{_gap(unit)}{escape(unit)}.</strong> {inline(solution)}</p>"
        f"{''.join(one.html for one in more)}{listed}</details></section>"
    )


def takeaway(*lines: str) -> Html:
    """State in a box what a section amounts to."""
    text = "".join(f"<p>{inline(line)}</p>" for line in lines)
    return Html(f'<div class="kv-take"><p class="kv-take__head">Takeaway</p>{text}</div>')


def _choice(kind: str, lead: str, one: Item) -> str:
    if sum(option.right for option in one.options) != 1 or not 2 <= len(one.options) <= 5:
        raise ValueError(f"{one.ask!r}: two to five answers, one of them right")
    name = identity(kind, one.ask)
    options = "".join(
        f'<li{" data-right" if option.right else ""} data-why="{escape(plain(option.why), quote=True)}">'
        f"{inline(option.text)}</li>"
        for option in one.options
    )
    letter = next("ABCDE"[n] for n, option in enumerate(one.options) if option.right)
    good = next(option for option in one.options if option.right)
    others = "".join(
        f"<li>{'ABCDE'[n]}: {inline(option.why)}</li>"
        for n, option in enumerate(one.options)
        if not option.right
    )
    return (
        f'<section class="kv-{"item" if kind == "quiz" else kind} kv-choice" data-kv-choice="{name}" aria-labelledby="kv-ask-{name}">'
        f'<p class="kv-ask" id="kv-ask-{name}">{lead}{inline(one.ask)}</p>'
        f'<ol class="kv-options" type="A">{options}</ol>'
        f'<details class="kv-predict"><summary>Show the answer</summary>'
        f"<p><strong>{letter}.</strong> {inline(good.why)}</p><p>The other answers:</p><ul>{others}</ul></details></section>"
    )


def _within(answer: float, low: float, high: float) -> None:
    if not low <= answer <= high:
        raise ValueError(f"the answer {answer:g} is outside of {low:g} to {high:g}")
