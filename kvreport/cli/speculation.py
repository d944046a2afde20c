"""Speculative decoding as servers spell it: vLLM's one JSON flag, SGLang's several, as the flags of this program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvreport.errors import InputError, shorten

_OWN: Final = "mtp"
_VLLM: Final = ("--speculative-config", "-sc")
_MODEL: Final = ("--speculative-draft-model-path", "--speculative-draft-model")
_STEPS: Final = "--speculative-num-steps"
_TOKENS: Final = "--speculative-num-draft-tokens"
_BRANCHES: Final = "--speculative-eagle-topk"
_BLOCKS: Final = {"--speculative-dflash-block-size": 1, "--speculative-dspark-block-size": 0}
"""Tokens of a drafted block, and how many of them are the target's own (``speculative_hook.py``, SGLang 0.5.23)."""
_ALGORITHM: Final = "--speculative-algorithm"
_SHORT: Final = {"--speculative-algo": _ALGORITHM}
"""How SGLang's documentation abbreviates it, which its parser takes."""
_STEPS_CHOSEN: Final = "3"
"""Steps that SGLang chooses where none are given (``speculative_hook.py::_auto_choose_speculative_params``)."""
_SGLANG: Final = (*_MODEL, _STEPS, _TOKENS, _BRANCHES, _ALGORITHM, *_BLOCKS)
_WITHOUT_A_MODEL: Final = ("ngram", "[ngram]", "ngram_gpu", "suffix")
"""Methods that draft from the text itself (``vllm/config/speculative.py`` of vLLM 0.33; SGLang's NGRAM)."""
_WITH_OWN_LAYERS: Final = ("mtp", "dspark", "nextn", "eagle")
"""Methods that take a checkpoint's own prediction layers where no model is named (the same; SGLang's NEXTN, EAGLE)."""


def speculation_in_our_spelling(words: Sequence[str], server: str) -> list[str]:
    """Replace a server's flags of speculative decoding by ``--draft`` and ``--num-speculative-tokens``.

    Args:
        words: A command's arguments.
        server: ``vllm`` or ``sglang``, whose flags they may be.

    Raises:
        InputError: If vLLM's JSON is none, SGLang drafts a tree, whose tokens are not counted here, or nothing says
            what drafts.

    Source: ``vllm/config/speculative.py`` of vLLM 0.33, ``sglang/srt/server_args.py`` of SGLang 0.5.23.

    Examples:
        >>> speculation_in_our_spelling(
        ...     ["--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'], "vllm"
        ... )
        ['--draft', 'mtp', '--num-speculative-tokens', '2']
    """
    kept, given = _apart(words, _VLLM if server == "vllm" else _SGLANG)
    if not given:
        return kept
    return [*kept, *(_of_vllm(given) if server == "vllm" else _of_sglang(given))]


def _apart(words: Sequence[str], flags: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take flags with their values out of the arguments."""
    kept: list[str] = []
    given: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        spelled = name.replace("_", "-") if name.startswith("--") else name
        spelled = _SHORT.get(spelled, spelled)
        if spelled not in flags:
            kept.append(word)
            continue
        found = value if sign else next(rest, None)
        if found is None:
            raise InputError(f"{spelled}: found nothing after it; allowed: a value")
        given[spelled] = found
    return kept, given


def _of_vllm(given: Mapping[str, str]) -> Iterator[str]:
    flag, text = next(iter(given.items()))
    example = '\'{"method": "eagle3", "model": "ORG/NAME", "num_speculative_tokens": 3}\''
    try:
        asked: Any = json.loads(text)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise InputError(f"{flag}: found {shorten(text)}; allowed: JSON, such as {example}")
    model, method = asked.get("model"), str(asked.get("method", "")).lower()
    tokens = asked.get("num_speculative_tokens")
    if not isinstance(model, str | None) or not isinstance(tokens, int | None) or isinstance(tokens, bool):
        raise InputError(
            f"{flag}: found {shorten(text)}; allowed: a name and a whole number, as in {example}"
        )
    yield from _ours(flag, model, method, None if tokens is None else str(tokens))


def _of_sglang(given: Mapping[str, str]) -> Iterator[str]:
    if given.get(_BRANCHES, "1") != "1":
        raise InputError(
            f"{_BRANCHES}: found {shorten(given[_BRANCHES])}; allowed: 1 (a chain): a tree of drafted tokens is not counted"
        )
    steps, tokens = given.get(_STEPS), given.get(_TOKENS)
    block = next((name for name in _BLOCKS if name in given), None)
    if block is not None and given[block].isdecimal():
        steps = str(max(int(given[block]) - _BLOCKS[block], 1))
    elif given.get(_ALGORITHM, "").upper() in ("DFLASH", "DSPARK"):
        steps = None  # one step drafts the whole block
    if steps is None and tokens is not None and tokens.isdecimal():
        steps = str(max(int(tokens) - 1, 1))  # a chain's first token is the target's own
    model = next((given[flag] for flag in _MODEL if flag in given), None)
    method = given.get(_ALGORITHM, "").lower()
    if steps is None and method.startswith(_WITH_OWN_LAYERS):
        steps = _STEPS_CHOSEN
    yield from _ours(_ALGORITHM, model, method, steps)


def _ours(flag: str, model: str | None, method: str, tokens: str | None) -> Iterator[str]:
    """Say a draft in this program's flags; a method that needs no model has no draft."""
    if model is None and method not in _WITHOUT_A_MODEL:
        if not method.endswith(_WITH_OWN_LAYERS):  # "deepseek_mtp" and others are older names of "mtp"
            raise InputError(
                f"{flag}: found {f'{shorten(method)} without a draft model' if method else 'no method and no draft model'}; "
                "allowed: a draft model, mtp for prediction layers of the checkpoint's own, or ngram"
            )
        model = _OWN
    if model is not None and model.lower() not in _WITHOUT_A_MODEL:
        yield from ("--draft", model)
    if tokens is not None:
        yield from ("--num-speculative-tokens", tokens)
