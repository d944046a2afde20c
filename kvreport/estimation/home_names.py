"""Names that mean a local engine: GGUF files and repositories, Ollama's library, MLX's formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvreport.accounting.engines.llama_cpp.quantize import is_mix
from kvreport.architectures.gguf import GgufModel, read_gguf
from kvreport.architectures.gguf_names import mix_of, stem_of
from kvreport.architectures.hub import GgufFile, fetch_gguf, kept_gguf
from kvreport.architectures.hub_client import NoConnectionError
from kvreport.architectures.repository_names import is_docker_model, mix_before_gguf, repository_name
from kvreport.catalog.base import Source
from kvreport.catalog.load import RELEASED, Catalog
from kvreport.catalog.local_architectures import QAT_MIX, OllamaNames, PublishersMixes
from kvreport.catalog.model import Model
from kvreport.errors import InputError, shorten
from kvreport.estimation.hardware import listed
from kvreport.estimation.named_copies import gguf_base
from kvreport.query import Query, of_group

_GGUF_REPOSITORY: Final = re.compile(r"^(?P<id>[^/:]+/[^/:]+-GGUF)(?::(?P<mix>[\w.-]+))?$", re.IGNORECASE)
_MLX_REPOSITORY: Final = re.compile(r"^mlx-community/|^[^/]+/[^/]+-MLX(?:-\w+)*$", re.IGNORECASE)
USUAL_MIX: Final = "q4_k_m"
"""What llama-server takes of a repository whose name states no mix (``common/arg.cpp``, ``-hf``)."""


_OF_MACHINES: Final = frozenset({"memory", "held_by_others"})
"""Options of the group of engines that every engine has: they are about the machine."""


@dataclass(frozen=True)
class Named:
    """What was made of a model's name."""

    said: tuple[str, ...] = ()  # What was taken for granted.
    # The GGUF repository, with its mix where one was stated; None for other names.
    repository: str | None = None
    file: str | None = None  # A GGUF file that is not here and whose name was read; None for other names.
    # A publisher's mix, of which only the file knows the types: the answer is a range; None for others.
    mix: str | None = None
    # Mix of the quantizer with the fewest bytes that a file of that name may have; None for others.
    least: str | None = None


def is_gguf(model: object) -> bool:
    """True if a model's name is the path of a GGUF file."""
    return isinstance(model, str | Path) and str(model).lower().endswith(".gguf")


def engine_of(model: str | Path, catalog: Catalog | None = None, weights: object = None) -> dict[str, str]:
    """The engine that a model's name implies where none is stated.

    A GGUF file or a repository of such files means llama.cpp, a name of Ollama's library Ollama, and a
    repository whose weights are in MLX's formats means mlx-lm: no other engine reads them.

    Args:
        model: What was given as the model.
        catalog: A name without a tag is Ollama's only where this catalog has no model of that name; without a
            catalog, a tag is needed.
        weights: Weight format that was asked for. A name without a tag is not Ollama's where only servers read
            that format.
    """
    if is_gguf(model):
        return {"engine": "llama-cpp"}
    if not isinstance(model, str):
        return {}
    name = repository_name(model)
    if gguf_repository(name) or (is_docker_model(model) and OllamaNames.need().find(name) is not None):
        return {"engine": "llama-cpp"}
    if _MLX_REPOSITORY.match(name):
        return {"engine": "mlx"}
    if OllamaNames.need().find(name) is None:
        return {}
    if ":" in name or (_unlisted(name, catalog) and not _of_servers(weights, catalog)):
        return {"engine": "ollama"}
    return {}


def engine_at_home(
    gpu: object, weights: Iterable[str | None], options: Mapping[str, object], catalog: Catalog
) -> tuple[str, str] | None:
    """The local engine that weights or machines imply where no engine is stated, and why; None where they do not.

    A mix of llama.cpp's quantizer is read by no server engine. A machine of ``home/machines.yaml`` is run with
    llama.cpp, unless a flag of a server's engine or layout is given.

    ``gpu``: the accelerators that were asked for. ``weights``: weight formats that were asked for.
    ``options``: other fields of the question.
    """
    for name in weights:
        if isinstance(name, str) and is_mix(name) and not _is_server_format(name, catalog):
            return "llama-cpp", f"{name.upper()} is a GGUF mix"
    flags = [option for group in ("layout", "engine") for option in of_group(group)]
    flags = [one for one in flags if one.name not in _OF_MACHINES]
    if any(options.get(one.name) not in (None, False, (), [], one.default) for one in flags):
        return None
    names = []
    for named, _ in listed(gpu):
        try:
            device = catalog.accelerator(named) if isinstance(named, str) else named
        except InputError:
            return None
        if device.id not in catalog.local_first:
            return None
        names.append(device.name)
    return ("llama-cpp", f"what {names[0]} is usually run with") if names else None


def _is_server_format(name: str, catalog: Catalog) -> bool:
    """True if a checkpoint may come in a format: every known one but those of GGUF files."""
    if name.lower() == RELEASED:
        return True
    try:
        known = catalog.weight_format(name)
    except InputError:
        return False
    return not any(alias.startswith("gguf-") for alias in known.aliases)


def _of_servers(weights: object, catalog: Catalog | None) -> bool:
    """True if only servers read a weight format that was asked for by its name."""
    if catalog is None or not isinstance(weights, str) or weights.lower() == RELEASED or is_mix(weights):
        return False
    return _is_server_format(weights, catalog)


def _unlisted(name: str, catalog: Catalog | None) -> bool:
    if catalog is None or Path(name).exists():
        return False
    try:
        return catalog.known_model(name) is None
    except InputError:  # the record is there, and has a fault
        return True


def by_local_name(query: Query, catalog: Catalog) -> tuple[Query, Named]:
    """Replace a name of Ollama's library, or of a GGUF repository, by what it holds.

    A repository's file that was fetched, or may be, is read; else the name says base model and mix. Other
    questions stay as they are.

    Returns:
        The question with the base model and its mix, or with the file's own record; what the name was taken to say.

    Raises:
        InputError: If the name says a mix of which only the file knows the types, or the Hub refuses.
    """
    if not isinstance(query.model, str) or Path(query.model).exists():
        return query, Named()
    found = OllamaNames.need().find(repository_name(query.model))
    if found is not None:
        named = Named()
        if found.format == QAT_MIX and query.weights is None:
            named = _qat(repository_name(query.model))
        return replace(query, model=found.model, weights=query.weights or found.format), named
    if is_gguf(query.model):
        return _by_file_name(query, catalog)
    name = repository_name(query.model)
    asked = gguf_repository(name)
    if asked is None:
        return query, Named()
    repository, mix = asked
    file = _file(query, repository, mix)
    if file is not None:
        return replace(query, model=read_fetched(file)), Named((said_of_header(file),), name)
    by_base = _by_base(query, name, mix or mix_before_gguf(name), catalog)
    if by_base is None:
        return query, Named()
    base, said = by_base
    stated = name if query.weights is None else f"{repository}:{query.weights.upper()}"
    return base, replace(said, repository=stated)


def _by_file_name(query: Query, catalog: Catalog) -> tuple[Query, Named]:
    """The question of a file that is not here: by its name, which usually states base model and mix."""
    path = str(query.model)
    stem = stem_of(re.split(r"[/\\]", path)[-1]) or ""
    mix = mix_of(stem)
    if mix is None:
        return query, Named()
    found = _by_base(query, f"{stem[: -len(mix) - 1]}-GGUF:{mix}", mix, catalog)
    if found is None:
        return query, Named()
    base, named = found
    identity = base.model.id if isinstance(base.model, Model) else base.model
    form = named.mix or str(base.weights).upper()
    by_name = f"{shorten(path)} is not here: by its name it is {identity} in {form}"
    said = (by_name, *(text.replace(_FETCH, "") for text in named.said if named.mix is not None))
    return base, replace(named, said=said, file=path)


def _file(query: Query, repository: str, mix: str | None) -> GgufFile | None:
    """The repository's file, where its own types are asked for and it was fetched or may be."""
    if query.weights is not None:
        return None
    if query.fetch:
        try:
            return fetch_gguf(repository, mix, query.revision)
        except NoConnectionError:
            file = kept_gguf(repository, mix, query.revision)
            if file is None:
                raise
            return file
    return kept_gguf(repository, mix, query.revision)


def said_of_header(file: GgufFile) -> str:
    """Say where the types of a repository's file come from."""
    return (
        f"types of every tensor: the header of {file.name} in {file.repository}, revision {file.revision[:8]}"
    )


def gguf_repository(name: str) -> tuple[str, str | None] | None:
    """Return repository and mix of a name such as ``org/name-GGUF:Q4_K_M``; None for any other name."""
    found = _GGUF_REPOSITORY.match(name)
    return None if found is None else (found["id"], found["mix"])


def read_fetched(file: GgufFile) -> GgufModel:
    """Read the header of a repository's file.

    Raises:
        InputError: If it is no GGUF file, or one that cannot be read.
    """
    read = read_gguf(file.path)
    source = Source(
        covers=("layers", "weights", "context_tokens"),
        title=f"header of {file.name} in {file.repository}",
        url=file.url,
        revision=file.revision,
        evidence="verbatim",
    )
    identity = f"{file.repository}-{file.mix}" if file.mix else file.repository
    model = read.model.model_copy(update={"id": identity, "sources": (source,)})
    # Of a fetched file only the header is kept.
    return replace(read, model=model, missing_bytes=0)


_FETCH: Final = "; --fetch reads the types in the file"
_QAT: Final = re.compile(r"[-_.]qat[-_.]", re.IGNORECASE)
_QAT_LEAST: Final = "q4_0"


def _qat(name: str) -> Named:
    """A copy of a checkpoint trained for Q4_0, whose publisher may have left the tables in 16 bits."""
    said = (
        f"{name}: a copy of a checkpoint trained for {_QAT_LEAST.upper()} may keep its embedding in F16, or in the type "
        f"of llama.cpp's quantizer; by its name, weights are a range{_FETCH}"
    )
    return Named((said,), mix=_QAT_LEAST.upper(), least=_QAT_LEAST)


def _by_base(query: Query, name: str, mix: str | None, catalog: Catalog) -> tuple[Query, Named] | None:
    """The question with the model that a repository was made from; None if its name does not say which."""
    found = gguf_base(name, catalog)
    if found is None:
        return None
    base, weights = found
    if query.weights is not None:
        return replace(query, model=base), Named()
    if mix is None:
        own = base.weight_format if base.weight_format == "mxfp4" else USUAL_MIX
        said = f"{name} states no mix: {own.upper()}, as is usual{_FETCH}"
        return replace(query, model=base, weights=own), Named((said,))
    if weights == _QAT_LEAST and _QAT.search(name):
        return replace(query, model=base, weights=QAT_MIX), _qat(name)
    if is_mix(weights) and not mix.upper().startswith("UD-"):
        said = f"{name}: by its name, types are those of llama.cpp's quantizer for {mix.upper()}{_FETCH}"
        return replace(query, model=base, weights=weights), Named((said,))
    between = PublishersMixes.need().range_of(mix)
    if between is None:
        raise InputError(
            f"model: found {name}, whose publisher chose types for {mix.upper()} that only the file says; allowed: "
            f"--fetch, which reads the file's header, or the path of the file"
        )
    ends = f"{between.least.upper()} to {between.most.upper()}"
    said = f"{name}: its publisher chose the type of every tensor; by its name, weights are those of {ends}{_FETCH}"
    named = Named((said,), mix=mix.upper(), least=between.least)
    return replace(query, model=base, weights=between.most), named
