"""The diagnosis: ranked causes with their evidence, the trials, and the fixes. Inert values that convert to JSON.

The document is ``steadytrain.diagnosis/1`` (docs/schemas.md). It holds non-finite numbers as strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.core.notebook import as_card

SCHEMA = "steadytrain.diagnosis/1"
Status = Literal["confirmed", "likely", "possible", "refuted"]
STATUSES: tuple[Status, ...] = ("confirmed", "likely", "possible", "refuted")
EvidenceVerdict = Literal["supports", "refutes", "inconclusive", "not-run"]
SIGNATURE = "signature"
"""Stands for a trial's name in evidence that was recorded or surveyed, not tried."""

UNKNOWN = "unknown"
SHOWN_MAX = 5
"""A notebook shows this many causes, the most probable first."""


@dataclass(frozen=True)
class Evidence(JsonValue):
    """One piece of evidence about one cause: a trial, or an observation (``trial`` is then ``SIGNATURE``).

    ``what`` is a sentence with the numbers, ``source`` its origin (``fact loss_excess``, ``symptom divergence``).
    """

    trial: str
    verdict: EvidenceVerdict
    what: str
    source: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Remedy(JsonValue, closed=True):
    """A proposed intervention: ``tried`` is the effect of its trial (``experiments.specs.EFFECTS``), None if it was not
    run. ``command`` tries it on the replay, ``code`` is a line that makes it in a script.

    ``price`` is the probe loss with the change minus without it, before the onset (nats of the script's own loss), None
    if it did not work or was not measured. ``note`` says why it could not be tried, why it failed, or why its success
    proves nothing.
    """

    name: str
    rung: int
    what: str
    trial: str | None
    tried: str | None
    command: str | None
    price: float | None = None
    code: str = ""
    note: str = ""


@dataclass(frozen=True)
class RankedCause(JsonValue, keys="cause status confidence summary why evidence layer batch_rows interventions"):
    """One cause with its confidence, evidence, location and fixes."""

    cause: str
    summary: str
    status: Status
    confidence: float
    evidence: tuple[Evidence, ...]
    layer: str | None
    batch_rows: tuple[int, ...]
    interventions: tuple[Remedy, ...]
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "confidence": round(self.confidence, 4)}


@dataclass(frozen=True)
class TrialRow(JsonValue):
    """One line of the table of trials; ``effect`` is one of ``experiments.specs.EFFECTS``."""

    trial: str
    effect: str
    why: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchRow(JsonValue, closed=True):
    """A row of the batch at the onset, in one tensor. ``values`` are a few of its ``elements``, starting at position
    ``first``; non-finite numbers are strings. ``text`` is the decoded text of its ids, None without a tokenizer.
    ``sample`` is its place in the data set, such as ``Houses[17]``.

    Texts are safe to print: redacted, with control characters made visible.
    """

    row: int
    step: int
    tensor: str
    dtype: str
    elements: int
    first: int
    values: tuple[float | int | str, ...]
    smallest: float | None = None
    largest: float | None = None
    loss: float | str | None = None
    text: str | None = None
    sample: str | None = None


@dataclass(frozen=True)
class Axis(JsonValue):
    """The axis on which the fault lies: data, model, loss, optimizer, precision, distributed, hardware, harness, or
    ``unknown``. ``why`` is one sentence, ``trials`` are those that decided it."""

    name: str
    why: str
    trials: tuple[str, ...] = ()


@dataclass(frozen=True)
class PatchTried(JsonValue):
    """A patch of the script and what became of the symptom with it: ``steadytrain fix``.

    ``diff`` is the unified diff, ``effect`` one of ``experiments.specs.EFFECTS``, ``why`` one sentence. The losses are
    those of the last step that both runs have, without and with the patch; non-finite ones are strings. ``steps`` is
    the number of steps that the patched script was followed for, from its start.
    """

    cause: str
    what: str
    script: str
    diff: str
    effect: str
    why: str
    loss_before: float | str | None
    loss_after: float | str | None
    steps: int


@dataclass(frozen=True)
class Diagnosis(JsonValue, schema=SCHEMA):
    """A whole diagnosis.

    ``verdict`` is the confirmed or likely cause, else ``unknown``; ``why`` explains it in one sentence. ``replay`` is
    ``exact``, ``not exact``, ``not tried`` or ``not possible``, ``replay_note`` the reason. ``record_next`` says what
    to record next time if nothing is proven. ``rows`` are the outlying rows of the batch at the onset, once for every
    tensor of the batch. ``axis`` is where the fault lies, None in answers from before it existed and in those without a
    symptom. ``patch`` is what ``steadytrain fix`` made and tried, None before.

    Examples:
        >>> diagnosis = steadytrain.diagnose("runs/stopped")
        >>> diagnosis.verdict, diagnosis.status
        ('singular-operation', 'confirmed')
        >>> "confirmed" in diagnosis._repr_html_()
        True
    """

    incident: str
    symptom: str
    replay: str
    replay_note: str
    verdict: str
    status: Status | None
    why: str
    diagnoses: tuple[RankedCause, ...]
    trials: tuple[TrialRow, ...]
    record_next: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rows: tuple[BatchRow, ...] = ()
    axis: Axis | None = None
    patch: PatchTried | None = None

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.incident!r}: {self.status or UNKNOWN}: {self.verdict}; replay {self.replay}>"

    def _repr_html_(self) -> str:
        causes = {one.cause: f"{one.status}, {one.confidence:.2f}: {one.summary}" for one in self.diagnoses[:SHOWN_MAX]}
        axis = {} if self.axis is None else {"axis": f"{self.axis.name}: {self.axis.why}"}
        return as_card(self, f"Diagnosis: {self.verdict}", {"symptom": self.symptom, "why": self.why, **axis, **causes})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Diagnosis:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"{data.get('schema')!r} is not {SCHEMA}")
        # Answers from before ``rows`` existed have an empty object here.
        return super().from_json({**data, "rows": data["rows"] or ()})
