"""Finds which parameters lie behind a cut in the graph, and whether the model's output depends on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import MicroBatch, RandomState, tensors_in
from steadytrain.capture.step.ranks import without_reduction

NODES_MAX = 20_000
MOVED_SHARE = 0.01
"""Relative size of the perturbation: large enough to show in the output, small enough not to saturate."""


def leaves_behind(value: Tensor) -> set[int]:
    """The ids of the leaves from which ``value`` was computed."""
    if value.grad_fn is None:
        return {id(value)}
    waiting, known, found = [value.grad_fn], {value.grad_fn}, set()
    while waiting and len(known) < NODES_MAX:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        for following, _ in node.next_functions:
            if following is not None and following not in known:
                known.add(following)
                waiting.append(following)
    return found


def cut_off(
    calls: Sequence[MicroBatch], lost: Mapping[int, Tensor], behind_cuts: AbstractSet[int]
) -> tuple[list[int], float | None]:
    """The ids of those of the ``lost`` parameters, which get no gradient, that the model's output should bring one, and
    how far the output of the first call moves with them.

    They lie behind a cut that was seen, or else the output moves with them, whatever cut the graph.
    """
    behind = [key for key in lost if key in behind_cuts]
    moves = moves_output(calls[0], [lost[key] for key in behind or lost]) if calls and lost else None
    return behind or (list(lost) if moves else []), moves


@torch.no_grad()
def moves_output(call: MicroBatch, parameters: list[Tensor]) -> float | None:
    """The relative change of the model's output if ``parameters`` move by a hundredth. None if the output is not
    reproducible, or the call has none.
    """
    module = without_reduction(call.module)
    modes = {part: part.training for part in module.modules()}
    random = RandomState.take()
    chance = torch.Generator().manual_seed(0)
    before = [parameter.detach().clone() for parameter in parameters]

    def output() -> Tensor | None:
        random.restore()
        found = tensors_in(module(*call.args, **call.kwargs))
        return next((one for one in found if one.is_floating_point()), None)

    try:
        module.eval()
        once, again = output(), output()
        if once is None or again is None or not torch.equal(once, again):
            return None
        for parameter in parameters:
            size = float(parameter.abs().mean()) or 1.0
            parameter.add_(MOVED_SHARE * size * torch.randn(parameter.shape, generator=chance).to(parameter))
        moved = output()
    finally:
        for parameter, values in zip(parameters, before, strict=True):
            parameter.copy_(values)
        for part, training in modes.items():
            part.training = training
    largest = float(once.abs().max())
    return float((moved - once).abs().max()) / largest if moved is not None and largest > 0 else None
