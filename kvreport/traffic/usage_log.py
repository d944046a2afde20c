"""Requests from a server's own log: lines that state prompt and completion tokens.

SGLang writes them with ``--log-requests`` (``Finish: obj=GenerateReqInput(received_time=…), out={'meta_info':
{'prompt_tokens': …, 'completion_tokens': …}}``); gateways and OpenAI-compatible servers write JSON lines with a
``usage`` object. A line without both counts is passed over. vLLM's own request log does not state output
lengths, so it cannot be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from kvreport.errors import InputError
from kvreport.traffic.trace import TracedRequest

_PROMPT: Final = re.compile(r"""["']?(?:prompt_tokens|input_tokens)["']?\s*[:=]\s*(-?\d+)""")
_OUTPUT: Final = re.compile(r"""["']?(?:completion_tokens|output_tokens)["']?\s*[:=]\s*(-?\d+)""")
_EPOCH: Final = re.compile(
    r"""["']?(?:received_time|created|created_at|timestamp|time|ts|start_time)["']?\s*[:=]\s*(\d{9,}(?:\.\d+)?)"""
)
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)")
_LATENCY: Final = re.compile(r"""["']?e2e_latency["']?\s*[:=]\s*(\d+(?:\.\d+)?)""")


def log_requests(lines: Iterable[str], name: str) -> Iterator[TracedRequest]:
    """Read requests from a log, in the order of their arrival where the log states it.

    A line's time is the arrival (``received_time``, ``created``), else the time of the line less the
    request's latency. All requests are held until the end, because a log is in order of completion.

    Raises:
        InputError: If no line states both counts.
    """
    found: list[tuple[float, int, int]] = []
    for line in lines:
        prompt, output = _PROMPT.search(line), _OUTPUT.search(line)
        if prompt and output:
            found.append((_arrival(line), int(prompt[1]), int(output[1])))
    if not found:
        raise InputError(
            f"{name}: found no line with prompt_tokens and completion_tokens; allowed: Mooncake JSONL, "
            "sessions, CSV with lengths, or a log that states both counts"
        )
    first = min(moment for moment, _, _ in found)
    for moment, prompt_tokens, output_tokens in sorted(found, key=lambda one: one[0]):
        yield TracedRequest(moment - first, prompt_tokens, output_tokens)


def _arrival(line: str) -> float:
    if epoch := _EPOCH.search(line):
        value = float(epoch[1])
        # Milliseconds and nanoseconds since 1970 are told from seconds by their size.
        for scale in (1e17, 1e14, 1e11):
            if value > scale:
                return value / {1e17: 1e9, 1e14: 1e6, 1e11: 1e3}[scale]
        return value
    if date := _DATE.search(line):
        text = f"{date[1]}T{date[2].replace(',', '.')}"
        try:
            moment = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return 0.0
        latency = _LATENCY.search(line)
        return moment - (float(latency[1]) if latency else 0.0)
    return 0.0
