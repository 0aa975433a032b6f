"""Compares what a trained model is evaluated on with what it is trained on: the rows and their scale.

A call without gradients is an evaluation; so are calls with gradients after the last update, if no backward follows.
Rows are compared by digests, of which the first ``ROWS_MAX`` are kept on the device of the rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.evaluation_names import named_as_held_out
from steadytrain.capture.looks.input_moments import CHANNELS_SHARE, Moments, moments_of, off_scale
from steadytrain.capture.looks.last_calls import CALLS_MAX, LastCalls
from steadytrain.capture.looks.row_keys import row_keys

ROWS_MAX, TRAINED_CALLS_MAX = 1 << 15, 1 << 10
"""Trained rows, and calls with them, that are kept."""

TRAINED_EVERY, TRAINED_MAX = 8, 24
"""Calls in training whose moments are kept: the first eight, then one of so many."""

BURSTS_MAX, BURST_CALLS = 16, 32
SCALED_BURSTS = 2
"""Evaluations that have to be on another scale, before the end of the script."""

SEEN_SHARE = 0.5
"""An evaluation of rows that were trained on says nothing of the others."""

HELD_OUT_SHARE, HELD_OUT_ROWS, UNIQUE_SHARE = 0.95, 64, 0.98
"""Held-out rows of which so many were trained on are none; where rows come twice, they are few by their nature."""


@dataclass
class _Call:
    module: str
    keys: Tensor | None
    moments: Moments | None
    held_out: str
    seen: float = 0.0


class EvaluatedRows:
    """Serves all streams of a run."""

    def __init__(self) -> None:
        self._trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._keys: list[Tensor] = []
        self._sums: list[Tensor] = []
        self._moments: list[Moments] = []
        self._rows = self._calls = self._scaled = self._longest = 0
        self._pending: tuple[weakref.ref[nn.Module], Tensor | None, Moments | None] | None = None
        self._now: list[_Call] = []
        self._bursts: list[list[_Call]] = []
        self._agreed = self._told = False
        self._last = LastCalls()

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The script calls a model with gradients."""
        self._calls += 1
        keeps = self._rows < ROWS_MAX and len(self._sums) < TRAINED_CALLS_MAX
        keys = row_keys(args, kwargs) if keeps or self._last.calls else None
        if module in self._trained:
            self._last.called(module, keys)
        due = self._calls <= TRAINED_EVERY or self._calls % TRAINED_EVERY == 0
        moments = moments_of(args, kwargs) if due and len(self._moments) < TRAINED_MAX else None
        self._pending = (weakref.ref(module), keys, moments)

    def backward_begins(self) -> None:
        """The last call was one of training."""
        if self._pending is None:
            return
        (module, keys, moments), self._pending = self._pending, None
        self._last.forget()
        model = module()
        if model is not None:
            self._trained.add(model)
        if keys is not None:
            self._keys.append(keys)
            self._sums.append(keys.sum())
            self._rows, self._longest = self._rows + len(keys), max(self._longest, len(keys))
        if moments is not None:
            self._moments.append(moments)

    def called_aside(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The script calls a model without gradients."""
        if module not in self._trained:
            return
        compares = len(self._now) < BURST_CALLS and len(self._bursts) < BURSTS_MAX
        keys = row_keys(args, kwargs) if compares or (module.training and self._last.calls < CALLS_MAX) else None
        self._last.called(module, keys)
        if compares:
            self._now.append(_Call(type(module).__name__, keys, moments_of(args, kwargs), named_as_held_out()))

    def updated(self) -> Iterator[tuple[str, float]]:
        """An update follows: the evaluation before it is over."""
        self._last.forget()
        now, self._now = self._now, []
        if not now:
            return
        self._ends(now, self._seen())
        yield from self._of_scale(now, SCALED_BURSTS)

    def at_the_end(self) -> Iterator[tuple[str, float]]:
        """The script has ended."""
        seen = self._seen()
        yield from self._last.rows(seen)
        if self._now:
            self._ends(self._now, seen)
            yield from self._of_scale(self._now, 1)
        yield from self._of_held_out(seen)

    def _ends(self, burst: list[_Call], seen: Tensor) -> None:
        for one in burst:
            one.seen = _share(one.keys, seen)
        self._bursts.append(burst)

    def _of_scale(self, burst: list[_Call], least: int) -> Iterator[tuple[str, float]]:
        """``other-scale:MODEL`` is the share of the channels of evaluated images (``other-scale-of-features`` of other
        inputs) that are on another scale than in training, where that is so in all evaluations."""
        if self._agreed or self._told or not self._moments:
            return
        fresh = [(one.module, one.moments) for one in burst if one.moments is not None and one.seen < SEEN_SHARE]
        shares = [off_scale(moments, self._moments) for _, moments in fresh]
        self._agreed = not all(one >= CHANNELS_SHARE for one in shares)
        self._scaled += bool(shares)
        if shares and not self._agreed and self._scaled >= least:
            self._told = True
            name, moments = fresh[0]
            yield f"other-scale{'' if moments.of_images else '-of-features'}:{name}", min(shares)

    def _of_held_out(self, seen: Tensor) -> Iterator[tuple[str, float]]:
        """``held-out-trained:NAME`` is the number of different rows of evaluations that the script names as those of a
        held-out set, where all rows of that name that it evaluated were trained on before."""
        calls = [one for burst in self._bursts for one in burst if one.held_out and one.keys is not None]
        for name in dict.fromkeys(one.held_out for one in calls):
            if any(one.seen < HELD_OUT_SHARE for one in calls if one.held_out == name):
                continue
            last = self._last_of(name)
            rows = torch.cat(last)
            unique = len(torch.unique(rows))
            if unique < max(HELD_OUT_ROWS, UNIQUE_SHARE * len(rows)) or len(torch.unique(seen)) <= self._longest:
                continue
            whole = len(last) == 1 and int(last[0].sum()) in [int(one) for one in self._sums]
            if not whole:
                yield f"held-out-trained:{name}", float(unique)
                return

    def _last_of(self, name: str) -> list[Tensor]:
        """The digests of the rows of the last evaluation of the set ``name``, by call."""
        for burst in reversed(self._bursts):
            found = [one.keys.cpu() for one in burst if one.held_out == name and one.keys is not None]
            if found:
                return found
        return []

    def _seen(self) -> Tensor:
        """The digests of all trained rows."""
        if len(self._keys) > 1:
            device = self._keys[-1].device
            self._keys = [torch.cat([one.to(device) for one in self._keys])]
        return self._keys[0].cpu() if self._keys else torch.zeros(0, dtype=torch.int64)


def _share(keys: Tensor | None, seen: Tensor) -> float:
    """The share of the rows that are among the trained ones."""
    return float(torch.isin(keys.cpu(), seen).double().mean()) if keys is not None and len(keys) else 0.0
