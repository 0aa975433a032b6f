"""Which column is what, by its name, and what happens where names do not say."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.errors import UsageError
from steadytrain.logs.column_names import choose, role_of
from steadytrain.logs.log_rows import Column
from steadytrain.logs.reader import Columns

LOSSES = """
    loss | train_loss | train/loss | training_loss | Loss/train | Training_Loss | trainLoss | TrainLoss | lm loss
    loss/train_step | lm_loss | train_loss_step | train/total_loss | avg_loss | nll | ce_loss | cross_entropy
    metrics/train_loss | loss_mean | policy_loss | Train Loss | training loss
"""
NO_LOSSES = """
    eval_loss | val_loss | val/loss | validation/loss | test_loss | Loss/val | valLoss | eval/nll | loss_scale
    loss_weight | lossless | grad_norm | min_loss | loss_ratio | accuracy | perplexity | dev_loss | loss scale
    val loss | best loss
"""


def listed(names: str) -> list[str]:
    return [name.strip() for line in names.strip().splitlines() for name in line.split("|")]


@pytest.mark.parametrize("name", listed(LOSSES))
def test_losses(name: str) -> None:
    assert role_of(name).what == "loss"


@pytest.mark.parametrize("name", listed(NO_LOSSES))
def test_what_is_no_loss_of_training(name: str) -> None:
    assert role_of(name).what != "loss"


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("step", "step global_step Step iteration iter _step current_steps trainer/global_step n_iter num_updates it"),
        ("gradient_norm", "grad_norm gradient_norm gnorm train/grad_norm total_grad_norm grad_2.0_norm_total gradNorm"),
        ("gradient_norm_applied", "grad_norm_clipped grad_norm/after_clip clipped_grad_norm"),
        ("learning_rate", "lr learning_rate train/learning_rate lr-AdamW lr-AdamW/pg1 learning_rate_group0 LR lr_0"),
        ("loss_scale", "loss_scale grad_scale scaler_scale amp_scale"),
        ("parameter_norm", "param_norm weight_norm params_norm"),
        ("step_s", "step_time iter_time_ms sec_per_step dt batch_time step_time_s"),
        ("epoch", "epoch train/epoch Epoch trainer/epoch"),
        ("time", "_timestamp timestamp wall_time"),
        ("planned", "total_steps max_steps"),
        ("run", "run run_id run_name seed rank"),
        ("evaluation", "eval_accuracy val/ppl test_acc eval_runtime"),
        ("other", "grad_norm/layer.0.weight train/weight/h.0 tokens samples_per_second lr_scale_factor step_id_hash"),
    ],
)
def test_other_roles(what: str, names: str) -> None:
    assert {name: role_of(name).what for name in names.split()} == dict.fromkeys(names.split(), what)


def test_milliseconds_become_seconds() -> None:
    assert role_of("step_time_ms").unit == pytest.approx(1e-3)
    assert role_of("elapsed time per iteration (ms)").unit == pytest.approx(1e-3)


def columns(**cells: list[float]) -> dict[str, Column]:
    return {name: Column(np.arange(len(values)), np.array(values)) for name, values in cells.items()}


def test_the_loss_that_says_training_alone_is_taken() -> None:
    held = columns(step=[1, 2], loss=[2, 1], eval_loss=[2, 1], aux_loss=[0, 1], policy_loss=[1, 2])
    assert choose(held, Columns(), where="log").signals["loss"] == "loss"


def test_two_equally_good_losses_are_not_guessed() -> None:
    with pytest.raises(UsageError, match=r"2 columns .* \(loss, train_loss\); name one, as in --loss 'loss'"):
        choose(columns(step=[1, 2], loss=[2, 1], train_loss=[3, 1]), Columns(), where="log")
    assert (
        choose(columns(step=[1, 2], loss=[2, 1], train_loss=[2, 1]), Columns(), where="log").signals["loss"] == "loss"
    )


def test_a_sparse_namesake_is_no_rival() -> None:
    held = columns(step=[1, 2, 3, 4], loss=[2, 1, 1, 1], train_loss=[3])
    assert choose(held, Columns(), where="log").signals["loss"] == "loss"


def test_a_column_that_is_not_there_names_those_that_are_near() -> None:
    held = columns(step=[1, 2], train_los=[2, 1])
    with pytest.raises(UsageError, match=r"--loss 'train_loss': no such column with numbers; did you mean train_los\?"):
        choose(held, Columns(loss="train_loss"), where="log")
    with pytest.raises(UsageError, match="--step 'zzz': no such column with numbers; it has: step, loss"):
        choose(columns(step=[1, 2], loss=[1, 2]), Columns(step="zzz"), where="log")


def test_a_log_without_a_loss_says_what_it_has() -> None:
    with pytest.raises(UsageError, match=r"no column looks like a training loss; name it with --loss \(it has: a, b\)"):
        choose(columns(a=[1, 2], b=[1, 2]), Columns(), where="log")


def test_the_training_s_own_count_is_the_step() -> None:
    held = columns(loss=[2, 1], _step=[0, 1], **{"trainer/global_step": [10, 20]})
    assert choose(held, Columns(), where="log").steps == ("trainer/global_step",)
    # A column that does not move counts nothing.
    assert choose(columns(loss=[2, 1], step=[7, 7], iter=[1, 2]), Columns(), where="log").steps == ("iter",)
