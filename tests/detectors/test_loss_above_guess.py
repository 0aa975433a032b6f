from __future__ import annotations

import numpy as np

from steadytrain.core.model import Window
from steadytrain.detectors.loss_above_guess import LossAboveGuess
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

AT = (1, 2, 3, 4, 8, 16, 32)


def run(losses: np.ndarray, *, classes: float = 5.0, share: float = 1.0, first_step: int = 1) -> Window:
    """A run whose loss is that of a likelihood; ``share`` of the loss is the cost of a label."""
    rows = {
        "classes:train.py:7": [classes] * len(AT),
        "likelihood:train.py:7": [share * float(losses[at - 1]) for at in AT],
    }
    return steps(loss=losses, first_step=first_step, tables={"script": table("script", at=AT, value=rows)})


AT_STEP = np.arange(200.0)
FALLS_SLOWLY = 90.0 * np.exp(-AT_STEP / 12.0) + 4.0
RISES_AND_STAYS = np.where(AT_STEP < 3, 1.7, 6.0)
HEALTHY = (
    run(90.0 * np.exp(-AT_STEP / 12.0) + 1.0),  # inputs of another scale, which the model gets over
    run(1.7 - AT_STEP / 300.0),
    run(FALLS_SLOWLY, share=0.2),  # five terms, or the sum over a batch
    run(FALLS_SLOWLY, classes=50.0),
    run(FALLS_SLOWLY[:90]),
    run(np.where(AT_STEP % 4 < 3, 1.0, 30.0)),  # rare hard batches
    run(FALLS_SLOWLY, first_step=9000),
    steps(loss=FALLS_SLOWLY),
)
SICK = (run(FALLS_SLOWLY), run(RISES_AND_STAYS), run(1e8 * np.exp(-AT_STEP / 30.0)))


def test_it_says_where_the_loss_began() -> None:
    found = newest(LossAboveGuess(), SICK[0])
    assert found is not None
    assert (found.severity, found.first_step) == ("warning", 1)
    assert "guess among 5 classes costs, 1.609; it began at 94" in found.message


def test_a_rise_in_the_first_steps_is_said() -> None:
    found = newest(LossAboveGuess(), SICK[1])
    assert found is not None
    assert "it began at 1.7 and rose to 6" in found.message


BEGINS_FAR = run(24.0 * np.exp(-AT_STEP / 45.0) + 3.6, classes=260.0)
"""A language model whose output layer is a table of N(0, 1)."""


def test_a_loss_that_begins_far_above_a_guess_and_comes_down_late_is_a_warning() -> None:
    found = newest(LossAboveGuess(), BEGINS_FAR)
    assert found is not None
    assert (found.severity, found.first_step) == ("warning", 1)
    assert "began at 27.6 and was still 8.5" in found.message
    assert found.numbers["initial_loss"] > 3.0 * found.numbers["level"]


def test_few_steps_are_a_note() -> None:
    found = newest(LossAboveGuess(), run(FALLS_SLOWLY[:120]))
    assert found is not None
    assert found.severity == "note"


def test_healthy_runs_and_other_losses_stay_quiet() -> None:
    assert [LossAboveGuess().check(window) for window in HEALTHY] == [()] * len(HEALTHY)
