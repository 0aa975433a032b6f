"""A diagnosis takes a trial's own verdict, unless its batches could not be fed or its loss is another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steadytrain.diagnosis.opening import as_recorded
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.replay_signs import differs_at_onset
from steadytrain.experiments.case import Case
from steadytrain.experiments.fix_verification import with_price
from steadytrain.experiments.judging import measures, shows
from steadytrain.experiments.specs import OWN_BATCH, UNCHANGED, Effect, Outcome, Verdict
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_starts import START


def verdict_of(
    case: Case, control: Control, trial: Trial, controls: Sequence[Outcome], outcomes: Sequence[Outcome]
) -> Verdict:
    """The verdict of a trial. That of the unchanged replay says whether it shows the symptom."""
    if trial.name != UNCHANGED:
        other = next((note for one in outcomes for note in one.notes if OWN_BATCH in note), None)
        follows = all(_follows_the_model(one, controls) for one in outcomes)
        if other is not None and all(one.ran for one in outcomes) and not follows:
            return Verdict(trial.name, "not-run", why=other)
        judged = with_price(case, trial, controls, outcomes, trial.judge(case, controls, outcomes))
        if (
            case.aim == "progress"
            and trial.other_loss
            and not trial.own_control
            and judged.effect in ("removed", "persists")
        ):
            why = f"{judged.why}; it uses another loss, so that proves nothing"
            return Verdict(trial.name, "inconclusive", {}, why)
        return judged
    if not control.ran:
        return Verdict(UNCHANGED, "not-run", why=control.note)
    exact = {True: "the same to the last bit; ", False: "not the same to the last bit; ", None: ""}[control.exact]
    judged = trial.judge(case, controls, outcomes)
    # An exact replay has the recorded symptom, whether or not the probes show it.
    effect: Effect = "persists" if control.shown or control.exact else "removed"
    if effect == "removed" and not measures(case):
        effect = "inconclusive"
    return Verdict(UNCHANGED, effect, judged.numbers, f"{exact}{control.note}")


def _follows_the_model(trial: Outcome, controls: Sequence[Outcome]) -> bool:
    """Whether a trial's other inputs come from the weights that it changed: a rollout, the samples of a generator.

    The unchanged replay of the same steps in the same order made exactly the recorded inputs, so the script repeats all
    that it draws.
    """
    steps = [entry.step for entry in trial.spec.schedule if entry.role != "probe"]
    for one in controls:
        unchanged = one.ran and one.exact and not one.spec.changes and one.spec.begin == trial.spec.begin
        same = steps == [entry.step for entry in one.spec.schedule if entry.role != "probe"][: len(steps)]
        if unchanged and same and not any(OWN_BATCH in note for note in one.notes):
            return True
    return False


def control_of(case: Case, runs: Sequence[Outcome], controls: Sequence[Outcome]) -> Control:
    """What the unchanged replays show. ``runs`` are those, ``controls`` all replays that change nothing of weight."""
    first = next((one for one in runs if one.ran), None)
    if first is None:
        why = next((one.why_not for one in runs if one.why_not), None)
        return Control(False, False, None, why or "the unchanged replay did not run")
    earlier = _sound_before(case, runs)
    if earlier is not None:
        note = f"every value is finite from step {earlier.spec.begin} on, so the state that the run had was damaged"
        return Control(True, False, False, note, early=True)
    shown, what = shows(case, first, controls)
    exact = first.exact if first.spec.begin is not None else as_recorded(case, first)
    if exact and any(one.ran and one.exact is False for one in runs):
        exact = False
    if exact and not shown and first.spec.begin == START and not measures(case):
        shown, what = True, "no loss shows the symptom; trials are judged by what the run learns"
    return Control(True, shown, exact, what, early=(first.spec.begin or 0) < case.onset - 1)


def own_batches(verdicts: Mapping[str, Verdict], outcomes: Mapping[str, Sequence[Outcome]]) -> bool:
    """Whether the script used batches of its own in a trial that keeps their order. One that changes it may well be
    refused by a script, whatever the start."""
    own = [name for name, verdict in verdicts.items() if OWN_BATCH in verdict.why]
    return any(_in_order(one) for name in own for one in outcomes.get(name, ()))


def _in_order(outcome: Outcome) -> bool:
    steps = [entry.step for entry in outcome.spec.schedule if entry.role != "probe" and entry.step is not None]
    return steps == sorted(steps)


def _sound_before(case: Case, runs: Sequence[Outcome]) -> Outcome | None:
    """The unchanged replay from an earlier snapshot, if it stays finite although the survey found the replay
    bit-identical up to the onset: then the state itself was damaged in between, by nothing that the tape holds."""
    begun = [one for one in runs if one.ran and one.spec.begin is not None]
    first = min(begun, key=lambda one: one.spec.begin or 0, default=None)
    if first is None or not differs_at_onset(case) or first.exact is not False:
        return None
    return first if case.aim == "finite" and first.first_nonfinite is None else None
