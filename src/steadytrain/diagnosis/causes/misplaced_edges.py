"""Edges of a batch of graphs without their offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MisplacedEdges(Cause):
    """The edges of a batch of graphs are not offset by the nodes of the graphs before, so they join the wrong nodes.

    Means:
        A batch of graphs is one graph: nodes are stacked, and each graph's edge indices are raised by the nodes before
        it. Without that offset all edges point to the nodes of the first graphs. The others pass no messages, and the
        model learns from single nodes.

    Causes:
        - a collate function that concatenates `edge_index` and does not shift it
        - a running offset that is not raised, or is raised by the edges

    Next:
        1. Add the running number of nodes to each graph's edges in the collate function.
        2. Check that both ends of every edge have the same graph number.
    """

    axis = "data"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "input-scale", "dead-units")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "offset-edges",
            4,
            "offset the edges of each graph by the nodes before it",
            code="edges.append(graph.edge_index + nodes_before); nodes_before += graph.num_nodes",
        ),
    )
    grade = "B"
    source = "the documentation of PyTorch Geometric on mini-batches (`__inc__` of `edge_index`)"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "misplaced-edges", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(seen(case, "misplaced-edges") is None, "the edges reach the graphs of a batch"),
            )
        )
