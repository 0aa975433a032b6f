"""A stored or new diagnosis as shown: verdict, evidence for and against, the table of trials, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from steadytrain.core.model import Severity
from steadytrain.diagnosis.answer import (
    SIGNATURE,
    UNKNOWN,
    BatchRow,
    Diagnosis,
    Evidence,
    PatchTried,
    RankedCause,
    Remedy,
    Status,
)
from steadytrain.diagnosis.fix_order import GROUPS, Group, group_of, seen_to
from steadytrain.experiments.specs import MEANINGS, axis_word
from steadytrain.grouping.stories import capital
from steadytrain.report.wording import clean, count, enumerated, number

EVIDENCE_MAX = 6
ROWS_MAX = 8
TRIALS_MAX = 40
BATCH_ROWS_MAX = 16
ROW_TEXT_MAX = 500
TEXT_SHOWN = 160
VALUES_SHOWN = 8
OVERLAP_MIN = 12
"""Two texts with so many letters in common, from the second quarter of the first, are called the same."""

DIFF_LINES_MAX = 60
CONTROL = "unchanged"
BY_HAND = "by hand"
FIX_HEADINGS: Mapping[Group, str] = {
    "works": "Fixes seen to work on the replay",
    "weakens": "Fixes seen to take most of it away, not all",
    "untried": "Fixes not tried",
    "stopgap": "To get past the step, with the cause left as it is",
    "failed": "Fixes tried and not seen to help",
}
_SEVERITIES: dict[Status | None, Severity | None] = {"confirmed": "critical", "likely": "warning", None: "note"}


@dataclass(frozen=True)
class RemedyRow:
    """An intervention as shown. ``tried`` says in words what its trial did, with its price. ``group`` is that of
    ``diagnosis.fix_order``, and ``works`` is True in the first. ``code`` makes the change in a script.
    """

    rung: int
    what: str
    tried: str
    command: str
    group: Group
    code: str = ""

    @property
    def works(self) -> bool:
        return self.group == "works"


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
    patch: str = ""
    patch_diff: tuple[str, ...] = ()
    certainty: str = UNKNOWN
    patch_what: str = ""
    patch_effect: str = ""
    patch_works: bool = False
    rows_at: str = ""
    """The rows that the first cause names, with their step: ``row 7 of step 83``."""


NOTHING_TO_FIND = "No symptom, so no cause to find"


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
        refuted=tuple(clean(f"{one.cause}: {_why_refuted(one)}") for one in refuted if answer.symptom),
        trials=tuple(
            TrialLine(clean(row.trial), clean(row.effect), clean(row.why))
            for row in answer.trials[:TRIALS_MAX]
            if answer.symptom or row.effect != "not-run"
        ),
        record_next=tuple(map(clean, answer.record_next)),
        notes=tuple(map(clean, answer.notes)),
        texts=tuple(_rows(answer.rows[:BATCH_ROWS_MAX])),
        axis=clean(f"{axis_word(answer.axis.name)}: {answer.axis.why}") if answer.axis is not None else "",
        patch=clean(f"{answer.patch.what}: {_outcome(answer.patch)}") if answer.patch else "",
        certainty=UNKNOWN if answer.verdict == UNKNOWN else answer.status or UNKNOWN,
        patch_what=clean(answer.patch.what) if answer.patch else "",
        patch_effect=clean(f"in a patched copy of the script: {_outcome(answer.patch)}") if answer.patch else "",
        patch_works=answer.patch is not None and answer.patch.effect == "removed",
        patch_diff=tuple(map(_diff_line, answer.patch.diff.splitlines()[:DIFF_LINES_MAX])) if answer.patch else (),
        rows_at=clean(_rows_at(in_play[0], answer.rows)) if in_play else "",
    )


def _rows_at(cause: RankedCause, shown: Sequence[BatchRow]) -> str:
    """Where the rows of ``cause`` came, with the place in the data set of a single one."""
    named = [row for row in shown if row.row in cause.batch_rows]
    if not named:
        return ""
    of_step = f"of step {count(named[0].step)}"
    if len(cause.batch_rows) > 1:
        return f"rows {enumerated([str(row) for row in cause.batch_rows], ROWS_MAX)} {of_step}"
    sample = next((f", {row.sample}" for row in named if row.sample), "")
    return f"row {named[0].row} {of_step}{sample}"


def _diff_line(line: str) -> str:
    """Indentation is kept: ``clean`` folds blanks."""
    rest = line.lstrip(" ")
    return " " * (len(line) - len(rest)) + _after_sign(rest)


def _after_sign(line: str) -> str:
    sign = line[:1] if line[:1] in ("+", "-", "@") else ""
    rest = line[len(sign) :]
    body = rest.lstrip(" ")
    return sign + " " * (len(rest) - len(body)) + clean(body, length_max=ROW_TEXT_MAX)


def _verdict(answer: Diagnosis) -> str:
    if answer.verdict == UNKNOWN:
        return "Cause unknown" if answer.symptom or answer.status else NOTHING_TO_FIND
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
                clean(_tried(remedy)),
                clean(remedy.command or ""),
                group_of(remedy),
                code=clean(remedy.code),
            )
            for remedy in sorted(one.interventions, key=lambda remedy: GROUPS.index(group_of(remedy)))
        ),
    )


def _rows(rows: Sequence[BatchRow]) -> Iterator[str]:
    """A line for each row (``row 3 of step 90, Houses[17] (loss 7.1)``) and one for each of its tensors."""
    for (number_of_row, step), group in groupby(rows, key=lambda one: (one.row, one.step)):
        tensors = list(group)
        sample = next((f", {one.sample}" for one in tensors if one.sample), "")
        loss = next((one.loss for one in tensors if one.loss is not None), None)
        told = "" if loss is None else f" (loss {loss if isinstance(loss, str) else number(loss)})"
        yield clean(f"row {number_of_row} of step {count(step)}{sample}{told}", length_max=ROW_TEXT_MAX)
        texts: dict[str, str] = {}
        for one in tensors:
            name = f"input {one.tensor}" if one.tensor.isdecimal() else one.tensor
            yield clean(f"{name}: {_content(one, texts, name)}", length_max=ROW_TEXT_MAX)


def _content(row: BatchRow, texts: dict[str, str], name: str) -> str:
    """The text of a row's tensor, or its first values. ``texts`` are those of the tensors before, by their beginnings:
    targets are often the inputs one place on, and are not repeated."""
    if row.text:
        beginning = " ".join(row.text.split())
        same = next((other for text, other in texts.items() if _overlap(text, beginning)), None)
        texts.setdefault(beginning, name)
        if same is not None:
            return f"the text of {same}"
        return f'"{clean(row.text, length_max=TEXT_SHOWN)}" ({_values(row)})'
    if row.smallest is not None and row.smallest == row.largest and not row.first:
        return f"all of {count(row.elements)} values are {number(row.smallest)}"
    return _values(row)


def _values(row: BatchRow) -> str:
    """A few of the values of a row, and the smallest and the largest of all."""
    values = ", ".join(one if isinstance(one, str) else f"{one:.5g}" for one in row.values[:VALUES_SHOWN])
    place = f"from {row.first} on: " if row.first else ""
    more = f" ... of {count(row.elements)}" if row.elements > len(row.values[:VALUES_SHOWN]) else ""
    known = row.smallest is not None and row.largest is not None
    ends = f"; {number(row.smallest or 0.0)} to {number(row.largest or 0.0)}" if known else ""
    return f"{place}{values}{more}{ends}"


def _overlap(one: str, other: str) -> bool:
    """Whether one text is the other but for some letters at its ends."""
    middle = one[len(one) // 4 : len(one) // 2]
    return len(middle) >= OVERLAP_MIN and middle in other


def _few(lines: Sequence[str]) -> tuple[str, ...]:
    more = (f"and {len(lines) - EVIDENCE_MAX} more",) if len(lines) > EVIDENCE_MAX else ()
    return (*lines[:EVIDENCE_MAX], *more)


def _told(evidence: Evidence) -> str:
    return clean(evidence.what if evidence.trial == SIGNATURE else f"{evidence.trial}: {evidence.what}")


def _why_refuted(one: RankedCause) -> str:
    against = [evidence for evidence in one.evidence if evidence.verdict == "refutes"]
    return _told(against[0]) if against else "the others explain more"


def _outcome(patch: PatchTried) -> str:
    """What it did in a word, and why, as a sentence."""
    return f"{MEANINGS.get(patch.effect, patch.effect)}. {capital(patch.why)}"


def _tried(remedy: Remedy) -> str:
    """What is known of a fix: ``removes it; the loss before the onset changes by +0.0003``."""
    note = f": {remedy.note}" if remedy.note else ""
    group = seen_to(remedy)
    if group == "untried":
        return f"could not be tried{note}" if note else BY_HAND if remedy.trial is None else "not tried"
    if group == "weakens":
        return remedy.note
    if group == "failed":
        return f"{MEANINGS.get(remedy.tried or '', '')}{note}"
    price = "" if remedy.price is None else f"; the loss before the onset changes by {remedy.price:+.2g}"
    return f"removes it{price}{f'; but {remedy.note}' if remedy.note else ''}"
