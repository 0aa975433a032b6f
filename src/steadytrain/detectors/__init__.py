"""One file per symptom detector: a pure function of a window.

A detector has no memory, reads no clock, and knows no other detector.

A detector is a frozen dataclass: its fields are its thresholds, ``needs`` names the signals it reads, and
``check(window)`` returns symptoms. Its docstring is its documentation: first sentence, then ``Means``, ``Causes`` and
``Next`` (``steadytrain explain NAME``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind, name_of
from steadytrain.statistics.script_rows import ScriptRow, script_rows

Aim = Literal["finite", "excess", "progress"]
Quantity = Literal["gradient_norm", "update_ratio"]


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

    is_act: ClassVar[bool] = False
    """Whether it is an act of the script, such as another learning rate: nothing before it can have led to it."""

    aim: ClassVar[Aim] = "excess"
    """What a trial of it looks for: values that stay ``finite``, a loss without ``excess``, or ``progress`` where the
    run gets no better."""

    bursts: ClassVar[bool] = False
    """Whether it does harm at once: a run that makes no progress shortly after it suffers from it."""

    quantity: ClassVar[Quantity | None] = None
    """The number of each step that it is about, where neither the probes nor the losses have to show it."""

    is_below_zero: ClassVar[bool] = False
    """Whether it is a loss below zero, which need not rise: trials count the steps that have one."""

    yields_to_update: ClassVar[bool] = False
    """Whether a trial tries to remove an update that grew with it in its place: none can make it itself smaller."""

    nonfinite_rank: ClassVar[int | None] = None
    """Of values that are not finite, when in a step they come: 3 activations, 4 loss, 5 gradients, 6 weights and
    moments. None of a symptom of finite values, which its signals rank."""

    leaves_open: ClassVar[bool] = False
    """Whether the health of a run is unknown where it is there as a note: no fault, and no proof of health."""

    excused_z_max: ClassVar[float] = math.inf
    """Clipped gradients excuse it up to this ``z`` of its numbers."""

    counts_rising_loss: ClassVar[bool] = False
    """Whether it counts a loss that rises as harm, which it is not where several optimizers take turns, or where the
    targets of the loss move with the model."""

    of_logs: ClassVar[bool] = False
    """Whether it judges whole logs only (``steadytrain analyze``) and does not look at a run under watch."""

    same_event_as: ClassVar[str] = ""
    """The name of a detector that judges the same by another rule. Of two that report one event only one is told: the
    graver, and this one's if neither is."""

    states_fact: ClassVar[bool] = False
    """Whether it states what the script does, as seen in the graph of its loss, its optimizer or its model: no number
    of the training has to be unusual. A gate that fails on critical symptoms fails on a warning of it, too."""

    part_of: ClassVar[str] = ""
    """The name of a detector whose longer symptom this one may begin or lie in. Where it does, only the longer one is
    listed, and says so."""

    spoils_weights: ClassVar[bool] = False
    """Whether a checkpoint that is written during it is not to be trusted."""

    keeps_incident: ClassVar[bool] = True
    """Whether an incident is kept of it: not where a step that is made again does not show it, or the gate has one."""

    hasty: ClassVar[bool] = False
    """Whether it looks more often in the first steps of a run. Its look has to be cheap."""

    waits_for: ClassVar[str] = ""
    """The threshold that says how many steps it needs at least; none where it can speak from the first steps on."""

    @property
    def steps_needed(self) -> int:
        """Steps without which it can see nothing."""
        return int(getattr(self, self.waits_for)) if self.waits_for else 1

    @abstractmethod
    def check(self, window: Window) -> tuple[Symptom, ...]:
        """All symptoms in ``window``, oldest first.

        A window is a whole log, or the last steps of a live run, which moves on and is checked every few steps. An
        episode in two windows must have the same ``first_step`` in both: that is its name. A persistent fault is one
        symptom, not one per step.
        """


@dataclass(frozen=True)
class ScriptRule(Detector):
    """A detector of what the script itself does, by rows of the table ``script`` (``statistics.script_rows``)."""

    needs: ClassVar[tuple[str, ...]] = ("script.value",)
    aim: ClassVar[Aim] = "progress"
    hasty: ClassVar[bool] = True

    def warning(self, window: Window, row: ScriptRow, message: str, **numbers: float) -> Symptom:
        """A warning from the first reading of ``row`` to the end of ``window``."""
        return Symptom(
            name=name_of(type(self)),
            severity="warning",
            first_step=int(row.steps[0]),
            last_step=int(window.steps[-1]),
            message=message,
            signals=("script.value",),
            numbers=numbers,
        )

    def note(self, window: Window, row: ScriptRow, message: str, **numbers: float) -> Symptom:
        """The same as a note."""
        return replace(self.warning(window, row, message, **numbers), severity="note")


@dataclass(frozen=True)
class SourceRule(ScriptRule):
    """A detector of a mistake that was read in the source of the script, as a row ``KIND:FILE:LINE`` of ``script``."""

    kind: ClassVar[str]
    says: ClassVar[str]
    """What the line does wrong; the place stands before it."""

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, self.kind)
        lines = float(len(rows))
        return tuple(self.warning(window, row, f"{row.place} {self.says}", lines=lines) for row in rows[:1])


@dataclass(frozen=True)
class RankRule(Detector):
    """A detector of what differs between ranks, by rows of the table ``ranks`` (``statistics.rank_rows``)."""

    needs: ClassVar[tuple[str, ...]] = ("ranks.value",)
    keeps_incident: ClassVar[bool] = False
    hasty: ClassVar[bool] = True


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
