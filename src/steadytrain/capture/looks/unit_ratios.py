"""Finds a clipped policy ratio that is exactly 1 in later passes over the same rollout.

The old log-probability must be that of the policy that acted. If it is computed anew in each update, the ratio is 1 and
the clip never acts: each pass is a plain policy gradient on data that grow old. In the first update of a rollout, and
with one update for each rollout, the ratio is 1 by design: only rows with advantages that came before are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import OF_SHAPE, inputs_of_node, kind_of, plain_tensor
from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in

STEPS_MAX = 6
ROWS_MIN, KNOWN_MAX, WIDTH_MAX = 16, 1 << 16, 4096
KNOWN_SHARE, DIFFERENT_SHARE, ALIKE_MIN = 0.9, 0.5, 0.99
"""Shares of the rows that came before, and that differ from each other; how well their advantages agree with those of
before: they may have been normalised anew."""

ROUNDING = 1e-6


def surrogate(node: Any) -> tuple[Tensor, Tensor] | None:
    """The ratios and the advantages behind a minimum of a product and of its clamped twin; None if it is another."""
    products = [one for one in inputs_of_node(node) if kind_of(one) == "Mul"]
    if len(products) != 2:
        return None
    plain = [_behind(one, frozenset()) for one in products]
    clamped = [_behind(one, frozenset({"Clamp"})) for one in products]
    ratio = next((one for one in plain if one is not None), None)
    if ratio is None or any(one is not ratio for one in clamped) or all(one is not None for one in plain):
        return None
    product = products[plain.index(ratio)]
    first = next((one for one, _ in product.next_functions), None)
    ratios, advantages = plain_tensor(ratio, "result"), plain_tensor(product, "other" if first is not None else "self")
    if ratios is None or advantages is None or ratios.numel() != advantages.numel():
        return None
    return ratios.reshape(-1), advantages.reshape(-1)


def _behind(product: Any, past: frozenset[str]) -> Any:
    """The exponential of a difference behind ``product``; None if there is none."""
    following = inputs_of_node(product)
    while len(following) == 1 and kind_of(following[0]) in OF_SHAPE | past:
        following = inputs_of_node(following[0])
    if len(following) != 1 or kind_of(following[0]) != "Exp":
        return None
    before = inputs_of_node(following[0])
    return following[0] if before and kind_of(before[0]) == "Sub" else None


class UnitRatios:
    """Serves one stream: remembers the advantage of each row."""

    def __init__(self) -> None:
        self._known: dict[bytes, float] = {}

    @torch.no_grad()
    def rows(self, surrogates: Sequence[tuple[Tensor, Tensor]], call: MicroBatch | None) -> Iterator[tuple[str, float]]:
        """``unit-ratio`` is 1 where all ratios are exactly 1, else 0; only where the rows of the last call, with their
        advantages, came in an earlier look."""
        if len(surrogates) != 1 or call is None:
            return
        ratios, advantages = surrogates[0]
        keys = _keys(tuple(tensors_in((call.args, call.kwargs))), len(ratios))
        if len(keys) < ROWS_MIN or len(set(keys)) < DIFFERENT_SHARE * len(keys):
            return
        now = advantages.double().tolist()
        both = [(self._known[key], value) for key, value in zip(keys, now, strict=True) if key in self._known]
        if len(both) >= KNOWN_SHARE * len(keys) and _agree(both):
            yield "unit-ratio", float(bool(((ratios - 1.0).abs() < ROUNDING).all()))
        if len(self._known) + len(keys) > KNOWN_MAX:
            self._known.clear()
        self._known.update(zip(keys, now, strict=True))


def _keys(given: Sequence[Tensor], count: int) -> list[bytes]:
    for one in given:
        if one.is_floating_point() and one.dim() >= 2 and len(one) == count and one[0].numel() <= WIDTH_MAX:
            return [row.numpy().tobytes() for row in one.detach().reshape(count, -1).float().cpu()]
    return []


def _agree(both: Sequence[tuple[float, float]]) -> bool:
    values = torch.tensor(both, dtype=torch.float64).T
    values = values - values.mean(1, keepdim=True)
    (own, across), (_, other) = (values @ values.T).tolist()
    return bool(own > 0.0 and other > 0.0 and across > ALIKE_MIN * (own * other) ** 0.5)
