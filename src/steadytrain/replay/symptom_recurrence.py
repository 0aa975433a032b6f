"""Whether a symptom of finite values came again in a replay: the detector that raised it looks at the replayed steps.

Pure: the recorded window goes in, with the numbers of the replayed steps in the place of those that were recorded. A
detector that reads tables (weights, updates, outputs of modules) cannot look, because a replay does not measure them;
where the replay was exact that is no matter, and nobody asks here.
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
    """What a replayed step gave: its scalar signals, and the norm of each gradient by name."""

    scalars: Mapping[str, float | None]
    gradient_norms: Mapping[str, float]


def came_again(symptom: Symptom, recorded: Window, tensors: Window, replayed: Mapping[int, StepNumbers]) -> bool | None:
    """Whether the detector of ``symptom`` raises it over ``replayed`` too; None where it cannot look.

    Args:
        symptom: as the incident has it.
        recorded: the scalars that the detector saw.
        tensors: the shorter window that has gradient norms as well.
        replayed: by step.
    """
    detector = next((one for one in detectors() if detector_name(type(one)) == symptom.name), None)
    if detector is None or not replayed:
        return None
    window = _with(tensors if "gradient_norms" in detector.needs else recorded, replayed)
    if not _can_look(detector, window):
        return None
    first, last = min(replayed), max(replayed)
    return any(
        seen.severity != "note" and seen.last_step >= first and _touches(seen, symptom)
        for seen in (classified(window, found) for found in detector.check(window.slice(0, _rows_until(window, last))))
    )


def _can_look(detector: Detector, window: Window) -> bool:
    """Whether all that it reads was measured in the replay as well."""
    return not any(_is_table(need) for need in detector.needs) and any(window.has(need) for need in detector.needs)


def _is_table(need: str) -> bool:
    return "." in need or need == "metrics"


def _touches(seen: Symptom, symptom: Symptom) -> bool:
    margin = MARGIN_STEPS
    return seen.first_step <= symptom.last_step + margin and seen.last_step >= symptom.first_step - margin


def _rows_until(window: Window, step: int) -> int:
    return int(np.searchsorted(window.steps, step, side="right"))


def _with(window: Window, replayed: Mapping[int, StepNumbers]) -> Window:
    """``window`` with the numbers of the replayed steps; what was measured of them in other ways stays."""
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
