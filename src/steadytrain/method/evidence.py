"""What was already done about a run or incident, read from disk: trials with their effects, commands, preflight, facts.

Without torch. Nothing is judged here: outcomes that no command has judged yet are named as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.core.incident import Finding
from steadytrain.core.model import Symptom
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.experiments import outcome_files
from steadytrain.experiments.command_results import CommandResult, results_of
from steadytrain.experiments.facts import read_facts
from steadytrain.experiments.outcome_files import OUTCOME_BYTES_MAX, result_file, trials_folder
from steadytrain.experiments.specs import Outcome
from steadytrain.grouping.gravest import incident_or_run
from steadytrain.storage.bundle import is_bundle, open_for_report, sha256_of
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.run_search import run_around

PREFLIGHT_FILE = "preflight.json"
"""The document of a preflight in a run folder (``preflight_runs.session`` writes it)."""

DOCUMENT_BYTES_MAX = 16 << 20
OUTCOMES_MAX = 1000
SOURCES_MAX = 200
NOT_JUDGED = "not judged"
"""Effect of a trial whose outcome is stored, but which no diagnosis has compared with its control yet."""


@dataclass(frozen=True)
class Tried:
    """A trial that was tried: its effect (``experiments.specs.EFFECTS`` or ``NOT_JUDGED``), the reason in one line, the
    command that did it, the day, and the seconds that it took (None: unknown)."""

    trial: str
    effect: str
    why: str
    command: str
    when: str
    seconds: float | None = None

    @property
    def ran(self) -> bool:
        return self.effect != "not-run"


@dataclass(frozen=True)
class Evidence:
    """All that is known about ``source``, a bundle or a run, and its ``run``, None for a bundle that was copied away.

    ``tried`` are trials by name, ``commands`` the results of other commands by name. ``preflight`` is the document of a
    preflight of the run, ``facts`` those of a survey; both are empty if there was none. ``finding`` is the bundle's,
    ``changed`` are source files of the run that have changed since, ``nonfinite`` whether its values are not finite.
    """

    source: Path
    run: Run | None
    tried: Mapping[str, Tried]
    commands: Mapping[str, CommandResult]
    answer: Diagnosis | None
    answered: str
    preflight: Mapping[str, Any]
    facts: Mapping[str, Any]
    finding: Finding | None = None
    changed: tuple[str, ...] = ()
    nonfinite: bool = False

    @property
    def has_symptom(self) -> bool:
        """Whether there is something that a command can do again: a bundle, or a run with an alarm. A note is none."""
        run = self.run
        return run is None or bool(self.alarms) or (run.path != self.source and not run.symptoms)

    @property
    def alarms(self) -> list[Symptom]:
        """The symptoms of the run above a note."""
        return [one for one in self.run.symptoms if one.severity != "note"] if self.run is not None else []

    @property
    def mended_by(self) -> str:
        """The patch that was seen to remove the symptom, "" without one."""
        patch = self.answer.patch if self.answer is not None else None
        return patch.what if patch is not None and patch.effect == "removed" else ""

    @property
    def step_seconds(self) -> float | None:
        """Median seconds of a trial that ran; None if none did."""
        taken = sorted(one.seconds for one in self.tried.values() if one.seconds)
        return taken[len(taken) // 2] if taken else None


def evidence_of(path: Path) -> Evidence:
    """The evidence of a bundle, or of a run: of its most severe incident first, then of its other ones.

    Raises:
        UsageError: not a run or bundle, or a damaged one.
    """
    source = incident_or_run(path)
    run = run_around(source) if is_bundle(source) else open_run(source)
    tried: dict[str, Tried] = {}
    commands: dict[str, CommandResult] = {}
    for place in _places(path, source):
        for one in _tried(place):
            tried.setdefault(one.trial, one)
        for name, result in results_of(place).items():
            commands.setdefault(name, result)
    answer = answer_files.read(source)
    bundle = open_for_report(source) if is_bundle(source) else None
    return Evidence(
        source=source,
        run=run,
        tried=tried,
        commands=commands,
        answer=answer,
        answered=day_of(result_file(source, answer_files.FILE)) if answer is not None else "",
        preflight=preflight_of(run),
        facts=read_facts(source) or {},
        finding=bundle.finding if bundle is not None else None,
        nonfinite=bundle is not None and bundle.incident.kind == "nonfinite",
        changed=_changed(bundle.environment) if bundle is not None else (),
    )


def _places(path: Path, source: Path) -> list[Path]:
    """The bundles and the run whose results count: of one incident its own, of a run all of its."""
    if is_bundle(path):
        return [path]
    others = [bundle for bundle in open_run(path).incidents if bundle != source]
    return list(dict.fromkeys([source, *others, path]))


def _tried(source: Path) -> Iterator[Tried]:
    """The trials of one bundle or run: judged ones first."""
    folder = trials_folder(source)
    outcomes = {one.spec.trial: (one, day) for one, day in _outcomes(folder)}
    for result in results_of(source).values():
        command, _, trial = result.command.partition(" ")
        if command in ("trial", "verify"):
            yield Tried(trial, result.effect, result.what, command, result.when[:10], _seconds(outcomes, trial))
    answer = answer_files.read(source)
    when = day_of(result_file(source, answer_files.FILE))
    for row in answer.trials if answer is not None else ():
        yield Tried(row.trial, row.effect, row.why, "diagnose", when, _seconds(outcomes, row.trial))
    for trial, (outcome, day) in outcomes.items():
        if outcome.ran:
            why = "its outcome is stored; diagnose compares it with the unchanged replay"
            yield Tried(trial, NOT_JUDGED, why, "diagnose", day, outcome.seconds)
        else:
            yield Tried(trial, "not-run", outcome.why_not or "", "diagnose", day, outcome.seconds)


def _seconds(outcomes: Mapping[str, tuple[Outcome, str]], trial: str) -> float | None:
    return outcomes[trial][0].seconds or None if trial in outcomes else None


def _outcomes(folder: Path) -> Iterator[tuple[Outcome, str]]:
    """Each stored outcome that can be read, with its day."""
    for file in sorted(folder.glob("*-*.json"))[:OUTCOMES_MAX] if folder.is_dir() else []:
        try:
            data = read_json(file, bytes_max=OUTCOME_BYTES_MAX)
            if data.get("schema") == outcome_files.SCHEMA:
                yield Outcome.from_json(data["outcome"]), day_of(file)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            continue


def _changed(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """The recorded source files that are there and differ. One that is gone is the matter of whoever launches it."""
    sources = environment.get("sources")
    found = []
    for name, digest in list(sources.items())[:SOURCES_MAX] if isinstance(sources, Mapping) else ():
        try:
            if sha256_of(Path(str(name))) != digest:
                found.append(str(name))
        except (OSError, ValueError):
            continue
    return tuple(found)


def preflight_of(run: Run | None) -> dict[str, Any]:
    """The document of the run's preflight, empty if there is none that can be read."""
    if run is None:
        return {}
    path = run.path / PREFLIGHT_FILE
    try:
        data = read_json(path, bytes_max=DOCUMENT_BYTES_MAX)
    except (OSError, ValueError, RecursionError):
        return {}
    checks = data.get("checks") if isinstance(data, dict) else None
    return data if isinstance(checks, list) and all(isinstance(one, dict) for one in checks) else {}


def day_of(path: Path) -> str:
    """The day on which a file was written, ISO 8601, UTC; "" if it is not there."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).strftime("%Y-%m-%d")
    except OSError:
        return ""
