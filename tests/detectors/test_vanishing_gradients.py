from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import GRADIENT_ABSENT, Window
from steadytrain.detectors.vanishing_gradients import VanishingGradients
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NOISE = np.exp(0.2 * np.random.default_rng(0).standard_normal(400))


def window(
    slope: float, blocks: int = 8, pattern: str = "h.{}.mlp.weight", first_step: int = 1, **others: float
) -> Window:
    """Gradients that shrink by ``slope`` from each block to the one before it."""
    norms = {pattern.format(block): slope ** (blocks - 1 - block) * NOISE for block in range(blocks)}
    norms |= {name.replace("__", "."): value * NOISE for name, value in others.items()}
    return steps(gradient_norms={name: row.tolist() for name, row in norms.items()}, first_step=first_step)


def readings(slope: float, count: int = 8) -> Window:
    rows = {f"{2 * block}.weight": [slope ** (7 - block)] * count for block in range(8)}
    return steps(
        loss=[2.0] * 50 * count,
        tables={"tensors": table("tensors", at=range(50, 50 * count + 1, 50), gradient_norm=rows)},
    )


def starts_at_zero() -> Window:
    norms = {f"h.{block}.weight": NOISE.copy() for block in range(8)}
    norms["h.0.weight"][:40] = 0.0
    return steps(gradient_norms={name: row.tolist() for name, row in norms.items()})


HEALTHY = (
    window(0.9),
    window(1.2),
    window(0.9, wte__weight=1e-6, ln_f__weight=1e-6),
    window(1e-2, blocks=2),
    window(1e-3, pattern="part_{}_x.weight"),  # names that do not count
    window(0.9, pattern="norm{}.weight", layers__0__weight=1.0),
    starts_at_zero(),
    readings(0.9),
    readings(0.1, count=2),
)
SICK = (window(0.25), window(0.0), readings(0.2), window(0.2, pattern="fc{}.weight"))


def test_quiet() -> None:
    assert [VanishingGradients().check(sight) for sight in HEALTHY] == [()] * len(HEALTHY)


@pytest.mark.parametrize(("slope", "severity"), [(0.25, "warning"), (0.1, "critical"), (0.0, "critical")])
def test_vanishing(slope: float, severity: str) -> None:
    symptom = newest(VanishingGradients(), window(slope))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == (severity, 1)
    assert symptom.tensors[0] == "h.0"
    assert symptom.numbers["ratio"] == pytest.approx(slope**7, rel=0.5)


def test_from_readings() -> None:
    symptom = newest(VanishingGradients(), readings(0.2))
    assert symptom is not None
    assert (symptom.first_step, symptom.last_step) == (50, 400)


def test_frozen_blocks_are_no_part_of_the_stack() -> None:
    norms = {f"h.{block}.weight": NOISE.tolist() for block in range(6)}
    norms["h.0.weight"] = [GRADIENT_ABSENT] * 400
    assert newest(VanishingGradients(), steps(gradient_norms=norms)) is None


def test_the_number_tells_the_depth_and_not_the_order() -> None:
    norms = {f"h.{block}.weight": (0.1 ** (7 - block) * NOISE).tolist() for block in reversed(range(8))}
    symptom = newest(VanishingGradients(), steps(gradient_norms=norms))
    assert symptom is not None
    assert symptom.tensors[0] == "h.0"


def test_it_keeps_its_name_as_the_window_slides() -> None:
    looks = [newest(VanishingGradients(), window(0.1, first_step=at)) for at in range(5000, 5200, 16)]
    assert len({symptom.first_step for symptom in looks if symptom is not None}) <= 3
