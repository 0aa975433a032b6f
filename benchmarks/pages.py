"""Makes pages of every kind, opens them in Chromium and looks for what a reader would trip over.

    python benchmarks/pages.py [--out build/pages] [--only nan_row]

Whole runs of the zoo with their incidents and diagnoses, and one page each of `analyze`, `compare`, `audit`,
`preflight`, `check-data` and `debug`. Every page is opened at three sizes, light and dark: a screenshot each, no
horizontal overflow, no message on the console, contrast of AA, everything reached by Tab, under 2 MB. Chromium is
driven through its debugging pipe, so nothing but Chromium is needed. Without Chromium the pages are still made, and one
line says that nobody looked at them.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from page_checks import STEP_SHOWN, faint_texts, unreached
from page_results import make_results

ZOO = Path(__file__).parents[1] / "zoo" / "runs"
RUNS = ("prompts_too_long", "nan_row", "scores_explode")
SIZES = ((1400, 900), (800, 900), (400, 900))
SCHEMES = ("light", "dark")
SIZE_BYTES_MAX = 2_000_000
COMMAND_WAIT_S = 1800
ANSWER_WAIT_S = 300
SETTLE_S = 1.5
MESSAGE_LENGTH_MAX = 300
OPEN_ALL = "document.querySelectorAll('details').forEach(one => one.open = true)"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Browser:
    """A headless Chromium at the other end of its debugging pipe. ``messages`` holds what its console said."""

    def __init__(self, program: str, profile: str) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = f"--headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir='{profile}'"
        line = f"exec '{program}' {options} --remote-debugging-pipe about:blank 3<&{to_read} 4>&{to_write}"
        self._process = subprocess.Popen(
            ["bash", "-c", line], pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._held, self._number, self._session = b"", 0, None
        self.messages: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        text = json.dumps({"id": self._number, "method": method, "params": parameters, **session})
        os.write(self._write, text.encode() + b"\0")
        until = time.monotonic() + ANSWER_WAIT_S
        while (answer := self._next(until)).get("id") != self._number:
            self._keep(answer)
        if "error" in answer:
            raise SystemExit(f"pages: Chromium refused {method}: {answer['error']['message']}")
        return dict(answer["result"])

    def evaluate(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression)["result"].get("value")

    def evaluate_value(self, expression: str) -> Any:
        """Like ``evaluate``, also for arrays and objects."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(ANSWER_WAIT_S)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._held:
            if not select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise SystemExit(f"pages: Chromium did not answer within {ANSWER_WAIT_S} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise SystemExit("pages: Chromium ended early")
            self._held += part
        text, _, self._held = self._held.partition(b"\0")
        return dict(json.loads(text))

    def _keep(self, event: dict[str, Any]) -> None:
        """Keep what is an error or a warning. Bokeh says on the console when it is done."""
        method, told = event.get("method"), event.get("params", {})
        grave = told.get("type") in ("error", "warning", "assert") if method == "Runtime.consoleAPICalled" else True
        if grave and method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.messages.append(json.dumps(told)[:MESSAGE_LENGTH_MAX])


def chromium() -> str | None:
    """The program, None where it is not installed."""
    return shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")


def make(name: str, out: Path) -> Path:
    """Train, diagnose, mend and report one run of the zoo."""
    runs = out / "runs" / name
    shutil.rmtree(runs, ignore_errors=True)
    page = out / f"{name}.html"
    place = ["--runs-dir", str(runs)]
    # A run that is stopped, or has no patch, has an exit status of its own.
    for words in (
        ["run", "--policy", "stop", *place, str(ZOO / f"{name}.py")],
        ["diagnose", *place],
        ["fix", *place],
        ["report", *place, "-o", str(page)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "steadytrain", *words], capture_output=True, text=True, timeout=COMMAND_WAIT_S
        )
    if not page.is_file():
        raise SystemExit(f"pages: no page of {name}: {done.stderr.strip() or done.stdout.strip()}")
    return page


def look(browser: Browser, page: Path) -> list[str]:
    """Take the screenshots of ``page`` and return what is wrong with it."""
    wrong = [] if page.stat().st_size < SIZE_BYTES_MAX else [f"{page.name}: {page.stat().st_size:,} bytes"]
    for width, height in SIZES:
        for scheme in SCHEMES:
            where = f"{page.stem}-{width}-{scheme}"
            browser.messages.clear()
            browser.ask(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
            browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.ask("Page.navigate", url=page.resolve().as_uri())
            time.sleep(SETTLE_S)
            for state, before in (("", "0"), ("-open", OPEN_ALL)):
                browser.evaluate(before)
                time.sleep(SETTLE_S if state else 0)
                shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=bool(state), **_clip(browser, state))
                page.with_name(f"{where}{state}.png").write_bytes(base64.b64decode(shot["data"]))
                wrong += [f"{where}{state}: {text}" for text in faint_texts(browser)]
                if not state and scheme == SCHEMES[0]:
                    wrong += [f"{where}: {text}" for text in unreached(browser)]
                over = browser.evaluate(OVERFLOW)
                if over:
                    wrong.append(f"{where}{state}: {over} pixels wider than the window")
            wrong += [f"{where}: console: {message}" for message in browser.messages]
    return wrong


def linked(browser: Browser, page: Path) -> list[str]:
    """What is wrong where the address of ``page`` names a step of its curves; pages without curves have none."""
    browser.messages.clear()
    browser.ask("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
    browser.ask("Page.navigate", url=page.resolve().as_uri())
    time.sleep(SETTLE_S)
    middle = "(Number(curves.dataset.first) + Number(curves.dataset.last)) >> 1"
    step = browser.evaluate(f"document.getElementById('curves') ? {middle} : null")
    if step is None:
        return []
    browser.ask("Page.navigate", url=f"{page.resolve().as_uri()}?again#step-{step}")
    time.sleep(SETTLE_S)
    shot = browser.ask("Page.captureScreenshot")
    page.with_name(f"{page.stem}-step.png").write_bytes(base64.b64decode(shot["data"]))
    wrong = browser.evaluate(STEP_SHOWN)
    return [f"{page.stem}#step-{step}: {text}" for text in [*([wrong] if wrong else []), *browser.messages]]


def _clip(browser: Browser, state: str) -> dict[str, Any]:
    """The whole page once everything is open, else the first screen."""
    if not state:
        return {}
    size = browser.ask("Page.getLayoutMetrics")["cssContentSize"]
    return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/pages"))
    parser.add_argument("--only", choices=RUNS)
    parser.add_argument("--keep", action="store_true", help="look at the pages that are there")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = [arguments.only] if arguments.only else RUNS
    pages = [arguments.out / f"{name}.html" if arguments.keep else make(name, arguments.out) for name in names]
    if arguments.only is None:
        if not arguments.keep:
            make_results(arguments.out, COMMAND_WAIT_S)
        pages += sorted(arguments.out.glob("of-*.html"))
    program = chromium()
    if program is None:
        print(f"pages: Chromium is not installed: {len(pages)} pages made in {arguments.out}, none looked at")
        return 0
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        try:
            wrong = [line for page in pages for line in [*look(browser, page), *linked(browser, page)]]
        finally:
            browser.close()
    for line in wrong:
        print(line)
    print(f"pages: {len(pages)} pages in {arguments.out}, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
