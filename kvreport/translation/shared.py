"""The words that Python and the browser share (``words.json``), and those of a site's own ``mkdocs.yml``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from kvreport.translation.text import Say, has_words

CODE: Final = frozenset(
    [
        "verdicts",
        "limit_names",
        "serving_verdicts",
        "serve",
        "online_weights",
        "two_byte_kv",
        "fewer_requests",
        "no_room",
        "request_steps",
        "trace",
    ]
)
"""Sections of ``words.json`` that are names for programs."""


def translate_words(source: str, say: Say) -> str:
    """Return ``words.json`` with its words translated; names for programs stay.

    Args:
        source: The file.
        say: Gives translations.
    """
    lines = source.splitlines()

    def said(text: str) -> str:
        written = json.dumps(text, ensure_ascii=False)
        line = next((n for n, one in enumerate(lines, 1) if written in one), 1)
        return _said(text, say, line)

    held = {key: part if key in CODE else _each(part, said) for key, part in json.loads(source).items()}
    return json.dumps(held, ensure_ascii=False, indent=2) + "\n"


def translate_settings(config: Any, say: Say) -> None:  # noqa: ANN401 - the host's settings, or a file's
    """Translate the labels, the description and the copyright of a ``mkdocs.yml``, in place.

    Args:
        config: The settings.
        say: Gives translations.
    """
    config["nav"] = _navigation(config["nav"], say)
    for name in ("site_description", "copyright"):
        if config[name]:
            config[name] = _said(config[name], say, 1)
    toc = (config.get("mdx_configs") or {}).get("toc") or {}
    if toc.get("permalink_title"):
        toc["permalink_title"] = _said(toc["permalink_title"], say, 1)
    for palette in config["theme"]["palette"] or ():
        toggle = palette.get("toggle") if isinstance(palette, dict) else None
        if toggle and toggle.get("name"):
            toggle["name"] = _said(toggle["name"], say, 1)


def _navigation(nav: Any, say: Say) -> Any:  # noqa: ANN401 - lists of labels and addresses
    if isinstance(nav, list):
        return [_navigation(one, say) for one in nav]
    if isinstance(nav, dict):
        return {_said(label, say, 1): _navigation(one, say) for label, one in nav.items()}
    return nav


def _said(text: str, say: Say, line: int) -> str:
    return (say(text, line) or text) if has_words(text) else text


def _each(part: Any, said: Callable[[str], str]) -> Any:  # noqa: ANN401 - a part of a JSON file
    if isinstance(part, str):
        return said(part)
    if isinstance(part, list):
        return [_each(one, said) for one in part]
    if isinstance(part, dict):
        return {key: _each(one, said) for key, one in part.items()}
    return part
