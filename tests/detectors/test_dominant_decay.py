from __future__ import annotations

from collections.abc import Sequence

import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.dominant_decay import DominantDecay
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

AT = (1, 9, 17, 25, 33)


def run(
    row: str,
    values: Sequence[float],
    *,
    shrinks: float = 0.02,
    loss: Sequence[float] = (2.0,) * 40,
    at: Sequence[int] = AT,
) -> Window:
    norms = [4.0 * (1.0 - shrinks) ** step for step in at]
    read = table("tensors", at=[*at], weight_norm={"a.weight": norms, "b.weight": norms, "b.bias": [1.0] * len(at)})
    rows = table("script", at=[*at], value={row: [*values]})
    return steps(loss=[*loss], tables={"tensors": read, "script": rows})


HEALTHY = (
    steps(loss=[2.0] * 40),
    run("decay-rate:AdamW", [0.01] * 5),
    run("decay-rate:AdamW", [0.08] * 5, shrinks=0.001),  # the gradient holds the weights
    run("decay-rate:AdamW", [0.08, 0.08, 0.08, 0.0, 0.0]),
    run("decay-pull:Adam", [0.8] * 5),
    run("decay-pull:Adam", [3.0, 3.0, 0.9, 3.0, 3.0]),
    run("decay-pull:Adam", [3.0] * 5, shrinks=0.0),
    run("decay-pull:Adam", [3.0] * 5, loss=[2.0] * 8 + [0.1] * 32),  # learned: the gradient is small
    run("decay-pull:Adam", [3.0] * 5, loss=[2.0] * 10),
)


SICK = (run("decay-rate:AdamW", [0.08] * 5), run("decay-pull:Adam", [16.0] * 5))


def test_quiet() -> None:
    assert [DominantDecay().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


@pytest.mark.parametrize(
    ("row", "value", "says"),
    [
        (
            "decay-rate:AdamW",
            0.08,
            "an update of AdamW removes 0.08 of each weight by its decay, and the median weight",
        ),
        ("decay-pull:Adam", 16.0, "the weight decay inside of Adam is 16 times its gradient, and the median weight"),
    ],
)
def test_decay_that_moves_the_weights(row: str, value: float, says: str) -> None:
    symptom = newest(DominantDecay(), run(row, [value] * 5))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == f"{says} tensor loses 0.02 of its norm in a step"


def test_a_loss_below_zero_does_not_excuse_it() -> None:
    assert DominantDecay().check(run("decay-pull:Adam", [3.0] * 5, loss=[-2.0] * 40))
