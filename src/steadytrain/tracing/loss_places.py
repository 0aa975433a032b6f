"""Finds the model calls that returned the losses of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.loss import LossTerm


def loss_places(
    micro_batches: Sequence[MicroBatch], losses: Sequence[LossTerm]
) -> list[tuple[MicroBatch, LossTerm, tuple[Any, ...]]] | None:
    """For each backward: the model call that returned the loss, and the loss's position in the output. None if any is
    missing."""
    found = []
    for term in losses:
        for batch in micro_batches:
            place = next((batch.scalar_outputs[node] for node in term.nodes if node in batch.scalar_outputs), None)
            if place is not None:
                found.append((batch, term, place))
                break
        else:
            return None
    return found or None
