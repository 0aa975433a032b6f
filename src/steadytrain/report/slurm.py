"""What a run says about its SLURM job and about the signals that came: facts, and how the run was ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadytrain.report.wording import clean
from steadytrain.storage.rank_endings import first_end_of
from steadytrain.storage.run_folder import Run
from steadytrain.storage.signal_notes import SignalNote, ended_by, signals_of

ASKED_FOR = ("SIGUSR1", "SIGUSR2")
"""Signals that SLURM sends only if the job asks for them."""

LIMIT_S = 300.0
"""So near the time limit of its job, a signal is that of the limit: ``--signal`` comes a minute or two before."""


def job_fact(description: Mapping[str, Any]) -> str | None:
    """The job in one line, None outside of one."""
    job = description.get("slurm")
    if not isinstance(job, Mapping):
        return None
    parts = [f"job {clean(job.get('job'))}"]
    if job.get("array_index") is not None:
        parts.append(f"array index {clean(job['array_index'])}")
    if job.get("task") is not None and isinstance(job.get("tasks"), int) and job["tasks"] > 1:
        parts.append(f"task {clean(job['task'])} of {job['tasks']}")
    if job.get("node"):
        parts.append(f"node {clean(job['node'])}")
    if job.get("restart"):
        parts.append(f"restart {clean(job['restart'])}")
    return ", ".join(parts)


def ending(run: Run) -> str | None:
    """By which signal a run was ended and where it was then; None if that is not on record."""
    note = ended_by(run.path) if run.ended is None else None
    if note is None:
        return None
    first = first_end_of(run.path)
    if first is not None and first.end.rank:
        return f"ended by {note.signal} after rank {first.end.rank} had ended"
    return f"ended by {note.signal}" + (f" at {clean(note.place)}" if note.place else "")


def sentence(run: Run) -> str | None:
    """How a killed run was ended and why, as far as that is on record; None if nothing is."""
    job, note = run.description.get("slurm"), ended_by(run.path)
    if run.state != "killed" or not (isinstance(job, Mapping) or note is not None):
        return None
    if not isinstance(job, Mapping) or first_end_of(run.path) is not None:
        return f"The run was {ending(run)}." if note is not None else None
    if note is None:
        return (
            f"The run was killed, and no signal is on record before: SIGKILL, out of memory, or the node; {_ask(job)}."
        )
    return f"The run was {ending(run)}: {_why(job, note)}."


def signals_fact(run: Run) -> str | None:
    """The signals that came during the run and did not end it."""
    notes = [note for note in signals_of(run.path) if not note.ended]
    return ", ".join(f"{note.signal} at {clean(note.place)} ({note.when})" for note in notes) or None


def _why(job: Mapping[str, Any], note: SignalNote) -> str:
    ends_at = job.get("ends_at")
    if isinstance(ends_at, int) and abs(note.time - ends_at) <= LIMIT_S:
        return f"at the time limit of SLURM job {clean(job.get('job'))}"
    if note.signal in ASKED_FOR:
        return f"SLURM sends it where `--signal` asks for it, before the time limit or at preemption; {_ask(job)}"
    return f"SLURM preemption, requeue, time limit or scancel; {_ask(job)}"


def _ask(job: Mapping[str, Any]) -> str:
    number = clean(job.get("job"))
    return f"`sacct -j {number} -o State,ExitCode` says which"
