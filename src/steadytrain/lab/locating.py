"""Do the failing step again in a new process and say what was found; torch-free, all that runs the script is launched.

With a tape the steps before it are replayed as well (``lab/locate.py``), from a snapshot; without one, or where the
replay cannot be made, the bundle's own state is put before the step (``lab/relaunch.py``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.lab import relaunch
from steadytrain.lab.judgement import Replayed
from steadytrain.lab.moved import NOT_MOVED
from steadytrain.model import Finding
from steadytrain.store.bundle import Bundle
from steadytrain.store.step_look import StepLook
from steadytrain.store.tape import find_recording

MODULE = "steadytrain.lab.locate"
TAPE = "the recorded steps were replayed from a snapshot, the last one under the tracer, in a new process"
LADDER_STEPS = 5
"""Steps of the ladder, the bad one among them."""

LOG_LINES_SHOWN = 5
LEAD_S = 120.0


@dataclass(frozen=True)
class Found:
    """What the new process found. ``replayed`` is None where there was no tape to replay."""

    finding: Finding
    look: StepLook | None
    replayed: Replayed | None
    notes: tuple[str, ...]


def find_again(bundle: Bundle, *, wait_s: float) -> Found:
    """Launch the recorded command again and search the failing step; each launch takes at most ``wait_s`` seconds.

    Raises:
        UsageError: the bundle does not hold what is needed, or the script is gone.
    """
    step = bundle.incident.step
    recording = find_recording(bundle.path)
    starts = [start for start in recording.starts() if start <= step and recording.reaches(start) >= step]
    if not starts:
        return _without_tape(bundle, (), wait_s=wait_s)
    found = _by_replay(bundle, step, wait_s=wait_s)
    if isinstance(found, str):
        return _without_tape(bundle, (f"the tape could not be replayed: {found}",), wait_s=wait_s)
    earlier = found[1]
    if earlier is not None and earlier + 1 < step and earlier + 1 > starts[0]:
        # The weights broke in an update before: the step after that one is where it is looked at.
        again = _by_replay(bundle, earlier + 1, wait_s=wait_s)
        if not isinstance(again, str) and again[0].finding.located is not None:
            return again[0]
    return found[0]


def _by_replay(bundle: Bundle, step: int, *, wait_s: float) -> tuple[Found, int | None] | str:
    folder = relaunch.folder_to_run_in(bundle)
    with tempfile.TemporaryDirectory(prefix="steadytrain-locate-") as scratch:
        result = Path(scratch) / "result.json"
        arguments = [str(bundle.path.absolute()), str(result), NOT_MOVED, str(step), str(LEAD_S)]
        log = result.parent / "output.txt"
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    [sys.executable, "-m", MODULE, *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=wait_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"the launched script took more than {wait_s:.0f} s (--wait-s)"
        if not result.is_file():
            tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LOG_LINES_SHOWN:]
            said = f"; it said: {' | '.join(tail)}" if tail else ""
            return f"the launched script ended with {done.returncode} before its step{said}"
        document: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    if "cannot" in document:
        return str(document["cannot"])
    replayed = Replayed.from_json(document["replayed"])
    found = Found(
        Finding.from_json(document["finding"]),
        StepLook.from_json(document["look"]),
        replayed,
        _replay_notes(replayed, step),
    )
    return found, document["weights_bad_after"]


def _replay_notes(replayed: Replayed, step: int) -> tuple[str, ...]:
    first = replayed.first_difference
    if first is None or first.step >= step:  # the step itself runs eagerly, under the tracer
        return replayed.notes
    different = f"the replay differs from the run at step {first.step} ({first.phase}: {first.tensor}), before the step"
    return (different, *replayed.notes)


def _without_tape(bundle: Bundle, notes: tuple[str, ...], *, wait_s: float) -> Found:
    finding, look = relaunch.locate_again(bundle, wait_s=wait_s)
    return Found(finding, look, None, notes)


def document(path: Path, recorded: Finding, found: Found) -> Mapping[str, Any]:
    """The ``steadytrain.locate/1`` document."""
    look = found.look.to_json() if found.look is not None else {"ladder": None, "float64": None, "compiled": None}
    replayed = found.replayed
    return {
        "schema": "steadytrain.locate/1",
        "incident": str(path),
        **relaunch.best(recorded, found.finding).to_json(),
        "recorded": recorded.to_json(),
        "again": found.finding.to_json(),
        "verdict": relaunch.verdict(recorded, found.finding),
        "replayed": None
        if replayed is None
        else {
            "from_step": replayed.from_step,
            "until_step": replayed.until_step,
            "exact": replayed.first_difference is None or replayed.first_difference.step >= replayed.until_step,
        },
        "step": look.get("step"),
        "ladder": look["ladder"],
        "float64": look["float64"],
        "compiled": look["compiled"],
        "notes": [*(found.look.notes if found.look else ()), *found.notes],
    }
