"""The loss trains parameters that no optimizer holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ParametersOutsideOptimizer(ScriptRule):
    """Parameters get a gradient in every backward, and no optimizer holds them: they never move.

    Means:
        The first losses were followed back to the parameters that they fill. These are in the groups of no optimizer
        of the process, and between two looks they did not move. It is a warning if they are all that the loss
        reaches, if some of them stand behind parameters that are trained, if the optimizer holds tensors that the
        model has no more, if two optimizers hold the same parameters, if its groups sort parameters into those with
        and without weight decay, or if they belong to modules in a plain list, tuple or dictionary, which
        `parameters()` does not see. It is a note if only whole parts before the trained ones are left out, or more
        than half of what the loss reaches: a head on features that stay as they are is often made so.

    Causes:
        - a head or a layer that was made, replaced or resized after the optimizer
        - the optimizer got the parameters of a copy: the model was wrapped, copied or moved afterwards
        - the script went on with a new model, such as one made to load a checkpoint
        - the optimizer of one network was made from the parameters of another: `Adam(netD.parameters())` twice
        - a part that is unfrozen in mid-run, while the optimizer was made from what needed a gradient before
        - modules in a plain list, or a filter of names that leaves too much out
        - no fault: a part that is meant to stay, without `requires_grad_(False)`

    Next:
        1. Keep modules in `nn.ModuleList` or `nn.ModuleDict`.
        2. Make the optimizer last, after the model is complete, moved and wrapped.
        3. Compare `{id(p) for p in model.parameters()}` with the parameters of all groups.
        4. Meant to stay: call `requires_grad_(False)` on it, which also saves its gradients.
    """

    left_out_share: float = threshold(
        0.5, "share of the trained elements above which the rest is meant: prompts and heads alone are small. Chosen"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, "outside-optimizer")
        if not rows:
            return ()
        strangers = script_rows(window, "stranger")
        share = max((row.last for row in script_rows(window, "outside-share")), default=0.0)
        behind = any(row.last > 0.0 for row in rows)
        hidden = script_rows(window, "unregistered")
        thawed = script_rows(window, "thawed-outside")
        twins = script_rows(window, "twin-optimizer")
        groups = script_rows(window, "decay-groups")  # who sorts all parameters by name means to train them
        sure = (
            strangers
            or hidden
            or thawed
            or twins
            or groups
            or share >= 1.0
            or (behind and share <= self.left_out_share)
        )
        severity: Severity = "warning" if sure else "note"
        names = tuple(row.place for row in rows)
        which = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more parameters"
        lists = f"; {hidden[0].place} holds modules without registering them" if hidden else ""
        late = "; they were frozen when it took its first step" if thawed else ""
        twice = "; another optimizer holds the same parameters as this one" if twins else ""
        sorted_out = "; its groups sort parameters into those with and without weight decay" if groups else ""
        stale = f"; it holds {len(strangers)} tensors that no module has" if strangers else ""
        return (
            Symptom(
                name="parameters-outside-optimizer",
                severity=severity,
                first_step=int(rows[0].steps[0]),
                last_step=int(window.steps[-1]),
                message=f"{which} ({share:.0%} of what the loss reaches) get a gradient and no optimizer holds them, "
                f"so they stay as they are{lists}{late}{twice}{sorted_out}{stale}",
                signals=("script.value",),
                tensors=names,
                numbers={
                    "share": share,
                    "strangers": float(len(strangers)),
                    "unregistered": float(len(hidden)),
                    "thawed": float(len(thawed)),
                    "twins": float(len(twins)),
                },
            ),
        )
