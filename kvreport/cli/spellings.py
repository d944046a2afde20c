"""Flags as servers spell them, and what to say of a flag that a command does not have.

A question is often copied from a server's command line: ``--max-model-len 8192 --tensor-parallel-size 2``. Every
spelling below means exactly what the flag next to it means; a server's flag of another meaning is not listed. Whole commands
are taken apart by :mod:`kvreport.cli.server_command`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Final

from kvreport.cli.local_server_command import WITHOUT_MEMORY as LOCAL_WITHOUT_MEMORY
from kvreport.cli.server_command import data_attention, without_server_command
from kvreport.cli.speculation import speculation_in_our_spelling
from kvreport.errors import InputError, shorten
from kvreport.words import ENGINES

SERVERS_FLAGS: Final[dict[str, dict[str, str]]] = {
    # `vllm/engine/arg_utils.py` of vLLM 0.33
    "vllm": {
        "--tensor-parallel-size": "--tensor-parallel",
        "-tp": "--tensor-parallel",
        "--pipeline-parallel-size": "--pipeline-parallel",
        "-pp": "--pipeline-parallel",
        "--data-parallel-size": "--data-parallel",
        "-dp": "--data-parallel",
        "--decode-context-parallel-size": "--decode-context-parallel",
        "-dcp": "--decode-context-parallel",
        "--enable-expert-parallel": "--expert-parallel",
        "-ep": "--expert-parallel",
        "--nnodes": "--nodes",
        "--max-model-len": "--context",
        "--gpu-memory-utilization": "--utilization",
        "--max-num-batched-tokens": "--max-batched-tokens",
        "--max-num-seqs": "--max-seqs",
        "--kv-cache-dtype": "--kv",
        "--kv-offloading-size": "--kv-offload",
        "--quantization": "--weights",
        "-q": "--weights",
        "--enforce-eager": "--eager",
        "--language-model-only": '--limit-mm-per-prompt={"image": 0, "video": 0}',
        "--enable-prefix-caching": "--prefix-caching",
        "--no-enable-prefix-caching": "--no-prefix-caching",
    },
    # `sglang/srt/server_args.py` of SGLang 0.5.23
    "sglang": {
        "--tp-size": "--tensor-parallel",
        "--tensor-parallel-size": "--tensor-parallel",
        "--pp-size": "--pipeline-parallel",
        "--nnodes": "--nodes",
        "--context-length": "--context",
        "--mem-fraction-static": "--utilization",
        "--max-running-requests": "--max-seqs",
        "--chunked-prefill-size": "--max-batched-tokens",
        "--kv-cache-dtype": "--kv",
        "--quantization": "--weights",
        "--page-size": "--block-size",
        "--dcp-size": "--decode-context-parallel",
        "--mamba-ssm-dtype": "--mamba-ssm-cache-dtype",
        "--disable-cuda-graph": "--eager",
        "--disable-radix-cache": "--no-prefix-caching",
    },
    # `common/arg.cpp` of llama.cpp b10488: cells of all slots, as --context is for it
    "llama_cpp": {"--ctx-size": "--context", "-c": "--context", "--gpu-layers": "--n-gpu-layers"},
}
"""A server's spelling of a flag, and this program's flag of the same meaning."""

_OURS: Final = frozenset(
    ours.partition("=")[0] for flags in SERVERS_FLAGS.values() for ours in flags.values()
)

WITHOUT_MEMORY: Final[dict[str, int]] = {
    flag: values
    for values, flags in {
        0: (
            "--allow-credentials --disable-fastapi-docs --disable-log-stats --enable-auto-tool-choice "
            "--enable-chunked-prefill --enable-force-include-usage --enable-log-requests --enable-metrics "
            "--enable-prompt-tokens-details --enable-server-load-tracking --enable-ssl-refresh "
            "--exclude-tools-when-tool-choice-none --headless --log-requests --return-tokens-as-token-ids "
            "--trust-remote-code"
        ),
        1: (
            "--allowed-headers --allowed-local-media-path --allowed-media-domains --allowed-methods --allowed-origins "
            "--api-key --chat-template --chat-template-content-format --code-revision --crash-dump-folder "
            "--data-parallel-address --data-parallel-rpc-port --data-parallel-size-local --data-parallel-start-rank "
            "--default-chat-template-kwargs --dist-init-addr --download-dir --generation-config --grammar-backend --hf-token "
            "--host --ignore-patterns --kv-offloading-backend --log-level --log-level-http --master-addr --master-port --max-log-len --middleware "
            "--node-rank --otlp-traces-endpoint --override-generation-config --port --random-seed --reasoning-parser "
            "--reasoning-parser-plugin --response-role --root-path --schedule-conservativeness --schedule-policy "
            "--scheduling-policy --seed --served-model-name --ssl-ca-certs --ssl-certfile --ssl-keyfile --stream-interval "
            "--structured-outputs-config --tokenizer --tokenizer-mode --tokenizer-path --tokenizer-revision --tool-call-parser "
            "--tool-parser-plugin --uds --uvicorn-log-level --watchdog-timeout"
        ),
    }.items()
    for flag in flags.split()
}
"""Flags of servers that change no memory of a device, with how many words follow each.

They are of the API, of logs, of tokenizers, of sampling, of names and addresses (vLLM 0.33, ``engine/arg_utils.py`` and
``entrypoints/common/cli_args.py``; SGLang 0.5.23, ``srt/server_args.py``). Chunked prefill is what vLLM does since its V1.
"""

_PROMPTS_DIVIDED: Final = (
    "--decode-context-parallel N, which divides the cache; dividing prompts over GPUs divides the working memory of a "
    "step, which is not counted"
)

_MEMORY_SHARED: Final = (
    "kvreport estimate MODEL --gpu GPU with it, whose command states the share that is left; with vLLM that share is "
    "kvreport size's --utilization"
)

_CELLS: Final = "--context TOKENS for each request; with --engine llama-cpp it is llama-server's own -c, for all slots together"

_ELSEWHERE: Final[dict[str, str]] = {
    "--gpus": "--tensor-parallel N for N GPUs, or --gpu for each of unequal ones",
    "--num-gpus": "--tensor-parallel N for N GPUs, or --gpu for each of unequal ones",
    "--gpu-count": "--tensor-parallel N for N GPUs, or --gpu for each of unequal ones",
    "--concurrent": "kvreport size MODEL --concurrent N --context TOKENS, or --require N here",
    "--concurrency": "kvreport size MODEL --concurrent N --context TOKENS, or --require N here",
    "--users": "kvreport size MODEL --users N --context TOKENS",
    "--batch": "kvreport size MODEL --concurrent N --context TOKENS, or --require N here",
    "--enable-dp-attention": "--data-parallel N --expert-parallel, without --tensor-parallel",
    "--dp-size": "--data-parallel N with --expert-parallel, and no --tensor-parallel",
    # SGLang's takes a number, vLLM's none: a spelling for both would read one of them wrong.
    "--ep": "--expert-parallel, without a number: routed experts are divided over all tensor x data ranks",
    "--ep-size": "--expert-parallel, without a number: routed experts are divided over all tensor x data ranks",
    "--count": "--gpu 4xNAME for four of them, or --tensor-parallel N",
    "--ctx-size": _CELLS,
    "-c": _CELLS,
    "--json": "--format json",
    "--output": "--format json, and > FILE to keep it",
    "-o": "--format json, and > FILE to keep it",
    "--vram": "--gpu NAME, whose memory is known, and --memory SIZE where it can be set",
    "--cards": "--gpu 2xNAME for two of them, or --tensor-parallel N",
    "--ctx": "--context TOKENS",
    "--ctx-len": "--context TOKENS",
    "--context-size": "--context TOKENS",
    "--mtp": "--draft mtp --num-speculative-tokens N",
    "--max-len": "--context TOKENS",
    "--max-length": "--context TOKENS",
    "--seq-len": "--context TOKENS",
    "--sequence-length": "--context TOKENS",
    "--quant": "--weights FORMAT; kvreport list formats prints them",
    "--precision": "--weights FORMAT and --kv FORMAT; kvreport list formats prints them",
    "--kv-dtype": "--kv FORMAT",
    "--kv-quant": "--kv FORMAT",
    "--cache-type": "--cache-type-k TYPE and --cache-type-v TYPE",
    "--model": "the model as the first argument, without a flag",
    "--prefill-context-parallel-size": _PROMPTS_DIVIDED,
    "--attn-cp-size": _PROMPTS_DIVIDED,
    "--context-parallel-size": _PROMPTS_DIVIDED,
    "--cp-size": _PROMPTS_DIVIDED,
    "--held-by-others": _MEMORY_SHARED,
    "--engines-per-gpu": _MEMORY_SHARED,
    "--helix": "--decode-context-parallel N, which divides a cache by tokens, as Helix does",
}
"""What people write where there is no such flag, and where to go instead."""


def in_our_spelling(words: Sequence[str], known: Iterable[str]) -> list[str]:
    """Replace a server's spellings of flags by this program's.

    Args:
        words: A command's arguments.
        known: The flags of that command; a spelling whose flag is not among them stays as it is.

    Returns:
        The arguments. vLLM reads ``32k`` after ``--max-model-len`` as 32,000 tokens, so the number is written out.

    Raises:
        InputError: If a flag is of another server than the one whose rules apply.

    Examples:
        >>> in_our_spelling(["m", "--max_model_len=8k", "-tp", "2"], ["--context", "--tensor-parallel"])
        ['m', '--context=8000', '--tensor-parallel', '2']
    """
    flags = frozenset(known)
    if flags.isdisjoint(_OURS):  # the parser of all commands: the command's own comes after it
        return list(words)
    if "--context" in flags:
        words = without_server_command(words)
    server = _server(words)
    words = _without_idle_flags(words, flags, server)
    if server == "sglang" and "--data-parallel" in flags:
        words = data_attention(words)
    if "--draft" in flags:
        words = speculation_in_our_spelling(words, server)
    made: list[str] = []
    before = ""
    for word in words:
        name, sign, value = word.partition("=")
        spelled = name.replace("_", "-") if name.startswith("--") else name
        if (
            spelled == "-c" and "-ctk" in flags and server != "llama_cpp"
        ):  # argparse would ask which of the longer ones is meant
            raise InputError(f"-c: not an option here; instead: {_ELSEWHERE['-c']}")
        ours = spelled if name in flags else _ours(spelled, server)
        if not word.startswith("-"):
            made.append(_with_unit(before, word))
        elif name in flags or ours.partition("=")[0] not in flags:
            made.append(word)
        else:
            made.append(f"{ours}{sign}{_with_unit(spelled, value) if sign else value}")
        before = word if name in flags else spelled
    return made


def _without_idle_flags(words: Sequence[str], flags: frozenset[str], server: str) -> Sequence[str]:
    """Leave out what a server's command says beside memory, and say so."""
    if "--context" not in flags:
        return words
    silent = LOCAL_WITHOUT_MEMORY if server in {"llama_cpp", "ollama"} else WITHOUT_MEMORY
    kept, idle, skipped = [], [], 0
    for word in words:
        name, sign, _ = word.partition("=")
        spelled = name.replace("_", "-")
        if skipped:
            skipped -= 1
        elif spelled in silent and name not in flags:
            idle.append(spelled)
            skipped = 0 if sign else silent[spelled]
        else:
            kept.append(word)
    if idle:
        print(f"kvreport: left out, because they change no memory: {', '.join(idle)}", file=sys.stderr)
    return kept


def _ours(spelled: str, server: str) -> str:
    """This program's flag for a server's; the flag itself where no server has it."""
    ours = SERVERS_FLAGS.get(server, {}).get(spelled)
    others = [name for name, flags in SERVERS_FLAGS.items() if spelled in flags]
    if ours is None and others and spelled not in _ELSEWHERE:
        named = others[0].replace("_", "-")
        raise InputError(
            f"{spelled}: a flag of {ENGINES[others[0]]}, but the rules of {ENGINES.get(server, server)} apply; "
            f"say --engine {named}, or use {SERVERS_FLAGS[others[0]][spelled]}"
        )
    return ours or spelled


def _server(words: Sequence[str]) -> str:
    """The server whose rules the arguments name; vLLM where they name none."""
    for word, after in pairwise([*words, ""]):
        name, sign, value = word.partition("=")
        if name == "--engine":
            named = value if sign else after
            heard = named.lower().replace("-", "_")
            return next((server for server in SERVERS_FLAGS if heard.startswith(server)), heard)
    return "vllm"


def _with_unit(flag: str, value: str) -> str:
    """A server's value with the unit that its flag implies: decimal letters of tokens, GiB of host memory."""
    if flag == "--max-model-len":
        return _written_out(value)
    return (
        f"{value}GiB" if flag == "--kv-offloading-size" and re.fullmatch(r"\d+(?:\.\d+)?", value) else value
    )


def _written_out(tokens: str) -> str:
    """A count of vLLM, where a small letter is decimal (``32k`` is 32,000) and a capital one binary."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([km])", tokens)
    return tokens if found is None else f"{float(found[1]) * {'k': 1e3, 'm': 1e6}[found[2]]:.0f}"


def unknown_argument(
    words: Sequence[str], command: argparse.ArgumentParser, given: Sequence[str] = ()
) -> InputError:
    """Say of the first argument that a command does not have what it has instead.

    Args:
        words: The arguments that the command did not read.
        command: Its parser.
        given: All its arguments, which name the server whose flag it may be.
    """
    server = _server(given)
    word = words[0]
    name = word.partition("=")[0]
    flags, title = sorted(flags_of(command)), command.prog
    if not word.startswith("-"):
        return InputError(
            f"{shorten(word)}: one argument too many for {title}; quote a name with spaces, such as 'llama 3.1 8b'"
        )
    spelled = name.replace("_", "-")
    begun = [flag for flag in flags if len(spelled) > len("--x") and flag.startswith(spelled)]
    near = begun[:3] or get_close_matches(spelled, flags, n=3, cutoff=0.75)
    if spelled in _ELSEWHERE:
        hint = f"instead: {_ELSEWHERE[spelled]}"
    elif begun or (near and not _flag_of(spelled, server)):
        hint = f"did you mean {', '.join(near)}?"
    elif (counted := _changes_memory(spelled, server)) is not None:
        hint = counted
    elif (named := _flag_of(spelled, server) or _flag_of(spelled)) is not None:
        hint = f"a flag of {named}'s that is not read here; leave it out"
    else:
        hint = f"see {title} --help"
    return InputError(f"{shorten(name)}: not an option of {title}; {hint}")


@cache
def _flag_of(flag: str, server: str | None = None) -> str | None:
    """The command of a server that has a flag, by the lists of the public catalog; of any server where none is named."""
    from kvreport.catalog.server_flags import load_server_flags
    from kvreport.resources import data_dir

    servers = load_server_flags(data_dir())
    named = servers.values() if server is None else [servers[server]] if server in servers else []
    return next((one.command for one in named if flag in one.flags), None)


def _changes_memory(flag: str, server: str) -> str | None:
    """What a flag of the server changes in memory that is not counted here; None for one that changes none."""
    from kvreport.startup_log.memory_flags import MEMORY_FLAGS

    having = [one for one in MEMORY_FLAGS if one.flag == flag]
    found = next((one for one in having if one.server == server), None)
    if found is None and having and _flag_of(flag, server) is None:
        found = having[0]
    if found is None:
        return None
    return f"{ENGINES[found.server]}'s flag changes {found.changes}, and no answer here follows it"


def flags_of(command: argparse.ArgumentParser) -> list[str]:
    """Every flag of a command."""
    # argparse has no public list of them.
    return [flag for action in command._actions for flag in action.option_strings]  # noqa: SLF001
