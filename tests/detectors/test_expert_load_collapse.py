from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import GRADIENT_ABSENT, Window
from steadytrain.detectors.expert_load_collapse import ExpertLoadCollapse
from steadytrain.testing import newest, steps

COUNT = 400
AT = np.arange(1, COUNT + 1)


def window(
    alive: int, *, experts: int = 8, seen_share: float = 1.0, since: int = 1, first: float = 1.0, pattern: str = "{}.w1"
) -> Window:
    """Of ``experts`` only ``alive`` have a gradient from step ``since`` on; each is hit in a share of the steps."""
    random = np.random.default_rng(0)
    norms = {}
    for expert in range(experts):
        row = np.where(random.random(COUNT) < seen_share, np.exp(0.3 * random.standard_normal(COUNT)), GRADIENT_ABSENT)
        if expert >= alive:
            row = np.where(since <= AT, GRADIENT_ABSENT, row)
        norms["layers.0.moe.experts." + pattern.format(expert)] = (row * (first if expert == 0 else 1.0)).tolist()
    return steps(gradient_norms={"router.weight": [1.0] * COUNT, **norms}, loss=[2.0] * COUNT)


HEALTHY = (
    window(8),
    window(8, seen_share=0.1),  # small batches
    window(5),
    window(1, experts=2),
    window(8, first=3.0),
    window(1, since=350),  # one stretch is not enough
    window(1, pattern="w1_{}"),  # not known to be experts
    steps(gradient_norms={"a": [1.0] * 200}),
)
SICK = (window(1), window(3), window(1, since=129), window(8, first=40.0))


def test_quiet() -> None:
    assert [ExpertLoadCollapse().check(sight) for sight in HEALTHY] == [()] * len(HEALTHY)


@pytest.mark.parametrize(("alive", "severity"), [(3, "warning"), (2, "critical"), (1, "critical")])
def test_idle_experts(alive: int, severity: str) -> None:
    symptom = newest(ExpertLoadCollapse(), window(alive, seen_share=0.5))
    assert symptom is not None
    assert symptom.severity == severity
    assert symptom.numbers["idle"] == 8 - alive
    assert symptom.tensors[0] == f"layers.0.moe.experts.{alive}"


def test_it_begins_with_the_first_whole_stretch() -> None:
    symptom = newest(ExpertLoadCollapse(), window(1, since=128))
    assert symptom is not None
    assert symptom.first_step == 128


def test_one_that_carries_everything() -> None:
    symptom = newest(ExpertLoadCollapse(), window(8, first=40.0))
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "one of 8 experts had" in symptom.message
