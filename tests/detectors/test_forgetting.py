from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import Series, Window
from steadytrain.detectors.forgetting import Forgetting
from steadytrain.testing import healthy_loss, steps

ROWS, EVERY = 2000, 100
AT = np.arange(EVERY, ROWS + 1, EVERY)
NOISE = np.random.default_rng(0).standard_normal(len(AT))


def window(loss: np.ndarray | None = None, **metrics: np.ndarray) -> Window:
    series = {name.replace("__", "/"): Series(AT[: len(values)], values) for name, values in metrics.items()}
    return steps(loss=healthy_loss(ROWS, decay_steps=1500) if loss is None else loss, metrics=series)


HELD = 0.8 + 0.01 * NOISE
LOST = HELD - np.maximum(0.0, 0.03 * (np.arange(20) - 8))
RISING = 1.5 + 0.02 * NOISE + np.maximum(0.0, 0.05 * (np.arange(20) - 8))

HEALTHY = (
    window(eval_news_accuracy=HELD),
    window(eval_accuracy=LOST, eval_loss=RISING),  # the task itself: overfitting, told elsewhere
    window(eval_news_accuracy=0.8 + 0.1 * NOISE),
    window(eval_news_accuracy=np.append(HELD[:-1], 0.5)),
    window(eval_news_accuracy=LOST[:4]),
    window(eval_news_runtime=40.0 - LOST, eval_news_samples_per_second=LOST),
    window(eval_news_accuracy=np.full(20, np.nan)),
    window(np.linspace(2.0, 3.0, ROWS), eval_news_accuracy=LOST),  # all of it gets worse
)
SICK = (window(eval_news_accuracy=LOST), window(val__code__loss=RISING))


def test_a_score_that_falls() -> None:
    (symptom,) = Forgetting().check(SICK[0])
    assert symptom.first_step == pytest.approx(900, abs=300)
    assert symptom.last_step == 2000
    assert symptom.signals == ("loss", "eval_news_accuracy")


def test_a_loss_that_rises() -> None:
    (symptom,) = Forgetting().check(SICK[1])
    assert symptom.signals == ("loss", "val/code/loss")
    assert symptom.numbers["now"] > 1.1 * symptom.numbers["best"]


def test_only_the_lost_one_of_several() -> None:
    both = window(eval_news_accuracy=LOST, eval_code_accuracy=HELD)
    assert [symptom.signals[1] for symptom in Forgetting().check(both)] == ["eval_news_accuracy"]


def test_a_nan_among_the_evaluations_hides_nothing() -> None:
    broken = LOST.copy()
    broken[[3, 12, 18]] = np.nan
    assert len(Forgetting().check(window(eval_news_accuracy=broken))) == 1
