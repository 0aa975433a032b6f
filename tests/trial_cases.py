"""Cases for trials, made by hand: no run, no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.experiments.case import Case


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
