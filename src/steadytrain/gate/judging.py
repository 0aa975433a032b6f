"""The judgement: a policy, a recorded run and the reference runs in, checks out. A pure function.

A demand that the record cannot answer is ``unknown``, and an unknown never passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from steadytrain.compare.seed_noise import RUNS_MIN, next_run_interval, tail_mean, tail_steps
from steadytrain.core.model import SEVERITIES, ScriptLine, Series, Symptom
from steadytrain.gate.policy import NONFINITE_LOSS, Bounds, GatePolicy
from steadytrain.gate.recorded import Done, Recorded
from steadytrain.gate.result import Check, GatedRun
from steadytrain.grouping.catalog import declared, is_nonfinite
from steadytrain.grouping.stories import by_time
from steadytrain.report.action_words import action_words
from steadytrain.report.wording import clean, count, enumerated, number

NAMES_MAX = 6
FACT = "; a warning of it fails, too: it states what the script does, and is no statistic"
LOSS, GRADIENT_NORM = "loss", "gradient_norm"
OF_THE_RECORD = (
    *("symptoms", "nonfinite-losses", "loss-bounds", "gradient-norm-bounds", "actions"),
    *("loss-noise", "gradient-norm-noise"),
)
"""The checks that read what was recorded step by step."""

_KEPT = {"checklist": "checklist", "preflight": "preflight", "data": "result of check-data --keep-with"}


def judge_run(run: Recorded, policy: GatePolicy, references: Sequence[Recorded] = ()) -> GatedRun:
    """Every demand of ``policy`` on ``run``, and its noise beside ``references`` if there are any."""
    return GatedRun(
        run.name, str(run.path), tuple(_as_far_as_recorded(one, run) for one in _checks(run, policy, references))
    )


def _as_far_as_recorded(check: Check, run: Recorded) -> Check:
    """A check that passes on a record that breaks off is unknown: what came after may not pass."""
    if not run.stopped or check.status != "pass" or check.name not in OF_THE_RECORD:
        return check
    return Check(check.name, "unknown", f"{check.reason}, as far as recorded. {' '.join(map(clean, run.stopped))}")


def _checks(run: Recorded, policy: GatePolicy, references: Sequence[Recorded]) -> Iterator[Check]:
    if run.is_run and not policy.unfinished:
        yield _ended(run)
    yield _symptoms(run, policy)
    if run.confirmed:
        yield _diagnosis(run, policy)
    yield _losses(run, policy)
    if policy.loss.given:
        yield _bounds("loss-bounds", "loss", _series(run, LOSS), policy.loss)
    if policy.gradient_norm.given:
        yield _bounds("gradient-norm-bounds", "gradient norm", _series(run, GRADIENT_NORM), policy.gradient_norm)
    if run.is_run:
        yield _actions(run, policy)
    if policy.checklist:
        yield _required("checklist", run, run.checklist)
    if policy.preflight:
        yield _required("preflight", run, run.preflight)
    if policy.data:
        yield _required("data", run, run.data)
    if references:
        yield from _noise(run, policy, references)


def _ended(run: Recorded) -> Check:
    if run.ended == "finished":
        return Check("ended", "pass", "the run finished")
    if run.ended is None:
        return Check("ended", "unknown", f"the run recorded no end: {clean(run.why_ended)}")
    why = run.why_ended
    how = why if why.startswith(run.ended) else f"{run.ended} ({why})" if why else run.ended
    return Check("ended", "fail", f"the run did not finish: {clean(how)}")


def _symptoms(run: Recorded, policy: GatePolicy) -> Check:
    name = "symptoms"
    if policy.fail_on == "never":
        return Check(name, "pass", "the policy fails on no symptom")
    bad = SEVERITIES[SEVERITIES.index(policy.fail_on) :]
    found = [one for one in run.symptoms if _counts(one, bad) and one.name not in policy.allowed_symptoms]
    if found:
        first = min(found, key=lambda one: (-SEVERITIES.index(one.severity), by_time(one)[:2]))
        made, at = _made_by(run, first)
        more = f" (and {count(len(found) - 1)} more)" if len(found) > 1 else ""
        where = f"{first.severity} {clean(first.name)} at step {count(first.first_step)}"
        why = "" if first.severity in bad else FACT
        return Check(name, "fail", f"{where}: {clean(first.message)}{made}{why}{more}", first.first_step, at)
    if not run.looked or not run.windows:
        return Check(name, "unknown", "no detector could look at this run")
    looked = f"no {' or '.join(bad)} symptom from {count(run.looked)} detectors"
    return Check(name, "pass", f"{looked}{_uncounted(run, policy, bad)}")


def _made_by(run: Recorded, symptom: Symptom) -> tuple[str, ScriptLine | None]:
    """The operation that made the NaN or Inf of a symptom, if its incident names it, and the line at fault."""
    origin = run.origins.get((symptom.stream, symptom.first_step)) if is_nonfinite(symptom) else None
    if origin is None:
        return "", symptom.at
    place = f" at {origin.at.place}" if origin.at is not None else ""
    return f"; {clean(origin.operation)} made {origin.produced}{clean(place)}", origin.at or symptom.at


def _counts(symptom: Symptom, bad: Sequence[str]) -> bool:
    """Whether a symptom fails the gate if it is not allowed."""
    return symptom.severity in bad or (symptom.severity == "warning" and declared(symptom.name).states_fact)


def _uncounted(run: Recorded, policy: GatePolicy, bad: Sequence[str]) -> str:
    """The warnings below the severity of the policy, and the entry that would count them."""
    names = [one.name for one in run.symptoms if one.severity == "warning"] if "warning" not in bad else []
    warnings = sum(name not in policy.allowed_symptoms for name in names)
    if not warnings:
        return ""
    which = 'fail-on = "warning" in the file of --policy'
    return f"; {_of(warnings, 'warning is', 'warnings are')} not counted ({which} counts them)"


def _diagnosis(run: Recorded, policy: GatePolicy) -> Check:
    """A confirmed cause fails, unless the policy allows its symptom."""
    bad = [one for one in run.confirmed if policy.fail_on != "never" and one.symptom not in policy.allowed_symptoms]
    if not bad:
        return Check("diagnosis", "pass", "the policy allows the symptoms of the confirmed causes")
    causes = enumerated(list(dict.fromkeys(f"{clean(one.cause)} ({clean(one.where)})" for one in bad)), NAMES_MAX)
    return Check("diagnosis", "fail", f"diagnose confirmed a cause: {causes}")


def _losses(run: Recorded, policy: GatePolicy) -> Check:
    """Losses that are not finite: recorded steps, and batches that the script left out. A gradient scaler that searches
    its scale may skip a step; such a loss does not count.
    """
    name, total, steps, measured = "nonfinite-losses", 0, [], 0
    for window in run.windows:
        if LOSS not in window.signals:
            continue
        measured += int(window.present[LOSS].sum())
        bad = window.present[LOSS] & ~window.skipped & ~np.isfinite(window.signals[LOSS])
        total += int(bad.sum())
        steps += window.steps[bad][:1].tolist()
    left_out = [one for one in run.symptoms if one.name == NONFINITE_LOSS and "in_a_row" in one.numbers]
    skipped = int(sum(one.numbers.get("steps", 0.0) for one in left_out))
    steps += [one.first_step for one in left_out]
    total += skipped
    if total > policy.nonfinite_losses:
        by_script = f", {count(skipped)} of them skipped by the script" if skipped else ""
        allowed = f"; the policy allows {count(policy.nonfinite_losses)}" if policy.nonfinite_losses else ""
        first = min(steps)
        return Check(
            name,
            "fail",
            f"{_of(total, 'loss is', 'losses are')} NaN or Inf{by_script}, the first at step {count(first)}{allowed}",
            first,
            next((one.at for (_, step), one in run.origins.items() if step == first), None),
        )
    if not measured:
        return Check(name, "unknown", "no loss was recorded")
    return Check(name, "pass", f"{count(total)} of {count(measured)} losses are NaN or Inf{_unrecorded(run)}")


def _of(number: int, one: str, several: str) -> str:
    return f"{count(number)} {one if number == 1 else several}"


def _unrecorded(run: Recorded) -> str:
    """Silence is named: the losses of these steps are not on record."""
    if not run.unrecorded:
        return ""
    return f"; {count(run.unrecorded)} steps were not recorded: the run rested (--every-step records all)"


def _series(run: Recorded, signal: str) -> Series:
    """The signal of the first stream."""
    return run.windows[0].series(signal) if run.windows else Series(np.zeros(0, np.int64), np.zeros(0))


def _bounds(name: str, word: str, series: Series, bounds: Bounds) -> Check:
    finite = np.isfinite(series.values)
    span = tail_steps([series])
    if span is None or not finite.any():
        return Check(name, "unknown", f"no finite {word} was recorded")
    steps, values = series.steps[finite], series.values[finite]
    for value, at, side, bound in (
        (float(values.max()), int(values.argmax()), "above", bounds.highest),
        (float(values.min()), int(values.argmin()), "below", bounds.lowest),
    ):
        if bound is not None and (value > bound if side == "above" else value < bound):
            step = int(steps[at])
            return Check(name, "fail", f"the {word} {number(value)} at step {count(step)} is {side} {bound:g}", step)
    if bounds.end_lowest is None and bounds.end_highest is None:
        return Check(name, "pass", f"every {word} is within its bounds")
    end, where = tail_mean(series, span), f"steps {count(span[0])} to {count(span[1])}"
    if end is None:
        return Check(name, "fail", f"the {word} is not finite in {where}", span[0])
    for side, bound in (("above", bounds.end_highest), ("below", bounds.end_lowest)):
        if bound is not None and (end > bound if side == "above" else end < bound):
            return Check(name, "fail", f"the mean {word} {number(end)} of {where} is {side} {bound:g}", span[0])
    return Check(name, "pass", f"the {word} is within its bounds; its mean in {where} is {number(end)}")


def _actions(run: Recorded, policy: GatePolicy) -> Check:
    touched = [action for action in run.actions if action.touched]
    bad = [action for action in touched if action.what not in policy.allowed_actions]
    if bad:
        first = min(bad, key=lambda action: action.step)
        what = enumerated(list(dict.fromkeys(clean(action_words(action)) for action in bad)), NAMES_MAX)
        where = f"{_of(len(bad), 'action', 'actions')} changed the run, the first at step {count(first.step)}"
        return Check("actions", "fail", f"{where}: {what}", first.step)
    if touched:
        return Check("actions", "pass", f"{_of(len(touched), 'action', 'actions')} changed the run, all allowed")
    return Check("actions", "pass", "steadytrain changed nothing in the run")


def _required(name: str, run: Recorded, entries: Sequence[Done]) -> Check:
    if not entries:
        why = f"no {_KEPT[name]} of this run is on disk" if run.is_run else f"a log has no {_KEPT[name]}"
        why += "; `steadytrain preflight --then-run` keeps one with its run" if name == "preflight" else ""
        return Check(name, "unknown", why)
    bad = "not done" if name == "checklist" else "failed"
    for status, wanted, word in (("fail", False, bad), ("unknown", None, "not judged")):
        found = [f"{clean(one.title)} ({clean(one.why)})" for one in entries if one.done is wanted]
        if found:
            return Check(name, "fail" if status == "fail" else "unknown", f"{word}: {enumerated(found, NAMES_MAX)}")
    return Check(name, "pass", f"all {count(len(entries))} done")


def _noise(run: Recorded, policy: GatePolicy, references: Sequence[Recorded]) -> Iterator[Check]:
    yield _beside("loss-noise", "loss", LOSS, run, policy, references)
    if all(len(_series(one, GRADIENT_NORM)) for one in (run, *references)):
        yield _beside("gradient-norm-noise", "gradient norm", GRADIENT_NORM, run, policy, references)


def _beside(
    name: str, word: str, signal: str, run: Recorded, policy: GatePolicy, references: Sequence[Recorded]
) -> Check:
    """The mean of the last steps that all reached, and the interval in which one more run like the references lies."""
    span = tail_steps([_series(one, signal) for one in (run, *references)])
    if span is None:
        return Check(name, "unknown", f"the run and its references share no steps with a {word}")
    if (why := _unequal_lengths(signal, run, policy, references)) is not None:
        return Check(name, "unknown", why)
    where = f"steps {count(span[0])} to {count(span[1])}"
    own = tail_mean(_series(run, signal), span)
    if own is None:
        return Check(name, "fail", f"the {word} is not finite, or is missing, in {where}", span[0])
    means = [tail_mean(_series(one, signal), span) for one in references]
    known = [mean for mean in means if mean is not None]
    if len(known) < RUNS_MIN:
        why = f"{len(known)} references with a finite {word} in {where}; at least {RUNS_MIN} are needed"
        return Check(name, "unknown", why)
    low, high = next_run_interval(known, confidence=policy.confidence)
    if low == high:
        return Check(name, "unknown", f"the references are equal in {where}, so they show no noise; vary their seeds")
    told = f"the mean {word} {number(own)} of {where}"
    interval = f"{number(low)} to {number(high)}, where one more run like the {len(known)} references lies"
    interval += _of_other_scripts(run, references)
    if own > high or (policy.both_sides and own < low):
        return Check(name, "fail", f"{told} is {'above' if own > high else 'below'} {interval}", span[0])
    if own < low:
        return Check(name, "pass", f"{told} is below {interval}; the policy allows that")
    return Check(name, "pass", f"{told} is within {interval}")


def _of_other_scripts(run: Recorded, references: Sequence[Recorded]) -> str:
    """The scripts of references that ran another one: they may differ by more than their seed."""
    others = [one.script for one in references if one.script and run.script and one.script != run.script]
    if not others:
        return ""
    which = "they" if len(others) == len(references) else f"{len(others)} of them"
    ran = enumerated(list(map(clean, dict.fromkeys(others))), NAMES_MAX)
    return f" ({which} ran {ran}, this one {clean(run.script)})"


def _unequal_lengths(signal: str, run: Recorded, policy: GatePolicy, references: Sequence[Recorded]) -> str | None:
    """Why the ends of runs of these lengths say nothing of each other; None if they do."""
    ends = sorted((int(_series(one, signal).steps[-1]), clean(one.name)) for one in (run, *references))
    (short, first), (long, last) = ends[0], ends[-1]
    if short >= policy.shortest * long:
        return None
    return (
        f"{first} ended at step {count(short)}, and {last} at step {count(long)}: the ends of "
        f"runs of such lengths are not compared ([reference] shortest = {policy.shortest:g} in the policy)"
    )
