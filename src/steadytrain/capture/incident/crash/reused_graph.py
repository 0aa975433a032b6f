"""Evidence of a backward that runs into a graph that was used before: of an earlier step, or of another loss.

Torch says that saved values were freed, or that a tensor was modified in place. It does not say what leads into the
old graph. A node of the graph has a sequence number, so what was built before an earlier backward is known; and a
variable that the loop reads before it assigns it is what carries the graph from one step to the next.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.incident.crash.errors import chain, error_facts, live_frames
from steadytrain.capture.incident.source_hashes import is_library
from steadytrain.core.torch_private import SEQUENCE, VERSION

NODES_MAX = 200_000
NAMES_MAX = 8
ENTRIES_MAX = 64
BACKWARDS_MAX = 64
_LEAF_SEQUENCE = 1 << 62
"""Leaves have the largest number of all: they belong to no step."""

_FREED = "backward through the graph a second time"
_MODIFIED = re.compile(
    r"modified by an inplace operation: \[[\w.]+ \[([\d, ]*)\]\].* is at version (\d+); expected version"
)


@dataclass(frozen=True)
class Backward:
    """A backward of ``step`` (the one in progress counts from 1), and the sequence number of its newest root."""

    step: int
    sequence: int


def newest_of(roots: Sequence[Tensor]) -> int:
    """The largest sequence number of the roots' nodes; -1 if none has a graph."""
    return max((int(SEQUENCE.of(root.grad_fn)()) for root in roots if root.grad_fn is not None), default=-1)


def reused_graph_document(
    error: BaseException, backwards: Sequence[Backward], names: Mapping[int, str]
) -> dict[str, Any] | None:
    """The evidence; None for other errors, and for a tensor modified in place that no optimizer updates.

    Args:
        backwards: the last backwards of the script, oldest first; the last one failed.
        names: names of parameters by ``id``.
    """
    for one in chain(error):
        modified = _MODIFIED.search(str(one)) if isinstance(one, RuntimeError) else None
        if modified is None and not (isinstance(one, RuntimeError) and _FREED in str(one)):
            continue
        graph = _Graph(_roots(live_frames(one)), backwards)
        parameters = graph.updated(modified[1], int(modified[2]), names) if modified is not None else []
        if modified is not None and not parameters:
            return None  # an activation that the model itself overwrites: another fault
        frames = [frame for frame in live_frames(one) if not is_library(frame.f_code.co_filename)]
        return {
            "error": error_facts(one),
            "kind": "freed" if modified is None else "updated",
            "from_step": graph.earlier.step if graph.earlier else None,
            "in_step": backwards[-1].step if backwards else None,
            "operations": graph.boundary,
            "parameters": parameters,
            "carried": list(dict.fromkeys(_carried(frames, graph)))[:NAMES_MAX],
            "held": list(dict.fromkeys(_held(frames, graph)))[:NAMES_MAX],
        }
    return None


class _Graph:
    """The graph of the backward that failed. ``earlier`` is the newest other backward whose nodes it reaches."""

    def __init__(self, roots: Sequence[Tensor], backwards: Sequence[Backward]) -> None:
        past = backwards[:-1]
        self._newest = newest_of(roots)
        self.earlier: Backward | None = None
        self._leaves: list[Tensor] = []
        seen: set[Any] = set()
        waiting = deque(root.grad_fn for root in roots if root.grad_fn is not None)
        crossings: dict[str, None] = {}
        while waiting and len(seen) < NODES_MAX:
            node = waiting.popleft()
            if node in seen:
                continue
            seen.add(node)
            for other, _ in node.next_functions:
                if other is None:
                    continue
                variable = getattr(other, "variable", None)
                if isinstance(variable, Tensor):
                    self._leaves.append(variable)
                    continue
                self._cross(node, other, past, crossings)
                waiting.append(other)
        self.boundary = list(crossings)[:NAMES_MAX]

    def _cross(self, node: Any, other: Any, past: Sequence[Backward], crossings: dict[str, None]) -> None:
        """Notes an edge from what is new into what an earlier backward has used."""
        below = _last_before(past, _sequence(other))
        if below is not None and _last_before(past, _sequence(node)) is None:
            crossings.setdefault(node.name())
            if self.earlier is None or below.sequence > self.earlier.sequence:
                self.earlier = below

    def updated(self, shape: str, version: int, names: Mapping[int, str]) -> list[str]:
        """Parameters in the graph of that version and ``shape``, as the message prints it, or its transposition."""
        wanted = [int(size) for size in shape.split(",") if size.strip()]
        found = (
            leaf
            for leaf in self._leaves
            if list(leaf.shape) in (wanted, wanted[::-1]) and VERSION.of(leaf) == version and id(leaf) in names
        )
        return list(dict.fromkeys(names[id(leaf)] for leaf in found))[:NAMES_MAX]

    def in_time(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` has a graph, and was computed before or as the root: not from it."""
        return tensor.grad_fn is not None and _sequence(tensor.grad_fn) <= self._newest

    def used(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` was computed before the newest backward that the graph reaches."""
        node = tensor.grad_fn
        return node is not None and self.earlier is not None and _sequence(node) <= self.earlier.sequence


def _sequence(node: Any) -> int:
    return int(SEQUENCE.of(node)())


def _last_before(past: Sequence[Backward], sequence: int) -> Backward | None:
    """The first backward that may have used a node of this number: the first with a newer root."""
    if sequence >= _LEAF_SEQUENCE:
        return None
    return next((one for one in past if sequence <= one.sequence), None)


def _roots(frames: Sequence[FrameType]) -> list[Tensor]:
    """What ``backward`` was called on: it is a variable of torch's own functions."""
    for frame in frames:
        for name in ("t_outputs", "tensors", "outputs", "self"):
            found = [one for one in _tensors_of(frame.f_locals.get(name)) if one.grad_fn is not None]
            if found:
                return found
    return []


def _tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [one for one in value[:ENTRIES_MAX] for one in _tensors_of(one)]
    return []


def _carried(frames: Sequence[FrameType], graph: _Graph) -> Iterator[str]:
    """Variables with a graph that a loop around the failing line reads before it assigns them."""
    for frame in frames:
        for name in _read_before_assigned(frame):
            if any(map(graph.in_time, _tensors_of(frame.f_locals.get(name)))):
                yield name


def _held(frames: Sequence[FrameType], graph: _Graph) -> Iterator[str]:
    """Variables, and attributes of modules, that were computed before the earlier backward and are still there."""
    for frame in frames:
        for name, value in list(frame.f_locals.items()):
            if any(map(graph.used, _tensors_of(value))):
                yield name
            if isinstance(value, nn.Module):
                for path, module in value.named_modules():
                    for attribute, kept in list(vars(module).items()):
                        if any(one.grad_fn is not None for one in _tensors_of(kept)):
                            yield ".".join(filter(None, (name, path, attribute)))


def _read_before_assigned(frame: FrameType) -> list[str]:
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    around = [
        one
        for one in ast.walk(tree)
        if isinstance(one, (ast.For, ast.While)) and one.lineno <= frame.f_lineno <= (one.end_lineno or one.lineno)
    ]
    return list(dict.fromkeys(name for loop in around for name in _carried_by(loop)))


def _carried_by(loop: ast.For | ast.While) -> list[str]:
    assigned: set[str] = set()
    if isinstance(loop, ast.For):
        assigned.update(one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name))
    read: dict[str, None] = {}
    for statement in loop.body:
        read.update(dict.fromkeys(name for name in _names(statement, ast.Load) if name not in assigned))
        assigned.update(_names(statement, ast.Store))
    return [name for name in read if name in assigned]


def _names(statement: ast.stmt, use: type[ast.expr_context]) -> Iterator[str]:
    for one in ast.walk(statement):
        if isinstance(one, ast.Name) and isinstance(one.ctx, use):
            yield one.id
        elif isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
            yield one.target.id
