"""What was given as a model: a catalog name, a config, a folder with its weights, a Hub repository.

One door for everything that names a model, with what has to be said about how it was read. Nothing
is fetched unless it is asked for; what was fetched before is found without a connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kvreport.accounting.weights import whole_row_bytes
from kvreport.architectures.checkpoint import confront
from kvreport.architectures.headers import read_headers
from kvreport.architectures.hub import Repository, fault_of, fetch, is_repository_id, kept
from kvreport.architectures.hub_client import NoConnectionError
from kvreport.architectures.keys import Keys, read_json
from kvreport.architectures.not_a_config import CONFIG_FILES, config_file
from kvreport.architectures.reader import read_config_report
from kvreport.architectures.registry import find_architecture
from kvreport.architectures.repository_names import other_spellings, quantized_name
from kvreport.architectures.safetensors import Witness, read_witness
from kvreport.catalog.base import Source
from kvreport.catalog.known_names import KnownByNameError
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.errors import CatalogError, InputError, shorten
from kvreport.estimation.named_copies import by_name
from kvreport.estimation.opened import Opened, listed

_ALSO: Final = (
    "; a config.json, a folder with one, a GGUF file or a Hub id (org/name, with --fetch) also works"
)
_SEVERAL_WORDS: Final = re.compile(r"(?![./~\\]|[A-Za-z]:)\s*\S+\s+\S.*/")
"""Words before the organization of a repository, of which paths alone may have some."""
_ALL_FILES: Final = (
    "; or all of its safetensors files in this folder, whose headers give the weights of any class"
)


def open_name(name: str, catalog: Catalog, *, fetching: bool = False, revision: str | None = None) -> Opened:
    """Find a model by its name: in the catalog, in what was fetched, on the Hub, by what it was made from.

    Args:
        name: Catalog id, slug or alias, or a Hub id.
        catalog: Where names are looked up first, unless a revision is asked for.
        fetching: True if the Hub may be asked.
        revision: Branch, tag or commit of the Hub's repository.

    Raises:
        KnownByNameError: If the model is known by its name and nothing is computed for it, with the reason.
        InputError: If nothing of that name is known, with what would work.
    """
    if revision is not None and not is_repository_id(name):
        raise InputError(f"revision: found one for {name!r}; allowed: for a Hub id, org/name")
    unknown: InputError | None = None
    if revision is None:
        if not fetching and kept(name, None) is None:
            refuse_known((name,), catalog)
        try:
            return listed(catalog.model(name))
        except CatalogError:  # the record is there, and has a fault
            raise
        except InputError as error:
            unknown = error
    if fetching:
        return _fetched(name, revision, catalog)
    repository = kept(name, revision)
    if repository is not None:
        return open_repository(repository, catalog)
    if unknown is None:
        # Start commands name revisions of known models, and their shapes hardly ever differ.
        known = catalog.known_model(name)
        if known is not None:
            said = f"revision {revision}: not fetched (--fetch), so the record of {known.id} is counted"
            return replace(listed(known), assumptions=() if revision == "main" else (said,))
        raise InputError(
            f"model {name}: found no such revision kept; allowed: --fetch, to ask the Hub for it"
        )
    if _SEVERAL_WORDS.match(name):
        raise InputError(
            f"model: found {shorten(name)}, which is several words; allowed: a model's name, or the start command of a server, such as "
            "vllm serve MODEL"
        )
    variant = by_name(name, catalog)
    if variant is not None:
        return Opened(*variant)
    meant = spelled(name, catalog)
    if meant is not None:
        return meant
    copy = quantized_name(name)
    refuse_known((*other_spellings(name), *(() if copy is None else copy.bases)), catalog)
    raise InputError(f"{unknown}{_ALSO}") from unknown


def refuse_known(spellings: Iterable[str], catalog: Catalog) -> None:
    """Refuse a model that is known by its name alone, with the reason.

    Raises:
        KnownByNameError: If the name is in the list.
    """
    names = catalog.known_names
    if names is None:
        return
    for spelling in spellings:
        one = names.known(spelling)
        if one is not None:
            raise KnownByNameError(one, names)


def spelled(name: str, catalog: Catalog) -> Opened | None:
    """Find the model that a path in a container, a router or a copy under another organization names, and say which.

    Returns:
        The model with a sentence that says what it was taken for; None if no record has that name.
    """
    for spelling in other_spellings(name):
        try:
            model = catalog.model(spelling)
        except CatalogError:
            raise
        except InputError:
            copy = by_name(spelling, catalog) if spelling != name else None
            if copy is None:
                continue
            return Opened(*copy)
        # An alias such as "r1" is what people call a model, and no name that a stranger's copy would have.
        ids = (model.id, *(alias for alias in model.aliases if "/" in alias))
        if any(
            spelling.rpartition("/")[2].rpartition("--")[2].lower() == one.rpartition("/")[2].lower()
            for one in ids
        ):
            found = listed(model)
            said = f"{name} is assumed to be {model.id}, because it has the same name; its config would be exact."
            return replace(found, assumptions=(said, *found.assumptions))
    return None


def _fetched(name: str, revision: str | None, catalog: Catalog) -> Opened:
    """Ask the Hub; without a connection, take what was fetched before, and say so."""
    try:
        return open_repository(fetch(name, revision), catalog)
    except NoConnectionError:
        repository = kept(name, revision)
        if repository is None:
            raise
    opened = open_repository(repository, catalog)
    said = f"{name}: no connection to the Hub, so revision {repository.revision[:8]} is used, which was fetched before"
    return replace(opened, assumptions=(said, *opened.assumptions))


def open_repository(repository: Repository, catalog: Catalog) -> Opened:
    """Read what is kept of a Hub repository.

    Raises:
        InputError: If a kept file cannot be read, with the way to fetch it again.
    """
    source = Source(
        covers=("layers", "weights", "context_tokens", "weight_format", "kv_format"),
        title=f"config.json of {repository.id}",
        url=repository.url,
        revision=repository.revision,
        evidence="verbatim",
    )
    try:
        return open_folder(repository.folder, catalog, id=repository.id, sources=(source,))
    except InputError as error:
        if fault_of(repository.folder) is None:
            raise
        raise InputError(f"{error}; --fetch fetches it again") from error


def open_folder(path: Path, catalog: Catalog, **fields: Any) -> Opened:  # noqa: ANN401 - fields of the record
    """Read a config, and hold it against the weights that lie beside it.

    ``path``: a folder, a ``config.json`` in it, or one of its safetensors files or their index. ``**fields``:
    what :func:`kvreport.architectures.reader.read_config_report` takes.

    Raises:
        InputError: If the config cannot be read, or a file beside it is damaged.
    """
    given = path.parent if path.suffix == ".safetensors" or path.name.endswith(".index.json") else path
    config = config_file(given)
    witness = read_witness(config.parent) if config.name in CONFIG_FILES else None
    if witness is None:
        reading = read_config_report(config, **fields)
        return Opened(reading.model, reading.assumptions, reading.not_read)
    raw = read_json(config, str(config))
    if witness.tensors and config.name == CONFIG_FILES[0] and not _known(raw):
        identity = str(fields.get("id") or f"local/{config.resolve().parent.name}")
        found = read_headers(raw, witness, id=identity, where=str(config))
        return Opened(found.model, found.assumptions, found.not_read)
    try:
        reading = read_config_report(config, **fields)
    except InputError as error:
        if witness.tensors or _known(raw):
            raise
        raise InputError(f"{error}{_ALL_FILES}") from error
    heard = hear(reading.model, witness, catalog, raw)
    return Opened(heard.model, (*reading.assumptions, *heard.assumptions), reading.not_read)


def _known(config: Mapping[str, Any]) -> bool:
    try:
        find_architecture(Keys(config, "config"))
    except InputError:
        return False
    return True


def hear(model: Model, witness: Witness, catalog: Catalog, config: Mapping[str, Any]) -> Opened:
    """Hold a model, read from ``config``, against its files' own word."""
    served = whole_row_bytes(model, catalog.weight_formats)
    verdict = confront(model, witness, served, plain_bytes=plain_bytes(config))
    return Opened(verdict.model, () if verdict.sentence is None else (verdict.sentence,))


def plain_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of an unquantized element in the files: 4 where the config says float32."""
    sections = [config, *(part for part in config.values() if isinstance(part, dict))]
    named = [section.get("torch_dtype") or section.get("dtype") for section in sections]
    first = next((name for name in named if isinstance(name, str)), "")
    return 4 if first.removeprefix("torch.") == "float32" else 2
