"""Loads the state from before an incident into a run that begins, and holds the fixes that the user named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from steadytrain.capture.hooks.model_discovery import find_model, optimizer_parameters
from steadytrain.capture.snapshots.good_state import nonfinite_parameters
from steadytrain.capture.step import ranks
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action
from steadytrain.core.living_objects import living
from steadytrain.detection.earlier_run import history_of
from steadytrain.guard.resume_plan import ResumePlan
from steadytrain.replay.recorded_steps import RecordedState, RecordedSteps
from steadytrain.replay.state_restore import restore_state
from steadytrain.trial_runs.launched_script import CannotApplyError

if TYPE_CHECKING:
    from steadytrain.guard.intervention import Intervention
    from steadytrain.guard.live import Live

BY_OPTION = "by option (--resume-from)"
SEVERAL_RANKS = "several ranks train together: --resume-from loads a state into one process only"
NO_OPTIMIZER = "the script had made no optimizer when it first called its model"


class CannotResumeError(Exception):
    """The state does not fit this script, or a fix cannot be made in it; the text says why."""


class Resumption:
    """Serves one run: :meth:`load` before its first forward, then :attr:`held` until the trouble is over."""

    def __init__(self, plan: ResumePlan, cool_down: int) -> None:
        self.plan = plan
        self.held: dict[str, Intervention] = {}
        self._cool_down = cool_down
        self._calm_since = plan.snapshot.step

    @property
    def step(self) -> int:
        """The step after which the run goes on."""
        return self.plan.snapshot.step

    def load(self, run: LiveRun, root: nn.Module, live: Live) -> list[Action]:
        """Put the state in place and begin the fixes. Returns entries for the ledger, which has no folder yet.

        Raises:
            CannotResumeError: it does not fit.
        """
        try:
            stream = self._stream(run)
            self._restore(run, stream)
            loaded = f"the state after step {self.step} of {self.plan.continues['run']}"
            resumed = self._entry(run, "resumed-from", "", loaded, {}, {"step": self.step})
            return [resumed, *self._begin(run, stream, live)]
        except (UsageError, CannotApplyError) as error:
            raise CannotResumeError(str(error)) from None

    def trouble(self, step: int) -> None:
        """There is trouble at ``step``, so the fixes hold for longer."""
        self._calm_since = max(self._calm_since, step)

    def is_over(self, step: int) -> bool:
        """Whether the fixes are to be taken back."""
        return bool(self.held) and step - self._calm_since >= self._cool_down

    def take(self) -> list[str]:
        """The names of the fixes that hold; from here on none does."""
        names = list(self.held)
        self.held.clear()
        return names

    @property
    def why_over(self) -> str:
        """The reason for that."""
        return f"no symptom in {self._cool_down:,} steps"

    def _stream(self, run: LiveRun) -> Stream:
        """The script's optimizer as a stream, before its first step."""
        if ranks.world_size() > 1:
            raise CannotResumeError(SEVERAL_RANKS)
        optimizer = run.made()
        if optimizer is None:
            raise CannotResumeError(NO_OPTIMIZER)
        history, _ = history_of("main", self.plan.continues)
        stream = Stream("main", history, step=self.step, began=self.step)
        stream.join(optimizer)
        stream.parameters = optimizer_parameters([optimizer])
        stream.model = find_model(stream.parameters)
        stream.tensor_names = tuple(stream.model.names[id(parameter)] for parameter in stream.parameters)
        return stream

    def _restore(self, run: LiveRun, stream: Stream) -> None:
        state = RecordedState(self.plan.snapshot)
        scalers: list[Any] = list(living(torch.amp.GradScaler)) if state.scalers else []
        wrong, notes = restore_state(state, stream, scalers)
        if wrong is not None:
            raise CannotResumeError(wrong)
        bad = nonfinite_parameters(stream)
        if bad:
            raise CannotResumeError(f"the snapshot of step {self.step} holds NaN or Inf in {bad[0]}")
        for note in notes:
            run.note(note)
        first = RecordedSteps(self.plan.recording).step(self.step + 1)
        random = first.random(0, "random") if first is not None and first.calls else None
        if random is None:
            run.note("the incident has no random state of that step: random numbers are the script's own")
        else:
            random.restore()

    def _begin(self, run: LiveRun, stream: Stream, live: Live) -> list[Action]:
        live.stream, live.roots, live.step = stream, list(stream.roots()), stream.step
        live.scalers = run.scaling.scalers or {id(one): one for one in living(torch.amp.GradScaler)}
        applied = stream.history.window().applied("gradient_norm")
        live.norms_before(stream.name).extend(
            (int(step), float(norm)) for step, norm in zip(applied.steps, applied.values, strict=True)
        )
        live.rung_begins(self.step + 1, 0)
        entries = []
        for fix in self.plan.fixes:
            one = fix.made()
            unfit = one.why_not(live)
            if unfit is not None:
                raise CannotResumeError(f"{fix.name}: {unfit}")
            before, after = one.apply(live)
            if one.holds(live):
                self.held[fix.name] = one
            entries.append(self._entry(run, "applied", fix.name, f"--with {fix}", before, after))
        return entries

    def _entry(self, run: LiveRun, what: Any, name: str, why: str, before: Any, after: Any) -> Action:
        policy = run.settings.policy
        return Action(self.step, policy, what, f"{BY_OPTION}: {why}", name, dict(before), dict(after), by="hand")
