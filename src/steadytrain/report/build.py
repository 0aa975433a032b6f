"""Build a plain ``Report`` value from a run folder or an incident bundle. This module decides everything that a
renderer shows.

A report says what was seen, where and when, what was done about it and what to do next. It also says what was not
checked: silence is not health. Control characters in text from disk are made visible, because a run may come from a
stranger and a terminal obeys escape sequences. The report names a cause only if a diagnosis exists, and only as firmly
as the diagnosis does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from steadytrain.compare.collective_sentences import collective_sentences
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import SEVERITIES, Symptom, Window, worst
from steadytrain.diagnosis import answer_files
from steadytrain.report import next_commands
from steadytrain.report.action_words import counted
from steadytrain.report.circumstances import (
    SHOWN_AS_FACTS,
    brief,
    class_of,
    command_line,
    detectors,
    device,
    entry,
    environment_sections,
    git,
    run_facts,
)
from steadytrain.report.diagnosis_shown import TRIALS_MAX, DiagnosisPart
from steadytrain.report.diagnosis_shown import part as diagnosis_part
from steadytrain.report.earlier_runs import passed_lines
from steadytrain.report.first_screen import (
    FirstScreen,
    FixCard,
    StatusWord,
    TrialEvidence,
    WhereCard,
    WhyCard,
    advice,
    evidence,
    fix_card,
    headline,
    loss_near,
    status_line,
    where_card,
    why_card,
)
from steadytrain.report.health import health
from steadytrain.report.incidents_shown import (
    TENSORS_MAX,
    incident_part,
    open_incidents,
    ran_away,
    rank_of,
    with_newest,
)
from steadytrain.report.next_commands import Found
from steadytrain.report.rank_verdict import rank_verdict
from steadytrain.report.report_values import Command, IncidentPart, Report
from steadytrain.report.run_verdict import QUIET, ended_first, failed, rank_notes, run_verdict
from steadytrain.report.slurm import sentence
from steadytrain.report.symptoms_shown import SYMPTOMS_MAX, stories_of, story_lines, stream_names, symptom_rows
from steadytrain.report.thinned_curves import Curve, curve
from steadytrain.report.wording import clean, count, enumerated, facts_of, sentences
from steadytrain.statistics.run_away import left_course_at
from steadytrain.storage.bundle import Bundle, open_for_report
from steadytrain.storage.left_overs import PROCESS
from steadytrain.storage.processes import is_gone
from steadytrain.storage.ranks_of_run import faulty_first, rank_name
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.stalls import at_the_end

RANKS_MAX = 256
_CURVES = (
    ("loss", "loss", "linear"),
    ("gradient_norm", "gradient norm", "log"),
    ("learning_rate", "learning rate", "linear"),
)
STREAMS_MAX = 4
"""Optimizers whose curves are drawn."""

_SILENCE = "Silence is not health: the run was checked only for what these detectors look for."
_UNENDED = {
    "running": "The run is not over.",
    "killed": "The run did not record how it ended: its process is gone.",
    "not recorded": "The run did not record how it ended: it was killed, or still runs elsewhere.",
}


def from_bundle(bundle: Bundle) -> Report:
    """The report of one incident."""
    incident, environment = bundle.incident, bundle.environment
    rank, off = rank_of(environment), ran_away(incident, bundle.scalars, bundle.path)
    part = incident_part(incident, bundle.path, off=off, rank=rank)
    facts = facts_of(
        ("run", incident.run),
        ("step", count(incident.step)),
        ("stream", incident.stream if incident.stream != "main" else None),
        ("recorded", incident.created),
        ("command", command_line(environment.get("argv"))),
        ("model", class_of(environment.get("model"))),
        ("optimizer", class_of(environment.get("optimizer"))),
        ("torch", entry(environment, "versions", "torch")),
        ("python", environment.get("python")),
        ("device", device(environment.get("device"))),
        ("git", git(environment.get("git"))),
    )
    found = _diagnosis([bundle.path])
    diagnosis = diagnosis_part(found[1]) if found is not None else None
    commands = next_commands.of_incident(incident, bundle.path, found)
    run = _run_of(bundle.path)
    first = FirstScreen(
        status=_status(
            run, [incident.action], incident.kind == "nonfinite", left_course_at(bundle.scalars, incident.step)
        ),
        **_cards(part.title, incident, incident.symptoms, (found, diagnosis), commands),
        loss=loss_near(bundle.scalars, incident.onset_step, _last_step(incident.symptoms)),
    )
    return Report(
        title=f"Incident at step {count(incident.step)} of {clean(incident.run)}",
        verdict=part.title,
        severity=worst([symptom.severity for symptom in incident.symptoms]),
        summary=(part.action,),
        facts=facts,
        brief=brief(facts),
        curves=_curves(bundle.window),
        symptoms=symptom_rows([(symptom, "") for symptom in incident.symptoms]),
        incidents=(part,),
        commands=commands,
        notes=_window_notes(bundle.window),
        environment=environment_sections(environment),
        diagnosis=diagnosis,
        first=first,
    )


def from_run(run: Run, *, stream: str | None = None) -> Report:
    """The report of a whole run: its symptoms on its curves, and its incidents. ``stream`` is the first by default."""
    streams = [stream] if stream is not None else run.streams()
    window = run.scalars(streams[0]) if streams else None
    steps = len(window) if window is not None else 0
    notes: list[str] = []
    stories = stories_of(window, run.symptoms)
    seen = [(symptom, "") for story in stories for symptom in story.symptoms]
    seen += [(symptom, "") for symptom in run.symptoms if window is None or symptom.stream != window.stream]
    of_ranks, unread_ranks = _records_of(run)
    notes += unread_ranks
    seen += [(symptom, rank_name(one.path)) for one in of_ranks for symptom in one.symptoms]
    paths = [*run.incidents, *(path for one in of_ranks for path in one.incidents)]
    actions = [*run.actions, *(action for one in of_ranks for action in one.actions)]
    known = () if run.ranks else run.symptoms
    names = stream_names(run) if stream is None else {}
    incidents, unread = open_incidents(paths := faulty_first(run, paths), known, names)
    notes += unread
    facts = run_facts(run, window)
    measured = health(run, streams[0], window).facts() if window is not None else ()
    if len(seen) > SYMPTOMS_MAX:
        notes.append(f"{len(seen)} symptoms are recorded; the first {SYMPTOMS_MAX} are shown.")
    seen = _leading_first(run, seen, incidents)
    told = [symptom for symptom, _ in seen]
    passed = passed_lines(run, int(window.steps[-1])) if window is not None and steps else ()
    found = _diagnosis([*paths, run.path])
    diagnosis = diagnosis_part(found[1]) if found is not None else None
    gravest = _incident_of(incidents, known)
    commands = next_commands.of_run(run, incidents, told, found, gravest)
    verdict = _led(found, rank_verdict(seen) or run_verdict(run, seen, incidents, steps))
    off = ran_away(gravest, window, Path(incidents[0].path)) if gravest is not None and window is not None else ""
    onset = gravest.onset_step if gravest is not None else next((one.first_step for one in told), None)
    leading = gravest.symptoms if gravest is not None else told
    first = FirstScreen(
        status=_status(run, actions, any(one.name.startswith("nonfinite") for one in told), _left_at(window, gravest)),
        **_cards(verdict, gravest, told, (found, diagnosis), commands),
        loss=_loss_of(run, window, leading, onset, names) if window is not None else None,
    )
    return Report(
        title=f"Run {clean(run.name)}",
        verdict=verdict,
        severity=worst([symptom.severity for symptom, _ in seen]),
        summary=(*passed, *_run_summary(run, seen, actions, steps, off), *story_lines(stories)),
        facts=(*facts, *measured),
        brief=(*brief(facts), *measured),
        curves=_curves_of(run, window, names) if window is not None else (),
        symptoms=symptom_rows(seen, names),
        incidents=tuple(incidents),
        commands=commands,
        notes=(
            *map(clean, (*at_the_end(run), *rank_notes(run), *collective_sentences(run.path))),
            *sentences(run.facts.get("notes")),
        )
        + (*sentences(run.facts.get("warnings")), *map(clean, notes))
        + (_window_notes(window) if window is not None else ()),
        environment=environment_sections({**run.description, **run.facts}, skipped=SHOWN_AS_FACTS),
        diagnosis=diagnosis,
        first=first,
    )


def _records_of(run: Run) -> tuple[list[Run], list[str]]:
    """The other ranks of a run, and notes on those that cannot be read."""
    found, notes = [], []
    for rank in run.ranks[:RANKS_MAX]:
        try:
            found.append(open_run(rank))
        except UsageError as error:
            notes.append(f"Rank folder not read: {error}")
    return found, notes


def _leading_first(
    run: Run, seen: Sequence[tuple[Symptom, str]], incidents: Sequence[IncidentPart]
) -> list[tuple[Symptom, str]]:
    """``seen`` with the symptoms of the rank whose incident leads before those of the others."""
    if not incidents or not run.ranks:
        return list(seen)
    folder, name = Path(incidents[0].path).parents[1], incidents[0].subject.partition(" of ")[0]
    leading = "" if folder == run.path else rank_name(folder)
    return sorted(seen, key=lambda one: (one[1] != leading, one[0].name != name))


class _Cards(TypedDict):
    headline: str
    certainty: str
    where: WhereCard | None
    why: WhyCard | None
    fix: FixCard | None
    evidence: tuple[TrialEvidence, ...]


def _cards(
    verdict: str,
    incident: Incident | None,
    symptoms: Sequence[Symptom],
    diagnosed: tuple[Found, DiagnosisPart | None],
    commands: Sequence[Command],
) -> _Cards:
    """What the first screen says besides the status: ``verdict`` heads it while no cause is known."""
    found, diagnosis = diagnosed
    place, answer = found if found is not None else (None, None)
    text, certainty = headline(diagnosis, verdict)
    finding = incident.finding if incident is not None else None
    ways = [(command.purpose, command.line) for command in commands if "look into" not in command.purpose]
    noted = (incident is None or incident.is_note) and all(one.severity == "note" for one in symptoms)
    sick = diagnosis is not None or ((incident is not None or bool(symptoms)) and not noted)
    own = incident.symptoms if incident is not None else ()
    known = {(one.name, one.first_step) for one in own}
    others = [one for one in symptoms if (one.name, one.first_step) not in known]
    leading = (*own, *sorted(others, key=lambda one: -SEVERITIES.index(one.severity)))
    where = where_card(finding, leading, diagnosis)
    return _Cards(
        headline=text,
        certainty=certainty,
        where=where,
        why=why_card(diagnosis, leading, where.line if where is not None else ""),
        fix=fix_card(diagnosis, ways, clean(str(place or "")), advice(leading)) if sick else None,
        evidence=evidence(answer.trials[:TRIALS_MAX]) if answer is not None else (),
    )


def _last_step(symptoms: Sequence[Symptom]) -> int:
    """The last step of the first of ``symptoms``, 0 without one."""
    return symptoms[0].last_step if symptoms else 0


def _status(
    run: Run | None, actions: Sequence[Action], bad: bool, left_at: int | None = None
) -> tuple[StatusWord, ...]:
    if run is None:
        return status_line(None, False, actions, bad, known=False, left_at=left_at)
    gone = is_gone(run.description.get(PROCESS))
    return status_line(run.ended, gone, run.actions or actions, bad, left_at=left_at)


def _left_at(window: Window | None, incident: Incident | None) -> int | None:
    """Where the loss left its course before the ``incident``."""
    if window is None or incident is None or incident.stream != window.stream:
        return None
    return left_course_at(window, incident.step)


def _run_of(bundle: Path) -> Run | None:
    """The run whose folder holds the bundle, None if the bundle was moved."""
    try:
        return open_run(bundle.parents[1])
    except (UsageError, OSError, IndexError):
        return None


def _incident_of(incidents: Sequence[IncidentPart], known: Sequence[Symptom]) -> Incident | None:
    try:
        return with_newest(open_for_report(Path(incidents[0].path)).incident, known) if incidents else None
    except UsageError:
        return None


def _diagnosis(places: Sequence[Path]) -> Found:
    """The first bundle or run that has a stored diagnosis."""
    answers = ((place, answer_files.read(place)) for place in places)
    return next(((place, answer) for place, answer in answers if answer is not None), None)


def _led(found: Found, verdict: str) -> str:
    """The verdict of a run that raised nothing, after the diagnosis that somebody asked for: the graver answer."""
    if found is None or not found[1].status or not verdict.startswith(QUIET):
        return verdict
    return f"Diagnosis: {diagnosis_part(found[1]).verdict}. {verdict}"


def _run_summary(
    run: Run, seen: Sequence[tuple[Symptom, str]], actions: Sequence[Action], steps: int, off: str
) -> tuple[str, ...]:
    """``off``: that the loss had run away before the update that was refused; "" if it had not."""
    lines = []
    partly = sorted({action.step for action in actions if action.what == "refused-rest-of-update"})
    refused = sorted({action.step for action in actions if action.what == "refused-update"})
    if partly:
        lines.append(
            f"steadytrain touched this run: it refused the rest of the update of step {count(partly[0])}, whose "
            "optimizer had moved the weights in earlier evaluations of its closure."
        )
    if len(refused) == 1:
        kept = f"but {off}" if off else "so weights and optimizer state are as they were before it"
        lines.append(f"steadytrain touched this run: it refused the update of step {count(refused[0])}, {kept}.")
    elif refused:
        steps_refused = enumerated([count(step) for step in refused], TENSORS_MAX)
        lines.append(f"steadytrain touched this run: it refused the updates of steps {steps_refused}.")
    skipped = sorted({action.step for action in actions if action.what == "skipped-update"})
    if skipped:
        steps_skipped = enumerated([count(step) for step in skipped], TENSORS_MAX)
        lines.append(
            f"steadytrain touched this run: it skipped the update{'s' if len(skipped) > 1 else ''} of "
            f"step{'s' if len(skipped) > 1 else ''} {steps_skipped}, and the training went on."
        )
    steered = [action for action in actions if action.what in ("applied", "rolled-back", "stopped")]
    if steered:
        lines.append(f"steadytrain touched this run: {clean(counted(actions))}. The ledger lists each action.")
    first = ended_first(run)
    if first and (seen or not steps):
        lines.append(f"{first}.")
    if run.ended == "failed" and (seen or first or not steps or not detectors(run)):
        lines.append(failed(run))
    elif run.ended is None and not first:
        lines.append(sentence(run) or _UNENDED[run.state])
    if not seen and steps and run.state != "running":
        lines.append(_SILENCE)
    return tuple(lines)


def _curves_of(run: Run, window: Window, names: Mapping[str, str]) -> tuple[Curve, ...]:
    """The curves of each optimizer that is named, else those of ``window``."""
    streams = list(names)[:STREAMS_MAX]
    return tuple(one for name in streams for one in _curves(run.scalars(name), names[name])) or _curves(window)


def _loss_of(
    run: Run, window: Window, leading: Sequence[Symptom], onset: int | None, names: Mapping[str, str]
) -> Curve | None:
    """The loss of the optimizer that the leading symptom is of, around its onset."""
    stream = leading[0].stream if leading and leading[0].stream in names else window.stream
    shown = window if stream == window.stream else run.scalars(stream)
    return loss_near(shown, onset, _last_step(leading), names.get(stream, ""))


def _curves(window: Window, stream: str = "") -> tuple[Curve, ...]:
    drawn = (curve(name, title, window.series(name), scale=scale, stream=stream) for name, title, scale in _CURVES)
    return tuple(found for found in drawn if found is not None)


def _window_notes(window: Window) -> tuple[str, ...]:
    skipped = int(window.skipped.sum())
    missing = [title for name, title, _ in _CURVES[:2] if not len(window.series(name))]
    notes = [f"The {title} was not recorded." for title in missing] if len(window) else []
    if skipped:
        notes.append(f"The gradient scaler skipped {count(skipped)} step{'s' if skipped > 1 else ''}.")
    return tuple(notes)
