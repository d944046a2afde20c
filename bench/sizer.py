"""The sizer: the command over the whole catalog, and the same ranking in a real browser."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = "meta-llama/Llama-3.1-70B-Instruct"
WORK = {
    "concurrent": 64, "longest": 6000, "mean": 6000, "prompt": 5500, "output": 500, "ttft": 2.0, "tpot": 0.05,
    "burst": 1.5, "spares": 1, "prefix": 0, "efficiency": 0.6, "peak": 96,
}  # fmt: skip
RANK = """([data, work, options]) => {
  const times = [];
  for (let n = 0; n < 40; n += 1) {
    const began = performance.now();
    kvSizing.rank(data.site, data.peaks, data.model, data.times, work, options);
    times.push(performance.now() - began);
  }
  return times.slice(5).sort((a, b) => a - b)[17];
}"""


def measure() -> dict[str, float]:
    """Seconds of the command, and milliseconds of one ranking in Chromium."""
    return {"command_s": _command(), "browser_ms": _browser()}


def _command(repeats: int = 5) -> float:
    kvreport = Path(sys.executable).with_name("kvreport")
    words = [kvreport, "size", MODEL, "--concurrent", "64", "--context", "6000", "--kv", "auto,fp8"]
    words += ["--weights", "released,fp8,int4", "--tpot", "50ms", "--ttft", "2s"]
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _browser() -> float:
    sys.path.insert(0, str(ROOT / "tests"))
    import ensure_chromium
    from playwright.sync_api import sync_playwright

    from kvreport.catalog.load import open_catalog
    from kvreport.publish import browser as browser_script
    from kvreport.publish import profiles, sizer_data
    from kvreport.publish.page_data import gather

    site = gather(open_catalog(), models=MODEL, version="bench")
    model = site.models[0]
    data = {
        "site": profiles.site_facts(site),
        "peaks": sizer_data.peaks_facts(site),
        "model": profiles.model_facts(site, model),
        "times": sizer_data.times_facts(site, model),
    }
    options = {
        "gpus": None,
        "weights": list(data["model"]["weights"]),
        "kv": list(data["model"]["plan"]),
        "sizes": None,
        "available": None,
        "prices": None,
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=ensure_chromium.find(), args=list(ensure_chromium.FLAGS)
        )
        page = browser.new_page()
        page.add_script_tag(content=browser_script.script())
        for name in ("kv-capacity.js", "kv-sizing.js"):
            page.add_script_tag(path=ROOT / "docs" / "assets" / name)
        took: float = page.evaluate(RANK, [json.loads(json.dumps(data)), WORK, options])
        browser.close()
    return took
