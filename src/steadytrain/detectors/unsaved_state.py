"""A resume from a checkpoint that leaves out an object of the training that has a state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.level_before import level_before
from steadytrain.statistics.medians import median
from steadytrain.statistics.script_rows import script_rows

BEGINS = {"left-out-statistics": "starts from fresh statistics", "left-out-state": "begins anew"}

SURE = 1.0
"""A row's value where the optimizer was given its state."""


@final
@dataclass(frozen=True)
class UnsavedState(ScriptRule):
    """The checkpoint that a training goes on from leaves out an object of the training that has a state.

    Means:
        The model was given its weights from a checkpoint and the optimizer its moments. An object beside them has a
        state of its own, and nothing in the checkpoint is called like it or its attributes: running statistics of
        observations or returns, an average of the weights, a schedule of the script's own, a loss scaler. After the
        resume it begins anew. A model that was trained on inputs normalised by long statistics gets inputs normalised
        by the statistics of a few batches. It is a note; it is a warning if the loss after the resume is higher than it
        stood in the training before, in the same process or in the run before of the same command: for 32 steps, or far
        higher for 4. If the checkpoint holds no optimizer either, it may be meant for inference, and only a risen loss
        is told.

    Causes:
        - `torch.save({"model": ..., "optimizer": ...})` in a script that also normalises observations or returns
        - a mean and a spread in a module that are plain tensors: `state_dict` holds only what is registered
        - an average of the weights (EMA) or a schedule that was added to the training later, and not to the checkpoint

    Next:
        1. Add the object's `state_dict()`, or its mean, variance and count, to the checkpoint, and load it. The tensors
           of a module belong into `register_buffer`.
        2. Run `steadytrain preflight`: its check resume-equivalence does it both ways.
    """

    is_act: ClassVar[bool] = True

    after_steps: int = threshold(32, "steps after a resume whose loss is compared with the 32 before it")
    risen_scales: float = threshold(
        1.0, "robust standard deviations that their median must be above: that of 32 losses varies by a fifth of one"
    )
    risen_share: float = threshold(0.2, "and the share of the level. Chosen")
    first_steps: int = threshold(4, "first steps after a resume: fresh statistics are soon near the old ones")
    jumped_scales: float = threshold(4.0, "robust standard deviations that the median of their losses must be above")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        risen = self._risen(window)
        rows = [
            (int(row.steps[0]), row.place, begins)
            for measure, begins in BEGINS.items()
            for row in script_rows(window, measure)
            if risen or row.last >= SURE
        ]
        return tuple(_symptom(step, list(found), risen) for step, found in groupby(sorted(rows), itemgetter(0)))

    def _risen(self, window: Window) -> str:
        """How far the loss stands above that before the resume; "" if it does not, or if that is not known."""
        before = level_before(window)
        if before is None:
            return ""
        losses = window.applied("loss")
        values = losses.values[losses.steps >= before.step][: self.after_steps]
        if len(values) < self.after_steps or losses.steps[0] > before.step:
            return ""
        for steps, scales in ((self.after_steps, self.risen_scales), (self.first_steps, self.jumped_scales)):
            after = median(values[:steps])
            if before.is_passed(after, scales=scales, share=self.risen_share):
                return before.sentence(after, steps)
        return ""


def _symptom(step: int, found: list[tuple[int, str, str]], risen: str) -> Symptom:
    named = [f"{name} ({kind})" for name, _, kind in (place.rpartition(" ") for _, place, _ in found)]
    is_one = len(found) == 1
    begins = f"it {found[0][2]}" if is_one else "they begin anew"
    said = f"{' and '.join(named)} {'is' if is_one else 'are'} not in the checkpoint: {begins}"
    severity: Severity = "warning" if risen else "note"
    return Symptom(
        name="unsaved-state",
        severity=severity,
        first_step=step,
        last_step=step,
        message=f"{said} after the resume{'; ' if risen else ''}{risen}",
        signals=("script.value",),
        numbers={"objects": float(len(found))},
    )
