"""One file per symptom detector: a pure function of a window.

A detector has no memory, reads no clock, and knows no other detector.

A detector is a frozen dataclass: its fields are its thresholds, ``needs`` names the signals it reads, and
``check(window)`` returns symptoms. Its docstring is its documentation: first sentence, then ``Means``, ``Causes`` and
``Next`` (``steadytrain explain NAME``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind


@dataclass(frozen=True)
class Detector(ABC):
    """The contract of a symptom detector. Subclasses are final.

    ``needs`` holds names of ``model.SIGNALS``, ``gradient_norms``, columns of tables as ``table.column``
    (``tensors.update_ratio``), or ``metrics`` (numbers logged now and then). The detector runs if at least one of
    them is present; it must itself check for the ones it requires.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    grows: ClassVar[bool] = False
    """Whether the loss or the gradients grow in it: a repro of a rise can look for it."""

    of_updates: ClassVar[bool] = False
    """Whether it is about the size of updates."""

    counts_rising_loss: ClassVar[bool] = False
    """Whether it counts a loss that rises as harm, which it is not where several optimizers take turns."""

    keeps_incident: ClassVar[bool] = True
    """Whether an incident is kept of it: not where a step that is made again does not show it, or the gate has one."""

    @abstractmethod
    def check(self, window: Window) -> tuple[Symptom, ...]:
        """All symptoms in ``window``, oldest first.

        A window is a whole log, or the last steps of a live run, which moves on and is checked every few steps. An
        episode in two windows must have the same ``first_step`` in both: that is its name. A persistent fault is one
        symptom, not one per step.
        """


DETECTORS = Kind("detector", Detector, __name__, "steadytrain.detectors", older_group="steadytrain.symptoms")

SYMPTOM_PAGES = Pages(
    kind=DETECTORS,
    noun="symptom",
    key="symptoms",
    heading="Symptoms",
    schema="steadytrain.explanation/1",
    document=("name", "summary", "means", "causes", "next", "thresholds", "needs"),
    traits=lambda detector: {"needs": list(detector.needs)},
    closing=lambda page: [f"Reads: {', '.join(page.traits['needs'])}"] if page.traits["needs"] else [],
    title="Symptoms",
    intro="What steadytrain looks for in a run. `steadytrain explain NAME` prints the same in a terminal.",
    markdown_closing=lambda page: [f"Reads: {', '.join(f'`{signal}`' for signal in page.traits['needs'])}."],
)
