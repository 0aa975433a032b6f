"""The recorded steps without the suspect batch, and without its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from steadytrain.experiments.case import AFTER_STEP, Case
from steadytrain.experiments.health import harms_others, range_before, steps_from_onset, stretch
from steadytrain.experiments.judging import judge
from steadytrain.experiments.planning import planned
from steadytrain.experiments.rank_plans import other_batch
from steadytrain.experiments.specs import BAD_BATCH, NotApplicable, Outcome, Placebo, Spec, Verdict
from steadytrain.experiments.trial import Trial

ALONE, BESIDE, BLOCK = 0, 1, 2
"""The ``repeat`` of the runs without the batch of the onset, also without its neighbours, without the whole block."""

WELL_STEPS_MIN = 2
"""After so many steps with a usual loss and gradient the state is sound, and a later batch that fails has its own
fault."""

NEXT_IS_BAD = "the batch that follows holds NaN or Inf, too, so leaving out one proves nothing"

HARMLESS = "the batch has a high loss, but no other step and no probe shows that it did any harm"


@final
class DropBatch(Trial):
    """The recorded steps without the suspect batch.

    Changes:
        The loop runs the batch, but its update is skipped and the state restored. One run drops only the batch of the
        onset. Another also drops its neighbours: the update before, which the loss at the onset depends on, and the one
        that follows. If the loss stays high for several steps, a third run drops them all: a block of bad batches. Of
        several ranks, where a value was not finite, the first run gives only the failing rank another batch, one of its
        own from before; the other ranks keep theirs, and the update is made.

    Tells:
        If the symptom goes away, the data of these steps cause it, or trigger it in a vulnerable state: see
        suspect-batch-earlier. If only the second run removes it, the cause is the update before, or damage in several
        batches. A later batch that fails after steps with a usual loss and gradient has a fault of its own. If the next
        batch holds NaN or Inf, too, the trial shows nothing.

    Beware:
        One update fewer, or three. A state that is already broken shows the symptom a step later.
    """

    axis = "data"
    removes = "data transient"
    either = "moments operation"
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.aim == "progress":
            return NotApplicable("a run without progress has no single suspect batch")
        case = _near(case)
        alone = self._alone(case)
        if isinstance(alone, NotApplicable):
            return alone
        begin = case.begin
        near = [step for step in (case.onset - 1, case.onset, case.onset + 1) if begin is None or step > begin]
        fed = {case.onset, *(entry.step for entry in alone[0].schedule if entry.role != "probe")}
        near = [step for step in near if step in fed]
        blocks = {ALONE: [case.onset], BLOCK: [step for step in self._block(case) if step in fed]}
        if case.onset - 1 in near:  # else no update lies between the snapshot and the onset
            blocks[BESIDE] = near
        return tuple(
            replace(spec, repeat=repeat)
            for repeat, steps in sorted(blocks.items())
            if repeat == ALONE or len(steps) > 1
            for spec in (alone if repeat == ALONE else _specs(planned(self, case, refused=steps)))
        )

    def _alone(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        """Without the suspect batch alone. Of several ranks only the failing one gets another batch; the other ranks
        keep theirs, and the update is made."""
        there = None if case.ranks is None else other_batch(case, case.ranks.failing)
        return planned(self, case, refused=(case.onset,)) if there is None else planned(self, case, there)

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """As many healthy batches left out: the last ones before the suspects, or else later ones."""
        case = _near(case)
        begin = case.begin
        if begin is None or case.aim == "progress":
            return None
        if case.ranks is not None and (there := other_batch(case, case.ranks.other)) is not None:
            specs = _specs(planned(self, case, there))
            what = f"another batch on rank {case.ranks.other}"
            return Placebo(what, tuple(replace(one, trial=f"{self.name}-placebo") for one in specs))
        count = len(self._block(case))
        suspects = {*case.suspects(), *self._block(case), self._block(case)[-1] + 1}
        taped = [step for step in case.recorded(begin) if step is not None and step not in suspects]
        earlier, later = [s for s in taped if s < case.onset], [s for s in taped if s > case.onset]
        others = sorted([*earlier[-count:], *later[: max(0, count - len(earlier))]])
        if not others:
            return None
        specs = _specs(planned(self, case, refused=others))
        which = f"batch of step {others[0]}" if len(others) == 1 else f"batches of steps {', '.join(map(str, others))}"
        return Placebo(f"leaving out the {which}", tuple(replace(one, trial=f"{self.name}-placebo") for one in specs))

    def _block(self, case: Case) -> list[int]:
        return list(range(case.onset, case.onset + (stretch(case) if case.aim == "excess" else 1)))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge by the batch alone, then with its neighbours, then by the whole block. If the suspects harmed nothing
        but themselves, it proves nothing that the rest is well without them."""
        verdict = self._judge(case, controls, outcomes)
        if verdict.effect == "removed" and not harms_others(case, controls, self._block(case)):
            return replace(verdict, effect="inconclusive", why=HARMLESS)
        return verdict

    def _judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        ran = {repeat: [one for one in outcomes if one.spec.repeat == repeat] for repeat in (ALONE, BESIDE, BLOCK)}
        verdict = judge(self.name, case, controls, ran[ALONE] or ran[BESIDE])
        if verdict.effect == "removed":
            return _told(verdict, _without(case)) if ran[ALONE] else verdict
        failed = verdict.effect in ("persists", "worse") and bool(ran[ALONE])
        if failed and all(_next_is_bad(one, case) for one in ran[ALONE]):
            return replace(verdict, effect="inconclusive", why=NEXT_IS_BAD)
        for repeat in (BESIDE, BLOCK):
            wider = judge(self.name, case, controls, ran[repeat]) if ran[repeat] else verdict
            if wider.effect == "removed":
                which = f"only without all of steps {case.onset} to {self._block(case)[-1]}"
                return _told(wider, "only without its neighbours too" if repeat == BESIDE else which)
        still = verdict.effect in ("persists", "delayed")
        if still and ran[ALONE] and all(_fails_by_another_batch(case, one) for one in ran[ALONE]):
            step = int(verdict.numbers["first_bad_step"])
            why = f"the loss and the gradients are as before, until the batch of step {step} fails in the same way"
            return _told(replace(verdict, effect="removed", why=why), _without(case))
        return verdict


def _next_is_bad(outcome: Outcome, case: Case) -> bool:
    """Whether the run without the batch failed at a later batch that a loader gave with NaN or Inf in it. A placebo
    leaves out another batch, and fails at the onset as before. Batches past the tape are the script's own next ones."""
    entry = outcome.first_nonfinite
    if entry is None or not outcome.measured.get(BAD_BATCH):
        return False
    step = outcome.spec.schedule[entry].step
    return step is None or step > case.onset


def _without(case: Case) -> str:
    """How the run without the batch alone differs, in words."""
    if case.ranks is not None and other_batch(case, case.ranks.failing) is not None:
        return f"with another batch on rank {case.ranks.failing} alone"
    return "without the batch alone"


def _near(case: Case) -> Case:
    """A batch that is not finite shows it at once, and the next epoch has it again: some steps are enough."""
    if case.aim != "finite" or case.after is not None:
        return case
    return case.following(AFTER_STEP + case.step - case.onset)


def _fails_by_another_batch(case: Case, outcome: Outcome) -> bool:
    """Whether the run without the batch is sound, until a later batch makes a value that is not finite."""
    bad, usual = outcome.first_nonfinite, range_before(case)
    if case.aim != "finite" or bad is None or usual is None:
        return False
    between = [one for one in steps_from_onset(case, outcome) if one.entry < bad]
    return len(between) >= WELL_STEPS_MIN and all(
        one.loss is not None and one.loss <= usual.loss and (one.gradient_norm or 0.0) <= usual.gradient
        for one in between
    )


def _specs(plan: tuple[Spec, ...] | NotApplicable) -> tuple[Spec, ...]:
    assert not isinstance(plan, NotApplicable)  # the plan without the batch alone applied
    return plan


def _told(verdict: Verdict, which: str) -> Verdict:
    return replace(verdict, why=f"{which}: {verdict.why}")
