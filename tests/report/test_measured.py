"""The page of a run with tables as a whole: bounded, complete, and as before where there are none."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

import builders
import tabled
from steadytrain.report import build, html, zoom
from steadytrain.report.measured import NO_TABLES, STREAMS_MAX, with_measured, with_window
from steadytrain.report.report_values import Report
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.segments import SegmentWriter

STATIC_BYTES_MAX = 1_600_000
DRAWING_BYTES_MAX = 900_000
"""What the tables of a model of a thousand tensors may add to a page, beside bokeh's own script."""


def measured(run: Path) -> Report:
    opened = open_run(run)
    return with_measured(build.from_run(opened), opened)


def static(report: Report) -> str:
    return html.page(report, None, version="0.1.0")


def test_a_run_without_tables_is_told_as_before(tmp_path: Path) -> None:
    run = open_run(builders.bad_run(tmp_path / "run"))
    plain = build.from_run(run)
    found = with_measured(plain, run)
    assert dataclasses.replace(found, measured=()) == plain
    assert found.measured[0].heats == ()
    assert found.measured[0].groups == ()
    assert found.measured[0].sentences == (NO_TABLES,)
    before, after = static(plain), static(found)
    assert re.findall("<svg.*?</svg>", before, re.DOTALL) == re.findall("<svg.*?</svg>", after, re.DOTALL)
    assert "<h2>Curves</h2>" in after
    assert "readout" not in "".join(re.findall("<main>.*</main>", after, re.DOTALL))


def test_a_run_without_a_step_has_nothing_measured(tmp_path: Path) -> None:
    assert measured(builders.write_run(tmp_path / "run")).measured == ()


def test_the_page_of_a_thousand_tensors_stays_bounded(tmp_path: Path) -> None:
    report = measured(tabled.large_run(tmp_path / "run", tensors_count=1_000, steps=600))
    text = static(report)
    assert len(text.encode()) < STATIC_BYTES_MAX
    assert text.count('<svg class="heat"') == 3
    drawn = zoom.zoom(report)
    if drawn is not None:
        assert len(html.packed(drawn.drawing)) < DRAWING_BYTES_MAX


def test_every_stream_has_its_maps_and_the_rest_is_named(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    for stream in ("critic", "third"):
        with_steps = SegmentWriter(run / "steps" / stream, stream=stream)
        for record in builders.records(3):
            with_steps.append(record, builders.TENSORS)
        with_steps.close()
    for stream in ("main", "critic", "third"):
        tabled.write_table(run, "gradients", (1, 2), ("w",), ("norm",), np.ones((2, 1, 1)), stream=stream)
    report = measured(run)
    assert len(report.measured) == STREAMS_MAX
    first, second = (part.heats[0].title.partition(":")[0] for part in report.measured)
    assert (first, second) == ("main", "critic")
    assert "The tables of these streams are recorded but not shown: third." in report.notes


def test_an_incident_shows_the_layers_of_the_steps_before(tmp_path: Path) -> None:
    bundle = open_bundle(builders.write_bundle(tmp_path / "bundle"))
    report = with_window(build.from_bundle(bundle), bundle.window)
    (heat,) = report.measured[0].heats
    assert [row.not_finite for row in heat.rows] == [False, True, True]
    assert heat.captions[0].startswith("First not finite at step 412: ")
    text = static(report)
    assert text.count('<svg class="heat"') == 1
    assert "<h2>Machine" not in text
    empty = bundle.window.slice(0, 0)
    assert with_window(build.from_bundle(bundle), empty).measured == ()
