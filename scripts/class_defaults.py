"""Print what transformers' config classes fill in, for the checkpoints that their documentation names.

    PYTHON scripts/class_defaults.py > defaults.json

PYTHON is an interpreter with the release of transformers that is asked about: the package's code runs here and nowhere
else. Each class is made without arguments, so its values are its defaults and what its code makes of them.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_PER_LAYER: Final = re.compile(r"layer|attn|attention_types|pattern|block")
_WINDOW: Final = re.compile(r"window$|pattern$|^full_attention_interval$")
"""Keys that decide what each layer remembers: left open by a class, they differ in the checkpoint."""


def checkpoints(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the checkpoint that each class's documentation names, with the class."""
    for node in (one for one in tree.body if isinstance(one, ast.ClassDef)):
        for one in node.decorator_list:
            for word in one.keywords if isinstance(one, ast.Call) else ():
                if word.arg == "checkpoint" and isinstance(word.value, ast.Constant):
                    yield str(word.value.value), node.name


def left(config: Any) -> tuple[list[str], list[str]]:
    """Return the keys of layers that code filled in, and the keys of windows that stay open, by their class."""
    filled: list[str] = []
    unset: list[str] = []
    for key, value in vars(config).items():
        name = f"{type(config).__name__}.{key}"
        if hasattr(value, "to_json_string"):
            below = left(value)
            filled += below[0]
            unset += below[1]
        elif value is None and _WINDOW.search(key):
            unset.append(name)
        elif value is not None and getattr(type(config), key, "") is None and _PER_LAYER.search(key):
            filled.append(name)
    return filled, unset


def main() -> int:
    """Print the classes as JSON."""
    root = Path(str(importlib.import_module("transformers").__file__)).parent / "models"
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(root.glob("*/configuration_*.py")):
        for id_, name in checkpoints(ast.parse(path.read_text(encoding="utf-8"))):
            # The last class of a file is the whole model's.
            made = found[id_] = {"class": name, "path": path.relative_to(root.parents[1]).as_posix()}
            try:
                module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
                config = getattr(module, name)()
                made["config"] = json.loads(config.to_json_string(use_diff=False))
                made["filled"], made["open"] = left(config)
            except Exception as error:  # noqa: BLE001 - whatever a package's code does is its class's reason
                made["error"] = f"{type(error).__name__}: {error}"[:160]
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
