"""Freezes an incident: the contents of its bundle, and notes on what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.seeding import KEY
from steadytrain.capture.incident import environment, freeze, source_hashes
from steadytrain.capture.settings import Settings, utc_now
from steadytrain.capture.step import ranks
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import BatchRing, MicroBatch
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.recording import Recorder
from steadytrain.core.incident import Action, Finding, Incident, Samples
from steadytrain.core.model import Symptom
from steadytrain.storage.staged_bundle import disk_is_full, free_place, staged, update_incident

NAMES_MAX = 3
WHOLE, FREED, SMALL = range(3)
"""Attempts to write a bundle: the second after the recorded steps have been deleted, the third without tensors."""

NO_ROOM = "not kept: the disk is full"
NO_INPUTS = freeze.RecordedInputs()


@dataclass(frozen=True)
class Account:
    """The facts of a frozen step besides its numbers; ``samples`` are the data set samples of its batches."""

    symptoms: Sequence[Symptom]
    action: Action
    finding: Finding
    samples: tuple[Samples, ...]
    name: str = ""
    """The suffix after the step in the bundle's name."""


def freeze_incident(
    recorder: Recorder,
    guard: Guard,
    stream: Stream,
    seen: StepInProgress,
    ring: BatchRing,
    measured: Measurement,
    account: Account,
    observer: StepObserver,
) -> tuple[Path, Incident]:
    """Write the bundle of this step, with the recording of ``observer``. It appears whole or not at all.

    A part that cannot be written is reported and noted; other errors raise. On a full disk the recording is deleted
    first, so that there is room for the rest; if that is not enough, numbers and words alone are kept.
    """
    run = recorder.open(stream)
    step = measured.record.step
    name = f"step-{step:06d}" if stream.name == "main" else f"{stream.name}-step-{step:06d}"
    path = free_place(run.path / "incidents" / f"{name}{account.name}")
    model = stream.model
    roots = list(stream.roots())
    whole = _incident(recorder, stream, seen, measured, account)
    before = seen.micro_batches[0].random_before if seen.micro_batches else None
    random_states = {"before_step": before} if before is not None else {}
    batches = [*ring.steps(), (step, seen.micro_batches)]

    def write(attempt: int) -> Incident:
        again, small = attempt != WHOLE, attempt == SMALL
        # Planned at each attempt: a recording that was deleted in between made room.
        bound = recorder.settings.state_bytes_max
        state_note, keep_state = (NO_ROOM, False) if small else state_plan(run.path, roots, stream, seen, bound)
        incident = replace(whole, batch_note=NO_ROOM if small else whole.batch_note, state_note=state_note)
        with staged(path) as stage:
            freeze.write_bundle(
                stage,
                incident=incident,
                window=stream.history.recent(),
                environment={**process_facts(recorder.settings), **script_facts(stream, roots)},
                inputs=freeze.RecordedInputs(batches, seen.fetched, random_states) if not small else NO_INPUTS,
                diff=recorder.settings.diff if not small else None,
            )
            if small:
                return incident
            kept = not keep_state
            with _part(guard, "writing model and optimizer state", again=again):
                if keep_state:
                    freeze.write_state(stage, roots, stream.optimizers, model.names if model else {})
                    kept = True
            if not kept:
                incident = replace(incident, state_note="not kept: it could not be written")
                with guard.part("noting what the bundle lacks"):
                    update_incident(stage, incident)
            with _part(guard, "putting the recording into the bundle", again=again):
                observer.incident(stream, run.path, stage)
        return incident

    incident = _with_room(write, observer)
    with guard.part("recording the incident"):
        run.add_incident(path, step)
    return path, incident


def _with_room(write: Callable[[int], Incident], observer: StepObserver) -> Incident:
    """What the first attempt returns that the disk has room for."""
    for attempt in (WHOLE, FREED):
        try:
            return write(attempt)
        except Exception as error:
            if not disk_is_full(error):
                raise
        if attempt == WHOLE:
            observer.free_disk()
    return write(SMALL)


@contextmanager
def _part(guard: Guard, what: str, *, again: bool) -> Iterator[None]:
    """A part of the bundle that may be missing. At the first attempt a full disk is no reason to leave it out."""
    full: Exception | None = None
    with guard.part(what):
        try:
            yield
        except Exception as error:
            if again or not disk_is_full(error):
                raise
            full = error
    if full is not None:
        raise full


def _incident(
    recorder: Recorder,
    stream: Stream,
    seen: StepInProgress,
    measured: Measurement,
    account: Account,
) -> Incident:
    return Incident(
        run=recorder.settings.run_name,
        step=measured.record.step,
        stream=stream.name,
        created=utc_now(),
        symptoms=tuple(account.symptoms),
        parameters=measured.bad,
        action=account.action,
        finding=account.finding,
        losses=measured.losses,
        loss_origin=seen.losses[-1].origin if seen.losses else None,
        micro_batches=len(seen.micro_batches),
        batch_note=_batch_note(stream, seen),
        state_note="",
        samples=account.samples,
    )


def state_plan(
    folder: Path, roots: Sequence[nn.Module], stream: Stream, seen: StepInProgress, bound: int
) -> tuple[str, bool]:
    """A note on the model and optimizer state for the user, and whether it is kept."""
    size = freeze.state_bytes(roots, stream.optimizers)
    if bound == 0:
        return "not kept: --state-mb 0 keeps none", False
    if size > bound:
        return f"not kept: {_megabytes(size)} is over the bound of {_megabytes(bound)} (--state-mb)", False
    free = freeze.free_bytes(folder)
    if 2 * size > free:
        return f"not kept: twice its {_megabytes(size)} would fill the disk ({_megabytes(free)} free)", False
    when = "in the middle of" if seen.moved_weights else "before"
    missing = freeze.left_out(roots)
    without = f", without {len(missing)} that cannot be written ({', '.join(missing[:NAMES_MAX])})" if missing else ""
    return f"kept as it was {when} step {stream.step + 1}: {_megabytes(size)}{without}", True


def process_facts(settings: Settings) -> dict[str, Any]:
    """How the process was started and what it runs on; none of it changes during training."""
    command = environment.command_facts()
    return {
        **command,
        "argv": settings.description.get("argv", command["argv"]),
        # The start folder: a script that has changed its working folder does so again when it is rerun.
        "cwd": settings.description.get("cwd") or command["cwd"],
        "script": settings.description.get("script"),
        "module": settings.description.get("module"),
        **{name: settings.description[name] for name in (KEY, "typed_into") if name in settings.description},
        "versions": environment.versions(),
        "device": environment.devices(),
        "numerics": environment.numerics(),
        "git": settings.description.get("git"),
        "sources": source_hashes.source_digests(),
    }


def script_facts(stream: Stream, roots: Sequence[nn.Module]) -> dict[str, Any]:
    """The current facts of the script's model and optimizers. Only the training thread calls this.

    If the script has dropped the model, the facts are from when it created its next optimizer.
    """
    if stream.last_facts is not None and not stream.optimizers:
        return stream.last_facts
    main = sys.modules.get("__main__")
    return {
        "configuration": environment.configuration(roots, vars(main) if main else {}),
        "model": {
            **environment.model_facts(roots, stream.parameters),
            "structure": environment.structure(roots),
        },
        "optimizer": [environment.optimizer_facts(optimizer) for optimizer in stream.optimizers],
        "steps_before": stream.began,
        **({"optimizer_since": stream.began + stream.renewed + 1} if stream.renewed else {}),
        "updates_passed_over": stream.passed_over,
        "rank": ranks.rank(),
        "world_size": ranks.world_size(),
    }


def _batch_note(stream: Stream, seen: StepInProgress) -> str:
    batches: Sequence[MicroBatch] = seen.micro_batches
    if rested := seen.rested.get(stream.name):
        first, step = rested
        kept = f"{len(batches)} kept as the step left them, without the random state" if batches else "not kept"
        return f"{kept}: step {step} was not recorded, because the run rested since step {first}"
    if not batches:
        return "not kept: no call of a module with gradients was seen in this step"
    changed = sum(batch.changed_since() for batch in batches)
    if changed:
        return f"{len(batches)} kept, but {changed} changed in place after use: not what the step saw"
    return f"{len(batches)} kept as the model received them"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
