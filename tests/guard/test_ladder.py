"""The ladder's bookkeeping, and the rule for values far above the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steadytrain.core.errors import UsageError
from steadytrain.guard.commands import parse_command
from steadytrain.guard.ladder import YOUNG_STEPS, Ladder
from steadytrain.guard.outliers import outlier
from steadytrain.guard.policy import SKIP, Budget, built_in

STEADY = built_in("steady")


def test_trouble_climbs_rung_by_rung_until_the_ladder_is_spent() -> None:
    ladder, (skip, *rungs) = Ladder(STEADY), STEADY.ladder("divergence")
    assert skip == SKIP  # not climbed: it is repeated
    found = [ladder.climb("divergence", onset=100, step=110 + 20 * at) for at in range(len(rungs) + 1)]
    assert found == [*rungs, None]


def test_trouble_from_the_start_leaves_out_the_first_rung() -> None:
    assert Ladder(STEADY).climb("divergence", onset=YOUNG_STEPS, step=30) == STEADY.ladder("divergence")[2]


def test_what_comes_back_when_it_is_taken_back_gets_the_same_rung_for_longer() -> None:
    ladder = Ladder(STEADY)
    first = ladder.climb("divergence", onset=100, step=110)
    assert not ladder.is_calm(110 + ladder.cool_down - 1)
    assert ladder.is_calm(110 + ladder.cool_down)
    patience = ladder.cool_down
    assert ladder.climb("divergence", onset=330, step=340) == first
    assert ladder.cool_down == 2 * patience


def test_roll_backs_and_skips_have_a_budget() -> None:
    ladder = Ladder(replace(STEADY, budget=Budget(rollbacks=1, skips=2)))
    assert ladder.climb("divergence", onset=100, step=110) is not None
    assert ladder.climb("divergence", onset=100, step=130) is None
    for step in (200, 300):
        assert ladder.may_skip("nonfinite-loss")
        ladder.skipped(step)
    assert not ladder.may_skip("nonfinite-loss")
    assert Ladder(replace(STEADY, ladders={"default": (("clip",),)})).may_skip("divergence") is False


def test_an_outlier_is_far_above_the_last_values() -> None:
    values = 1.0 + 0.01 * np.random.default_rng(0).standard_normal(200)
    assert outlier(values, 5.0)
    assert not outlier(values, 1.03)
    assert not outlier(values[:10], 5.0)
    assert not outlier(np.full(100, 2.0), 2.5)
    assert outlier(np.array([*values, np.nan, np.inf]), 5.0)


@pytest.mark.parametrize(
    ("text", "verb", "name", "settings"),
    [
        ("lr*0.3", "apply", "set-learning-rate", {"factor": 0.3}),
        ("lr = 1e-4", "apply", "set-learning-rate", {"value": 1e-4}),
        ("lr off", "revert", "set-learning-rate", {}),
        ("clip 0.5", "apply", "clip", {"level": 0.5}),
        (
            "apply lower-learning-rate factor=0.5 rewarm=20",
            "apply",
            "lower-learning-rate",
            {"factor": 0.5, "rewarm": 20},
        ),
        ("level full", "level", "full", {}),
    ],
)
def test_a_command(text: str, verb: str, name: str, settings: dict[str, float]) -> None:
    command = parse_command(text)
    assert (command.verb, command.name, dict(command.settings)) == (verb, name, settings)


@pytest.mark.parametrize(
    "text",
    [
        *("", "lr", "lr*x", "lr=-1", "clip", "clip nan", "capture 0", "capture x", "level loud", "apply pray"),
        *("apply clip level", "apply clip height=3", "apply lower-learning-rate factor=7", "stop now", "explode"),
    ],
)
def test_a_wrong_command_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_command(text)
