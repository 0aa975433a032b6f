"""Properties that this model must keep, whoever changes it.

    pytest examples/preflight_in_tests                  # the assertions
    pytest --steadytrain examples/preflight_in_tests    # and every check of a preflight, one test each

The fixtures come with steadytrain, which is a pytest plug-in.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model import Adder, loss_of, optimizer_of, sums


@pytest.fixture
def training() -> dict[str, Any]:
    torch.manual_seed(0)
    model = Adder()
    batches = [sums(16, seed=seed) for seed in range(4)]
    return {"model": model, "batches": batches, "loss_fn": loss_of, "optimizer": optimizer_of(model)}


def test_it_can_learn_a_few_rows_by_heart(training, steadytrain_assert_overfits_one_batch):
    steadytrain_assert_overfits_one_batch(**training)


def test_it_does_not_see_the_answer(training, steadytrain_assert_causal):
    steadytrain_assert_causal(**training)


def test_rows_do_not_see_each_other(training, steadytrain_assert_no_batch_leak):
    steadytrain_assert_no_batch_leak(**training)


def test_everything_learns(training, steadytrain_assert_gradients_reach_everything):
    steadytrain_assert_gradients_reach_everything(**training)


def test_labels_are_the_next_tokens(training, steadytrain_assert_labels_aligned):
    steadytrain_assert_labels_aligned(**training)


def test_it_goes_on_from_a_checkpoint_as_if_nothing_had_happened(training, steadytrain_assert_resumes_exactly):
    steadytrain_assert_resumes_exactly(**training)


def test_evaluation_is_not_random(training, steadytrain_assert_deterministic_eval):
    steadytrain_assert_deterministic_eval(**training)


def test_the_mean_over_a_micro_batch_is_not_that_over_the_step(training, steadytrain_assert_accumulation_equivalent):
    """Rows differ in length, and ``loss_of`` divides by the tokens of its own rows: do not accumulate with it."""
    with pytest.raises(pytest.fail.Exception, match="differs from that of the whole batch"):
        steadytrain_assert_accumulation_equivalent(**training)


@pytest.mark.steadytrain_preflight
def test_every_check(training, steadytrain_check):
    steadytrain_check(**training)
