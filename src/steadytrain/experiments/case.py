"""What is known about an incident before any trial, and the schedules that trials consist of. Pure, torch-free.

A case says where the symptom began, from which snapshots a re-run can start, which steps are on the tape, and what was
seen of the run. Trials ask it for schedules: the recorded steps in order, some left out or replaced, with the same
probes at the same positions, so that outcomes of different trials can be compared entry by entry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.incident import Finding
from steadytrain.core.model import FIRST_STREAM, Symptom, Window
from steadytrain.detectors import Aim
from steadytrain.experiments.specs import Entry, Json, Lead
from steadytrain.experiments.trial_starts import START
from steadytrain.grouping.catalog import declared

LEAD_STEPS_MIN = 2
"""Minimum number of steps between the snapshot and the onset, so that a change takes effect and a probe comes before
it.
"""

AFTER_STEPS_MIN, AFTER_STEPS_MAX = 10, 40
"""Steps after the onset: max(10, 3 x lead), and as many as it took to see a slow rise. Enough for a cause to show
again, bounded to limit the time."""

PROGRESS_STEPS, PROGRESS_OWN_S = 60, 20.0
"""Length of a trial of a run that does not learn: a healthy small run learns something in this many steps. From the
start of the script, without a tape, as many more as the run made in this many seconds: some learn late."""

AFTER_STEP = 4
"""Steps after the onset of a trial that starts right before it: the fault lies within one step, or comes again soon."""

PROBES, PROBES_AT_STEP = 4, 2
"""Number of recorded steps in the fixed probe set, and in that of a trial that starts right before a single bad step:
there the first value that is not finite judges, and probes cost more than the steps."""

LEAD_S_MAX, WHOLE_LEAD_S_MAX = 15.0, 120.0
"""The script runs all steps before the snapshot itself if that takes at most the first, else only one. If its replay is
then not exact (it may decide by its own counters), it runs them all if that takes at most the second."""

SAME_STORY_STEPS = 64
"""Symptoms that begin within this many steps before another belong to its story (``steadytrain.grouping``)."""


@dataclass(frozen=True)
class Ranks:
    """Several ranks that trained together. ``failing`` is the one where the step went wrong, or that the incident is
    of. ``why_not`` says why they cannot be launched together again. ``held`` is the step before the incident if the
    bundles of all ranks hold the state after it."""

    world: int
    failing: int = 0
    why_not: str | None = None
    held: int | None = None

    @property
    def other(self) -> int:
        """A rank that did not fail."""
        return 0 if self.failing else 1


@dataclass(frozen=True)
class Case:
    """An incident (or a run with symptoms) as trials see it.

    ``symptom`` is the one that trials try to remove, ``onset`` its first step and ``step`` the one at which it was
    detected. ``begins`` are the steps of the snapshots from which a re-run can start. ``taped`` holds the gapless
    ranges of steps on the tape as (first, last), oldest first. ``facts`` are what a survey found, under the names of
    ``steadytrain.experiments.facts``; ``finding`` is the first bad operation of a bundle.
    ``of_note`` says that the bundle is that of a note. It counts as a warning here: somebody asks why it happened.
    ``guarded`` says that the script itself made no update at ``step``: it saw the loss, and may leave its loop there.
    ``of_loader`` says that a data loader gave that batch. ``before`` is the step before ``step`` if the bundle holds
    the state after it. ``lead_s`` is the longest time in seconds in which the script runs
    all earlier steps itself.
    """

    path: Path
    symptom: Symptom | None
    symptoms: tuple[Symptom, ...]
    onset: int
    step: int
    window: Window
    environment: Mapping[str, Any]
    begins: tuple[int, ...]
    taped: tuple[tuple[int, int], ...]
    step_s: float
    facts: Mapping[str, Json] = field(default_factory=dict)
    after: int | None = None
    finding: Finding | None = None
    of_note: bool = False
    guarded: bool = False
    of_loader: bool = False
    before: int | None = None
    lead_s: float = LEAD_S_MAX
    stream: str = FIRST_STREAM
    """The optimizer whose steps ``onset``, ``step`` and the tape count."""

    ranks: Ranks | None = None
    """The ranks of a run of several, None for one process."""

    kept: int | None = None
    """Of ``begins`` the one that is no snapshot of the run, but was kept by a survey."""

    not_whole: str | None = None
    """Why the step at which the symptom was detected cannot be replayed though it is on the tape, None if it can."""

    later: bool = False
    """Whether its steps began after those of another training of the same script: the script's start is not theirs."""

    @property
    def aim(self) -> Aim:
        """What a trial is judged by: that values stay finite, that the loss does not rise, or that it falls."""
        return "excess" if self.symptom is None else declared(self.symptom.name).aim

    @property
    def replayable(self) -> str | None:
        """Why no re-run from a snapshot is possible, None if one is."""
        if self.not_whole is not None:
            return f"its steps are not whole on the tape ({self.not_whole})"
        if not self.taped:
            return "no tape of its steps was kept"
        return None if self.begins else "no snapshot before the steps on the tape was kept"

    @property
    def begin(self) -> int | None:
        """The snapshot that trials start from: the newest with some steps before the onset; 0: the script's start."""
        if START in self.begins:
            return START
        early = [step for step in self.begins if step + LEAD_STEPS_MIN <= self.onset - 1]
        before = early or [step for step in self.begins if step < self.onset]
        if before:
            return early[-1] if early else before[0]
        # What the script did before the update of the onset cannot be undone after it.
        lasting = self.aim == "progress" and not (self.symptom is not None and declared(self.symptom.name).is_act)
        return self.begins[0] if self.begins and lasting else None

    @property
    def earlier_begin(self) -> int | None:
        """The snapshot before :attr:`begin`, to test whether the state was bad by then."""
        begin = self.begin
        before = [step for step in self.begins if begin is not None and step < begin]
        return before[-1] if before else None

    def lead(self, begin: int | None) -> Lead:
        """How many earlier steps the script runs before ``begin``: all if they take at most ``lead_s``, else one."""
        return "all" if begin is None or begin * self.step_s <= self.lead_s else "one"

    def with_whole_lead(self) -> Case | None:
        """The same case with all earlier steps run by the script; None if they are already, or take too long."""
        begin = self.begin
        if self.lead(begin) == "all" or begin is None or begin * self.step_s > WHOLE_LEAD_S_MAX:
            return None
        return replace(self, lead_s=WHOLE_LEAD_S_MAX)

    @property
    def steps_after(self) -> int:
        """Number of entries after the onset."""
        if self.after is not None:
            return self.after
        if self.aim == "progress":
            return PROGRESS_STEPS if self.taped else self._own_progress_steps()
        lead = self.onset - (self.begin or 0)
        until_seen = self.step - self.onset  # a slow rise shows only later
        usual = min(AFTER_STEPS_MAX, max(AFTER_STEPS_MIN, 3 * lead, until_seen))
        return max(usual, until_seen + AFTER_STEP) if self.aim == "finite" and until_seen else usual

    def _own_progress_steps(self) -> int:
        seen = int(self.window.steps[-1]) - self.onset if len(self.window) else 0
        return max(PROGRESS_STEPS, min(seen, int(PROGRESS_OWN_S / max(self.step_s, 1e-6))))

    def within_step(self) -> Case:
        """The same case for changes that act within one step. They start right before the onset if the bundle holds
        that state, unless a number of steps to follow was asked for."""
        if self.before is None or self.aim != "finite" or self.onset != self.before + 1 or self.after is not None:
            return self
        if self.guarded:
            return self  # the script would leave its loop at the first step of the trial
        return replace(self, begins=(self.before,), after=AFTER_STEP)

    def from_own_snapshot(self) -> Case:
        """The same case without the start that a survey kept."""
        return replace(self, begins=tuple(begin for begin in self.begins if begin != self.kept), kept=None)

    def following(self, after: int) -> Case:
        """The same case with ``after`` entries after the onset."""
        return replace(self, after=after)

    def entries(self, fact: str) -> list[Mapping[str, Any]]:
        """The mappings in a fact that is a list of them; none if it is unknown."""
        listed = self.facts.get(fact)
        return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, (list, tuple)) else []

    def with_facts(self, facts: Mapping[str, Json]) -> Case:
        return replace(self, facts={**self.facts, **facts})

    # -- schedules -------------------------------------------------------------------------------------------------

    def recorded(self, begin: int) -> list[int | None]:
        """The steps from ``begin`` to the end of a trial: as far as the tape reaches, then the script's own batches
        (None).
        """
        last = max(self.onset, begin + 1) + self.steps_after
        reached = next((end for first, end in self.taped if first <= begin + 1 <= end), begin)
        return [step if step <= reached else None for step in range(begin + 1, last + 1)]

    def schedule(
        self,
        begin: int,
        steps: Sequence[int | None] | None = None,
        *,
        refused: Collection[int] = (),
    ) -> tuple[Entry, ...]:
        """A schedule of ``steps`` (by default the recorded ones in order) with probes between them. ``refused`` steps
        are left out: the loop runs their batch without its update. A script that guards itself would leave its loop at
        the batch of ``step``. So it gets that of the schedule's first step instead, or probes come before it.
        """
        chosen = self.recorded(begin) if steps is None else list(steps)
        points = self._probe_points(begin, len(chosen))
        probes = [Entry(step, "probe") for step in self.probe_steps()]
        entries: list[Entry] = []
        for place, step in enumerate(chosen):
            if place in points:
                entries += probes
            if step is None or step not in refused:
                entries.append(Entry(step))
            elif self.guarded and step == self.step:
                entries += [Entry(begin + 1, "refused")] if self.of_loader else [*probes, Entry(step, "refused")]
            else:
                entries.append(Entry(step, "refused"))
        return (*entries, *probes)

    def own_schedule(self, count: int) -> tuple[Entry, ...]:
        """The first ``count`` batches from the script's own beginning, with probes if there is a tape."""
        probes = [Entry(step, "probe") for step in self.probe_steps()]
        entries: list[Entry] = []
        for place in range(count):
            if place and place & (place - 1) == 0:
                entries += probes
            entries.append(Entry(None))
        return (*entries, *probes)

    def healthy_steps(self) -> list[int]:
        """Steps on the tape before the onset, newest last. If there are none, all taped steps but the incident's."""
        taped = [step for first, last in self.taped for step in range(first, last + 1)]
        return [step for step in taped if step < self.onset] or [step for step in taped if step != self.step]

    def probe_steps(self) -> list[int]:
        """The fixed probe set: recorded steps from before the snapshot if possible, because no trial trains on them."""
        healthy = [step for step in self.healthy_steps() if step > 1]  # no random state before step 1
        begin = self.begin
        unseen = [step for step in healthy if begin is not None and step <= begin]
        count = PROBES_AT_STEP if self.begins == (self.before,) else PROBES
        chosen = unseen if len(unseen) >= count else healthy
        if not chosen:
            return []
        places = np.linspace(0, len(chosen) - 1, min(count, len(chosen))).round().astype(int)
        return [chosen[place] for place in dict.fromkeys(places.tolist())]

    def suspects(self) -> tuple[int, ...]:
        """The steps whose batches are suspects: the onset and the update right before it."""
        begin = self.begin
        first = self.onset - 1 if begin is not None and self.onset - 1 > begin else self.onset
        return tuple(range(first, self.onset + 1))

    def _probe_points(self, begin: int, count: int) -> set[int]:
        """Positions of the probes among the steps: at the start, at the onset, then at growing distances."""
        if self.aim == "finite":  # the first value that is not finite judges; probes only show the price
            return {0} if self.ranks is None else set()  # ranks cannot be copied: a probe would be a turn of their loop
        if self.aim == "progress":
            return {0, *(round(count * share) for share in (0.25, 0.5, 0.75))}
        onset = min(max(self.onset - begin - 1, 0), count)
        after = [onset + 3**power for power in range(7)]
        # Not right before the onset: a script that plants its fault by its own counter would plant it in the probes.
        return {0, max(onset - 1, 0), *(place for place in after if place < count)}

    # -- what was seen ---------------------------------------------------------------------------------------------

    def typical(self, signal: str) -> float | None:
        """Median of a signal over the steps before the onset."""
        series = self.window.series(signal)
        values = series.values[(series.steps < self.onset) & np.isfinite(series.values)]
        return float(np.median(values)) if len(values) else None

    def loss_noise(self) -> float:
        """Step-to-step spread of the loss before the onset: 1.48 times the median absolute deviation."""
        series = self.window.series("loss")
        values = series.values[(series.steps < self.onset) & np.isfinite(series.values)][-128:]
        if len(values) < 4:
            return 0.0
        return float(1.4826 * np.median(np.abs(values - np.median(values))))
