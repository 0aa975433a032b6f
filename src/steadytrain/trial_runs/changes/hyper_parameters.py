"""Other hyper-parameters of the optimizer, only for the updates of a trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor
from torch.optim import Optimizer

from steadytrain.trial_runs.changes import LiveChange, at_least, more_than
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class LearningRate(LiveChange):
    """Multiplies the learning rate of every group by ``factor`` (0: no update), only in the first ``updates`` if that
    is above 0."""

    factor: float
    updates: int = 0
    nothing = "the optimizer has no learning rate"

    def check(self) -> None:
        at_least("factor", self.factor, 0.0)
        at_least("updates", self.updates, 0)

    def gate(self, process: Launched) -> None:
        if self.updates and process.trained > self.updates:
            return
        for group in process.rated():
            process.set_group(group, "lr", float(group["lr"]) * self.factor)
            self.touch()


@final
@dataclass
class FixedLearningRate(LiveChange):
    """Sets the learning rate of the first group to ``value``. The other groups keep their ratio to it."""

    value: float
    nothing = "the learning rate has this value already"

    def check(self) -> None:
        more_than("value", self.value, 0.0)

    def gate(self, process: Launched) -> None:
        groups = [*process.rated()]
        first = float(groups[0]["lr"]) if groups else 0.0
        for group in groups:
            value = self.value * float(group["lr"]) / first if first else self.value
            if float(group["lr"]) != value:
                process.set_group(group, "lr", value)
                self.touch()


@final
@dataclass
class RampLearningRate(LiveChange):
    """The learning rate rises linearly from 1/``steps`` of its value to the full value over the first ``steps``
    updates, and
    again after the script loads an optimizer state.
    """

    steps: int

    _since = 0

    def check(self) -> None:
        at_least("steps", self.steps, 2)

    def begin(self, process: Launched) -> None:
        def loaded(optimizer: Optimizer) -> None:
            self._since = process.trained

        for optimizer in process.optimizers:
            optimizer.register_load_state_dict_post_hook(loaded)

    def gate(self, process: Launched) -> None:
        share = min(1.0, (process.trained - self._since) / self.steps)
        for group in process.rated() if share < 1.0 else ():
            process.set_group(group, "lr", float(group["lr"]) * max(share, 1 / self.steps))
            self.touch()


@final
@dataclass
class Beta2(LiveChange):
    """Sets the decay of the second moment to ``value`` where it was higher."""

    value: float
    nothing = "the optimizer has no second moment, or one that decays as fast"

    def check(self) -> None:
        if not 0.0 < self.value < 1.0:
            raise ValueError(f"value {self.value}: must lie between 0 and 1")

    def gate(self, process: Launched) -> None:
        for group in process.groups:
            betas = group.get("betas")
            if isinstance(betas, (tuple, list)) and len(betas) > 1 and float(betas[1]) > self.value:
                process.set_group(group, "betas", (betas[0], self.value, *betas[2:]))
                self.touch()
            elif isinstance(group.get("alpha"), float) and group["alpha"] > self.value:  # RMSprop
                process.set_group(group, "alpha", self.value)
                self.touch()


@final
@dataclass
class Momentum(LiveChange):
    """Sets the momentum, or the decay of Adam's first moment, to ``value`` where it was higher."""

    value: float
    nothing = "the optimizer has no momentum, or a lower one"

    def check(self) -> None:
        at_least("value", self.value, 0.0)

    def gate(self, process: Launched) -> None:
        for group in process.groups:
            betas = group.get("betas")
            if isinstance(betas, (tuple, list)) and betas and float(betas[0]) > self.value:
                process.set_group(group, "betas", (self.value, *betas[1:]))
                self.touch()
            elif isinstance(group.get("momentum"), (int, float)) and group["momentum"] > self.value:
                process.set_group(group, "momentum", self.value)
                self.touch()


USUAL_EPSILON = 1e-8
"""The default of Adam, in place of an epsilon of zero."""


@final
@dataclass
class Epsilon(LiveChange):
    """Multiplies the optimizer's epsilon by ``factor``. If it is zero, it becomes ``factor`` times the usual one; one
    that grows becomes the usual one at least."""

    factor: float
    nothing = "the optimizer has no epsilon"

    def check(self) -> None:
        more_than("factor", self.factor, 0.0)

    def gate(self, process: Launched) -> None:
        for group in process.groups:
            if isinstance(group.get("eps"), (float, int, Tensor)):
                wanted = (float(group["eps"]) or USUAL_EPSILON) * self.factor
                process.set_group(group, "eps", max(wanted, USUAL_EPSILON) if self.factor > 1 else wanted)
                self.touch()


@final
@dataclass
class WeightDecay(LiveChange):
    """Multiplies the weight decay of every group by ``factor`` (0: none)."""

    factor: float
    nothing = "there is no weight decay"

    def check(self) -> None:
        at_least("factor", self.factor, 0.0)

    def gate(self, process: Launched) -> None:
        for group in process.groups:
            if isinstance(group.get("weight_decay"), (float, int)) and group["weight_decay"]:
                process.set_group(group, "weight_decay", group["weight_decay"] * self.factor)
                self.touch()
