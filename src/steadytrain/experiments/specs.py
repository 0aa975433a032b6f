"""What a trial runs and gives, as inert values: a re-run of recorded steps with one thing changed, and what came of it.

::

    Trial.plan(case) -> Specs ── run elsewhere (trial_runs) ──► Outcomes ── Trial.judge(controls, outcomes) -> Verdict

A spec says all that a process needs to run it: where to begin, which recorded step is fed at which place, and what is
changed. It holds no path and no tensor, so it can be hashed, sent to another machine and compared. Every type becomes
plain JSON and comes back. Not here: running (``trial_runs``), and which trial tells which causes apart
(``steadytrain.diagnosis.causes``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from steadytrain.core.json_values import JsonRow, JsonValue

Json = Any
"""What JSON can say: None, a truth value, a number, a text, a list, or a mapping with texts as keys."""

Role = Literal["train", "probe", "refused"]
Lead = Literal["all", "one"]
Effect = Literal["removed", "delayed", "persists", "worse", "inconclusive", "not-run"]

EFFECTS: Mapping[str, str] = {
    "removed": "the control showed the symptom, the trial did not, to the end of its steps",
    "delayed": "the symptom came, but later than in the control",
    "persists": "the symptom came as in the control",
    "worse": "more of the symptom than in the control",
    "inconclusive": "something between, or the control itself did not show the symptom",
    "not-run": "the trial does not apply, or could not be run; `why` says which",
}


@dataclass(frozen=True)
class Change(JsonValue):
    """One thing that is different. ``kind`` names a class in ``trial_runs/changes``, which checks ``values``."""

    kind: str
    values: Mapping[str, Json] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.kind, json.dumps(dict(self.values), sort_keys=True)))


@dataclass(frozen=True)
class Entry(JsonRow):
    """One round of the script's loop.

    ``step`` is the recorded step whose batches and random states are fed; None is the script's own next batch. The
    update of ``train`` is applied. A ``probe`` only measures the loss, by the script's own code, and leaves no trace.
    ``refused`` is a batch that is left out: the loop runs with it, so that the script's own counters stay those of the
    recorded run, but its update is refused and the state put back.
    """

    step: int | None
    role: Role = "train"


@dataclass(frozen=True)
class Spec(JsonValue):
    """All that a process needs to run one trial once.

    ``begin`` is the step of the snapshot whose state the trial begins with; None is the script's own beginning, where
    nothing is restored. ``lead`` says how many steps the script runs itself before it gets the snapshot's state: all
    that the recorded run made before, so that what it decides by its own counters is as it was, or only one. ``repeat``
    numbers the runs of one trial.
    """

    trial: str
    repeat: int
    begin: int | None
    schedule: tuple[Entry, ...]
    changes: tuple[Change, ...] = ()
    lead: Lead = "all"

    @property
    def key(self) -> str:
        """A hash of all of it: under this name its outcome is kept."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def trained(self) -> int:
        """How many of its entries are no probes."""
        return sum(entry.role != "probe" for entry in self.schedule)


@dataclass(frozen=True)
class StepSeen(JsonRow):
    """What was seen at the gate of one entry that is no probe: ``entry`` is its place in the schedule.

    ``finite`` is about loss and all gradients (a step that a gradient scaler skips counts as finite). ``update_ratio``
    is the norm of the update over that of the weights, None where no update was applied.
    """

    entry: int
    loss: float | None
    gradient_norm: float | None
    finite: bool
    update_ratio: float | None = None


@dataclass(frozen=True)
class ProbeSeen(JsonRow):
    """The loss of one probe: ``entry`` is its place in the schedule, ``step`` the recorded step that was fed."""

    entry: int
    step: int | None
    loss: float | None


OWN_TARGETS = "the targets are the script's own, and stayed as they were"
"""In the notes of a trial that gave the model other inputs, of a loss that the script computes."""

UNCHANGED = "unchanged"
"""The trial that changes nothing: the control that every other is judged against."""

NO_TIME_LEFT = "the budget of time was spent before it could be begun"
"""Why a trial did not run that would have run with more time."""


@dataclass(frozen=True)
class Outcome(JsonValue):
    """What one run of a spec gave.

    ``exact`` is True where every entry that was fed a recorded step gave its recorded loss and gradient norms to the
    last bit: what an unchanged control has to show. ``ended`` says why it has fewer steps than its schedule asked for
    (the script's loop was over), None where it has all, or ended because a value was not finite.
    """

    spec: Spec
    ran: bool
    why_not: str | None = None
    steps: tuple[StepSeen, ...] = ()
    probes: tuple[ProbeSeen, ...] = ()
    seconds: float = 0.0
    exact: bool | None = None
    ended: str | None = None
    notes: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    """What a change measured itself if neither losses nor probes show its effect (the load of an expert)."""

    @property
    def first_nonfinite(self) -> int | None:
        """The entry of the first step that was not finite."""
        return next((seen.entry for seen in self.steps if not seen.finite), None)


@dataclass(frozen=True)
class Verdict(JsonValue):
    """What a trial says of the symptom. ``why`` is one sentence; ``numbers`` are those that it rests on."""

    trial: str
    effect: Effect
    numbers: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class NotApplicable:
    """Why a trial cannot say anything about a case."""

    why: str
