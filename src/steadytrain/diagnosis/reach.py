"""What bounds the predictions of a model whose targets cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadytrain.diagnosis.signs import fact, seen

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

AT_FAULT = ("ReLU", "softplus", "tanh")
ACTIVATIONS = ("ReLU", "softplus", "sigmoid", "tanh")


def made_the_predictions(case: Case) -> str:
    """How many targets cannot be reached behind which activation, in words; "" if none is known."""
    found = seen(case, "unreachable-targets")
    is_known = found is not None and any(f"a {name} made the predictions" in found.message for name in ACTIVATIONS)
    return found.message if found is not None and is_known else ""


def is_out_of_scale(case: Case) -> bool:
    """Whether the activation, and not the scale of the targets, is at fault: its only end is 0, it is a tanh, or its
    lower end is 0 and there are targets below."""
    made = made_the_predictions(case)
    if any(f"a {name} made the predictions" in made for name in AT_FAULT):
        return True
    ends = fact(case, "target_range")
    return "a sigmoid made" in made and isinstance(ends, list) and len(ends) == 2 and float(ends[0]) < BELOW


BELOW = -0.05
"""A target of a sigmoid that is clearly negative."""
