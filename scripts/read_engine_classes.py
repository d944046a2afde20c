"""Write the model classes that one release of an engine serves, read from its unpacked package, to the engine's list.

    python scripts/read_engine_classes.py vllm 0.33.0 FOLDER [--data data]

FOLDER holds the package as its archive does (``FOLDER/vllm/model_executor/...``, ``FOLDER/vllm-0.33.0.dist-info/METADATA``).
Nothing is imported or fetched: Python files are parsed. The release is added to ``data/engines/FAMILY/classes.yaml``,
or read anew where it is there, and the file's differences are made again. Read transformers first: lists of the other
engines name its newest release that they allow.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from kvreport.catalog.base import Source
from kvreport.catalog.engine_classes import (
    FILE,
    FOLDER,
    Classes,
    ClassLists,
    EngineClasses,
    compressed,
    release_key,
    written,
)

Modules = Iterable[tuple[Path, ast.Module]]
BACKEND_MODULE: Final = "transformers"
"""Module of vLLM's and SGLang's backends that run transformers' own implementations."""
DRAFTS: Final = "_SPECULATIVE_DECODING_MODELS"
"""vLLM's table of draft models, which it serves with another model alone."""
GENERATORS: Final = (
    "MODEL_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_VISION_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
)
"""transformers' tables of classes that write, embed or classify text."""
CLASSES_OF_TYPES: Final = GENERATORS[1:-1]


def fail(message: str) -> NoReturn:
    """End with a message for the person who runs the script."""
    raise SystemExit(f"error: {message}")


def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    if not path.is_file():
        fail(f"found no {path}; allowed: the folder of an unpacked package")
    return ast.parse(path.read_text(encoding="utf-8-sig"))


def tables(tree: ast.Module) -> dict[str, dict[str, ast.expr]]:
    """Return the module's dictionaries with texts as keys, by name: ``{...}`` and ``OrderedDict([(...)])``."""
    found: dict[str, dict[str, ast.expr]] = {}
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name):
            found[target.id] = dict(_pairs(node.value))
    return found


def _pairs(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, item
    elif isinstance(value, ast.Call) and value.args and isinstance(value.args[0], (ast.List, ast.Tuple)):
        for pair in value.args[0].elts:
            if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[0], ast.Constant):
                yield str(pair.elts[0].value), pair.elts[1]


def texts(node: ast.expr) -> list[str]:
    """Return the texts of a constant, or of a tuple or list of constants."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def of_vllm(folder: Path, transformers: Sequence[str]) -> Classes:
    """``model_executor/models/registry.py``: the tables that ``_VLLM_MODELS`` joins, but for drafts."""
    tree = parsed(folder / "vllm/model_executor/models/registry.py")
    known = tables(tree)
    joined = next(
        (
            [part.id for part in node.value.values if isinstance(part, ast.Name)]
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "_VLLM_MODELS"
            and isinstance(node.value, ast.Dict)
        ),
        [],
    )
    if not joined:
        fail("registry.py: found no _VLLM_MODELS that joins tables")
    own: set[str] = set()
    backend: set[str] = set()
    falls_back = False
    for name in joined:
        for architecture, where in known.get(name, {}).items():
            module = (texts(where) or [""])[0]
            if architecture.startswith("Transformers"):
                falls_back = falls_back or module == BACKEND_MODULE
            elif name != DRAFTS:
                (backend if module == BACKEND_MODULE else own).add(architecture)
    endings, pooled = _endings_of_vllm(folder, tree)
    return Classes(
        own=frozenset(own),
        backend=frozenset(backend),
        transformers=newest_allowed(folder, "vllm", transformers) if falls_back else "",
        endings=endings,
        pooled_endings=pooled,
    )


def _endings_of_vllm(folder: Path, registry: ast.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``_SUFFIX_TO_DEFAULTS``, by which ``_normalize_arch`` finds a class under another ending: who writes, who pools."""
    text = ast.unparse(registry)
    if ".replace('ForSequenceClassification', 'ForCausalLM')" in text:
        return ("ForCausalLM",), ("ForSequenceClassification",)
    if "try_match_architecture_defaults" not in text:
        return (), ()
    for path in ("vllm/config/model.py", "vllm/config/__init__.py", "vllm/config.py"):
        if not (folder / path).is_file():
            continue
        for node in parsed(folder / path).body:
            target = node.target if isinstance(node, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and target.id == "_SUFFIX_TO_DEFAULTS":
                assert isinstance(node, ast.AnnAssign)
                assert isinstance(node.value, ast.List)
                pairs = [ast.literal_eval(pair) for pair in node.value.elts]
                return (
                    tuple(ending for ending, (runner, _) in pairs if runner == "generate"),
                    tuple(ending for ending, (runner, _) in pairs if runner == "pooling"),
                )
    fail("found no _SUFFIX_TO_DEFAULTS in vllm/config, which the registry uses")


def of_sglang(folder: Path, transformers: Sequence[str]) -> Classes:
    """``srt/models``: the classes that each module names in ``EntryClass``."""
    models = folder / "sglang/srt/models"
    own = {
        name for _, tree in modules(models) for name in _entries(tree) if not name.startswith("Transformers")
    }
    falls_back = (models / f"{BACKEND_MODULE}.py").is_file()
    return Classes(
        own=frozenset(own), transformers=newest_allowed(folder, "sglang", transformers) if falls_back else ""
    )


def _entries(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "EntryClass" for target in node.targets
        ):
            for part in ast.walk(node.value):
                if isinstance(part, ast.Name):
                    yield part.id


def of_transformers(folder: Path, _: Sequence[str]) -> Classes:
    """``models/auto/modeling_auto.py``; in ``backend`` the classes whose ``_supports_attention_backend`` is true."""
    auto = tables(parsed(folder / "transformers/models/auto/modeling_auto.py"))
    own = {name for table in GENERATORS for value in auto.get(table, {}).values() for name in texts(value)}
    able: set[str] = set()
    for _, tree in modules(folder / "transformers/models", "*/modeling_*.py"):
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        able |= {name for name in classes if name in own and _supports_backend(name, classes)}
    return Classes(own=frozenset(own), backend=frozenset(able))


def _supports_backend(name: str, classes: Mapping[str, ast.ClassDef]) -> bool:
    """What ``PreTrainedModel.is_backend_compatible`` returns: the class attribute, its own or of a base in the module."""
    seen: list[str] = []
    waiting = [name]
    while waiting:
        node = classes.get(waiting.pop(0))
        if node is None or node.name in seen:
            continue
        seen.append(node.name)
        for statement in node.body:
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
                if isinstance(statement, ast.AnnAssign)
                else []
            )
            if any(isinstance(one, ast.Name) and one.id == "_supports_attention_backend" for one in targets):
                value = getattr(statement, "value", None)
                return isinstance(value, ast.Constant) and value.value is True
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return False


def of_mlx(folder: Path, _: Sequence[str]) -> Classes:
    """``mlx_lm/models``: a module with a class ``Model`` serves a ``model_type``, others by ``MODEL_REMAPPING``."""
    types = {
        path.stem
        for path, tree in modules(folder / "mlx_lm/models")
        if any(
            "Model" in ([node.name] if isinstance(node, ast.ClassDef) else [one.name for one in node.names])
            for node in tree.body
            if isinstance(node, (ast.ClassDef, ast.ImportFrom))
        )
    }
    utils = tables(parsed(folder / "mlx_lm/utils.py"))
    types |= {old for old, new in utils.get("MODEL_REMAPPING", {}).items() if set(texts(new)) & types}
    return Classes(own=frozenset(name for one in types for name in classes_of_type(one)))


def of_tensorrt_llm(folder: Path, _: Sequence[str]) -> Classes:
    """``_torch/models/_arch_index.py``, and the classes of ``register_auto_model`` where a release has no index."""
    models = folder / "tensorrt_llm/_torch/models"
    index = models / "_arch_index.py"
    own = set(tables(parsed(index)).get("MODEL_ARCH_TO_MODULE", {})) if index.is_file() else set()
    for _, tree in modules(models):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register_auto_model":
                        own |= {name for argument in call.args for name in texts(argument)}
    return Classes(own=frozenset(own))


def of_llama_cpp(folder: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the classes that llama.cpp's converter registers, and the architectures of GGUF files that it loads.

    Args:
        folder: llama.cpp's source: ``conversion/*.py`` (before, ``convert_hf_to_gguf.py``) with ``@ModelBase.register``,
            and ``src/llama-arch.cpp`` with ``LLM_ARCH_NAMES``.
    """
    registered: set[str] = set()
    for path in (folder / "convert_hf_to_gguf.py", *sorted((folder / "conversion").glob("*.py"))):
        for node in ast.walk(parsed(path)) if path.is_file() else ():
            for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "register":
                    registered |= {name for argument in call.args for name in texts(argument)}
    tables = (folder / "src" / "llama-arch.cpp").read_text(encoding="utf-8").partition("LLM_ARCH_NAMES")[2]
    named = re.findall(r'\{\s*LLM_ARCH_\w+,\s*"([^"]+)"\s*\}', tables.partition("};")[0])
    return frozenset(registered), frozenset(named)


def modules(folder: Path, pattern: str = "**/*.py") -> Modules:
    """Yield a folder's Python files with their syntax trees."""
    paths = sorted(folder.glob(pattern)) if folder.is_dir() else []
    if not paths:
        fail(f"found no Python files in {folder}; allowed: the folder of an unpacked package")
    for path in paths:
        yield path, parsed(path)


def newest_allowed(folder: Path, package: str, releases: Sequence[str]) -> str:
    """Return the newest release of transformers, of those read, that a package's metadata allows.

    Where the metadata states a lower bound alone, releases of its own major version are allowed: those that came
    after transformers 5 state it.

    Args:
        folder: The unpacked package.
        package: Its name.
        releases: Releases of transformers that were read, oldest first.
    """
    from packaging.requirements import Requirement

    stated = [
        Requirement(line.removeprefix("Requires-Dist:").strip())
        for path in folder.glob(f"{package}-*.dist-info/METADATA")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("Requires-Dist: transformers")
        and re.match(r"Requires-Dist: transformers[^\w-]", line)
    ]
    if not (releases and stated):
        fail(
            f"{package}: found no requirement of transformers, or no list of transformers; read transformers first"
        )
    wanted = stated[0].specifier
    least = next((one.version for one in wanted if one.operator == ">="), "")
    bounded = any(one.operator in ("<", "<=", "==", "!=") for one in wanted)
    allowed = [
        name
        for name in releases
        if wanted.contains(name, prereleases=True) and (bounded or name.split(".")[0] == least.split(".")[0])
    ]
    if not allowed:
        # A pinned release that was not read: the newest read before it has its classes, but for the very newest.
        pinned = next((one.version for one in wanted if one.operator == "=="), None)
        allowed = [name for name in releases if pinned and release_key(name) <= release_key(pinned)]
    if not allowed:
        fail(
            f"{package}: found {stated[0]}; allowed: a requirement that a read release of transformers meets"
        )
    return allowed[-1]


def classes_of_type(model_type: str) -> frozenset[str]:
    """Classes whose configs have a ``model_type``: of transformers' tables (see ``--transformers``) and of the readers.

    Args:
        model_type: As ``config.json`` has it, or as a module of mlx-lm is named.
    """
    return frozenset(_CLASSES.get(model_type.replace("-", "_"), ()))


_CLASSES: Final[dict[str, set[str]]] = {}


def learn_types(folder: Path | None) -> None:
    """Fill the table of classes by ``model_type``.

    Args:
        folder: An unpacked transformers; None for the readers' own types alone.
    """
    from kvreport.architectures import families, layered, listing

    pairs = [*families.index().model_types.items(), *listing.model_types().items()]
    for name in layered.index().first:
        pairs += [(model_type, name) for model_type in layered.listing(name).model_types]
    for model_type, name in pairs:
        _CLASSES.setdefault(model_type.replace("-", "_"), set()).add(name)
    if folder is None:
        return
    auto = tables(parsed(folder / "transformers/models/auto/modeling_auto.py"))
    for table in CLASSES_OF_TYPES:
        for model_type, value in auto.get(table, {}).items():
            _CLASSES.setdefault(model_type.replace("-", "_"), set()).update(texts(value))


READERS: Final[Mapping[str, Callable[[Path, Sequence[str]], Classes]]] = {
    "vllm": of_vllm,
    "sglang": of_sglang,
    "transformers": of_transformers,
    "mlx": of_mlx,
    "tensorrt_llm": of_tensorrt_llm,
}
"""How each family's package is read."""

SOURCES: Final[Mapping[str, str]] = {
    "vllm": (
        "vLLM, each release's Python package: vllm/model_executor/models/registry.py::_VLLM_MODELS without "
        "_SPECULATIVE_DECODING_MODELS, ::_ModelRegistry._try_resolve_transformers and _normalize_arch, "
        "vllm/config/model.py::_SUFFIX_TO_DEFAULTS, the requirement of transformers in METADATA"
    ),
    "sglang": (
        "SGLang, each release's Python package: sglang/srt/models/*.py::EntryClass, "
        "sglang/srt/model_loader/utils.py::resolve_transformers_arch, the requirement of transformers in METADATA"
    ),
    "transformers": (
        "transformers, each release's Python package: transformers/models/auto/modeling_auto.py::MODEL_*_MAPPING_NAMES "
        "and models/*/modeling_*.py::_supports_attention_backend"
    ),
    "mlx": (
        "mlx-lm, each release's Python package: mlx_lm/models/*.py::Model by model_type, mlx_lm/utils.py::MODEL_REMAPPING; "
        "the classes of a model_type by transformers' modeling_auto.py and the readers of configs"
    ),
    "tensorrt_llm": (
        "TensorRT-LLM: tensorrt_llm/_torch/models/_arch_index.py::MODEL_ARCH_TO_MODULE and @register_auto_model"
    ),
}


def add(family: str, release: str, folder: Path, data: Path, until: str | None = None) -> Path:
    """Read one release and write the family's file with it.

    Args:
        family: For instance ``vllm``.
        release: The release that the folder holds.
        folder: The unpacked package.
        data: The catalog's folder.
        until: The newest release of transformers of that day; None for the newest that was read.

    Returns:
        The file.
    """
    lists = ClassLists(data)
    known = lists.of(family)
    read: dict[str, Classes] = {}
    if known is not None:
        read = {
            name: state
            for change, state in zip(known.changes, known.states(), strict=True)
            for name in change.at
        }
    backed = lists.of("transformers")
    transformers = [name for change in backed.changes for name in change.at] if backed is not None else []
    read[release] = READERS[family](
        folder, [name for name in transformers if until is None or release_key(name) <= release_key(until)]
    )
    sources = (
        known.sources
        if known is not None
        else (Source(covers=("changes",), title=SOURCES[family], evidence="verbatim"),)
    )
    path = data / FOLDER / family / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    outside = None if known is None else known.outside
    made = EngineClasses(family=family, sources=sources, outside=outside, changes=compressed(read))  # type: ignore[arg-type]
    path.write_text(written(made), encoding="utf-8")
    return path


def main(words: list[str]) -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=sorted(READERS))
    parser.add_argument("release", help="release that the folder holds, such as 0.33.0")
    parser.add_argument("folder", type=Path, help="folder of the unpacked package")
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[1] / "data", help="catalog folder"
    )
    parser.add_argument(
        "--transformers", type=Path, help="unpacked transformers, for mlx: classes by model_type"
    )
    parser.add_argument(
        "--until",
        help="newest transformers of the day, for a release that is read later (default: newest read)",
    )
    given = parser.parse_args(words)
    if given.family == "mlx":
        learn_types(given.transformers)
    path = add(given.family, given.release, given.folder, given.data, given.until)
    print(f"{path}: {given.family} {given.release}")


if __name__ == "__main__":
    main(sys.argv[1:])
