"""What holds from the first step on: the state and the fixes of ``--resume-from``, and what a policy file asks for."""

from __future__ import annotations

from torch import nn

from steadytrain.capture.step import ranks
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.core.incident import Action
from steadytrain.guard.intervention import NOT_AT_A_START, Intervention, kinds
from steadytrain.guard.live import Live
from steadytrain.guard.policy import Policy
from steadytrain.guard.resumption import CannotResumeError, Resumption
from steadytrain.trial_runs.launched_script import CannotApplyError

BY_POLICY = "the policy names it: always"
SEVERAL_RANKS = "several ranks train together, where no intervention is made"


class Beginning:
    """Serves one run: :meth:`first_call` before its first forward, :meth:`first_gate` before its first update."""

    def __init__(self, policy: Policy, resumption: Resumption | None) -> None:
        self._policy = policy
        self._resumption = resumption
        self._called = self._checked = False
        self._actions: list[Action] = []

    def first_call(self, run: LiveRun, root: nn.Module, live: Live) -> dict[str, Intervention]:
        """What holds from here on. Stops the run with status 2 if something that was asked for cannot be made."""
        if self._called:
            return {}
        self._called = True
        held: dict[str, Intervention] = {}
        try:
            if self._resumption is not None:
                held |= self._resume(self._resumption, run, root, live)
            held |= self._asked(run, root, live)
        except CannotResumeError as error:
            assert self._resumption is not None
            _refuse(run, f"--resume-from {self._resumption.plan.incident}: {error}")
        except CannotApplyError as error:
            _refuse(run, f"{self._policy.name}: {error}")
        return held

    def first_gate(self, run: LiveRun, stream: Stream, live: Live) -> None:
        """The optimizers of ``stream`` are known: check once more. Raises :class:`RunStopped` before the update."""
        for action in self._actions:
            run.recorder.act(stream, action)
        self._actions.clear()
        if self._checked:
            return
        self._checked = True
        try:
            self._fits(live)
        except CannotApplyError as error:
            raise _refuse(run, f"{self._policy.name}: {error}") from None

    def _resume(self, resumption: Resumption, run: LiveRun, root: nn.Module, live: Live) -> dict[str, Intervention]:
        self._actions += resumption.load(run, root, live)
        return resumption.held

    def _asked(self, run: LiveRun, root: nn.Module, live: Live) -> dict[str, Intervention]:
        if not self._policy.asked:
            return {}
        if self._policy.always and ranks.world_size() > 1:
            raise CannotApplyError(f"always: {SEVERAL_RANKS}")
        live.roots = live.roots or [root]
        self._fits(live)
        held = {name: self._made(name) for name in self._policy.asked if kinds()[name].watches}
        for name in self._policy.always:
            held[name] = one = self._made(name)
            try:
                before, after = one.apply(live)
            except CannotApplyError as error:
                raise CannotApplyError(f"{name}: {error}") from None
            policy = run.settings.policy
            self._actions.append(Action(live.step, policy, "applied", BY_POLICY, name, dict(before), dict(after)))
        return held

    def _fits(self, live: Live) -> None:
        for name in self._policy.asked:
            unfit = None if name in NOT_AT_A_START else self._made(name).why_not(live)
            if unfit is not None:
                raise CannotApplyError(f"{name}: {unfit}")

    def _made(self, name: str) -> Intervention:
        return kinds()[name](**self._policy.settings.get(name, {}))


def _refuse(run: LiveRun, why: str) -> RunStopped:
    run.tell(f"error: {why}")
    stopped = run.stopped = RunStopped(why).with_status(2)
    return stopped
