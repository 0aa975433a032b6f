"""Traces back from the first bad operation to the fewest operations with finite inputs, as a program.

A program needs only the inputs of the bad operation. If one of these is non-finite (the -Inf of a mask), the operation
that made it is added, and so on. If none was seen making it, or too many would be added, a ``masked_fill`` restores the
values.

A backward operation alone proves nothing: ``x / 0`` is no bug. The program then contains the differentiated forward
operation and its incoming gradient, and autograd does the rest. If the forward result is non-finite too (``where``
hides
it), the following operations are added, up to the one that hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from steadytrain.core.torch_private import OPERATOR
from steadytrain.repro.arguments import CannotWriteError, Device, Ref, map_leaves, refs_in
from steadytrain.repro.program import Program, Step, check_operation, draws_random_numbers, renamed, short_names
from steadytrain.repro.trail import Entry, Trail, Wanted
from steadytrain.tracing.operation_facts import operation_of
from steadytrain.tracing.tensor_summary import Kinds

PRODUCERS_MAX = 8
"""Bound on added operations for a program. Beyond it a ``masked_fill`` restores the mask."""

HIDERS_MAX = 8
"""Bound on the operations between a non-finite forward result and the operation that hides it."""

INFINITIES = (Kinds.NEGATIVE_INF, Kinds.POSITIVE_INF)


@dataclass(frozen=True)
class Cut:
    """The operations of a program in order. ``gradients`` enter the backward node of the last one.

    ``subject`` is the operation that the cut is about. ``filled`` names values with infinities to restore by
    ``masked_fill``.
    """

    subject: Entry
    entries: tuple[Entry, ...]
    gradients: tuple[str | None, ...]
    filled: tuple[str, ...]
    target: str | None


def cuts(trail: Trail, culprit: int, kind: Kinds, *, before: int = 0) -> Iterator[Cut]:
    """The possible cuts, the better one first. ``before`` nearest operations are added.

    Raises:
        CannotWriteError: an input holds NaN, and no recorded operation made it.
    """
    refusal: CannotWriteError | None = None
    found = 0
    for core, gradients, target in _cores(trail, culprit, kind):
        for count in dict.fromkeys((before, 0)):
            try:
                for cut in _both_ways(trail, core, gradients, target, count):
                    found += 1
                    yield cut
            except CannotWriteError as error:
                refusal = refusal or error
    if not found and refusal is not None:
        raise refusal


def _cores(trail: Trail, culprit: int, kind: Kinds) -> Iterator[tuple[list[Entry], tuple[str | None, ...], str | None]]:
    """The core of a cut: the differentiated operation with its gradients, or the bad operation itself."""
    birth = trail.entries[culprit]
    forward = trail.made_by.get(birth.node) if birth.node is not None else None
    if forward is not None and birth.node is not None:
        core = _down_to_finite(trail, trail.entries[forward])
        gradients = trail.incoming.get(_node_of(trail, core[-1].number), ())
        if any(gradients) and not any(trail.values[name].kinds for name in gradients if name):
            yield core, gradients, None
    made = [name for name in [*birth.results, *(new for _, new in birth.written)] if name]
    target = next((name for name in made if kind in trail.values[name].kinds), None)
    if target is not None:
        yield [birth], (), target


def wanted_by(trail: Trail, found: Sequence[Cut]) -> Wanted:
    """What a second capture must keep for these cuts."""
    return Wanted(
        frozenset(entry.number for cut in found for entry in cut.entries),
        frozenset(_node_of(trail, cut.entries[-1].number) for cut in found if cut.gradients),
    )


def lacks_values(trail: Trail, found: Sequence[Cut]) -> bool:
    """Whether a cut needs a value that was dropped because the step was too large to hold."""
    return trail.held.overflowed and any(name not in trail.held for cut in found for name in _come_in(cut))


def _come_in(cut: Cut) -> set[str]:
    read = {name for entry in cut.entries for name in _read(entry)} | {name for name in cut.gradients if name}
    return read - {name for entry in cut.entries for name in _made(entry)}


def program_of(trail: Trail, cut: Cut, kind: Kinds) -> Iterator[Program]:
    """The programs of a cut: one, or in backward one for each input whose gradient may hold the fault.

    Raises:
        CannotWriteError: a needed value was not kept, or a script cannot call an operation.
    """
    steps, inputs, meant = _steps(trail, cut)
    plain = Program(
        subject=check_operation(cut.subject.function),
        steps=steps,
        inputs=inputs,
        outputs=(),
        gradients=(),
        target=cut.target or "",
        kind=kind,
        meant=frozenset(meant),
        device=_device(trail, inputs),
    )
    if not cut.gradients:
        yield renamed(plain, short_names(plain))
        return
    outputs = [name for name in [*steps[-1].results, *(new for _, new in steps[-1].written)] if name]
    gradients = cut.gradients[: len(outputs)]
    backward = replace(plain, outputs=tuple(outputs[: len(gradients)]), gradients=gradients)
    backward = renamed(backward, short_names(backward))
    for name, tensor in backward.inputs.items():
        if tensor.is_floating_point() and name not in backward.gradients:
            for found in dict.fromkeys((kind, Kinds.NAN, *INFINITIES)):
                yield replace(backward, target=name, kind=found)


def _down_to_finite(trail: Trail, first: Entry) -> list[Entry]:
    """``first`` and the following operations, as long as the result is non-finite."""
    core = [first]
    nodes = set(trail.made_by.values())
    while len(core) <= HIDERS_MAX:
        bad = {name for name in _made(core[-1]) if trail.values[name].kinds}
        if not bad:
            return core
        after = (entry for number, entry in trail.entries.items() if number > core[-1].number and number in nodes)
        following = next((entry for entry in after if bad & set(_read(entry))), None)
        if following is None:
            break
        core.append(following)
    return [first]


def _both_ways(
    trail: Trail, core: Sequence[Entry], gradients: tuple[str | None, ...], target: str | None, before: int
) -> Iterator[Cut]:
    """The cut with the operations that made a mask, and the cut without."""
    chosen, filled = _closed(trail, core, known=True)
    earlier = _with_earlier(trail, chosen, before)
    yield Cut(core[0], earlier, gradients, filled, target)
    if len(chosen) > len(core):
        chosen, filled = _closed(trail, core, known=False)
        yield Cut(core[0], chosen, gradients, filled, target)


def _with_earlier(trail: Trail, chosen: tuple[Entry, ...], count: int) -> tuple[Entry, ...]:
    """``chosen`` and ``count`` operations that made its inputs, the latest first. Random ones stay outside."""
    found = {entry.number: entry for entry in chosen}
    in_backward = any(entry.node is not None for entry in chosen)
    for _ in range(count):
        made = {name for entry in found.values() for name in _made(entry)}
        numbers = {trail.values[name].producer for entry in found.values() for name in _read(entry) if name not in made}
        makers = (trail.entries[number] for number in numbers if number in trail.entries and number not in found)
        usable = [entry for entry in makers if _repeats(entry) and (in_backward or entry.node is None)]
        if not usable:
            break
        latest = max(usable, key=lambda entry: entry.number)
        found[latest.number] = latest
    return tuple(found[number] for number in sorted(found))


def _repeats(entry: Entry) -> bool:
    """Whether an operation is repeatable: it draws no random numbers and returns no uninitialised memory."""
    if not isinstance(entry.function, OPERATOR.get()):
        return False
    return not draws_random_numbers(str(entry.function)) and not operation_of(entry.function).fills


def _closed(trail: Trail, core: Sequence[Entry], *, known: bool) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """``core`` with the producers of its non-finite inputs. With ``known`` False these go into the second result
    instead."""
    chosen = {entry.number: entry for entry in core}
    waiting, filled = list(core), []
    while waiting:
        entry = waiting.pop()
        made = {name for other in chosen.values() for name in _made(other)}
        for name in dict.fromkeys(_read(entry)):
            value = trail.values[name]
            if not value.kinds or name in made or name in filled:
                continue
            if known and value.producer in trail.entries and len(chosen) - len(core) < PRODUCERS_MAX:
                producer = trail.entries[value.producer]
                chosen[producer.number] = producer
                waiting.append(producer)
                made |= set(_made(producer))
            elif Kinds.NAN in value.kinds:
                raise CannotWriteError("an input holds NaN already, and no recorded operation made it")
            else:
                filled.append(name)
    return tuple(chosen[number] for number in sorted(chosen)), tuple(filled)


def _steps(trail: Trail, cut: Cut) -> tuple[tuple[Step, ...], dict[str, torch.Tensor], set[str]]:
    """The steps, and their input tensors by their names in the trail."""
    steps: list[Step] = []
    inputs: dict[str, torch.Tensor] = {}
    meant: set[str] = set()
    made: set[str] = set()

    def take(name: str) -> None:
        if name in made or name in inputs:
            return
        tensor = trail.held.get(name)
        if tensor is None:
            raise CannotWriteError("an input is no plain tensor (sparse, quantized or sharded), so it was not kept")
        if name not in cut.filled:
            inputs[name] = tensor
            return
        for step, found in _fills(name, tensor):
            steps.append(step)
            inputs.update(found)
        made.add(name)
        meant.update({name, *(result for step in steps for result in step.results if result and name in result)})

    for entry in cut.entries:
        for name in dict.fromkeys(_read(entry)):
            take(name)
        operation = check_operation(entry.function)
        args = tuple(map_leaves(list(entry.args), portable))
        steps.append(Step(operation, args, map_leaves(dict(entry.kwargs), portable), entry.results, entry.written))
        made |= set(_made(entry))
        meant |= {name for name in _made(entry) if trail.values[name].kinds}
    for gradient in cut.gradients:
        if gradient is not None:
            take(gradient)
    return tuple(steps), inputs, meant


def _fills(name: str, tensor: torch.Tensor) -> Iterator[tuple[Step, dict[str, torch.Tensor]]]:
    """Steps that restore the infinities of ``tensor`` in a finite copy of it."""
    finite = torch.where(torch.isfinite(tensor), tensor, torch.zeros_like(tensor))
    present = [(-1, float("-inf")), (1, float("inf"))]
    found = [(sign, number) for sign, number in present if bool((tensor == number).any())]
    current, tensors = f"{name}:finite", {f"{name}:finite": finite}
    for place, (sign, number) in enumerate(found):
        where = f"{name}:where{sign}"
        tensors[where] = tensor == number
        result = name if place == len(found) - 1 else f"{name}:filled"
        step = Step("aten.masked_fill.Scalar", (Ref(current), Ref(where), number), {}, (result,))
        yield step, dict(tensors)
        current, tensors = result, {}


def _device(trail: Trail, names: Iterable[str]) -> str:
    """The device of the operations. CPU scalars may accompany tensors on another device."""
    devices = [trail.held.devices[name] for name in names if name in trail.held.devices]
    return next((device for device in devices if device != "cpu"), "cpu")


def portable(leaf: Any) -> Any:
    return Device() if isinstance(leaf, torch.device) else leaf


def _read(entry: Entry) -> list[str]:
    return list(refs_in([list(entry.args), dict(entry.kwargs)]))


def _made(entry: Entry) -> list[str]:
    return [name for name in [*entry.results, *(new for _, new in entry.written)] if name]


def _node_of(trail: Trail, number: int) -> int:
    return next((node for node, maker in trail.made_by.items() if maker == number), -1)
