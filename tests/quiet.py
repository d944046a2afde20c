"""When a page has done what a press set off: what it has begun is counted in the page, not waited for by the clock."""

from __future__ import annotations

import re
import time
from typing import Any, Final

LONGEST_MS: Final = 400
"""Timers up to this long belong to an answer (typing is read after a quarter of a second); longer ones are reminders.

So long, too, nothing must change on a page on which something is open that this script cannot see the end of.
"""
SHORT_MS: Final = 50
"""So long nothing must change on a page that has nothing open."""

PAUSE_MS: Final = 100
"""Timers from here on wait for a hand that goes on typing."""
HASTE: Final = 4
"""So many times sooner they come where the hand of a test types a whole text at once."""
WAIT_S: Final = 120.0
"""Python in the browser is compiled first."""

_WATCH: Final = """
(() => {
  const LONGEST = $LONGEST, now = performance.now.bind(performance); // not of a clock that a test puts in their place
  const later = window.setTimeout.bind(window), cancel = window.clearTimeout.bind(window);
  const seen = window.kvSeen = { open: 0, changed: now(), saves: 0, later, now };
  window.print = () => { window.kvPrinted = (window.kvPrinted || 0) + 1; };
  new MutationObserver(() => { seen.changed = now(); })
    .observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  const begin = () => {
    let open = true;
    seen.open += 1;
    return () => {
      if (open) seen.open -= 1, seen.changed = now();
      open = false;
    };
  };
  const runs = new Map();
  const ends = (id) => { runs.get(id)?.(); runs.delete(id); };
  window.setTimeout = (act, wait = 0, ...given) => {
    if (wait > LONGEST) return later(act, wait, ...given);
    const soon = wait < $PAUSE ? wait : wait / $HASTE;
    const id = later((...all) => { try { act(...all); } finally { ends(id); } }, soon, ...given);
    runs.set(id, begin());
    return id;
  };
  const repeat = window.setInterval.bind(window), stop = (id) => { ends(id); cancel(id); };
  window.setInterval = (act, wait = 0, ...given) => {
    const id = repeat(act, wait, ...given);
    if (wait <= LONGEST) runs.set(id, begin());
    return id;
  };
  window.clearTimeout = window.clearInterval = stop;
  for (const [ask, drop] of [['requestAnimationFrame', 'cancelAnimationFrame'], ['requestIdleCallback', 'cancelIdleCallback']]) {
    const asks = window[ask].bind(window), drops = window[drop].bind(window), frames = new Map();
    window[ask] = (act, ...given) => {
      const end = begin(), id = asks((...all) => { frames.delete(id); try { act(...all); } finally { end(); } }, ...given);
      frames.set(id, end);
      return id;
    };
    window[drop] = (id) => { frames.get(id)?.(); frames.delete(id); drops(id); };
  }
  const promises = (owner, ...names) => {
    for (const name of names) {
      const call = owner?.[name];
      if (call) owner[name] = function (...given) {
        const end = begin(), answer = call.apply(this, given);
        answer.then(end, end);
        return answer;
      };
    }
  };
  promises(window, 'fetch', 'createImageBitmap');
  promises(window.Scheduler?.prototype, 'yield', 'postTask');
  promises(Response.prototype, 'text', 'json', 'arrayBuffer', 'blob');
  promises(Blob.prototype, 'text', 'arrayBuffer');
  promises(ReadableStreamDefaultReader.prototype, 'read');
  promises(window.Clipboard?.prototype, 'writeText', 'write');
  promises(window.SubtleCrypto?.prototype, 'digest');
  window.Worker = class extends window.Worker {
    constructor(...given) {
      super(...given);
      for (const name of ['message', 'error']) this.addEventListener(name, () => this.ends?.());
    }
    postMessage(...given) {
      this.ends?.();
      this.ends = begin();
      super.postMessage(...given);
    }
  };
  addEventListener('beforeunload', begin); // another page comes
  const press = HTMLAnchorElement.prototype.click;
  addEventListener('click', (event) => {
    if (event.target.closest?.('a[download]') && !event.defaultPrevented) seen.saves += 1;
  });
  HTMLAnchorElement.prototype.click = function () {
    if (this.hasAttribute('download') && !this.isConnected) seen.saves += 1;
    press.call(this);
  };
})();
"""
"""For a page before its own scripts: counts what they have open, notes when something changes, and counts downloads."""

_RESTS: Final = """([short, long, most]) => new Promise((done) => {
  const seen = window.kvSeen, from = seen.now();
  const moves = (one) => one.playState === 'running' && one.timeline instanceof DocumentTimeline
    && one.effect.getComputedTiming().endTime < Infinity;
  const look = () => {
    const now = seen.now(), still = now - seen.changed;
    const busy = [...document.querySelectorAll('[aria-busy=true], [data-kv-progress]')].some((one) => one.checkVisibility());
    const rests = !busy && (still > long || !seen.open && still > short) && !document.getAnimations().some(moves);
    if (rests || now - from > most) done(rests);
    else seen.later(look, 20);
  };
  const drawn = Promise.race([
    new Promise((after) => requestAnimationFrame(() => requestAnimationFrame(after))),
    new Promise((after) => seen.later(after, short)), // a page that is not seen draws no frame
  ]);
  drawn.then(() => seen.later(look, 0));
})"""


class Activity:
    """What a page of Playwright's has begun and not ended.

    Args:
        page: The page, before it is opened.
        haste: How many times sooner timers come that wait for a hand that types.
    """

    def __init__(self, page: Any, haste: int = 1) -> None:
        self.page = page
        self.requests: set[Any] = set()
        self.downloads: list[Any] = []
        values = {"LONGEST": LONGEST_MS, "PAUSE": PAUSE_MS, "HASTE": haste}
        page.add_init_script(re.sub(r"\$([A-Z]+)", lambda name: str(values[name[1]]), _WATCH))
        page.on("download", lambda download: self.downloads.append(download))  # noqa: PLW0108 - playwright marks it
        page.on("request", self._asked)
        page.on("requestfinished", lambda request: self.requests.discard(request))  # noqa: PLW0108
        page.on("requestfailed", lambda request: self.requests.discard(request))  # noqa: PLW0108

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("data:", "blob:")):
            self.requests.add(request)

    def settle(self, seconds: float = WAIT_S) -> bool:
        """Wait until nothing is asked for, nothing that scripts have begun is open, and nothing changes.

        Args:
            seconds: How long to wait at most.

        Returns:
            Whether the page came to rest.
        """
        from playwright.sync_api import Error

        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                rest = not self.requests and self.page.evaluate(
                    _RESTS, [SHORT_MS, LONGEST_MS, 1000 * seconds]
                )
                if rest and not self.requests and len(self.downloads) >= self.page.evaluate("kvSeen.saves"):
                    return True
            except Error as error:  # the page that was looked at is gone: another is coming
                if "context was destroyed" not in str(error):
                    raise
            self.page.wait_for_timeout(20)
        return False

    def forget(self) -> None:
        """Forget downloads, before the next press."""
        self.downloads.clear()
        self.page.evaluate("kvSeen.saves = 0")
