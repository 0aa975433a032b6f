"""A tensor that should be changed in place stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.signs import Signs, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class DiscardedChanges(Cause):
    """A line changes a copy, or computes a new tensor, and throws it away: what it means to change stays as it was.

    Means:
        A mask or an index tensor makes a copy of what it takes, and a method without a trailing underscore makes a new
        tensor. A mask of attention is not applied, a state keeps what
        an ended sequence left in it, pruned weights stay: the script goes on as if the line were not there.

    Causes:
        - an in-place method on `x[index]` or `x[mask]`: `zero_`, `fill_`, `mul_`, `clamp_`, `copy_`
        - a result that is not used: `scores.masked_fill(mask, -1e9)`, `torch.clamp(x, 0, 1)`, `table.dropna()`
        - `x.reshape(-1)` or `x.flatten()` of what is not contiguous (transposed, `channels_last`): a copy, no view
        - `x.to(dtype)` or `x.float()` where `x` has another type

    Next:
        1. Print the sum of the tensor before and after the line: it does not change.
        2. Assign to the indexed part: `x[mask] = 0`; write a changed copy back.
        3. Assign a result that is dropped, or call the in-place form: `scores.masked_fill_(mask, -1e9)`.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-high", "learning-rate-too-low")
    expects = like(
        "script",
        removed=("kept-changes",),
        either=("learning-rate-third", "learning-rate-tenth", "clip", "longer-warmup"),
    )
    confirming = ("kept-changes",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "assign-indexed-part",
            4,
            "assign to the indexed part in place of changing its copy",
            code="x[mask] = value  # not x[mask].fill_(value)",
            of=("discarded-changes",),
        ),
        Intervention(
            "take-result",
            4,
            "assign the result that is dropped, or call the form that works in place",
            code="x = x.masked_fill(mask, value)  # or x.masked_fill_(mask, value)",
            of=("dropped-result",),
        ),
        Intervention(
            "write-copy-back",
            4,
            "write the changed copy back, or change the tensor itself",
            "kept-changes",
            code="x.view(-1)[index] = 0  # fails where it would be a copy; or x.copy_(changed.view_as(x))",
            of=("discarded_writes",),
        ),
    )
    grade = "B"
    source = "the documentation of torch on advanced indexing, which copies"

    def signature(self, case: Case) -> Signature:
        thrown = _thrown_away(case)
        return Signature(
            (
                *symptom(case, CERTAIN, "discarded-changes", "dropped-result", invariant=True),
                *thrown,
                *symptom(case, HINT, "divergence", "oscillation", "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "discarded-changes", "dropped-result") is None and not thrown,
                    "no copy is changed in place and thrown away, and no result is dropped",
                ),
            )
        )


def _thrown_away(case: Case) -> Signs:
    found = case.entries("discarded_writes")
    if not found:
        return ()
    first = found[0]
    place, _, code = str(first["line"]).partition(": ")
    copied, _, how = str(first["copy_line"]).partition(": ")
    made = "an index" if first["copied"] in ("__getitem__", "index_select", "masked_select") else f"`{first['copied']}`"
    where = f" at {copied} (`{how}`)" if copied != place else ""
    said = (
        f"{place} (`{code}`) changes a copy that {made} made{where}, and nothing reads it afterwards: what was copied "
        f"is not changed ({first['times']} times in the surveyed steps)"
    )
    return (Sign(said, CERTAIN, "fact discarded_writes", {"step": float(first["step"])}, invariant=True),)
