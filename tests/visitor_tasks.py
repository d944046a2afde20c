"""What people come to the site with, done by a visitor who has the built pages alone (``visitor_tasks.yaml``)."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Final

import yaml
from controls import answer_of
from quiet import HASTE, Activity

from kvreport.catalog.load import open_catalog

TASKS: Final[list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
MOST_ACTIONS: Final = 5


class Visitor:
    """One visitor, who counts every action."""

    def __init__(self, browser: Any, address: str, task: dict[str, Any]) -> None:
        self.task, self.actions, self.scripts = task, 0, task.get("scripts", True)
        size = {"width": 390, "height": 844} if task.get("phone") else {"width": 1440, "height": 900}
        self.context = browser.new_context(
            viewport=size, bypass_csp=True, java_script_enabled=self.scripts, has_touch="phone" in task
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.activity = Activity(self.page, HASTE)
        self.page.goto(address)
        self.page.mouse.move(4, 4)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is asked for and nothing changes."""
        if not self.scripts:
            self.page.wait_for_load_state("load")
        elif not self.activity.settle(20):
            raise AssertionError("never comes to rest")

    def click(self, selector: str) -> None:
        """Press the first of what is seen."""
        self.page.locator(selector).locator("visible=true").first.click()

    def step(self, step: str) -> None:
        """Do one step of a task."""
        verb, _, text = step.partition(" ")
        page = self.page
        if verb == "ask":
            page.locator("#kv-asked").press_sequentially(text) if self.task.get("keys") else page.fill(
                "#kv-asked", text
            )
            page.press("#kv-asked", "Enter")
        elif verb == "search":
            page.locator(".md-search__input").click()
            page.locator(".md-search__input").press_sequentially(text, delay=5)
            page.wait_for_selector(".md-search-result__link")
            self.settle()
            self.actions += 1
            page.locator(".md-search-result__link").first.click()
        elif verb == "nav":
            self.click(f".md-tabs a:has-text('{text}')")
        elif verb == "sibling":
            self.click(f".kv-siblings a:has-text('{text}'), .md-nav--primary a:has-text('{text}')")
        elif verb == "fill":
            selector, _, value = text.partition(" = ")
            page.fill(selector, value)
            page.press(selector, "Enter")
        else:
            self.click(text)
        self.actions += 1
        self.settle()

    def run(self) -> tuple[bool, float]:
        """Do the task; return whether the page that it ends on says what is right, and the seconds."""
        began = time.monotonic()
        for step in self.task["steps"]:
            self.step(step)
        seconds = time.monotonic() - began
        said = " ".join(" ".join(self.page.locator("main, dialog[open]").all_inner_texts()).split())
        wanted = self.task["says"].replace("{}", self.answer())
        return bool(re.search(wanted, said)) and self.actions <= MOST_ACTIONS, seconds

    def answer(self) -> str:
        """The number of requests that the command line says."""
        if "estimate" not in self.task or "{}" not in self.task["says"]:
            return ""
        name, _, flags = self.task["estimate"].partition(" ")
        model = next(one for one in open_catalog().models if one.endswith(f"/{name}"))
        found = re.search(
            r'"max_concurrent_requests": (\d+)', answer_of(f"kvreport estimate {model} {flags}")[1]
        )
        assert found is not None
        return f"{int(found[1]):,}"
