"""Curves with zoom and hover, drawn with bokeh if it is installed (``steadytrain[report]``).

The page contains everything that bokeh needs and loads nothing from a network. Its texts are fixed words, numbers and
symptom names, never markup.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.report.heat import Heat
from steadytrain.report.report_values import Report, SymptomRow
from steadytrain.report.svg import WIDE, band_labels, by_severity
from steadytrain.report.svg_heat import labels_width
from steadytrain.report.symptoms_shown import bands_of
from steadytrain.report.thinned_curves import Curve
from steadytrain.report.wording import number
from steadytrain.report.zoom_heat import heat_figure

HEIGHT = 210
LABEL_BOTTOM, LABEL_HEIGHT = 14, 14
PLAIN_NAME = re.compile(r"[a-z0-9-]{1,80}")
LOG_TICKS = 4
DIGITS = 6
POWER_LOW = -6
"""Decimal power below which an axis uses scientific notation."""

# Colours of the light scheme. In the dark scheme the page replaces them while it loads the drawing.
FAINT, GRID, LINE = "#5b6675", "#e3e7ec", "#1f6feb"
SEVERITY_COLOURS = {"critical": "#c62828", "warning": "#8a5200", "note": "#51606f"}
BAND_ALPHA = {"critical": 0.16, "warning": 0.08, "note": 0.05}
"""So that bands which overlap do not bury the gravest."""

DARK = {
    FAINT: "#9aa6b4",
    GRID: "#2b333d",
    LINE: "#6cb0ff",
    SEVERITY_COLOURS["critical"]: "#ff7b72",
    SEVERITY_COLOURS["warning"]: "#e3a13a",
    SEVERITY_COLOURS["note"]: "#8b98a7",
}


@dataclass(frozen=True)
class Zoom:
    """Bokeh's own script, and the drawing: JSON of the documents, and the element of each figure.

    The figure of curve or map number *i* of the report (curves first) goes into the element ``zoom-i``.
    """

    library: str
    drawing: dict[str, Any]


def zoom(report: Report) -> Zoom | None:
    """Curves and maps of ``report`` for bokeh; None if bokeh is not installed or the report has none."""
    heats = [heat for measured in report.measured for heat in measured.heats]
    if not report.curves and not heats:
        return None
    try:
        import bokeh
        from bokeh.document import Document
        from bokeh.embed.util import standalone_docs_json_and_render_items
        from bokeh.models import Range1d
    except ImportError:
        return None
    first, last = steps_of(report.curves, heats)
    edges = (first - 0.5, last + 0.5)  # nothing is drawn past the last step or before the first
    shared = Range1d(start=edges[0], end=edges[1], bounds=edges)
    # All share one range of steps and one label width, so that their steps line up.
    figures = [
        *(_figure(curve, bands_of(curve, report.symptoms), shared) for curve in report.curves),
        *(heat_figure(heat, shared, hatch_colour=FAINT) for heat in heats),
    ]
    document = Document()
    for drawn in figures:
        _style(drawn, left=labels_width(heats))
        _mark_for_a_step(drawn)
        document.add_root(drawn)
    documents, (placed,) = standalone_docs_json_and_render_items(document)
    place = placed.to_json()
    place["roots"] = {root: f"zoom-{index}" for index, root in enumerate(place["roots"])}
    library = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    return Zoom(
        library=library.read_text(encoding="utf-8"),
        drawing={"documents": documents, "places": [place]},
    )


def steps_of(curves: Sequence[Curve], heats: Sequence[Heat]) -> tuple[int, int]:
    """The first and the last step of all curves and maps, of which there is at least one."""
    first = min([*(min(curve.steps) for curve in curves), *(heat.starts[0] for heat in heats)])
    last = max([*(max(curve.steps) for curve in curves), *(heat.end - 1 for heat in heats)])
    return first, last


def _rounded(value: float) -> float:
    """Float32 holds seven digits. Without rounding, an axis would label 0.003 as 0.00300000003."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else math.nan


def _figure(curve: Curve, symptoms: Sequence[SymptomRow], shared: Any) -> Any:
    from bokeh.models import LinearScale, Range1d
    from bokeh.plotting import figure

    drawn = figure(
        height=HEIGHT,
        sizing_mode="stretch_width",
        x_range=shared,
        y_axis_type="log" if curve.logarithmic else "linear",
        tools="xpan,xbox_zoom,xwheel_zoom,reset",
        active_drag="xbox_zoom",
        toolbar_location="right",
        window_axis="x",
    )
    # Marks stay at the edge of the frame at every zoom.
    drawn.extra_y_ranges = {"edge": Range1d(start=0, end=1)}
    drawn.extra_y_scales = {"edge": LinearScale()}
    _draw_symptoms(drawn, symptoms)
    _draw_values(drawn, curve)
    _name_bands(drawn, curve, symptoms)
    return drawn


def _mark_for_a_step(drawn: Any) -> None:
    """The line at the step that the page's address names: see ``step_link.js``."""
    from bokeh.models.annotations import Span

    drawn.add_layout(Span(name="asked-step", dimension="height", line_color=LINE, line_dash="dashed", visible=False))


def _draw_values(drawn: Any, curve: Curve) -> None:
    from bokeh.models import ColumnDataSource, HoverTool

    finite = [_rounded(value) for value in curve.values]
    shown = [number(value) for value in curve.values]
    source = ColumnDataSource({"step": list(curve.steps), "value": finite, "shown": shown})
    line = drawn.line("step", "value", source=source, line_color=LINE, line_width=1.6)
    if curve.logarithmic:
        # With more, labels of less than a decade overlap at its upper end.
        drawn.yaxis.ticker.desired_num_ticks = LOG_TICKS
    else:
        # Show a learning rate as 0.0014, not as 1.400e-3.
        drawn.yaxis.formatter.power_limit_low = POWER_LOW
    # The marks at the edges have their own axis and must not stretch this one.
    drawn.y_range.renderers = [line]
    # For a constant, bokeh's default span is 2, so a learning rate of 3e-4 would read as 0.
    drawn.y_range.default_span = max(abs(curve.largest or 0.0), 1e-12)
    # A line needs two points, so a point between two gaps would be invisible.
    drawn.scatter("step", "value", source=source, size=2, color=LINE, line_color=None)
    tooltips = [("step", "@step{0,0}"), (curve.title, "@shown")]
    drawn.add_tools(HoverTool(renderers=[line], mode="vline", line_policy="nearest", tooltips=tooltips))
    bad = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if not math.isfinite(value)]
    if bad:
        columns = {"step": [step for step, _ in bad], "edge": [0.95] * len(bad), "shown": [number(v) for _, v in bad]}
        crosses = drawn.scatter(
            "step",
            "edge",
            source=ColumnDataSource(columns),
            y_range_name="edge",
            marker="x",
            size=10,
            line_width=2.5,
            color=SEVERITY_COLOURS["critical"],
        )
        drawn.add_tools(HoverTool(renderers=[crosses], tooltips=[("step", "@step{0,0}"), ("not finite", "@shown")]))


def _draw_symptoms(drawn: Any, symptoms: Sequence[SymptomRow]) -> None:
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.models.annotations import BoxAnnotation, Span

    if not symptoms:
        return
    for symptom in by_severity(symptoms):
        colour = SEVERITY_COLOURS[symptom.severity]
        if symptom.first_step == symptom.last_step:
            drawn.add_layout(Span(location=symptom.first_step, dimension="height", line_color=colour, line_alpha=0.5))
        else:
            band = BoxAnnotation(left=symptom.first_step, right=symptom.last_step, fill_color=colour)
            band.fill_alpha = BAND_ALPHA[symptom.severity]
            band.line_color = None
            drawn.add_layout(band)
    columns = {
        "step": [symptom.first_step for symptom in symptoms],
        "edge": [0.04] * len(symptoms),
        "colour": [SEVERITY_COLOURS[symptom.severity] for symptom in symptoms],
        "name": [symptom.name for symptom in symptoms],
        "steps": [symptom.steps for symptom in symptoms],
    }
    marks = drawn.scatter(
        "step",
        "edge",
        source=ColumnDataSource(columns),
        y_range_name="edge",
        marker="triangle",
        size=10,
        fill_color="colour",
        line_color=None,
    )
    drawn.add_tools(HoverTool(renderers=[marks], tooltips=[("symptom", "@name"), ("at", "@steps")]))


def _name_bands(drawn: Any, curve: Curve, symptoms: Sequence[SymptomRow]) -> None:
    """The names of the bands, placed as on a static drawing. A name from elsewhere could be read as a formula."""
    from bokeh.models.annotations import Label

    first, last = min(curve.steps), max(curve.steps)
    for placed in band_labels(symptoms, first, last, WIDE.across(first, last), WIDE):
        if not PLAIN_NAME.fullmatch(placed.symptom.name):
            continue
        to_the_left = placed.left < WIDE.across(first, last)(max(first, placed.symptom.first_step))
        drawn.add_layout(
            Label(
                x=last if to_the_left else max(first, placed.symptom.first_step),
                y=LABEL_BOTTOM + LABEL_HEIGHT * placed.row,
                y_units="screen",
                x_offset=-3 if to_the_left else 3,
                text=placed.symptom.name,
                text_align="right" if to_the_left else "left",
                text_color=SEVERITY_COLOURS[placed.symptom.severity],
                text_font_size="11px",
                text_font_style="bold",
            )
        )


def _style(drawn: Any, *, left: int) -> None:
    drawn.toolbar.logo = None
    drawn.toolbar.autohide = True
    drawn.background_fill_color = None
    drawn.border_fill_color = None
    drawn.outline_line_color = None
    drawn.min_border_left = left
    drawn.min_border_top = 8
    for axis in drawn.axis:
        axis.major_label_text_color = FAINT
        axis.axis_line_color = GRID
        axis.major_tick_line_color = GRID
        axis.minor_tick_line_color = None
    drawn.grid.grid_line_color = GRID
    drawn.xgrid.grid_line_color = None
