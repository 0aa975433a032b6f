"""The axis on which the fault lies: data, model, loss, optimizer, precision, distributed, hardware or harness. Pure.

A practitioner narrows to an axis before naming a cause, and an axis is known more often than a cause. A confirmed or
likely cause brings its own. Without one, the trials decide: what was removed by a change on one axis alone lies there.
What changes on several axes each removed lies on none that is known. A trial that may remove faults of most axes (an
update that is clipped, frozen layers, random inputs) decides nothing, and a cause whose own cure was tried in vain
points nowhere.
The 2 x 2 of state and batch separates the data from the rest: other batches in this state (``drop-batch``,
``fresh-data``, ``synthetic-batch``), and this batch in another state (``suspect-batch-earlier``). A lower rate helps
against nearly everything, so it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steadytrain.diagnosis.answer import UNKNOWN, Axis, RankedCause
from steadytrain.diagnosis.cause import Cause
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.weighing import Suspect, plain
from steadytrain.experiments.specs import UNCHANGED, Verdict
from steadytrain.experiments.trial import AXES
from steadytrain.experiments.trial_catalog import trials

KIND_AXES: Mapping[str, str] = {
    **dict.fromkeys(("data", "shift"), "data"),
    **dict.fromkeys(("rate", "moments", "state"), "optimizer"),
    **dict.fromkeys(("half", "kernel"), "precision"),
    "logits": "model",
    "operation": "loss",
    "ranks": "distributed",
    "transient": "hardware",
    "script": "harness",
}
"""The axis of a kind of causes (``KINDS``), for causes that declare none."""

DEFAULT_AXIS = "harness"

OTHER_STATE = "suspect-batch-earlier"
"""The trial that feeds the suspect batch in another state."""

MASS_MIN = 0.5
"""Without a trial, an axis is named if its causes hold this share of the probability."""

OTHERS_MAX = 3
"""Kinds of causes on other axes that a trial may remove as well and still decide on its own."""

SAID: Mapping[tuple[str, str], str] = {
    ("drop-batch", "removed"): "without the batch it is gone",
    ("drop-batch", "persists"): "without the batch it stays",
    ("fresh-data", "removed"): "with other batches it is gone",
    ("fresh-data", "persists"): "with other batches it comes, too",
    ("synthetic-batch", "removed"): "with random numbers in place of the batch it is gone",
    ("synthetic-batch", "persists"): "with random numbers in place of the batch it comes, too",
    (OTHER_STATE, "removed"): "in an earlier state the same batch does no harm",
    (OTHER_STATE, "persists"): "in an earlier state the same batch brings it, too",
}
"""What an outcome says in words. Any other trial is named."""

WHERE: Mapping[str, str] = {
    "data": "in the data",
    "model": "in the model",
    "loss": "in the loss",
    "optimizer": "in the optimizer or its schedule",
    "precision": "in the number format",
    "distributed": "between the ranks",
    "hardware": "in the hardware",
    "harness": "in the training loop",
}
"""Where the fault lies, in words."""


DIFFERS = (
    "an unchanged replay differs, so something outside of the recorded state takes part: the order of a set or of "
    "files, a clock, threads, rarely the hardware"
)
"""Why no axis is named where nothing repeats."""


def axis_of(cause: Cause | type[Cause]) -> str:
    """The axis that a cause declares, else that of its kind."""
    return cause.axis or KIND_AXES.get(str(getattr(cause.expects, "kind", "")), DEFAULT_AXIS)


def axis_found(
    top: RankedCause | None,
    suspects: Sequence[Suspect],
    belief: Mapping[str, float],
    verdicts: Sequence[Verdict],
    control: Control,
) -> Axis:
    """The axis of an answer whose best cause is ``top`` (confirmed or likely), None if the cause is unknown."""
    shown = {one.trial: effect for one in verdicts if (effect := plain(one.effect)) is not None}
    shown.pop(UNCHANGED, None)
    if top is not None:
        return _of_cause(top, next(one for one in suspects if one.name == top.cause), shown)
    if control.ran and control.judged and control.exact is False:
        return Axis(UNKNOWN, DIFFERS, (UNCHANGED,))
    return _by_trials(shown) or _by_signs(suspects, belief, shown)


def _of_cause(top: RankedCause, suspect: Suspect, shown: Mapping[str, str]) -> Axis:
    name = suspect.signature.axis or axis_of(suspect.cause)
    if name == "loss" and top.layer:
        name = "model"  # the operation lies in a layer
    asked = (*suspect.cause.confirming, *suspect.cause.spared, *_square())
    # What went against the cause is no reason for where it lies.
    decided = tuple(one for one in dict.fromkeys(asked) if suspect.cause.expected(one) in ("either", shown.get(one)))
    decided = tuple(trial for trial in decided if trial in shown)
    why = f"{top.cause} is a fault {WHERE[name]}"
    return Axis(name, f"{why}: {_said(decided, shown)}" if decided else f"{why}, by what was seen", decided)


def _by_trials(shown: Mapping[str, str]) -> Axis | None:
    """The axis whose trials removed the symptom, unknown if those of several axes did, None if none did."""
    removed = [trial for trial, effect in shown.items() if effect == "removed" and trial in _deciding()]
    found = {_axes()[trial] for trial in removed}
    if "data" in found and len(found) > 1:
        # A hard batch and a state that cannot digest it: the state is at fault if the batch is harmless elsewhere.
        crossed = shown.get(OTHER_STATE)
        found = {"data"} if crossed == "persists" else found - {"data"} if crossed == "removed" else found
    if not found:
        return None
    if len(found) > 1:
        why = f"the cause is unknown, and changes on several axes each removed the symptom: {_said(removed, shown)}"
        return Axis(UNKNOWN, why, tuple(removed))
    (name,) = found
    decided = tuple(trial for trial in shown if _axes().get(trial) == name or trial in _square() or (trial in removed))
    return Axis(name, f"the cause is unknown, but it lies {WHERE[name]}: {_said(decided, shown)}", decided)


def _by_signs(suspects: Sequence[Suspect], belief: Mapping[str, float], shown: Mapping[str, str]) -> Axis:
    """The axis that the signs point to, or which ones the trials have excluded."""
    cleared = tuple(trial for trial in _square() if shown.get(trial) == "persists" and trial != OTHER_STATE)
    one_batch = cleared == ("drop-batch",)  # data that changed for good are still there without it
    excluded = {"data"} if cleared and not one_batch else set()
    mass = {axis: share for axis, share in _mass(suspects, belief, shown).items() if axis not in excluded}
    name = max(sorted(mass), key=lambda axis: mass[axis], default="")
    beside = f"; not {'that batch alone' if one_batch else 'the data'}: {_said(cleared, shown)}" if cleared else ""
    if name and mass[name] >= MASS_MIN:
        return Axis(
            name,
            f"the cause is unknown and no trial decided; what was seen points to a fault {WHERE[name]}{beside}",
            cleared,
        )
    return Axis(
        UNKNOWN, f"no change removed the symptom, and what was seen points to no part of the training{beside}", cleared
    )


def _mass(suspects: Sequence[Suspect], belief: Mapping[str, float], shown: Mapping[str, str]) -> dict[str, float]:
    """The probability of each axis: that of its causes with a sign that speaks for them, whose cure did not fail."""
    mass: dict[str, float] = {}
    for one in suspects:
        cures = [shown[trial] for trial in one.cause.confirming if trial in shown]
        in_vain = bool(cures) and "removed" not in cures
        if not in_vain and any(sign.weight > 0 for sign in one.signature.signs):
            mass[axis_of(one.cause)] = mass.get(axis_of(one.cause), 0.0) + belief.get(one.name, 0.0)
    return mass


def _said(decided: Sequence[str], shown: Mapping[str, str]) -> str:
    """The outcomes in words, those that removed the symptom first."""
    order = sorted(decided, key=lambda trial: shown[trial] != "removed")
    words = {"removed": "it is gone", "persists": "it stays"}
    said = (SAID.get((trial, shown[trial])) or f"with {trial} {words[shown[trial]]}" for trial in order)
    return ", ".join(said).replace(" it ", " the symptom ", 1)


def _axes() -> dict[str, str]:
    return {one.name: one.axis for one in trials() if one.axis in AXES}


def _deciding() -> frozenset[str]:
    """The trials that tell an axis: few causes on other axes are removed by them."""
    found = set()
    for one in trials():
        kinds = {*one.removes.split(), *one.either.split()} - {"transient"}
        others = [kind for kind in kinds if KIND_AXES.get(kind) != one.axis]
        if one.axis in AXES and len(others) <= OTHERS_MAX:
            found.add(one.name)
    return frozenset(found)


def _square() -> tuple[str, ...]:
    """The trials of the 2 x 2 of state and batch."""
    return tuple(dict.fromkeys(trial for trial, _ in SAID))
