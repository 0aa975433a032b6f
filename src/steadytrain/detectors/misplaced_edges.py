"""Edges of a batch of graphs that all lie among the nodes of the first ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class MisplacedEdges(ScriptRule):
    """Most graphs of a batch have no edge, because node indices were not offset when the graphs were put together.

    Means:
        The model gets a number of the graph for each node, and edges as pairs of nodes. In each look the edges reached
        only the nodes of the first graphs, and so most graphs pass no message: the model sees their nodes alone, and
        the first graphs have the edges of all.

    Causes:
        - a collate function that concatenates `edge_index` as it is, without the number of nodes before each graph
        - an offset by the number of graphs, or of edges, in place of nodes
        - no fault: most graphs of the data have no edges

    Next:
        1. Print `edge_index.max()` beside the number of nodes of the batch: it should be near it.
        2. Add the number of nodes before each graph to its edges, or let the library put batches together.
    """

    looks_min: int = threshold(4, "looks that find it")
    reached_max: float = threshold(
        0.5, "share of the graphs with two nodes or more that have an edge: without an offset the first few of a batch"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        for row in script_rows(window, "reached-graphs"):
            if len(row.steps) < self.looks_min or not (row.values < self.reached_max).all():
                continue
            found.append(
                self.warning(
                    window,
                    row,
                    f"the edges that {row.place} is given reach {row.last:.0%} of the graphs of a batch: node "
                    "indices may not be offset by the nodes of the graphs before",
                    reached=row.last,
                )
            )
        return tuple(found[:1])
