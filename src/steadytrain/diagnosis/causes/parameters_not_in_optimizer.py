"""Parameters that no optimizer updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.script_signs import holds_others, trains_another_model
from steadytrain.diagnosis.signs import (
    Signs,
    above,
    fact,
    first_name,
    listed,
    measured,
    not_finite,
    quiet,
    ruled_out,
    seen,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.core.model import Symptom
    from steadytrain.experiments.case import Case


@final
class ParametersNotInOptimizer(Cause):
    """Trainable parameters with gradients are in no optimizer.

    Means:
        Backward fills their gradients, but no step uses them. The rest learns around them, so the loss falls and then
        stops early. Every trainable parameter must be in exactly one group.

    Causes:
        - a head or a layer that was made after the optimizer, or replaced (`resize_token_embeddings`)
        - modules in a plain list or dictionary
        - parameters of a copy: the model was wrapped or moved after the optimizer got them

    Next:
        1. Create the optimizer last, from `model.parameters()`.
        2. Compare the set of ids: model against all groups.
        3. Add the named parameters as a group and check that the loss falls.
    """

    axis = "optimizer"
    base_rate = 6.0
    rivals = ("frozen-parameters",)
    expects = like("script", removed=("optimize-all",))
    confirming = ("optimize-all",)
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "optimize-all",
            5,
            "give the optimizer all trainable parameters",
            "optimize-all",
            code="optimizer = AdamW(p for p in model.parameters() if p.requires_grad)",
        ),
        Intervention(
            "register-modules",
            5,
            "keep modules in nn.ModuleList or nn.ModuleDict, so that the optimizer gets them",
            code="self.layers = nn.ModuleList(layers)  # in place of a plain list",
            of=("parameters_not_in_optimizer", "modules_in_a_list"),
        ),
    )
    grade = "A"
    source = "transformers #42489; trl #3089; unsloth #1282"

    def signature(self, case: Case) -> Signature:
        # Passing only a head to the optimizer is a way to freeze the rest.
        meant = quiet(case)
        told = seen(case, "parameters-outside-optimizer")
        return Signature(
            (
                *listed(
                    case,
                    "parameters_not_in_optimizer",
                    STRONG if meant else CERTAIN,
                    "trainable and in no optimizer: {names} ({count})",
                    invariant=not meant,
                ),
                *above(
                    case,
                    "optimizer_strangers",
                    0.0,
                    STRONG,
                    "{value} parameters of the optimizer have no gradient and belong to no module that was called",
                    invariant=True,
                ),
                *_left_out(case),  # says more than the symptom, so it stands first
                *symptom(case, CERTAIN, "parameters-outside-optimizer", invariant=True),
                *symptom(case, HINT, "frozen-parameters", "no-learning", "plateau"),
                *ruled_out(
                    surveyed(case)
                    and told is None
                    and not holds_others(case)
                    and not fact(case, "parameters_not_in_optimizer")
                    and not measured(case, "optimizer_strangers") > 0,
                    "every trainable parameter is in the optimizer",
                ),
                *ruled_out(not_finite(case), "an unused parameter makes nothing infinite", "symptoms"),
            ),
            layer=first_name(case, "parameters_not_in_optimizer"),
        )


def _replaced(told: Symptom | None, stale: float) -> str:
    named = told.tensors[0] if told is not None and told.tensors else "a parameter"
    more = f" and {len(told.tensors) - 1} more were" if told is not None and len(told.tensors) > 1 else " was"
    held = "a tensor" if stale == 1 else f"{stale:.0f} tensors"
    return (
        f"{named}{more} put in the place of what the optimizer holds: it still updates {held} that no module has any "
        "more, so what is new is never updated"
    )


def _left_out(case: Case) -> Signs:
    """Signs of what the run saw: which parameters the optimizer has, and which the loss reaches."""
    told = seen(case, "parameters-outside-optimizer")
    stale = told.numbers.get("strangers", 0.0) if told is not None else 0.0
    late = told is not None and told.numbers.get("thawed", 0.0) > 0.0
    hidden = told is not None and told.numbers.get("unregistered", 0.0) > 0.0
    texts = (
        (stale > 0, _replaced(told, stale)),
        (trains_another_model(case), "all that the loss reaches is in no optimizer: the optimizer holds another model"),
        (
            late,
            "parameters that were frozen when the optimizer was made need a gradient now, and it does not hold them",
        ),
    )
    known = tuple(sign for holds, text in texts for sign in when(holds, CERTAIN, text, "symptoms", invariant=True))
    listed_modules = "a module holds other modules in a plain list or dictionary, which `parameters()` does not see"
    known += when(hidden, CERTAIN, listed_modules, "symptoms", invariant=True, modules_in_a_list=1.0)
    others = "the optimizer holds parameters without gradients, and none of those that the loss reaches"
    return (*known, *when(holds_others(case), CERTAIN, others, "symptoms"))
