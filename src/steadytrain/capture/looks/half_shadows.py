"""Follows averages of a model's weights that the script keeps as tensors in half precision, in a dict or a list.

Their steps towards the model may be smaller than the last bit of their values, and round away. Averages that are models
themselves are measured by ``slow_averages``.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.model_copies import models_of, samples_of
from steadytrain.capture.looks.script_reading import sources_hold
from steadytrain.capture.step.optimizer_streams import Stream

FROM_STEP, UPDATES, STEPS_MAX = 64, 3, 64
"""The first update whose effect on averages is measured, how many are in which they move, and in how many steps at
most: some follow only in every tenth step."""

SEARCHED_AT = (FROM_STEP, 128, 256)
"""The updates before which tensors are looked for until some are found: many averages begin late."""

AWAY_SHARE = 0.02
"""The distance to the model, as a share of its own size, from which on an average in half precision should move."""

HALVES = (torch.bfloat16, torch.float16)
NAMED = r"bfloat16|float16|\.half\(|\.bfloat16\("
SHADOWS_MAX, LONGEST = 4, 100_000
COSINE_MIN = 0.3
"""An average that is still what it began with keeps a part of the model's direction."""


@dataclass
class _Shadow:
    """The first and the last tensor of a shadow and of its model, the shadow's values before the last update, and the
    shares of values that kept their bits."""

    tensors: tuple[weakref.ref[Tensor], ...]
    model: tuple[weakref.ref[Tensor], ...]
    values: tuple[Tensor, ...]
    kept: list[float] = field(default_factory=list)


class HalfShadows:
    """Serves one stream. Holds no tensor of the script. Costs up to three searches of the process, if the script names
    a format of 16 bits."""

    def __init__(self) -> None:
        self._found: list[_Shadow] = []
        self._since = 0

    def updated(self, stream: Stream) -> None:
        """Before an update of ``stream``, when its averages have taken in the one before."""
        step = stream.own_steps
        if step in SEARCHED_AT and not self._found and sources_hold(NAMED):
            self._found, self._since = list(_shadows(stream))[:SHADOWS_MAX], step
        elif self._since < step <= self._since + STEPS_MAX:
            for one in self._found:
                if len(one.kept) < UPDATES:
                    _measure(one)

    def rows(self) -> Iterator[tuple[str, float]]:
        """``kept-bits:weights`` is the share of the values of such a shadow that kept their bits through an update,
        though they are not those of the model."""
        shares = [min(one.kept) for one in self._found if len(one.kept) == UPDATES]
        if shares:
            yield "kept-bits:weights", max(shares)


def bits_kept(before: Sequence[Tensor], now: Sequence[Tensor], there: Sequence[Tensor]) -> float | None:
    """The share of values that kept their bits through an update of an average, though they are not ``there``, where
    the model is; None if none moved, or the model is close."""
    was, is_now, model = (torch.cat([part.double() for part in parts]) for parts in (before, now, there))
    change, distance = is_now - was, model - was
    if not bool(change.any()) or float(distance.norm()) < AWAY_SHARE * float(model.norm()):
        return None
    return float((change == 0)[distance != 0].double().mean())


def _shadows(stream: Stream) -> Iterator[_Shadow]:
    models = [list(one.parameters()) for one in models_of(stream)]
    models = [one for one in models if one and one[0].dtype not in HALVES]
    least = min((len(one) for one in models), default=0)
    for holder in gc.get_objects() if least else ():
        if type(holder) not in (dict, list) or not least <= len(holder) <= LONGEST:
            continue
        tensors = _halves(holder)
        for model in models:
            if tensors and [one.shape for one in tensors] == [one.shape for one in model]:
                ends, of_model = (tensors[0], tensors[-1]), (model[0], model[-1])
                values = samples_of(ends)
                if _is_alike(values, samples_of(of_model)):
                    yield _Shadow(_refs(ends), _refs(of_model), values)


def _halves(holder: Any) -> list[Tensor]:
    """The tensors in half precision of a dict or a list that begins with one; none if another thread changes it."""
    try:
        first = next(iter(holder.values() if type(holder) is dict else holder))
        if type(first) is not Tensor or first.dtype not in HALVES:
            return []
        values = list(holder.values() if type(holder) is dict else holder)
    except RuntimeError:
        return []
    return [one for one in values if type(one) is Tensor and one.dtype in HALVES and not one.requires_grad]


def _is_alike(values: Sequence[Tensor], model: Sequence[Tensor]) -> bool:
    """Whether values point the way of the model's: moments of gradients do not."""
    one, other = (torch.cat([part.double() for part in parts]) for parts in (values, model))
    return float(one @ other) >= COSINE_MIN * float(one.norm() * other.norm()) > 0.0


def _refs(tensors: Sequence[Tensor]) -> tuple[weakref.ref[Tensor], ...]:
    return tuple(weakref.ref(one) for one in tensors)


def _measure(one: _Shadow) -> None:
    now, there = _living(one.tensors), _living(one.model)
    if now is None or there is None:
        return
    before, one.values = one.values, samples_of(now)
    if [part.shape for part in before] != [part.shape for part in one.values]:
        return
    kept = bits_kept(before, one.values, samples_of(there))
    if kept is not None:
        one.kept.append(kept)


def _living(refs: Sequence[weakref.ref[Tensor]]) -> tuple[Tensor, ...] | None:
    found = tuple(tensor for one in refs if (tensor := one()) is not None)
    return found if len(found) == len(refs) else None
