"""Layers without anything nonlinear between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class LinearModel(ScriptRule):
    """All layers of the model follow each other without an activation: together they are one linear layer.

    Means:
        The graph of the loss holds two or more layers and nothing nonlinear between any two of them. Batch norm,
        dropout and average pooling do not change that. However many layers there are, the model can only compute a
        linear function of its inputs. Where that is not enough, the loss stays high: at that of a guess for an
        exclusive-or. Layers that are narrower than the output are left alone: they are a factorisation, which is
        meant.

    Causes:
        - activations that were made in `__init__` and are not called in `forward`
        - `nn.Sequential` of layers only

    Next:
        1. Put an activation (`torch.relu`, `nn.GELU()`) after each layer but the last.
        2. If a linear model is meant, one layer does the same.
    """

    looks_min: int = threshold(2, "looks that find it: the model is made in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"nothing nonlinear stands between the {row.last:.0f} layers behind the loss of {row.place}: together "
                "they are one linear layer",
                layers=row.last,
            )
            for row in script_rows(window, "linear-layers")
            if len(row.steps) >= self.looks_min
        )[:1]
