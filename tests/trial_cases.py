"""Cases for trials, made by hand: no run, no file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import Change, Entry, Outcome, ProbeSeen, Spec, StepSeen

CALM = [2.0, 2.01, 1.99, 2.0, 2.0, 2.0]
"""Training losses from the step 86 on: nothing happens."""
SPIKE = [2.0, 2.01, 1.99, 9.0, 4.0, 3.0]
"""A spike at the step 90."""
FLAT = [2.0, 2.0, 2.01, 2.0, 2.0]
"""Probes of a model that nothing harms."""
HURT = [2.0, 2.0, 2.01, 2.8, 2.8]
"""Probes of a model that the spike harmed."""


def window(losses: list[float], **signals: float) -> Window:
    count = len(losses)
    values = {"loss": np.array(losses)} | {name: np.full(count, value) for name, value in signals.items()}
    return Window(
        steps=np.arange(1, count + 1),
        time=np.arange(count, dtype=float),
        signals=values,
        present={name: np.ones(count, bool) for name in values},
        skipped=np.zeros(count, bool),
        refused=np.zeros(count, bool),
    )


def finite_case(**changed: Any) -> Case:
    """A loss spike at step 90 of 100, with snapshots after the steps 1, 33 and 81."""
    symptom = Symptom("loss-spike", "warning", 90, 92, "a spike", tensors=("layers.1.weight",))
    noisy = [2.0 + 0.01 * (-1) ** step for step in range(100)]
    fields: dict[str, Any] = {
        "path": Path("incident"),
        "symptom": symptom,
        "symptoms": (symptom,),
        "onset": 90,
        "step": 92,
        "window": window(noisy, learning_rate=1e-3, gradient_norm=0.5),
        "environment": {},
        "begins": (1, 33, 81),
        "taped": ((1, 100),),
        "step_s": 0.01,
    }
    return Case(**{**fields, **changed})


def made(
    name: str,
    losses: Sequence[float],
    probes: Sequence[float],
    *,
    changes: tuple[Change, ...] = (),
    begin: int = 86,
    **more: Any,
) -> Outcome:
    """An outcome with these losses of steps after ``begin``, and a probe before each of the first ones and at the
    end."""
    schedule: list[Entry] = []
    seen: list[StepSeen] = []
    probed: list[ProbeSeen] = []
    for place, loss in enumerate(losses):
        if place < len(probes) - 1:
            probed.append(ProbeSeen(len(schedule), 5, probes[place]))
            schedule.append(Entry(5, "probe"))
        seen.append(StepSeen(len(schedule), loss, 1.0, math.isfinite(loss)))
        schedule.append(Entry(begin + 1 + place))
    if probes:
        probed.append(ProbeSeen(len(schedule), 5, probes[-1]))
        schedule.append(Entry(5, "probe"))
    outcome = Outcome(Spec(name, 0, begin, tuple(schedule), changes), True, steps=tuple(seen), probes=tuple(probed))
    return replace(outcome, **more)
