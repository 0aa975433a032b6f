"""Opens the pages of `steadytrain ui` in Chromium and looks for what a reader would trip over.

    python benchmarks/ui_pages.py RUNS_DIR [--out build/ui]

The list of runs, the newest run (also zoomed), its report, its incident, itself compared with a copy, the list of
explanations and one of them, each at three sizes, light and dark: a screenshot, no horizontal overflow, contrast of AA,
everything reached by Tab, no message on the console, no request to another host. On the page of a copy of the incident
without its trials `diagnose` is started by its button, and looked at while it runs and when it has ended.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from page_checks import faint_texts, unreached
from pages import OVERFLOW, SCHEMES, SIZES, Browser, chromium

from steadytrain.storage.run_search import newest

SETTLE_S = 3.0
OTHER_HOSTS = "performance.getEntriesByType('resource').filter(one => !one.name.startsWith(location.origin)).length"
DIAGNOSIS_WAIT_S = 900.0
COPY = "a-copy"
SAID = "document.getElementById('diagnosing-said').textContent"
START = "document.getElementById('diagnosing-start').click()"
ZOOM = "zoom(...[0.4, 0.6].map(at => Math.round(shown()[0] + at * (shown()[1] - shown()[0]))))"


def look(browser: Browser, address: str, name: str, out: Path, *, before: str = "0") -> list[str]:
    wrong = []
    for width, height in SIZES:
        for scheme in SCHEMES:
            where = f"{name}-{width}-{scheme}"
            browser.messages.clear()
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.ask("Emulation.setDeviceMetricsOverride", **size)
            browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.ask("Page.navigate", url=address)
            time.sleep(SETTLE_S)
            browser.evaluate(before)
            time.sleep(SETTLE_S / 3)
            shot = browser.ask("Page.captureScreenshot")
            (out / f"{where}.png").write_bytes(base64.b64decode(shot["data"]))
            over, others = browser.evaluate(OVERFLOW), browser.evaluate(OTHER_HOSTS)
            wrong += [f"{where}: {text}" for text in faint_texts(browser)]
            wrong += [f"{where}: {text}" for text in (unreached(browser) if scheme == SCHEMES[0] else [])]
            wrong += [f"{where}: {over} pixels wider than the window"] if over else []
            wrong += [f"{where}: {others} requests to other hosts"] if others else []
            wrong += [f"{where}: console: {message}" for message in browser.messages]
    return wrong


def linked(browser: Browser, address: str, out: Path) -> list[str]:
    """Follow the link of a symptom to its step, and open the address that a zoom has left."""
    wrong = []
    browser.ask("Page.navigate", url=address)
    time.sleep(SETTLE_S)
    browser.evaluate("document.querySelector('#symptoms a[href^=\"#step-\"]').click()")
    time.sleep(SETTLE_S / 3)
    picture(browser, out / "run-step.png")
    seen = browser.evaluate_value("[marked, drawn.loss.first, drawn.loss.last]")
    if seen[0] is None or not seen[1] <= seen[0] <= seen[2]:
        wrong.append(f"run: the link to a step shows {seen}")
    browser.evaluate(ZOOM.replace("zoom(", "zoomAndSay("))
    zoomed = browser.evaluate_value("[location.href, ...span]")
    browser.ask("Page.navigate", url=zoomed[0].replace("#", "?again#"))
    time.sleep(SETTLE_S)
    again = browser.evaluate_value("span")
    return wrong if again == zoomed[1:] else [*wrong, f"run: {zoomed[0]} shows the steps {again}"]


def press(browser: Browser, address: str, out: Path) -> list[str]:
    """Start the diagnosis from its page: a picture while its table fills, one of the cause at the end."""
    browser.messages.clear()
    size = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.ask("Emulation.setDeviceMetricsOverride", **size)
    browser.ask("Page.navigate", url=address)
    time.sleep(SETTLE_S)
    browser.evaluate(START)
    until, rows = time.monotonic() + DIAGNOSIS_WAIT_S, 0
    while time.monotonic() < until:
        time.sleep(1)
        if browser.evaluate("document.querySelector('.certainty') !== null"):
            break
        shown = browser.evaluate("document.querySelectorAll('#diagnosing-trials tbody tr').length") or 0
        if shown > rows or "Running" not in str(browser.evaluate(SAID)):
            rows = shown
            picture(browser, out / "diagnosing.png")
    picture(browser, out / "diagnosed.png")
    cause = browser.evaluate("document.querySelector('h1').innerText")
    print(f"ui-pages: started from its page, the diagnosis filled a table of {rows} trials and says: {cause}")
    wrong = [f"diagnosing: console: {message}" for message in browser.messages]
    ended = browser.evaluate("document.querySelector('.certainty') !== null")
    return wrong + ([] if ended else [f"diagnosing: no answer in its page: {browser.evaluate(SAID)}"])


def picture(browser: Browser, file: Path) -> None:
    file.write_bytes(base64.b64decode(browser.ask("Page.captureScreenshot")["data"]))


def copies(run: Path, root: Path) -> str:
    """The run and a copy of it without any diagnosis below ``root``. Returns the name of its first incident."""
    undiagnosed = shutil.ignore_patterns("trials", "answer")
    shutil.copytree(run, root / run.name)
    shutil.copytree(run, root / COPY, ignore=undiagnosed)
    return min(path.name for path in (root / COPY / "incidents").glob("step-*"))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/ui"))
    options = parser.parse_args()
    program = chromium()
    if program is None:
        print("ui-pages: no Chromium here: nobody looked at the pages")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    newest_run = newest(options.runs)
    with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryDirectory() as root:
        incident = copies(newest_run, Path(root))
        wrong = looked_at(Path(root), newest_run.name, incident, profile=profile, program=program, out=options.out)
    print("\n".join(wrong) or f"ui-pages: nothing wrong; screenshots in {options.out}")
    return 1 if wrong else 0


def looked_at(root: Path, name: str, incident: str, *, profile: str, program: str, out: Path) -> list[str]:
    words = [sys.executable, "-m", "steadytrain", "ui", str(root), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        browser = Browser(program, profile)
        try:
            run = f"{address}run/{quote(name)}"
            pages = {
                "runs": address,
                "run": run,
                "report": f"{run}/page",
                "incident": f"{run}/incident/{incident}",
                "undiagnosed": f"{address}run/{COPY}/incident/{incident}",
                "compare": f"{address}compare?a={quote(name)}&b={COPY}",
                "explanations": f"{address}explain",
                "explanation": f"{address}explain/loss-spike",
            }
            wrong = [line for page, place in pages.items() for line in look(browser, place, page, out)]
            wrong += look(browser, run, "run-zoomed", out, before=ZOOM)
            wrong += linked(browser, run, out)
            wrong += press(browser, pages["undiagnosed"], out)
        finally:
            browser.close()
            server.terminate()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
