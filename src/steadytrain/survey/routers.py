"""Which linear layers choose among experts, and whether a loss term reaches a router but none of its experts.

The loss is a sum. A term whose graph leads to the router's weights and to no expert's can only concern the choice. The
graph of the last backward is read; its nodes outlive their saved tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from steadytrain.core.torch_private import BUFFERS, PARAMETERS

SUMS = ("AddBackward0", "SubBackward0", "StackBackward0", "CatBackward0")
NODES_MAX = 100_000
TERMS_MAX = 64


def has_experts(router: nn.Module, holder: nn.Module) -> bool:
    """Whether ``holder`` has as many modules in a list, or slices in a stacked weight, as the router has outputs.

    A gate of another kind, as that of a gated linear unit, weighs features.
    """
    experts = getattr(router, "out_features", 0)
    for part in holder.modules():
        if part is router:
            continue
        lists: list[Sequence[Any]] = [one for one in vars(part).values() if isinstance(one, (list, tuple))]
        if isinstance(part, (nn.ModuleList, nn.ModuleDict)):
            lists.append(list(part.children()))
        if any(len(one) == experts and all(isinstance(each, nn.Module) for each in one) for one in lists):
            return True
        if any(p is not None and p.dim() > 2 and p.shape[0] == experts for p in PARAMETERS.of(part).values()):
            return True
    return False


def balanced(loss: Any, routers: Iterable[tuple[nn.Module, nn.Module]]) -> bool | None:
    """Whether each router has such a term; None if unknown.

    Args:
        loss: the root node of the backward graph.
        routers: the linear layers that choose, each with its parent module, which contains the experts.
    """
    if loss is None:
        return None
    reached = [_reached(term) for term in _terms(loss)]
    answers = []
    for router, parent in routers:
        own = {id(parameter) for parameter in router.parameters() if parameter.requires_grad}
        others = {id(parameter) for parameter in parent.parameters() if parameter.requires_grad} - own
        experts = getattr(router, "out_features", 0)
        if not own or not others or _has_bias_for(experts, (router, parent)):
            return None  # a bias for each expert may balance without a gradient (arXiv 2408.15664)
        answers.append(any(found & own and not found & others for found in reached if found is not None))
    return all(answers) if answers else None


def _terms(loss: Any) -> list[Any]:
    """The summands of the loss, found through sums and through nodes that only scale, cast or average."""
    found: list[Any] = []
    waiting = [loss]
    while waiting and len(found) < TERMS_MAX:
        node = waiting.pop()
        following = [one for one, _ in node.next_functions if one is not None]
        here = node
        while len(following) == 1 and node.name() not in SUMS and not _is_leaf(following[0]):
            node = following[0]
            following = [one for one, _ in node.next_functions if one is not None]
        if node.name() in SUMS and len(following) > 1 and _is_scalar_path(here, node):
            waiting += following
        else:
            found.append(here)
    return found


def _is_scalar_path(first: Any, last: Any) -> bool:
    """Whether all nodes from a term to a sum below it are arithmetic. Past a layer, the sum lies inside the model."""
    node = first
    while node is not last:
        if not node.name().startswith(("Mul", "Div", "Mean", "Sum", "Neg", "ToCopy", "Squeeze", "View", "Alias")):
            return False
        node = next(one for one, _ in node.next_functions if one is not None)
    return True


def _reached(term: Any) -> set[int] | None:
    """The ids of the parameters that the term reaches; None if the graph is too large."""
    found: set[int] = set()
    seen, waiting = {term}, [term]
    while waiting:
        node = waiting.pop()
        if _is_leaf(node):
            found.add(id(node.variable))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                if len(seen) >= NODES_MAX:
                    return None
                seen.add(following)
                waiting.append(following)
    return found


def _is_leaf(node: Any) -> bool:
    return hasattr(node, "variable")


def _has_bias_for(experts: int, modules: Sequence[nn.Module]) -> bool:
    return any(
        buffer is not None and buffer.numel() == experts for module in modules for buffer in BUFFERS.of(module).values()
    )
