"""A backward through a graph that was used before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.signs import Signs, enumerated, fact, ruled_out, surveyed
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ReusedGraph(Cause):
    """A backward goes into the graph of an earlier step, or through one that another loss has used.

    Means:
        Something with a graph is carried from one step to the next, so each loss depends on all steps before. Torch
        raises an error: the saved values are freed, or the weights were updated since. With `retain_graph=True` and no
        update in between, time and memory of a step grow without an error.

    Causes:
        - a recurrent state, a memory or a moving average that is not detached between steps
        - a loss that is summed over steps (`total = total + loss`) and used for backward
        - something computed once before the loop, from parameters that train
        - two losses of one step that share a forward, or an optimizer that steps between a forward and its backward

    Next:
        1. Detach what the run's last lines name before the next step reads it.
        2. Compute inside the loop what depends on parameters.
        3. Add the losses of one step and call backward once; call all backwards before the first update.
    """

    axis = "model"
    base_rate = 5.0
    expects = like("script")
    interventions = (
        Intervention(
            "detach-state",
            3,
            "detach what is carried from one step to the next",
            code="state = state.detach()  # for an LSTM: tuple(one.detach() for one in state)",
        ),
        Intervention(
            "one-backward",
            4,
            "add the losses that share a forward, and call backward once before any update",
            code="(loss_1 + loss_2).backward()",
        ),
    )
    grade = "A"
    source = "pytorch #39141; darts #56; snntorch #250"

    def signature(self, case: Case) -> Signature:
        found = fact(case, "reused_graph")
        return Signature(
            (
                *(_told(found) if isinstance(found, Mapping) else ()),
                *ruled_out(surveyed(case) and not found, "no backward failed"),
            ),
        )


def _told(found: Mapping[str, Any]) -> Signs:
    at = f"the backward at {found['line']}" if found.get("line") else "the backward"
    carried, held, updated = (enumerated(found.get(name) or ()) for name in ("carried", "held", "parameters"))
    since = found.get("from_step")
    if carried:
        text = f"{at} goes through {carried} into the graph of an earlier step"
    elif updated:
        text = f"{at} needs {updated} as the forward saw it, and it changed in between"
    else:
        text = f"{at} goes{f' through {held}' if held else ''} into a graph that another backward has used"
    certain = Sign(text, CERTAIN, "fact reused_graph", invariant=True)
    if not carried or not updated:
        return (certain,)
    when = f"since step {since}" if since is not None else "since that graph was built"
    return (certain, Sign(f"{updated} changed {when}", FAIR, "fact reused_graph"))
