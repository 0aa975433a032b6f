"""The commands that a report names, the best one first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from steadytrain.core.incident import Incident
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.report.report_values import Command, IncidentPart
from steadytrain.report.wording import clean
from steadytrain.storage.run_folder import Run
from steadytrain.storage.run_search import short_name

EXPLAINED_MAX = 3

Found = tuple[Path, Diagnosis] | None
"""A stored diagnosis and the bundle or run that has it."""

KEEP = "keep this as a page"
"""The purpose of the command that writes the page."""


def of_run(
    run: Run,
    incidents: Sequence[IncidentPart],
    symptoms: Sequence[Symptom],
    found: Found,
    gravest: Incident | None = None,
) -> tuple[Command, ...]:
    """What to call after a look at the whole run, whose first incident is ``gravest``."""
    target = short_name(run.path)
    cause = _of_cause([Path(part.path) for part in incidents[:1]], found)
    if gravest is not None and found is None and _can_be_located(gravest):
        cause.insert(0, _to_locate(short_name(Path(incidents[0].path))))
    quiet = found is None and all(one.severity == "note" for one in symptoms)
    commands = [] if quiet else cause  # a note is no alarm: nobody has to find its cause
    if run.state == "running":
        commands.append(Command("look again", f"steadytrain show {target}"))
    if incidents:
        where = short_name(Path(incidents[0].path))
        commands.append(Command("look into the incident", f"steadytrain show {where}"))
    elif symptoms and found is None:
        commands.append(Command("find the cause", f"steadytrain diagnose {target}"))
    page = Command(KEEP, f"steadytrain report {target} -o report.html")
    commands = [page, *commands, *cause] if quiet and run.state != "running" else [*commands, page]
    return _terminal_safe(commands + _explanations(symptoms))


def of_incident(incident: Incident, path: Path, found: Found) -> tuple[Command, ...]:
    """What to call after a look at one incident."""
    target = short_name(path)
    commands = _of_cause([path], found)
    commands.append(Command(KEEP, f"steadytrain report {target} -o report.html"))
    if incident.kind == "symptom":
        commands.insert(1, Command("find the first step that deviated", f"steadytrain onset {target}"))
    elif found is None and _can_be_located(incident):
        commands.insert(0, _to_locate(target))
    return _terminal_safe(commands + _explanations(incident.symptoms))


def _can_be_located(incident: Incident) -> bool:
    finding = incident.finding
    half_traced = finding.is_half_traced(incident.samples) or (finding.located is None and not finding.came_in)
    return incident.kind != "symptom" and half_traced


def _to_locate(target: str) -> Command:
    return Command("search for the first bad operation", f"steadytrain locate {target}")


def _of_cause(incidents: Sequence[Path], found: Found) -> list[Command]:
    """Find the cause of the gravest incident; once it was searched for, what comes after that diagnosis."""
    if found is None:
        return [Command("find the cause", f"steadytrain diagnose {short_name(path)}") for path in incidents]
    from steadytrain.diagnosis import next_command  # all patches: 20 ms that a run without an answer need not take

    path, answer = found
    following = next_command.after(answer)
    return [] if following == next_command.EVIDENCE else [Command(following.purpose, following.of(short_name(path)))]


def _explanations(symptoms: Sequence[Symptom]) -> list[Command]:
    names = list(dict.fromkeys(symptom.name for symptom in symptoms))
    return [Command("what it means", f"steadytrain explain {shlex.quote(name)}") for name in names[:EXPLAINED_MAX]]


def on_page(commands: Iterable[Command]) -> tuple[Command, ...]:
    """``commands`` without the one that writes the page that they stand on."""
    return tuple(one for one in commands if one.purpose != KEEP)


def _terminal_safe(commands: Iterable[Command]) -> tuple[Command, ...]:
    return tuple(Command(command.purpose, clean(command.line)) for command in commands)
