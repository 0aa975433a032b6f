"""What bounds the predictions of a model whose targets cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadytrain.diagnosis.signs import seen

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

ONE_END = ("ReLU", "softplus")
ACTIVATIONS = ("ReLU", "softplus", "sigmoid", "tanh")


def made_the_predictions(case: Case) -> str:
    """How many targets cannot be reached behind which activation, in words; "" if none is known."""
    found = seen(case, "unreachable-targets")
    is_known = found is not None and any(f"a {name} made the predictions" in found.message for name in ACTIVATIONS)
    return found.message if found is not None and is_known else ""


def bounded_from_below(case: Case) -> bool:
    """Whether the activation has one end, at 0: then no scale brings targets of both signs into its reach."""
    return any(f"a {name} made the predictions" in made_the_predictions(case) for name in ONE_END)
