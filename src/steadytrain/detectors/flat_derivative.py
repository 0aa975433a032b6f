"""A second derivative of a model that has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class FlatDerivative(ScriptRule):
    """The loss uses a second derivative of a model that is linear in pieces: it is zero.

    Means:
        The script takes a derivative of a derivative, as a differential equation needs it, and the only activations
        behind the loss are ReLUs or others that are made of straight pieces. The second derivative of such a model is
        zero wherever it exists: the term teaches nothing, and the equation is solved without it.

    Causes:
        - a physics-informed network with `nn.ReLU` or `nn.LeakyReLU`

    Next:
        1. Use an activation with derivatives of all orders: `torch.tanh`, `torch.sin`, `nn.SiLU()`.
        2. Print the largest value of the second derivative.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks that find it: the loss is made in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        flat = [row for row in script_rows(window, "piecewise-derivatives") if len(row.steps) >= self.looks_min]
        if not flat:
            return ()
        return tuple(
            self.warning(
                window,
                row,
                f"{row.place} takes a second derivative of a model whose only activations are straight pieces (ReLU): "
                "it is zero",
            )
            for row in script_rows(window, "second-derivative")[:1]
        )
