"""What a browser can say of a page's colours and keys: contrast of each text (WCAG AA), and what Tab reaches."""

from __future__ import annotations

from typing import Any, Protocol

TEXTS_MAX = 8
TABS_MAX = 800
CONTRAST = r"""
(() => {
  const parse = (text) => { const found = (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    return found.length < 4 ? [...found, 1] : found; };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const light = (colour) => { const part = colour.slice(0, 3).map((one) => { const share = one / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2]; };
  const paper = (element) => { const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = new Map();
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest("script, style, title")) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const behind = paper(element), ink = parse(element.closest("svg") ? style.fill : style.color);
    const [one, other] = [light(over(ink, behind)), light(behind)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) faint.set(`${style.color} ${behind}`, `${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
  }
  return [...faint.values()].join(" | ");
})()
"""
REACHABLE = r"""
(() => {
  const all = [...document.querySelectorAll("a[href], summary, button, input, select, [tabindex='0']")];
  window.toReach = new Set(all.filter((one) => one.checkVisibility() && !one.disabled));
  return window.toReach.size;
})()
"""
REACHED = r"""
(() => {
  const here = document.activeElement;
  let inner = here;
  while (inner.shadowRoot?.activeElement) inner = inner.shadowRoot.activeElement;
  const style = getComputedStyle(inner);
  window.toReach.delete(here);
  if (here.type === "radio") for (const one of document.getElementsByName(here.name)) window.toReach.delete(one);
  const seen = here === document.body || style.outlineStyle !== "none" || style.boxShadow !== "none";
  return [window.toReach.size, here === document.body ? "" : seen ? "" : here.outerHTML.slice(0, 80)];
})()
"""

STEP_SHOWN = r"""
(() => {
  const curves = document.getElementById("curves"), step = Number(location.hash.slice("#step-".length));
  const count = (chosen) => curves.querySelectorAll(chosen).length;
  const marks = count("svg .asked"), drawings = count("svg[data-left]");
  const zoomed = (window.Bokeh?.documents || []).flatMap((one) => one.roots());
  const wrong = [];
  if (!curves.open) wrong.push("the curves are folded");
  if (marks !== drawings) wrong.push(`${marks} of ${drawings} drawings mark the step`);
  for (const figure of zoomed) {
    const mark = figure.center.find((one) => one.name === "asked-step");
    if (!mark?.visible || mark.location !== step) wrong.push("a curve that zooms does not mark the step");
    if (!(figure.x_range.start <= step && step <= figure.x_range.end)) wrong.push("the step is out of sight");
  }
  const there = curves.getBoundingClientRect();
  if (there.top > innerHeight || there.bottom < 0) wrong.push("the curves are out of sight");
  return [...new Set(wrong)].join(", ");
})()
"""


class Driven(Protocol):
    def ask(self, method: str, **parameters: Any) -> dict[str, Any]: ...

    def evaluate(self, expression: str) -> Any: ...

    def evaluate_value(self, expression: str) -> Any: ...


def faint_texts(browser: Driven) -> list[str]:
    """Texts whose contrast is below that of AA, a sample for each pair of colours."""
    return [f"contrast {text}" for text in (browser.evaluate(CONTRAST) or "").split(" | ") if text][:TEXTS_MAX]


def unreached(browser: Driven) -> list[str]:
    """What Tab does not reach, and what does not show that it has the focus."""
    left, wrong = browser.evaluate(REACHABLE), {}
    for _ in range(min(TABS_MAX, left + 40)):
        for kind in ("keyDown", "keyUp"):
            browser.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        left, unseen = browser.evaluate_value(REACHED)
        if unseen:
            wrong[unseen] = f"no sign of the focus: {unseen}"
        if not left:
            break
    return [*list(wrong.values())[:TEXTS_MAX], *([f"{left} elements that Tab does not reach"] if left else [])]
