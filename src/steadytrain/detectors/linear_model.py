"""Layers without anything nonlinear between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class LinearModel(ScriptRule):
    """All layers of the model follow each other without an activation: together they are one linear layer.

    Means:
        The graph of the loss holds two or more layers and nothing nonlinear between any two of them. Batch norm,
        dropout and average pooling do not change that. However many layers there are, the model can only compute a
        linear function of its inputs. Where that is not enough, the loss stays where it began, as for an exclusive-or,
        and it is a warning; else it is a note. Layers that are narrower than the output are left alone: they are a
        factorisation, which is meant.

    Causes:
        - activations that were made in `__init__` and are not called in `forward`
        - `nn.Sequential` of layers only

    Next:
        1. Put an activation (`torch.relu`, `nn.GELU()`) after each layer but the last.
        2. If a linear model is meant, one layer does the same.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss", "script.value")

    looks_min: int = threshold(2, "looks that find it: the model is made in the same way each time")
    warning_steps: int = threshold(100, "losses from the start before a warning. Chosen")
    kept_share: float = threshold(
        0.8, "of its first losses that the loss keeps, for a warning: a task that a linear model can do is learned"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        report = self.warning if self._stays(window) else self.note
        return tuple(
            report(
                window,
                row,
                f"nothing nonlinear stands between the {row.last:.0f} layers behind the loss of {row.place}: together "
                "they are one linear layer",
                layers=row.last,
            )
            for row in script_rows(window, "linear-layers")
            if len(row.steps) >= self.looks_min
        )[:1]

    def _stays(self, window: Window) -> bool:
        """Whether the loss is still about where it began."""
        loss = window.applied("loss")
        if len(loss) < self.warning_steps or not holds_start(window.steps, stride=stride_of(window.steps)):
            return False
        part = len(loss) // 10
        first, now = median(loss.values[:part]), median(loss.values[-part:])
        return bool(first > 0.0) and now > self.kept_share * first
