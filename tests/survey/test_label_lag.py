"""Labels that moved against their inputs, known from the predictions of a model that had learned them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from steadytrain.survey.call_findings import LossCall
from steadytrain.survey.label_lag import agreements, label_lag

ROWS, PLACES, CLASSES = 12, 9, 5


def _call(predicted: Tensor, target: Tensor, *, name: str = "cross_entropy") -> LossCall:
    return LossCall(name, predicted, target, "mean", -100, "any", "train.py:1: loss")


def _frames(seed: int, lag: int, *, wrong: float = 0.0) -> LossCall:
    """Flat labels [rows x places] that are the right ones, ``lag`` places further."""
    chance = torch.Generator().manual_seed(seed)
    track = torch.randint(CLASSES, (ROWS, PLACES + 2), generator=chance)
    guesses = torch.where(torch.rand(ROWS, PLACES, generator=chance) < wrong, (track[:, :PLACES] + 1) % CLASSES, 0)
    guesses = torch.where(guesses > 0, guesses, track[:, :PLACES])
    return _call(one_hot(guesses, CLASSES).float().flatten(0, 1), track[:, lag : lag + PLACES].flatten())


def _seen(here: LossCall, before: LossCall | None = None) -> dict[int, dict[tuple[int, int], float]]:
    earlier = [before or _frames(step, 0) for step in range(3)]
    return {step: agreements(one, ROWS) for step, one in enumerate([*earlier, here], 97)}


def test_labels_one_frame_further_are_found_with_their_dimension() -> None:
    found = label_lag(_seen(_frames(9, 1)), 100)["label_lag"]
    assert (found["dimension"], found["places"]) == (1, -1)
    assert found["aligned"] > 0.99 > 0.5 > found["own"]


def test_targets_of_the_next_row_are_found_too() -> None:
    chance = torch.Generator().manual_seed(0)
    target = torch.randn(40, 1, generator=chance)
    sound, rolled = _call(target + 0.01, target, name="mse_loss"), _call(target.roll(1, 0), target, name="mse_loss")
    seen = {step: agreements(one, 40) for step, one in enumerate([sound, sound, rolled], 98)}
    assert label_lag(seen, 100)["label_lag"]["dimension"] == 0


def test_other_faults_move_no_labels() -> None:
    assert label_lag(_seen(_frames(9, 0)), 100) == {}  # a spike of another origin
    assert label_lag(_seen(_frames(9, 1), before=_frames(8, 0, wrong=0.9)), 100) == {}  # never learned
    chance = torch.Generator().manual_seed(1)
    noise = torch.randint(CLASSES, (ROWS * PLACES,), generator=chance)
    assert label_lag(_seen(_call(_frames(9, 0).input, noise)), 100) == {}  # labels of nothing
    alike = torch.zeros(ROWS * PLACES, dtype=torch.int64)
    assert label_lag(_seen(_call(_frames(9, 0).input, alike)), 100) == {}


def test_what_does_not_compare_is_left_out() -> None:
    assert agreements(_call(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)), 4) == {}
    assert agreements(_call(torch.randn(40, 3), torch.randn(40, 3), name="kl_div"), 40) == {}
