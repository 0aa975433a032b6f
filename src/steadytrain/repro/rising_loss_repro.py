"""``steadytrain repro`` where everything is finite and the loss rises: a few steps of training in a script.

The recorded steps around the onset are done again, with what was fed to them and the state that they had, and what is
found there (a batch, an update, some updates) is cut out and made small. As with a NaN nothing is called a reproduction
before its script has failed in a process of its own.
"""

from __future__ import annotations

import math
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.catalog import declared
from steadytrain.replay.failing_step import folder_to_run_in, launch
from steadytrain.repro.script_making import FRESH_WAIT_S, Repro, check_folder, made_small, put_down
from steadytrain.repro.training_capture import MODULE, REQUEST, RESULT, Request
from steadytrain.storage.bundle import Bundle, write_json
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tape_files import find_recording

NEAR_STEPS, FAR_STEPS = 8, 64
"""Steps captured after the onset, and how many where these show nothing and a step is quick."""

QUICK_STEP_S = 0.1
SLOW_STEP_S, SLOW_STEPS = 0.5, 3
"""A step that takes longer than this is captured so many times only: each takes some times as long under the trail."""

LEAD_S_MAX = 20.0
"""The script makes all steps before by itself where they take no longer; else one, and all if that shows nothing."""

LEAD_ALL_S = 120.0
USUAL_STEPS = 64
RISE_SPREADS_MIN, RISE_SHARE_MIN = 6.0, 0.25
"""Captured steps have a rise where it is so many times the usual spread of the loss, and so much of the whole one."""


@dataclass(frozen=True)
class Subject:
    """What rose: the recorded steps and their losses. ``source`` is a bundle or a run with its tape."""

    source: Path
    run: str
    symptom: Symptom
    scalars: Window
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Losses:
    """Losses of the run around the onset: the usual one, its spread, how far it goes up within the captured steps."""

    usual: float
    spread: float
    peak: float


def of_bundle(bundle: Bundle) -> Subject:
    """What rose in a bundle; its first symptom says it, whether or not there is a script for its kind.

    Raises:
        UsageError: it holds no symptom.
    """
    symptom = rising_symptom(bundle.incident.symptoms)
    if symptom is None:
        raise UsageError(f"{bundle.path}: everything is finite in this incident, and it has no symptom")
    return Subject(bundle.path, bundle.incident.run, symptom, bundle.scalars, bundle.environment)


def of_run(path: Path) -> Subject:
    """What rose in a run that has no incident, from its own tape.

    Raises:
        UsageError: it has no symptom.
    """
    run = open_run(path)
    symptom = rising_symptom(run.symptoms)
    if symptom is None:
        raise UsageError(
            f"{path}: this run has no incident and no symptom; "
            f"`steadytrain show {shlex.quote(str(path))}` shows what it has"
        )
    return Subject(path, run.name, symptom, run.scalars(), run.description)


def make_rising_repro(
    subject: Subject, folder: Path, *, wait_s: float, clock: Callable[[], float] = time.monotonic
) -> Repro:
    """Make a script for the rise in ``folder``, which is not there yet or empty.

    Raises:
        UsageError: the symptom is of a kind that no script is made for, or its steps cannot be done again.
    """
    check_folder(folder)
    began = clock()
    onset, last, step_s = _first_and_last(subject)
    with tempfile.TemporaryDirectory(prefix="steadytrain-repro-") as name:
        scratch = Path(name)
        why = "nothing was captured"
        for reach, lead_s in _attempts(step_s, onset):
            until = min(last, onset + reach)
            left = wait_s - (clock() - began)
            if left <= 0:
                break
            losses = _losses(subject, onset, until)
            if losses is None:
                why = f"within {until - onset} steps of step {onset} the loss does not rise out of its usual range"
                continue
            told = _stepped(subject, scratch, Request(max(onset - 1, _earliest(subject, until)), until, lead_s), left)
            made = {"why": told} if told is not None else _made(scratch, losses, max(1.0, wait_s - (clock() - began)))
            if made["why"] is None:
                refused = _verified(scratch, str(made["fault"]))
                if refused is None:
                    return _put(subject, scratch, folder, made)
                why = f"not called a reproduction: {refused}"
                continue
            why = str(made["why"])
        return Repro(False, why)


def _attempts(step_s: float, onset: int) -> list[tuple[int, float]]:
    """How many steps after the onset to capture, and how long the script's own steps before may take; in order."""
    reaches = [SLOW_STEPS] if step_s > SLOW_STEP_S else [NEAR_STEPS]
    if step_s <= QUICK_STEP_S:
        reaches.append(FAR_STEPS)
    leads = [LEAD_S_MAX, *([LEAD_ALL_S] if LEAD_S_MAX < onset * step_s <= LEAD_ALL_S else [])]
    return [(reach, lead) for lead in leads for reach in reaches]


def _first_and_last(subject: Subject) -> tuple[int, int, float]:
    symptom = subject.symptom
    if not declared(symptom.name).grows:
        raise UsageError(
            f"{subject.source}: repro makes scripts of a NaN, an Inf or a loss that rises; "
            f"{symptom.name} is none of these"
        )
    recording = find_recording(subject.source)
    starts = recording.starts()
    if not starts:
        raise UsageError(f"{subject.source}: no snapshot and tape of its steps were kept; nothing to do again")
    able = [start for start in starts if start <= symptom.first_step] or starts[:1]
    last = recording.reaches(able[-1])
    if last < symptom.first_step or able[0] > symptom.last_step:
        raise UsageError(
            f"{subject.source}: {symptom.name} is of the steps {symptom.first_step} to {symptom.last_step}, "
            f"and what was kept can be done again from step {starts[0]} to {last}"
        )
    seconds = subject.scalars.series("step_s").values
    return symptom.first_step, last, float(np.median(seconds)) if len(seconds) else math.inf


def _earliest(subject: Subject, until: int) -> int:
    recording = find_recording(subject.source)
    return min((start for start in recording.starts() if recording.reaches(start) >= until), default=1)


def _losses(subject: Subject, onset: int, until: int) -> Losses | None:
    """None where the captured steps have little of the rise: within its usual spread, or a small part of the whole."""
    series = subject.scalars.series("loss")
    steps, values = np.asarray(series.steps), np.asarray(series.values, dtype=float)
    finite = np.isfinite(values)
    before = values[finite & (steps < onset)][-USUAL_STEPS:]
    after = values[finite & (steps >= onset) & (steps <= until)]
    whole = values[finite & (steps >= onset) & (steps <= max(until, subject.symptom.last_step))]
    if not len(after):
        return None
    if not len(before):  # it was there from the first step on
        before = after[:1]
    usual = float(np.median(before))
    spread = float(np.median(np.abs(before - usual))) if len(before) > 1 else 0.0
    peak, highest = float(after.max()), float(whole.max())
    enough = max(RISE_SPREADS_MIN * spread, RISE_SHARE_MIN * (highest - usual))
    return Losses(usual, spread, peak) if peak - usual > enough else None


def _stepped(subject: Subject, scratch: Path, request: Request, wait_s: float) -> str | None:
    """Launch the recorded command and capture its steps; None when that went well, else why not."""
    result = scratch / RESULT
    result.unlink(missing_ok=True)
    write_json(scratch / REQUEST, asdict(request))
    folder = folder_to_run_in(subject.source, subject.environment)
    command = ["-m", MODULE, str(subject.source.absolute()), str(scratch)]
    return launch(command, result, folder=folder, wait_s=wait_s)


def _made(scratch: Path, losses: Losses, budget_s: float) -> dict[str, Any]:
    numbers = [repr(losses.usual), repr(losses.spread), repr(losses.peak), f"{budget_s / 2:.1f}"]
    return made_small(scratch, ["steadytrain.repro.training_shrinking", str(scratch), *numbers], wait_s=budget_s)


def _verified(scratch: Path, fault: str) -> str | None:
    """Let the script fail in a fresh process; where the readable one does not, the exact one takes its place."""
    from steadytrain.repro.fresh_process import fault_in_fresh_process

    script = scratch / "repro.py"
    refused = fault_in_fresh_process(script, wait_s=FRESH_WAIT_S, fault=fault)
    if refused is not None:
        (scratch / "exact.py").replace(script)
        refused = fault_in_fresh_process(script, wait_s=FRESH_WAIT_S, fault=fault)
    return refused


def _put(subject: Subject, scratch: Path, folder: Path, made: dict[str, Any]) -> Repro:
    """Everything into the folder, the script last."""
    from steadytrain.repro.rising_loss_issue import rising_issue_text

    files, lines = put_down(
        scratch,
        folder,
        lambda text, size: rising_issue_text(made, text, size, subject.symptom, subject.scalars, subject.environment),
    )
    return Repro(True, f"{made['title']}; verified in a fresh process", files, lines, facts=made)


def rising_symptom(symptoms: Sequence[Symptom]) -> Symptom | None:
    """The one of several that a script can be made for, the first by step; else the first."""
    in_order = sorted(symptoms, key=lambda one: (one.severity != "critical", one.first_step))
    return next((one for one in in_order if declared(one.name).grows), in_order[0] if in_order else None)
