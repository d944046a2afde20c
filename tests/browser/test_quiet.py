"""A page is at rest once everything that a press set off is done, however it goes on: tests/quiet.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quiet import HASTE, Activity
from serving import served

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = """<!doctype html><title>page</title><button>Go</button><p>before</p>
<script>
const said = document.querySelector('p'), end = () => { said.textContent = 'after'; }, file = new Blob(['x'.repeat(1e6)]);
document.querySelector('button').onclick = () => { %s };
</script>"""
CHAINS = {
    "timers": "setTimeout(() => setTimeout(() => setTimeout(end, 390), 390), 390)",
    "a timer that is set again": "let id = setTimeout(end, 100); clearTimeout(id); id = setTimeout(end, 300)",
    "an interval that ends": "let n = 0; const id = setInterval(() => { if (n++ > 2) { clearInterval(id); end(); } }, 90)",
    "frames": "let n = 0; const next = () => n++ > 40 ? end() : requestAnimationFrame(next); next()",
    "an answer and what follows": "fetch('slow').then((a) => a.text()).then(() => requestIdleCallback(() => setTimeout(end, 300)))",
    "slices of work": "(async () => { for (let n = 0; n < 6; n++) { const t = performance.now();"
    " while (performance.now() - t < 90); await scheduler.yield(); } end(); })()",
    "a worker": "const work = new Worker(URL.createObjectURL(new Blob(['onmessage = () => setTimeout(() => postMessage(1), 300)'])));"
    " work.onmessage = end; work.postMessage(1)",
    "a file": "file.arrayBuffer().then((one) => crypto.subtle.digest('SHA-256', one)).then(() => setTimeout(end, 200))",
    "a busy mark": "said.setAttribute('aria-busy', true);"
    " setTimeout(() => { said.removeAttribute('aria-busy'); end(); }, 900)",
    "a change of style": "said.animate([{ opacity: 0 }, { opacity: 1 }], 600).finished.then(end)",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a page for each way of going on."""
    folder: Path = tmp_path_factory.mktemp("quiet")
    (folder / "slow").write_text("x" * 1_000_000, encoding="utf-8")
    for name, script in CHAINS.items():
        (folder / f"{name}.html").write_text(PAGE % script, encoding="utf-8")
    (folder / "restless.html").write_text(PAGE % "setInterval(() => said.append('.'), 50)", encoding="utf-8")
    save = "const a = document.createElement('a'); a.href = 'slow'; a.download = 'slow.txt'; a.click(); end()"
    (folder / "save.html").write_text(PAGE % save, encoding="utf-8")
    with served(folder) as address:
        yield address


def pressed(page: Any, address: str, haste: int = 1) -> Activity:
    """A page on which the button has just been pressed."""
    activity = Activity(page, haste)
    page.goto(address)
    assert activity.settle(20)
    assert page.inner_text("p") == "before"
    page.click("button")
    return activity


@pytest.fixture
def page(browser: Any) -> Any:
    """An empty page."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("haste", [1, HASTE])
@pytest.mark.parametrize("name", CHAINS)
def test_a_page_rests_once_what_was_set_off_is_done(page: Any, root: str, name: str, haste: int) -> None:
    activity = pressed(page, f"{root}{name}.html", haste)
    assert activity.settle(20)
    assert page.inner_text("p") == "after"
    assert page.evaluate("kvSeen.open") == 0


def test_a_download_is_waited_for(page: Any, root: str) -> None:
    activity = pressed(page, f"{root}save.html")
    assert activity.settle(20)
    assert [one.suggested_filename for one in activity.downloads] == ["slow.txt"]
    activity.forget()
    assert activity.settle(20)
    assert activity.downloads == []


def test_a_clock_of_a_test_takes_the_place_of_the_watched_one(page: Any, root: str) -> None:
    """Timers that looked at the clock which looks at timers called each other without end."""
    Activity(page)
    page.clock.install()
    page.goto(f"{root}timers.html")
    page.click("button")
    page.clock.run_for(5_000)
    assert page.inner_text("p") == "after"


def test_a_page_that_goes_on_changing_never_rests(page: Any, root: str) -> None:
    activity = pressed(page, f"{root}restless.html")
    assert not activity.settle(1.5)
