"""A report as one self-contained HTML page: opens offline, prints, light and dark.

The page states a content policy that allows its own scripts by their hash and no network at all, so text that comes
from a run can neither run nor load anything even where escaping were to fail.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from steadytrain.report import svg
from steadytrain.report.values import Report
from steadytrain.report.zoom import DARK, Zoom

INSTALL_HINT = "For curves that zoom and hover: pip install 'steadytrain[report]' and write the page again."

_STARTER = """
(function () {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const read = (id) => document.getElementById(id).textContent;
  function draw() {
    const colours = JSON.parse(read("dark-colours"));
    const recolour = (_, value) => (dark.matches && Object.hasOwn(colours, value) ? colours[value] : value);
    const item = JSON.parse(read("curves-data"), recolour);
    document.getElementById("curves-zoom").replaceChildren();
    document.body.classList.add("zooming");
    Bokeh.embed.embed_item(item, "curves-zoom").catch((reason) => {
      document.body.classList.remove("zooming");
      console.error(reason);
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
"""


def page(report: Report, zoom: Zoom | None, *, version: str) -> str:
    """The HTML of ``report``, with the curves of ``zoom`` where there are such, else static ones.

    ``version`` is that of the steadytrain that writes the page.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # Bokeh reads its document in order: a reference must come after what it names.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    template = environment.from_string(files("steadytrain.report").joinpath("page.html.j2").read_text("utf-8"))
    scripts = [_inline(zoom.library), _STARTER] if zoom is not None else []
    text: str = template.render(
        report=report,
        drawings=[(curve, Markup(svg.drawing(curve, report.symptoms))) for curve in report.curves],
        item=zoom.item if zoom is not None else None,
        dark=DARK,
        scripts=[Markup(script) for script in scripts],
        hashes=" ".join(_policy_hash(script) for script in scripts) or "'none'",
        hint=INSTALL_HINT if zoom is None and report.curves else "",
        version=version,
    )
    return text


def _inline(script: str) -> str:
    """``script`` so that no text in it ends the element, and with the line ends that a browser will hash."""
    return script.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
