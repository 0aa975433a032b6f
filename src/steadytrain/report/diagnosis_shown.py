"""A stored or new diagnosis as shown: verdict, evidence for and against, the table of trials, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadytrain.core.model import Severity
from steadytrain.diagnosis.answer import SIGNATURE, UNKNOWN, BatchRow, Diagnosis, Evidence, RankedCause, Remedy, Status
from steadytrain.report.wording import clean, count, enumerated, number

EVIDENCE_MAX = 6
ROWS_MAX = 8
TRIALS_MAX = 40
BATCH_ROWS_MAX = 16
ROW_TEXT_MAX = 500
VALUES_SHOWN = 8
CONTROL = "unchanged"
WORKS = "removed"
_SEVERITIES: dict[Status | None, Severity | None] = {"confirmed": "critical", "likely": "warning", None: "note"}


@dataclass(frozen=True)
class RemedyRow:
    """An intervention as shown. ``tried`` says in words what its trial did, with its price; ``works`` is True if it
    removed the symptom. ``code`` makes it in a script.
    """

    rung: int
    what: str
    tried: str
    command: str
    works: bool
    code: str = ""


@dataclass(frozen=True)
class CausePart:
    """One cause as shown."""

    name: str
    status: str
    confidence: str
    summary: str
    why: str
    supports: tuple[str, ...]
    against: tuple[str, ...]
    layer: str
    rows: str
    remedies: tuple[RemedyRow, ...]


@dataclass(frozen=True)
class TrialLine:
    """One line of the table of trials as shown."""

    trial: str
    effect: str
    why: str


@dataclass(frozen=True)
class DiagnosisPart:
    """A diagnosis as shown. ``causes`` are the causes that are not refuted; ``refuted`` gives the others one line
    each.
    """

    verdict: str
    severity: Severity | None
    why: str
    symptom: str
    replay: str
    causes: tuple[CausePart, ...]
    refuted: tuple[str, ...]
    trials: tuple[TrialLine, ...]
    record_next: tuple[str, ...]
    notes: tuple[str, ...]
    texts: tuple[str, ...]
    axis: str = ""


def part(answer: Diagnosis) -> DiagnosisPart:
    """Convert ``answer`` to what is shown, with all text from disk made safe to print."""
    in_play = [one for one in answer.diagnoses if one.status != "refuted"]
    refuted = [one for one in answer.diagnoses if one.status == "refuted"]
    return DiagnosisPart(
        verdict=_verdict(answer),
        severity=_SEVERITIES.get(answer.status),
        why=clean(answer.why),
        symptom=clean(answer.symptom),
        replay=clean(f"{answer.replay}: {answer.replay_note}" if answer.replay_note else answer.replay),
        causes=tuple(_cause(one) for one in in_play),
        refuted=tuple(clean(f"{one.cause}: {_why_refuted(one)}") for one in refuted),
        trials=tuple(
            TrialLine(clean(row.trial), clean(row.effect), clean(row.why)) for row in answer.trials[:TRIALS_MAX]
        ),
        record_next=tuple(map(clean, answer.record_next)),
        notes=tuple(map(clean, answer.notes)),
        texts=tuple(_row(row) for row in answer.rows[:BATCH_ROWS_MAX]),
        axis=clean(f"{answer.axis.name}: {answer.axis.why}") if answer.axis is not None else "",
    )


def _verdict(answer: Diagnosis) -> str:
    if answer.verdict == UNKNOWN:
        return "Cause unknown"
    confidence = next((one.confidence for one in answer.diagnoses if one.cause == answer.verdict), 0.0)
    return clean(f"{answer.status}: {answer.verdict} ({confidence:.2f})")


def _cause(one: RankedCause) -> CausePart:
    # Skip the evidence that the unchanged replay shows the symptom: the page says it once, about the replay.
    own = [evidence for evidence in one.evidence if evidence.trial != CONTROL or evidence.verdict == "refutes"]
    supports = [_told(evidence) for evidence in own if evidence.verdict == "supports"]
    against = [_told(evidence) for evidence in own if evidence.verdict == "refutes"]
    return CausePart(
        name=clean(one.cause),
        status=one.status,
        confidence=f"{one.confidence:.2f}",
        summary=clean(one.summary),
        why=clean(one.why),
        supports=_few(supports),
        against=_few(against),
        layer=clean(one.layer or ""),
        rows=enumerated([str(row) for row in one.batch_rows], ROWS_MAX),
        remedies=tuple(
            RemedyRow(
                remedy.rung,
                clean(remedy.what),
                _tried(remedy),
                clean(remedy.command or ""),
                works=remedy.tried == WORKS,
                code=clean(remedy.code),
            )
            for remedy in one.interventions
        ),
    )


def _row(row: BatchRow) -> str:
    """``row 3 of step 90 (loss 7.1), input_ids: "text" (17, 4, 4, ... 64 values)``."""
    loss = "" if row.loss is None else f" (loss {row.loss if isinstance(row.loss, str) else number(row.loss)})"
    values = ", ".join(one if isinstance(one, str) else f"{one:.5g}" for one in row.values[:VALUES_SHOWN])
    place = f"from {row.first} on: " if row.first else ""
    more = f" ... of {count(row.elements)}" if row.elements > len(row.values[:VALUES_SHOWN]) else ""
    known = row.smallest is not None and row.largest is not None
    ends = f"; {number(row.smallest or 0.0)} to {number(row.largest or 0.0)}" if known else ""
    said = f'"{row.text}" ' if row.text else ""
    sample = f", {row.sample}" if row.sample else ""
    tensor = f"input {row.tensor}" if row.tensor.isdecimal() else row.tensor
    told = f"row {row.row} of step {count(row.step)}{sample}{loss}, {tensor}: {said}({place}{values}{more}{ends})"
    return clean(told, length_max=ROW_TEXT_MAX)


def _few(lines: Sequence[str]) -> tuple[str, ...]:
    more = (f"and {len(lines) - EVIDENCE_MAX} more",) if len(lines) > EVIDENCE_MAX else ()
    return (*lines[:EVIDENCE_MAX], *more)


def _told(evidence: Evidence) -> str:
    return clean(evidence.what if evidence.trial == SIGNATURE else f"{evidence.trial}: {evidence.what}")


def _why_refuted(one: RankedCause) -> str:
    against = [evidence for evidence in one.evidence if evidence.verdict == "refutes"]
    return _told(against[0]) if against else "the others explain more"


_TRIED = {
    None: "not tried",
    "persists": "tried: does not help",
    "worse": "tried: makes it worse",
    "delayed": "tried: only delays it",
    "inconclusive": "tried: undecided",
    "not-run": "could not be run",
}


def _tried(remedy: Remedy) -> str:
    """What is known of a fix: ``removes it on the replay; costs +0.0003 of loss before the onset``."""
    if remedy.tried is None and remedy.trial is None:
        return "by hand, not tried"
    if remedy.tried != WORKS:
        return _TRIED.get(remedy.tried, "")
    works = "removes it on the replay"
    return works if remedy.price is None else f"{works}; its price is {remedy.price:+.2g} of probe loss"
