"""Edges of joined graphs that lead to the wrong nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ShiftedEdges(Cause):
    """The batch of graphs has wrong edges: its offset counts the largest index of an edge, not the nodes.

    Means:
        After a graph with isolated nodes at its end the edges of the later graphs are shifted. The model gets messages
        from nodes of other graphs, so it learns what does not need the edges, and no more.

    Causes:
        - `offset += edges.max() + 1` in the function that joins graphs to a batch

    Next:
        1. Let the offset grow by the number of nodes of the graph.
        2. Compare the outputs of one graph alone and in a batch: they must be equal.
    """

    axis = "data"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "label-misalignment")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "offset-by-nodes",
            4,
            "let the offset of the edges grow by the number of nodes",
            code="offset += len(nodes)  # not int(edges.max()) + 1",
        ),
    )
    grade = "B"
    source = "documentation of torch_geometric: a batch increments edge_index by num_nodes"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "shifted-edges", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "validation-gap"),
                *ruled_out(seen(case, "shifted-edges") is None, "no offset of edges grows by their largest index"),
            )
        )
