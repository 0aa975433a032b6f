"""Heat maps for bokeh: one image per row, so that hovering shows the layer, the step and the value."""

from __future__ import annotations

from typing import Any

from steadytrain.report.colours import hexadecimal
from steadytrain.report.heat import Heat
from steadytrain.report.svg_heat import HEAT_PALETTE, labelled_rows, row_height

EDGES = 36
"""Height of axis and margins, added to the rows."""


def heat_figure(heat: Heat, shared: Any, *, hatch_colour: str) -> Any:
    """``heat`` over the step range ``shared``, with hatching where nothing was measured."""
    from bokeh.models import ColumnDataSource, HoverTool, LinearColorMapper, Range1d
    from bokeh.models.annotations import BoxAnnotation
    from bokeh.plotting import figure

    count, first, end = len(heat.rows), heat.starts[0], heat.starts[-1]
    drawn: Any = figure(
        height=round(row_height(heat) * count) + EDGES,
        sizing_mode="stretch_width",
        x_range=shared,
        y_range=Range1d(start=count, end=0, bounds=(0, count)),
        tools="xpan,xbox_zoom,box_zoom,xwheel_zoom,reset",
        active_drag="xbox_zoom",
        toolbar_location="right",
    )
    colours = [
        f"{colour}{opacity:02x}"
        for colour, opacity in zip(hexadecimal(HEAT_PALETTE[:, :3]), HEAT_PALETTE[:, 3].tolist(), strict=True)
    ]
    source = ColumnDataSource(
        {
            "levels": [row[None, :] for row in heat.levels],
            "text": [[text or "not measured" for text in row] for row in heat.texts()],
            "layer": [row.name for row in heat.rows],
            "y": list(range(count)),
        }
    )
    # Absent cells are transparent, and this hatching shows through.
    hatching = BoxAnnotation(left=first - 0.5, right=heat.end - 0.5, top=0, bottom=count, level="underlay")
    hatching.update(fill_color=None, line_color=None, hatch_pattern="right_diagonal_line", hatch_scale=8)
    hatching.update(hatch_color=hatch_colour, hatch_alpha=0.45, hatch_weight=1)
    drawn.add_layout(hatching)
    cells = drawn.image(
        image="levels",
        # The cell of a step is centred on it, like the point of a curve.
        x=first - 0.5,
        y="y",
        dw=end - first,
        dh=1,
        source=source,
        color_mapper=LinearColorMapper(palette=colours, low=0, high=255),
    )
    tooltips = [("layer", "@layer"), ("step", "$x{0,0}"), ("value", "@text")]
    drawn.add_tools(HoverTool(renderers=[cells], tooltips=tooltips))
    _label(drawn, heat)
    return drawn


def _label(drawn: Any, heat: Heat) -> None:
    from bokeh.models import FixedTicker, PlainText

    rows = labelled_rows(heat)
    drawn.yaxis.ticker = FixedTicker(ticks=[row + 0.5 for row in rows])
    drawn.yaxis.major_label_overrides = {
        # Bokeh would read a plain string with such marks as TeX.
        row + 0.5: PlainText(text=f"{'✗ ' if heat.rows[row].not_finite else ''}{heat.rows[row].label}")
        for row in rows
    }
    drawn.yaxis.major_label_text_font_size = "10px"
    drawn.grid.visible = False
