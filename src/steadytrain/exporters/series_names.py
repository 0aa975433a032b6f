"""The names of sent values, taken apart: for tools whose series have labels instead of paths. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.exporters.sent_values import GRADIENTS, MACHINE

MAIN = "main"
TABLES = (GRADIENTS, "tensors", "modules", MACHINE)
KINDS = ("gradients", "weights", "activations")
"""Of histograms."""


@dataclass(frozen=True)
class SeriesName:
    """``metric`` is a signal, or the table and column; ``row`` the tensor, module or device, "" for none."""

    metric: str
    stream: str
    row: str

    @property
    def labels(self) -> dict[str, str]:
        """Its labels besides those of the run."""
        return {"stream": self.stream, **({"name": self.row} if self.row else {})}


def series_name(name: str) -> SeriesName:
    """Take apart a name such as ``optimizer-2/tensors/head.weight/update_ratio``."""
    first, *rest = name.split("/")
    stream = MAIN
    if first not in TABLES and rest:
        stream, (first, *rest) = first, rest
    if not rest:
        return SeriesName(first, stream, "")
    *row, column = rest
    return SeriesName(f"{first}_{column}", stream, "/".join(row))


def histogram_name(name: str) -> SeriesName:
    """Take apart the name of a histogram: ``gradients/head.weight`` has the metric ``gradients``."""
    first, _, row = name.partition("/")
    if first in KINDS:
        return SeriesName(first, MAIN, row)
    kind, _, row = row.partition("/")
    return SeriesName(kind, first, row)
