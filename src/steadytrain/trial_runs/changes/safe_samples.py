"""Samples whose preparation stays away from singular points."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, final

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.changes.singular_points import SafeOperation
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class SafeSamples(LiveChange):
    """A sample or a batch that a data set or a collate function makes with NaN or Inf is made again, from the same
    random state, with its torch operations ``margin`` away from their singular points (see ``safe-operation``)."""

    is_early = True
    own_batches = True
    nothing = "no torch operation of a data set or a collate function came near a singular point"

    margin: float = 1e-6

    def early(self, process: Launched) -> None:
        original = DataLoader.__iter__
        wrapped: set[type] = set()

        def begins(loader: Any) -> Any:
            dataset = loader.dataset
            while isinstance(dataset, Subset):
                dataset = dataset.dataset
            kind = type(dataset)
            of_script = isinstance(vars(kind).get("__getitem__"), FunctionType)  # a list has one that stays as it is
            if kind not in wrapped and of_script and not kind.__module__.startswith("torch."):
                wrapped.add(kind)
                kind.__getitem__ = self._making(kind.__getitem__)
            collate = loader.collate_fn
            if callable(collate) and not hasattr(collate, "__wrapped__") and _is_of_script(collate):
                loader.collate_fn = self._making(collate)
            return original(loader)

        DataLoader.__iter__ = begins  # type: ignore[method-assign]

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, updated=())
        def make(*args: Any) -> Any:
            before = random.getstate(), np.random.get_state(), torch.get_rng_state()
            made = original(*args)
            if _is_finite(made) or not _is_finite(args):
                return made
            after = random.getstate(), np.random.get_state(), torch.get_rng_state()
            _restore(before)
            holder, safe = Launched(), SafeOperation(margin=self.margin)
            safe.begin(holder)
            try:
                again = original(*args)
            finally:
                holder.functions.end()
                _restore(after)
            if not safe.touched or not _is_finite(again):
                return made
            self.touch()
            return again

        return make


def _is_of_script(collate: Any) -> bool:
    return not str(getattr(collate, "__module__", None) or type(collate).__module__).startswith("torch.")


def _is_finite(made: Any) -> bool:
    """Whether the tensors and the arrays in ``made`` are finite, as far as a batch nests them."""
    if isinstance(made, np.ndarray):
        return made.dtype.kind not in "fc" or bool(np.isfinite(made).all())
    if isinstance(made, (list, tuple)) and any(isinstance(one, (np.ndarray, list, tuple)) for one in made):
        return all(map(_is_finite, made))
    return all(bool(torch.isfinite(one).all()) for one in tensors_in(made) if one.is_floating_point())


def _restore(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
