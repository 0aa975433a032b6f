"""Who watches the training: steadytrain at its levels, habits from tutorials, and other tools.

An arm is attached to a model and an optimizer that are there already, as its documentation says. Its cadences are
those of its documentation; within the benchmark they fall due in every ``LOOK_EVERY``-th and ``RARE_EVERY``-th step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.core.levels import LEVELS

if TYPE_CHECKING:
    import torch

    from cost.case import Case
    from cost.process import Turns

Hook = Callable[[Any], None]


@dataclass
class Subject:
    """What an arm is attached to. ``folder`` is its own and is removed afterwards."""

    case: Case
    model: torch.nn.Module
    optimizer: Any
    folder: Path
    undo: ExitStack


@dataclass
class Attached:
    """An arm in place.

    Args:
        optimizer: stands in for the script's, where the tool wraps it.
        after_backward: called with the loss before clipping.
        before_step: called with the loss after clipping, before the update.
        after_step: called with the loss after the update, before gradients are zeroed.
        loop: trains on every batch of the turns, where the tool has a loop of its own.
        facts: what the arm says of itself at the end.
    """

    optimizer: Any = None
    after_backward: Hook = lambda loss: None
    before_step: Hook = lambda loss: None
    after_step: Hook = lambda loss: None
    loop: Callable[[Turns], None] | None = None
    facts: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True)
class Arm:
    """One column of comparison.

    Args:
        records: in a few words.
        attach: ``module:function`` that takes a :class:`Subject`; imported in the arm's process only.
        look_every, rare_every: its cadences in steps where something more is done; None where it has none.
        against: the arm that it is compared with.
        needs: packages of the bench environment.
    """

    name: str
    records: str
    attach: str
    look_every: int | None = None
    rare_every: int | None = None
    against: str = "bare"
    needs: tuple[str, ...] = ()
    compiles: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("steadytrain")

    def put_on(self, subject: Subject) -> Attached:
        module, _, function = self.attach.partition(":")
        attached: Attached = getattr(import_module(module), function)(subject, **self.options)
        return attached


def _ours(name: str) -> Arm:
    """A level of ours with the cadences that it has: all that it looks at in a look has one."""
    level = LEVELS[name]
    records = "loss and the L2 norm of every gradient every step, "
    if level.tensors_every:
        assert level.weights_every == level.tensors_every == level.modules_every
        records += f"gradients, weights, updates, moments and outputs of modules every {level.tensors_every} steps, "
        records += f"histograms every {level.histograms_every}"
    else:
        records += f"norm of the weights every {level.weights_every}"
    return Arm(
        name=f"steadytrain {name}",
        records=records,
        attach="cost.ours:watch",
        look_every=level.weights_every,
        rare_every=level.histograms_every,
        options={"level": name},
    )


ARMS = {
    arm.name: arm
    for arm in (
        Arm("bare", "the loss, as the script reads it", "cost.peers:nothing"),
        Arm("bare again", "the same: what the measurement can tell apart", "cost.peers:nothing"),
        *(_ours(name) for name in LEVELS),
        Arm("norm().item() loop", "L2 of every gradient, every step", "cost.peers:norm_loop"),
        Arm("detect_anomaly", "NaN in backward, no numbers", "cost.peers:detect_anomaly", compiles=False),
        Arm(
            "TensorBoard histograms",
            "histograms of weights and gradients every 1,000 steps",
            "cost.peers:tensorboard",
            look_every=1000,
            needs=("tensorboard",),
        ),
        Arm(
            "wandb.watch",
            'log="all", offline: histograms of weights and gradients every 1,000 steps',
            "cost.peers:wandb_watch",
            look_every=1000,
            needs=("wandb",),
            compiles=False,
        ),
        Arm(
            "trainscope",
            "gradients, weights, norm of v every step; outputs every 5, histograms of weights every 50",
            "cost.peers:trainscope",
            look_every=5,
            rare_every=50,
            needs=("trainscope",),
            compiles=False,
        ),
        Arm(
            "stabilityguard",
            "L2 of gradients of outputs and parameters, every step",
            "cost.peers:stabilityguard",
            needs=("stabilityguard",),
            compiles=False,
        ),
        Arm(
            "Lightning",
            "its loop without callbacks: the bare step of the next row",
            "cost.lightning_arms:bare",
            needs=("lightning",),
            compiles=False,
        ),
        Arm(
            "Lightning callbacks",
            "grad_norm every step, LearningRateMonitor; logged every 50",
            "cost.lightning_arms:callbacks",
            look_every=50,
            against="Lightning",
            needs=("lightning",),
            compiles=False,
        ),
    )
}

FROM_THE_START = Arm(
    "steadytrain standard from the first step",
    "everything that the level does, in the steps in which it does it",
    "cost.ours:watch_from_the_start",
    options={"level": "standard"},
)
"""For short runs, which have no cadence that their costs could be spread over."""

BARE = ("bare", "bare again")
"""Always there: without them nothing can be compared."""
