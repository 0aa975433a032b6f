"""A loss over the nodes that are held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class UnmaskedNodes(SourceRule):
    """The loss is taken over all nodes of a graph, those of the test set among them.

    Means:
        A graph holds the nodes of all splits, and masks say which are which. The loss gets all of them, while the same
        labels are indexed by a test mask elsewhere in the file: the model is trained on the labels that it is tested
        on. This is read in the source.

    Causes:
        - `criterion(out, data.y)` where `criterion(out[data.train_mask], data.y[data.train_mask])` is meant

    Next:
        1. Mask both arguments of the loss, and compare the accuracy on the test nodes.
    """

    kind: ClassVar[str] = "unmasked-nodes"
    says: ClassVar[str] = "takes the loss over all nodes, and those of the test mask are among them"
