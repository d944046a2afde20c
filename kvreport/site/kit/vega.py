"""The chart library that a browser loads when the first chart comes into view.

vl-convert carries Vega, Vega-Lite and Vega-Embed in exactly the version that drew the static
charts. The bundle is written beside the site and never committed.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Final

from kvreport.build_cache import read_sealed, write_sealed

_SNIPPET: Final = "window.vegaEmbed = vegaEmbed;"


def vegalite_version() -> str:
    """Return the version of Vega-Lite that Altair writes, as vl-convert names it."""
    import altair as alt

    major, minor, *_ = alt.SCHEMA_VERSION.lstrip("v").split(".")
    return f"{major}.{minor}"


def bundle(cache: Path) -> bytes:
    """Return the bundle, from the cache where it is there."""
    # Altair takes longer to load than the bundle to read, and its version says which Vega-Lite it writes.
    kept = cache / f"vega-{version('altair')}-{version('vl-convert-python')}.sealed"
    content = read_sealed(kept)
    if content is None:
        import vl_convert

        content = vl_convert.javascript_bundle(_SNIPPET, vl_version=vegalite_version()).encode()
        write_sealed(kept, content)
    return content
