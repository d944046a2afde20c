"""Speculative decoding as servers spell it: vLLM's JSON and its dotted keys, SGLang's several flags, as the flags of this program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvreport.accounting.text_drafts import TEXT_DRAFTS
from kvreport.cli.flag_effects import not_followed_word
from kvreport.errors import InputError, ServerRefusalError, shorten
from kvreport.resources import read_table

_OWN: Final = "mtp"
_VLLM: Final = ("--speculative-config", "-sc")
_KEYS: Final = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
"""Flags of single keys of vLLM's JSON (``engine/arg_utils.py``, 0.33); ``--speculative-config.KEY`` is any of them."""
_METHOD, _DRAFT, _COUNT = _KEYS.values()
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
_NGRAM_TOKENS: Final = "12"
"""``speculative_num_draft_tokens`` of SGLang's NGRAM where none are given (``speculative_hook.py::_handle_ngram``, 0.5.23)."""
_SUFFIX_TOKENS: Final = 24
"""vLLM's ``suffix_decoding_max_tree_depth``, and its tokens where none are given (``config/speculative.py``, 0.33)."""
_SGLANG: Final = (*_MODEL, _STEPS, _TOKENS, _BRANCHES, _ALGORITHM, *_BLOCKS)
_OF_TEXT: Final = {name: name for name in TEXT_DRAFTS} | {"[ngram]": "ngram"}
"""Names of methods that draft from text, as values of ``method`` and of ``model`` (``config/speculative.py``, vLLM 0.33)."""
_WITH_OWN_LAYERS: Final = ("mtp", "dspark", "nextn", "eagle")
"""Methods that take a checkpoint's own prediction layers where no model is named (the same; SGLang's NEXTN, EAGLE)."""
_WITHOUT_A_MODEL: Final = (*_OF_TEXT, "dspark", "extract_hidden_states", "ngram_gpu")
"""Methods of vLLM that name no model, beside those of prediction layers (``config/speculative.py``, 0.33)."""
_WITH_A_MODEL: Final[tuple[str, ...]] = tuple(read_table("drafting methods"))
"""Methods whose draft model is counted: a language model, or a head with layers of attention."""
_DIGITS: Final = 10
"""A number of tokens has fewer digits."""
_WITHOUT_MEMORY: Final = (
    "attention_backend", "code_revision", "draft_load_config", "fly_", "num_speculative_tokens_per_batch_size",
    "prompt_lookup_", "rejection_sample_method", "revision", "suffix_decoding_", "synthetic_acceptance_",
)  # fmt: skip
"""Keys of vLLM's JSON, or how they begin, that change no memory of a device (``config/speculative.py``, 0.33)."""


def speculation_in_our_spelling(words: Sequence[str], server: str) -> list[str]:
    """Replace a server's flags of speculative decoding by ``--draft`` and ``--num-speculative-tokens``.

    A key of vLLM's JSON that changes memory and is not followed is passed on in :data:`kvreport.cli.flag_effects.NOT_FOLLOWED`, for the answer to name.

    Raises:
        InputError: If vLLM's JSON is none, SGLang drafts a tree, whose tokens are not counted here, a method is not
            counted here, or nothing says what drafts.

    Source: ``vllm/config/speculative.py`` of vLLM 0.33, ``sglang/srt/server_args.py`` of SGLang 0.5.23.

    Examples:
        >>> speculation_in_our_spelling(
        ...     ["--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'], "vllm"
        ... )
        ['--draft', 'mtp', '--num-speculative-tokens', '2']
        >>> speculation_in_our_spelling(["--spec-method", "ngram", "--spec-tokens", "5"], "vllm")
        ['--draft', 'ngram', '--num-speculative-tokens', '5']
    """
    kept, given = _apart(words, (*_VLLM, *_KEYS) if server == "vllm" else _SGLANG)
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
        dotted = "." in spelled and spelled.partition(".")[0] in flags
        if spelled not in flags and not dotted:
            kept.append(word)
            continue
        shown = shorten(spelled) if dotted else spelled
        found = value if sign else next(rest, None)
        if found is None:
            raise InputError(f"{shown}: found nothing after it; allowed: a value")
        if spelled in given:
            raise InputError(f"{shown}: found 2 times; allowed: once")
        given[spelled] = found
    return kept, given


def _of_vllm(given: Mapping[str, str]) -> Iterator[str]:
    flag = next(iter(given)).partition(".")[0]
    asked = _keys_of(given)
    model, method, tokens = asked.get(_DRAFT), asked.get(_METHOD, ""), asked.get(_COUNT)
    # A list, a number or a switch where a name or a number belongs.
    if (
        not isinstance(model, str | None)
        or not isinstance(method, str)
        or not isinstance(tokens, int | None)
        or isinstance(tokens, bool)
    ):
        raise InputError(
            f"{flag}: found {shorten(next(iter(given.values())))}; allowed: a name and a whole number, as in {_EXAMPLE}"
        )
    method = method.lower()
    unread = sorted(
        key for key in asked if key not in _KEYS.values() and not str(key).startswith(_WITHOUT_MEMORY)
    )
    if unread and (model or method) not in _OF_TEXT:
        named = ", ".join(shorten(key) for key in unread[:5]) + ("" if len(unread) <= 5 else ", …")
        yield not_followed_word(flag, named, "a draft model", "not followed; the draft's memory may differ")
    if tokens is None and "suffix" in (model, method):
        depth = asked.get("suffix_decoding_max_tree_depth", _SUFFIX_TOKENS)
        tokens = depth if isinstance(depth, int) else _SUFFIX_TOKENS
    of_text = "ngram" in (_OF_TEXT.get(method), _OF_TEXT.get(model or ""))
    if model is None and not method:
        lacking = "no method and no draft model"
    elif model is None and not (method in _WITHOUT_A_MODEL or method.endswith(_OWN)):
        lacking = f"{shorten(method)} without a draft model"
    elif tokens is None and (model is None or of_text):
        lacking = "no number of tokens"
    else:
        lacking = ""
    if lacking:
        raise ServerRefusalError(
            f"{flag}: found {lacking}, and vLLM does not start so; allowed: as in {_EXAMPLE}"
        )
    yield from _ours(flag, model, method, None if tokens is None else str(tokens))


_EXAMPLE: Final = '\'{"method": "eagle3", "model": "ORG/NAME", "num_speculative_tokens": 3}\''


def _keys_of(given: Mapping[str, str]) -> dict[str, Any]:
    """The keys of vLLM's configuration, from its JSON and from flags of single keys.

    Raises:
        InputError: If the JSON is none, or a key is given twice.
    """
    asked: dict[str, Any] = {}
    for flag, text in given.items():
        if flag in _VLLM:
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            if not isinstance(found, dict):
                raise InputError(f"{flag}: found {shorten(text)}; allowed: JSON, such as {_EXAMPLE}")
        else:
            key = _KEYS.get(flag, flag.partition(".")[2].replace("-", "_"))
            found = {key: int(text) if key == _COUNT and text.isdecimal() and len(text) < _DIGITS else text}
        twice = next((key for key in found if key in asked), None)
        if twice is not None:
            raise InputError(f"{flag.partition('.')[0]}: found {shorten(twice)} 2 times; allowed: once")
        asked |= found
    return asked


def _of_sglang(given: Mapping[str, str]) -> Iterator[str]:
    if not given.keys() & {
        _ALGORITHM,
        *_MODEL,
    }:  # nothing drafts (``speculative_hook.py::handle_speculative_decoding``)
        for flag, value in given.items():
            yield not_followed_word(flag, shorten(value).strip("'"), None, f"no effect without {_ALGORITHM}")
        return
    method = given.get(_ALGORITHM, "").lower()
    if method in _OF_TEXT:  # its tree has a width of its own, and its tokens are those that are verified
        yield from _ours(_ALGORITHM, None, method, _fewer(given.get(_TOKENS, _NGRAM_TOKENS), 1))
        return
    steps, verified = given.get(_STEPS), given.get(_TOKENS)
    if (branches := given.get(_BRANCHES, "1")) != "1":
        said = "not followed; counted as a chain of as many tokens as are verified"
        yield not_followed_word(_BRANCHES, shorten(branches).strip("'"), "slots of drafted tokens", said)
        steps = steps if verified is None else None
    block = next((name for name in _BLOCKS if name in given), None)
    if block is not None and given[block].isdecimal():
        steps = _fewer(given[block], _BLOCKS[block])
    elif method in ("dflash", "dspark"):
        steps = None  # one step drafts the whole block
    if steps is None and verified is not None and verified.isdecimal():
        steps = _fewer(verified, 1)  # a chain's first token is the target's own
    model = next((given[flag] for flag in _MODEL if flag in given), None)
    if model is None and method == "dflash":
        raise ServerRefusalError(
            f"{_ALGORITHM}: found DFLASH without {_MODEL[0]}, and SGLang does not start so; allowed: with a model"
        )
    if steps is None and method.startswith(_WITH_OWN_LAYERS):
        steps = _STEPS_CHOSEN
    yield from _ours(_ALGORITHM, model, method, steps)


def _fewer(tokens: str, own: int) -> str:
    """A number of tokens without the target's own; what is no number of a usual length stays, and is refused later."""
    return str(max(int(tokens) - own, 1)) if tokens.isdecimal() and len(tokens) < _DIGITS else tokens


def _ours(flag: str, model: str | None, method: str, tokens: str | None) -> Iterator[str]:
    """Say a draft in this program's flags: a model, prediction layers of the checkpoint, or a method that reads text."""
    of_text = _OF_TEXT.get(method) or _OF_TEXT.get("" if model is None or method else model.lower())
    if of_text is not None:
        yield from ("--draft", of_text)
    elif model is not None and (method in _WITH_A_MODEL or method.endswith("_mtp")):
        yield from ("--draft", model)
    elif model is None and method.endswith(
        _WITH_OWN_LAYERS
    ):  # "deepseek_mtp" and others are older names of "mtp"
        yield from ("--draft", _OWN)
    else:
        named = f"{shorten(method)}{'' if model else ' without a draft model'}"
        yield not_followed_word(flag, named, "a draft model", "not followed; the draft's memory may differ")
        return
    if tokens is not None:
        yield from ("--num-speculative-tokens", tokens)
