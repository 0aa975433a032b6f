"""A target that is the model itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SharedTarget(Cause):
    """The target or reference is the model itself or a shallow copy: it shares its parameters, and moves with every
    update.

    Means:
        `copy.copy` makes a new module around the same tensors. Targets that should stand still between two copies move
        with each update of the model, so a value that is too high raises its own target, and so on. A momentum encoder
        or a reference that is shared does not differ from the model at all.

    Causes:
        - `ref_model = policy`, or `copy.copy(model)`, in place of `copy.deepcopy(model)`
        - a target that was built around the model's own layers

    Next:
        1. `target = copy.deepcopy(model).requires_grad_(False)`.
        2. Check that `target.weight is model.weight` is False for a layer of both.
    """

    axis = "harness"
    base_rate = 2.0
    rivals = ("learning-rate-too-high", "data-shift", "second-moment-lag")
    expects = like("script", removed=("own-parameters",), either=("train-mode",))
    confirming = ("own-parameters",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "deep-copy",
            4,
            "make the target with a deep copy",
            "own-parameters",
            code="target = copy.deepcopy(model).requires_grad_(False)",
        ),
    )
    grade = "B"
    source = "the documentation of Python's copy module; 1312.5602 and 1509.06461 (target networks)"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "shared-target", invariant=True),
                *symptom(case, HINT, "divergence", "lost-progress", "exploding-gradients", "no-learning"),
                *ruled_out(seen(case, "shared-target") is None, "no second module runs on the model's parameters"),
            )
        )
