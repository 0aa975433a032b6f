"""Windows and detectors that the tests of judging share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.detectors import Detector
from steadytrain.testing import healthy_loss

LOSS = healthy_loss(1500, decay_steps=60)


def saw(
    name: str = "loss-spike",
    first: int = 1000,
    last: int | None = None,
    *,
    severity: Severity = "warning",
    signals: tuple[str, ...] = ("loss",),
) -> Symptom:
    return Symptom(name, severity, first, first if last is None else last, f"{name} at {first}", signals)


@final
@dataclass(frozen=True)
class Sees(Detector):
    """Sees what it is told to see."""

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    symptoms: tuple[Symptom, ...] = ()

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return self.symptoms


def changed(first: int, change: np.ndarray | list[float]) -> np.ndarray:
    """The healthy loss with ``change`` added from step ``first`` on."""
    loss = LOSS.copy()
    loss[first - 1 : first - 1 + len(change)] += change
    return loss


AFTER_1000 = 501
