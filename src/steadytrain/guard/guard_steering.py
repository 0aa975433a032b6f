"""Decides for a policy that intervenes: climbs its ladders, watches whether a rung helped, and takes it back.

The trouble that counts is a symptom of a detector, as a warning or graver, or a value that is not finite at the gate.
What is done is in the ledger, each action with what was before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from torch import nn

from steadytrain.capture.incident.message import intervention_message
from steadytrain.capture.step.gate import LeftOut, Measurement, reason
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.capture.step.skipping import DAMAGED, is_spent
from steadytrain.capture.step.steering import Answer, Steering
from steadytrain.core.incident import Action, ActionWord
from steadytrain.core.model import Symptom
from steadytrain.guard.beginning import Beginning
from steadytrain.guard.corroboration import first_step_of
from steadytrain.guard.extremes import LEARNED, LEARNED_DOUBLING, Extremes
from steadytrain.guard.hand import Hand
from steadytrain.guard.held import Held
from steadytrain.guard.intervention import Intervention, Numbers, kinds
from steadytrain.guard.interventions.clip import Clip
from steadytrain.guard.interventions.roll_back import RollBack
from steadytrain.guard.ladder import SPENT, Ladder
from steadytrain.guard.live import TOGETHER, TOO_LATE, Live
from steadytrain.guard.outliers import is_outlier
from steadytrain.guard.policy import AT_GATE, EXTREME, OUTLIERS, Policy, Response, Rung
from steadytrain.guard.recurring import ON_TRIAL
from steadytrain.guard.resume_plan import ResumePlan
from steadytrain.guard.resumption import Resumption
from steadytrain.guard.state_copies import StateCopies
from steadytrain.guard.stretches import Stretch
from steadytrain.guard.trial import STRETCH, Trial
from steadytrain.guard.troubles import SETTLE_STEPS, Trouble, Troubles
from steadytrain.trial_runs.launched_script import CannotApplyError


class GuardSteering(Steering):
    """Steers one process by ``policy``."""

    def __init__(self, policy: Policy, resume: ResumePlan | None = None) -> None:
        self._steered = policy
        self._resumption = Resumption(resume, policy.budget.cool_down) if resume is not None else None
        self._beginning = Beginning(policy, self._resumption)
        self._ladder = Ladder(policy)
        self._copies = StateCopies()
        self._extremes = Extremes(policy.budget.skips_in_a_row)
        self._troubles = Troubles(policy, self._extremes.repeats)
        self._waiting: Trouble | None = None
        self._trial: Trial | None = None
        self._seen: set[int] = set()

    # -- the run ---------------------------------------------------------------------------------------------------

    def joins(self, run: LiveRun) -> None:
        super().joins(run)
        self._run = run
        self._hand = Hand(run, self)
        self._live = Live(run, self._copies, lowest_share=self._steered.budget.lowest_learning_rate)
        self._held = Held(self._live, lambda name: kinds()[name](**self._steered.settings.get(name, {})))

    def first_calls(self, root: nn.Module) -> None:
        self._held.adopt(self._beginning.first_call(self._run, root, self._live))

    def call_begins(self, root: nn.Module) -> None:
        run = self._run
        stream = run.streams[0] if run.streams else None
        if not self._steered.acts:
            return
        if stream is not None and stream.together:
            run.note(TOGETHER)
            return
        step = stream.step if stream is not None else 0
        if self._live.restored is not None and self._live.undone is not None:
            self._live.restored.restore()  # what the script changed after its update: averages of the weights
            self._live.undone = None
        if self._copies.is_due(step) and (stream is not None or not self._seen):
            self._seen.add(id(root))
            self._live.take_copy(step, root)

    def gate_begins(self, stream: Stream) -> None:
        if stream.together:
            return
        self._at(stream)
        self._beginning.first_gate(self._run, stream, self._live)
        if self._steered.acts:
            self._troubles.gate_begins(stream, self._live.groups)
            self._renew_moments(stream)
        if self._held:
            self._live.undo_groups()
        for intervention in self._held:
            intervention.begins(self._live)

    def _renew_moments(self, stream: Stream) -> None:
        """Moments that were lost on the way are of no use: begin with new ones before the first update."""
        why = self._troubles.lost_moments(stream)
        if why is not None:
            self._fade(stream, "reset-moments", self._held.kind_of("reset-moments"), why)

    def _fade(self, stream: Stream, name: str, one: Intervention, why: str) -> None:
        """Make an intervention that lets go by itself, if it can be made and none of its kind holds."""
        with suppress(CannotApplyError):
            made = self._held.fade(name, one)
            if made is not None:
                action = self._act(stream, "applied", name, why, *made)
                self._run.tell(intervention_message(stream.step, why, [action]))

    def _at(self, stream: Stream, *, anew: bool = True) -> None:
        live = self._live
        live.stream, live.scalers, live.step = stream, self._run.scaling.scalers, stream.step
        live.roots = list(stream.roots()) if anew else live.roots

    # -- at the gate -----------------------------------------------------------------------------------------------

    def nonfinite(self, stream: Stream, measured: Measurement, why_not: str | None) -> Answer:
        if self._resumption is not None:
            self._resumption.trouble(measured.record.step)
        if not self._steered.acts:
            return super().nonfinite(stream, measured, why_not)
        name = AT_GATE[0] if not measured.loss_finite else AT_GATE[1]
        response = self._steered.response(name)
        step = measured.record.step
        if response in ("note", "alert", "capture"):
            return "observe"
        if response == "stop" or stream.together:
            return "stop"
        if response == "skip":
            return "skip" if why_not is None and self._ladder.take_skip() else "stop"
        onset, before = self._troubles.onset(
            stream, step, self._run.recorder.symptoms.values(), since=self._ladder.since
        )
        if why_not is None and not before and self._ladder.may_skip(name):
            self._ladder.skipped(step)
            return "skip"
        cannot_refuse = why_not is not None and why_not != DAMAGED and not is_spent(why_not)
        if (
            why_not != DAMAGED
            and self._ladder.holds
            and step <= self._troubles.acted_at + self._steered.budget.skips_in_a_row
        ):
            return "stop" if cannot_refuse else "skip"  # the data that a roll-back went past may go on
        if cannot_refuse or self._copies.why_not is not None:
            return "stop"
        self._waiting = Trouble(name, onset, f"{name}: {reason(measured)}")
        return "skip"

    @property
    def gradient_factor(self) -> float:
        return self._live.gradient_factor

    def finite(self, stream: Stream, measured: Measurement) -> LeftOut | None:
        if stream.together:
            return None
        self._live.measured(measured)
        if not self._steered.acts and not self._held:
            return None
        why = self._extremes.why(stream, measured) if self._steered.base == "steady" else None
        if why is not None and self._extremes.go_on:
            self._learn(stream)
        elif why is not None and self._leaves_out(stream, why, measured):
            return LeftOut(why, EXTREME, self._extremes.in_a_row_max)
        for name in [one for one in OUTLIERS if self._steered.symptoms.get(one) == "skip"]:
            if is_outlier(name, stream, measured) and self._ladder.take_skip():
                return LeftOut(f"{name} at the gate", name)
        why = next(filter(None, [one.gate(self._live) for one in self._held]), None)
        return LeftOut(why) if why is not None and self._ladder.take_skip() else None

    def _learn(self, stream: Stream) -> None:
        """Extreme data go on: they are learned, in updates of the usual size at first."""
        self._troubles.accepts = True
        self._live.rung_begins(self._extremes.first, 0)
        self._fade(stream, "clip", Clip(doubling=LEARNED_DOUBLING), LEARNED)

    def _leaves_out(self, stream: Stream, why: str, measured: Measurement) -> bool:
        """Whether the update of an extreme step is skipped. More than a few in a row may be the weights' fault."""
        extremes, step = self._extremes, measured.record.step
        if self._troubles.accepts or self._held.of_ladder or not self._ladder.may_skip(EXTREME):
            return False
        if extremes.are_many:
            if self._copies.why_not is not None or extremes.in_a_row > extremes.in_a_row_max:
                return False
            self._waiting = Trouble(EXTREME, extremes.first, f"{EXTREME}: {why}")
        elif self._copies.why_not is None and extremes.lets_through(stream, measured):
            self._live.scale_gradients(extremes.norm_on_trial / extremes.norm)
            bound = {"gradient_norm_max": extremes.norm_on_trial}
            action = self._act(stream, "applied", "clip", f"{EXTREME}: {why}; {ON_TRIAL}", {}, bound)
            self._run.tell(intervention_message(stream.step, action.reason, [action]))
            return False
        self._ladder.skipped(step)
        return True

    # -- between two steps -----------------------------------------------------------------------------------------

    def found(self, stream: Stream, symptoms: Sequence[Symptom]) -> tuple[Sequence[Symptom], Sequence[Symptom]]:
        if self._resumption is not None and any(one.severity != "note" for one in symptoms):
            self._resumption.trouble(max(one.last_step for one in symptoms if one.severity != "note"))
        if not self._steered.acts:
            return symptoms, symptoms
        responses: dict[int, Response] = {id(one): self._steered.response(one.name) for one in symptoms}
        for symptom in symptoms:
            if not self._troubles.is_new(symptom, stream, self._run.recorder.symptoms.values(), self._copies):
                continue
            response = responses[id(symptom)]
            if response == "stop" and symptom.name not in AT_GATE:
                self._stop(stream, f"{symptom.name}: {symptom.message}", symptom.name)
            elif response == "intervene" and symptom.name not in AT_GATE and self._waiting is None:
                onset = first_step_of(symptom, self._run.recorder.symptoms.values())
                self._waiting = Trouble(symptom.name, onset, f"{symptom.name}: {symptom.message}")
        loud = [one for one in symptoms if responses[id(one)] != "note"]
        return loud, [one for one in loud if responses[id(one)] != "alert"]

    def updated(self, stream: Stream) -> None:
        if stream.together:
            return
        live = self._live
        self._at(stream, anew=live.stream is not stream)
        for intervention in self._held:
            intervention.updated(live)
        live.undo_groups()
        self._hand.between_steps(stream)
        if self._resumption is not None and self._resumption.is_over(stream.step):
            for name in [one for one in self._resumption.take() if one in self._held]:
                self._revert(stream, name, self._resumption.why_over)
        if self._steered.acts:
            live.keep_norm(stream.name, stream.step)
        stretch = self._troubles.stretch(stream, self._copies, is_changed=bool(self._held))
        extremes = self._extremes.recurring
        trouble, self._waiting = self._waiting or self._troubles.without_symptom(stream, extremes), None
        if trouble is not None:
            self._intervene(stream, trouble)
        elif self._trial is not None and stream.step == self._troubles.acted_at + SETTLE_STEPS and live.restored:
            self._judge(stream, self._trial)
        elif self._ladder.is_calm(stream.step):
            self._take_back(stream)
        elif stretch is not None and self._trial is None:
            self._go_back(stream, stretch)
        for name in self._held.over():
            self._act(stream, "ended", name, "its return is over", {}, {})

    def _intervene(self, stream: Stream, trouble: Trouble) -> None:
        ladder, live, run = self._ladder, self._live, self._run
        is_extreme = trouble.symptom == EXTREME and trouble.levels is None
        trouble = self._troubles.located(trouble, stream, self._extremes.loss if is_extreme else None)
        symptom, why = trouble.symptom, trouble.why
        rung = ladder.climb(symptom, onset=trouble.onset, step=stream.step, young=not trouble.data)
        if rung is None:
            self._stop(stream, f"{SPENT.format(symptom=symptom)}; {why}", symptom)
            return
        run.symptom_incidents.settle(stream)
        self._troubles.acted_at = stream.step
        self._trial = Trial(EXTREME if is_extreme else "", trouble.levels) if trouble.levels is not None else None
        live.rung_begins(ladder.onset, ladder.index)
        if trouble.data:
            self._extremes.remember(stream)
        rung = rung if trouble.clip else tuple(name for name in rung if name != "clip")
        too_far = self._why_too_far(rung) if ladder.is_first and symptom not in AT_GATE else None
        if too_far is not None:
            self._pass_over(stream, f"{why}; {TOO_LATE.format(why=too_far)}")
            return
        actions = self._revert_others(stream, rung)
        for name in rung:
            actions += self._apply(stream, name, why)
        run.tell(intervention_message(stream.step, why, actions))
        if live.undone is not None:
            run.rolled_back(stream, *live.undone)
        elif live.is_damaged():
            self._stop(stream, f"{why}; the weights hold NaN or Inf, and no roll-back is possible", symptom)

    def _go_back(self, stream: Stream, stretch: Stretch) -> None:
        """What was learned in a stretch is of data that are gone: try the state from before it."""
        live = self._live
        if self._ladder.holds or live.why_too_far(0, stretch.first) or not self._ladder.may_roll_back(stream.step):
            return
        live.rung_begins(stretch.first, 0)
        self._trial = Trial(STRETCH, (stretch.high, stretch.high))
        self._troubles.went_back(stream.step)
        action = self._act(stream, "rolled-back", "roll-back", f"{STRETCH}: {stretch.why}", *live.roll_back(0))
        self._run.tell(intervention_message(stream.step, action.reason, [action]))
        if live.undone is not None:
            self._run.rolled_back(stream, *live.undone)

    def _why_too_far(self, rung: Rung) -> str | None:
        """Why the roll-back of a rung cannot be made, where copies are taken. Nothing then shows whether the weights
        or the data changed, and the rest of the rung would train another run."""
        if "roll-back" not in rung or self._copies.why_not is not None or self._live.is_damaged():
            return None
        one = self._held.kind_of("roll-back")
        return self._live.why_too_far(one.margin) if isinstance(one, RollBack) else None

    def _pass_over(self, stream: Stream, why: str) -> None:
        """Make nothing of the rung. What began before this step is only recorded from here on."""
        self._ladder.ends(stream.step)
        self._troubles.passed_over, self._trial = stream.step, None
        action = self._act(stream, "not-applied", "roll-back", why, {}, {})
        self._run.tell(intervention_message(stream.step, why, [action]))

    def _apply(self, stream: Stream, name: str, why: str) -> list[Action]:
        try:
            made = self._held.apply(name)
        except CannotApplyError as error:
            return [self._act(stream, "not-applied", name, f"{why}; not made: {error}", {}, {})]
        word: ActionWord = "rolled-back" if name == "roll-back" else "applied"
        return [self._act(stream, word, name, why, *made)] if made is not None else []

    def _revert_others(self, stream: Stream, rung: Rung) -> list[Action]:
        """What the rung before held and this one does not: it did not help."""
        names = [name for name in self._held.of_ladder if name not in rung]
        return [action for name in names for action in self._revert(stream, name, "it did not help")]

    def _take_back(self, stream: Stream) -> None:
        why = f"no symptom in {self._ladder.cool_down:,} steps"
        actions = [action for name in self._held.of_ladder for action in self._revert(stream, name, why)]
        self._run.tell(intervention_message(stream.step, why, actions))

    def _judge(self, stream: Stream, trial: Trial) -> None:
        """Whether a roll-back helped is known."""
        self._trial = None
        failed = trial.failed(stream, self._troubles.acted_at)
        self._troubles.judged(stream, trial, failed=failed)
        self._extremes.judged(known=failed and trial.of == EXTREME)
        if failed:
            self._return(stream, trial.why_failed)
        elif not self._held.of_ladder:
            self._ladder.ends(stream.step)  # the data alone were at fault, and they are past
        self._live.left = None

    def _return(self, stream: Stream, why: str) -> None:
        """No earlier state helps: take back all that was made, and go on from where the run was."""
        actions = [action for name in self._held.of_ladder for action in self._revert(stream, name, why)]
        returned = self._live.return_to_left()
        if returned is not None and self._live.undone is not None:
            actions.append(self._act(stream, "rolled-back", "roll-back", why, *returned))
            self._run.rolled_back(stream, *self._live.undone)
        self._ladder.ends(stream.step)
        self._run.tell(intervention_message(stream.step, why, actions))

    def _revert(self, stream: Stream, name: str, why: str) -> list[Action]:
        return [self._act(stream, "reverted", name, why, {}, {})] if self._held.revert(name) else []

    # -- by hand ---------------------------------------------------------------------------------------------------

    @property
    def holding(self) -> list[str]:
        """The interventions that hold."""
        return self._held.names

    def hold(self, stream: Stream, name: str, one: Intervention) -> tuple[Numbers, Numbers]:
        """Make an intervention that the user asked for; it holds until the user takes it back.

        Raises:
            CannotApplyError: it cannot be made.
        """
        self._at(stream)
        before, after = self._held.put(name, one)
        if self._live.undone is not None:
            self._run.rolled_back(stream, *self._live.undone)
        return before, after

    def let_go(self, stream: Stream, name: str) -> bool:
        """Take back an intervention; False if it does not hold."""
        return self._held.let_go(name)

    # -- what is recorded ------------------------------------------------------------------------------------------

    def _act(self, stream: Stream, what: ActionWord, name: str, why: str, before: Numbers, after: Numbers) -> Action:
        run = self._run
        action = Action(stream.step, run.settings.policy, what, why, name, dict(before), dict(after))
        run.recorder.act(stream, action)
        return action

    def _stop(self, stream: Stream, why: str, symptom: str) -> None:
        run = self._run
        if run.stopped is None:
            self._act(stream, "stopped", "", why, {}, {})
            run.tell(f"STOPPED after step {stream.step}: {why}")
            run.stopped = RunStopped(f"steadytrain stopped the run after step {stream.step}: {why}")

    def stream_done(self, stream: Stream) -> None:
        self._copies.release()
        self._copies = self._live.copies = StateCopies()
        self._seen.clear()

    def close(self) -> None:
        self._hand.close()
        self._live.undo_groups()
        self._live.functions.end()
        self._copies.release()

    def forget(self) -> None:
        self._hand.forget()
        self._copies.release()
