"""What counts as trouble: symptoms of weights that left their course, settings that jumped, bad first steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from steadytrain.capture.looks.misplaced_moments import emptied_share
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Symptom
from steadytrain.guard.corroboration import goes_on, is_of_the_data, left_its_course, levels_at, onset_of
from steadytrain.guard.extremes import HINDSIGHT_STEPS, extreme_at_first
from steadytrain.guard.policy import AT_GATE, EXTREME, Policy
from steadytrain.guard.setting_jumps import SettingJumps
from steadytrain.statistics.medians import median

SETTLE_STEPS = 4
"""Steps after a rung in which a symptom is taken for what was there before."""

SETTING_JUMP = "setting-jump"

LOST_MOMENTS = "incomplete-resume"
"""The symptom of second moments that are 0 beside first moments that are not."""

LOST_SHARE = 0.5
"""A state that lost this share of its second moments is of no use: without them, the first updates are far too long."""


@dataclass(frozen=True)
class Trouble:
    """Trouble since ``onset`` that a rung is to be made for.

    Args:
        levels: of the loss before and since, to tell whether a roll-back helped; None if that is not asked.
        data: it is the first batch of the run, so neither an update nor the rate can be at fault.
    """

    symptom: str
    onset: int
    why: str
    levels: tuple[float, float] | None = None
    data: bool = False


class Troubles:
    """Judges for ``policy``. ``accepts``: other data are being learned, so that finite values are only recorded."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._jumps: defaultdict[str, SettingJumps] = defaultdict(SettingJumps)
        self.accepts = False
        self.acted_at = -math.inf
        self.passed_over = -1
        """What began up to this step is only recorded."""

    def counts(self, symptom: Symptom) -> bool:
        """Whether the policy does more than to record the symptom."""
        return symptom.severity != "note" and self._policy.response(symptom.name) in ("stop", "intervene")

    def is_new(self, symptom: Symptom, stream: Stream, known: Iterable[Symptom]) -> bool:
        """Whether the symptom goes on, and is not what the newest rung was for. If other data are being learned, all
        that began up to now is passed over."""
        if not self.counts(symptom) or symptom.last_step < stream.step - SETTLE_STEPS or stream.together:
            return False
        if self.accepts and not symptom.name.startswith("nonfinite"):
            return False
        if min(stream.step, symptom.last_step) <= self.acted_at + SETTLE_STEPS:
            return False
        if symptom.first_step <= self.passed_over or not goes_on(symptom, stream):
            return False
        if self._policy.response(symptom.name) == "intervene" and is_of_the_data(symptom, stream):
            self.passed_over = stream.step
            return False
        return left_its_course(symptom, stream, known)

    def onset(self, stream: Stream, step: int, known: Iterable[Symptom], *, since: float) -> tuple[int, bool]:
        """The first step of the trouble at the gate of ``step``, and whether an applied update is part of it."""
        symptoms = () if self.accepts else known  # other data say nothing of the weights
        counted = [one for one in symptoms if one.name not in AT_GATE and self.counts(one)]
        return onset_of(stream, step, counted, since=max(since, self.acted_at))

    def gate_begins(self, stream: Stream, groups: Iterable[Mapping[str, Any]]) -> None:
        """The script has set the settings of its next update."""
        self._jumps[stream.name].look(stream.step + 1, groups)

    def lost_moments(self, stream: Stream) -> str | None:
        """Why the moments that the optimizers of ``stream`` were given are of no use, before their first update; None
        if they are, or if the policy only records it."""
        recorded = self._policy.symptoms.get(LOST_MOMENTS, "intervene") != "intervene"
        if self._policy.base != "steady" or recorded or stream.own_steps:
            return None
        share = emptied_share(stream)
        if not share >= LOST_SHARE:
            return None
        return (
            f"{LOST_MOMENTS}: {share:.0%} of the second moments that {type(stream.optimizers[0]).__name__} was given "
            "are 0 beside a first moment that is not 0"
        )

    def without_symptom(self, stream: Stream) -> Trouble | None:
        """Trouble that no detector has told."""
        if self._policy.base != "steady":
            return None
        harm = self._jumps[stream.name].harm(stream)
        if harm is not None and harm[0] > max(self.acted_at, self.passed_over):
            return Trouble(SETTING_JUMP, harm[0], f"{SETTING_JUMP}: {harm[1]}")
        return self._at_first(stream) if stream.own_steps == HINDSIGHT_STEPS else None

    def _at_first(self, stream: Stream) -> Trouble | None:
        window = stream.history.window()
        norms, losses = window.applied("gradient_norm"), window.applied("loss")
        if len(norms) != len(losses) or self.accepts or self.acted_at > 0:
            return None
        row = extreme_at_first(norms.values, losses.values)
        if row is None:
            return None
        step, loss, level = int(losses.steps[row]), float(losses.values[row]), median(losses.values[row + 1 :])
        why = (
            f"the gradient norm of step {step} was {norms.values[row]:.4g} and the loss {loss:.4g}; since then they "
            f"are about {median(norms.values[row + 1 :]):.4g} and {level:.4g}"
        )
        return Trouble(EXTREME, step, f"{EXTREME}: {why}", (level, loss), data=row == 0)

    def located(self, trouble: Trouble, stream: Stream, refused: float | None) -> Trouble:
        """With the levels of the loss, and with the onset where a setting had jumped not long before."""
        onset = self._jumps[stream.name].near(trouble.onset)
        self._jumps[stream.name].answered()
        if trouble.symptom == SETTING_JUMP or trouble.levels is not None:
            return trouble
        levels = levels_at(stream, trouble.onset, refused)
        return Trouble(trouble.symptom, onset, trouble.why, levels)
