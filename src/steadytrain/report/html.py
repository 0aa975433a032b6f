"""Render a report as one self-contained HTML page: opens offline, prints, light and dark.

The page states a content security policy that allows its own scripts by hash and no network. So text from a run can
neither run nor load anything, even if escaping fails.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import zlib
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from steadytrain.core.extras import install
from steadytrain.core.own_command import pasteable
from steadytrain.report import svg, svg_heat
from steadytrain.report.diagnosis_shown import FIX_HEADINGS
from steadytrain.report.formats import as_markdown
from steadytrain.report.heat import Heat
from steadytrain.report.method_shown import MethodPart
from steadytrain.report.next_commands import on_page
from steadytrain.report.report_values import Report
from steadytrain.report.symptoms_shown import bands_of
from steadytrain.report.thinned_curves import Curve
from steadytrain.report.wording import number
from steadytrain.report.zoom import DARK, Zoom, steps_of
from steadytrain.storage.documents import redact_value
from steadytrain.storage.redaction import redact_text

INSTALL_HINT = "For curves and maps that zoom: {} and write the page again."


_SHORT = replace(svg.WIDE, height=150)


@dataclass(frozen=True)
class Figure:
    """A curve over the steps, or the map ``heat`` with a ``legend``."""

    title: str
    logarithmic: bool
    not_finite: str
    drawing: Markup
    heat: Heat | None = None
    legend: Markup | None = None


@dataclass(frozen=True)
class Served:
    """What a page has besides when a server shows it.

    ``links`` are pairs of a text and an address. ``address`` is where the diagnosis is asked for, "" for none;
    ``token`` lets the page start it, "" if it may not; ``source`` is the run or incident that it is about.
    """

    links: tuple[tuple[str, str], ...]
    address: str
    token: str
    source: str

    @property
    def command(self) -> str:
        return f"steadytrain diagnose {shlex.quote(self.source)}"


def page(
    report: Report, zoom: Zoom | None, *, version: str, steps: MethodPart | None = None, served: Served | None = None
) -> str:
    """The HTML of ``report``, with the interactive curves of ``zoom``, or static ones if it is None.

    ``version`` is the version of steadytrain that writes the page. ``steps`` are the ten steps of ``debug``, shown
    first. ``served`` is None for a page that is a file.
    """
    report, steps = redact_value(report), redact_value(steps)
    if served is None:
        report = replace(report, commands=on_page(report.commands))
    environment = Environment(
        autoescape=True, finalize=redacted_cell, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(files("steadytrain.report").joinpath("page.html.j2").read_text("utf-8"))
    figures = _figures(report)
    if zoom is not None:
        scripts = [_inline(zoom.library), _script("zoom.js")]
    else:
        scripts = [_script("readout.js")] if any(figure.heat for figure in figures) else []
    if figures:
        scripts.append(_script("step_link.js"))
    scripts.append(_script("copying.js"))
    if served is not None and served.address:
        scripts.append(_script("diagnosing.js"))
    text: str = template.render(
        report=report,
        here=pasteable,
        style=style(),
        markdown=as_markdown(report),
        served=served,
        token=Markup.escape(served.token) if served is not None else "",  # our own secret, for this page alone
        steps=steps,
        figures=figures,
        first_and_last=steps_of(report.curves, _heats(report)) if figures else None,
        small=lambda curve: Markup(svg.small_drawing(curve)),
        wide=lambda curve: Markup(svg.drawing(curve, bands_of(curve, report.symptoms), _SHORT)),
        half=lambda curve: Markup(svg.drawing(curve, bands_of(curve, report.symptoms), svg.HALF)),
        histogram=lambda drawn: Markup(svg_heat.histogram_drawing(drawn)),
        readout=readout,
        number=number,
        zooming=packed(zoom.drawing) if zoom is not None else None,
        dark=DARK,
        fix_headings=FIX_HEADINGS,
        scripts=[Markup(script) for script in scripts],
        hashes=" ".join(_policy_hash(script) for script in scripts) or "'none'",
        hint=INSTALL_HINT.format(install("report")) if zoom is None and figures else "",
        version=version,
    )
    return text


def style() -> Markup:
    """The style of every page."""
    return Markup(files("steadytrain.report").joinpath("page.css").read_text("utf-8").rstrip("\n"))


def redacted_cell(value: Any) -> Any:
    """What the template shows of ``value``; drawings (``Markup``) are made of redacted text."""
    return redact_text(value) if type(value) is str else value


def packed(document: Any) -> Markup:
    """``document`` as compressed JSON, in characters that cannot end an HTML element."""
    # Bokeh reads its document in order: a reference must follow the object that it names.
    text = json.dumps(document, allow_nan=False)  # of a redacted report
    return Markup(base64.b64encode(zlib.compress(text.encode(), 9)).decode())


def readout(heat: Heat) -> Markup:
    """The pointer's readout of ``heat`` without bokeh: see ``readout.js``."""
    return packed({"rows": [row.name for row in heat.rows], "starts": heat.starts, "texts": heat.texts()})


def _figures(report: Report) -> list[Figure]:
    """Curves, then maps, all over the same range of steps."""
    heats = _heats(report)
    edges = [
        *((min(curve.steps), max(curve.steps)) for curve in report.curves),
        *((heat.starts[0] - 0.5, heat.end - 0.5) for heat in heats),
    ]
    if not edges:
        return []
    span = (min(first for first, _ in edges), max(last for _, last in edges))
    frame = replace(svg.WIDE, left=svg_heat.labels_width(heats))
    return [
        *(_of_curve(curve, report, frame, span) for curve in report.curves),
        *(_of_heat(h, frame, span) for h in heats),
    ]


def _heats(report: Report) -> list[Heat]:
    return [heat for measured in report.measured for heat in measured.heats]


def _of_curve(curve: Curve, report: Report, frame: svg.Frame, span: tuple[float, float]) -> Figure:
    return Figure(
        title=curve.title,
        logarithmic=curve.logarithmic,
        not_finite=f"{curve.not_finite:,} not finite" if curve.not_finite else "",
        drawing=Markup(svg.drawing(curve, bands_of(curve, report.symptoms), frame, span=span)),
    )


def _of_heat(heat: Heat, frame: svg.Frame, span: tuple[float, float]) -> Figure:
    bad = sum(row.not_finite for row in heat.rows)
    return Figure(
        title=heat.title,
        logarithmic=heat.logarithmic,
        not_finite=f"{bad:,} of {len(heat.rows):,} rows not finite" if bad else "",
        drawing=Markup(svg_heat.drawing(heat, frame.across(*span), left=frame.left)),
        legend=Markup(svg_heat.legend(heat)),
        heat=heat,
    )


def _script(name: str) -> str:
    return files("steadytrain.report").joinpath(name).read_text("utf-8")


def _inline(script: str) -> str:
    """Escape ``script`` so that no text in it ends the element, with the line ends that a browser hashes."""
    return script.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
