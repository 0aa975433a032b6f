"""Each layer's own section: its numbers over the steps, and its log2 histograms of gradients, weights and outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steadytrain.report.histograms import Histogram, histogram
from steadytrain.report.layer_labels import WHOLE_MODEL, blocks, in_model_order, module_of
from steadytrain.report.table_readings import Cells, Readings
from steadytrain.report.thinned_curves import Curve, curve
from steadytrain.report.wording import clean, count

PARTS_MAX = 330
"""Most parameters and outputs that are shown: 200 parameters and their modules. They take about 1.2 MB of a page."""

PARAMETERS_MAX = 48
"""Most parameters that are shown for one layer."""

POINTS_MAX = 36
GROUPS_MIN = 8
LAYERS_PER_GROUP = 3

_BAD = {"gradients": (), "tensors": ("gradient_nonfinite", "weight_nonfinite"), "modules": ("nonfinite",)}
_PARAMETER = (
    ("gradients", "norm", "gradient norm", "log"),
    ("tensors", "update_ratio", "update ratio", "log"),
    ("tensors", "weight_norm", "weight norm", "linear"),
    ("tensors", "gradient_to_second_moment", "RMS of g / sqrt(v)", "log"),
)
_OUTPUT = (
    ("modules", "std", "standard deviation", "log"),
    ("modules", "abs_max", "largest magnitude", "log"),
    ("modules", "kurtosis", "kurtosis", "log"),
    ("modules", "zero_share", "share of zeros", "linear"),
    ("modules", "attention_entropy", "attention entropy", "linear"),
    ("modules", "attention_logit_max", "largest attention logit", "linear"),
    ("modules", "log_z_mean", "log Z of the logits", "linear"),
)


@dataclass(frozen=True)
class LayerPart:
    """A parameter of a layer, or its output."""

    title: str
    curves: tuple[Curve, ...]
    histograms: tuple[Histogram, ...]


@dataclass(frozen=True)
class Layer:
    """A module with its own parameters. ``not_finite`` is True if any of its values was NaN or Inf at any step."""

    name: str
    not_finite: bool
    parts: tuple[LayerPart, ...]


@dataclass(frozen=True)
class LayerGroup:
    """Neighbouring layers under one heading."""

    title: str
    layers: tuple[Layer, ...]
    not_finite: bool


def layer_groups(readings: Readings) -> tuple[tuple[LayerGroup, ...], tuple[str, ...]]:
    """The layers in model order, in groups; and notes on those left out."""
    source = _Source.of(readings)
    modules = _modules(source)
    shown = _chosen(modules, source)
    told: tuple[str, ...] = ()
    if len(shown) < len(modules):
        told = (
            f"{count(len(shown))} of {count(len(modules))} layers are shown one by one: those in which something was "
            "not finite, then those with the largest updates.",
        )
    if any(len(modules[name]) > PARAMETERS_MAX for name in shown):
        told = (
            *told,
            f"Of a layer with more than {PARAMETERS_MAX} parameters only the first {PARAMETERS_MAX} are shown.",
        )
    layers = [
        layer for layer in (_layer(name, modules[name][:PARAMETERS_MAX], source) for name in shown) if layer.parts
    ]
    grouped = blocks([layer.name for layer in layers], max(GROUPS_MIN, len(layers) // LAYERS_PER_GROUP))
    return tuple(_group(block.name, layers[block.start : block.stop]) for block in grouped), told


@dataclass(frozen=True)
class _Source:
    """The columns that are drawn, the position of each row in them, and the histograms."""

    columns: Mapping[tuple[str, str], Cells]
    places: Mapping[str, Mapping[str, int]]
    readings: Readings

    @staticmethod
    def of(readings: Readings) -> _Source:
        found = {
            (table, column): readings.cells(table, column, bad=_BAD[table])
            for table, column, *_ in (*_PARAMETER, *_OUTPUT)
        }
        columns = {name: cells for name, cells in found.items() if cells is not None}
        places = {table: {row: index for index, row in enumerate(readings.rows(table))} for table in readings.tables}
        return _Source(columns, places, readings)

    def cell_curves(self, row: str, wanted: Sequence[tuple[str, str, str, str]]) -> tuple[Curve, ...]:
        """The curves of one row, without those of zeros only in ``zero_share``."""
        found = []
        for table, column, title, scale in wanted:
            cells, place = self.columns.get((table, column)), self.places.get(table, {}).get(row)
            if cells is None or place is None:
                continue
            drawn = curve(column, title, cells.series(place), scale=scale, points_max=POINTS_MAX)
            if drawn is not None and not (column == "zero_share" and drawn.largest == 0 and not drawn.not_finite):
                found.append(drawn)
        return tuple(found)

    def histogram(self, kind: str, title: str, name: str) -> Histogram | None:
        place = self.places.get("histograms", {}).get(f"{kind}:{name}")
        return histogram(title, self.readings.tables["histograms"], place) if place is not None else None

    def worst(self, table: str, column: str, row: str) -> float:
        """The largest value of a cell over the steps: ``inf`` if any was not finite, -1 if none was measured."""
        cells, place = self.columns.get((table, column)), self.places.get(table, {}).get(row)
        if cells is None or place is None or np.isnan(cells.values[:, place]).all():
            return -1.0
        return float(np.nanmax(cells.values[:, place]))


def _modules(source: _Source) -> dict[str, list[str]]:
    """Modules in model order with the names of their own parameters."""
    outputs = [*source.places.get("modules", ())]
    parameters = dict.fromkeys([*source.places.get("gradients", ()), *source.places.get("tensors", ())])
    names = [*dict.fromkeys([*outputs, *map(module_of, parameters)])]
    found: dict[str, list[str]] = {names[index]: [] for index in in_model_order(names)}
    for parameter in parameters:
        found[module_of(parameter)].append(parameter)
    return found


def _chosen(modules: Mapping[str, Sequence[str]], source: _Source) -> list[str]:
    """The modules to show, in model order: at most ``PARTS_MAX`` parameters and outputs, the worst first."""

    def urgency(name: str) -> tuple[float, float]:
        norms = [source.worst("gradients", "norm", parameter) for parameter in modules[name]]
        ratios = [source.worst("tensors", "update_ratio", parameter) for parameter in modules[name]]
        outputs = [source.worst("modules", "abs_max", name)]
        bad = any(map(math.isinf, [*norms, *ratios, *outputs]))
        return (math.inf if bad else max(ratios, default=-1.0), max(norms, default=-1.0))

    left, chosen = PARTS_MAX, set()
    for name in sorted(modules, key=urgency, reverse=True):
        parts = 1 + min(len(modules[name]), PARAMETERS_MAX)
        if parts <= left:
            left -= parts
            chosen.add(name)
    return [name for name in modules if name in chosen]


def _layer(name: str, parameters: Sequence[str], source: _Source) -> Layer:
    parts = [_output(name, source), *(_parameter(parameter, name, source) for parameter in parameters)]
    parts = [part for part in parts if part.curves or part.histograms]
    bad = any(drawn.not_finite for part in parts for drawn in part.curves)
    return Layer(clean(name), bad, tuple(parts))


def _output(name: str, source: _Source) -> LayerPart:
    drawn = source.histogram("activation", "output, log2", "" if name == WHOLE_MODEL else name)
    return LayerPart("output", source.cell_curves(name, _OUTPUT), (drawn,) if drawn is not None else ())


def _parameter(name: str, module: str, source: _Source) -> LayerPart:
    drawn = [
        source.histogram("gradient", "gradient, log2", name),
        source.histogram("weight", "weight, log2", name),
    ]
    title = clean(name.removeprefix(f"{module}."))
    return LayerPart(title, source.cell_curves(name, _PARAMETER), tuple(found for found in drawn if found is not None))


def _group(title: str, layers: Sequence[Layer]) -> LayerGroup:
    return LayerGroup(title, tuple(layers), any(layer.not_finite for layer in layers))
