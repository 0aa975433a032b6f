"""Sections of a page from a run's tables: the maps, the layers, precision and machine, for each stream.

An incident stores only the gradient norms of the steps before it; they make one map.
"""

from __future__ import annotations

from dataclasses import replace

from steadytrain.core.model import Table, Window
from steadytrain.report.layers import layer_groups
from steadytrain.report.maps import maps
from steadytrain.report.report_values import Measured, Report
from steadytrain.report.symptoms_shown import stream_names
from steadytrain.report.table_readings import Readings, read
from steadytrain.report.topics import machine, precision
from steadytrain.report.wording import clean
from steadytrain.storage.run_folder import Run

STREAMS_MAX = 2
NO_TABLES = "No layers can be shown: the run has no readable tables."


def with_measured(report: Report, run: Run) -> Report:
    """Add the sections from the tables of ``run`` to its ``report``: more than fits on a terminal."""
    streams = run.streams()
    names = stream_names(run)
    measured = tuple(_of_stream(run, stream, names.get(stream, "")) for stream in streams[:STREAMS_MAX])
    notes = report.notes
    if len(streams) > STREAMS_MAX:
        left_out = ", ".join(map(clean, streams[STREAMS_MAX:]))
        notes = (*notes, f"The tables of these streams are recorded but not shown: {left_out}.")
    return replace(report, measured=tuple(part for part in measured if part is not None), notes=notes)


def with_window(report: Report, window: Window) -> Report:
    """Add the gradient norm of every layer in ``window`` to the ``report`` of an incident."""
    if not window.gradient_norms.size:
        return report
    norms = Table(
        "gradients", window.steps, window.time, window.tensor_names, ("norm",), window.gradient_norms[:, :, None]
    )
    heats, _ = maps(Readings({"gradients": norms}, ()), until=int(window.steps[-1]))
    return replace(report, measured=(Measured("", heats, (), (), ()),)) if heats else report


def _of_stream(run: Run, stream: str, name: str) -> Measured | None:
    window = run.scalars(stream)
    if not len(window):
        return None
    readings = read(run, stream)
    heats, not_drawn = maps(readings, until=int(window.steps[-1]))
    groups, not_listed = layer_groups(readings)
    return Measured(
        stream=name,
        heats=tuple(replace(heat, title=f"{name}: {heat.title}") for heat in heats) if name else heats,
        groups=groups,
        topics=(precision(run, window, readings), machine(run, window, readings)),
        sentences=(*(not_drawn if readings.tables else (NO_TABLES,)), *not_listed, *readings.notes),
    )
