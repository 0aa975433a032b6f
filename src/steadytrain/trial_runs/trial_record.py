"""The results of a trial so far: steps, probes, exactness and notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import named_tensors_in
from steadytrain.experiments.specs import BAD_BATCH, Outcome, ProbeSeen, Spec, StepSeen
from steadytrain.experiments.watched_rules import CARRIED_OVER, IN_EVALUATION, LOOKED
from steadytrain.replay.batch_feeding import number_differences
from steadytrain.replay.recorded_steps import OtherUpdate, RecordedStep
from steadytrain.trial_runs.changes import LiveChange

RATIO_ELEMENTS_MAX = 64_000_000
"""The update ratio needs a copy of the weights, so it is not measured for larger models."""

NO_UPDATE = "its first step is not finite, so there is no update that it could change"


class TrialRecord:
    def __init__(self) -> None:
        self.steps: list[StepSeen] = []
        self.probes: list[ProbeSeen] = []
        self._exact: bool | None = None
        self._notes: list[str] = []
        self._before: list[Tensor] = []
        self._carries: bool | None = None
        self._looked = self._carried = self._in_evaluation = 0
        self.batch: Any = None
        """What a loader gave last."""
        self._batch_is_bad = False

    def note(self, *notes: str) -> None:
        self._notes += [note for note in notes if note not in self._notes]

    def step(self, entry: int, measured: Measurement, loss: float | None, models: Sequence[nn.Module] = ()) -> None:
        """Records a trained step of ``models`` at its gate."""
        self._in_evaluation += bool(models) and not any(one.training for one in models)
        finite = not measured.is_incident
        self._batch_is_bad = not finite and holds_nonfinite(self.batch)
        self._looked += self._carries is not None
        self._carried += self._carries is True
        self._carries = None
        self.steps.append(StepSeen(entry, loss, measured.record.scalars.get("gradient_norm"), finite))

    def backward_begins(self, role: str, parameters: Sequence[Tensor]) -> None:
        """Looks, in a step that trains after another one did, whether the gradients of that are still there. A later
        backward of the step may find them cleared."""
        if role == "train" and self.steps and self._carries is not False:
            gradients = [one.grad for one in parameters if one.grad is not None]
            self._carries = any(bool(one.any()) for one in gradients)

    def compare(self, recorded: RecordedStep, measured: Measurement) -> None:
        """Compares losses and gradient norms with the recorded step, bit for bit."""
        self._compare(recorded.document["losses"], recorded.gradient_norms, measured)

    def compare_other(self, recorded: OtherUpdate, measured: Measurement) -> None:
        """Compares the update of another optimizer within the recorded step, bit for bit."""
        self._compare(recorded.losses, recorded.gradient_norms, measured)

    def _compare(self, losses: Sequence[str], norms: Mapping[str, str], measured: Measurement) -> None:
        """As a replay does: of a step that the script let go by itself, no norms are on record."""
        self._exact = self._exact is not False and not any(number_differences(losses, norms, measured))

    def update_begins(self, parameters: Sequence[Tensor]) -> None:
        if sum(parameter.numel() for parameter in parameters) <= RATIO_ELEMENTS_MAX:
            self._before = [parameter.detach().clone() for parameter in parameters]

    def update_ended(self, parameters: Sequence[Tensor]) -> None:
        """Adds the update ratio (L2 norm of the update over that of the weights) to the last step."""
        if not self._before or not self.steps:
            return
        with torch.no_grad():
            moved = math.sqrt(
                sum(float((one - old).norm()) ** 2 for one, old in zip(parameters, self._before, strict=False))
            )
            size = math.sqrt(sum(float(old.norm()) ** 2 for old in self._before))
        last = self.steps[-1]
        ratio = moved / size if size else None
        self.steps[-1] = StepSeen(last.entry, last.loss, last.gradient_norm, last.finite, ratio)
        self._before = []

    def nothing(self, changes: Sequence[LiveChange], ended: str | None) -> str | None:
        """Why the trial shows nothing: its change touched nothing, or it has no step; None if it shows something."""
        if changes and not any(change.touched for change in changes):
            return NO_UPDATE if self._stopped_at_first and changes[0].acts_on_update() else changes[0].nothing
        return None if self.steps else f"{ended or 'the trial ended'} before its first step"

    @property
    def _stopped_at_first(self) -> bool:
        return len(self.steps) == 1 and not self.steps[0].finite

    def failed(self, spec: Spec, why: str) -> Outcome:
        return Outcome(spec, False, why, notes=tuple(self._notes))

    def outcome(self, spec: Spec, changes: Sequence[LiveChange], ended: str | None) -> Outcome:
        """``ended`` says why the schedule did not finish; None if it did."""
        wanted = sum(entry.role == "train" for entry in spec.schedule)
        return Outcome(
            spec,
            True,
            steps=tuple(self.steps),
            probes=tuple(self.probes),
            exact=self._exact,
            ended=f"{ended} after {len(self.steps)} of {wanted} steps" if ended else None,
            notes=tuple(self._notes),
            measured={
                LOOKED: float(self._looked),
                CARRIED_OVER: float(self._carried),
                IN_EVALUATION: float(self._in_evaluation),
                **({BAD_BATCH: 1.0} if self._batch_is_bad else {}),
                **{name: value for one in changes for name, value in one.measured().items()},
            },
        )


def holds_nonfinite(batch: Any) -> bool:
    """Whether a tensor of a batch holds NaN or Inf."""
    return any(one.is_floating_point() and not bool(one.isfinite().all()) for _, one in named_tensors_in(batch))
