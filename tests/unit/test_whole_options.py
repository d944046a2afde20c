"""Options of commands are kept whole at the end of a line, on every page, and nothing else is changed."""

from __future__ import annotations

import re

from kvreport.adapters.theme_patches import whole_options

PAGE = """<html><head><title>--max-model-len</title></head><body data-x="--a-b"><p>Raise --max-model-len or <code>-np 4</code>.</p>
<!-- --not-this --><script>let a = "--not-this";</script><textarea>--nor-this</textarea><p>llama-3.1, 3 - 1, a--b, 2026-11</p></body></html>"""


def test_options_in_text_are_whole_and_nothing_else_changes() -> None:
    made = whole_options(PAGE)
    assert re.findall(r'<span class="kv-option">(.*?)</span>', made) == ["--max-model-len", "-np"]
    assert re.sub(r'<span class="kv-option">(.*?)</span>', r"\1", made) == PAGE
