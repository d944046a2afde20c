"""Traces as people have them, and what the browser's reader makes of a text (in Deno, without a browser)."""

from __future__ import annotations

import csv
import io
import json
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import javascript

from kvreport import resources
from kvreport.publish import browser
from kvreport.traffic.compact_traces import MAGIC
from kvreport.traffic.trace import Trace

START: Final = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)

CLOCKS: Final = {
    "epoch_s": lambda at: round(START.timestamp() + at, 3),
    "epoch_ms": lambda at: int((START.timestamp() + at) * 1000),
    "epoch_us": lambda at: int((START.timestamp() + at) * 1_000_000),
    "epoch_ns": lambda at: int(START.timestamp() + at) * 1_000_000_000 + round(at % 1 * 1_000_000_000),
    "from_0": lambda at: at,
    "iso_utc": lambda at: (START + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    "iso_zone": lambda at: (START + timedelta(seconds=at)).astimezone(timezone(timedelta(hours=5.5))).isoformat(),
    "iso_plain": lambda at: (START + timedelta(seconds=at)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
}  # fmt: skip
"""How a moment, in seconds since the trace began, is written."""

TIME_NAMES: Final = (
    "ts", "time", "timestamp", "TIMESTAMP", "arrival_time", "arrived_at", "created_at", "created", "start_time",
    "startTime", "startTimeUnixNano", "timestamp_ms", "received_time", "Arrival Time", "createdAt", "t",
)  # fmt: skip


def written(name: str, clock: str, moments: Sequence[float]) -> list[Any]:
    """Moments as a column of a name has them; a name that states a unit gets that unit."""
    if name == "startTimeUnixNano":
        return [str(CLOCKS["epoch_ns"](at)) for at in moments]
    if name == "timestamp_ms":
        return [round(at * 1000) for at in moments]
    return [CLOCKS[clock](at) for at in moments]


def as_json_lines(rows: Sequence[dict[str, Any]]) -> str:
    """JSON lines, with a usage object inside."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_json_array(rows: Sequence[dict[str, Any]]) -> str:
    """One JSON array over several lines."""
    return json.dumps(list(rows), indent=1)


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """CSV with a header."""
    out = io.StringIO()
    flat = [{**{k: v for k, v in row.items() if k != "usage"}, **row.get("usage", {})} for row in rows]
    writer = csv.DictWriter(out, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


FORMS: Final = {"lines": as_json_lines, "array": as_json_array, "csv": as_csv}

_READ: Final = """
return given.map((text) => {
  try {
    const trace = kvTraffic.readTrace(text, "trace");
    return { times: trace.time, prompts: trace.prompt, outputs: trace.output, block: trace.blockTokens,
      distinct: trace.distinct, arrivals: trace.arrivals };
  } catch (error) { return { error: error.message, name: error.constructor.name }; }
});
"""


def run(body: str, given: Any) -> Any:
    """Return what a function of the browser's traffic script answers.

    Args:
        body: The function's body; ``given`` is its argument.
        given: The argument.
    """
    reader = (resources.assets_dir() / "kv-traffic.js").read_text(encoding="utf-8")
    call = (
        "const given = JSON.parse(await new Response(Deno.stdin.readable).text());\n"
        f"console.log(JSON.stringify(((given) => {{{body}}})(given)));\n"
    )
    return javascript.run(browser.script() + reader + call, given)


def in_browser(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the browser's reader makes of each text: columns, or ``error``."""
    found: list[dict[str, Any]] = run(_READ, list(texts))
    return found


def write_compact(trace: Trace, *, source: str = "") -> Iterator[str]:
    """Write a trace in the compact form, line by line."""
    yield f"{MAGIC}1 block={trace.block_tokens} time=ms requests={len(trace)} source={source}\n"
    before, known = 0, 0
    numbers: dict[int, int] = {}
    for row in range(len(trace)):
        now = round(trace.arrival_s[row] * 1e3)
        # Times may have put requests in another order than their blocks were numbered in.
        path = [numbers.setdefault(node, len(numbers)) for node in _prompt_path(trace, row)]
        head = f"{now - before},{trace.prompt_tokens[row]},{trace.output_tokens[row]}"
        if trace.session[row] >= 0:
            head += f",{trace.session[row]}"
        text, known = _ranges(path, known)
        yield f"{head};{text}\n" if text else f"{head}\n"
        before = now


def _prompt_path(trace: Trace, row: int) -> array[int]:
    """The path of a prompt, without blocks of its output."""
    path = trace.path(row)
    return path[: trace.prompt_tokens[row] // trace.block_tokens] if trace.outputs_named else path


def _ranges(path: list[int], known: int) -> tuple[str, int]:
    words, index = [], 0
    while index < len(path):
        low = high = path[index]
        index += 1
        fresh = low >= known
        while index < len(path) and path[index] == high + 1 and (path[index] >= known) == fresh:
            high += 1
            index += 1
        if fresh:
            known = high + 1
            words.append(f"+{high - low + 1}")
        else:
            words.append(f"{low}-{high}" if high > low else str(low))
    return " ".join(words), known
