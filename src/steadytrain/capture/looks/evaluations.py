"""Finds evaluations in which dropout, or batch norm, works as in training.

An evaluation is a burst of calls of a trained model without gradients between two updates. Two signs count. The model
is in training mode, and rows of the burst come again in a later one, as those of validation data do; or it is in
evaluation mode, and its ``forward`` calls a functional dropout that no mode turns off. Bursts that call the model with
the same rows three times sample on purpose.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from steadytrain.capture.looks.evaluated_rows import EvaluatedRows
from steadytrain.capture.looks.evaluated_weights import EvaluatedWeights
from steadytrain.capture.looks.evaluation_mode import active_in
from steadytrain.capture.looks.pass_orders import PassOrders
from steadytrain.capture.looks.row_keys import row_keys
from steadytrain.capture.looks.unconditional_dropout import unconditional_dropout

BURSTS_MAX, CALLS_MAX = 16, 16
APART_UPDATES = 4
"""The same rows must come again so many updates later: policies and cached gradients use theirs at once."""

ROWS_COMPARED = 3
"""First calls of a burst that have to be the same: two episodes of a policy may begin alike."""

EVALUATED_APART = 8
"""Updates between two evaluations: what calls a model without gradients more often samples from it."""

CALLS_MIN = 2
SAMPLES_MIN = 3


@dataclass
class _Burst:
    """Calls without gradients between two updates, by digests of their rows."""

    model: str = ""
    active: str = ""
    dropout: str = ""
    rows: list[bytes] = field(default_factory=list)
    trained: bytes = b""
    knows_modes: bool = False
    """Whether a model, or a part of one, was evaluated in evaluation mode beside it: the script knows the modes."""


class Evaluations:
    """Serves all streams of a run until it has seen ``BURSTS_MAX`` bursts."""

    def __init__(self, orders: PassOrders) -> None:
        self._orders = orders
        self._trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._dropouts: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._plain: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._now = _Burst()
        self._rows, self._weights = EvaluatedRows(), EvaluatedWeights()
        self._seen: dict[bytes, int] = {}
        self._bursts = self._updates = self._evaluated = 0
        self._aside = self._evaluated_at = self._begun = 0

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The script calls a model with gradients."""
        self._rows.called(module, args, kwargs)
        self._weights.called(module)
        if self._bursts < BURSTS_MAX:
            self._trained.add(module)
            if self._now.rows and not self._now.trained:
                self._now.trained = _digest(args, kwargs)

    def backward_begins(self) -> None:
        self._rows.backward_begins()

    def called_aside(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The script calls a model without gradients."""
        self._rows.called_aside(module, args, kwargs)
        self._weights.called_aside(module)
        now = self._now
        self._aside += not module.training and module in self._trained
        if not module.training and not now.knows_modes and self._bursts < BURSTS_MAX:
            now.knows_modes = any(module is part for model in self._trained for part in model.modules())
        if self._bursts >= BURSTS_MAX or len(now.rows) >= CALLS_MAX or module not in self._trained:
            return
        if module.training and module not in self._plain:
            now.active = now.active or active_in(module)
            if not now.active:
                self._plain.add(module)
        elif not module.training and not now.dropout:
            if module not in self._dropouts:
                self._dropouts[module] = unconditional_dropout(module)
            now.dropout = self._dropouts[module]
        if now.active or now.dropout:
            now.model = type(module).__name__
            now.rows.append(_digest(args, kwargs))

    def rows(self) -> Iterator[tuple[str, float]]:
        """The rows of the burst before an update: the calls of each evaluation in which such a part was at work.

        ``evaluated-in-training:MODEL (PARTS)`` says that the model was in training mode, ``evaluated-with:MODEL
        (CALL)`` that a functional dropout drew. ``evaluated:within`` is the number of calls of an evaluation in
        evaluation mode, ``evaluated:between`` of one between two passes over the data.
        """
        self._updates += 1
        yield from self._before(self._orders.begun)
        self._weights.updated()
        yield from self._weights.left_in()
        yield from self._rows.updated()
        if not self._now.rows or self._bursts >= BURSTS_MAX:
            return
        now, self._now = self._now, _Burst()
        self._bursts += 1
        if max(now.rows.count(one) for one in now.rows) >= SAMPLES_MIN or now.trained in now.rows:
            return
        if now.dropout:
            self._evaluated += len(now.rows)
            if self._evaluated >= CALLS_MIN:
                yield f"evaluated-with:{now.model} ({now.dropout})", float(self._evaluated)
            return
        if now.knows_modes:
            return
        first = self._seen.setdefault(b"".join(now.rows[:ROWS_COMPARED]), self._updates)
        if all(now.rows) and self._updates - first >= APART_UPDATES:
            yield f"evaluated-in-training:{now.model} ({now.active})", float(len(now.rows))

    def _before(self, begun: int) -> Iterator[tuple[str, float]]:
        """The evaluation right before this update, if there was one."""
        place, self._begun = "between" if begun != self._begun else "within", begun
        calls, self._aside = self._aside, 0
        if calls:
            if self._updates - self._evaluated_at >= EVALUATED_APART:
                yield f"evaluated:{place}", float(calls)
            self._evaluated_at = self._updates

    def at_the_end(self) -> Iterator[tuple[str, float]]:
        """The rows of the evaluations after the last update, when the script ends."""
        yield from self._rows.at_the_end()
        yield from self._weights.rows()


def _digest(args: Any, kwargs: Any) -> bytes:
    keys = row_keys(args, kwargs)
    return keys.cpu().numpy().tobytes() if keys is not None else b""
