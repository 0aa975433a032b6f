"""Records which methods of torch the script calls between two updates, and in which order.

The wrapped methods stay wrapped: the process serves the survey only.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, IterableDataset, Subset
from torch.utils.data.sampler import BatchSampler, SequentialSampler

LOADERS_MAX, ORDER_ROWS_MAX = 8, 4096
PLANNED_FIELDS = ("T_max", "total_steps", "total_iters")  # T_0 is no end: a restart follows


@dataclass
class Loop:
    """Counts since the start of the survey, over all optimizers."""

    zero_grads: int = 0
    backwards: int = 0
    own_backwards: int = 0
    updates: int = 0
    scheduler_steps: int = 0
    schedulers: list[Any] = field(default_factory=list)
    scheduler_first: bool | None = None
    clips: int = 0
    clip_value: float | None = None
    clip_coefficients: list[float] = field(default_factory=list)
    clip_before_unscale: bool = False
    clip_before_backward: bool = False
    rescaled: bool = False
    scaler_used: bool = False
    scaler_scale: float | None = None
    unscaled: bool = False
    backward_in_autocast: bool = False
    optimizer_in_autocast: bool = False
    carried_over: bool = False
    left_over: bool = False
    empty_updates: int = 0
    loaded_model: bool = False
    loaded_optimizer: bool = False
    evals: int = 0
    trains: int = 0
    since_update: int = 0
    skips: int = 0
    loaders: list[Any] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def backward(self, count: int, *, own: bool) -> None:
        """An update of the surveyed optimizer (``own``) or of another one came after so many backward passes."""
        self.backwards += count
        self.own_backwards += count * own

    def backwards_of(self, updates: int) -> float:
        """The backward passes of each of the surveyed optimizer's ``updates``. Those of another optimizer count only
        where it has none of its own: both may step after one backward."""
        return (self.own_backwards or self.backwards) / max(1, updates)

    def forget(self) -> None:
        """What was counted so far belongs to a training before this one."""
        self.backwards = self.own_backwards = self.zero_grads = self.clips = 0

    def watch(self) -> None:
        """Wraps the methods that the script may call."""
        for owner in (Optimizer, nn.Module):
            self._wrap(owner, "zero_grad", self._zeroed)
        self._wrap(nn.Module, "load_state_dict", self._model_loaded)
        self._wrap(Optimizer, "load_state_dict", self._optimizer_loaded)
        self._wrap(nn.Module, "train", self._mode)
        scaler = torch.amp.GradScaler
        self._wrap(scaler, "scale", self._scaled)
        self._wrap(scaler, "unscale_", self._unscaled)
        for place in (torch.nn.utils, torch.nn.utils.clip_grad):
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                self._wrap(place, name, self._clipped)
        self._wrap(DataLoader, "__iter__", self._loader_begins)
        self.watch_schedulers()

    def watch_schedulers(self) -> None:
        """Wraps ``step`` of every scheduler class that exists. A call from within torch counts once."""
        waiting: list[type] = [LRScheduler, ReduceLROnPlateau]
        while waiting:
            one = waiting.pop()
            waiting += one.__subclasses__()
            if "step" in vars(one) and not hasattr(vars(one)["step"], "surveyed"):
                self._wrap(one, "step", self._scheduled)

    def backward_begins(self, gradients_there: bool) -> None:
        first = self.updates > 0 and self.since_update == 0
        # Gradients count as left over until a backward finds them cleared. Another optimizer's backward may come
        # between.
        self.left_over = gradients_there and (first or self.left_over)
        self.since_update += 1
        self.backward_in_autocast |= _autocast_on()

    def update_begins(self, *, replaced: bool = False, rescaled: bool = False) -> None:
        """``replaced``: the script put other gradients in the place of those left over, as those of a copy.
        ``rescaled``: it changed those of several backward calls by hand."""
        self.rescaled |= rescaled and self.since_update > 1 and not self.scaler_used  # that divides them too
        self.carried_over |= self.left_over and not replaced
        self.optimizer_in_autocast |= _autocast_on()
        self.empty_updates += self.since_update == 0

    def update_ended(self) -> None:
        self.updates += 1
        self.since_update = 0
        self.left_over = False
        self.unscaled = False

    # -- what was called -------------------------------------------------------------------------------------------

    def _zeroed(self, owner: Any, *_: Any, **__: Any) -> None:
        self.zero_grads += 1

    def _model_loaded(self, owner: Any, *_: Any, **__: Any) -> None:
        self.loaded_model = True

    def _optimizer_loaded(self, owner: Any, *_: Any, **__: Any) -> None:
        self.loaded_optimizer = True

    def _mode(self, owner: nn.Module, mode: bool = True) -> None:
        self.trains += bool(mode)
        self.evals += not mode

    def _scaled(self, scaler: Any, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            self.scaler_used = True
            self.scaler_scale = float(scaler.get_scale())

    def _unscaled(self, scaler: Any, *_: Any, **__: Any) -> None:
        self.unscaled = True

    def _clipped(self, *given: Any, **named: Any) -> None:
        if _called_by_torch():
            return
        self.clips += 1
        limit = given[1] if len(given) > 1 else named.get("max_norm", named.get("clip_value", math.nan))
        self.clip_value = float(limit)
        self.clip_before_unscale |= self.scaler_used and not self.unscaled
        self.clip_before_backward |= self.since_update == 0 and self.updates > 0

    def _norm_clipped(self, norm: Any) -> None:
        value = float(norm) if isinstance(norm, torch.Tensor) and norm.numel() == 1 else math.nan
        if value > 0 and self.clip_value is not None and not _called_by_torch():
            self.clip_coefficients.append(min(1.0, self.clip_value / value))

    def _loader_begins(self, loader: Any, *_: Any, **__: Any) -> None:
        if not any(known is loader for known in self.loaders) and len(self.loaders) < LOADERS_MAX:
            self.loaders.append(loader)

    def of_loader(self) -> dict[str, Any]:
        """Facts about the loader that was iterated first."""
        if not self.loaders:
            return {}
        loader = self.loaders[0]
        facts: dict[str, Any] = {"workers": int(loader.num_workers)}
        if not isinstance(loader.dataset, IterableDataset):
            facts["dataset_rows"] = len(loader.dataset)
            sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
            sampler = sampler.sampler if isinstance(sampler, BatchSampler) else sampler
            facts["loader_shuffles"] = not isinstance(sampler, SequentialSampler) or _is_drawn(loader.dataset)
        return facts

    def _scheduled(self, scheduler: Any, *_: Any, **__: Any) -> None:
        if _called_by_torch():
            return  # a new scheduler steps once, and one may contain others
        if self.scheduler_first is None:
            self.scheduler_first = self.updates == 0
        self.scheduler_steps += 1
        if not any(known is scheduler for known in self.schedulers):
            self.schedulers.append(scheduler)

    def forget_schedules(self) -> None:
        """Those that were stepped until now are of a training that is over."""
        self.scheduler_steps, self.schedulers, self.scheduler_first = 0, [], None

    def planned(self) -> int | None:
        """The number of steps after which the first scheduler ends; None if it has no end."""
        for name in PLANNED_FIELDS if self.schedulers else ():
            value = getattr(self.schedulers[0], name, None)
            if isinstance(value, int) and value > 0:
                return value
        return None

    def _wrap(self, owner: Any, name: str, tell: Callable[..., None]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                tell(*args, **kwargs)
            except Exception as error:  # the script goes on, whatever a call of it looks like
                self.notes.setdefault(name, f"{name} was not followed: {type(error).__name__}: {error}")
            result = original(*args, **kwargs)
            if name == "clip_grad_norm_":
                self._norm_clipped(result)
            return result

        wrapped.surveyed = True  # type: ignore[attr-defined]
        setattr(owner, name, wrapped)


def _autocast_on() -> bool:
    return any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))


def _called_by_torch() -> bool:
    """Whether torch's own code, not the script, called the wrapped function."""
    frame = sys._getframe(3)
    while frame is not None and "steadytrain" in frame.f_globals.get("__name__", ""):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("torch.")


def _is_drawn(dataset: Any) -> bool:
    """Whether a data set is a subset in an order of its own, such as one of ``random_split``: read in sequence, its
    rows do not follow the order of the data set."""
    while isinstance(dataset, Subset):
        order = list(dataset.indices[:ORDER_ROWS_MAX])
        if any(later < earlier for earlier, later in pairwise(order)):
            return True
        dataset = dataset.dataset
    return False
