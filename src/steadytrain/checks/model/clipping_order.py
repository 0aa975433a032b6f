"""Whether gradient clipping is effective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.core.plugins import threshold


@final
@dataclass(frozen=True)
class ClippingOrder(Check):
    """All gradients are clipped once, after backward and after unscaling.

    Means:
        Clipping before backward, or after the update, clips the gradients of another step or none. Clipping scaled
        gradients cuts every one to a tiny norm: the effective learning rate is thousands of times smaller. Clipping
        only some parameters leaves the others to spike.

    Causes:
        - ``clip_grad_norm_`` called before ``loss.backward()``, or in ``training_step`` of Lightning
        - no ``scaler.unscale_(optimizer)`` before clipping
        - parameters of another module, or an exhausted ``model.parameters()`` generator, passed to it

    Next:
        1. The order is: ``backward``, ``scaler.unscale_(optimizer)``, ``clip_grad_norm_``, ``scaler.step(optimizer)``.
        2. Pass all parameters of the optimizer to one call.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "Lightning #9694, #9330; fairseq #4555; nano-world-model PR 22"

    over_share: float = threshold(0.01, "an applied norm this share above the limit was not clipped")
    scaled_times: float = threshold(0.01, "a norm below this share of the clipped one was unscaled after clipping")

    def inspect(self, subject: Subject) -> Outcome:
        steps: list[dict[str, Any]] = list(subject.observed.get("steps", ()))
        if not steps:
            return not_run("no step of a script was seen; run `steadytrain preflight SCRIPT` for this")
        clipped = [step for step in steps if step.get("clips")]
        if not clipped:
            return not_run("the script does not call clip_grad_norm_")
        numbers: dict[str, Any] = {
            "clips": [step["clips"] for step in clipped],
            "limit": clipped[0]["clip_limit"],
            "norm_at_clipping": [step["clip_total"] for step in clipped],
            "norm_applied": [step["applied_norm"] for step in clipped],
            "scaler": subject.scaler is not None,
        }
        judged = [step for step in clipped if step["clip_limit"] and step["applied_norm"] is not None]
        if not judged:
            return not_run("what clipping came to was not seen", **numbers)
        blind = [step for step in judged if step["clip_total"] is None or step["clip_total"] == 0.0]
        over = [step for step in judged if step["applied_norm"] > (1.0 + self.over_share) * step["clip_limit"]]
        scaled = [step for step in judged if self._was_scaled(step)]
        if blind and len(blind) == len(judged):
            return failed("clip_grad_norm_ is called when there are no gradients: before backward, or after", **numbers)
        if scaled:
            left = min(scaled[0]["clip_total"], scaled[0]["clip_limit"])
            return failed(
                f"clipping left a norm of {left:.3g} and {scaled[0]['applied_norm']:.3g} is applied: gradients are "
                "clipped with the scale on them",
                next="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
                **numbers,
            )
        if over:
            return failed(
                f"a norm of {over[0]['applied_norm']:.3g} is applied though the limit is {over[0]['clip_limit']:.3g}",
                **numbers,
            )
        if any(step["clips"] > step["micro_batches"] for step in clipped):
            return warned("gradients are clipped several times in a step: each cuts what the others left", **numbers)
        return passed(f"what is applied is within the limit of {judged[0]['clip_limit']:.3g}", **numbers)

    def _was_scaled(self, step: dict[str, Any]) -> bool:
        total, limit = step["clip_total"], step["clip_limit"]
        if not total or step["applied_norm"] == 0.0:
            return False
        return bool(step["applied_norm"] < self.scaled_times * min(total, limit))
