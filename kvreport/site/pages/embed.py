"""An embeddable card: one small page that shows a model on an accelerator, for frames on other sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
<title>Requests that fit</title>
<link rel="stylesheet" href="../assets/kv-embed.css">
<script src="../assets/kv-embed.js" defer></script>
</head>
<body data-kv-embed="../badge/"><p><a href="../" target="_blank" rel="noopener">Requests that fit</a></p></body>
</html>
"""


def files(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the card's page, which stands in ``folder``; its numbers are the badges'."""
    yield f"{folder}/index.html", _PAGE.encode()
