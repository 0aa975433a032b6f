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
from steadytrain.guard.corroboration import OF_LOSS, goes_on, is_of_the_data, left_its_course, levels_at, onset_of
from steadytrain.guard.extremes import HINDSIGHT_STEPS, extreme_at_first
from steadytrain.guard.policy import AT_GATE, EXTREME, Policy
from steadytrain.guard.recurring import Recurring
from steadytrain.guard.repeats import Repeats
from steadytrain.guard.setting_jumps import SettingJumps
from steadytrain.guard.state_copies import StateCopies
from steadytrain.guard.stretches import Stretch, Stretches
from steadytrain.guard.trial import STRETCH, Trial
from steadytrain.statistics.benign_changes import has_moving_targets
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
        data: it is the first batch of the run, or one of several like it: neither an update nor the rate is at fault.
        clip: gradients are to be clipped at what was usual before it. It is not if there was nothing before it, or if
            the cause is held before it did harm.
    """

    symptom: str
    onset: int
    why: str
    levels: tuple[float, float] | None = None
    data: bool = False
    clip: bool = True


class Troubles:
    """Judges for ``policy``. ``repeats``: batches that recur. ``accepts``: other data are being learned, so that finite
    values are only recorded."""

    def __init__(self, policy: Policy, repeats: Repeats) -> None:
        self._policy, self._repeats = policy, repeats
        self._jumps: defaultdict[str, SettingJumps] = defaultdict(SettingJumps)
        self._stretches: defaultdict[str, Stretches] = defaultdict(Stretches)
        self.accepts = False
        self.acted_at = -math.inf
        self.passed_over = -1
        """What began up to this step is only recorded."""

    def counts(self, symptom: Symptom) -> bool:
        """Whether the policy does more than to record the symptom."""
        return symptom.severity != "note" and self._policy.response(symptom.name) in ("stop", "intervene")

    def is_new(self, symptom: Symptom, stream: Stream, known: Iterable[Symptom], copies: StateCopies) -> bool:
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
        if symptom.name in (*OF_LOSS, "exploding-gradients") and self._repeats.explain(symptom, stream):
            return False
        if copies.is_overwritten(symptom.first_step):
            return True
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

    def without_symptom(self, stream: Stream, recurring: Recurring) -> Trouble | None:
        """Trouble that no detector has told."""
        if self._policy.base != "steady":
            return None
        on_trial = recurring.harm(stream, acted_at=self.acted_at)
        if on_trial is not None:
            step, why = on_trial
            return Trouble(EXTREME, step, f"{EXTREME}: {why}", levels_at(stream, step))
        harm = self._jumps[stream.name].harm(stream)
        if harm is not None and harm.first > max(self.acted_at, self.passed_over):
            return Trouble(SETTING_JUMP, harm.first, f"{SETTING_JUMP}: {harm.why}", clip=not harm.is_sure)
        return self._at_first(stream)

    def stretch(self, stream: Stream, copies: StateCopies, *, is_changed: bool) -> Stretch | None:
        """The stretch of other data that ended with this step, if the loss is not what it was. The loss says nothing of
        that where targets move with the model, nor while an intervention changes it (``is_changed``). The state from
        before a stretch is pinned while it may go on."""
        if self._policy.base != "steady" or stream.step <= self.acted_at + SETTLE_STEPS:
            return None
        window = stream.history.window()
        losses = window.applied("loss")
        if has_moving_targets(window) or not len(losses) or losses.steps[-1] != stream.step:
            return None
        stretches = self._stretches[stream.name]
        if is_changed:
            stretches.forget()
        ended = None if is_changed else stretches.look(stream.step, float(losses.values[-1]))
        if stretches.began_at(stream.step):
            copies.pin(stream.step)
        elif stretches.first is None:
            copies.unpin()
        return ended

    def went_back(self, step: int) -> None:
        """The state after ``step`` is that from before a stretch."""
        self.acted_at = self.passed_over = step

    def judged(self, stream: Stream, trial: Trial, *, failed: bool) -> None:
        """Whether a roll-back helped is known. If the data are others, what was usual before says little from here on,
        so symptoms of finite values are only recorded, but for extreme ones."""
        if failed and trial.of != STRETCH:
            self.accepts = trial.of != EXTREME
        if not failed:
            self._stretches[stream.name].close()
            self.accepts = self.accepts and trial.of != STRETCH  # the data are what they were

    def _at_first(self, stream: Stream) -> Trouble | None:
        """One of the first steps was extreme: it is known after some more, or as soon as another one like it comes."""
        if stream.own_steps > HINDSIGHT_STEPS:
            return None
        window = stream.history.window()
        if stream.own_steps < HINDSIGHT_STEPS and not (len(window.steps) and window.refused[-1]):
            return None
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
        recurs = bool(window.refused[window.steps > step].any())
        return Trouble(EXTREME, step, f"{EXTREME}: {why}", (level, loss), row == 0 or recurs, row > 0 and not recurs)

    def located(self, trouble: Trouble, stream: Stream, refused: float | None) -> Trouble:
        """With the levels of the loss, and with the onset where a setting had jumped not long before."""
        onset = self._jumps[stream.name].near(trouble.onset)
        self._jumps[stream.name].answered()
        if trouble.symptom == SETTING_JUMP or trouble.levels is not None:
            return trouble
        levels = levels_at(stream, trouble.onset, refused)
        return Trouble(trouble.symptom, onset, trouble.why, levels)
