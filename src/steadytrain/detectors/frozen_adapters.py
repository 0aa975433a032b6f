"""Adapters that are frozen with the model that they were put into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class FrozenAdapters(ScriptRule):
    """All adapters of the model are frozen, while something else is trained.

    Means:
        The model has parameters that are named as those of adapters (LoRA, IA3, adapter layers, soft prompts), and not
        one of them has `requires_grad`. They are put into a model to be trained: frozen, a LoRA adds exactly zero for
        ever, and only a new head learns on fixed features.

    Causes:
        - `requires_grad_(False)` on the whole model after the adapters were put in
        - an adapter that was loaded for inference (`is_trainable=False`, merged or disabled)

    Next:
        1. Freeze the base first, and put the adapters in afterwards.
        2. Count what can be trained: `sum(p.numel() for p in model.parameters() if p.requires_grad)`.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"all {row.last:,.0f} parameters of adapters are frozen, {row.place} first: requires_grad is "
                "False, so they are never trained",
                parameters=row.last,
            )
            for row in script_rows(window, "frozen-adapters")[:1]
        )
