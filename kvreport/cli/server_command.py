"""A server's start command as people paste it, in the arguments of this program.

``vllm serve MODEL …``, ``python -m vllm.entrypoints.openai.api_server --model MODEL …``, ``python -m
sglang.launch_server --model-path MODEL …``, ``sglang serve …``, ``trtllm-serve MODEL …``, ``mlx_lm.server --model MODEL …``
and ``docker run … vllm/vllm-openai:v0.27.1 …`` are read, as words or as one quoted text, also where another program starts
them: a shell, ``kubectl exec``, ``srun`` and what else
:data:`kvreport.cli.local_server_command.STARTERS` names. The program names the engine, and an image's tag its release. Commands of local engines are read
in :mod:`kvreport.cli.local_server_command`.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kvreport.catalog.server_flags import dashed, flag_names
from kvreport.cli.flag_effects import not_followed_word, table_of, variable_words
from kvreport.cli.local_server_command import local_arguments, local_start, started_by
from kvreport.deployments.shell import CONTAINERS
from kvreport.errors import InputError, shorten
from kvreport.resources import read_table

_MODULES: Final[dict[str, str]] = read_table("server modules")
_PROGRAM: Final = re.compile(r"(?:\S*/)?(?P<server>vllm|sglang)(?:\.exe)?")
_ALONE: Final = {"trtllm-serve": "tensorrt_llm", "mlx_lm.server": "mlx"}
"""Programs that are a server by themselves."""
_IMAGE: Final = re.compile(
    r"(?:\S*/)?(?P<server>vllm|sglang)(?:-openai)?(?:-(?:rocm|cpu|xpu|arm64))?"
    r"(?::v?(?P<tag>\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)?\S*)?"
)
_OLLAMA_SERVES: Final = re.compile(r"ollama serve\s*&")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_NAMES: Final = re.compile(
    r"vllm|sglang|llama-|llama\.cpp|llama (?:serve|cli) |ollama|trtllm|tensorrt_llm|mlx_lm|lms load"
)
"""What a text names that may be a server's command."""
_SHELL: Final = re.compile(r"[&|;]+|\d*>{1,2}(?:&\d)?.*")
_SEVERAL_WORDS: Final = ("--served-model-name", "--lora-modules")
"""Flags of vLLM that take any number of words (``entrypoints/openai/cli_args.py``, 0.33)."""
_MODEL: Final = {
    "vllm": ("--model",),
    "sglang": ("--model-path", "--model"),
    "tensorrt_llm": ("--model", "--model-path"),
    "mlx": ("--model",),
}
_ADAPTERS: Final = {"vllm": ("--max-loras", "1", "16"), "sglang": ("--max-loras-per-batch", "8", "")}
"""Each server's flag for adapters at once, their number and their rank where none is stated (``config/lora.py``, vLLM 0.33;
``arg_groups/fields/lora.py``, SGLang 0.5.23)."""


@dataclass(frozen=True, slots=True)
class _Head:
    """Where a server's command stands in some words: its first word, the first after its program, and what it names."""

    start: int
    after: int
    server: str
    release: str = ""


MOST_BYTES: Final = 64 << 10
"""Bytes of a command line: the longest published start commands have about 3 KiB."""
MOST_WORDS: Final = 2048
"""Words of it: argparse takes time by the square of their number."""


def refuse_long(words: Sequence[str]) -> None:
    """Refuse a command line that is too long to be one.

    Raises:
        InputError: Naming its length and the limit.
    """
    size = sum(len(word.encode("utf-8", "surrogatepass")) + 1 for word in words)
    if size > MOST_BYTES:
        raise InputError(f"command line: found {size:,} bytes; allowed: at most {MOST_BYTES:,}")
    if len(words) > MOST_WORDS:
        raise InputError(f"command line: found {len(words):,} words; allowed: at most {MOST_WORDS:,}")


def without_server_command(words: Sequence[str]) -> list[str]:
    """Replace a pasted start command by this program's arguments; other words stay as they are.

    Returns:
        What stood before the command, the model, ``--engine`` where the words name none, and the command's flags.
        SGLang's short names are written out, because ``--dp`` here is not SGLang's.

    Raises:
        InputError: If the command names no model, or its quotes are not closed.

    Examples:
        >>> without_server_command("--gpu h100 vllm serve org/m -tp 2".split())
        ['--gpu', 'h100', 'org/m', '--engine', 'vllm', '-tp', '2']
        >>> without_server_command(
        ...     ["docker run --gpus all vllm/vllm-openai:v0.27.1 --model org/m", "--gpu", "h100"]
        ... )
        ['org/m', '--engine', 'vllm@0.27.1', '--gpu', 'h100']
    """
    own, theirs = taken_apart(words)
    return [*own, *theirs]


def taken_apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What :func:`without_server_command` returns in two: this program's own arguments, and what follows the server's name."""
    words = [part for word in words for part in _parts(word)]
    refuse_long(words)
    local = local_arguments(words)
    if local is not None:
        return local
    head = next((found for start in range(len(words)) if (found := _head(words, start))), None)
    if head is None:
        return words, []
    container = words[head.start] in CONTAINERS
    before = _before(words[: head.after if container else head.start], head.server)
    model, rest = _model(words[head.after :], head.server)
    named = any(word.partition("=")[0] == "--engine" for word in (*before, *rest))
    engine = (
        []
        if named
        else ["--engine", head.server.replace("_", "-") + (f"@{head.release}" if head.release else "")]
    )
    if head.server == "sglang":
        rest = [_written_out(word) for word in rest]
    return [*before, model, *engine], _lora(rest, head.server)


def data_attention(words: Sequence[str]) -> list[str]:
    """Replace SGLang's or TensorRT-LLM's sizes of a layout by this program's, where data ranks or expert ranks are among them.

    SGLang's ``--tp-size`` counts all GPUs of a stage, which ``--enable-dp-attention`` divides among ``--dp-size`` ranks
    of attention (``srt/layers/dp_attention.py::compute_dp_attention_world_info``, 0.5.23). Here the ranks are multiplied.

    Copies of the server, and experts that are divided over a part of the GPUs, are named as not followed.

    Raises:
        InputError: If data ranks do not divide the GPUs.

    Examples:
        >>> data_attention("m --tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8".split())
        ['m', '--tensor-parallel', '1', '--data-parallel', '8', '--expert-parallel']
    """
    names = flag_names("sglang")
    ranks = tensors, datas, experts = (
        names["tensor_parallel"],
        names["data_parallel"],
        names["expert_parallel"],
    )
    of_tensorrt = flag_names("tensorrt_llm")
    known = dict(zip(ranks, ranks, strict=True))
    known |= {
        dashed(of_tensorrt["tensor_parallel"]): tensors,
        dashed(of_tensorrt["moe_expert_parallel_size"]): experts,
    }
    sizes: dict[str, int] = {}
    kept: list[str] = []
    attention, rest = False, iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        spelled = dashed(name)
        if spelled == names["enable_dp_attention"]:
            attention = True
        elif spelled == names["attn_dp_size"]:  # the two flags in one (``arg_groups/parallel_hook.py``)
            attention, sizes[datas] = True, _count(spelled, value if sign else next(rest, ""))
        elif spelled in known:
            sizes[known[spelled]] = _count(spelled, value if sign else next(rest, ""))
        else:
            kept.append(word)
    tensor, data, expert = (sizes.get(name, 1) for name in ranks)
    if attention and data == 1:
        said = f"no effect with one data-parallel rank ({datas} 1)"
        kept.append(not_followed_word(names["enable_dp_attention"], "", None, said))
    if data == expert == 1:
        return [*kept, *([tensors, str(tensor)] if tensors in sizes else [])]
    if expert not in {1, tensor}:
        said = f"not followed; counted as {tensor}: experts of a part of the GPUs are cut on each, to the same size"
        kept.append(not_followed_word(experts, str(expert), "experts of a device", said))
    if data > 1 and not attention:
        said = f"not followed; the server starts {data} copies of itself, and the answer is of one of them"
        kept.append(not_followed_word(datas, str(data), None, said))
        data = 1
    if tensor % data:
        raise InputError(f"{datas}: found {data} with {tensors} {tensor}; allowed: a divisor of {tensor}")
    made = ["--tensor-parallel", str(tensor // data)]
    made += ["--data-parallel", str(data)] if data > 1 else []
    return [*kept, *made, *(["--expert-parallel"] if expert > 1 else [])]


def _parts(word: str) -> list[str]:
    """The words of a quoted command, also of one that a shell is given as a text; a word alone where it is none."""
    if not re.search(r"\s", word.strip()) or not _NAMES.search(word):
        return [word]
    if re.search(r"[A-Za-z]:\\|\.exe", word):  # a path of Windows, whose signs a shell would read as escapes
        word = re.sub(r"\\(?!\s*\n)", "/", word)
    try:
        parts = shlex.split(re.sub(r"[\\`^][ \t\r]*\n", " ", word))
    except ValueError as error:
        raise InputError(f"server command: found {shorten(word)}: {error}; allowed: closed quotes") from None
    refuse_long(parts)
    if _OLLAMA_SERVES.search(word):  # "ollama serve & ollama run NAME": one command for this purpose
        return [part for part in parts if part != "&"]
    parts = [inner for part in parts for inner in (_parts(part) if part != word else [part])]
    starts = [next((place for place in range(len(parts)) if _head(parts, place)), None), local_start(parts)]
    start = min((place for place in starts if place is not None), default=None)
    if start is None:
        return [word]
    end = next(
        (place for place in range(start + 1, len(parts)) if _SHELL.fullmatch(parts[place])), len(parts)
    )
    if any(_head(parts, place) for place in range(end + 1, len(parts))):
        raise InputError(
            f"server command: found several in {shorten(word)}; allowed: one; kvreport preflight answers each of a file"
        )
    ended = next((place for place in reversed(range(start)) if re.search(r"[|;]$|^&&$", parts[place])), -1)
    variables = [part.rstrip(";") for part in parts[: ended + 1] if _ASSIGNMENT.fullmatch(part)]
    return [*variables, *parts[ended + 1 : end]]


def _head(words: Sequence[str], start: int) -> _Head | None:
    word, following = words[start], [*words[start + 1 : start + 3], "", ""]
    program = _PROGRAM.fullmatch(word)
    if program and following[0] == "serve":
        return _Head(start, start + 2, program["server"])
    alone = _ALONE.get(word.rpartition("/")[2])
    if alone is not None or (word == "-m" and following[0] in _MODULES):
        after = start + (1 if alone else 2)
        further = words[after : after + 1] in (
            ["serve"],
            ["server"],
        )  # "trtllm-serve serve", "-m mlx_lm server"
        return _Head(start, after + further, alone or _MODULES[following[0]])
    if word in CONTAINERS and following[0] == "run":
        return _container(words, start)
    return None


def _container(words: Sequence[str], start: int) -> _Head | None:
    """The command in a container: that of the image, or one that is written after it."""
    for place in range(start + 2, len(words)):
        image = _IMAGE.fullmatch(words[place])
        named = words[place - 1] in {"--name", "--entrypoint", "--network", "--hostname"}
        if (
            image is None or named or words[place + 1 : place + 2] == ["serve"]
        ):  # the program in an image of another name
            continue
        release = image["tag"] or ""
        inner = next((found for at in range(place + 1, len(words)) if (found := _head(words, at))), None)
        if inner is not None:
            return _Head(start, inner.after, inner.server, release)
        if image["server"] == "vllm":  # its image starts the server by itself
            return _Head(start, place + 1, "vllm", release)
    return None


def _before(words: Sequence[str], server: str) -> list[str]:
    """What stands before the server's program: this program's own flags stay, and the variables that are flags here."""
    kept, started = started_by(words)
    contained = not CONTAINERS.isdisjoint(started)  # then "-e NAME=value" alone is a variable
    variables: list[str] = []
    flags: list[str] = []
    for before, word in pairwise(["", *started]):
        if not _ASSIGNMENT.fullmatch(word) or (contained and before not in {"-e", "--env", ""}):
            continue
        name, _, value = word.partition("=")
        meant = variable_words(name, value, server)
        flags += meant or []
        variables += [name] if meant is None else []
    kept += flags
    if variables:
        print(f"kvreport: environment variables are not read: {', '.join(variables)}", file=sys.stderr)
    return kept


def _model(words: Sequence[str], server: str) -> tuple[str, list[str]]:
    """The model of a command, and its other words."""
    kept: list[str] = []
    model = ""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, sign, value = word.partition("=")
        spelled = name.replace("_", "-") if name.startswith("--") else name
        if spelled in _MODEL[server]:
            model = value if sign else (rest.pop(0) if rest else "")
        elif spelled in _SEVERAL_WORDS:
            kept += [name, value if sign else rest.pop(0)] if sign or rest else [name]
            while rest and not rest[0].startswith("-"):
                rest.pop(0)
        elif not kept and not model and not word.startswith("-"):
            model = word
        else:
            kept.append(word)
    if not model:
        flag = _MODEL[server][0]
        allowed = "vllm serve MODEL, or " if server == "vllm" else ""
        raise InputError(f"server command: found no model; allowed: {allowed}{flag} MODEL")
    return model, kept


def _written_out(word: str) -> str:
    """A word of SGLang's command with the flag's first name."""
    name, sign, value = word.partition("=")
    table = table_of("sglang")
    found = table.find(name) if table is not None and dashed(name) in table else None
    return word if found is None else f"{found.flag.name}{sign}{value}"


def _lora(words: list[str], server: str) -> list[str]:
    """``--enable-lora`` with the adapters and rank that the server takes where they are not stated.

    The rank of SGLang's adapters is in their files where no flag states it: they are not followed then.
    """
    if server not in _ADAPTERS:
        return words
    names, (loras, usual, rank) = flag_names(server), _ADAPTERS[server]
    stated = {word.partition("=")[0].replace("_", "-") for word in words}
    if names["enable_lora"] not in words or not (rank or "--max-lora-rank" in stated):
        return words
    kept = [word for word in words if word != names["enable_lora"]]
    kept += [] if loras in stated else [loras, usual]
    return kept + ([] if "--max-lora-rank" in stated else ["--max-lora-rank", rank])


def _count(flag: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise InputError(f"{flag}: found {shorten(text)}; allowed: a whole number of at least 1")
    return int(text)
