"""Finds out whether the script ends with an evaluation in training mode: calls after the last update and backward.

Calls with gradients count as those without: many a script tests its model without ``no_grad``. A call in evaluation
mode ends what came before it, so batch norms that are given new statistics first are none. Neither are rows that come
again, as those of samples of dropout do, nor rows that were trained on.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.evaluation_mode import active_in
from steadytrain.core.torch_private import BATCH_NORMS

CALLS_MAX = 64
CALLS_MIN, ROWS_MIN, ROWS_OF_ONE = 2, 16, 64
"""Calls of an evaluation and their rows; rows of a single call."""

MANY_CALLS = 4
"""With gradients, after so many calls without a backward it is asked what is at work: two or three are a step."""

TRAINED_SHARE = 0.05


class LastCalls:
    """The calls of one trained model since the last backward."""

    def __init__(self) -> None:
        self._model: weakref.ref[nn.Module] | None = None
        self._keys: list[Tensor] = []
        self._calls = 0
        self._active: str | None = None
        self._name = ""

    @property
    def calls(self) -> int:
        return self._calls

    def called(self, module: nn.Module, keys: Tensor | None) -> None:
        if not module.training or (self._model is not None and self._model() is not module):
            self.forget()
            if not module.training:
                return
        self._model, self._name = weakref.ref(module), type(module).__name__
        self._calls += 1
        if self._calls == (MANY_CALLS if torch.is_grad_enabled() else CALLS_MIN):
            self._active = _at_work(module)
        if keys is not None and len(self._keys) < CALLS_MAX:
            self._keys.append(keys)

    def forget(self) -> None:
        """An update or a backward follows, or an evaluation in evaluation mode."""
        self._model, self._keys, self._calls, self._active = None, [], 0, None

    def rows(self, trained: Tensor) -> Iterator[tuple[str, float]]:
        """``ended-in-training:MODEL (PARTS)`` is the number of these calls, if they are an evaluation."""
        model = self._model() if self._model is not None else None
        if not self._keys or len(self._keys) < min(self._calls, CALLS_MAX) - 1:  # rows without a digest
            return
        if model is not None and self._active is None:
            self._active = _at_work(model)
        keys = torch.cat([one.cpu() for one in self._keys])
        enough = len(keys) >= (ROWS_MIN if self._calls >= CALLS_MIN else ROWS_OF_ONE)
        again = len(torch.unique(torch.stack([one.cpu().sum() for one in self._keys]))) < len(self._keys)
        if self._active and enough and not again and torch.isin(keys, trained).double().mean() < TRAINED_SHARE:
            yield f"ended-in-training:{self._name} ({self._active})", float(self._calls)


def _at_work(module: nn.Module) -> str:
    """The parts that evaluation mode would change; none where batch norms are given new statistics."""
    norms = [one for one in module.modules() if isinstance(one, BATCH_NORMS.get()) and one.track_running_stats]
    anew = any(one.training and one.momentum in (None, 1.0) for one in norms)
    return "" if anew else active_in(module)
