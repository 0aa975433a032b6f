"""Runs a training script unchanged, with one rule of practice applied from outside, and writes down its losses.

    python benchmarks/rules_of_practice.py RULE SEED RESULT.json SCRIPT

A rule is ``none``, ``rate:F`` (learning rate times F), ``clip:N`` (global norm of the gradients at most N),
``clip-usual`` and ``clip-tenth`` (at most the largest norm, or a tenth of the median norm, of the first steps),
``skip`` (no update from a batch whose loss is not finite or an outlier), ``drop:A-B`` (no update in these steps),
``warm`` (a warm-up over 1,000 steps), ``momentum:M``, ``beta2:B``, ``decay:F``, ``epsilon:F``, ``hold:S`` (the
learning rate of step S from then on), or ``dropout:P``. SEED is added to each seed that the script gives to
``torch.manual_seed``. The result has one loss for each call of ``backward``, and the places of those left out.
"""

from __future__ import annotations

import json
import math
import runpy
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

CALM_STEPS = 10
"""Steps whose norms count as usual, and from which on a loss can be an outlier."""

RECENT = 50
OUTLIER = 6.0
"""A loss is an outlier if it lies this many times 1.4826 median absolute deviations above the median of the recent."""

OPTIONS = ("lr", "momentum", "betas", "weight_decay", "eps")
"""What a rule changes for the time of an update, so that the script finds its own values."""

Groups = list[dict[str, Any]]


class Rule:
    """Watches every ``backward`` and every update of the process, and changes what the rule says."""

    def __init__(self, rule: str) -> None:
        self.name, _, self.value = rule.partition(":")
        self.losses: list[float] = []
        self.left_out: list[int] = []
        self.norms: list[float] = []
        self.updates = 0
        self._skips = False
        self._before: Groups = []
        self._held: list[float] = []

    def leaves_out(self, loss: float) -> bool:
        """Whether this step, whose loss is ``loss``, makes no update. Call once a step."""
        step = len(self.losses) + 1
        kept = [value for at, value in enumerate(self.losses) if at not in set(self.left_out)][-RECENT:]
        bad = False
        if self.name == "skip":
            bad = not math.isfinite(loss) or is_outlier(loss, kept)
        elif self.name == "drop":
            first, last = map(int, self.value.split("-"))
            bad = first <= step <= last
        self.losses.append(loss)
        if bad:
            self.left_out.append(step - 1)
        return bad

    def backward(self, theirs: Callable[..., None]) -> Callable[..., None]:
        def watched(tensor: torch.Tensor, *arguments: Any, **options: Any) -> None:
            self._skips = self.leaves_out(float(tensor.detach().float().sum()))
            if not self._skips:
                theirs(tensor, *arguments, **options)

        return watched

    def before_step(self, optimizer: Any, *_: Any) -> None:
        groups: Groups = optimizer.param_groups
        self.updates += 1
        if self._skips:
            for group in groups:
                for parameter in group["params"]:
                    parameter.grad = None
        self._clip([parameter for group in groups for parameter in group["params"] if parameter.grad is not None])
        self._before = [{name: group[name] for name in OPTIONS if name in group} for group in groups]
        if self.name == "hold" and self.updates == int(self.value):
            self._held = [group["lr"] for group in groups]
        for place, group in enumerate(groups):
            self._change(group, place)

    def after_step(self, optimizer: Any, *_: Any) -> None:
        for group, options in zip(optimizer.param_groups, self._before, strict=True):
            group.update(options)

    def _clip(self, parameters: list[torch.nn.Parameter]) -> None:
        if not self.name.startswith("clip") or not parameters:
            return
        limit = float(self.value) if self.value else self._usual_norm()
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit))
        if len(self.norms) < CALM_STEPS and math.isfinite(norm):
            self.norms.append(norm)

    def _usual_norm(self) -> float:
        if len(self.norms) < CALM_STEPS:
            return math.inf
        return max(self.norms) if self.name == "clip-usual" else statistics.median(self.norms) / 10

    def _change(self, group: dict[str, Any], place: int) -> None:
        if self.name == "rate":
            group["lr"] = group["lr"] * float(self.value)
        elif self.name == "warm":
            group["lr"] = group["lr"] * min(1.0, self.updates / 1000)
        elif self.name == "hold" and place < len(self._held):
            group["lr"] = self._held[place]
        elif self.name == "momentum" and "momentum" in group:
            group["momentum"] = float(self.value)
        elif self.name == "momentum" and "betas" in group:
            group["betas"] = (float(self.value), group["betas"][1])
        elif self.name == "beta2" and "betas" in group:
            group["betas"] = (group["betas"][0], float(self.value))
        elif self.name in ("decay", "epsilon"):
            option = "weight_decay" if self.name == "decay" else "eps"
            if option in group:
                group[option] = group[option] * float(self.value)


def is_outlier(loss: float, recent: list[float]) -> bool:
    """Whether a loss lies far above the recent ones."""
    if len(recent) < CALM_STEPS:
        return False
    middle = statistics.median(recent)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in recent)
    return loss > middle + OUTLIER * max(spread, 1e-6 * abs(middle))


def main(rule: str, seed: str, result: str, script: str) -> None:
    own = Rule(rule)
    torch.Tensor.backward = own.backward(torch.Tensor.backward)  # type: ignore[method-assign, assignment]
    register_optimizer_step_pre_hook(own.before_step)
    register_optimizer_step_post_hook(own.after_step)
    theirs = torch.manual_seed
    torch.manual_seed = lambda value: theirs(int(value) + int(seed))  # type: ignore[assignment]
    if own.name == "dropout":
        drop = torch.nn.functional.dropout
        torch.nn.functional.dropout = lambda input, p=0.5, *rest, **options: drop(  # type: ignore[assignment]
            input, min(p, float(own.value)), *rest, **options
        )
    sys.argv = [script]
    sys.path[0] = str(Path(script).parent)
    error = ""
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"[:200]
        if isinstance(raised, SystemExit) and not raised.code:
            error = ""
    Path(result).write_text(
        json.dumps({"losses": own.losses, "left_out": own.left_out, "error": error}), encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
