"""The tables of a run as maps and layer by layer: what is drawn, in which order, and what is said instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import builders
import tabled
from steadytrain.core.model import Table
from steadytrain.report.heat import ABSENT, NOT_FINITE
from steadytrain.report.histograms import COLUMNS_MAX, EMPTY, HIGHEST, LOWEST, histogram
from steadytrain.report.histograms import NOT_FINITE as HISTOGRAM_NOT_FINITE
from steadytrain.report.layer_labels import WHOLE_MODEL
from steadytrain.report.layers import PARAMETERS_MAX, PARTS_MAX, Layer, LayerGroup, layer_groups
from steadytrain.report.maps import maps
from steadytrain.report.table_readings import Readings, read
from steadytrain.storage.run_folder import open_run

NAN, INF = np.nan, np.inf
ROWS = ("block.0.up.weight", "norm.weight", "block.0.up.bias")


def readings_of(run: Path) -> Readings:
    return read(open_run(run), "main")


def listed(groups: tuple[LayerGroup, ...]) -> list[Layer]:
    return [layer for group in groups for layer in group.layers]


# Maps.


def test_three_maps_in_model_order_with_what_is_bad_and_what_is_absent(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    tabled.gradients(run, ROWS, np.array([[1.0, -1.0, 2.0], [NAN, 3.0, INF], [1.0, 2.0, 3.0]]))
    nonfinite = np.array([[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    tabled.tensors(run, range(1, 4), ROWS, update_ratio=np.full((3, 3), 1e-3), weight_nonfinite=nonfinite)
    tabled.modules(run, range(1, 4), ("", "block.0", "block.0.up", "norm"), zero_share=np.full((3, 4), 0.25))
    drawn, told = maps(readings_of(run))
    assert told == ()
    assert [heat.name for heat in drawn] == ["gradient_norm", "update_ratio", "dead_share"]
    norms, ratios, dead = drawn
    assert [row.name for row in norms.rows] == ["block.0.up.weight", "block.0.up.bias", "norm.weight"]
    assert np.isinf(norms.values[0, 1])
    assert np.isinf(norms.values[1, 1])
    assert norms.levels[2, 0] == ABSENT
    assert ratios.levels[0].tolist().count(NOT_FINITE) == 1
    assert [row.name for row in dead.rows] == [WHOLE_MODEL, "block.0", "block.0.up", "norm"]
    assert (dead.low, dead.high) == (0.0, 1.0)


def test_zeros_of_gradients_stand_in_where_outputs_were_not_recorded(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    tabled.tensors(run, (1, 2), ROWS, gradient_zero_share=np.full((2, 3), 0.5))
    drawn, told = maps(readings_of(run))
    assert drawn[-1].title == "dead share: elements of the gradient that are exactly zero"
    assert "Gradient norms of layers were not recorded." in told


def test_what_was_not_recorded_and_what_is_zero_throughout_is_said(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "light")
    tabled.gradients(run, ROWS, np.ones((2, 3)))
    drawn, told = maps(readings_of(run))
    assert [heat.name for heat in drawn] == ["gradient_norm"]
    assert told == (
        "Update ratios were not recorded: levels standard and full record them.",
        "Shares of zeros were not recorded: levels standard and full record them.",
    )
    tabled.modules(run, (1, 2), ("block", "norm"))
    _, told = maps(readings_of(run))
    assert "No dead elements: over 2 readings no element of the output of 2 layers was exactly zero." in told


def test_a_table_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    tabled.gradients(run, ROWS, np.ones((2, 3)))
    for schema in (run / "tables" / "main" / "gradients").glob("*.json"):
        schema.write_text("{")
    readings = readings_of(run)
    assert not readings.tables
    assert readings.notes[0].startswith("The table gradients was not read: ")


# Layers.


def test_a_layer_has_its_numbers_and_its_histograms(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    steps = range(1, 11)
    tabled.gradients(run, ROWS, tabled.norms(10, 3))
    tabled.tensors(run, steps, ROWS, update_ratio=tabled.norms(10, 3), weight_norm=tabled.norms(10, 3))
    tabled.modules(run, steps, ("block.0.up", "norm"), std=tabled.norms(10, 2), abs_max=tabled.norms(10, 2))
    tabled.histograms(run, steps, ("gradient:norm.weight", "weight:norm.weight", "activation:norm"))
    groups, told = layer_groups(readings_of(run))
    assert told == ()
    layers = listed(groups)
    assert [layer.name for layer in layers] == ["block.0.up", "norm"]
    assert [part.title for part in layers[0].parts] == ["output", "weight", "bias"]
    output, weight = layers[1].parts
    assert [curve.name for curve in output.curves] == ["std", "abs_max"]
    assert [curve.name for curve in weight.curves] == ["norm", "update_ratio", "weight_norm"]
    assert [drawn.title for drawn in (*output.histograms, *weight.histograms)] == [
        *("output, log2", "gradient, log2", "weight, log2")
    ]
    assert not any(layer.not_finite for layer in layers)


def test_many_layers_are_counted_and_the_bad_one_is_among_those_shown(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    rows = tabled.layers(1_000)
    norms = tabled.norms(3, 1_000)
    norms[1, 123] = NAN
    tabled.gradients(run, rows, norms)
    groups, told = layer_groups(readings_of(run))
    layers = listed(groups)
    assert sum(1 + len(layer.parts) for layer in layers) <= PARTS_MAX
    assert [layer.name for layer in layers if layer.not_finite] == ["model.blocks.123.mlp.up"]
    assert [group.not_finite for group in groups].count(True) == 1
    assert len(groups) < len(layers)
    assert told[0].startswith(f"{len(layers)} of 500 layers are shown one by one")


def test_a_layer_of_a_thousand_parameters_is_cut_and_the_others_stay(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    rows = (*(f"table.{index}" for index in range(1_000)), "head.weight")
    tabled.gradients(run, rows, tabled.norms(2, len(rows)))
    groups, told = layer_groups(readings_of(run))
    assert {layer.name: len(layer.parts) for layer in listed(groups)} == {"table": PARAMETERS_MAX, "head": 1}
    assert f"the first {PARAMETERS_MAX} are shown" in told[0]


# Histograms.


def table_of(shares: object) -> Table:
    values = np.asarray(shares, np.float32)
    steps = np.arange(1, len(values) + 1)
    return Table("histograms", steps, steps.astype(float), ("weight:w",), tabled.BINS, values)


def test_a_histogram_keeps_the_bins_in_use_with_the_largest_on_top() -> None:
    drawn = histogram("weight", table_of(tabled.shares(4, 1)), 0)
    assert drawn is not None
    assert drawn.bins == ("2^-4", "2^-5", "2^-6", "2^-7", "2^-8")
    assert drawn.levels.shape == (5, 4)
    assert drawn.levels[:, 0].tolist() == [HIGHEST, drawn.levels[1, 0], EMPTY, EMPTY, EMPTY]
    assert LOWEST < drawn.levels[1, 0] <= HIGHEST
    assert drawn.caption == "4 readings, steps 1 to 4"


def test_many_readings_are_thinned_and_one_that_is_not_finite_stays() -> None:
    shares = tabled.shares(10_000, 1)
    shares[4_321] = 0
    shares[4_321, 0, tabled.BINS.index("nonfinite")] = 1
    drawn = histogram("weight", table_of(shares), 0)
    assert drawn is not None
    assert drawn.levels.shape[1] == COLUMNS_MAX
    assert drawn.bins[0] == "nonfinite"
    assert (drawn.levels[0] == HISTOGRAM_NOT_FINITE).sum() == 1


def test_a_tensor_that_was_never_measured_has_no_histogram() -> None:
    assert histogram("weight", table_of(np.full((3, 1, len(tabled.BINS)), NAN)), 0) is None
