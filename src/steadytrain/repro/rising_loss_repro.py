"""``steadytrain repro`` for a rising loss with finite values: a few training steps in a script.

The recorded steps around the onset are replayed with their inputs and state. The cause found there (a batch, an update,
several updates) is extracted and shrunk. A script counts as a reproduction only after it failed in its own process.
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
"""Steps to capture after the onset, and how many if these show nothing and steps are fast."""

QUICK_STEP_S = 0.1
SLOW_STEP_S, SLOW_STEPS = 0.5, 3
"""Slower steps (in seconds) are captured this many times only: the trail slows a step down several times."""

LEAD_S_MAX = 20.0
"""The script computes all steps before itself if they fit into this time (seconds); else one, and all if that shows
nothing."""

LEAD_ALL_S = 120.0
USUAL_STEPS = 64
RISE_SPREADS_MIN, RISE_SHARE_MIN = 6.0, 0.25
"""The captured steps have a rise if it exceeds so many usual spreads of the loss, and this share of the whole rise."""


@dataclass(frozen=True)
class Subject:
    """The recorded steps and their rising loss. ``source`` is a bundle, or a run with its tape."""

    source: Path
    run: str
    symptom: Symptom
    scalars: Window
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Losses:
    """Losses of the run around the onset: the median before, its spread, and the peak within the captured steps."""

    usual: float
    spread: float
    peak: float


def of_bundle(bundle: Bundle) -> Subject:
    """The rise in a bundle, from its first suitable symptom. The symptom may be of a kind without a script.

    Raises:
        UsageError: the bundle has no symptom.
    """
    symptom = rising_symptom(bundle.incident.symptoms)
    if symptom is None:
        raise UsageError(f"{bundle.path}: everything is finite in this incident, and it has no symptom")
    return Subject(bundle.path, bundle.incident.run, symptom, bundle.scalars, bundle.environment)


def of_run(path: Path) -> Subject:
    """The rise in a run without an incident, from its own tape.

    Raises:
        UsageError: the run has no symptom.
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
    """Makes a script for the rise in ``folder``, which must be absent or empty.

    Raises:
        UsageError: the kind of symptom has no script, or its steps cannot be replayed.
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
    """Pairs to try in order: steps to capture after the onset, and time in seconds for the script's own steps."""
    reaches = [SLOW_STEPS] if step_s > SLOW_STEP_S else [NEAR_STEPS]
    if step_s <= QUICK_STEP_S:
        reaches.append(FAR_STEPS)
    leads = [LEAD_S_MAX, *([LEAD_ALL_S] if LEAD_S_MAX < onset * step_s <= LEAD_ALL_S else [])]
    return [(reach, lead) for lead in leads for reach in reaches]


def _first_and_last(subject: Subject) -> tuple[int, int, float]:
    symptom = subject.symptom
    if not declared(symptom.name).grows:
        raise UsageError(
            f"{subject.source}: repro makes scripts for a NaN, an Inf or a rising loss; {symptom.name} is none of these"
        )
    recording = find_recording(subject.source)
    starts = recording.starts()
    if not starts:
        raise UsageError(f"{subject.source}: no snapshot and tape of its steps exist; nothing to replay")
    able = [start for start in starts if start <= symptom.first_step] or starts[:1]
    last = recording.reaches(able[-1])
    if last < symptom.first_step or able[0] > symptom.last_step:
        raise UsageError(
            f"{subject.source}: {symptom.name} covers steps {symptom.first_step} to {symptom.last_step}, "
            f"but only steps {starts[0]} to {last} can be replayed"
        )
    seconds = subject.scalars.series("step_s").values
    return symptom.first_step, last, float(np.median(seconds)) if len(seconds) else math.inf


def _earliest(subject: Subject, until: int) -> int:
    recording = find_recording(subject.source)
    return min((start for start in recording.starts() if recording.reaches(start) >= until), default=1)


def _losses(subject: Subject, onset: int, until: int) -> Losses | None:
    """None if the captured steps have too little of the rise: within the usual spread, or a small part of the whole."""
    series = subject.scalars.series("loss")
    steps, values = np.asarray(series.steps), np.asarray(series.values, dtype=float)
    finite = np.isfinite(values)
    before = values[finite & (steps < onset)][-USUAL_STEPS:]
    after = values[finite & (steps >= onset) & (steps <= until)]
    whole = values[finite & (steps >= onset) & (steps <= max(until, subject.symptom.last_step))]
    if not len(after):
        return None
    if not len(before):  # the rise was there from the first step on
        before = after[:1]
    usual = float(np.median(before))
    spread = float(np.median(np.abs(before - usual))) if len(before) > 1 else 0.0
    peak, highest = float(after.max()), float(whole.max())
    enough = max(RISE_SPREADS_MIN * spread, RISE_SHARE_MIN * (highest - usual))
    return Losses(usual, spread, peak) if peak - usual > enough else None


def _stepped(subject: Subject, scratch: Path, request: Request, wait_s: float) -> str | None:
    """Launches the recorded command and captures its steps. Returns None on success, else the reason."""
    result = scratch / RESULT
    result.unlink(missing_ok=True)
    write_json(scratch / REQUEST, asdict(request))
    folder = folder_to_run_in(subject.source, subject.environment)
    command = ["-m", MODULE, str(subject.source.absolute()), str(scratch)]
    return launch(command, result, subject.environment, folder=folder, wait_s=wait_s)


def _made(scratch: Path, losses: Losses, budget_s: float) -> dict[str, Any]:
    numbers = [repr(losses.usual), repr(losses.spread), repr(losses.peak), f"{budget_s / 2:.1f}"]
    return made_small(scratch, ["steadytrain.repro.training_shrinking", str(scratch), *numbers], wait_s=budget_s)


def _verified(scratch: Path, fault: str) -> str | None:
    """Runs the script in a fresh process. If the readable one does not fail, the exact one replaces it."""
    from steadytrain.repro.fresh_process import fault_in_fresh_process

    script = scratch / "repro.py"
    refused = fault_in_fresh_process(script, wait_s=FRESH_WAIT_S, fault=fault)
    if refused is not None:
        (scratch / "exact.py").replace(script)
        refused = fault_in_fresh_process(script, wait_s=FRESH_WAIT_S, fault=fault)
    return refused


def _put(subject: Subject, scratch: Path, folder: Path, made: dict[str, Any]) -> Repro:
    """Writes everything to the folder, the script last."""
    from steadytrain.repro.rising_loss_issue import rising_issue_text

    files, lines = put_down(
        scratch,
        folder,
        lambda text, size: rising_issue_text(made, text, size, subject.symptom, subject.scalars, subject.environment),
    )
    return Repro(True, f"{made['title']}; verified in a fresh process", files, lines, facts=made)


def rising_symptom(symptoms: Sequence[Symptom]) -> Symptom | None:
    """The earliest symptom, critical ones first, for which a script can be made; else the first of all."""
    in_order = sorted(symptoms, key=lambda one: (one.severity != "critical", one.first_step))
    return next((one for one in in_order if declared(one.name).grows), in_order[0] if in_order else None)
