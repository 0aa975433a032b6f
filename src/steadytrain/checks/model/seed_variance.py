"""How strongly the result depends on the seed."""

from __future__ import annotations

import math
import statistics
import sys
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import nn

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.checks.subject.own_steps import Point, at_peak, few_rows, peak_rate, train
from steadytrain.core.plugins import threshold
from steadytrain.core.torch_private import PARAMETERS

SEEDS = (1, 2, 3)
STEPS_MAX = 200
STEPS_MIN = 30
PROBES_MAX = 4


@final
@dataclass(frozen=True)
class SeedVariance(Check):
    """Short trainings with different seeds end at about the same loss.

    Means:
        The check runs three short trainings with the same settings, each with its own batch order, dropout and, if the
        model can be initialised again, first weights. If one fails, or they end far apart, the settings are barely
        stable: comparing two runs shows little, and a longer run fails by chance.

    Causes:
        - a learning rate near the highest stable one
        - an initialisation with large values, or no normalisation
        - small batches, or a few rows that dominate the gradient

    Next:
        1. Take a third of the learning rate, or warm up for longer, and compare the spread.
        2. Compare changes over several seeds each, never one.
    """

    cost: ClassVar[Cost] = "minutes"
    source: ClassVar[str] = "Mosbach et al. 2021 (2006.04884): unstable fine-tuning; chosen shares"

    spread_share: float = threshold(0.2, "this deviation of the final losses, as a share of the loss reduction, warns")
    failed_times: float = threshold(
        2.0, "a seed that ends this many times above the best, and has learned less than half as much, has failed"
    )
    learned_share: float = threshold(0.8, "a loss below this share of the first has learned")

    def inspect(self, subject: Subject) -> Outcome:
        peak_rate(subject)
        start, batches = Point.take(subject.model), few_rows(subject)
        began = subject.time_left()
        finals: list[float] = []
        steps = STEPS_MAX
        first = 0.0
        for number, seed in enumerate(SEEDS):
            start.restore()
            torch.manual_seed(seed)
            fresh = _initialise_anew(subject.model)
            if number == 0:
                first = self._probe(subject)
            order = torch.randint(len(subject.batches), (steps,), generator=torch.Generator().manual_seed(seed))
            losses: list[float] = []
            optimizer = at_peak(subject)
            for begin in range(0, steps, 10):
                losses += train(subject, optimizer, [batches[place] for place in order[begin : begin + 10]])
                if not math.isfinite(losses[-1]):
                    break
                if number == 0 and len(losses) >= STEPS_MIN and subject.time_left() < began * 2.0 / 3.0:
                    break
            if number == 0:
                if len(losses) < STEPS_MIN and math.isfinite(losses[-1]):
                    return not_run("there was not enough time for three short trainings")
                steps = max(len(losses), STEPS_MIN)
            finals.append(self._probe(subject) if math.isfinite(losses[-1]) else math.inf)
        return self._judged(finals, first, {"steps": steps, "seeds": list(SEEDS), "initialised_anew": fresh})

    def _probe(self, subject: Subject) -> float:
        with torch.no_grad():
            values = [float(subject.loss(batch).detach()) for batch in few_rows(subject)[:PROBES_MAX]]
        return sum(values) / len(values)

    def _judged(self, finals: list[float], first: float, facts: dict[str, Any]) -> Outcome:
        numbers = {"losses": finals, "loss_first": first, **facts}
        finite = [loss for loss in finals if math.isfinite(loss)]
        told = ", ".join(f"{loss:.4g}" for loss in finals)
        if not finite:
            return failed(f"no seed ends with a finite loss after {facts['steps']} steps", **numbers)
        best = min(finite)
        learned = best < self.learned_share * first
        limit = max(self.failed_times * best, (first + best) / 2.0) if learned else sys.float_info.max
        bad = [loss for loss in finals if not loss <= limit]
        if bad:
            return failed(f"{len(bad)} of {len(finals)} seeds fail: they end at {told}", **numbers)
        # Relative to what was learned, because a loss near zero varies by more than its own size in every healthy run.
        scale = max(first - best, best, 1e-9)
        spread = statistics.pstdev(finals) / scale
        numbers["spread_share"] = spread
        if spread > self.spread_share:
            return warned(f"the seeds end far apart, at {told}", **numbers)
        return passed(f"after {facts['steps']} steps the seeds end at {told}", **numbers)


def _initialise_anew(model: nn.Module) -> bool:
    """Initialise with another seed if every module with weights supports it. Returns whether it did."""
    own = [m for m in model.modules() if any(p is not None for p in PARAMETERS.of(m).values())]
    if any(not callable(getattr(module, "reset_parameters", None)) for module in own) or hasattr(model, "config"):
        return False  # loaded weights, or weights from other code, stay
    tied = [id(p) for m in own for p in PARAMETERS.of(m).values() if p is not None]
    if len(tied) != len(set(tied)):
        return False
    for module in own:
        reset: Any = module.reset_parameters
        reset()
    return True
