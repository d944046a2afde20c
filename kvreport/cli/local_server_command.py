"""The start command of a local engine as people paste it, in the arguments of this program.

``llama-server -hf REPOSITORY:MIX …``, ``llama-cli -m FILE …``, ``docker run … ghcr.io/ggml-org/llama.cpp:server …`` and
``ollama run NAME`` with Ollama's variables are read, as words or as one quoted text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from kvreport.accounting.text_drafts import LOCAL_TEXT_DRAFTS
from kvreport.cli.flag_effects import not_followed_word
from kvreport.deployments.shell import CONTAINERS
from kvreport.errors import InputError, shorten

_PROGRAM: Final = re.compile(r"(?:\S*[/\\])?llama-(?:server|cli)(?:\.exe)?", re.IGNORECASE)
_IMAGE: Final = re.compile(r"(?:\S*/)?llama\.cpp:(?:server|light|full)\S*")
_MODEL: Final = ("-hf", "-hfr", "--hf-repo", "-m", "--model")
"""Flags that name the model; a repository comes before a file, as in llama.cpp's ``common/arg.cpp``."""
_FILE_OF_REPOSITORY: Final = ("-hff", "--hf-file")
_OF_OLLAMA: Final = {
    "OLLAMA_CONTEXT_LENGTH": "--context",
    "OLLAMA_NUM_PARALLEL": "--parallel",
    "OLLAMA_KV_CACHE_TYPE": "--kv",
}
"""Variables of ``ollama serve`` (``envconfig/config.go``), and this program's flag of the same meaning."""
_TOKENS: Final = "--num-speculative-tokens"
_DRAFTS: Final = {
    "--draft": ("-md", "--model-draft", "--spec-draft-model", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"),
    _TOKENS: (
        "--draft", "--draft-n", "--draft-max", "--spec-draft-n-max", *(flag for _, flag in LOCAL_TEXT_DRAFTS.values() if flag),
    ),
}  # fmt: skip
"""This program's flags of speculative decoding, and llama.cpp's of the same meaning (``common/arg.cpp``)."""
FIT: Final = ("--fit", "-fit")
"""Whether what was not stated is changed until it fits: on by default (``common/common.h``, ``fit_params``)."""
_OF_LM_STUDIO: Final = {"--context-length": "--context"}
_LM_STUDIO_ASKS: Final = ("-y", "--yes", "--exact")
"""Flags of ``lms load``: one of another name here, and those that answer its questions."""
_SWITCHES: Final = {"1": "on", "true": "on", "0": "off", "false": "off"}

STARTERS: Final = re.compile(
    r"(?:\S*/)?(?:apptainer|bash|cmd(?:\.exe)?|conda|docker|env|exec|export|kubectl|micromamba|mpirun|nerdctl|nice|nohup|nsys|numactl|oc"
    r"|pixi|podman|poetry|powershell(?:\.exe)?|pwsh|python[\d.]*(?:\.exe)?|run|set|setsid|sh|singularity|srun|stdbuf|sudo|systemd-run|taskset"
    r"|time|timeout|torchrun|uv|uvx|zsh|&)"
)
"""Programs and shells' words that start a server; what stands between them and the server is theirs."""
_FLASH: Final = re.compile(r"on|off|auto|-1|[01]|true|false|enabled|disabled")
"""Values of ``--flash-attn`` (``common/arg.cpp``); older releases take none."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
Parted = tuple[list[str], list[str]]
"""This program's own arguments, and what follows the name of a server."""


def started_by(words: Sequence[str]) -> Parted:
    """What stands before a server's program: this program's own arguments, and how the server is started.

    Examples:
        >>> started_by("--gpu h100 HF_HOME=/x numactl --cpunodebind=0".split())
        (['--gpu', 'h100'], ['HF_HOME=/x', 'numactl', '--cpunodebind=0'])
    """
    for place, word in enumerate(words):
        is_value = place > 0 and words[place - 1].startswith("-") and "=" not in words[place - 1]
        if not is_value and (STARTERS.fullmatch(word) or _ASSIGNMENT.fullmatch(word)):
            return list(words[:place]), list(words[place:])
    return list(words), []


def local_arguments(words: Sequence[str]) -> Parted | None:
    """Replace a pasted command of llama.cpp or Ollama by this program's arguments; None where there is none.

    Raises:
        InputError: If the command names no model.

    Examples:
        >>> local_arguments("--gpu l4 llama-server -hf org/M-GGUF:Q4_K_M -c 8192 -np 2".split())
        (['--gpu', 'l4', 'org/M-GGUF:Q4_K_M', '--engine', 'llama-cpp'], ['-c', '8192', '-np', '2', '--fit'])
        >>> local_arguments("OLLAMA_CONTEXT_LENGTH=8192 ollama run llama3.1:8b --gpu l4".split())
        (['llama3.1:8b', '--engine', 'ollama', '--context', '8192', '--gpu', 'l4'], [])
    """
    start = local_start(words)
    if start is None:
        return None
    word, before, after = words[start], words[:start], words[start + 1 :]
    if word in CONTAINERS:
        image = next(at for at in range(start, len(words)) if _IMAGE.fullmatch(words[at]))
        return _llama(before, words[image + 1 :])
    if _PROGRAM.fullmatch(word):
        return _llama(before, after)
    if word == "llama":
        return _llama(before, after[1:])
    return _lms(before, after[1:]) if word == "lms" else _ollama(words)


def local_start(words: Sequence[str]) -> int | None:
    """Where the command of a local engine starts in some words; None where there is none."""
    image = next((at for at in reversed(range(len(words))) if _IMAGE.fullmatch(words[at])), -1)
    for start, (word, following) in enumerate(pairwise([*words, ""])):
        if (
            _PROGRAM.fullmatch(word)
            or (word in CONTAINERS and following == "run" and start < image)
            or (word == "llama" and following in {"serve", "cli"})
            or (word == "lms" and following == "load")
            or (word.rpartition("/")[2] == "ollama" and following in {"run", "serve"})
        ):
            return start
    return None


def _lms(before: Sequence[str], words: Sequence[str]) -> Parted:
    """``lms load NAME``: LM Studio, which runs llama.cpp."""
    model = next((word for word in words if not word.startswith("-")), "")
    if not model:
        raise InputError("server command: found no model; allowed: lms load NAME")
    rest = [_OF_LM_STUDIO.get(word, word) for word in words if word != model and word not in _LM_STUDIO_ASKS]
    return [*started_by(before)[0], model, "--engine", "llama-cpp", *rest], []


def _llama(before: Sequence[str], words: Sequence[str]) -> Parted:
    kept, _ = started_by(before)
    found: dict[str, str] = {}
    rest: list[str] = []
    fits = True  # the server's default: what was not stated is changed until it fits
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, sign, value = word.partition("=")
        if name in _MODEL or name in _FILE_OF_REPOSITORY:
            found[name] = value if sign else waiting.pop(0) if waiting else ""
        elif name in {"-c", "--ctx-size"} and (value if sign else next(iter(waiting), "")) == "0":
            waiting = waiting if sign else waiting[1:]  # the model's own context, which is not stated here
        elif (ours := _drafting(name, value if sign else next(iter(waiting), ""))) is not None:
            rest += [ours, value if sign else waiting.pop(0)]
        elif name in FIT and (switch := value if sign else next(iter(waiting), "")) in {
            *_SWITCHES,
            "on",
            "off",
        }:
            waiting = waiting if sign else waiting[1:]
            fits = _SWITCHES.get(switch, switch) == "on"
        elif word in {"-fa", "--flash-attn"} and (not waiting or not _FLASH.fullmatch(waiting[0])):
            rest += [word, "on"]  # before b6332 the flag took no word
        else:
            rest.append(word)
    said = {word.partition("=")[0] for word in rest}
    if not said & {"--draft", "--spec-type"}:
        rest = _without_draft(rest)
    if fits and FIT[0] not in said:
        rest.append(FIT[0])
    model = next((found[flag] for flag in _MODEL if found.get(flag)), "")
    file = next((found[flag] for flag in _FILE_OF_REPOSITORY if found.get(flag)), "")
    if not model:
        raise InputError(
            "server command: found no model; allowed: llama-server -hf REPOSITORY:MIX, or -m FILE"
        )
    if file and ":" not in model:
        from kvreport.architectures.gguf_names import mix_of, stem_of

        mix = mix_of(stem_of(file) or "")
        model = f"{model}:{mix}" if mix else model
    return [*kept, model, "--engine", "llama-cpp"], rest


def _without_draft(words: Sequence[str]) -> list[str]:
    """Name the numbers of drafted tokens that nothing drafts, as llama.cpp passes over them."""
    made: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == _TOKENS:
            made.append(
                not_followed_word("--spec-draft-n-max", next(rest, ""), None, "no effect without a draft")
            )
        else:
            made.append(word)
    return made


def _drafting(flag: str, value: str) -> str | None:
    """This program's flag for llama.cpp's of a draft; None for another, or where no value follows."""
    if flag == "--draft" and not value.isdecimal():
        return None  # this program's own, after the command
    return next((ours for ours, theirs in _DRAFTS.items() if flag in theirs), None) if value else None


def _ollama(words: Sequence[str]) -> Parted:
    """``ollama run NAME``, also after ``ollama serve &`` with variables."""
    made: list[str] = []
    start = next(place for place, word in enumerate(words) if word.rpartition("/")[2] == "ollama")
    kept, started = started_by(words[:start])
    model = ""
    waiting = [*(word for word in started if _ASSIGNMENT.fullmatch(word)), *words[start:]]
    while waiting:
        word = waiting.pop(0)
        name, sign, value = word.partition("=")
        if sign and name in _OF_OLLAMA:
            made += [_OF_OLLAMA[name], value]
        elif sign and name == "OLLAMA_FLASH_ATTENTION":
            made += ["--flash-attn", _SWITCHES.get(value.lower(), "auto")]
        elif word.rpartition("/")[2] == "ollama" and waiting and waiting[0] in {"run", "serve"}:
            if waiting.pop(0) == "run":
                model = waiting.pop(0) if waiting else ""
        elif word not in {"&", "sudo", "--verbose"} and not _ASSIGNMENT.fullmatch(word):
            kept.append(word)
    if not model:
        raise InputError(
            f"server command: found no model in {shorten(' '.join(words))}; allowed: ollama run NAME, with variables"
        )
    return [model, "--engine", "ollama", *made, *kept], []
