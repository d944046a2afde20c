"""Every control of a page, pressed from a fresh page, and what must hold after each press."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import shlex
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

from quiet import HASTE, WAIT_S, Activity
from serving import is_fault

from kvreport.cli import main

PRESS_MS: Final = 5000

FIND: Final = """(place) => {
  const root = document.querySelector(place);
  if (!root) return [];
  const of = {
    summary: 'summary', select: 'select', button: 'button, [role=button], [role=tab]', download: 'a[download]',
    check: 'input[type=checkbox], input[type=radio]', range: 'input[type=range]', file: 'input[type=file]',
    text: 'input[type=text], input[type=search], input:not([type])', number: 'input[type=number]', area: 'textarea',
  };
  const path = (node) => {
    if (node.id) return `#${CSS.escape(node.id)}`;
    const parent = node.parentElement;
    if (!parent) return node.tagName.toLowerCase();
    const n = [...parent.children].indexOf(node) + 1;
    return `${path(parent)} > ${node.tagName.toLowerCase()}:nth-child(${n})`;
  };
  const shown = (node) => {
    // What a closed <details> hides is behind a control of its own.
    for (let up = node; up; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (style.display === 'none' || style.visibility === 'hidden' || up.hidden) return false;
    }
    return true;
  };
  const text = (node) => (node.innerText || node.textContent || '').trim().replace(/\\s+/g, ' ').slice(0, 60);
  const found = [];
  for (const [kind, selector] of Object.entries(of)) {
    for (const node of root.querySelectorAll(selector)) {
      if (!shown(node) || node.disabled || node.readOnly || node.closest('.md-nav, [aria-disabled=true]')) continue;
      const label = text(node) || node.getAttribute('aria-label') || node.labels?.[0]?.innerText || node.name || '';
      if (label === 'Copied' || label.startsWith('Select the text')) continue; // for some seconds
      const group = node.closest('fieldset, [role=group], thead, tbody, .kv-share-row, [data-kv-slot], .kv-tools, form, section');
      const set = group?.getAttribute('aria-label') || group?.querySelector('legend')?.innerText
        || group?.dataset.kvSlot || group?.className || group?.tagName || '';
      const known = /kv-(tool|button|link|units)/.test(node.className) || kind === 'summary' ? label : '';
      const look = [...node.classList].filter((one) => one.startsWith('kv-')).join(' ');
      const names = [...node.attributes].map((one) => one.name).filter((one) => one.startsWith('data-') && !one.startsWith('data-focus')).join(' ');
      found.push({ kind, path: path(node), label,
        like: [kind, node.name || '', look, names, set, known].join('|').replace(/\\d[\\d,.]*/g, '0') });
    }
  }
  return found;
}"""

NOTHING_COPIED: Final = """() =>
  [...document.querySelectorAll('button')].every((one) => one.textContent.trim() !== 'Copied')"""
"""True once no button says any more that it copied, as it does for some seconds."""

STATE: Final = """(place) => {
  const root = document.querySelector(place);
  const seen = (node) => node.checkVisibility({ visibilityProperty: true });
  const said = [root.innerText], values = [];
  for (const node of root.querySelectorAll('[aria-label], [title], [alt]')) {
    if (seen(node)) said.push(node.getAttribute('aria-label'), node.getAttribute('title'), node.getAttribute('alt'));
  }
  for (const node of root.querySelectorAll('input, textarea, select')) {
    if (seen(node) && node.type !== 'file') values.push(node.value);
  }
  const slots = {}, empty = [];
  for (const node of root.querySelectorAll('[data-kv-slot], [data-kv-answer], output, tbody')) {
    if (!seen(node) || !node.getClientRects().length) continue;
    const name = node.dataset.kvSlot || node.tagName;
    if (!node.innerText.trim() && !node.querySelector('svg, input, img')) {
      // What is far below the window is laid out when it comes near.
      if (node.getBoundingClientRect().height > 1 && node.checkVisibility({ contentVisibilityAuto: true })) empty.push(name);
    } else if (node.dataset.kvSlot) slots[name] = node.innerText.replace(/\\s+/g, ' ').trim();
  }
  return {
    text: said.filter(Boolean).join('\\n'), values: values.join('\\n'), slots, empty,
    busy: [...root.querySelectorAll('[aria-busy=true], [data-kv-progress]')].filter(seen).length,
    links: [...root.querySelectorAll('a[href]')].map((one) => one.href),
    commands: [...root.querySelectorAll('code')].filter(seen).map((one) => one.innerText.trim().replace(/\\s+/g, ' '))
      .filter((one) => one.startsWith('kvreport ')),
    answers: root.querySelector('[data-kv-slot=commands]')?.innerText.replace(/\\s+/g, ' ') || '',
    shared: [...root.querySelectorAll('#kv-share-link')].filter(seen).map((one) => one.value),
    search: location.search,
    headline: root.querySelector('[data-kv-slot=headline]')?.innerText.replace(/\\s+/g, ' ') || '',
    invalid: [...root.querySelectorAll('[aria-invalid], :invalid')].filter(seen).length,
    shown: document.querySelector('[data-kv-shown]')?.dataset.kvShown ?? null,
    address: location.href, printed: window.kvPrinted || 0,
  };
}"""

BROKEN: Final = re.compile(r"\bNaN\b|\bundefined\b|\bnull\b|\[object |\bInfinity\b|\bLoading\b|\bComputing\b")
"""What no page says unless it is printed on it."""
TEXTS: Final = """[...document.querySelectorAll('*')].flatMap((one) => [...one.childNodes])
  .filter((one) => one.nodeType === 3).map((one) => one.data).join('\\n')"""
UNFOLDED: Final = "for (const fold of document.querySelectorAll('[data-kv-slot] details')) fold.open = true"
"""What is folded in an answer is a part of it, and folded again on a page that is opened anew."""
WRONG: Final = "no such thing"
"""What no field takes: a page says so, and answers on."""


@dataclass(frozen=True)
class Control:
    """One control of a page.

    Attributes:
        kind: What it is: one of the keys of ``of`` in :data:`FIND`.
        path: A selector that finds it on the fresh page, after what is pressed before it.
        label: Its text.
        like: What it shares with controls that do the same to something else, as the chips of one filter.
        before: What must be pressed for it to appear.
    """

    kind: str
    path: str
    label: str
    like: str
    before: tuple[tuple[Control, str], ...] = ()


@dataclass
class Report:
    """What was found on a page: controls by kind, how many were pressed, faults."""

    found: dict[str, Control] = field(default_factory=dict)
    pressed: set[str] = field(default_factory=set)
    presses: int = 0
    commands: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


class Presser:
    """Presses every control of one page.

    Args:
        browser: What makes contexts.
        root: The site's address.
        folder: The site.
        given: What text fields of a name are filled with, beside what no field takes; ``file`` has paths.
        every: Every control and value, not one of those that do alike.
        seed: Which of those that do alike.
        place: The part of the page.
        elsewhere: Addresses that this site does not have, and others do.
        under: The folder of the address at which the site is published, which absolute links begin with.
        hubs: What answers requests of other addresses.
    """

    def __init__(
        self,
        browser: Any,
        root: str,
        folder: Path,
        given: dict[str, tuple[str, ...]],
        *,
        every: bool = False,
        seed: int = 1,
        place: str = "main",
        elsewhere: tuple[str, ...] = (),
        under: str = "",
        hubs: Mapping[str, Callable[[Any], None]] | None = None,
    ) -> None:
        self.root, self.folder, self.given, self.every, self.place = root, folder, given, every, place
        self.elsewhere, self.under = elsewhere, under
        self.draw = random.Random(seed)  # noqa: S311 - which of several like controls, no secret
        self.context = browser.new_context(
            bypass_csp=True, viewport={"width": 1280, "height": 900}, accept_downloads=True
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.page.set_default_timeout(PRESS_MS)
        self.activity = Activity(self.page, HASTE)
        self.heard: list[str] = []
        self.known: dict[str, Any] | None = None  # what the page says since the last press
        page, self.hubs = self.page, tuple(one.removesuffix("**") for one in hubs or {})
        for pattern, answer in (hubs or {}).items():
            page.route(pattern, answer)
        if under:
            page.route(
                f"**/{under}**", lambda route: route.continue_(url=route.request.url.replace(under, "", 1))
            )
        page.on("console", self.hears)
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.root, "data:", "blob:", *self.hubs)):
            self.heard.append(f"asks {request.url}")

    def hears(self, message: Any) -> None:
        """Keep what the console says of a fault."""
        if is_fault(message):
            self.heard.append(message.text)

    def settle(self) -> None:
        """Wait until nothing is asked for and nothing changes."""
        if not self.activity.settle():
            self.heard.append("never comes to rest")

    def fresh(self, uri: str) -> None:
        """Open a page that nobody has touched."""
        self.activity.requests.clear()
        self.page.goto(self.root + uri, timeout=1000 * WAIT_S)
        self.page.mouse.move(3, 3)
        self.settle()

    def controls(self, before: tuple[tuple[Control, str], ...] = ()) -> list[Control]:
        """The controls of the page as it is."""
        return [Control(**one, before=before) for one in self.page.evaluate(FIND, self.place)]

    def act(self, control: Control, value: str) -> None:
        """Press or change a control as a hand does."""
        where = self.page.locator(control.path).first
        if where.evaluate("(node) => document.querySelector('dialog[open]') && !node.closest('dialog')"):
            self.page.keyboard.press("Escape")
            if self.page.locator("dialog[open]").count():
                raise AssertionError("a dialog that Escape does not close")
        where.evaluate(
            "(node) => { for (let up = node.parentElement; up; up = up.parentElement)"
            " if (up.tagName === 'DETAILS' && !(node.tagName === 'SUMMARY' && up === node.parentElement)) up.open = true; }"
        )
        if control.kind == "select":
            where.select_option(value)
        elif control.kind == "range":
            where.press(value)
        elif control.kind == "file":
            where.set_input_files(value)
        elif control.kind in ("text", "number", "area"):
            where.click()
            where.press("ControlOrMeta+a")
            self.page.keyboard.insert_text(value) if value else where.press("Delete")
            if where.evaluate("(node) => node.tagName === 'INPUT'"):
                self.page.wait_for_timeout(30)
                where.press("Enter")
        elif control.kind == "check":
            where.evaluate("(node) => node.click()")
        else:
            where.click()
        self.page.mouse.move(5, 5)
        self.settle()

    def present(self, control: Control) -> Control | None:
        """The control on the page as it is: itself where every one is pressed, else one that does alike."""
        alike = [one for one in self.controls(control.before) if self.key(one) == self.key(control)]
        return self.draw.choice(alike) if alike else None

    def reach(self, uri: str, control: Control, *, anew: bool) -> Control | None:
        """The control on this page, or on a fresh one where it is not here or is to be pressed first of all."""
        here = self.page.url.split("?")[0].split("#")[0] == self.root + uri.split("?", maxsplit=1)[0]
        found = self.present(control) if here and not anew else None
        if found is None:
            self.known = None
            self.fresh(uri)
            for earlier, chosen in control.before:
                self.act(self.present(earlier) or earlier, chosen)
            found = self.present(control)
        self.heard.clear()
        self.activity.forget()
        return found

    def run(self, uri: str) -> Report:
        """Press every control of a page.

        Where not every one is pressed, the page stays as the press before left it, as it does for a reader.

        Returns:
            The controls by what they are like, those that were pressed, and what was wrong.
        """
        from playwright.sync_api import Error

        report = Report()
        self.heard.clear()
        self.fresh(uri)
        first = self.state()
        self.printed = set(BROKEN.findall(self.page.evaluate(TEXTS)))
        self.judge(f"{uri}: as it is opened", first, first, report)
        queue = self.picked(self.controls(), report)
        while queue:
            control = queue.pop(0)
            for value in self.values(uri, control):
                what = f"{control.kind} {control.label!r}" + (f" := {value[:40]!r}" if value else "")
                what = f"{uri}: " + "".join(f"{one.label!r}, " for one, _ in control.before) + what
                try:
                    found = self.reach(uri, control, anew=self.every)
                    if found is None:
                        report.faults.append(f"{what}: gone before it was pressed")
                        break
                    before = self.known or self.state()
                    self.act(found, value)
                    after = self.known = self.state()
                    if after["shared"] and not after["shared"][0].endswith(after["search"]):
                        self.page.wait_for_timeout(1000)  # the open box follows a quarter of a second later
                        after = self.known = self.state()
                    self.heard += self.copied(found, after)
                except (Error, AssertionError) as error:  # a control that cannot be pressed is a fault
                    self.known = None
                    report.faults.append(f"{what}: {str(error).splitlines()[0]}")
                    continue
                report.presses += 1
                self.judge(what, after, first, report)
                if (
                    value == WRONG
                    and control.kind == "text"
                    and not after["invalid"]
                    and all(after[one] == before[one] for one in ("text", "invalid", "address"))
                ):
                    report.faults.append(f"{what}: says nothing about it")
                if (
                    len(control.before) < 3
                    and value != WRONG
                    and after["address"].startswith(self.root + uri)
                ):
                    queue[:0] = self.picked(self.controls((*control.before, (control, value))), report)
            else:
                report.pressed.add(self.key(control))
        if not self.every:
            self.again(report)
        return report

    def copied(self, control: Control, state: dict[str, Any]) -> Iterator[str]:
        """What is wrong with what a button copied, and with the button after it."""
        if control.kind != "button" or not control.label.startswith("Copy"):
            return
        text = str(self.page.evaluate("navigator.clipboard.readText()"))
        self.page.evaluate("navigator.clipboard.writeText('')")
        if not text.strip() or set(BROKEN.findall(text)) - self.printed:
            yield f"copies {text[:60]!r}"
        # A table has rows that are not drawn; the numbers of a saved one have no separators.
        whole = str(self.page.evaluate("document.body.textContent")) + state["text"] + state["values"]
        told = re.sub(r"\s+", "", whole)
        lines = (
            [one for one in text.splitlines() if "[kvreport](" not in one]
            if "Copy as Markdown" in control.label
            else [text]
        )
        parts = [
            part
            for line in lines
            for part in (line.split(" | ") if "Copy as Markdown" in control.label else [line])
        ]
        missed = [part for part in parts if re.sub(r"[\s|\\]+|---", "", part) not in told.replace("|", "")]
        missed = [
            part
            for part in missed
            if not re.search(r"\d{4}", part) or "Copy as Markdown" not in control.label
        ]
        if (
            missed and text != state["address"] and "answer" not in control.label
        ):  # which is said in other words
            yield f"copies what is not on the page: {missed[:3]}"

    def again(self, report: Report) -> None:
        """What the page says under its address when it is opened anew, beside what it says now."""
        self.page.keyboard.press("Escape")
        self.page.evaluate(UNFOLDED)
        self.page.wait_for_function(NOTHING_COPIED)
        now = self.state()
        self.page.goto("about:blank")
        self.activity.requests.clear()
        self.page.goto(now["address"], timeout=1000 * WAIT_S)
        self.page.mouse.move(3, 3)
        self.settle()
        self.page.evaluate(UNFOLDED)
        then = self.state()
        for name, text in now["slots"].items():
            other = then["slots"].get(name, "")
            if other != text:
                at = max(len(commonprefix((other, text))) - 20, 0)  # noqa: RUF071 - texts, not paths
                report.faults.append(
                    f"{now['address']} says {other[at : at + 80]!r} in {name}, and said {text[at : at + 80]!r}"
                )
        self.heard.clear()

    def state(self) -> dict[str, Any]:
        """What the page says."""
        found: dict[str, Any] = self.page.evaluate(STATE, self.place)
        return found

    def values(self, uri: str, control: Control) -> list[str]:
        """What a control is changed to."""
        if control.kind in ("text", "number", "area"):
            good = self.given.get(control.like.split("|")[1], ("2",))
            return [WRONG, *(["", "0", "-1", "999999999999"] if self.every else []), *good]
        if control.kind == "select":
            found = self.reach(uri, control, anew=self.every)
            options: list[str] = (
                found is not None
                and self.page.locator(found.path).first.evaluate(
                    "(node) => [...node.options].filter((one) => !one.disabled && !one.selected).map((one) => one.value)"
                )
            ) or [""]
            return options if self.every else options[-1:]
        return {"range": ["End", "Home"], "file": list(self.given["file"])}.get(control.kind, [""])

    def key(self, control: Control) -> str:
        """What counts as one control."""
        return control.path + control.like if self.every else control.like

    def picked(self, controls: list[Control], report: Report) -> list[Control]:
        """Those to press that no earlier state of the page had."""
        new: dict[str, list[Control]] = {}
        for one in controls:
            if self.key(one) not in report.found:
                new.setdefault(self.key(one), []).append(one)
        chosen = {key: self.draw.choice(group) for key, group in new.items()}
        report.found |= chosen
        return list(chosen.values())

    def judge(self, what: str, state: dict[str, Any], first: dict[str, Any], report: Report) -> None:
        """Note what is wrong with a page after a press."""
        faults = [*self.heard]
        faults += [f"says {word!r}" for word in set(BROKEN.findall(state["text"])) - self.printed]
        faults += [f"nothing in {name}" for name in state["empty"] if name not in first["empty"]]
        faults += ["is busy without end"] if state["busy"] > first["busy"] else []
        faults += [f"leads nowhere: {link}" for link in set(state["links"]) if not self.leads(link)]
        for download in self.activity.downloads:
            faults += saved_faults(download)
        faults += [
            f"shares {link} of {state['address']}"
            for link in state["shared"]
            if (urlsplit(link).query or "") != state["search"].lstrip("?")
        ]
        report.commands.update(state["commands"])
        for command in state["commands"]:
            faults += command_faults(command, state["headline"] if command in state["answers"] else "")
        report.faults += [f"{what}: {one}" for one in faults]
        self.heard.clear()

    def leads(self, link: str) -> bool:
        """Whether a page of the site is where a link says."""
        if not link.startswith(self.root):
            return "undefined" not in link and "NaN" not in link
        path = unquote(urlsplit(link).path).lstrip("/").removeprefix(self.under)
        if path.startswith(self.elsewhere):
            return True
        found = self.folder / path
        return (found / "index.html").is_file() if found.is_dir() else found.is_file()


def saved_faults(download: Any) -> Iterator[str]:
    """What is wrong with a file that was saved."""
    name, content = download.suggested_filename, Path(download.path()).read_bytes()
    if name.endswith(".gz"):
        name, content = name.removesuffix(".gz"), gzip.decompress(content)
    if not content:
        yield f"{name} is empty"
    if re.search(rb"\bNaN\b|\bundefined\b|\[object ", content) and not name.endswith((".parquet", ".png")):
        yield f"{name} has a value that is none"
    if name.endswith(".csv"):
        rows = list(csv.reader(io.StringIO(content.decode("utf-8"))))
        if len({len(row) for row in rows}) != 1:
            yield f"{name} is no table: {len(rows)} rows of {sorted({len(row) for row in rows})} cells"
    elif name.endswith(".json"):
        json.loads(content)
    elif name.endswith(".svg"):
        ET.fromstring(content)  # noqa: S314 - written by the page under test
    elif name.endswith(".png") and (
        content[:8] != b"\x89PNG\r\n\x1a\n" or min(struct.unpack(">II", content[16:24])) < 50
    ):
        yield f"{name} is no picture"
    elif name.endswith(".parquet") and content[-4:] != b"PAR1":
        yield f"{name} is no Parquet file"


TRACE: Final = "timestamp,prompt_tokens,completion_tokens\n" + "".join(
    f"{2 * n},{500 + 37 * n % 900},{100 + n % 50}\n" for n in range(60)
)


def given(folder: Path) -> dict[str, tuple[str, ...]]:
    """What fields of a name are filled with; the file is written into a folder."""
    trace = folder / "trace.csv"
    trace.write_text(TRACE, encoding="utf-8")
    return {
        "ask": ("llama 3.1 70b on 2 h100 at 16K",),
        "context": ("32K",),
        "model": ("Qwen3.6 27B",),
        "gpu": ("B200",),
        "share": ("0.8",),
        "name": ("8B",),
        "requests": ("7",),
        "file": (str(trace),),
    }


ANSWERED: dict[str, tuple[int, str]] = {}


def answer_of(command: str) -> tuple[int, str]:
    """Run a command of a page once; return its status and what it prints."""
    if command not in ANSWERED:
        out, words = io.StringIO(), shlex.split(command)[1:]
        if "--fetch" in words:  # what the Hub of the tests serves lies in the folder, too
            words = [
                "acme/open/config.json" if one == "acme/open" else one for one in words if one != "--fetch"
            ]
        with redirect_stdout(out):
            try:
                status = main([*words, "--format", "json"])
            except SystemExit as ended:
                status = int(ended.code or 0)
        ANSWERED[command] = (status, out.getvalue())
    return ANSWERED[command]


def command_faults(command: str, headline: str) -> Iterator[str]:
    """What is wrong with an offered command, and where it differs from what stands above it."""
    if not command.startswith("kvreport estimate ") or re.search(r" [A-Z]+\b( |$)", command):  # MODEL, GPU
        return
    if re.search(
        r" --(as|format) |path/to/| kvreport ", command
    ):  # another form, a reader's file, several commands
        return
    status, printed = answer_of(command)
    if status not in (0, 1, 3) or not printed:  # 3: fewer than are required
        yield f"{command} ends with {status}"
        return
    serves = re.search(r"serves ([\d,]+) concurrent request", headline)
    told = json.loads(printed)
    if serves and int(serves[1].replace(",", "")) != told.get("max_concurrent_requests"):
        yield f"{command} answers {told.get('max_concurrent_requests')}, the page {serves[1]}"
