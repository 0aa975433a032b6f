"""Statistics of the optimizer's state that separate a healthy state from a broken one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

LAG_TOLD, BELOW_EPSILON = 2.0, 0.1
FAR_STEP, FADED = 10.0, 1e-18
"""Times the rate: with the usual betas Adam moves a weight by 3.2 times it, (1 - beta1) / sqrt(1 - beta2), at most.
Below the second number squares round to zero in float32."""

STEP_MAX = 1e300
"""In place of infinity, which no JSON holds."""

SAMPLED_ELEMENTS = 1 << 18
LISTED_MAX = 64


@dataclass
class MomentFacts:
    """Sums over all parameters with optimizer state."""

    counts: list[float] = field(default_factory=list)
    dtypes: Counter[str] = field(default_factory=Counter)
    wrong: set[str] = field(default_factory=set)
    lags: dict[str, float] = field(default_factory=dict)
    correlations: list[float] = field(default_factory=list)
    epsilon_lost: bool = False
    below: int = 0
    faded: dict[str, float] = field(default_factory=dict)
    total: int = 0
    dot: float = 0.0
    first_norm: float = 0.0
    gradient_norm: float = 0.0

    def add(self, name: str, parameter: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]) -> None:
        """Adds the state of one parameter at the gate, where its gradient exists."""
        if "step" in state:
            self.counts.append(float(state["step"]))
        for value in state.values():
            if isinstance(value, Tensor) and value.dim() > 0:
                self.dtypes[str(value.dtype).removeprefix("torch.")] += 1
                if value.shape != parameter.shape and value.numel() == parameter.numel():
                    self.wrong.add(name)
        second, first, gradient = state.get("exp_avg_sq"), state.get("exp_avg"), parameter.grad
        if not isinstance(second, Tensor) or gradient is None or second.shape != gradient.shape:
            return
        values = gradient.float()
        self._add_second(name, second, values, group)
        if isinstance(first, Tensor) and first.shape == values.shape:
            self._add_faded(name, first.float(), second.float(), group)
            self.dot += float((first.float() * values).sum())
            self.first_norm += float(first.float().square().sum())
            self.gradient_norm += float(values.square().sum())

    def _add_second(self, name: str, second: Tensor, values: Tensor, group: Mapping[str, Any]) -> None:
        epsilon = float(group.get("eps", 0.0))
        self.epsilon_lost |= epsilon > 0 and float(torch.tensor(epsilon, dtype=second.dtype)) == 0.0
        beta = float(group["betas"][1])
        corrected = second.float() / (1 - beta ** max(1.0, self.counts[-1] if self.counts else 1.0))
        self.below += int((corrected.sqrt() < BELOW_EPSILON * epsilon).sum())
        self.total += corrected.numel()
        lag = math.sqrt(float((values.square() / corrected.clamp(min=epsilon**2 or 1e-30)).mean()))
        if lag > LAG_TOLD:
            self.lags[name] = lag
        if values.dim() > 1:
            found = _correlation(corrected.flatten(), values.square().flatten())
            self.correlations += [found] if found is not None else []

    def _add_faded(self, name: str, first: Tensor, second: Tensor, group: Mapping[str, Any]) -> None:
        """Where squares of small gradients rounded to zero: the largest update there, in learning rates."""
        count = max(1.0, self.counts[-1] if self.counts else 1.0)
        one, two = (1 - float(beta) ** count for beta in group["betas"])
        root = (second / two).sqrt()
        steps = (first.abs() / one / (root + float(group.get("eps", 0.0))))[(root < FADED) & (first != 0)]
        largest = float(steps.max()) if steps.numel() else 0.0
        if largest > FAR_STEP:
            self.faded[name] = min(largest, STEP_MAX)

    def facts(self) -> dict[str, Any]:
        """The facts by name."""
        facts: dict[str, Any] = {}
        if self.counts:
            facts["state_step"] = [int(min(self.counts)), int(max(self.counts))]
        facts["state_dtypes"], facts["state_shapes_wrong"] = dict(self.dtypes), sorted(self.wrong)
        if self.total:
            lags = self.lags
            facts["epsilon_lost"], facts["second_moment_below_epsilon"] = self.epsilon_lost, self.below / self.total
            facts["second_moment_lag"] = {n: lags[n] for n in sorted(lags, key=lags.__getitem__)[-LISTED_MAX:]}
        if self.faded:
            facts["update_beyond_rate"] = dict(sorted(self.faded.items(), key=lambda one: -one[1])[:LISTED_MAX])
        if self.first_norm > 0 and self.gradient_norm > 0:
            facts["moment_alignment"] = self.dot / math.sqrt(self.first_norm * self.gradient_norm)
        if self.correlations:
            facts["second_moment_correlation"] = min(self.correlations)
        return facts


def _correlation(one: Tensor, other: Tensor) -> float | None:
    """The Pearson correlation of the logarithms, over elements where both are positive."""
    if one.numel() > SAMPLED_ELEMENTS:
        one, other = one[:SAMPLED_ELEMENTS], other[:SAMPLED_ELEMENTS]
    here = (one > 0) & (other > 0) & one.isfinite() & other.isfinite()
    if int(here.sum()) < 32:
        return None
    a, b = one[here].double().log(), other[here].double().log()
    a, b = a - a.mean(), b - b.mean()
    scale = float(a.norm() * b.norm())
    return float((a * b).sum()) / scale if scale > 0 else None
