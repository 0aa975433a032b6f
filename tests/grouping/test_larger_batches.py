"""A sum over the rows of a larger batch is larger, and no row is worse."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.harmless import is_by_design
from steadytrain.testing import steps

AT, USUAL = 50, 24


def window(loss: float, rows: float) -> Window:
    """A loss of about 1,000 over 24 rows, and one step with these."""
    number = np.arange(1, 81)
    losses, samples = 1000.0 + 10.0 * np.sin(number), np.full(80, float(USUAL))
    losses[AT - 1], samples[AT - 1] = loss, rows
    return steps(loss=losses, samples=samples)


def spike(name: str = "loss-spike") -> Symptom:
    return Symptom(name, "warning", AT, AT, f"{name} was seen", tensors=())


@pytest.mark.parametrize("name", ["loss-spike", "lost-progress"])
def test_a_batch_of_twenty_times_as_many_rows_explains_twenty_times_the_loss(name: str) -> None:
    assert is_by_design(window(20_000.0, 20.0 * USUAL), spike(name)) == (
        "the loss is a sum over rows, and the batch of step 50 has 20 times as many"
    )


@pytest.mark.parametrize(
    ("loss", "rows"),
    [(20_000.0, USUAL), (60_000.0, 20.0 * USUAL), (2_500.0, 2.0 * USUAL)],
    ids=["as many rows", "each row costs three times as much", "twice as many rows"],
)
def test_others_are_not_explained(loss: float, rows: float) -> None:
    assert is_by_design(window(loss, rows), spike()) == ""


def test_a_gradient_that_grows_with_its_batch_is_explained() -> None:
    number = np.arange(1, 81)
    norms, samples = 5.0 + 0.1 * np.sin(number), np.full(80, float(USUAL))
    norms[AT - 1], samples[AT - 1] = 90.0, 20.0 * USUAL
    seen = steps(gradient_norm=norms, samples=samples)
    assert "20 times as many" in is_by_design(seen, spike("gradient-norm-spike"))


def test_other_symptoms_and_short_runs_are_not() -> None:
    assert is_by_design(window(20_000.0, 20.0 * USUAL), spike("dead-units")) == ""
    short = steps(loss=np.array([1.0, 20.0]), samples=np.array([1.0, 20.0]))
    assert is_by_design(short, Symptom("loss-spike", "warning", 2, 2, "seen", tensors=())) == ""
