from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.attention_entropy_collapse import AttentionEntropyCollapse
from steadytrain.testing import healthy_loss, newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")
FALLING = healthy_loss(600, decay_steps=400)
FLAT = healthy_loss(600, decay_steps=10)
RISING = FLAT + np.where(np.arange(600) > 400, 1.0, 0.0)


def window(*entropies: Sequence[float], loss: FloatArray = FLAT) -> Window:
    rows = {f"h.{layer}.attn": values for layer, values in enumerate(entropies)}
    return steps(loss=loss, tables={"modules": table("modules", at=range(50, 601, 50), attention_entropy=rows)})


USUAL = [3.4, 3.3, 3.0, 2.7, 2.5, 2.0, 1.8, 1.5, 1.2, 1.0, 0.9, 0.8]
COLLAPSED = [3.4, 3.3, 3.0, 2.0, 1.0, 0.3, 0.05, 0.01, 0.0, 0.01, 0.02, 0.0]

HEALTHY = (
    window(USUAL, USUAL),
    window([NAN] * 12),
    window([NAN] * 11 + [0.0]),
    window([0.0] * 12),  # one key only
    window([3.4, 3.3, 0.0, 3.0, 3.0, 0.05, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0]),  # batches of short rows
    window(COLLAPSED, COLLAPSED, loss=FALLING),  # a task that is solved by copying
)
SICK = (window(USUAL, COLLAPSED), window(COLLAPSED, COLLAPSED, loss=RISING))


def test_quiet() -> None:
    assert [AttentionEntropyCollapse().check(sight) for sight in HEALTHY[:5]] == [()] * 5


def test_with_a_falling_loss_it_is_a_note() -> None:
    symptom = newest(AttentionEntropyCollapse(), HEALTHY[5])
    assert symptom is not None
    assert symptom.severity == "note"


def test_one_layer_is_a_warning() -> None:
    symptom = newest(AttentionEntropyCollapse(), window(USUAL, COLLAPSED, USUAL, loss=RISING))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("warning", 350, ("h.1.attn",))


def test_most_layers_and_a_rising_loss_are_critical() -> None:
    symptom = newest(AttentionEntropyCollapse(), window(COLLAPSED, COLLAPSED, USUAL, loss=RISING))
    assert symptom is not None
    assert symptom.severity == "critical"
