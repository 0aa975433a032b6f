"""Says whether the mode of a module matters: whether it behaves differently in evaluation mode.

A dropout, a batch norm or a spectral norm in it says so. So does a forward that drew random numbers in training mode
and draws none in evaluation mode (``F.dropout(x, p, self.training)``): the generators' states before and after a call
are recorded anyway. A first call that makes lazy parameters draws for another reason and does not count.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.core.torch_private import (
    BATCH_NORMS,
    DROPOUTS,
    FORWARD_PRE_HOOKS,
    OLDER_SPECTRAL_NORM,
    SPECTRAL_NORM,
)

CALLS_COMPARED = 32
"""Calls in training mode whose random states are compared, as long as none of them drew."""


class ModeEffects:
    """Serves all models of a run."""

    def __init__(self) -> None:
        self._holds: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
        self._drew: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
        self._compared: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._spectra: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
        self._makes_parameters = False

    def by_modules(self, module: nn.Module) -> bool:
        """Whether a module inside ``module``, which is about to be called, tells that the mode matters."""
        known = self._holds.get(module)
        if known is None:
            kinds = (DROPOUTS.get(), BATCH_NORMS.get())
            known = self._holds[module] = any(isinstance(one, kinds) for one in module.modules())
            self._makes_parameters = any(is_lazy(one) for one in module.parameters())
        return known

    def by_spectra(self, module: nn.Module) -> bool:
        """Whether a module inside ``module`` has a spectral norm, whose power iteration runs in training mode only."""
        known = self._spectra.get(module)
        if known is None:
            known = self._spectra[module] = any(map(_has_spectral_norm, module.modules()))
        return known

    def by_draws(self, call: MicroBatch, after: RandomState, *, training: bool) -> bool:
        """Whether ``call``, which has ended in evaluation mode, drew nothing, and one in training mode did."""
        module = call.module
        if not training:
            return self._drew.get(module, False) and not differ(call.random, after)
        compared = self._compared.get(module, 0)
        if not self._makes_parameters and compared < CALLS_COMPARED and not self._drew.get(module, False):
            self._drew[module], self._compared[module] = differ(call.random, after), compared + 1
        self._makes_parameters = False
        return False


def _has_spectral_norm(module: nn.Module) -> bool:
    newer, older = SPECTRAL_NORM.loaded(), OLDER_SPECTRAL_NORM.loaded()
    if newer is not None and isinstance(module, newer):
        return True
    return older is not None and any(isinstance(one, older) for one in FORWARD_PRE_HOOKS.of(module).values())


def differ(before: RandomState, after: RandomState) -> bool:
    """Whether a generator has drawn between the two states."""
    tensors = zip((before.torch, *before.cuda), (after.torch, *after.cuda), strict=False)
    if not all(torch.equal(one, other) for one, other in tensors):
        return True
    return bool(before.python != after.python) or not _same_numpy(before.numpy, after.numpy)


def _same_numpy(before: Any, after: Any) -> bool:
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return True
    one, other = before["state"], after["state"]
    return all(np.array_equal(one[name], other[name]) for name in one)


def active_in(module: nn.Module) -> str:
    """The kinds of parts in training mode that evaluation mode would change."""
    dropout = norms = False
    for one in module.modules():
        if one.training and isinstance(one, DROPOUTS.get()):
            dropout = dropout or one.p > 0.0
        elif one.training and isinstance(one, BATCH_NORMS.get()):
            norms = norms or (bool(one.track_running_stats) and bool(one.momentum))
    return " and ".join(name for name, there in (("dropout", dropout), ("batch norm", norms)) if there)


@torch.no_grad()
def switched_off(module: nn.Module, held: Collection[int]) -> Iterator[tuple[str, float]]:
    """What evaluation mode takes from a training of the parameters ``held``, by id: batch norms with statistics of a
    new module, and dropout beside parameters that are trained. Reads the device once a norm."""
    for one in module.modules():
        if isinstance(one, BATCH_NORMS.get()) and not one.training and id(one.weight) in held:
            mean, variance = one.running_mean, one.running_var
            if mean is not None and variance is not None and not mean.any() and bool((variance == 1.0).all()):
                yield "new-norms-off", 1.0
                return
    for one in module.modules():
        drops = any(isinstance(child, DROPOUTS.get()) and child.p > 0.0 for child in one.children())
        if drops and any(id(each) in held for each in one.parameters()):
            yield "dropout-off", 1.0
            return
