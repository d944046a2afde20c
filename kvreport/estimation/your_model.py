"""A model that a reader brings, answered as plain objects: what the page "Your model" runs in the browser.

The page hands over files as they are: a ``config.json``, files that lie beside it, or the beginning of a GGUF file.
Everything here is the library's own reading and arithmetic; only the shape of the answers belongs to the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any, Final

from kvreport.accounting.weights import active_parameters, parameters, parameters_by_component
from kvreport.architectures.gguf import GgufModel, read_gguf
from kvreport.architectures.gguf_header import header_bytes
from kvreport.architectures.hub import GgufFile, chosen_parts, is_repository_id
from kvreport.architectures.not_a_config import CONFIG_FILES
from kvreport.architectures.quantizer_files import FILES as QUANTIZER_FILES
from kvreport.architectures.reader import DEFAULTS_TAKEN
from kvreport.architectures.safetensors import INDEXES
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.dump import dump_model
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError, shorten
from kvreport.estimation.answer import Estimate
from kvreport.estimation.estimate import estimate
from kvreport.estimation.home_estimate import said_of_file
from kvreport.estimation.home_names import gguf_repository, read_fetched, said_of_header
from kvreport.estimation.opened import Opened
from kvreport.estimation.opening import open_folder
from kvreport.query import SERVER_ENGINE

FILES: Final = (*CONFIG_FILES, *QUANTIZER_FILES, *INDEXES)
"""Files that a repository may have and that are read, by name."""

SIZES: Final = (1, 2, 4, 8)
"""Tensor-parallel sizes that the table of GPUs tries, smallest first."""

ENGINES: Final = ("vllm", "sglang", "tensorrt-llm", "transformers", "llama-cpp")
"""Engines that the page offers for a checkpoint."""

GGUF_ENGINES: Final = ("llama-cpp", "ollama")
"""Engines that the page offers for a GGUF file."""

MAX_FILES: Final = 20

UNNAMED: Final = "local/your-model"
"""What a config without a name of its own is called."""


@dataclass(frozen=True, slots=True)
class YourModel:
    """One model that a reader brought, and questions about it."""

    opened: Opened  # The model with what has to be said about how it was read.
    catalog: Catalog  # Accelerators, engines and formats.
    gguf: GgufModel | None = None  # The GGUF file that it was read from, which llama.cpp's tensors come from.
    # What a command is to read, as it is typed: a file's name, or a Hub id with ``--fetch``.
    source: str = "config.json"

    @classmethod
    def read(
        cls,
        files: Mapping[str, bytes],
        catalog: Catalog,
        *,
        name: str = "",
        revision: str = "",
        assume_defaults: bool = False,
    ) -> YourModel:
        """Read a model from files.

        ``files``: content by file name; of a GGUF file, at least its header. ``name``: a Hub id, with the mix
        of a GGUF repository (``org/name-GGUF:Q4_K_M``), or a name of the reader's own; "" takes what the
        files say. ``revision``: the commit of the Hub's repository that the files are of.
        ``assume_defaults``: True to take a class's published defaults for dimensions that a config leaves
        out.

        Raises:
            InputError: In one sentence, if there is nothing to read or it cannot be read.
        """
        if not 0 < len(files) <= MAX_FILES:
            raise InputError(f"files: found {len(files)}; allowed: 1 to {MAX_FILES}")
        with TemporaryDirectory() as folder:
            home = Path(folder, UNNAMED.rpartition("/")[2])
            home.mkdir()
            for file, content in files.items():
                (home / _plain(file)).write_bytes(content)
            found = (
                _opened_fetched(home, sorted(files), catalog, name, revision)
                if gguf_repository(name)
                else _opened(home, sorted(files), catalog, name, assume_defaults=assume_defaults)
            )
            first = min((file for file in files if file.lower().endswith(".gguf")), default="config.json")
            known = is_repository_id(name) or gguf_repository(name)
            return cls(*found, source=f"{quote(name)} --fetch" if known else quote(first.rpartition("/")[2]))

    @property
    def model(self) -> Model:
        """The model's record."""
        return self.opened.model

    def describe(self) -> dict[str, Any]:
        """What the model is: dimensions, weights, caches, and what was assumed about them."""
        model = self.model
        return {
            "id": model.id,
            "name": "Your model" if model.id == UNNAMED else model.name,
            "source": self.source,
            "architecture": model.architecture,
            "context_tokens": model.context_tokens,
            "weight_format": model.weight_format,
            "parameters": parameters(model),
            "active_parameters": active_parameters(model),
            "by_component": {str(part): count for part, count in parameters_by_component(model).items()},
            "experts": None if model.experts is None else [model.experts.per_token, model.experts.routed],
            "layers": [
                {
                    "count": group.count,
                    "caches": [
                        {
                            key: value
                            for key, value in cache.model_dump(mode="json").items()
                            if value is not None
                        }
                        for cache in group.caches
                    ],
                }
                for group in model.layers
            ],
            "tensors": [
                [row.name, str(row.component), list(row.shape), row.count, row.released]
                for row in model.weights
            ],
            "assumptions": list(self.opened.assumptions),
            "not_read": list(self.opened.not_read),
            "notes": [note for note in model.notes if not note.startswith(DEFAULTS_TAKEN)],
            "record": dump_model(model),
            "choices": self._choices(),
        }

    def _choices(self) -> dict[str, Any]:
        """What the page's fields offer."""
        catalog = self.catalog
        engines = ENGINES if self.gguf is None else GGUF_ENGINES
        own = self.gguf is not None
        return {
            "gpus": [[one.id, one.name, one.usable_bytes] for one in catalog.accelerators.values()],
            "engines": [[name, catalog.engine(name).label] for name in engines if name in catalog.engines],
            "weights": []
            if own
            else [
                [form.name, form.label]
                for form in catalog.formats.weights
                if form.name in catalog.grid.weight_formats
            ],
            "kv": [] if own else [[form.name, form.label] for form in catalog.formats.kv],
        }

    def estimate(self, gpu: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of Query
        """One estimate, as ``kvreport estimate --format json`` prints it, with the flag that bounds requests.

        Raises:
            InputError: If the combination is impossible.
        """
        if self.gguf is not None:
            options.pop("tensor_parallel", None)
        found = self._estimate(gpu, **options)
        return {**found.to_dict(), "most_requests_flag": found.most_requests_flag}

    def gpus(self, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - fields of Query
        """For every GPU, the fewest that serve one request of the context, and how many requests those serve.

        A row of a GPU on which nothing of :data:`SIZES` serves a request has the answer of the largest size and says why.
        """
        return [self._row(gpu, options) for gpu in self.catalog.accelerators.values()]

    def _row(self, gpu: Accelerator, options: Mapping[str, Any]) -> dict[str, Any]:
        found: Estimate | None = None
        reason = ""
        for size in self._sizes(gpu):
            split: dict[str, Any] = {"tensor_parallel": size} if self.gguf is None else {}
            try:
                found = self._estimate(gpu.id, **{**options, **split})
            except InputError as error:
                reason = str(error)
                continue
            if found.max_concurrent_requests:
                break
        row = {"id": gpu.id, "name": gpu.name, "vendor": gpu.vendor, "usable_bytes": gpu.usable_bytes}
        if found is None:
            return {**row, "gpus": None, "requests": 0, "verdict": "impossible", "reason": reason}
        return {
            **row,
            "gpus": found.request.tensor_parallel,
            "requests": found.max_concurrent_requests,
            "max_context_tokens": found.max_context_tokens,
            "verdict": found.verdict,
            "limited_by": found.limited_by,
            "shortfall_bytes": found.shortfall_bytes,
            "weights": found.budget.weights,
            "reason": found.verdict_reason,
        }

    def _sizes(self, gpu: Accelerator) -> Sequence[int]:
        if self.gguf is not None:
            return (1,)
        most = gpu.devices_per_node or SIZES[-1]
        return [size for size in SIZES if size <= most] or [1]

    def _estimate(self, gpu: str, **options: Any) -> Estimate:  # noqa: ANN401
        asked: Any = self.model if self.gguf is None else self.gguf
        usual = {} if self.gguf is not None else {"engine": SERVER_ENGINE}
        return estimate(asked, gpu=gpu, catalog=self.catalog, **{**usual, **options})


def _opened_fetched(
    home: Path, names: Sequence[str], catalog: Catalog, name: str, revision: str
) -> tuple[Opened, Catalog, GgufModel | None]:
    """A GGUF repository's file, as ``--fetch`` reads it."""
    repository, mix = gguf_repository(name) or (name, None)
    file = GgufFile(repository, revision, mix, home / _plain(names[0]))
    read = read_fetched(file)
    return Opened(read.model, (said_of_header(file), *said_of_file(read))), catalog, read


def _opened(
    home: Path, names: Sequence[str], catalog: Catalog, name: str, *, assume_defaults: bool
) -> tuple[Opened, Catalog, GgufModel | None]:
    gguf = [file for file in names if file.lower().endswith(".gguf")]
    if gguf:
        if len(gguf) > 1 and "-of-" not in gguf[0]:
            raise InputError(f"files: found {len(gguf)} GGUF files; allowed: one, or all parts of one model")
        file = read_gguf(home / _plain(gguf[0]))
        return Opened(file.model, tuple(said_of_file(file))), catalog, file
    configs = [file for file in names if file in CONFIG_FILES]
    if not configs:
        jsons = [file for file in names if file.lower().endswith(".json") and file not in FILES]
        if len(jsons) != 1:
            raise InputError(
                f"files: found {shorten(', '.join(names))}; allowed: a config.json, alone or with the other "
                "files of its folder, or a GGUF file"
            )
        (home / _plain(jsons[0])).rename(home / "config.json")
    fields: dict[str, Any] = {"where": "config.json", "assume_defaults": assume_defaults}
    if name:
        fields["id"] = name if is_repository_id(name) else f"local/{_plain(name)[:90]}"
    return open_folder(home, catalog, **fields), catalog, None


def _plain(name: str) -> str:
    """A name as a file's: no folder, no odd sign."""
    clean = "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name.rpartition("/")[2])
    return clean.strip("-.") or "config.json"


class Session:
    """What the page talks to: one model at a time, texts in and texts out.

    Every answer is ``{"result": ...}``, or ``{"error": sentence}``.
    """

    def __init__(self, catalog: Catalog | None = None) -> None:
        """Open the facts; there is no model yet."""
        self.catalog = open_catalog() if catalog is None else catalog
        self.model: YourModel | None = None

    def read(self, given: Mapping[str, Any]) -> str:
        """Read a model and describe it.

        Args:
            given: ``files`` (content by name), ``name``, ``revision`` and ``assume_defaults`` as :meth:`YourModel.read`
                takes them.
        """
        files = {name: bytes(content) for name, content in given["files"].items()}

        def described() -> dict[str, Any]:
            self.model = YourModel.read(
                files,
                self.catalog,
                name=given.get("name") or "",
                revision=given.get("revision") or "",
                assume_defaults=bool(given.get("assume_defaults")),
            )
            return self.model.describe()

        return _answered(described)

    def parts(self, given: Mapping[str, Any]) -> str:
        """Choose the GGUF file of a repository, as ``--fetch`` does.

        Args:
            given: ``repository`` with its mix, if any, and the names of its ``files``.

        Returns:
            The names of all parts of the file, in order.
        """
        repository, mix = gguf_repository(given["repository"]) or (given["repository"], None)
        return _answered(lambda: chosen_parts(repository, given["files"], mix))

    def header(self, given: Mapping[str, Any]) -> str:
        """Say how long the header is that a GGUF file begins with; null if it goes on.

        Args:
            given: ``name`` and the ``first`` bytes of the file.
        """
        return _answered(lambda: header_bytes(bytes(given["first"]), given["name"]))

    def question(self, text: str) -> str:
        """Answer a question about the model.

        Args:
            text: JSON with ``ask`` (``estimate`` or ``gpus``) and ``options``.
        """
        asked = json.loads(text)
        if self.model is None:
            return json.dumps({"error": "no model was read yet"})
        call: Callable[..., object] = self.model.gpus if asked["ask"] == "gpus" else self.model.estimate
        return _answered(lambda: call(**asked["options"]))


def _answered(ask: Callable[[], object]) -> str:
    """What a question gives, or the sentence of its error."""
    try:
        return json.dumps({"result": ask()}, default=str)
    except InputError as error:
        return json.dumps({"error": str(error)})
