"""Whether the script clears gradients between its updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.core.plugins import threshold


@final
@dataclass(frozen=True)
class GradientClearing(Check):
    """The script clears the gradients of an update before the next backward.

    Means:
        The first backward of a step found the gradients that the update before had applied, and no later backward of
        that step found them cleared. So each update applies the sum of all batches so far.

    Causes:
        - `optimizer.zero_grad()` is missing, or is called on another optimizer or another model
        - it is called between `backward()` and `optimizer.step()` of another step, or in a branch that is not reached
        - accumulation that clears every few batches, but updates at each of them

    Next:
        1. Call `optimizer.zero_grad()` before the backward of each step.
        2. With accumulation, call both under the same condition.
    """

    updates_min: int = threshold(2, "updates of one of several optimizers, all of which have to hold older gradients")

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "PyTorch documentation of torch.autograd.backward: gradients accumulate in the leaves"

    def inspect(self, subject: Subject) -> Outcome:
        steps: list[dict[str, Any]] = list(subject.observed.get("steps", ()))
        if not steps:
            return not_run("no step of a script was seen; run `steadytrain preflight SCRIPT` for this")
        judged = [step for step in steps if step.get("carried_over") is not None]
        if not judged:
            return not_run("a second update of the same optimizer was not seen")
        carried = [step["step"] for step in judged if step["carried_over"]]
        numbers: dict[str, Any] = {"steps": [step["step"] for step in judged], "carried_over": carried}
        if len(carried) == len(judged):
            return failed(
                f"gradients are not cleared: step {carried[0]} still held those of the step before", **numbers
            )
        for name, own in _by_optimizer(judged).items():
            full = [step["step"] for step in own if step["carried_over"]]
            if full and len(full) == len(own) >= self.updates_min:
                told = f"gradients of {name} are not cleared: each of its {len(full)} updates"
                return failed(f"{told} still held those of its update before, the first at step {full[0]}", **numbers)
        if carried:
            some = f"{len(carried)} of {len(judged)} updates"
            whose = dict.fromkeys(name for name, own in _by_optimizer(judged).items() if _any_carried(own))
            of = f" ({', '.join(whose)})" if any(whose) else ""
            return warned(f"{some}{of} still held the gradients of the update before", **numbers)
        return passed("each update begins with cleared gradients", **numbers)


def _by_optimizer(steps: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The steps of each optimizer, by its name in the script; of two that are called the same with the number."""
    found: dict[str, list[dict[str, Any]]] = {}
    for step in steps:
        found.setdefault(str(step.get("stream", "")), []).append(step)
    names = [str(own[0].get("optimizer", "")) for own in found.values()]
    return {
        name if names.count(name) == 1 else f"{name} {number}".strip(): own
        for number, (name, own) in enumerate(zip(names, found.values(), strict=True), start=1)
    }


def _any_carried(steps: Sequence[dict[str, Any]]) -> bool:
    return any(step["carried_over"] for step in steps)
