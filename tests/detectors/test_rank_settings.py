"""A rank with another rate, scale or setting."""

from __future__ import annotations

from rank_windows import alone, ranked
from steadytrain.core.model import Symptom
from steadytrain.detectors.rank_settings import RankSettings
from steadytrain.testing import newest

HEALTHY = (alone(), ranked(), ranked(rate_apart__1=40, rate__1=0.02, rate__usual=0.01))
SICK = (ranked(rate_apart__1=21, rate__1=0.02, rate__usual=0.01),)


def found(**rows: float) -> Symptom | None:
    return newest(RankSettings(), ranked(**rows))


def test_quiet() -> None:
    assert [RankSettings().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_settings() -> None:
    rate = found(rate_apart__1=21, rate__1=0.02, rate__usual=0.01)
    assert rate is not None
    assert (rate.severity, rate.first_step) == ("warning", 21)
    assert rate.message == "rank 1 trains with learning rate 0.02, rank 0 with 0.01 since step 21"
    decay = found(setting_apart__1=1, setting_apart__1___weight_decay=1, weights_apart__1=2)
    assert decay is not None
    assert decay.severity == "critical"
    assert decay.message == (
        "rank 1 trains with another weight_decay than rank 0 since step 1; its weights differ since step 2"
    )
    assert found(rate_apart__1=40, rate__1=0.02, rate__usual=0.01) is None
    assert found(rate_apart__1=1, wrapped__all=0, gradients_together__all=0) is None  # a sweep


def test_a_loss_scale_is_marked_as_one() -> None:
    rate = found(rate_apart__1=21, rate__1=0.02, rate__usual=0.01)
    scale = found(scale_apart__1=21, scale__1=256.0, scale__usual=1024.0, weights_apart__1=32)
    assert rate is not None
    assert scale is not None
    assert (rate.numbers["of_loss_scale"], scale.numbers["of_loss_scale"]) == (0.0, 1.0)
    assert scale.message == (
        "rank 1 trains with loss scale 256, rank 0 with 1024 since step 21; its weights differ since step 32"
    )


def test_a_rate_that_differs_in_single_steps_counts_once_the_weights_differ() -> None:
    rows = {"rate_first__2": 14, "rate_steps__2": 3, "rate__2": 0.0081, "rate__usual": 0.009, "ranks__all": 4}
    assert found(**rows) is None  # nobody knows that it did anything
    assert found(**rows, weights_apart__2=8) is None  # they differed before
    symptom = found(**rows, weights_apart__2=16)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 14)
    assert symptom.message == (
        "rank 2 trains with learning rate 0.0081, the other ranks with 0.009 in 3 steps since step 14; "
        "its weights differ since step 16"
    )


def test_all_ranks_that_differ_are_named() -> None:
    rows = {"ranks__all": 4, "rate__usual": 0.01}
    two = found(**rows, rate_apart__1=5, rate_apart__3=5, rate__1=0.02, rate__3=0.02)
    assert two is not None
    assert two.message == "ranks 1 and 3 train with learning rate 0.02, the other ranks with 0.01 since step 5"
    each = {f"rate_apart__{rank}": 5 for rank in (1, 2, 3)} | {f"rate__{rank}": 0.01 * 2**rank for rank in (1, 2, 3)}
    every = found(**rows, **each)
    assert every is not None
    assert every.message == (
        "rank 1 trains with learning rate 0.02, rank 2 with 0.04, rank 3 with 0.08, rank 0 with 0.01 since step 5"
    )


def test_a_loss_scale_that_differs_after_the_gradients_follows_from_them() -> None:
    assert found(scale_apart__1=21, scale__1=256.0, scale__usual=1024.0, gradients_apart__1=13) is None
    assert found(scale_apart__1=21, scale__1=256.0, scale__usual=1024.0, gradients_apart__1=21) is not None


def test_a_state_that_one_rank_lost() -> None:
    symptom = found(**{"setting_apart__1": 96, "setting_apart__1___step count": 96, "compared__all": 104})
    assert symptom is not None
    assert symptom.message.startswith(
        "the optimizer state on rank 1 counts other steps than on rank 0: it was lost, or not loaded, since step 96"
    )
