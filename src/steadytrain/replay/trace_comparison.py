"""Compares two traces of the same step operation by operation: where they diverge, and what that means.

A trace lists the operations of a step in order, with digests of all inputs and outputs (from ``replay/step_trace.py``).
The first difference is the cause; the later ones follow from it. Torch-free: the traces come from two processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Parting = Literal["operation", "number", "generator", "outside", "memory", "path"]
"""The kind of the first difference. An operation gave other bits for the same input (``operation``). It got another
number (``number``), another generator state (``generator``), or a tensor that changed outside the traced operations
(``outside``). It read uninitialised memory (``memory``). Or other operations ran (``path``).
"""

LOOK_AHEAD_MAX = 400
"""How many extra operations one trace may have at one place (such as a print of the loss by the clock) before the
traces
count as different paths through the script.
"""

SAME_AGAIN = 4
"""The traces count as rejoined after this many equal operations in a row."""


@dataclass(frozen=True)
class Value:
    """An argument or a result: the digest of a tensor or generator, or the text of a number.

    ``known``: an operation of the same trace created the tensor's memory. ``unwritten``: no operation had written it.
    """

    name: str
    kind: Literal["tensor", "number", "generator"]
    text: str
    known: bool = False
    unwritten: bool = False

    def to_json(self) -> list[Any]:
        return [self.name, self.kind, self.text, int(self.known), int(self.unwritten)]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Value:
        name, kind, text, known, unwritten = data
        return Value(name, kind, text, bool(known), bool(unwritten))


@dataclass(frozen=True)
class TracedOperation:
    """One operation as it ran. ``place`` has phase, module, file, line and code. ``random``: it drew random numbers."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    device: str
    random: bool = False
    place: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inputs": [value.to_json() for value in self.inputs],
            "outputs": [value.to_json() for value in self.outputs],
            "device": self.device,
            "random": self.random,
            **self.place,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TracedOperation:
        own = ("name", "inputs", "outputs", "device", "random")
        return TracedOperation(
            name=data["name"],
            inputs=tuple(Value.from_json(value) for value in data["inputs"]),
            outputs=tuple(Value.from_json(value) for value in data["outputs"]),
            device=data["device"],
            random=data["random"],
            place={key: value for key, value in data.items() if key not in own},
        )


@dataclass(frozen=True)
class Part:
    """The first place at which two traces differ. ``one`` and ``other`` are the differing texts."""

    parting: Parting
    at: int
    operation: TracedOperation | None
    value: str
    one: str
    other: str
    same_before: int


def first_part(one: Sequence[TracedOperation], other: Sequence[TracedOperation]) -> Part | None:
    """Where the traces diverge; None if all operations have the same bits.

    Operations that only one trace has are skipped if the traces rejoin: an occasional print is no cause. They are the
    answer only if the next difference has no cause of its own, or if the traces do not rejoin. The same holds for reads
    of
    uninitialised memory, whose values are mostly never used.
    """
    at, beside, same = 0, 0, 0
    detour: Part | None = None
    memory: Part | None = None
    while at < len(one) and beside < len(other):
        mine, theirs = one[at], other[beside]
        if _looks(mine) != _looks(theirs):
            detour = detour or Part("path", at, mine, "", _called(mine), _called(theirs), same)
            step = _together_again(one, other, at, beside)
            if step is None:
                return memory or detour
            at, beside = at + step[0], beside + step[1]
            continue
        found = _difference(mine, theirs, at, same)
        if found is not None and found.parting != "memory":
            nameless = found.parting == "outside"
            return (memory or detour or found) if nameless else found
        memory = memory or found
        at, beside, same = at + 1, beside + 1, same + (found is None)
    if at < len(one) or beside < len(other):
        rest = one[at] if at < len(one) else other[beside]
        ran = (_called(rest), "nothing more") if at < len(one) else ("nothing more", _called(rest))
        return memory or detour or Part("path", at, rest, "", *ran, same)
    return None


def _difference(mine: TracedOperation, theirs: TracedOperation, at: int, same: int) -> Part | None:
    """The difference in one operation: first numbers and generators, then input tensors, then outputs."""
    pairs = list(zip(mine.inputs, theirs.inputs, strict=True))
    different = [(own, their) for own, their in pairs if own.text != their.text]
    for kind in ("number", "generator"):
        for own, their in different:
            if own.kind == kind:
                return Part(kind, at, mine, own.name, own.text, their.text, same)
    for own, their in different:
        parting: Parting = "memory" if own.unwritten else "outside"
        return Part(parting, at, mine, own.name, own.text, their.text, same)
    for own, their in zip(mine.outputs, theirs.outputs, strict=True):
        if own.text != their.text:
            return Part("operation", at, mine, own.name, own.text, their.text, same)
    return None


def _looks(operation: TracedOperation) -> tuple[Any, ...]:
    """The identity of an operation: its name, the names and kinds of its arguments, and its line."""
    inputs = tuple((value.name, value.kind) for value in operation.inputs)
    return operation.name, inputs, len(operation.outputs), operation.place.get("file"), operation.place.get("line")


def _together_again(
    one: Sequence[TracedOperation], other: Sequence[TracedOperation], at: int, beside: int
) -> tuple[int, int] | None:
    """How far to advance in each trace until they run the same operations again: the shortest way, None if there is
    none."""
    for extra in range(1, LOOK_AHEAD_MAX + 1):
        for step in ((extra, 0), (0, extra), (extra, extra)):
            mine, theirs = one[at + step[0] :][:SAME_AGAIN], other[beside + step[1] :][:SAME_AGAIN]
            if mine and len(mine) == len(theirs) and list(map(_looks, mine)) == list(map(_looks, theirs)):
                return step
    return None


def _called(operation: TracedOperation) -> str:
    line = operation.place.get("line")
    return f"{operation.name} at {operation.place.get('file')}:{line}" if line else operation.name
