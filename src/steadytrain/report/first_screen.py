"""The first screen of a page as a value: status, headline with its certainty, the cards, and the table of evidence."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from steadytrain.core.incident import Action, Finding
from steadytrain.core.model import ScriptLine, Series, Symptom, Window
from steadytrain.detectors import SYMPTOM_PAGES
from steadytrain.diagnosis.answer import TrialRow
from steadytrain.report.action_words import counted
from steadytrain.report.diagnosis_shown import BY_HAND, CONTROL, DiagnosisPart
from steadytrain.report.source_lines import SourceLine, source_lines
from steadytrain.report.thinned_curves import Curve, curve, spans_decades
from steadytrain.report.wording import Fact, clean, count

BEFORE_STEPS, AFTER_STEPS, SYMPTOM_STEPS_MAX = 60, 20, 400
WHY_LINES_MAX = 4
ROW_LINES_MAX = 3
DIFF_SHOWN_MAX = 14
ADVICE_MAX = 2
INPUTS_MAX = 3
PLACEBO, SECOND_SEED = "-placebo", "-second-seed"
REMOVED = "removed"
ENDINGS = {"finished": "finished", "stopped": "stopped by steadytrain", "failed": "crashed"}

Tone = Literal["good", "bad", "changed", "unsure"]
SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "changed": "!", "unsure": "?"}


@dataclass(frozen=True)
class StatusWord:
    """One word of the status line. Its sign says the same as its colour."""

    text: str
    tone: Tone

    @property
    def sign(self) -> str:
        return SIGNS[self.tone]


@dataclass(frozen=True)
class WhereCard:
    """Where the fault is: the line of the script with its neighbours, the module and the operands."""

    line: str
    source: tuple[SourceLine, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class WhyCard:
    """What proves the cause: sentences with numbers, and the row that stands out."""

    lines: tuple[str, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class FixCard:
    """What to change: in words, as a diff or a line of code, what it did on the replay, and the command."""

    what: str
    effect: str
    works: bool
    diff: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class TrialEvidence:
    """A trial beside its control, its placebo and the second seed; "" if one was not run."""

    trial: str
    effect: str
    control: str
    placebo: str
    second_seed: str
    why: str


@dataclass(frozen=True)
class FirstScreen:
    """``certainty`` is confirmed, likely, possible or unknown, "" without a diagnosis."""

    status: tuple[StatusWord, ...]
    headline: str
    certainty: str
    where: WhereCard | None
    why: WhyCard | None
    fix: FixCard | None
    loss: Curve | None
    evidence: tuple[TrialEvidence, ...]

    @property
    def proof(self) -> str:
        return proof(self.evidence, self.why.lines if self.why is not None else ())


def status_line(
    ended: str | None,
    gone: bool,
    actions: Sequence[Action],
    bad: bool,
    *,
    known: bool = True,
    left_at: int | None = None,
) -> tuple[StatusWord, ...]:
    """How the run ended, the state of its weights, and whether the guard changed anything.

    Args:
        ended: as the run recorded it. ``gone``: its process has ended without a record.
        bad: whether a loss or a gradient was not finite.
        known: False if only the incident is here and not its run.
        left_at: the step at which the loss left its course before the refused update, None if it did not.
    """
    if ended in ENDINGS:
        end = StatusWord(ENDINGS[ended], "good" if ended == "finished" else "bad")
    elif not known:
        end = StatusWord("how the run ended is not in this bundle", "unsure")
    else:
        end = StatusWord("crashed or was killed", "bad") if gone else StatusWord("running, or was killed", "unsure")
    whats: set[str] = {action.what for action in actions}
    touched = any(action.touched for action in actions)
    done = counted(actions)
    guard = StatusWord(f"touched by the guard: {done}" if done else "touched by the guard", "changed")
    return (end, _weights(whats, bad, left_at), guard if touched else StatusWord("not touched by the guard", "good"))


def _weights(whats: set[str], bad: bool, left_at: int | None) -> StatusWord:
    if "refused-rest-of-update" in whats:
        return StatusWord("weights moved in part by the bad update", "bad")
    if bad and "observed" in whats:
        return StatusWord("the bad update was not refused: weights may be damaged", "bad")
    if bad and left_at is not None:
        return StatusWord(f"the bad update was refused, but the loss left its course at step {count(left_at)}", "bad")
    if whats & {"refused-update", "skipped-update"}:
        return StatusWord("weights intact: the bad update was not made", "good")
    if bad:
        return StatusWord("weights: not known", "unsure")
    return StatusWord("no update with NaN or Inf was seen", "good")


def headline(told: DiagnosisPart | None, otherwise: str) -> tuple[str, str]:
    """The cause in one sentence, with the rows that it names, and its certainty, or ``otherwise`` without a
    diagnosis."""
    if told is None:
        return otherwise, ""
    if told.certainty != "unknown" and told.causes:
        sentence = told.causes[0].summary
        return f"{sentence.removesuffix('.')}: {told.rows_at}" if told.rows_at else sentence, told.certainty
    possible = [cause.name for cause in told.causes if cause.status == "possible"][:3]
    if possible:
        return f"The cause is not proven. Possible: {', '.join(possible)}", "possible"
    return f"The cause is unknown: {told.why}", "unknown"


def where_card(finding: Finding | None, symptoms: Sequence[Symptom], told: DiagnosisPart | None) -> WhereCard | None:
    located = finding.located if finding is not None else None
    if located is not None:
        inputs = [Fact(clean(one.name), clean(one.summary())) for one in located.inputs[:INPUTS_MAX]]
        module = [Fact("module", clean(located.module))] if located.module else []
        made = Fact("made", f"{'NaN' if located.produced == 'nan' else 'Inf'} in {clean(located.operation_said)}")
        line = clean(f"{located.file}:{located.line}") if located.file else "line not known"
        source = source_lines(located.file, located.line, located.code)
        return WhereCard(line, source, (made, Fact("phase", located.phase), *module, *inputs))
    blamed = _blamed(symptoms, told)
    if blamed is not None:
        symptom, at = blamed
        source = source_lines(at.file, at.line, at.code)
        return WhereCard(clean(f"{at.file}:{at.line}"), source, (Fact("from step", count(symptom.first_step)),))
    layer = told.causes[0].layer if told is not None and told.causes else ""
    rows = told.causes[0].rows if told is not None and told.causes else ""
    facts = [Fact("layer", layer)] if layer else []
    facts += [Fact("rows of the batch", rows)] if rows else []
    if symptoms:
        first = symptoms[0]
        facts.append(Fact("from step", count(first.first_step)))
        facts.append(Fact("seen in", clean(", ".join(first.signals)) or clean(first.name)))
    line = clean(finding.came_in) if finding is not None else ""
    return WhereCard(line or "no single operation was located", (), tuple(facts)) if facts else None


def _blamed(symptoms: Sequence[Symptom], told: DiagnosisPart | None) -> tuple[Symptom, ScriptLine] | None:
    """The first symptom above a note that names a line of the script; after a diagnosis only if its cause names it."""
    named = [(one, one.at) for one in symptoms if one.at is not None and one.severity != "note"]
    if told is not None:
        said = " ".join((told.causes[0].summary, *told.causes[0].supports)) if told.causes else ""
        named = [(one, at) for one, at in named if at.place in said]
    return next(iter(named), None)


def advice(symptoms: Sequence[Symptom]) -> str:
    """What usually mends the first symptom that names a line of the script, "" if none does."""
    blamed = _blamed(symptoms, None)
    page = SYMPTOM_PAGES.find(blamed[0].name) if blamed is not None else None
    return " ".join(page.next_steps[:ADVICE_MAX]).replace("`", "") if page is not None else ""


def why_card(told: DiagnosisPart | None, symptoms: Sequence[Symptom], where: str = "") -> WhyCard | None:
    """What was seen, without the line that stands in *Where* already."""
    if told is None:
        alarms = [symptom for symptom in symptoms if symptom.severity != "note"]
        lines = tuple(clean(symptom.message) for symptom in (alarms or symptoms)[:WHY_LINES_MAX])
        return WhyCard((*lines, "The cause was not searched for yet."), ()) if lines else None
    first = told.causes[0] if told.causes else None
    proof = [line for line in first.supports if line != where][:WHY_LINES_MAX] if first is not None else []
    rows = told.texts[:ROW_LINES_MAX] if first is not None and first.rows else ()
    return WhyCard(tuple(proof) or (told.why,), rows)


def fix_card(
    told: DiagnosisPart | None, commands: Sequence[tuple[str, str]], incident: str = "", usual: str = ""
) -> FixCard | None:
    """What mends the run, or what to try.

    Args:
        told: the diagnosis, if there is one.
        commands: pairs of a purpose and a line; the first is shown while nothing better is known.
        incident: what `steadytrain fix` is called with.
        usual: what usually mends the symptom, for a symptom whose line is known.
    """
    purpose, line = commands[0] if commands else ("", "")
    remedies = told.causes[0].remedies if told is not None and told.causes else ()
    working = [remedy for remedy in remedies if remedy.works]
    if told is not None and told.patch:
        diff = _dedented([line for line in told.patch_diff if not line.startswith(("---", "+++", "@@"))])
        write = f"steadytrain fix {shlex.quote(incident)}{' --write' if told.patch_works else ''}" if incident else ""
        return FixCard(told.patch_what, told.patch_effect, told.patch_works, diff[:DIFF_SHOWN_MAX], write)
    others = (remedy for group in ("weakens", "untried", "stopgap") for remedy in remedies if remedy.group == group)
    best = next(iter((*working, *others)), None)
    if best is not None:
        code = (best.code,) if best.code else ()
        tried = "no trial can show it: you make it by hand" if best.tried == BY_HAND else f"on the replay: {best.tried}"
        return FixCard(best.what, tried, best.works, code, best.command or line)
    if usual:
        return FixCard(usual, "not tried on the replay yet", False, (), line)
    return FixCard(f"No fix is known yet. Next: {purpose}", "", False, (), line) if line else None


def _dedented(diff: Sequence[str]) -> tuple[str, ...]:
    """Lines of a diff without the indentation that all of them share: a card is narrow."""
    shared = min((len(line) - 1 - len(line[1:].lstrip(" ")) for line in diff if line[1:].strip()), default=0)
    return tuple(line[:1] + line[1 + shared :] for line in diff)


def loss_near(window: Window, step: int | None, last: int = 0, stream: str = "") -> Curve | None:
    """The loss around ``step``, and as far as the symptom goes on, to its ``last`` step; ``stream`` names whose."""
    if step is None:
        return None
    series = window.series("loss")
    end = max(step + AFTER_STEPS, min(last, step + SYMPTOM_STEPS_MAX))
    here = np.flatnonzero((series.steps >= step - BEFORE_STEPS) & (series.steps <= end))
    near = Series(series.steps[here], series.values[here])
    title = f"loss of {stream or 'the run'}" if stream or len(near) == len(series) else "loss"
    title += " around the incident" if len(near) < len(series) else ""
    drawn = curve("loss", "", near, scale="log" if spans_decades(near.values) else "linear", stream=stream)
    return replace(drawn, title=title) if drawn is not None else None


def evidence(trials: Sequence[TrialRow]) -> tuple[TrialEvidence, ...]:
    """Each trial that was run, those that remove the symptom first, with what became of it in their control and
    placebo."""
    effects = {row.trial: row.effect for row in trials}
    found = [
        TrialEvidence(
            trial=clean(row.trial),
            effect=clean(row.effect),
            control=clean(effects.get(CONTROL, "")),
            placebo=clean(effects.get(row.trial + PLACEBO, "")),
            second_seed=clean(effects.get(row.trial + SECOND_SEED, "")),
            why=clean(row.why),
        )
        for row in trials
        if row.trial != CONTROL and not row.trial.endswith((PLACEBO, SECOND_SEED))
    ]
    return tuple(sorted(found, key=lambda row: row.effect != REMOVED))


def _weight(row: TrialEvidence, reasons: Sequence[str]) -> tuple[bool, bool, bool]:
    named = any(reason.startswith(f"{row.trial}:") for reason in reasons)
    return named, row.placebo not in ("", REMOVED), bool(row.second_seed)


def proof(rows: Sequence[TrialEvidence], reasons: Sequence[str] = ()) -> str:
    """The evidence in one line: a trial that removes the symptom, "" without one. One that ``reasons`` name comes
    first, then the one with most beside it."""
    removed = [row for row in rows if row.effect == REMOVED]
    if not removed:
        return ""
    best = max(removed, key=lambda row: _weight(row, reasons))
    beside = [("control", best.control), ("placebo", best.placebo), ("second seed", best.second_seed)]
    told = "; ".join(f"{name}: {effect}" for name, effect in beside if effect)
    more = f"; {len(rows) - 1} more trial{'s' if len(rows) > 2 else ''}" if len(rows) > 1 else ""
    return f"{best.trial} removes the symptom{f' ({told})' if told else ''}{more}"
