"""The loss as the script means it: the root of backward, without the factors put in front of it.

Scripts divide the loss by the number of micro-batches and multiply it by a gradient scaler's scale before backward.
Both leave nodes at the root of the autograd graph. A division by 8 may as well be a mean over 8 tokens, so a constant
is taken for accumulation only if it equals the number of backward calls that the step turned out to have; the scale is
known by being the scaler's own tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from steadytrain.capture.step.script_frames import FrameLine, user_frames
from steadytrain.core.torch_private import SAVED_OTHER, SAVED_SELF, SEQUENCE

FACTORS_MAX = 8


@dataclass(frozen=True)
class Factor:
    """A scalar in front of the loss: multiplied by (``power`` 1) or divided by (``power`` -1) ``value``."""

    value: Tensor
    power: int


@dataclass(frozen=True)
class LossTerm:
    """One backward: its scalar root, the factors found in front of it, and where the script asked for it.

    ``nodes`` are the sequence numbers of the graph nodes from the root down past the factors: the ones that could
    be the loss itself.
    """

    root: Tensor
    factors: tuple[Factor, ...]
    nodes: tuple[int, ...]
    frames: tuple[FrameLine, ...]

    @property
    def origin(self) -> str | None:
        """``file:line`` of the backward call."""
        return f"{self.frames[0].code.co_filename}:{self.frames[0].line}" if self.frames else None


def loss_term(root: Tensor) -> LossTerm:
    """Take apart the root of a backward call. ``root`` has one element; nothing is synchronised."""
    factors: list[Factor] = []
    node = root.grad_fn
    nodes = [_sequence(node)]
    while node is not None and len(factors) < FACTORS_MAX:
        factor = _factor_of(node)
        following = _only_input(node)
        if factor is None or following is None:
            break
        factors.append(factor)
        node = following
        nodes.append(_sequence(node))
    return LossTerm(root.detach(), tuple(factors), tuple(nodes), user_frames())


def unscaled(root: float, factors: Iterable[tuple[float, int]], *, scales: set[float], backward_calls: int) -> float:
    """The loss before scaling: known loss scales and accumulation by ``backward_calls`` are taken off the root."""
    value = root
    accumulation_left = backward_calls > 1
    for factor, power in factors:
        if power == 1 and factor in scales:
            value /= factor
        elif accumulation_left and _is_accumulation(factor, power, backward_calls):
            value *= backward_calls
            accumulation_left = False
        else:
            break
    return value


def _is_accumulation(factor: float, power: int, backward_calls: int) -> bool:
    divided_by = factor if power == -1 else (1.0 / factor if factor else 0.0)
    return abs(divided_by - backward_calls) < 1e-3


def _factor_of(node: Any) -> Factor | None:
    name = type(node).__name__
    if name not in ("DivBackward0", "MulBackward0"):
        return None
    other = SAVED_OTHER.on(node)
    if not isinstance(other, Tensor):
        other = SAVED_SELF.on(node) if name == "MulBackward0" else None
    if not isinstance(other, Tensor) or other.numel() != 1 or other.requires_grad:
        return None
    # Not detached, which it is: under a dispatch mode a plain number would be handed to that operation as no tensor.
    return Factor(other, -1 if name == "DivBackward0" else 1)


def _only_input(node: Any) -> Any:
    inputs = [edge for edge, _ in node.next_functions if edge is not None]
    return inputs[0] if len(inputs) == 1 else None


def _sequence(node: Any) -> int:
    return int(SEQUENCE.of(node)()) if node is not None else -1


def scalar_outputs(output: Any) -> dict[int, tuple[Any, ...]]:
    """Graph node of each one-element output, and its place: what tells whether the model returns the loss itself."""
    found: dict[int, tuple[Any, ...]] = {}

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, Tensor):
            if value.numel() == 1 and value.grad_fn is not None:
                found[int(SEQUENCE.of(value.grad_fn)())] = path
        elif isinstance(value, dict):
            for key, entry in value.items():
                walk(entry, (*path, key))
        elif isinstance(value, (list, tuple)):
            for key, entry in enumerate(value):
                walk(entry, (*path, key))

    walk(output, ())
    return found
