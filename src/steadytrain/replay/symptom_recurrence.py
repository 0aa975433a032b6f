"""Decides whether a symptom of finite values recurred in a replay: its detector checks the replayed steps.

Pure. The recorded window is the input, with the replayed numbers in place of the recorded ones. Detectors that read
tables (weights, updates, module outputs) cannot be checked, because a replay does not measure tables. An exact replay
needs no check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import Detector
from steadytrain.grouping import classified
from steadytrain.grouping.catalog import detector_name, detectors
from steadytrain.grouping.stories import MARGIN_STEPS


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of a replayed step: its scalar signals, and the norm of each gradient by name."""

    scalars: Mapping[str, float | None]
    gradient_norms: Mapping[str, float]


def came_again(symptom: Symptom, recorded: Window, tensors: Window, replayed: Mapping[int, StepNumbers]) -> bool | None:
    """Whether the detector of ``symptom`` raises it again over ``replayed``; None if it cannot be checked.

    Args:
        symptom: the incident's symptom.
        recorded: the scalars that the detector read.
        tensors: the shorter window that also has gradient norms.
        replayed: numbers by step.
    """
    detector = next((one for one in detectors() if detector_name(type(one)) == symptom.name), None)
    if detector is None or not replayed:
        return None
    window = _with(tensors if "gradient_norms" in detector.needs else recorded, replayed)
    if not _can_look(detector, window):
        return None
    first, last = min(replayed), max(replayed)
    return any(
        (seen.severity != "note" or symptom.severity == "note") and seen.last_step >= first and _touches(seen, symptom)
        for seen in (classified(window, found) for found in detector.check(window.slice(0, _rows_until(window, last))))
    )


def _can_look(detector: Detector, window: Window) -> bool:
    """Whether the replay measured everything that the detector reads."""
    return not any(_is_table(need) for need in detector.needs) and any(window.has(need) for need in detector.needs)


def _is_table(need: str) -> bool:
    return "." in need or need == "metrics"


def _touches(seen: Symptom, symptom: Symptom) -> bool:
    margin = MARGIN_STEPS
    return seen.first_step <= symptom.last_step + margin and seen.last_step >= symptom.first_step - margin


def _rows_until(window: Window, step: int) -> int:
    return int(np.searchsorted(window.steps, step, side="right"))


def _with(window: Window, replayed: Mapping[int, StepNumbers]) -> Window:
    """``window`` with the numbers of the replayed steps. Signals that the replay did not measure stay."""
    signals = {name: values.copy() for name, values in window.signals.items()}
    norms = window.gradient_norms.copy()
    column = {name: at for at, name in enumerate(window.tensor_names)}
    for row, step in enumerate(window.steps.tolist()):
        numbers = replayed.get(step)
        if numbers is None:
            continue
        for name, value in numbers.scalars.items():
            if name in signals and value is not None and window.present[name][row]:
                signals[name][row] = value
        for name, norm in numbers.gradient_norms.items():
            if name in column:
                norms[row, column[name]] = norm
    return replace(window, signals=signals, gradient_norms=norms)
