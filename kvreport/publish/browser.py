"""The script that the site's own scripts compute with: formulas and words generated from Python.

``assets/kv-kernel.js`` sets ``kvKernel``: the functions of :mod:`kvreport.accounting.kernel` and
:mod:`kvreport.plot` under their JavaScript names, its constants, and the words of :mod:`kvreport.words` as ``kvKernel.words``.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from typing import Any, Final

from kvreport import plot, query, words
from kvreport.accounting import kernel
from kvreport.estimation import remedies
from kvreport.publish.javascript import PRELUDE, Translation, translate

ADDRESS: Final = "assets/kv-kernel.js"
"""Where the script stands in the site."""

_HEAD: Final = """\
/* Generated from kvreport/accounting/kernel.py and kvreport/words.json when the site was built. */
(function (root) {
"use strict";
"""


def shared_words() -> dict[str, Any]:
    """Return the words that scripts read: the file of words, and what code declares once for both sides."""
    options = [option for option in query.options() if option.url]
    return words.ALL | {
        "url_keys": query.url_keys(),
        "flags": {option.name: option.flags[0] for option in options},
        "levers": remedies.LEVERS,
    }


@cache
def _translation() -> Translation:
    return translate("\n".join(inspect.getsource(module) for module in (kernel, plot)))


def script() -> str:
    """Return the script."""
    made = _translation()
    written = json.dumps(shared_words(), ensure_ascii=False, separators=(",", ":"))
    return "\n".join(
        [
            _HEAD,
            PRELUDE,
            made.body,
            f"const words = {written};",
            f"root.kvKernel = Object.freeze({{ words, {', '.join(made.names)} }});",
            '})(typeof globalThis === "object" ? globalThis : this);\n',
        ]
    )


def declarations() -> str:
    """Return the script's types, as TypeScript declares them."""
    made = _translation()
    members = "\n".join(
        f"  readonly {one}" if ":" in one.split("(")[0] else f"  {one}" for one in made.declarations
    )
    types = "\n".join(made.types)
    return f"{types}\n\ninterface Kernel {{\n  readonly words: {_shape(shared_words())};\n{members}\n}}\n"


def _shape(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the type of a JSON value; objects are read by keys that data names."""
    if isinstance(value, dict):
        shapes = dict.fromkeys(_shape(one) for one in value.values())
        if len(shapes) == 1:
            return f"{{ readonly [name: string]: {next(iter(shapes))} }}"
        return f"{{ {'; '.join(f'readonly {name}: {_shape(one)}' for name, one in value.items())} }}"
    if isinstance(value, list):
        return f"readonly ({_shape(value[0])})[]" if value else "readonly string[]"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"
