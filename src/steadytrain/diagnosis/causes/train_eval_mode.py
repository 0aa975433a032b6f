"""Dropout and batch norm in the wrong mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import (
    Signs,
    fact,
    first_name,
    holds,
    listed,
    not_finite,
    noted,
    ruled_out,
    seen,
    surveyed,
    symptom,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class TrainEvalMode(Cause):
    """Training runs in evaluation mode, or evaluation or a teacher in training mode.

    Means:
        Training in evaluation mode runs without dropout, and batch norm uses running statistics that nothing updates.
        Evaluation in training mode is random and changes the running statistics, and so is what a teacher gives.

    Causes:
        - `model.eval()` for a validation and no `model.train()` after it
        - `from_pretrained`, which returns evaluation mode, and no `model.train()`; a last test without `model.eval()`
        - functional dropout with its default `training=True`
        - a module replaced after `train()`; a wrapper around another object
        - a teacher, a reference or a reward model without `eval()`: its dropout makes noise of what the model follows

    Next:
        1. `model.train()` at the beginning of each epoch, `model.eval()` before each evaluation.
        2. `F.dropout(x, p, self.training)`.
        3. Two evaluations of one batch must be bit-identical.
    """

    axis = "harness"
    base_rate = 3.0
    expects = like("script", removed=("train-mode",))
    confirming = ("train-mode",)
    spared = ("learning-rate-third", "float32")
    interventions = (
        Intervention(
            "train-mode",
            5,
            "train() before training steps",
            "train-mode",
            code="model.train()  # at the start of each epoch, after evaluation",
        ),
    )
    grade = "A"
    source = "pytorch #1206; documentation of torch.nn.Module.eval"

    def signature(self, case: Case) -> Signature:
        has_second_name = seen(case, "shared-target") is not None  # then the eval() of a reference is that of the model
        return Signature(
            (
                *holds(
                    case,
                    "eval_left_on",
                    HINT if has_second_name else CERTAIN,
                    "eval() was called, and training continued without train()",
                    invariant=True,
                ),
                *(() if has_second_name else _of_symptoms(case)),
                *listed(case, "modules_in_eval", FAIR, "in evaluation mode during training: {names}"),
                *holds(case, "evaluated_in_train_mode", FAIR, "calls without gradient ran in training mode"),
                *holds(
                    case, "dropout_functional", STRONG, "functional dropout draws outside of training", invariant=True
                ),
                *ruled_out(
                    surveyed(case)
                    and noted(case, "noisy-evaluation", "left-in-evaluation", "noisy-teacher") is None
                    and not fact(case, "modules_in_eval")
                    and fact(case, "eval_left_on") is not True
                    and fact(case, "evaluated_in_train_mode") is not True
                    and fact(case, "dropout_functional") is not True,
                    "modules were in the right mode",
                ),
                *ruled_out(
                    has_second_name,
                    "the model that is called without gradients is the trained one under a second name, so its eval() "
                    "is that of both",
                ),
                *ruled_out(
                    not_finite(case) and fact(case, "batch_norm_modules") is None,
                    "dropout makes nothing infinite",
                    "symptoms",
                ),
            ),
            layer=first_name(case, "modules_in_eval"),
        )


def _of_symptoms(case: Case) -> Signs:
    """A warning was seen in the calls themselves; a note leaves room for a purpose."""
    told = symptom(case, CERTAIN, "left-in-evaluation", "noisy-evaluation", invariant=True)
    return told or symptom(case, STRONG, "noisy-teacher", "left-in-evaluation", "noisy-evaluation", notes=True)
