"""The start command of a local engine as people paste it, in the arguments of this program.

``llama-server -hf REPOSITORY:MIX …``, ``llama-cli -m FILE …``, ``docker run … ghcr.io/ggml-org/llama.cpp:server …`` and
``ollama run NAME`` with Ollama's variables are read, as words or as one quoted text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kvreport.accounting.text_drafts import LOCAL_TEXT_DRAFTS
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
_DRAFTS: Final = {
    "--draft": ("-md", "--model-draft", "--spec-draft-model", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"),
    "--num-speculative-tokens": (
        "--draft", "--draft-n", "--draft-max", "--spec-draft-n-max", *(flag for _, flag in LOCAL_TEXT_DRAFTS.values() if flag),
    ),
}  # fmt: skip
"""This program's flags of speculative decoding, and llama.cpp's of the same meaning (``common/arg.cpp``)."""
_SWITCHES: Final = {"1": "on", "true": "on", "0": "off", "false": "off"}

WITHOUT_MEMORY: Final[dict[str, int]] = {
    flag: values
    for values, flags in {
        0: (
            "--jinja --no-jinja --mlock --no-mmap --mmap --no-warmup --warmup --cont-batching -cb --no-cont-batching -nocb "
            "--metrics --slots --no-slots --props --no-webui --webui --log-timestamps --log-prefix --log-colors "
            "--verbose -v --log-verbose --log-disable --offline --context-shift --no-context-shift --perf --no-perf "
            "--numa-distribute -cnv -no-cnv --conversation --interactive"
        ),
        1: (
            "--host --port --threads -t --threads-batch -tb --temp --temperature --top-k --top-p --min-p --repeat-penalty "
            "--presence-penalty --frequency-penalty --seed -s --alias -a --api-key --api-key-file --chat-template "
            "--chat-template-file --chat-template-kwargs --reasoning-format --reasoning-budget --reasoning --timeout -to "
            "--threads-http --path --log-file --log-verbosity -lv --numa --prio --prio-batch --cpu-mask --poll "
            "--hf-token -hft --predict -n --n-predict --keep --prompt -p --file -f --system-prompt -sys --samplers "
            "--cache-reuse --slot-save-path --slot-prompt-similarity -sps --rope-scaling --rope-scale --rope-freq-base "
            "--yarn-orig-ctx --ssl-key-file --ssl-cert-file --sleep-idle-seconds "
            "--draft-min --draft-n-min --draft-p-min --draft-p-split --spec-draft-n-min --spec-draft-p-min --spec-draft-p-split "
            "--spec-ngram-mod-n-match --spec-ngram-mod-n-min --spec-ngram-simple-size-n --spec-ngram-simple-min-hits "
            "--spec-ngram-map-k-size-n --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n "
            "--spec-ngram-map-k4v-min-hits --lookup-cache-static -lcs --lookup-cache-dynamic -lcd"
        ),
    }.items()
    for flag in flags.split()
}
"""Flags of llama-server and llama-cli that change no memory of a device, with how many words follow each.

They are of the API, of logs, of threads, of sampling, of positions and of prompts (``common/arg.cpp``).
"""


def local_arguments(words: Sequence[str]) -> list[str] | None:
    """Replace a pasted command of llama.cpp or Ollama by this program's arguments; None where there is none.

    Args:
        words: The words of the command line, a quoted command taken apart.

    Raises:
        InputError: If the command names no model.

    Examples:
        >>> local_arguments("--gpu l4 llama-server -hf org/M-GGUF:Q4_K_M -c 8192 -np 2".split())
        ['--gpu', 'l4', 'org/M-GGUF:Q4_K_M', '--engine', 'llama-cpp', '-c', '8192', '-np', '2']
        >>> local_arguments("OLLAMA_CONTEXT_LENGTH=8192 ollama run llama3.1:8b --gpu l4".split())
        ['llama3.1:8b', '--engine', 'ollama', '--context', '8192', '--gpu', 'l4']
    """
    for start, word in enumerate(words):
        following = words[start + 1] if start + 1 < len(words) else ""
        if word in {"docker", "podman"} and following == "run":
            image = next((at for at in range(start, len(words)) if _IMAGE.fullmatch(words[at])), None)
            return None if image is None else _llama(words[:start], words[image + 1 :])
        if _PROGRAM.fullmatch(word):
            return _llama(words[:start], words[start + 1 :])
        if word.rpartition("/")[2] == "ollama" and following in {"run", "serve"}:
            return _ollama(words)
    return None


def _llama(before: Sequence[str], words: Sequence[str]) -> list[str]:
    kept = [word for word in before if not re.fullmatch(r"[A-Za-z_]\w*=.*", word)]
    found: dict[str, str] = {}
    rest: list[str] = []
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
        elif word in {"-fa", "--flash-attn"} and (not waiting or waiting[0] not in {"on", "off", "auto"}):
            rest += [word, "on"]  # before b6332 the flag took no word
        else:
            rest.append(word)
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
    return [*kept, model, "--engine", "llama-cpp", *rest]


def _drafting(flag: str, value: str) -> str | None:
    """This program's flag for llama.cpp's of a draft; None for another, or where no value follows."""
    if flag == "--draft" and not value.isdecimal():
        return None  # this program's own, after the command
    return next((ours for ours, theirs in _DRAFTS.items() if flag in theirs), None) if value else None


def _ollama(words: Sequence[str]) -> list[str]:
    """``ollama run NAME``, also after ``ollama serve &`` with variables."""
    made: list[str] = []
    kept: list[str] = []
    model = ""
    waiting = list(words)
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
        elif word != "&" and not re.fullmatch(r"OLLAMA_\w+=.*", word) and word not in {"sudo", "--verbose"}:
            kept.append(word)
    if not model:
        raise InputError(
            f"server command: found no model in {shorten(' '.join(words))}; allowed: ollama run NAME, with variables"
        )
    return [model, "--engine", "ollama", *made, *kept]
