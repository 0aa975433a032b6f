"""A cut between the loss and the parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.script_signs import gets_rounding_alone, holds_others
from steadytrain.diagnosis.signs import (
    enumerated,
    equivalence,
    fact,
    first_name,
    listed,
    measured,
    not_finite,
    ruled_out,
    seen,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class DetachedGraph(Cause):
    """The graph is cut: a gradient that should reach parameters does not, or not all of it.

    Means:
        A `detach`, a `.data`, a trip through NumPy or `torch.tensor(x)`, or a block under `no_grad` ends backward
        there. The layers before it get no gradient and keep their first weights; the rest learns around them.

    Causes:
        - `detach` or `.item()` on something that is still needed
        - an encoder that is called under `torch.no_grad`
        - a gate that is divided by its own sum, which is 1 whatever the router says
        - a code or an action that is drawn with `.sample()` in place of `.rsample()`
        - a gradient penalty, or a differential equation, without `create_graph=True`
        - a reentrant checkpoint behind a frozen embedding: none of its inputs needs a gradient
        - a cast of the output that makes a new tensor (Automodel PR 1527); a recomputation without
          `use_reentrant=False`

    Next:
        1. Go to the named line and remove the cut.
        2. Assert after backward that every trainable parameter has a gradient.
        3. If the cut is intended, freeze these parameters and leave them out of the optimizer.
    """

    axis = "model"
    base_rate = 6.0
    rivals = ("frozen-parameters", "parameters-not-in-optimizer", "learning-rate-too-low", "dead-units")
    expects = like("script", either=("reattach",))
    confirming = ("reattach",)
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "rsample",
            2,
            "draw with rsample(), which passes gradients to mean and deviation",
            code="action = distribution.rsample()  # in place of sample()",
            of=("cut-sample",),
        ),
        Intervention(
            "reattach",
            5,
            "let gradients pass where the graph is cut",
            "reattach",
            code="# leave out .detach(), .data, .item() and torch.no_grad() on the line that is named",
        ),
    )
    grade = "A"
    source = "Automodel PR 1527; Liger #968; trl #3926"

    def signature(self, case: Case) -> Signature:
        lost = fact(case, "parameters_without_gradient")
        # Intended if no optimizer updates them: a target network, a frozen encoder.
        orphaned = set(lost or ()) <= set(fact(case, "parameters_not_in_optimizer") or ())
        behind = fact(case, "parameters_cut_off") or ()
        blocked = _inside(lost or (), fact(case, "no_grad_calls"), fact(case, "modules_output_detached"))
        moves = measured(case, "cut_off_moves_output")
        # The output depends on these parameters, but no gradient reaches them.
        contradicted = bool(behind) and moves > MOVES_MIN
        unused = bool(behind) and moves <= MOVES_MIN and not blocked
        told = f"no gradient reaches {enumerated(behind or blocked)}, while it reaches all others"
        fades = seen(case, "read-padding") is not None  # over the places of padding, which a recurrent net goes through
        sure = not fades and (_is_cut(case, by=CHECKPOINT) or gets_rounding_alone(case))
        beside = f"; a change of one hundredth changes the output by {moves:.2g} of it" if contradicted else ""
        return Signature(
            (
                *(symptom(case, CERTAIN, "frozen-parameters", invariant=True) if sure else ()),
                *equivalence(
                    when(contradicted, CERTAIN, told + beside, "fact parameters_cut_off", invariant=True, moves=moves)
                ),
                *when(
                    bool(behind or blocked) and not orphaned and not contradicted,
                    HINT if unused else CERTAIN,
                    f"{told}; the output does not depend on them" if unused else told,
                    "fact parameters_without_gradient",
                    invariant=not unused,
                ),
                *listed(case, "detached_calls", FAIR, "the graph is cut at {names}"),
                *listed(case, "no_grad_calls", FAIR, "called under no_grad in training: {names}"),
                *listed(case, "modules_output_detached", HINT, "their output requires no gradient: {names}"),
                *(() if sure else symptom(case, STRONG if _is_cut(case) else HINT, "frozen-parameters")),
                *symptom(case, HINT if holds_others(case) else CERTAIN, "optimizer-without-gradients"),
                *symptom(case, CERTAIN, "constant-penalty", "cut-sample", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    surveyed(case)
                    and not (lost or gets_rounding_alone(case))
                    and seen(case, "optimizer-without-gradients") is None
                    and seen(case, "constant-penalty", "cut-sample") is None,
                    "a gradient reaches every trainable parameter",
                ),
                *ruled_out(
                    seen(case, "cleared-gradients") is not None,
                    "gradients reached the parameters, and the script cleared them",
                    "symptoms",
                ),
                *ruled_out(not_finite(case), "a cut makes nothing infinite", "symptoms"),
            ),
            layer=first_name(case, "parameters_without_gradient"),
        )


def _is_cut(case: Case, *, by: float | None = None) -> bool:
    """Whether the run itself saw a module that is called in every step and that no backward reaches, and which way."""
    found = seen(case, "frozen-parameters")
    return found is not None and "cut" in found.numbers and by in (None, found.numbers["cut"])


def _inside(names: Iterable[str], *modules: Any) -> list[str]:
    """The parameters inside one of the modules."""
    prefixes = tuple(f"{module}." for listed_modules in modules for module in listed_modules or ())
    return [name for name in names if prefixes and name.startswith(prefixes)]


MOVES_MIN = 1e-5
"""Relative change of the output: above float32 rounding."""

CHECKPOINT = 4.0
"""The number ``cut`` of frozen-parameters for a reentrant checkpoint of which no input needs a gradient."""
