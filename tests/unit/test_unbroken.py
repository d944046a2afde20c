"""Commands on a page: their lines break at spaces, and their text is unchanged."""

from __future__ import annotations

import html
import re

import pytest

from kvreport.site.kit.templating import unbroken


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve org/model --max-model-len 8192",
        "kvreport log <start-up.log> && echo 'a-b'",
        "no hyphen",
        "",
    ],
)
def test_what_has_a_hyphen_is_one_piece_and_the_text_is_kept(command):
    shown = str(unbroken(command))
    assert html.unescape(re.sub(r"</?span[^>]*>", "", shown)) == command
    pieces = [html.unescape(one) for one in re.findall(r'<span class="kv-word">(.*?)</span>', shown)]
    assert pieces == [word for word in command.split() if "-" in word]
