"""Jumps of the optimizer's settings, after which the loss rose: an update is not as it was, and the setting says why.

Read are the rate, momentum, decay of the second moment and weight decay of every group, as the script sets them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.statistics.medians import median

if TYPE_CHECKING:
    from steadytrain.capture.step.optimizer_streams import Stream

RATE_RATIO = 12.0
"""No usual schedule raises a rate so far above any that it had (``learning-rate-jump``)."""

MEMORY_RATIO, SQUARES_RATIO, DECAY_RATIO = 4.0, 10.0, 10.0
"""How many times as many steps a first and a second moment remember; how many times as large a weight decay is.
A cycle of the momentum between 0.85 and 0.95 changes the memory by a factor of 3."""

FORCE_RATIO = 50.0
"""How many times as far momentum carries an update of the same gradient, rate included, for which no rise of the loss
is waited for: it takes as many steps as the momentum remembers to show."""

SPAN_STEPS = 128
"""A rate that creeps up is compared with the highest from so many steps before. A jump is judged for as long."""

BEFORE_MIN, BEFORE_STEPS = 32, 64
ROSE = ((16, 0.95), (32, 0.7))
"""The median of so many last losses lies above this share of those before the jump. With no change that happens once
in two million times and once in a hundred, and only after a jump is it asked."""

READ = {
    "lr": "learning rate",
    "momentum": "momentum",
    "beta1": "decay of the first moment",
    "beta2": "decay of the second moment",
    "alpha": "decay of the second moment",
    "weight_decay": "weight decay",
}


@dataclass(frozen=True)
class SettingJump:
    """The setting ``name`` of a group is from ``step`` on what it never was. ``is_sure``: it can only do harm."""

    step: int
    name: str
    group: int
    before: float
    now: float
    is_sure: bool = False


@dataclass(frozen=True)
class Harm:
    """What a jump at step ``first`` does. ``is_sure``: it is not seen yet."""

    first: int
    why: str
    is_sure: bool = False


def settings_of(group: Mapping[str, Any]) -> dict[str, float]:
    """The settings of a group that are read, by the names of ``READ``."""
    found = {name: group[name] for name in ("lr", "momentum", "alpha", "weight_decay") if group.get(name) is not None}
    betas = group.get("betas")
    if isinstance(betas, (list, tuple)) and len(betas) >= 2:
        found |= {"beta1": betas[0], "beta2": betas[1]}
    return {name: float(value) for name, value in found.items()}


def highest_of(settings: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Of each setting the largest of all groups."""
    found: dict[str, float] = {}
    for one in settings:
        found |= {name: max(value, found.get(name, value)) for name, value in one.items()}
    return found


def is_on_accelerator(group: Mapping[str, Any]) -> bool:
    """Whether a setting is a tensor there, of which each reading would wait for the device."""
    values = [group.get(name) for name in READ] + list(group.get("betas") or ())
    devices = (getattr(value, "device", None) for value in values)  # plain numbers have none
    return any(device is not None and device.type != "cpu" for device in devices)


def has_jumped(name: str, before: float, now: float) -> bool:
    """Whether an update is far larger, or remembers for far longer, than with the setting from before."""
    if name == "lr":
        return now >= RATE_RATIO * before > 0
    if name == "weight_decay":
        return now > before and now >= DECAY_RATIO * before
    if before >= 1 or now <= before:
        return False
    return now >= 1 or 1 - before >= (SQUARES_RATIO if name in ("beta2", "alpha") else MEMORY_RATIO) * (1 - now)


def force(settings: Mapping[str, float]) -> float:
    """How far the updates from one gradient go in all, over the gradient; 0 without momentum."""
    momentum = settings.get("momentum", 0.0)
    if momentum <= 0:
        return 0.0
    return settings.get("lr", 0.0) / (1 - momentum) if momentum < 1 else np.inf


def _is_far(before: float, now: float) -> bool:
    return 0 < FORCE_RATIO * before <= now * (1 + 1e-9)  # 0.1 / (1 - 0.998) is a little less than 50


class SettingJumps:
    """Follows the groups of one run."""

    def __init__(self) -> None:
        self._last: dict[int, dict[str, float]] = {}
        self._highest: dict[int, deque[float]] = {}
        self._jump: SettingJump | None = None

    def look(self, step: int, groups: Iterable[Mapping[str, Any]]) -> None:
        """The settings of the update of ``step``, as the script has set them."""
        now = {id(group): settings_of(group) for group in groups if not is_on_accelerator(group)}
        others = highest_of(self._last[group] for group in now if group in self._last)
        for place, (group, settings) in enumerate(now.items()):
            new = self._new(step, place, group, settings, self._last.get(group) or others)
            if new is not None and (self._jump is None or step - self._jump.step > SPAN_STEPS):
                self._jump = new
        self._last = now

    def _new(
        self, step: int, place: int, group: int, settings: Mapping[str, float], last: Mapping[str, float]
    ) -> SettingJump | None:
        """The jump of a group against its ``last`` settings; those of the others, if it is new beside them."""
        for name, value in settings.items():
            before = last.get(name, value)
            if group not in self._last and name == "weight_decay" and not before:
                continue  # groups with and without a decay are usual
            if name != "lr" and value != before and has_jumped(name, before, value):
                return SettingJump(step, name, place, before, value, _is_far(force(last), force(settings)))
        if group not in self._last and has_jumped("lr", last.get("lr", 0.0), settings.get("lr", 0.0)):
            return SettingJump(step, "lr", place, last["lr"], settings["lr"])
        return self._rate(step, place, group, settings) if "lr" in settings else None

    def _rate(self, step: int, place: int, group: int, settings: Mapping[str, float]) -> SettingJump | None:
        highest = self._highest.setdefault(group, deque(maxlen=SPAN_STEPS + 1))
        rate, found = settings["lr"], None
        if highest:
            others = max(one.get("lr", 0.0) for one in self._last.values())
            before = highest[-1] or others  # a group that was frozen gets a rate like those of the others
            slowly = len(highest) > SPAN_STEPS and has_jumped("lr", highest[0], rate)
            if has_jumped("lr", before, rate):
                found = SettingJump(step, "lr", place, highest[-1], rate)
            elif slowly:
                since = sum(one > highest[0] for one in highest)
                found = SettingJump(step - since, "lr", place, highest[0], rate)
        highest.append(max(rate, highest[-1]) if highest else rate)
        return found

    def near(self, onset: int) -> int:
        """The step of a jump not long before ``onset``, which is then where the trouble began; else ``onset``."""
        jump = self._jump
        return jump.step if jump is not None and 0 <= onset - jump.step <= SPAN_STEPS else onset

    def harm(self, stream: Stream) -> Harm | None:
        """The harm if the loss stands above its range from before a jump, or will. Each jump is reported once."""
        jump = self._jump
        if jump is None or stream.step - jump.step > 2 * SPAN_STEPS:
            return None
        changed = f"from {jump.before:.4g} to {jump.now:.4g} at step {jump.step}"
        went = f"the {READ[jump.name]} of group {jump.group} went {changed}"
        if jump.is_sure:
            self._jump = None
            return Harm(jump.step, f"{went}, and the rate not down with it", is_sure=True)
        losses = stream.history.window().applied("loss")
        before, since = losses.values[losses.steps < jump.step], losses.values[losses.steps >= jump.step]
        if not rose(before, since):
            return None
        self._jump = None
        level, now = median(before[-BEFORE_STEPS:]), median(since[-ROSE[0][0] :])
        return Harm(jump.step, f"{went}, and the loss from {level:.4g} to {now:.4g}")

    def answered(self) -> None:
        """A rung was made: the jump is no news any more."""
        self._jump = None


def rose(before: NDArray[np.float64], since: NDArray[np.float64]) -> bool:
    """Whether the last losses stand above those before. Shapes ``(steps,)``, oldest first."""
    before = before[-BEFORE_STEPS:]
    return len(before) >= BEFORE_MIN and any(
        len(since) >= steps and median(since[-steps:]) > float(np.quantile(before, share)) for steps, share in ROSE
    )
