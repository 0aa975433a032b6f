"""The input and output of a trial as inert values: a re-run of recorded steps with one thing changed, and its outcome.

::

    Trial.plan(case) -> Specs ── run elsewhere (trial_runs) ──► Outcomes ── Trial.judge(controls, outcomes) -> Verdict

A spec contains all that a process needs to run it: where to start, which recorded step is fed at which position, and
what is changed. It holds no path and no tensor, so it can be hashed, sent to another machine and compared. Every type
converts to plain JSON and back. Not here: running (``trial_runs``), and which trial separates which causes
(``steadytrain.diagnosis.causes``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from steadytrain.core.json_values import JsonRow, JsonValue

Json = Any
"""A JSON value: None, a boolean, a number, a string, a list, or a mapping with string keys."""

Role = Literal["train", "probe", "refused"]
Lead = Literal["all", "one"]
Effect = Literal["removed", "delayed", "persists", "worse", "inconclusive", "not-run"]

EFFECTS: Mapping[str, str] = {
    "removed": "the control showed the symptom, the trial did not, to the end of its steps",
    "delayed": "the symptom occurred, but later than in the control",
    "persists": "the symptom occurred as in the control",
    "worse": "more of the symptom than in the control",
    "inconclusive": "in between, or the control itself did not show the symptom",
    "not-run": "the trial does not apply, or could not be run; `why` says which",
}


MEANINGS: Mapping[str, str] = {
    "removed": "removed",
    "delayed": "delayed",
    "persists": "no effect",
    "worse": "made worse",
    "inconclusive": "cannot tell",
    "not-run": "not run",
}
"""Effects of a fix, in words."""


def axis_word(name: str) -> str:
    """An axis as it is shown: the one of the training loop has another name in documents."""
    return "training loop" if name == "harness" else name


@dataclass(frozen=True)
class Change(JsonValue):
    """One change. ``kind`` names a class in ``trial_runs/changes``, which checks ``values``."""

    kind: str
    values: Mapping[str, Json] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.kind, json.dumps(dict(self.values), sort_keys=True)))


@dataclass(frozen=True)
class Entry(JsonRow):
    """One iteration of the script's loop.

    ``step`` is the recorded step whose batches and random states are fed; None is the script's own next batch.
    ``train`` applies the update. ``probe`` only measures the loss with the script's own code and leaves no trace.
    ``refused`` runs the loop, so that the script's own counters match the recorded run, but refuses the update and
    restores the state.
    """

    step: int | None
    role: Role = "train"


@dataclass(frozen=True)
class Spec(JsonValue):
    """All that a process needs to run one trial once.

    ``begin`` is the step of the snapshot whose state the trial starts from; None is the script's own beginning, with
    nothing restored, and 0 the same with the recorded batches. ``lead`` says how many steps the script runs itself
    before the snapshot's state is restored: all earlier steps, so that decisions by its own counters match the recorded
    run, or only one. ``repeat`` numbers the runs of one trial.
    """

    trial: str
    repeat: int
    begin: int | None
    schedule: tuple[Entry, ...]
    changes: tuple[Change, ...] = ()
    lead: Lead = "all"

    @property
    def key(self) -> str:
        """A hash of the whole spec, which names its stored outcome."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def trained(self) -> int:
        """Number of entries that are not probes."""
        return self.trained_before(len(self.schedule))

    def trained_before(self, entry: int) -> int:
        """The same, of the entries before ``entry``."""
        return sum(one.role != "probe" for one in self.schedule[:entry])

    def step_after(self, entry: int, *, copies: bool) -> int | None:
        """The recorded step of the next entry that the process of the trial runs itself; ``copies`` run the probes."""
        later = self.schedule[entry + 1 :]
        return next((one.step for one in later if not (one.role == "probe" and copies)), None)


@dataclass(frozen=True)
class StepSeen(JsonRow):
    """What the gate saw in one entry that is not a probe. ``entry`` is its position in the schedule.

    ``finite`` covers loss and all gradients (a step that a gradient scaler skips counts as finite). ``update_ratio`` is
    the norm of the update over that of the weights, None if no update was applied.
    """

    entry: int
    loss: float | None
    gradient_norm: float | None
    finite: bool
    update_ratio: float | None = None


@dataclass(frozen=True)
class ProbeSeen(JsonRow):
    """The loss of one probe. ``entry`` is its position in the schedule, ``step`` the recorded step that was fed."""

    entry: int
    step: int | None
    loss: float | None


OWN_TARGETS = "the targets are the script's own, and stayed as they were"
"""Note of a trial that changed the model's inputs, if the script computes the loss with its own targets."""

OWN_BATCH = "own batch was used"
"""Part of the note of a trial that could not feed its batches. Such a trial counts as not run."""

UNCHANGED = "unchanged"
"""The trial that changes nothing: the control for all others."""

NO_TIME_LEFT = "the budget of time was spent before it was finished"
"""Why a trial did not run that more time would have allowed."""


PRICE = "price_before"
"""The number of a verdict that holds the price of its change: probe loss with it minus without it, before the onset."""

BAD_BATCH = "bad_batch"
"""The number of an outcome that is 1 if its step that is not finite had a batch that held NaN or Inf already."""

WEAKENED = "weakened"
"""Key in the numbers of a verdict, and the first word of its reason, if the symptom is smaller but not gone."""

SCRIPT_FAILED = "the script failed"
LOOP_OVER = "the script's loop was over"
"""Begins the reason of a trial whose script raised an error: a missing module or file, or the trial's own change."""


@dataclass(frozen=True)
class Outcome(JsonValue):
    """The result of one run of a spec.

    ``exact`` is True if every entry that was fed a recorded step gave its recorded loss and gradient norms to the last
    bit: an unchanged control must. ``ended`` says why the run has fewer steps than its schedule (the script's loop was
    over); it is None if all ran, or if the run ended at a non-finite value.
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
    def lasts(self) -> bool:
        """Whether the same trial would end so again: it ran, or does not apply. A failed script, a kill or a timeout
        depends on the machine and on files that may be mended."""
        return self.ran or (self.seconds > 0 and not str(self.why_not).startswith(SCRIPT_FAILED))

    @property
    def first_nonfinite(self) -> int | None:
        """The entry of the first non-finite step, None if there is none."""
        return next((seen.entry for seen in self.steps if not seen.finite), None)


@dataclass(frozen=True)
class Verdict(JsonValue):
    """The effect of a trial on the symptom. ``why`` is one sentence; ``numbers`` are those behind it."""

    trial: str
    effect: Effect
    numbers: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class NotApplicable:
    """Why a trial does not apply to a case."""

    why: str


@dataclass(frozen=True)
class Placebo:
    """What should not help if a trial proves its cause: a change of the same size that spares what is suspected.

    ``what`` says it as the subject of a sentence ("leaving out the batch of step 84").
    """

    what: str
    specs: tuple[Spec, ...]


def not_against(verdict: Verdict) -> Verdict:
    """The verdict of a trial whose change repairs each step, but shows in the loss of many: that a few are as they were
    shows nothing."""
    why = f"{verdict.why}; the loss of few steps does not tell"
    return replace(verdict, effect="inconclusive", why=why) if verdict.effect in ("persists", "worse") else verdict
