"""All weights are multiplied by the same factor in each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.common_growth import CommonGrowth, growths


@final
@dataclass(frozen=True)
class ScaledWeights(Detector):
    """Most weight tensors grow or shrink by the same factor in each step, as no gradient moves them.

    Means:
        The norms of the tensors are compared from one reading to the next. Most of them changed by nearly the same
        share, and did so again by the same share: something multiplies the weights. What a gradient does differs from
        tensor to tensor, and slows down. The loss follows later, when the weights have left the range in which the
        model works.

    Causes:
        - weight decay with the wrong sign, or one that is far too large
        - weights that the script itself multiplies in each step: a decay by hand, a normalisation, an average that
          shares its tensors with the model
        - a decay that is applied twice: by the optimizer, and in the loss as a sum over all weights

    Next:
        1. Look for code that writes into parameters (`mul_`, `data`, `copy_`), and print rate times decay.
        2. Train without decay for 200 steps and compare the norms.
    """

    needs: ClassVar[tuple[str, ...]] = ("tensors.weight_norm",)
    spoils_weights: ClassVar[bool] = True
    hasty: ClassVar[bool] = True

    shrinks_min: float = threshold(0.01, "share of their norm that the tensors lose in a step")
    grows_min: float = threshold(
        0.02, "share by which they grow: small nets grow together by up to 0.017 a step in their first 50 steps"
    )
    apart_share: float = threshold(
        0.25, "how far a tensor, and the next reading, may be from the median change, as a share"
    )
    tensors_share: float = threshold(0.7, "tensors that have to be so near to it")
    tensors_min: int = threshold(4, "tensors at least")
    readings_min: int = threshold(2, "changes in a row, each from one reading to the next")
    exact_share: float = threshold(
        0.1,
        "one change is enough if tensors are no farther from the median: in 61 healthy runs of other hands none was",
    )
    exact_tensors_share: float = threshold(0.8, "tensors that have to be so near to it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        stretch: list[CommonGrowth] = []
        longest: list[CommonGrowth] = []
        for one in growths(window, tensors_min=self.tensors_min):
            if stretch and not self._goes_on(stretch[-1], one):
                stretch = []
            if self._is_common(one):
                stretch = [*stretch, one]
            enough = len(stretch) >= self.readings_min or any(self._is_exact(each) for each in stretch)
            if enough and len(stretch) >= len(longest):
                longest = stretch
        return (self._symptom(longest),) if longest else ()

    def _is_common(self, one: CommonGrowth) -> bool:
        fast = one.median >= self.grows_min or one.median <= -self.shrinks_min
        return fast and one.near(self.apart_share) >= self.tensors_share

    def _is_exact(self, one: CommonGrowth) -> bool:
        """Whether one change is enough: it is fast, and the same for nearly all."""
        return abs(one.median) >= self.grows_min and one.near(self.exact_share) >= self.exact_tensors_share

    def _goes_on(self, before: CommonGrowth, one: CommonGrowth) -> bool:
        same = abs(one.median - before.median) <= self.apart_share * abs(before.median)
        return same and one.since == before.until and self._is_common(one)

    def _symptom(self, stretch: list[CommonGrowth]) -> Symptom:
        first, last = stretch[0], stretch[-1]
        rate = sum(one.median for one in stretch) / len(stretch)
        how = "grew" if rate > 0.0 else "shrank"
        total = math.exp(sum(one.median * (one.until - one.since) for one in stretch))
        return Symptom(
            name="scaled-weights",
            severity="warning",
            first_step=first.since,
            last_step=last.until,
            message=f"{last.near(self.apart_share):.0%} of {last.tensors} weight tensors {how} together by "
            f"{abs(math.expm1(rate)):.2g} of their norm in each step from step {first.since} to {last.until}, to "
            f"{total:.3g} times what they were",
            signals=("tensors.weight_norm",),
            numbers={"rate": rate, "tensors": float(last.tensors)},
        )
