"""Which parameters decay, and how strongly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.core.plugins import threshold

COUPLED = ("Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop")
NAMES_SHOWN = 3


@final
@dataclass(frozen=True)
class WeightDecayGroups(Check):
    """Weight decay applies to matrices, not to norms and biases, and is not so strong that it undoes learning.

    Means:
        The check reads the optimizer's parameter groups. Decay on norm gains and biases pulls them to 0 and does little
        else; decay on them but not on matrices means that the two groups are swapped. A decay that removes a tenth of
        each weight per step leaves nothing to learn.

    Causes:
        - one group for all parameters, with a strong decay
        - the groups with and without decay swapped
        - Adam's `weight_decay`, an L2 term inside the moments, in place of AdamW
        - a decay meant for another scale of the learning rate

    Next:
        1. Make two groups: parameters with two or more dimensions decay, all others do not.
        2. Use AdamW for a decay outside the moments.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "Loshchilov & Hutter 2019 (decoupled decay); minGPT's groups"

    strong: float = threshold(0.05, "decay of norms and biases from which the check warns")
    step_share: float = threshold(0.05, "learning rate x decay: a share of each weight lost in every step; fails")

    def inspect(self, subject: Subject) -> Outcome:
        if not subject.optimizers:
            return not_run("no optimizer was given")
        names = {id(p): name for name, p in subject.model.named_parameters()}
        decayed_vectors: list[str] = []
        matrices = {True: 0, False: 0}
        vectors = {True: 0, False: 0}
        strongest = fastest = 0.0
        for optimizer in subject.optimizers:
            coupled = type(optimizer).__name__ in COUPLED and not optimizer.defaults.get("decoupled_weight_decay")
            for group in optimizer.param_groups:
                decay = float(group.get("weight_decay") or 0.0)
                rate = float(group.get("initial_lr", group.get("lr", 0.0)))
                if decay < 0.0:
                    return failed(f"a weight decay of {decay:g} makes weights grow", weight_decay=decay)
                strongest = max(strongest, decay)
                fastest = max(fastest, 0.0 if coupled else rate * decay)
                for parameter in group["params"]:
                    kind = matrices if parameter.dim() >= 2 else vectors
                    kind[decay > 0.0] += 1
                    if parameter.dim() < 2 and decay >= self.strong:
                        decayed_vectors.append(names.get(id(parameter), "?"))
        numbers: dict[str, Any] = {
            "weight_decay": strongest,
            "share_lost_each_step": fastest,
            "matrices_decayed": matrices[True],
            "matrices_not_decayed": matrices[False],
            "vectors_decayed": vectors[True],
            "vectors_not_decayed": vectors[False],
        }
        kinds = ", ".join(sorted({type(optimizer).__name__ for optimizer in subject.optimizers}))
        if strongest == 0.0:
            return passed(f"{kinds} without weight decay", **numbers)
        if fastest > self.step_share:
            return failed(f"every step takes {fastest:.0%} of each weight (learning rate x decay)", **numbers)
        if matrices[False] and not matrices[True] and vectors[True]:
            return failed("norms and biases decay and no matrix does: the groups are exchanged", **numbers)
        if any(type(o).__name__ in COUPLED and _decays(o) and not _decoupled(o) for o in subject.optimizers):
            return warned(
                f"{kinds} with weight_decay {strongest:g}: an L2 term inside the moments, no decay of the weights",
                next="Take AdamW if decoupled decay is meant.",
                **numbers,
            )
        if decayed_vectors:
            shown = ", ".join(decayed_vectors[:NAMES_SHOWN])
            text = f"{len(decayed_vectors)} norms and biases decay by {strongest:g}: {shown}"
            return warned(text, **numbers)
        return passed(f"{kinds}, weight decay {strongest:g}: {matrices[True]} matrices", **numbers)


def _decays(optimizer: object) -> bool:
    return any(float(group.get("weight_decay") or 0.0) >= 1e-3 for group in optimizer.param_groups)  # type: ignore[attr-defined]


def _decoupled(optimizer: object) -> bool:
    return bool(optimizer.defaults.get("decoupled_weight_decay"))  # type: ignore[attr-defined]
