"""Configs from the Hugging Face Hub: only when asked, pinned to a revision, kept, offline afterwards.

What is fetched is small: the repository's list of files, its config, the quantizer's file, the index
of its weights, and where there is a single safetensors file, its header alone; of a GGUF file the
header alone, too, with the type of every tensor. Nothing is fetched
unless the caller asks for it; what was fetched once is read from the cache without a connection.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

from kvreport.architectures.gguf_header import header_bytes
from kvreport.architectures.gguf_names import is_mix_name, mix_of, stem_of
from kvreport.architectures.hub_client import MAX_BYTES, SHA, HubClient
from kvreport.architectures.keys import read_json
from kvreport.architectures.quantizer_files import FILES as QUANTIZER_FILES
from kvreport.architectures.quantizer_files import quantizer_file
from kvreport.architectures.safetensors import INDEXES, MAX_HEADER_BYTES, read_witness
from kvreport.budgets import guard
from kvreport.errors import InputError, shorten

ENDPOINT: Final = "https://huggingface.co"
MAIN: Final = "main"

_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_REVISION: Final = re.compile(r"[A-Za-z0-9][\w./-]{0,199}", re.ASCII)
_CONFIGS: Final = ("config.json", "params.json")
_SINGLE: Final = "model.safetensors"
_NO_MODEL: Final = re.compile(r"mmproj|imatrix")
GGUF_STEP_BYTES: Final = 4 << 20
"""First step of a header: tokens of a usual vocabulary are in it."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What is kept of one revision of a repository."""

    id: str  # ``org/name``.
    revision: str
    folder: Path  # Where its files are.

    @property
    def url(self) -> str:
        """Where its config can be read."""
        return f"{ENDPOINT}/{self.id}/blob/{self.revision}/config.json"


def is_repository_id(name: str) -> bool:
    """True if a name has the form ``org/name``."""
    return _ID.fullmatch(name) is not None and ".." not in name


def cache_folder() -> Path:
    """Where fetched files are kept: ``$XDG_CACHE_HOME/kvreport/hub``, usually below ``~/.cache``."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(root) if root.startswith("/") else Path.home() / ".cache"
    return base / "kvreport" / "hub"


_READ: Final = "a repository as --fetch keeps it"
_ASKED: Final = "a repository of the Hub"


def kept(name: str, revision: str | None = None, *, cache: Path | None = None) -> Repository | None:
    """Return a repository that was fetched before, or None; opens no connection."""
    with guard(f"model {shorten(name)}", _READ):
        folder = _kept_folder(name, revision, "commits", cache)
        return None if folder is None else Repository(name, folder.name, folder)


def fault_of(folder: Path) -> InputError | None:
    """Say why the files that are kept of a repository cannot be read; None if they can."""
    try:
        with guard(str(folder), _READ):
            config = next((name for name in _CONFIGS if (folder / name).is_file()), _CONFIGS[0])
            read_json(folder / config, str(folder / config))
            quantizer_file(folder)
            read_witness(folder)
            _check_digests(folder)
    except InputError as error:
        return error
    return None


_DIGESTS: Final = "sha256.json"
"""Digests of the files that were kept together; a file changed since then may still be JSON."""


def _check_digests(folder: Path) -> None:
    """Compare the kept files with their digests.

    Raises:
        InputError: If a file has changed, is missing or has no digest.
    """
    digests = read_json(folder / _DIGESTS, str(folder / _DIGESTS))
    found = {path.name: _digest(path) for path in folder.iterdir() if path.name != _DIGESTS}
    changed = sorted(name for name in {*digests, *found} if digests.get(name) != found.get(name))
    if changed:
        raise InputError(
            f"{folder / changed[0]}: found a file that has changed since it was fetched; allowed: {_READ}"
        )


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _kept_folder(name: str, revision: str | None, kind: str, cache: Path | None) -> Path | None:
    """What is kept of a repository at a revision, in a folder that its commit names; None if nothing is."""
    if not is_repository_id(name) or (revision is not None and not _is_revision(revision)):
        return None
    home = _home(cache, name)
    asked = revision or MAIN
    commit = asked if (home / kind / asked).is_dir() else _ref(home, asked)
    folder = home / kind / (commit or "")
    return folder if commit is not None and folder.is_dir() else None


def fetch(
    name: str, revision: str | None = None, *, cache: Path | None = None, endpoint: str | None = None
) -> Repository:
    """Fetch a repository's small files and keep them.

    Args:
        name: ``org/name``.
        revision: Branch, tag or commit; None for the main branch as it is now.
        cache: Where to keep them; None for :func:`cache_folder`.
        endpoint: The Hub; None for ``$HF_ENDPOINT``, else :data:`ENDPOINT`.

    Returns:
        The repository, pinned to the commit that the revision is now.

    Raises:
        InputError: If it is missing, gated, not reachable, or holds no config.
    """
    hub, asked = _asked(name, revision, endpoint)
    with guard(f"model {name}", _ASKED):
        commit, files = hub.listing(asked)
        home = _home(cache, name)
        folder = home / "commits" / commit
        # What cannot be read (an earlier version kept cut downloads) is fetched again.
        if not folder.is_dir() or fault_of(folder) is not None:
            _keep(folder, hub, commit, files)
        _write_ref(home, asked, commit)
        return Repository(name, commit, folder)


def _asked(name: str, revision: str | None, endpoint: str | None) -> tuple[HubClient, str]:
    """The repository on its Hub and the revision, both checked."""
    if not is_repository_id(name):
        raise InputError(f"model: found {shorten(name)}; allowed: a Hub id, org/name")
    if revision is not None and not _is_revision(revision):
        raise InputError(f"revision: found {shorten(revision)}; allowed: a branch, tag or commit")
    return HubClient(name, endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT), revision or MAIN


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of a GGUF file that is kept."""

    repository: str  # ``org/name-GGUF``.
    revision: str
    mix: str | None  # What was asked for, or None.
    path: Path  # Where the header is; the first one of a file in parts.

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def url(self) -> str:
        """Where the repository's files are listed at this commit."""
        return f"{ENDPOINT}/{self.repository}/tree/{self.revision}"


def kept_gguf(name: str, mix: str | None = None, revision: str | None = None) -> GgufFile | None:
    """Return the header of a repository's file that was fetched before, or None; opens no connection."""
    with guard(f"model {shorten(name)}", _READ):
        folder = _kept_folder(name, revision, "gguf", None)
        if folder is None:
            return None
        parts = gguf_parts((path.name for path in folder.iterdir()), mix)
        return GgufFile(name, folder.name, mix, folder / parts[0]) if parts else None


def fetch_gguf(name: str, mix: str | None = None, revision: str | None = None) -> GgufFile:
    """Fetch the header of a repository's GGUF file, of every part, and keep it.

    Without a ``mix`` (``Q4_K_M``, ``UD-Q4_K_XL``) it is the file that llama-server takes; without a revision, the main branch.

    Raises:
        InputError: If the repository is missing, gated or not reachable, or has no such file.
    """
    hub, asked = _asked(name, revision, None)
    with guard(f"model {name}", _ASKED):
        commit, files = hub.listing(asked)
        parts = chosen_parts(name, files, mix)
        home = _home(None, name)
        folder = home / "gguf" / commit
        folder.mkdir(parents=True, exist_ok=True)
        for part in parts:
            path = folder / Path(part).name
            if not _is_gguf_header(path):
                _write_whole(path, _gguf_header(hub, commit, part))
        _write_ref(home, asked, commit)
        return GgufFile(name, commit, mix, folder / Path(parts[0]).name)


def _is_gguf_header(path: Path) -> bool:
    """Whether a file holds a whole header."""
    if not path.is_file():
        return False
    try:
        with guard(path.name, "a GGUF file"):
            return header_bytes(path.read_bytes(), path.name) is not None
    except InputError:
        return False


def chosen_parts(name: str, files: Iterable[str], mix: str | None) -> tuple[str, ...]:
    """Return what :func:`gguf_parts` chooses.

    Raises:
        InputError: If the repository has no such file.
    """
    files = tuple(files)
    if parts := gguf_parts(files, mix):
        return parts
    stems = [stem for file in files if (stem := stem_of(file)) and not _NO_MODEL.search(file.lower())]
    if not stems:
        raise InputError(f"model {name}: found no GGUF file; allowed: a repository of GGUF files")
    mixes = sorted({found for stem in stems if (found := mix_of(stem))})
    listed = ", ".join(mixes[:40]) or "a file of the repository"
    raise InputError(f"model {name}: found no file for {mix}; allowed: {listed}")


def gguf_parts(files: Iterable[str], mix: str | None) -> tuple[str, ...]:
    """Choose the file of a mix among a repository's: all its parts in order; empty if there is none.

    Without a mix it is Q4_K_M, else the first file, as llama-server chooses (``common/download.cpp``). Image
    projectors and importance matrices are no models.
    """
    models: dict[str, list[str]] = {}
    for file in sorted(files):
        stem = stem_of(file)
        if stem is not None and not _NO_MODEL.search(file.lower()):
            models.setdefault(stem, []).append(file)
    if mix is not None and not is_mix_name(mix):
        return ()
    wanted = [mix] if mix is not None else ["Q4_K_M", ""]
    for one in wanted:
        # A name that ends in the mix comes before one with more words: Q4_K_M before UD-Q4_K_M.
        ending = re.compile(rf"(?:^|[-._/]){re.escape(one)}$" if one else "", re.IGNORECASE)
        fitting = sorted((stem for stem in models if ending.search(stem)), key=lambda stem: (len(stem), stem))
        if fitting:
            return tuple(models[fitting[0]])
    return ()


def _gguf_header(hub: HubClient, commit: str, name: str) -> bytes:
    """The header of a GGUF file, asked for in growing steps, since nothing says how long it is."""
    data, step = b"", GGUF_STEP_BYTES
    while len(data) < MAX_BYTES:
        more = hub.file(commit, name, first=step, start=len(data))
        data += more
        length = header_bytes(data, Path(name).name)
        if length is not None:
            return data[:length]
        if len(more) < step:
            break
        step = len(data)
    raise InputError(f"model {hub.name}: found {name} without a whole header; allowed: a GGUF file")


def _keep(folder: Path, hub: HubClient, commit: str, files: Iterable[str]) -> None:
    """Fetch what is wanted into a folder of its own and move it into place at the end."""
    present = frozenset(files)
    configs = [name for name in _CONFIGS if name in present]
    if not configs:
        gguf = any(name.endswith(".gguf") for name in present)
        raise InputError(
            f"model {hub.name}: found {'GGUF files and ' if gguf else ''}no config.json; allowed: a repository with "
            f"a config.json{', or the path of one of its GGUF files' if gguf else ''}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".fetching-"))
    try:
        index = next((name for name in INDEXES if name in present), None)
        beside = [name for name in QUANTIZER_FILES if name in present]
        for name in (*configs[:1], *beside, *([index] if index else ())):
            (made / name).write_bytes(hub.file(commit, name))
        if index is None and _SINGLE in present:
            (made / _SINGLE).write_bytes(_header(hub, commit))
        digests = {path.name: _digest(path) for path in sorted(made.iterdir())}
        (made / _DIGESTS).write_text(json.dumps(digests), encoding="utf-8")
        fault = fault_of(made)
        if fault is not None:
            said = str(fault).replace(f"{made}{os.sep}", "")
            raise InputError(f"model {hub.name}: {said}; nothing was kept")
        try:
            made.rename(folder)
        except OSError:
            # Somebody else fetched the same commit meanwhile, and it is the same; or what is there is damaged.
            if not folder.is_dir():
                raise
            if fault_of(folder) is not None:
                shutil.rmtree(folder)
                made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _header(hub: HubClient, commit: str) -> bytes:
    """The header of a single safetensors file, and nothing of its data."""
    begin = hub.file(commit, _SINGLE, first=8)
    length = int.from_bytes(begin, "little")
    if len(begin) < 8 or not 2 <= length <= MAX_HEADER_BYTES:
        raise InputError(f"model {hub.name}: found {_SINGLE} without a header; allowed: a safetensors file")
    return begin + hub.file(commit, _SINGLE, first=length, start=8)


def _home(cache: Path | None, name: str) -> Path:
    return (cache or cache_folder()) / name.replace("/", "--")


def _is_revision(revision: str) -> bool:
    return _REVISION.fullmatch(revision) is not None and ".." not in revision and "//" not in revision


def _ref(home: Path, revision: str) -> str | None:
    try:
        commit = (home / "refs" / quote(revision, safe="")).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if SHA.fullmatch(commit) else None


def _write_ref(home: Path, revision: str, commit: str) -> None:
    path = home / "refs" / quote(revision, safe="")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(path, f"{commit}\n".encode())


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step: nobody finds half of it."""
    if path.is_dir():
        shutil.rmtree(path)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".part-", delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
