"""Counts the steps of an optimizer none of whose parameters ever had a gradient, although the script calls backward.

Also notices that other parameters have a gradient than before (a part was frozen, or replaced), and that no backward
reaches them any more (the model was replaced, and the optimizer applies the last gradients of the old one).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator

from torch import Tensor

from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import user_frames
from steadytrain.core.torch_private import VERSION

TOLD = (4, 16, 64)
"""Numbers of steps at which a look reports them."""


COMPARED_MAX = 64
CHANGED_EVERY, CHANGES_MAX = 8, 4
"""Steps between two counts, and the most changes that are reported: experts used now and then change all the time."""


class MissingGradients:
    """Follows one stream until one of its parameters has a gradient or changes in another way."""

    def __init__(self) -> None:
        self._with: int | None = None
        self._gradients: list[tuple[weakref.ref[Tensor], int]] = []
        self._changes = 0
        self._open = True
        self._steps = 0
        self._versions: list[int] = []
        self._norm: float | None = None

    def changed(self, stream: Stream) -> bool:
        """Whether more or fewer parameters of ``stream`` have a gradient than at the count before, or all gradients are
        those of the count before."""
        if self._changes >= CHANGES_MAX or stream.own_steps % CHANGED_EVERY:
            return False
        gradients = [one.grad for one in stream.parameters if one.grad is not None]
        count = len(gradients)
        before, self._with = self._with, count
        stale = bool(self._gradients) and all(
            known() is one and version == VERSION.of(one)
            for (known, version), one in zip(self._gradients, gradients, strict=False)
        )
        self._gradients = [(weakref.ref(one), VERSION.of(one)) for one in gradients[:COMPARED_MAX]]
        changed = before is not None and (before != count or stale)
        self._changes += changed
        return changed

    def rows(self, stream: Stream, *, after_backward: bool, norm: float | None) -> Iterator[tuple[str, float]]:
        """Rows at the gate of a step of ``stream``.

        ``without-gradient:OPTIMIZER`` is the number of its steps so far. ``without-gradient-of:OPTIMIZER`` is the
        number of its parameters that may have a gradient. Frozen parameters do not count.

        Args:
            after_backward: whether a backward ran since the step before. A step without one learns from nothing.
            norm: the norm of the parameters, if this step measures it.
        """
        if not self._open:
            return
        learning = [one for one in stream.parameters if one.requires_grad]
        if any(one.grad is not None for one in stream.parameters) or is_sharded(stream.parameters):
            self._open = False
            return
        if not learning or not after_backward or self._moved(stream, norm):
            return
        self._steps += 1
        if self._steps in TOLD:
            place = _place(stream)
            yield f"without-gradient:{place}", float(self._steps)
            yield f"without-gradient-of:{place}", float(len(learning))

    def _moved(self, stream: Stream, norm: float | None) -> bool:
        """Whether something else has changed the parameters since the step before. Then they need no gradient."""
        versions = [VERSION.of(one) for one in stream.parameters]
        known = norm is not None and math.isfinite(norm)
        moved = (bool(self._versions) and versions != self._versions) or (
            known and self._norm is not None and norm != self._norm
        )
        self._versions = versions
        self._norm = norm if known else self._norm
        self._open = not moved
        return moved


def _place(stream: Stream) -> str:
    """Such as ``Adam of Generator at gan.py:40``: the line that steps it."""
    models = ", ".join(dict.fromkeys(type(root).__name__ for root in stream.roots()))
    frames = user_frames()
    line = f" at {frames[0].place}" if frames else ""
    optimizers = " and ".join(dict.fromkeys(type(one).__name__ for one in stream.optimizers))
    return f"{optimizers}{f' of {models}' if models else ''}{line}"
