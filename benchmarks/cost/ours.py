"""steadytrain at one of its levels, with its cadences drawn together so that they fall due within the benchmark."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from cost.accounting import Accounting
from cost.arms import Attached, Subject
from cost.case import LOOK_EVERY, RARE_EVERY

FILLED_STEPS = 2048
"""Steps that are put on record after the timed ones: what recording costs when files are cut and detectors look at full
windows."""

DETECTIONS = 5


def watch(subject: Subject, *, level: str) -> Attached:
    from steadytrain.core import levels

    levels.LEVELS[level] = drawn_together(levels.LEVELS[level])
    return _watched(subject, level)


def watch_from_the_start(subject: Subject, *, level: str) -> Attached:
    """With the cadences that the level has, more often in a young run."""
    return _watched(subject, level)


def _watched(subject: Subject, level: str) -> Attached:
    import steadytrain

    accounting = Accounting()
    watched = subject.undo.enter_context(
        steadytrain.watch(subject.model, subject.optimizer, level=level, runs_dir=subject.folder, to=("none",))
    )

    def facts() -> dict[str, Any]:
        held = watched.memory_bytes
        own = accounting.by_step()
        return {"held_bytes": held, "own": own, "long_run": long_run(watched), "warnings": warnings_of(watched)}

    # The step of the script ends with the last of ours: what comes after belongs to the next.
    return Attached(after_step=lambda loss: None, facts=facts, before_step=lambda loss: None)


def drawn_together(level: Any) -> Any:
    """``level`` with every cadence of several steps replaced by one of two that fall due soon."""
    return replace(
        level,
        weights_every=LOOK_EVERY if level.weights_every > 1 else 1,
        tensors_every=_soon(level.tensors_every),
        modules_every=_soon(level.modules_every),
        histograms_every=RARE_EVERY if level.histograms_every else None,
    )


def _soon(every: int | None) -> int | None:
    return LOOK_EVERY if every is not None and every > 1 else every


def warnings_of(watched: Any) -> list[str]:
    return list(watched._watcher.guard.warnings)


def long_run(watched: Any) -> dict[str, float]:
    """Milliseconds a step of recording, and of the detectors on full windows, in a run of many steps."""
    from steadytrain.capture.step.gate import Measurement
    from steadytrain.detection.detector_schedule import LOOK_STEPS

    watcher = watched._watcher
    stream, recorder = watcher.streams[0], watcher.recorder
    window = stream.history.recent()
    scalars = {
        name: float(values[-1]) for name, values in window.signals.items() if len(values) and window.present[name][-1]
    }
    norms, first = window.gradient_norms[-1].copy(), int(window.steps[-1]) + 1
    from steadytrain.storage.segments import StepRecord

    started = time.perf_counter()
    for step in range(first, first + FILLED_STEPS):
        # Small waves, so that no detector takes the series for constant.
        wave = 1.0 + 0.01 * ((step * 7919) % 13 - 6) / 6
        values = {name: value * wave for name, value in scalars.items()}
        record = StepRecord(step=step, time=float(step), scalars=values, gradient_norms=norms * wave)
        recorder.commit(stream, Measurement((values.get("loss", 1.0),), record, stream.tensor_names, (), False, 1.0))
    commit_ms = (time.perf_counter() - started) / FILLED_STEPS * 1000
    started = time.perf_counter()
    for _ in range(DETECTIONS):
        recorder.detect(stream)
    detect_ms = (time.perf_counter() - started) / DETECTIONS * 1000
    return {"recorder": commit_ms, "detectors": detect_ms / LOOK_STEPS, "one detection": detect_ms}
