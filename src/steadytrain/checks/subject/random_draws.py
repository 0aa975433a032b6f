"""Which line draws random numbers in evaluation: a check that compares two calls cannot judge a model that samples."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from steadytrain.checks.subject.inputs import plain_output
from steadytrain.checks.subject.model_calls import difference
from steadytrain.checks.subject.model_check import Batch, Look, Subject, tensors_of
from steadytrain.checks.subject.short_training import evaluating

SAMPLERS = frozenset(
    {
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli"),
        *("multinomial", "poisson", "binomial", "normal_", "uniform_", "bernoulli_", "exponential_", "cauchy_"),
        *("log_normal_", "geometric_", "random_", "gumbel_softmax"),
    }
)
DROPOUTS = frozenset(
    {
        *("dropout", "alpha_dropout", "feature_alpha_dropout", "feature_dropout", "dropout1d", "dropout2d"),
        *("dropout3d", "dropout_", "rrelu"),
    }
)
FRAMES_MAX = 64
ROUNDING_SHARE = 1e-5
_TORCH_FOLDER = str(Path(torch.__file__).parent)
_OWN_FOLDER = str(Path(__file__).parents[2])
_MODULE_FILE = sys.modules[nn.Module.__module__].__file__
"""The file whose functions call a module's forward."""


@dataclass(frozen=True)
class Draw:
    """A call that draws random numbers: ``randn_like`` at ``train.py:12``; ``in_model``: inside a module's forward."""

    function: str
    place: str
    in_model: bool

    @property
    def is_dropout(self) -> bool:
        return self.function in DROPOUTS

    def __str__(self) -> str:
        return f"{self.function}, {self.place}" if self.place else self.function


class DrawWatch(TorchFunctionMode):
    """Records the first call of each random function while the mode is active."""

    def __init__(self) -> None:
        super().__init__()
        self._draws: dict[str, Draw] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in self._draws and (name in SAMPLERS or (name in DROPOUTS and _drops(args, kwargs))):
            self._draws[name] = Draw(name, *_place())
        return func(*args, **kwargs)

    @property
    def draw(self) -> Draw | None:
        """The first draw, a dropout before others: evaluation never needs one."""
        return min(self._draws.values(), key=lambda one: not one.is_dropout, default=None)


def why_not_comparable(subject: Subject, batch: Batch) -> str:
    """Why two equal calls differ in evaluation mode; "" if they do not.

    Raises:
        CannotError: the loss cannot be computed again.
    """
    looks: list[Look] = []
    with evaluating(subject.model), torch.no_grad(), DrawWatch() as watch:
        for seed in (1, 2):
            torch.manual_seed(seed)
            looks.append(subject.look(batch))
    pairs = [[look.loss, *tensors_of([plain_output(look.output)])] for look in looks]
    one, two = ([tensor.detach() for tensor in pair if tensor.is_floating_point()] for pair in pairs)
    worst, largest = difference(one, two)
    if worst <= ROUNDING_SHARE * max(largest, 1e-12):
        return ""
    if watch.draw is None:
        return "two equal calls in evaluation mode differ: see eval-determinism"
    who = "the model draws" if watch.draw.in_model else "the code of the loss draws"
    return f"{who} random numbers in evaluation ({watch.draw})"


def _drops(args: Any, kwargs: Any) -> bool:
    """Whether a functional dropout is on: it is in training, and so by default."""
    share = kwargs.get("p", args[1] if len(args) > 1 else None)
    on = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return bool(on) and share != 0.0


def _place() -> tuple[str, bool]:
    """The innermost line that is neither torch's nor ours, and whether a module's forward is running."""
    frame, place, in_model = sys._getframe(1), "", False
    for _ in range(FRAMES_MAX):
        code = frame.f_code
        if not place and not code.co_filename.startswith((_TORCH_FOLDER, _OWN_FOLDER, "<frozen")):
            place = f"{Path(code.co_filename).name}:{frame.f_lineno}"
        in_model = in_model or code.co_filename == _MODULE_FILE
        if frame.f_back is None:
            break
        frame = frame.f_back
    return place, in_model
