"""Names of quantized repositories: which model they were made from, and in which format.

Publishers of quantized copies keep the model's name and add what they did: ``-AWQ``, ``-GPTQ-Int4``,
``-FP8-dynamic``, ``-NVFP4``, ``-quantized.w4a16``, ``-4bit`` (MLX), ``-GGUF``. A name says the method, not
every parameter; the usual ones are taken and said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kvreport.catalog.layouts import GROUPS, regrouped


@dataclass(frozen=True, slots=True)
class QuantizedName:
    """What a repository's name says."""

    bases: tuple[str, ...]  # Names that the model it was made from may have, likeliest first.
    weights: str  # Weight format by its name in kvreport.
    usual: str | None = None  # What is taken for granted, or None if the name says it all.
    experts: str | None = None  # Format of the routed experts, where the name gives them another one.
    # Format with the fewest bytes that the same words mean, where that is not ``weights``; else None.
    least: str | None = None
    most: str | None = None  # The one with the most bytes, with the fewest inputs to a scale; likewise.
    # True if copies of such a name may keep some layers wider; False where the tool has one rule for all.
    mixed: bool = True
    # True if such copies may store an output head that the original shares with its embedding.
    untied: bool = False


_GGUF_TYPES: Final = r"(?:UD-)?(?:I?Q\d(?:_\d|_K(?:_[A-Z]{1,2})?|_(?:X{0,2}S|NL|M|S|XS|XXS))?|F16|BF16|F32|MXFP4(?:_MOE)?|TQ\d_0)"
_G128: Final = "groups of 128, as is usual"
_RULES: Final[tuple[tuple[str, str, str | None], ...]] = (
    # bitsandbytes before plain bits: unsloth writes -bnb-4bit
    (r"-unsloth-bnb-4bit", "bnb-4bit-dq", "NF4, doubly quantized"),
    (r"-bnb-4bit", "bnb-4bit-dq", "NF4, doubly quantized, every linear layer"),
    (r"(?:-unsloth)?-bnb-8bit", "int8", None),
    (r"(?:-int4)?-AWQ(?:-BF16)?(?:-4bit|-INT4|-w4a16)?", "int4", _G128),
    (r"-AWQ(?:-BF16)?(?:-8bit|-INT8|-w8a16)", "int8-g128-zp", _G128),
    (r"-GPTQ(?:-Int4|-4bit?|-4b|-w4a16)?(?:-g?128g?)?", "gptq4-g128", _G128),
    (r"-GPTQ-(?:Int8|8bit)", "gptq8-g128", _G128),
    (r"-gptqmodel-4bit", "gptq4-g128", _G128),
    (r"-GPTQ-(?:Int3|3bit)", "gptq3-g128", _G128),
    (r"(?:-int4|-w4a16)?-AutoRound(?:-GPTQ|-AWQ)?(?:-int4|-w4a16)?", "int4", _G128),
    (r"(?:-qat)?(?:-q4_0)?(?:-quantized)?[.-]w4a16(?:-G128)?(?:-ct)?", "int4-g128-sym", _G128),
    (r"(?:-quantized)?[.-]w8a16", "int8-channel-sym", "one scale per channel"),
    (r"(?:-quantized)?[.-]w8a8(?:-INT8)?|-INT8(?:-dynamic)?", "int8", "one scale per channel"),
    (r"-INT4", "int4-g128-sym", _G128),
    (r"-FP8-block(?:-dynamic)?", "fp8-block", None),
    (r"-FP8-dynamic(?:-KV)?|-FP8-PTPC", "fp8-channel", None),
    (r"-FP8-(?:KV|Static-PerTensor|per-tensor)", "fp8-tensor", None),
    (r"(?:-MTP)?-NVFP4(?:A16|-FP8|-dynamic|-W4A4|-QAD|-v\d)?|-FP4(?:-v\d)?", "nvfp4", None),
    (r"-MXFP8", "mxfp8", None),
    (r"-MXFP4(?:A16|-W4A4)?(?:-Preview|-v\d)?|-w-mxfp4-a-fp8", "mxfp4", None),
    (r"-HQQ(?:-4bit)?", "hqq4-g64", "4 bits in groups of 64"),
    (r"-AQLM-2Bit-1x16(?:-hf)?|-AQLM-PV-2Bit-1x16(?:-hf)?", "aqlm-1x16-g8", None),
    (r"-AQLM-2Bit-2x8(?:-hf)?|-AQLM-PV-2Bit-2x8(?:-hf)?", "aqlm-2x8-g8", None),
    (r"-bitsandbytes(?:-4bit)?", "bnb-4bit", None),
)
_FP8_BLOCKS: Final = ("qwen", "deepseek-ai", "zai-org", "minimaxai", "xiaomimimo", "stepfun-ai")
"""Makers whose own FP8 releases have a scale per 128 x 128 block."""
_MLX: Final = re.compile(
    r"(?:-MLX)?-(?:(\d)-?bits?|mxfp4|mxfp8|nvfp4|bf16|fp16)(?:-(?:(?:mx|nv)fp[48]|DWQ(?:-\w+)?|AWQ|mlx|v\d|gs\d+))*$",
    re.IGNORECASE,
)
_MLX_EXPERTS: Final = re.compile(r"(?<=.)-MXFP4-Q8$", re.IGNORECASE)
"""MLX's name for experts in MXFP4 and everything else in 8 bits."""
_BPW: Final = re.compile(
    r"[-_](\d(?:\.\d{1,2})?)[-_]?bpw(?:[-_]h\d)?(?:[-_](exl[23]))?$|[-_](exl[23])[-_](\d(?:\.\d{1,2})?)[-_]?bpw$",
    re.IGNORECASE,
)
_GGUF: Final = re.compile(rf"[-_.](?:i1-)?GGUF(?::({_GGUF_TYPES}))?$", re.IGNORECASE)


_MIX_BEFORE: Final = re.compile(rf"(?:[-_.]qat)?[-_.]({_GGUF_TYPES})[-_.]GGUF$", re.IGNORECASE)
"""A repository of one file: its mix stands before the word GGUF."""

_ADDRESS: Final = re.compile(
    r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|modelscope\.(?:cn|ai)/models|"
    r"(?:registry\.)?ollama\.(?:com|ai)(?:/library)?)/|^hf://|"
    r"^(?:ollama(?:_chat)?[/:]|library/|(?:(?:index\.)?docker\.io/)?ai/)(?=[\w.-]+(?::[\w.-]+)?$)",
    re.IGNORECASE,
)
"""What stands before a repository's name: a site, Ollama's registry, LiteLLM's ``ollama/``, Docker's namespace ``ai/``."""
_DOCKER: Final = re.compile(r"^(?:(?:index\.)?docker\.io/)?ai/[\w.-]+(?::[\w.-]+)?$", re.IGNORECASE)
_BEYOND_NAME: Final = re.compile(
    r"(?:/(?:tree|blob|resolve|raw|discussions|files|summary)(?:/.*)?|/)?(?:[?#].*)?$"
)
_CACHED: Final = re.compile(r"(?:^|/)models--([\w.-]+?)--([\w.-]+?)(?:/|$)", re.ASCII)
"""A model's folder in the Hub's cache, ``models--Qwen--Qwen3-32B/snapshots/…``."""
_ROUTE: Final = re.compile(
    r"(?::[a-z][a-z-]{0,39}|:\d+(?:\.\d+){1,3}|@(?:main|[0-9a-f]{7,40})|\.git)$", re.IGNORECASE
)
"""What a router, a registry or a checkout adds to a name and what says nothing of its bytes: ``:latest``, ``:free``,
the release of a container's image, a provider, a commit, ``.git``."""
_AROUND: Final = "\"'`<>"
"""Marks that stand around a name in a text or a script."""


def repository_name(text: str) -> str:
    """Return the name of a repository that was given by its address, as browsers and Ollama write it; others as is.

    >>> repository_name("https://huggingface.co/Qwen/Qwen3-32B/tree/main")
    'Qwen/Qwen3-32B'
    """
    found = _ADDRESS.match(text)
    return text if found is None else _BEYOND_NAME.sub("", text[found.end() :])


def is_docker_model(text: str) -> bool:
    """Whether a name is one of Docker's own models, which its Model Runner serves with llama.cpp.

    >>> (
    ...     is_docker_model("ai/qwen3:8B"),
    ...     is_docker_model("docker.io/ai/gemma3"),
    ...     is_docker_model("Qwen/Qwen3-8B"),
    ... )
    (True, True, False)
    """
    return _DOCKER.match(text) is not None


def other_spellings(name: str) -> Iterator[str]:
    """Names that a path in a container, a router or another organization may mean, the surest first.

    >>> list(other_spellings("/root/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/0123abc"))
    ['Qwen/Qwen3-32B']
    >>> list(other_spellings("/models/Qwen--Qwen3-32B"))
    ['Qwen/Qwen3-32B', 'Qwen--Qwen3-32B']
    >>> list(other_spellings("nvcr.io/nim/meta/llama-3.3-70b-instruct:1.8.5"))
    ['meta/llama-3.3-70b-instruct', 'llama-3.3-70b-instruct']
    >>> list(other_spellings("openrouter/meta-llama/llama-3.3-70b-instruct:free"))
    ['meta-llama/llama-3.3-70b-instruct', 'llama-3.3-70b-instruct']
    """
    cached = _CACHED.search(name)
    if cached is not None:
        yield f"{cached[1]}/{cached[2]}"
        return
    plain = (
        _ROUTE.sub("", name[:500].strip(_AROUND))
        .removeprefix("git@hf.co:")
        .removeprefix("git@huggingface.co:")
    )
    parts = [part for part in plain.split("/") if part]
    if not parts:
        return
    if "--" in parts[-1]:
        yield parts[-1].replace("--", "/", 1)
    elif len(parts) > 1:
        yield "/".join(parts[-2:])
    yield parts[-1]


def mix_before_gguf(name: str) -> str | None:
    """Return the mix of a repository that holds one file and says so before the word GGUF, or None."""
    found = _MIX_BEFORE.search(name)
    return None if found is None else found[1]


def quantized_name(name: str) -> QuantizedName | None:
    """Read a repository's name, with or without ``org/`` and ``:Q4_K_M``; None if it does not say that it was quantized."""
    org, _, tail = name.rpartition("/")
    if (found := _MIX_BEFORE.search(tail)) is not None:
        return _made(org, tail[: found.start()], found[1].lower(), None)
    if (found := _GGUF.search(tail)) is not None:
        stated = found[1]
        form = (stated or "q4_k_m").lower().removeprefix("ud-")
        return _made(org, tail[: found.start()], form, None if stated else "Q4_K_M, as is usual")
    if (found := _BPW.search(tail)) is not None:
        version = (found[2] or found[3] or "exl2")[-1]
        bits = f"{float(found[1] or found[4]):g}"
        return _made(org, tail[: found.start()], f"exl{version}-{bits}bpw", None)
    if (found := _MLX_EXPERTS.search(tail)) is not None:
        bases = tuple(dict.fromkeys(_bases(org, tail[: found.start()])))
        return QuantizedName(bases, "mlx8-g64", "the rest in groups of 64, as is usual", "mxfp4", mixed=False)
    mlx = org.lower() == "mlx-community" or re.search(r"[-_]MLX[-_]", tail, re.IGNORECASE)
    if mlx and (found := _MLX.search(tail)) is not None:
        tail = re.sub(r"[-_]MLX$", "", tail[: found.start()], flags=re.IGNORECASE)
        plain = _made(org, tail, *_mlx(found))
        return _learned(plain) if plain is not None and _LEARNED.search(found[0]) else plain
    for pattern, form, usual in _RULES:
        found = re.search(rf"(?:{pattern})$", tail, re.IGNORECASE)
        if found is not None:
            return _made(org, tail[: found.start()], form, usual, stated=found[0])
    if (found := re.search(r"-FP8$", tail, re.IGNORECASE)) is not None:
        blocks = org.lower() in _FP8_BLOCKS
        form, usual = ("fp8-block", None) if blocks else ("fp8-tensor", "one scale per tensor")
        return _made(org, tail[: found.start()], form, usual, stated=found[0])
    return None


def _mlx(found: re.Match[str]) -> tuple[str, str | None]:
    bits, text = found[1], found[0].lower()
    mode = next((mode for mode in ("mxfp4", "mxfp8", "nvfp4") if mode in text), None)
    if mode is not None:
        return f"mlx-{mode}", None
    if bits is None:
        return "bf16", None
    group = re.search(r"-gs(\d+)", text)
    size = group[1] if group is not None else "64"
    return f"mlx{bits}-g{size}", None if group else "groups of 64, as is usual"


_LEARNED: Final = re.compile(r"-(?:DWQ|AWQ)(?=-|$)", re.IGNORECASE)
"""Copies of mlx-lm's tools that learn, which take other groups and bits for some layers (0.32.2, ``quant/``)."""


def _learned(plain: QuantizedName) -> QuantizedName:
    """A copy whose name need not say its groups, nor which layers have more bits."""
    groups = (GROUPS[0], GROUPS[-1]) if plain.usual else ()
    least, most = [re.sub(r"-g\d+$", f"-g{group}", plain.weights) for group in groups] or [plain.weights] * 2
    return replace(plain, least=least, most=most, mixed=True)


_ONE_RULE: Final = ("mlx", "exl", "aqlm", "hqq", "bnb")
"""How the formats begin whose tool converts every linear layer that it knows."""

_LEAST: Final = {"-fp4": "mxfp4", "-fp8": "fp8-tensor"}
"""What may be meant with fewer bytes than the usual format, by word: FP4 with a scale per 32."""

_MOST: Final = {"-fp8": "fp8-channel"}
"""What may be meant with more bytes: a scale per output channel, which no layout cuts, as Z.ai's FP8 copies have."""

_UNTIED: Final = "-ct"
"""How Google marks compressed-tensors copies of its QAT checkpoints, two of which repeat the embedding as a head."""

_DYNAMIC: Final = "-unsloth"
"""How Unsloth marks copies in bitsandbytes' formats that keep some layers wider."""


def _made(org: str, tail: str, form: str, usual: str | None, *, stated: str = "") -> QuantizedName | None:
    if not tail:
        return None
    open_group = usual == _G128 and "128" not in stated
    return QuantizedName(
        tuple(dict.fromkeys(_bases(org, tail))),
        form,
        usual,
        least=_LEAST.get(stated.lower()) or (None if open_group else form),
        most=regrouped(form, GROUPS[-1]) if open_group else _MOST.get(stated.lower()),
        untied=stated.lower().endswith(_UNTIED),
        mixed=not form.startswith(_ONE_RULE) or stated.lower().startswith(_DYNAMIC),
    )


def _bases(org: str, tail: str) -> Iterator[str]:
    """Yield what the original may be called; copies drop or add words that do not name a model."""
    if org:
        yield f"{org}/{tail}"
    yield tail
    # bartowski writes the maker into the name: Qwen_Qwen3-32B
    maker, _, rest = tail.partition("_")
    if rest and maker.isascii() and maker.replace("-", "").isalnum():
        yield f"{maker}/{rest}"
        yield rest
    yield from (
        tail.removeprefix("Meta-"),
        f"Meta-{tail}",
        re.sub(r"(?i)-(?:BF16|hf|unsloth|it)$", "", tail),
        f"{tail}-BF16",
    )
