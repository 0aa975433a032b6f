from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.embedding_gradient_spike import EmbeddingGradientSpike
from steadytrain.testing import newest, steps

COUNT = 512
NOISE = np.exp(0.3 * np.random.default_rng(0).standard_normal((8, COUNT)))
LOSS = 2.0 + 0.04 * np.random.default_rng(1).standard_normal(COUNT)


def window(
    *spikes: int, times: float = 30.0, name: str = "model.embed_tokens.weight", all_of_them: bool = False,
    loss: FloatArray = LOSS, first_step: int = 1,
) -> Window:  # fmt: skip
    norms = {name: NOISE[0].copy(), **{f"layers.{layer}.weight": NOISE[layer].copy() for layer in range(1, 7)}}
    for row in norms.values() if all_of_them else [norms[name]]:
        row[np.array(spikes, int) - 1] *= times
    values = {tensor: row.tolist() for tensor, row in norms.items()}
    return steps(gradient_norms=values, loss=loss, first_step=first_step)


def jump(step: int) -> FloatArray:
    loss = LOSS.copy()
    loss[step - 1] += 2.0
    return loss


HEALTHY = (
    window(),
    window(400),  # once, and nothing came of it
    window(400, 403, all_of_them=True),
    window(400, 403, times=2.0),
    window(30, 33),  # before there is a reference
    window(400, 403, name="model.embed_positions.weight"),
    steps(gradient_norms={"wte.weight": NOISE[0].tolist()}),
)
SICK = (window(400, 403), window(400, loss=jump(405)), window(400, 401, 402, name="transformer.wte.weight"))


def test_quiet() -> None:
    quiet = (HEALTHY[0], *HEALTHY[2:])
    assert [EmbeddingGradientSpike().check(sight) for sight in quiet] == [()] * len(quiet)


def test_one_alone_is_a_note() -> None:
    symptom = newest(EmbeddingGradientSpike(), HEALTHY[1])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("note", 400, 400)


def test_again_within_some_steps() -> None:
    symptom = newest(EmbeddingGradientSpike(), window(400, 403))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 400, 403)
    assert symptom.tensors == ("model.embed_tokens.weight",)
    assert symptom.numbers["ratio"] == pytest.approx(30.0, rel=0.6)


def test_ahead_of_the_loss() -> None:
    symptom = newest(EmbeddingGradientSpike(), window(400, loss=jump(405)))
    assert symptom is not None
    assert symptom.severity == "warning"


def test_far_apart_they_are_two() -> None:
    assert [symptom.first_step for symptom in EmbeddingGradientSpike().check(window(300, 400))] == [300, 400]


def test_skipped_steps_do_not_count() -> None:
    sight = window(400, 403)
    skipped = np.isin(sight.steps, [400, 403])
    assert EmbeddingGradientSpike().check(Window(**{**vars(sight), "skipped": skipped})) == ()
