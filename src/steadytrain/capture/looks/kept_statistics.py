"""Compares the running statistics of a copy whose weights follow the model with those of the model.

An average of the weights that is made from ``parameters()`` leaves out the buffers: batch norms of the copy keep the
statistics that they began with, and evaluate features of other weights.
"""

from __future__ import annotations

import weakref
from itertools import islice

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.model_copies import sampled
from steadytrain.capture.looks.running_statistics import channels_apart, has_statistics, statistics_of

LOOKS_DENSE = 4
"""Evaluations of a copy that are looked at; then the eighth, the sixteenth, and so on."""

NORMS_MAX = 16
MEANS_AWAY, VARIANCE_RATIO = 0.5, 1.5
"""A channel is another one where its mean is so many standard deviations of the model's statistics away, or its
variance so many times as large or as small."""


class KeptStatistics:
    """The batch norms of one ``copy``, as they were when it was found, and those of its ``model``."""

    def __init__(self, copy: nn.Module, model: nn.Module | None) -> None:
        self.share = 0.0
        """Share of the channels whose statistics are others than the model's, at the last look."""

        self._copy, self._model = weakref.ref(copy), weakref.ref(model if model is not None else copy)
        self._first = [statistics_of(one) for one in _norms(copy)]
        self._values = sampled(copy)
        self._calls = 0
        self._moved = not self._first or model is None

    @torch.no_grad()
    def called(self) -> None:
        """The script calls the copy, for the first time since the last update."""
        self._calls += 1
        dense = self._calls <= LOOKS_DENSE or self._calls & (self._calls - 1) == 0
        copy, model = self._copy(), self._model()
        if self._moved or not dense or copy is None or model is None:
            return
        own, theirs = _norms(copy), _norms(model)
        if len(own) != len(self._first) or len(theirs) != len(own):
            return
        kept = all(torch.equal(statistics_of(one), was) for one, was in zip(own, self._first, strict=True))
        follows = any(not torch.equal(*pair) for pair in zip(sampled(copy), self._values, strict=False))
        if not kept:
            self._moved, self.share = True, 0.0
        elif follows and not any(one.training for one in own):
            others = [_apart(one, other) for one, other in zip(own, theirs, strict=True)]
            self.share = float(torch.cat(others).double().mean())


def _norms(module: nn.Module) -> list[nn.Module]:
    return list(islice((one for one in module.modules() if has_statistics(one)), NORMS_MAX))


def _apart(own: nn.Module, there: nn.Module) -> Tensor:
    return channels_apart(statistics_of(own), statistics_of(there), means=MEANS_AWAY, ratio=VARIANCE_RATIO)
