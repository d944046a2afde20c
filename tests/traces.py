"""Traces as people have them, and what the browser's reader makes of a text (in Deno, without a browser)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import javascript

from kvreport import resources
from kvreport.publish import browser

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
