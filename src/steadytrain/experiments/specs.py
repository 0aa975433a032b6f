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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from steadytrain.core.model import number_from_json, number_to_json

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
class Change:
    """One thing that is different. ``kind`` names a class in ``trial_runs/changes``, which checks ``values``."""

    kind: str
    values: Mapping[str, Json] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.kind, json.dumps(dict(self.values), sort_keys=True)))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "values": dict(self.values)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Change:
        return Change(str(data["kind"]), dict(data["values"]))


@dataclass(frozen=True)
class Entry:
    """One round of the script's loop.

    ``step`` is the recorded step whose batches and random states are fed; None is the script's own next batch. The
    update of ``train`` is applied. A ``probe`` only measures the loss, by the script's own code, and leaves no trace.
    ``refused`` is a batch that is left out: the loop goes round with it, so that the script's own counters stay those
    of the recorded run, but its update is refused and the state put back.
    """

    step: int | None
    role: Role = "train"

    def to_json(self) -> list[Any]:
        return [self.step, self.role]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Entry:
        return Entry(data[0], data[1])


@dataclass(frozen=True)
class Spec:
    """All that a process needs to run one trial once.

    ``begin`` is the step of the snapshot whose state the trial begins with; None is the script's own beginning, where
    nothing is restored. ``lead`` says how many steps the script makes by itself before it gets the snapshot's state:
    all that the recorded run made before, so that what it decides by its own counters is as it was, or only one.
    ``repeat`` tells runs of the same trial apart.
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

    def to_json(self) -> dict[str, Any]:
        return {
            "trial": self.trial,
            "repeat": self.repeat,
            "begin": self.begin,
            "schedule": [entry.to_json() for entry in self.schedule],
            "changes": [change.to_json() for change in self.changes],
            "lead": self.lead,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Spec:
        return Spec(
            trial=data["trial"],
            repeat=data["repeat"],
            begin=data["begin"],
            schedule=tuple(Entry.from_json(entry) for entry in data["schedule"]),
            changes=tuple(Change.from_json(change) for change in data["changes"]),
            lead=data["lead"],
        )


@dataclass(frozen=True)
class StepSeen:
    """What was seen at the gate of one entry that is no probe: ``entry`` is its place in the schedule.

    ``finite`` is about loss and all gradients (a step that a gradient scaler skips by itself counts as finite).
    ``update_ratio`` is the norm of the update over that of the weights, None where no update was applied.
    """

    entry: int
    loss: float | None
    gradient_norm: float | None
    finite: bool
    update_ratio: float | None = None

    def to_json(self) -> list[Any]:
        return [self.entry, _out(self.loss), _out(self.gradient_norm), self.finite, _out(self.update_ratio)]

    @staticmethod
    def from_json(data: Sequence[Any]) -> StepSeen:
        return StepSeen(data[0], _in(data[1]), _in(data[2]), bool(data[3]), _in(data[4]))


@dataclass(frozen=True)
class ProbeSeen:
    """The loss of one probe: ``entry`` is its place in the schedule, ``step`` the recorded step that was fed."""

    entry: int
    step: int | None
    loss: float | None

    def to_json(self) -> list[Any]:
        return [self.entry, self.step, _out(self.loss)]

    @staticmethod
    def from_json(data: Sequence[Any]) -> ProbeSeen:
        return ProbeSeen(data[0], data[1], _in(data[2]))


OWN_TARGETS = "the targets are the script's own, and stayed as they were"
"""In the notes of a trial that gave the model other inputs, of a loss that the script computes."""

UNCHANGED = "unchanged"
"""The trial that changes nothing: the control that every other is judged against."""

NO_TIME_LEFT = "the budget of time was spent before it could be begun"
"""Why a trial did not run that would have run with more time."""


@dataclass(frozen=True)
class Outcome:
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
    """What a change measured by itself where neither losses nor probes say what it does (the load of an expert)."""

    @property
    def first_nonfinite(self) -> int | None:
        """The entry of the first step that was not finite."""
        return next((seen.entry for seen in self.steps if not seen.finite), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": self.spec.to_json(),
            "ran": self.ran,
            "why_not": self.why_not,
            "steps": [seen.to_json() for seen in self.steps],
            "probes": [seen.to_json() for seen in self.probes],
            "seconds": self.seconds,
            "exact": self.exact,
            "ended": self.ended,
            "notes": list(self.notes),
            "measured": {name: number_to_json(value) for name, value in self.measured.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        return Outcome(
            spec=Spec.from_json(data["spec"]),
            ran=bool(data["ran"]),
            why_not=data["why_not"],
            steps=tuple(StepSeen.from_json(seen) for seen in data["steps"]),
            probes=tuple(ProbeSeen.from_json(seen) for seen in data["probes"]),
            seconds=float(data["seconds"]),
            exact=data["exact"],
            ended=data["ended"],
            notes=tuple(data["notes"]),
            measured={name: number_from_json(value) for name, value in data.get("measured", {}).items()},
        )


@dataclass(frozen=True)
class Verdict:
    """What a trial says of the symptom. ``why`` is one sentence; ``numbers`` are those that it rests on."""

    trial: str
    effect: Effect
    numbers: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "trial": self.trial,
            "effect": self.effect,
            "numbers": {name: number_to_json(value) for name, value in self.numbers.items()},
            "why": self.why,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Verdict:
        numbers = {name: number_from_json(value) for name, value in data["numbers"].items()}
        return Verdict(data["trial"], data["effect"], numbers, data["why"])


@dataclass(frozen=True)
class NotApplicable:
    """Why a trial cannot say anything about a case."""

    why: str


def _out(value: float | None) -> float | str | None:
    return None if value is None else number_to_json(value)


def _in(value: float | str | None) -> float | None:
    return None if value is None else number_from_json(value)
