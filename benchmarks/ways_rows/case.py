"""What the scripts of the matrix share: the planted fault of each arm, and what a training says of itself.

The arms: ``bare`` and ``healthy`` plant nothing, ``nan`` puts a NaN into one sample or one call of a module, ``rate``
multiplies the learning rate by 1000. Nothing here imports steadytrain.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ARM = os.environ.get("WAYS_ARM", "bare")
RESULT = Path(os.environ.get("WAYS_RESULT", "result.json"))
RATE_FACTOR = 1000.0
WIDE, BATCH, BATCHES = 256, 128, 100


def torchvision_loads() -> tuple[Any, ...]:
    """Lets torchvision be imported: its wheel is built for CUDA, and beside a CPU build of torch its import fails.

    The two operators that the import looks for are declared then, without an implementation: no script calls them.
    Returns what has to stay alive.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return ()
    try:
        for library in Path(found.origin).parent.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return (declared,)
    return ()


DECLARED = torchvision_loads()


def seed() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def rate(value: float) -> float:
    return value * RATE_FACTOR if ARM == "rate" else value


def rows(values: Any, at: int) -> Any:
    """``values`` (an array or a tensor) itself; in the arm ``nan`` the first number of row ``at`` is a NaN."""
    if ARM == "nan":
        values[at].reshape(-1)[0] = float("nan")
    return values


def poison(module: nn.Module, call: int) -> nn.Module:
    """``module``; in the arm ``nan`` its output has a NaN in that call of its training: data are integers there.

    The same input gets it again, so that a second run of the step meets the same fault. Calls without gradients do not
    count: in those a trainer of language models writes its samples.
    """
    calls, met = 0, 0.0

    def planted(inside: nn.Module, given: Any, output: Tensor) -> Tensor | None:
        nonlocal calls, met
        if not inside.training or not torch.is_grad_enabled():
            return None
        calls += 1
        found = float(given[0].detach().double().sum())
        if calls == call:
            met = found
        if calls < call or found != met:
            return None
        output = output.clone()
        output.view(-1)[0] = float("nan")
        return output

    if ARM == "nan":
        module.register_forward_hook(planted)
    return module


def table() -> tuple[Tensor, Tensor]:
    """Inputs and targets of a regression that can be learned: 100 batches of 128 rows of 256 numbers."""
    inputs = torch.randn(BATCHES * BATCH, WIDE)
    targets = inputs[:, :8].sum(dim=1, keepdim=True).tanh() + 0.1 * torch.randn(len(inputs), 1)
    return rows(inputs, 60 * BATCH + 5), targets


def mlp(width: int = 768) -> nn.Sequential:
    """A net whose step takes some tens of milliseconds on one thread."""
    return nn.Sequential(nn.Linear(WIDE, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))


class Log:
    """What the framework itself says: its loss of each step, or only how many steps it made."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.steps: int | None = None
        self.clock: list[float] = []

    def loss(self, value: Any) -> None:
        self.losses.append(float(value.detach() if isinstance(value, Tensor) else value))

    def running_means(self, means: list[float]) -> None:
        """The losses of steps whose means since the beginning of an epoch are given."""
        sums = [place * mean for place, mean in enumerate(means, 1)]
        self.losses += [after - before for before, after in zip([0.0, *sums[:-1]], sums, strict=True)]


@contextmanager
def training(*modules: Any) -> Iterator[Log]:
    """Around the training: measures its CPU time, and writes what became of the weights however it ends."""
    log = Log()
    hooks = [one.register_forward_pre_hook(partial(begins, log)) for one in first_leaf(modules)]
    began = time.process_time()
    try:
        yield log
    finally:
        spent = time.process_time() - began
        for hook in hooks:
            hook.remove()
        named = [(name, value) for module in modules for name, value in weights_of(module)]
        digest = hashlib.sha256()
        for name, value in named:
            digest.update(name.encode() + value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        document = {
            "digest": digest.hexdigest(),
            "finite": all(bool(value.isfinite().all()) for _, value in named if value.is_floating_point()),
            "losses": log.losses,
            "steps": len(log.losses) if log.steps is None else log.steps,
            "cpu_s": round(spent, 3),
            "later_call_cpu_s": round(later(log.clock), 6),
        }
        RESULT.write_text(json.dumps(document), encoding="utf-8")


def first_leaf(modules: tuple[Any, ...]) -> list[nn.Module]:
    """The first module without parts, which trainers call whatever they wrap around it; none if there is none."""
    leaves = (part for one in modules[:1] if isinstance(one, nn.Module) for part in one.modules())
    return [part for part in leaves if not any(part.children())][:1]


def begins(log: Log, module: nn.Module, given: Any) -> None:
    """A call of the net begins."""
    log.clock.append(time.process_time())


def later(clock: list[float]) -> float:
    """CPU time of the process from call to call of the net, in the second half; 0: no call was seen."""
    half = clock[len(clock) // 2 :]
    return (half[-1] - half[0]) / (len(half) - 1) if len(half) > 1 else 0.0


def weights_of(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Parameters by name: a key of the state, or a place among the weights of a framework with its own."""
    if isinstance(module, nn.Module):
        yield from ((name, value.detach().cpu()) for name, value in module.named_parameters())
    else:
        yield from ((str(place), value) for place, value in enumerate(torch.as_tensor(one) for one in module()))
