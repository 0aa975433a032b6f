"""Graphs that are joined to one batch with the wrong offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class ShiftedEdges(SourceRule):
    """Graphs are joined to one batch by the largest index of their edges, not by their number of nodes.

    Means:
        The indices of a graph's edges have to go up by the number of nodes of the graphs before it. The largest index
        of an edge plus one is that number only if the last node has an edge. After a graph with isolated nodes at its
        end, the edges of all later graphs of the batch join the wrong nodes. The loss falls part of the way.

    Causes:
        - `offset += edge_index.max() + 1` in a collate function; `faces.max() + 1` for meshes
        - isolated nodes: solvent atoms, users without friends, vertices without a face

    Next:
        1. Let the offset grow by the number of nodes: `offset += len(x)`.
        2. Check one batch: no edge may lead from one graph to another.
    """

    kind: ClassVar[str] = "graph-offset"
    says: ClassVar[str] = (
        "lets the offset of the edges grow by their largest index, not by the number of nodes: after a graph whose "
        "last nodes are isolated, the edges of the later graphs of the batch join the wrong nodes; use offset += "
        "number of nodes"
    )
