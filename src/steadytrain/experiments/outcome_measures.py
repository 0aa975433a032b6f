"""Measurements of trial outcomes: rises of the probe loss, growth of gradients and updates, loss spikes, and what is
noise. Pure. Not here: the verdict (``judging``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from steadytrain.detectors import Quantity
from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import Outcome
from steadytrain.grouping.catalog import declared

REMOVED_SHARE = 0.25
"""Share of the control's excess below which the symptom is gone (mini-matrix: a removed bad batch left .14, LR/10
.06).
"""

FLOOR_SHARE = 0.01
"""Share of the first probe loss. Smaller differences are noise whatever the controls show."""

STILL_SHARE = 1e-4
"""Share of the probe loss that covers rounding only, for a loss that does not move."""

SPREADS = 3.0
"""Differences below this many spreads of the perturbed controls are noise."""

WOBBLES = 2.0
"""A rise below this many times the movement of the probes before the onset is not a symptom."""

SPIKE_NOISES = 6.0
"""A step's loss is a spike if it exceeds the losses before the onset by this many noise units."""

LOWER_QUANTILE = 0.25
"""Quantile of the values before the onset that serves as baseline: slow growth started well before its detection."""


QUANTITIES: Mapping[Quantity, str] = {"gradient_norm": "gradient norm", "update_ratio": "update"}
"""The per-step quantities (fields of ``StepSeen``) that a detector may declare, with their wording."""


@dataclass(frozen=True)
class Excess:
    """How far the probe loss rose over its first value: at its peak and at the end (nats of the script's own loss)."""

    first: float
    peak: float
    final: float
    finite: bool


def excess_of(outcome: Outcome, lead: int = 0) -> Excess | None:
    """The excess of an outcome, None if probes ran at fewer than two points.

    With ``lead`` steps before the onset, the rise is that over the lowest value before it: how far back the snapshot
    lies, and how much the run learned since, makes no difference.
    """
    points = [(place, float(np.mean(losses))) for place, losses in _points(outcome)]
    early = [mean for place, mean in points if place < lead] or [mean for _, mean in points[:1]]
    late = [mean for _, mean in points[len(early) :]]
    if not late:
        return None
    base = min(early) if all(map(math.isfinite, early)) else early[0]
    finite = all(map(math.isfinite, (*early, *late)))
    rises = [mean - base if math.isfinite(mean) else math.inf for mean in late]
    return Excess(base, _peak(rises), rises[-1], finite)


def excess_in(case: Case, outcome: Outcome) -> Excess | None:
    """The excess over what came before the onset; over the first value for a run without progress."""
    return excess_of(outcome, 0 if case.aim == "progress" else max(steps_before_onset(case, outcome), 0))


def _peak(rises: Sequence[float]) -> float:
    """The highest rise that two consecutive points have, or the last one. A single point may differ only because the
    script changes its batch at one count."""
    pairs = [min(pair) for pair in pairwise(rises)]
    return max([*pairs, rises[-1]])


def quantity_of(case: Case) -> Quantity | None:
    """The quantity that the symptom is about, for symptoms that need not show in any loss; None if there is none."""
    return declared(case.symptom.name).quantity if case.symptom is not None else None


def noise_floor(case: Case, excess: Excess, controls: Sequence[Outcome]) -> float:
    """Movement of the probe loss without a symptom: between controls, and before the onset."""
    ran = [one for one in controls if one.ran]
    peaks = [found.peak for one in ran if (found := excess_in(case, one)) is not None and found.finite]
    spread = max(peaks) - min(peaks) if len(peaks) > 1 else 0.0
    # If controls differ by as much as the symptom itself, everything would count as noise, so limit the spread.
    spread = min(SPREADS * spread, REMOVED_SHARE * excess.peak)
    wobble = WOBBLES * max((_moved_before(case, one) for one in ran), default=0.0)
    return max(FLOOR_SHARE * abs(excess.first), spread, wobble)


def _moved_before(case: Case, control: Outcome) -> float:
    """The largest rise of a control's probe loss before the onset. A rise up to this size is not a symptom; what the
    run learns until then is no noise."""
    if case.aim == "progress":
        return 0.0
    lead = steps_before_onset(case, control)
    means = [float(np.mean(losses)) for place, losses in _points(control) if place < lead]
    if not all(map(math.isfinite, means)):
        return 0.0
    return max((later - min(means[: at + 1]) for at, later in enumerate(means)), default=0.0)


def unsteadiness(excess: Excess, controls: Sequence[Outcome]) -> float:
    """Movement of the probe loss from point to point in the controls. If the controls stand still, a trial shows
    progress long before it moved by a hundredth."""
    moves = [
        abs(after - before) for control in controls if control.ran for before, after in pairwise(probe_means(control))
    ]
    return max(STILL_SHARE * abs(excess.first), SPREADS * max(moves, default=math.inf))


def highest_loss(case: Case, outcome: Outcome) -> tuple[bool, float]:
    """Whether the highest loss of a trained step is a spike, and how far it exceeds the losses before the onset."""
    losses = [
        (place_of(outcome, seen.entry), seen.loss) for seen in outcome.steps if seen.loss is not None and seen.finite
    ]
    lead = max(steps_before_onset(case, outcome), 0)
    before = [loss for place, loss in losses if place < lead]
    after = [loss for place, loss in losses if place >= lead]
    base = case.typical("loss") if not before else float(np.median(before))
    if base is None or not after:
        return False, 0.0
    by = max(after) - base
    return by > SPIKE_NOISES * case.loss_noise(), by


def growth_of(case: Case, control: Outcome, outcome: Outcome) -> float:
    """Logarithm of how far the symptom's quantity grew after the onset, over the lower values before it in the control;
    0 if unknown."""
    before = _quantities(case, control, early=True)
    after = _quantities(case, outcome, early=False)
    return math.log(max(after) / float(np.quantile(before, LOWER_QUANTILE))) if before and after else 0.0


def usual_growth(case: Case, control: Outcome) -> float:
    """The same for the values before the onset: how far the quantity moves without the symptom."""
    before = _quantities(case, control, early=True)
    return math.log(max(before) / float(np.quantile(before, LOWER_QUANTILE))) if before else 0.0


def _quantities(case: Case, outcome: Outcome, *, early: bool) -> list[float]:
    """The values of the symptom's quantity before the onset (``early``; at least the first one), or from it on."""
    quantity = quantity_of(case)
    if quantity is None:
        return []
    lead = max(steps_before_onset(case, outcome), 0)
    placed = [
        (place - lead, value)
        for place, seen in enumerate(outcome.steps)
        if (value := getattr(seen, quantity)) is not None and math.isfinite(value) and value > 0
    ]
    if early:
        return [value for place, value in placed if place < 0] or [value for _, value in placed[:1]]
    return [value for place, value in placed if place >= 0]


def numbers_of(case: Case, control: Outcome, outcome: Outcome) -> dict[str, float]:
    """The numbers shown with a verdict."""
    numbers: dict[str, float] = {}
    for lead, one in (("", outcome), ("control_", control)):
        excess = excess_in(case, one)
        if excess is not None:
            numbers |= {f"{lead}peak_excess": excess.peak, f"{lead}final_excess": excess.final}
        bad = first_bad_step(case, one)
        if bad is not None:
            numbers[f"{lead}first_bad_step"] = float(bad)
    numbers["seconds"] = outcome.seconds
    return numbers


def first_bad_step(case: Case, outcome: Outcome) -> int | None:
    """The first step with a non-finite loss or a spike, numbered as in the recorded run."""
    begin = outcome.spec.begin or 0
    if outcome.first_nonfinite is not None:
        return begin + 1 + place_of(outcome, outcome.first_nonfinite)
    base, noise = case.typical("loss"), case.loss_noise()
    if base is None or case.aim != "excess":
        return None
    for seen in outcome.steps:
        if seen.loss is not None and seen.loss > base + SPIKE_NOISES * max(noise, FLOOR_SHARE * abs(base)):
            return begin + 1 + place_of(outcome, seen.entry)
    return None


def steps_before_onset(case: Case, outcome: Outcome) -> int:
    """The number of steps between the start of an outcome and the onset."""
    return case.onset - (outcome.spec.begin or 0) - 1


def place_of(outcome: Outcome, entry: int) -> int:
    """The position of an entry among those that are not probes."""
    return sum(one.role != "probe" for one in outcome.spec.schedule[:entry])


def probe_means(outcome: Outcome) -> list[float]:
    """The mean loss of the probes at each of their points, in order."""
    return [float(np.mean(losses)) for _, losses in _points(outcome)]


def last_probe(outcome: Outcome) -> float | None:
    """The mean loss of the probes after the last trained step; None if unknown."""
    places = [place_of(outcome, seen.entry) for seen in outcome.probes]
    losses = [
        seen.loss for seen, place in zip(outcome.probes, places, strict=True) if place == max(places, default=None)
    ]
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return math.fsum(known) / len(known) if known and len(known) == len(losses) else None


def _points(outcome: Outcome) -> list[tuple[int, list[float]]]:
    """The probe losses, by the number of preceding steps."""
    points: dict[int, list[float]] = {}
    for seen in outcome.probes:
        if seen.loss is not None:
            points.setdefault(place_of(outcome, seen.entry), []).append(seen.loss)
    return sorted(points.items())
