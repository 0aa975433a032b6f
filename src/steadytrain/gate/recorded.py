"""What a gate judges: a run folder or a run of a log, as one plain value. Reads it, and judges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action
from steadytrain.core.model import ScriptLine, Symptom, Window
from steadytrain.diagnosis import answer_files
from steadytrain.grouping import judge
from steadytrain.grouping.catalog import log_detectors
from steadytrain.logs import Log
from steadytrain.report.slurm import ending
from steadytrain.storage.bundle import open_for_report
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.stopped_recording import stopped_sentence


@dataclass(frozen=True)
class Done:
    """Something that a policy may require: its title, whether it was done (None: unknown), and why or what is next."""

    title: str
    done: bool | None
    why: str


@dataclass(frozen=True)
class Confirmed:
    """A stored diagnosis with a confirmed cause: of which symptom, and of which incident (the run's name: of none)."""

    cause: str
    symptom: str
    where: str


@dataclass(frozen=True)
class Origin:
    """The first bad operation of an incident: its name, what it made, and its line in the script if it is known."""

    operation: str
    produced: str
    at: ScriptLine | None


@dataclass(frozen=True)
class Recorded:
    """A run as a gate sees it. ``windows`` are its streams, ``main`` first, then those of other ranks.

    ``looked`` is the number of detectors that could look. ``is_run`` says that it is a run folder: only such a run has
    an end, a ledger, a ``checklist``, a ``preflight`` and checks of its ``data``.
    ``confirmed`` are the causes that stored answers of `diagnose` confirm.
    ``unrecorded`` is the number of steps in which the recording rested.
    ``why_ended`` is the error that ended the script, or what is known of a run that recorded no end; "" if it finished.
    ``stopped`` says of each rank whose recording stopped before its training that it did.
    ``script`` is the name of its script or module, "" if unknown.
    ``origins`` are the first bad operations, by stream and step of their incident.
    """

    name: str
    path: Path
    is_run: bool
    windows: tuple[Window, ...]
    symptoms: tuple[Symptom, ...]
    looked: int
    ended: str | None = None
    actions: tuple[Action, ...] = ()
    checklist: tuple[Done, ...] = ()
    preflight: tuple[Done, ...] = ()
    data: tuple[Done, ...] = ()
    unrecorded: int = 0
    confirmed: tuple[Confirmed, ...] = ()
    why_ended: str = ""
    stopped: tuple[str, ...] = ()
    origins: Mapping[tuple[str, int], Origin] = field(default_factory=dict)
    script: str = ""


def of_log(log: Log) -> Recorded:
    """A run of a log, with the symptoms that the detectors find in it."""
    judgement = judge(log.window, log_detectors())
    return Recorded(log.name, log.source, False, (log.window,), judgement.symptoms, len(judgement.looked))


def of_run(
    run: Run, *, checklist: Sequence[Done] = (), preflight: Sequence[Done] = (), data: Sequence[Done] = ()
) -> Recorded:
    """A run folder with all its ranks, and the symptoms that were recorded.

    A run that was killed before it listed its detectors goes through them again.

    Raises:
        UsageError: a part of it is damaged.
    """
    records = [run, *(open_run(rank) for rank in run.ranks)]
    windows = tuple(record.scalars(stream) for record in records for stream in record.streams())
    symptoms = [symptom for record in records for symptom in record.symptoms]
    named = run.facts.get("detectors")
    looked = len(named) if isinstance(named, list) else 0
    if not looked:
        again = [judge(window, log_detectors()) for window in windows if len(window)]
        symptoms += [symptom for judgement in again for symptom in judgement.symptoms]
        looked = max([len(judgement.looked) for judgement in again], default=0)
    return Recorded(
        run.name,
        run.path,
        True,
        tuple(window for window in windows if len(window)),
        tuple(symptoms),
        looked,
        run.ended,
        tuple(action for record in records for action in record.actions),
        tuple(checklist),
        tuple(preflight),
        tuple(data),
        sum(_rested(record) for record in records),
        tuple(_confirmed(run)),
        _why_ended(run),
        tuple(line for record in records for line in stopped_sentence(record.path)),
        dict(_origins(run)),
        Path(str(run.description.get("script") or run.description.get("module") or "")).name,
    )


def _confirmed(run: Run) -> Iterator[Confirmed]:
    """The confirmed causes of the run and its incidents. A stored answer is evidence, whatever its day."""
    for place in (run.path, *run.incidents):
        answer = answer_files.read(place)
        if answer is not None and answer.status == "confirmed":
            yield Confirmed(answer.verdict, answer.symptom.split(":")[0], place.name)


def _why_ended(run: Run) -> str:
    if run.ended is not None:
        return str(run.facts.get("failure") or "")
    if run.state == "running":
        return "it is still running"
    return ending(run) or ("it was killed" if run.state == "killed" else "how it ended is not known")


def _origins(run: Run) -> Iterator[tuple[tuple[str, int], Origin]]:
    """A damaged bundle names none: it is no reason to judge nothing."""
    for path in run.incidents:
        with suppress(UsageError, OSError):
            incident = open_for_report(path).incident
            if (found := incident.located) is not None:
                at = ScriptLine(found.file, found.line, found.code or "") if found.file and found.line else None
                yield (incident.stream, incident.step), Origin(found.operation_said, found.produced, at)


def _rested(run: Run) -> int:
    rests = run.facts.get("rests")
    rested = rests.get("rested") if isinstance(rests, dict) else None
    return rested if isinstance(rested, int) and rested > 0 else 0
