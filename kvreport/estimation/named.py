"""Models, engines and their releases by the names that a question has for them, and what of them goes together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.support_lookup import lacks_class, other_reader
from kvreport.accounting.weights import contradiction
from kvreport.architectures.repository_names import repository_name
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalog, named_release
from kvreport.catalog.model import Model
from kvreport.catalog.support import Support
from kvreport.errors import CatalogError, InputError, shorten
from kvreport.estimation.opened import Opened, listed


def resolve_model(model: str | Path | Model, catalog: Catalog) -> Model:
    """Find a model by id, slug or alias, or read it from a ``config.json``.

    Raises:
        InputError: If there is no such model or file, naming near ones.
    """
    return open_model(model, catalog).model


def open_model(
    model: str | Path | Model,
    catalog: Catalog,
    *,
    fetch: bool = False,
    revision: str | None = None,
    assume_defaults: bool = False,
) -> Opened:
    """Find or read what was given as a model, with what has to be said about it.

    Args:
        model: A record; a path; or a name (:func:`kvreport.estimation.opening.open_name`).
        catalog: Where names are looked up.
        fetch: True if the Hub may be asked for what is not known.
        revision: Branch, tag or commit on the Hub.
        assume_defaults: True to take a class's published defaults for dimensions that a config leaves out.

    Raises:
        InputError: If there is no such model or file, naming near ones.
    """
    if isinstance(model, Model):
        return Opened(model)
    if isinstance(model, str):
        model = repository_name(model)
    if not isinstance(model, str | Path):
        raise InputError(
            f"model: found {shorten(model)}; allowed: a name, a config.json or a folder with one, as text or as a path"
        )
    # A reader for every family costs a tenth of a second; a catalog's model needs none.
    if str(model).lower().endswith(".gguf"):
        from kvreport.architectures.gguf import read_gguf  # noqa: PLC0415

        file = read_gguf(model).model
        return Opened(file.model_copy(update={"unsupported_by": dict.fromkeys(_NO_GGUF, _AS_FILE)}))
    if isinstance(model, Path) or is_config_path(model):
        from kvreport.architectures.repository_names import other_spellings  # noqa: PLC0415
        from kvreport.estimation.opening import open_folder, refuse_known, spelled  # noqa: PLC0415

        # A start command names folders of its container, or of another computer.
        if isinstance(model, str) and model.startswith(("/", "~")) and not Path(model).expanduser().exists():
            meant = spelled(model, catalog)
            if meant is not None:
                return meant
            refuse_known(other_spellings(model), catalog)
        return open_folder(Path(model).expanduser(), catalog, assume_defaults=assume_defaults)
    if revision is None:
        known = catalog.known_model(model)
        if known is not None:
            if (fault := contradiction(known, catalog.weight_formats)) is not None:
                raise CatalogError((fault,))
            return listed(known)
    from kvreport.estimation.opening import open_name  # noqa: PLC0415

    return open_name(model, catalog, fetching=fetch, revision=revision)


_NO_GGUF: Final = ("vllm", "sglang", "tensorrt_llm", "transformers", "mlx")
"""Engine families that do not compute with the tensors of a GGUF file, or only with those of some classes and releases."""

_AS_FILE: Final = (
    "the file is for llama.cpp; allowed: --engine llama-cpp, ollama or ceiling, or the config.json of the model that it"
    " was made from, with --weights q4_k_m or q8_0"
)


def at_release(engine: Engine, name: str) -> Engine:
    """The record as it is for the release that a name like ``vllm@0.27.1`` or ``vllm==0.27.1`` asks for."""
    version = "" if name.strip().lower() in (engine.name, *engine.aliases) else named_release(name)
    return rules(engine).at_release(version) if version else engine


def engine_named(catalog: Catalog, name: str) -> Engine:
    """The engine of a name, with the behavior of the release that the name asks for.

    Raises:
        InputError: If there is none, or more than one.
    """
    if not isinstance(name, str):
        raise InputError(
            f"engine: found {shorten(name)}; allowed: an engine's name, such as vllm or sglang@0.5.20"
        )
    return at_release(catalog.engine(name), name)


def is_config_path(text: str) -> bool:
    """True if a model's name on the command line is the path of a config rather than an id."""
    if text.endswith((".json", ".safetensors")) or text.startswith((".", "/", "~")):
        return True
    if "\0" in text:
        return False
    if Path(text, "config.json").is_file():
        return True
    return Path(text).is_dir() and any(Path(text).glob("*.safetensors"))


def refuse_unsupported(model: Model, engine: Engine, support: Support | None = None) -> None:
    """Refuse a model that the engine does not run.

    ``engine``: the engine, whose release decides where ``support`` knows the class by releases. ``support``:
    what engines' releases run on; None to take the model's record at its word.

    Raises:
        InputError: If the model's record says so, with its reason, or its weights are in another engine's format.
    """
    served = None if support is None else support.ruling(engine.family, engine.version).served
    for name in (
        () if served is not None and served.implements(model.architecture) else (engine.name, engine.family)
    ):
        if name in model.unsupported_by:
            raise InputError(f"engine: {engine.label} does not run {model.id}: {model.unsupported_by[name]}")
    reader = other_reader(engine, model.weight_format)
    if reader is not None:
        raise InputError(
            f"engine: {engine.label} does not run {model.id}: its weights are in {model.weight_format}, which "
            f"{reader} reads; allowed: {reader}, or the model it was made from"
        )


def refuse_class(model: Model, engine: Engine, support: Support | None) -> None:
    """Refuse a model whose class the engine's release does not serve, where no single deployment is asked for.

    Raises:
        InputError: With the release that has the class, or the nearest class that the release has.
    """
    lacking = (
        "" if support is None else lacks_class(support.ruling(engine.family, engine.version), engine, model)
    )
    if lacking:
        raise InputError(f"engine: {lacking}; allowed: an engine or a release that has it")


def storable_on(kv_format: KvFormat, accelerator: Accelerator) -> bool:
    """True if the accelerator can keep a cache in this format."""
    return kv_format.stored_by(accelerator.compute_capability, accelerator.vendor)


def as_declared(asked: KvFormat, model: Model, formats: Mapping[str, KvFormat]) -> KvFormat:
    """What a format means for a model that declares a packed layout of the same width: that layout.

    DeepSeek-V4 asked for FP8 keeps its own 584-byte states; there is no other FP8 cache of it.
    """
    own = formats.get(model.kv_format) if model.kv_format else None
    packed = own is not None and own.wide_rope_bytes > 0 and own.bits == asked.bits
    return own if own is not None and packed and not asked.wide_rope_bytes else asked


def automatic_kv_format(model: Model) -> str:
    """What ``auto`` means: the KV format that the checkpoint declares, else the served type."""
    if model.kv_format is not None:
        return model.kv_format
    return "bf16"


AUTO = "auto"
"""The KV format that a checkpoint declares, else the 16-bit type it is served in."""
