"""The heat maps of a stream: gradient norm, update ratio and dead share of every layer over the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadytrain.report.heat import Heat, heat
from steadytrain.report.layer_labels import in_model_order
from steadytrain.report.table_readings import Cells, Readings
from steadytrain.report.wording import count


def maps(readings: Readings, *, until: int | None = None) -> tuple[tuple[Heat, ...], tuple[str, ...]]:
    """The maps, and notes on what is not drawn. ``until`` is the last step of the run."""
    told = []
    norms = readings.cells("gradients", "norm")
    ratios = readings.cells("tensors", "update_ratio", bad=("weight_nonfinite", "gradient_nonfinite"))
    dead, of_what = readings.cells("modules", "zero_share", bad=("nonfinite",)), "output"
    if dead is None:
        dead, of_what = readings.cells("tensors", "gradient_zero_share", bad=("gradient_nonfinite",)), "gradient"
    if norms is None:
        told.append("Gradient norms of layers were not recorded.")
    if ratios is None:
        told.append("Update ratios were not recorded: levels standard and full record them.")
    if dead is None:
        told.append("Shares of zeros were not recorded: levels standard and full record them.")
    elif not np.nanmax(dead.values) > 0:
        told.append(
            f"No dead elements: over {count(len(dead.steps))} readings no element of the {of_what} of "
            f"{count(len(dead.rows))} layers was exactly zero."
        )
        dead = None
    found = [
        _map("gradient_norm", "gradient norm before clipping", norms, readings, logarithmic=True),
        _map(
            "update_ratio",
            "update ratio: norm of the update over norm of the weight",
            ratios,
            readings,
            logarithmic=True,
            not_finite="NaN or Inf in the gradient or the weight",
        ),
        _map(
            "dead_share",
            f"dead share: elements of the {of_what} that are exactly zero",
            dead,
            readings,
            bounds=(0.0, 1.0),
            not_finite=f"NaN or Inf in the {of_what}",
        ),
    ]
    found = [_cut(drawn, until) for drawn in found]
    return tuple(drawn for drawn in found if drawn is not None), tuple(told)


def _cut(drawn: Heat | None, until: int | None) -> Heat | None:
    if drawn is None or until is None:
        return drawn
    return replace(drawn, end=min(drawn.end, max(until + 1, drawn.starts[-2] + 1)))


def _map(
    name: str,
    title: str,
    cells: Cells | None,
    readings: Readings,
    *,
    logarithmic: bool = False,
    bounds: tuple[float, float] | None = None,
    not_finite: str = "NaN or Inf",
) -> Heat | None:
    if cells is None:
        return None
    order = in_model_order(cells.rows, readings.rows("modules"))
    rows = [cells.rows[index] for index in order]
    return heat(
        name,
        title,
        rows,
        cells.steps,
        cells.values[:, order],
        logarithmic=logarithmic,
        bounds=bounds,
        not_finite=not_finite,
    )
