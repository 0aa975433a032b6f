"""Draw a report on a terminal with rich: verdict first, one screen, no boxes.

This module computes and prints nothing; the command prints what :func:`renderable` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from steadytrain.core.model import Severity
from steadytrain.core.own_command import pasteable
from steadytrain.report.diagnosis_shown import (
    BY_HAND,
    FIX_HEADINGS,
    NOTHING_TO_FIND,
    CausePart,
    DiagnosisPart,
    RemedyRow,
)
from steadytrain.report.report_values import IncidentPart, Report, SymptomRow
from steadytrain.report.thinned_curves import NOT_FINITE, Curve
from steadytrain.report.wording import enumerated, number

SYMPTOMS_SHOWN_MAX, REPEATS_SHOWN_MAX = 8, 2
INCIDENTS_SHOWN_MAX = 2
PARAMETERS_SHOWN_MAX = 4
NOTES_SHOWN_MAX = 6
CAUSES_SHOWN_MAX = 3
EVIDENCE_IN_SHORT, FIXES_IN_SHORT, ROWS_IN_SHORT = 3, 3, 2
NOTES_NAMED_MAX = 12
CURVE_TITLE_MAX = 28
_LABEL_WIDTH = len("first bad operation")
_OF_DIAGNOSIS_WIDTH = 16
STYLES: dict[Severity | None, str] = {"critical": "bold red", "warning": "bold yellow", "note": "bold", None: "bold"}
_LABEL_STYLE = "dim"


def renderable(report: Report) -> Group:
    """What to print for ``report``. Print it with ``crop=False``: lines with commands stay whole, so they can be
    copied.
    """
    parts: list[RenderableType] = [
        Text(report.verdict, style=STYLES[report.severity]),
        *(Text(sentence) for sentence in report.summary),
    ]
    for incident in report.incidents[:INCIDENTS_SHOWN_MAX]:
        # The verdict already describes the first incident.
        heading = incident.title if incident is not report.incidents[0] else ""
        parts += [Text(), *([Text(heading, style="bold")] if heading else []), _incident(incident)]
    if report.symptoms and not _told_by_incident(report):
        parts += [Text(), _grid(_symptom_lines(report))]
    if report.diagnosis is not None:
        parts += [Text(), Text(f"Diagnosis: {report.diagnosis.verdict}", style=STYLES[report.diagnosis.severity])]
        parts.append(Text(report.diagnosis.why))
        parts += _patch(report.diagnosis)
    if report.curves:
        width = max(_LABEL_WIDTH, min(CURVE_TITLE_MAX, max(len(curve.title) for curve in report.curves)))
        parts += [Text(), _grid(((curve.title, _spark(curve)) for curve in report.curves), width)]
    if report.brief:
        parts += [Text(), _grid((fact.label, Text(fact.value)) for fact in report.brief)]
    if report.notes:
        parts += [Text(), *_notes(report.notes)]
    if report.commands:
        parts += [Text(), *_commands(report)]
    return Group(*parts)


def diagnosis(part: DiagnosisPart) -> Group:
    """What to print for a diagnosis, verdict first."""
    parts: list[RenderableType] = [Text(part.verdict, style=STYLES[part.severity]), Text(part.why)]
    if part.axis:
        parts += [Text(), _grid(_labelled("lies in", (part.axis,)), _OF_DIAGNOSIS_WIDTH)]
    for cause in part.causes[:CAUSES_SHOWN_MAX]:
        if cause is not part.causes[0] or not part.verdict.startswith(cause.status):
            parts += [Text(), Text(f"{cause.status}: {cause.name} ({cause.confidence}). {cause.summary}", style="bold")]
        else:
            parts.append(Text())
        parts.append(_grid(_cause_lines(cause), _OF_DIAGNOSIS_WIDTH))
        if cause is part.causes[0]:
            parts += _remedies(cause)
    parts += _patch(part)
    if part.refuted:
        parts += [Text(), _grid(_labelled("refuted", part.refuted), _OF_DIAGNOSIS_WIDTH)]
    if part.trials:
        parts += [Text(), Text("Trials", style="bold"), _trials(part)]
    rest = [
        *_labelled("symptom", (part.symptom,) if part.symptom else ()),
        *_labelled("replay", (part.replay,)),
        *_labelled("batch", part.texts),
        *_labelled("record next", part.record_next),
        *_labelled("notes", part.notes),
    ]
    return Group(*parts, Text(), _grid(rest, _OF_DIAGNOSIS_WIDTH))


def short_diagnosis(part: DiagnosisPart, whole: str) -> Group:
    """The same on one screen: the first cause, what speaks for it, what to do, and the rows it names. ``whole`` is the
    command that prints the rest."""
    parts: list[RenderableType] = [Text(part.verdict, style=STYLES[part.severity]), Text(part.why)]
    lines = _labelled("lies in", (part.axis,) if part.axis else ())
    sought = part.causes[:1] if part.verdict != NOTHING_TO_FIND else ()  # nobody asks why a sound run went wrong
    briefly = [_cause_in_short(cause, part) for cause in sought]
    for cause in briefly:
        if not part.verdict.startswith(cause.status):
            lines += _labelled("first of all", (f"{cause.status}: {cause.name} ({cause.confidence}). {cause.summary}",))
        lines += _cause_lines(cause)
    parts += [Text(), _grid(lines, _OF_DIAGNOSIS_WIDTH)] if lines else []
    for cause in briefly:
        parts += _remedies(cause)
    parts += _patch(part)
    rest = [
        *_labelled("symptom", (part.symptom,) if part.symptom else ()),
        *_labelled("batch", _rows_in_short(part)),
        *_labelled("record next", part.record_next),
        *_labelled("notes", part.notes),
    ]
    parts += [Text(), _grid(rest, _OF_DIAGNOSIS_WIDTH)] if rest else []
    fixes = sum(len(cause.remedies) for cause in sought) - sum(len(cause.remedies) for cause in briefly)
    left = [
        *_counted(fixes, "more fix", "more fixes"),
        *_counted(len(part.causes) - len(briefly), "other cause", "other causes"),
        *_counted(len(part.refuted), "refuted cause", "refuted causes"),
        *_counted(len(part.trials), "trial", "trials"),
    ]
    if left:
        line = Text.assemble((f"{enumerated(left, len(left))}: {whole}", _LABEL_STYLE), no_wrap=True, overflow="ignore")
        parts += [Text(), line]
    return Group(*parts)


def _cause_in_short(cause: CausePart, part: DiagnosisPart) -> CausePart:
    return replace(
        cause,
        supports=_evidence_in_short(cause.supports, part),
        against=cause.against[:EVIDENCE_IN_SHORT],
        rows="" if part.texts else cause.rows,  # they stand under "batch", with their values
        remedies=_in_short(cause.remedies),
    )


def _evidence_in_short(lines: Sequence[str], part: DiagnosisPart) -> tuple[str, ...]:
    """One thing that was seen, the trials that removed the symptom, and more that was seen."""
    effects = {line.trial: line.effect for line in part.trials}
    seen = [line for line in lines if line.partition(": ")[0] not in effects]
    tried = [line for line in lines if line not in seen]
    helped = [line for line in tried if effects[line.partition(": ")[0]] == "removed"]
    chosen = ([*seen[:1], *helped, *seen[1:]] or tried)[:EVIDENCE_IN_SHORT]
    return tuple(line for line in lines if line in chosen)


def _in_short(remedies: Sequence[RemedyRow]) -> tuple[RemedyRow, ...]:
    """The fixes that were seen to work or to help, else some of those that were not tried."""
    helped = [remedy for remedy in remedies if remedy.group in ("works", "weakens", "stopgap")]
    untried = [remedy for remedy in remedies if remedy.group == "untried"]
    return tuple(helped if any(one.works for one in helped) else [*helped, *untried[:FIXES_IN_SHORT]])


def _rows_in_short(part: DiagnosisPart) -> tuple[str, ...]:
    """The rows that the first cause names, or else the first of the batch, each with its tensors."""
    named = {f"row {number}" for cause in part.causes[:1] for number in cause.rows.split(", ")}
    groups: list[list[str]] = []
    for line in part.texts:
        if line.startswith("row ") or not groups:
            groups.append([])
        groups[-1].append(line)
    chosen = [group for group in groups if group[0].partition(" of ")[0] in named] or groups
    return tuple(line for group in chosen[:ROWS_IN_SHORT] for line in group)


def _counted(number_of: int, one: str, many: str) -> list[str]:
    return [f"{number_of} {one if number_of == 1 else many}"] if number_of > 0 else []


def _patch(part: DiagnosisPart) -> Iterable[RenderableType]:
    """The patch that was tried, what it did, and its diff."""
    if part.patch:
        yield Text()
        yield Text("Patch", style="bold")
        yield Padding(Text(part.patch), (0, 0, 0, 2))
        yield from (Text(f"  {line}", no_wrap=True, overflow="ignore") for line in part.patch_diff)


def _cause_lines(cause: CausePart) -> Iterable[tuple[str, Text]]:
    yield from _labelled("for", cause.supports)
    yield from _labelled("against", cause.against)
    yield from _labelled("layer", (cause.layer,) if cause.layer else ())
    yield from _labelled("rows", (cause.rows,) if cause.rows else ())
    yield from _labelled("not confirmed", (cause.why.removeprefix("not confirmed: "),) if _unproven(cause) else ())


def _unproven(cause: CausePart) -> bool:
    return cause.why.startswith("not confirmed: ") and cause.status == "likely"


def _remedies(cause: CausePart) -> Iterable[RenderableType]:
    """What to do, in the groups of ``FIX_HEADINGS``: each fix with what is known of it, its code and its command."""
    for group, heading in FIX_HEADINGS.items():
        rows = [remedy for remedy in cause.remedies if remedy.group == group]
        if rows:
            yield Text()
            yield Text(heading, style="bold")
        for remedy in rows:
            known = f" ({remedy.tried})" if remedy.tried not in ("", "not tried", BY_HAND) else ""
            yield Padding(Text(f"{remedy.what}{known}", style="bold" if remedy.works else ""), (0, 0, 0, 2))
            lines = () if group == "failed" else (remedy.code, "" if remedy.works else remedy.command)
            for line in filter(None, lines):
                yield Text(f"    {pasteable(line)}", style=_LABEL_STYLE, no_wrap=True, overflow="ignore")


def _trials(part: DiagnosisPart) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style=_LABEL_STYLE)
    for line in part.trials:
        table.add_row(f"  {line.trial}", Text(line.effect, style="bold" if line.effect == "removed" else ""), line.why)
    return table


def _labelled(label: str, lines: tuple[str, ...]) -> list[tuple[str, Text]]:
    return [(label if first else "", Text(line)) for first, line in zip(_once(), lines, strict=False)]


def _incident(incident: IncidentPart) -> RenderableType:
    lines: list[tuple[str, Text]] = []
    place = incident.place
    if place is None and incident.why:
        lines.append(("first bad operation", Text(f"not known: {incident.why}")))
    elif place is not None:
        lines.append(("first bad operation", Text(f"{place.operation} gave {place.produced} in the {place.phase}")))
        lines.append(("module", Text(place.module)))
        lines.append(("line", Text(place.line)))
        if place.code:
            lines.append(("", Text(place.code, style="italic")))
        lines += [
            ("inputs" if first else "", Text(f"{operand.label}: {operand.value}"))
            for first, operand in zip(_once(), place.inputs, strict=False)
        ]
        if place.chain:
            lines.append(("carried on by", Text(" → ".join(place.chain))))
        if place.reached:
            lines.append(("reached", Text(place.reached)))
    elif incident.line:
        lines += [("line", Text(incident.line)), ("", Text(incident.code, style="italic"))]
    if incident.losses:
        lines.append((f"loss of step {incident.step}", Text(incident.losses)))
    lines += [(fact.label, Text(fact.value)) for fact in incident.look]
    shown = incident.parameters[:PARAMETERS_SHOWN_MAX]
    lines += [
        ("bad gradients" if first else "", Text(f"{tensor.label}: {tensor.value}"))
        for first, tensor in zip(_once(), shown, strict=False)
    ]
    if incident.parameters_count > len(shown):
        lines.append(("", Text(f"and {incident.parameters_count - len(shown)} more", style=_LABEL_STYLE)))
    lines += [("kept" if first else "", Text(note)) for first, note in zip(_once(), incident.notes, strict=False)]
    return _grid(lines)


def _told_by_incident(report: Report) -> bool:
    """Whether an incident's report already shows its only symptom as the verdict."""
    return len(report.incidents) == 1 and len(report.symptoms) == 1 and report.incidents[0].place is None


def _symptom_lines(report: Report) -> Iterable[tuple[str, Text]]:
    last_label = ""
    above = " ".join((report.verdict, *(incident.title for incident in report.incidents[:INCIDENTS_SHOWN_MAX])))
    alarms = [symptom for symptom in report.symptoms if symptom.severity != "note"]
    shown, again = _without_repeats(alarms or report.symptoms)
    for symptom in shown[:SYMPTOMS_SHOWN_MAX]:
        origin = f" ({symptom.origin})" if symptom.origin else ""
        is_told = symptom.message in above
        message = ", as above" if is_told else f": {symptom.message}"
        line = Text.assemble(
            (symptom.severity, STYLES[symptom.severity]), f" {symptom.name}{origin}, {symptom.steps}{message}"
        )
        label = symptom.story or "symptoms"
        yield (label if label != last_label else "", line)
        if symptom.code and not is_told:
            yield ("", Text(f"{symptom.line}  {symptom.code}", style="italic"))
        last_label = label
    for first, *others in again:
        last = max(one.last_step for one in (first, *others))
        times = "once more" if not others else f"{len(others) + 1} more times"
        yield ("", Text(f"{first.name} {times}, steps {first.first_step:,} to {last:,}", style=_LABEL_STYLE))
    if len(shown) > SYMPTOMS_SHOWN_MAX:
        yield ("", Text(f"and {len(shown) - SYMPTOMS_SHOWN_MAX} more", style=_LABEL_STYLE))
    notes = [symptom for symptom in report.symptoms if symptom.severity == "note"] if alarms else []
    if notes:
        named = dict.fromkeys(f"{one.name}{f' ({one.origin})' if one.origin else ''} at {one.steps}" for one in notes)
        yield ("notes", Text(enumerated(list(named), NOTES_NAMED_MAX)))


def _without_repeats(symptoms: Sequence[SymptomRow]) -> tuple[list[SymptomRow], list[list[SymptomRow]]]:
    """The first two symptoms of each name, and those that come after them: they say the same again."""
    shown: list[SymptomRow] = []
    same: dict[tuple[str, str], list[SymptomRow]] = {}
    for one in symptoms:
        known = same.setdefault((one.name, one.origin), [])
        known.append(one)
        if len(known) <= REPEATS_SHOWN_MAX:
            shown.append(one)
    return shown, [known[REPEATS_SHOWN_MAX:] for known in same.values() if len(known) > REPEATS_SHOWN_MAX]


def _spark(curve: Curve) -> Text:
    text = Text()
    for character in curve.spark:
        text.append(character, style="bold red" if character == NOT_FINITE else "cyan")
    if curve.smallest is not None and curve.largest is not None:
        same = curve.smallest == curve.largest
        text.append(f" {number(curve.smallest)}" + ("" if same else f" .. {number(curve.largest)}"))
    if curve.not_finite:
        text.append(f" {NOT_FINITE} {curve.not_finite:,}", style="bold red")
    return text


def _notes(notes: tuple[str, ...]) -> Iterable[Text]:
    for note in notes[:NOTES_SHOWN_MAX]:
        yield Text(note, style=_LABEL_STYLE)
    if len(notes) > NOTES_SHOWN_MAX:
        yield Text(f"and {len(notes) - NOTES_SHOWN_MAX} more notes on the page", style=_LABEL_STYLE)


def _commands(report: Report) -> Iterable[RenderableType]:
    """The best one: the page lists all."""
    for command in report.commands[:1]:
        purpose = (f"  # {command.purpose}", _LABEL_STYLE)
        head = ("next  ", "bold")
        yield Text.assemble(head, pasteable(command.line), purpose, no_wrap=True, overflow="ignore")


def _grid(lines: Iterable[tuple[str, Text]], width: int = _LABEL_WIDTH) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=_LABEL_STYLE, width=width, no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in lines:
        table.add_row(label, value)
    return table


def _once() -> Iterable[bool]:
    """True once, then False: only the first of several lines has the label."""
    yield True
    while True:
        yield False
