"""Shrinks a program while its fault remains: fewer list entries, rows, columns, dimensions, digits.

Every pass tries its candidates in a fixed order and takes the first that still shows the fault, so results are
reproducible. The number of runs is bounded. A clock only stops operations that take seconds each, and the result then
says so. No pass adds new values, except indices set to 0 and rounded digits, so that no other fault is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from steadytrain.repro.arguments import Ref
from steadytrain.repro.program import Program, Step, function_of, shows_fault, used_names
from steadytrain.tracing.operation_facts import operation_of

RUNS_MAX = 6_000
"""Bound on runs of the program. The cases of the zoo take some hundred."""

SLOTS_TOGETHER_MAX = 5
"""Up to this many dimensions of equal size are tried in all combinations. More are tried all together and one by
one."""

SIZE_ARGUMENTS = frozenset({"size", "sizes", "normalized_shape", "input_sizes", "self_sizes", "shape", "output_size"})
"""Arguments that name tensor sizes, and change when a tensor is cut. Strides and paddings do not."""

SIZE_NUMBERS = frozenset({"N", "C", "HxW"})
"""The same for plain numbers, as in group normalisation."""

SIZE_IN_ARGUMENTS_MIN = 2
"""A size that is also an argument (the width of a normalisation) is not cut to 1, which would be a fault of its own."""

ROUNDED_NUMBERS_MAX = 100_000
DIGITS = (1, 2, 3, 4, 5)
"""Numbers of significant digits to try, fewest first."""

Slot = tuple[str, int]
"""A dimension of an input: its name and axis."""


class OutOfRuns(Exception):  # noqa: N818 (not an error: the result so far is kept)
    """The bound on runs or time is reached."""


@dataclass
class Trials:
    """The smallest program so far, and the remaining runs and time (``expired``)."""

    program: Program
    expired: Callable[[], bool]
    left: int = RUNS_MAX

    def takes(self, candidate: Program | None) -> bool:
        """Whether ``candidate`` shows the fault. If so, it becomes the smallest so far."""
        if candidate is None:
            return False
        if self.left <= 0 or self.expired():
            raise OutOfRuns
        self.left -= 1
        if not shows_fault(candidate):
            return False
        self.program = candidate
        return True


def shrink(program: Program, expired: Callable[[], bool]) -> tuple[Program, bool]:
    """The smallest program that the passes find, and whether they finished.

    ``program`` itself must show the fault.
    """
    trials = Trials(program, expired)
    try:
        _without_unused(trials)
        while _lists(trials) or _sizes(trials) or _indices(trials) or _dimensions(trials):
            pass
        _digits(trials)
    except OutOfRuns:
        return trials.program, False
    return trials.program, True


def _without_unused(trials: Trials) -> None:
    used = used_names(trials.program)
    trials.program = trials.program.given({n: t for n, t in trials.program.inputs.items() if n in used})


def _lists(trials: Trials) -> bool:
    """For operations on tensor lists (foreach): keeps the fewest entries, at the same positions in all lists."""
    changed = False
    for at, step in enumerate(trials.program.steps):
        length = max((len(value) for value in step.args if _is_tensor_list(value)), default=0)
        if length > 1:
            changed |= fewest(length, partial(_keep_entries, trials, trials.program, at, length))
            _without_unused(trials)
    return changed


def _sizes(trials: Trials) -> bool:
    """Keeps the fewest indices of a dimension, in all inputs that share it. Returns whether anything shrank."""
    changed = False
    for size in _sizes_in_order(trials.program):
        changed |= _one_size(trials, size)
    return changed


def _sizes_in_order(program: Program) -> list[int]:
    """Rows first: the sizes of the input with the most dimensions, first to last, then the others."""
    leading = max(program.inputs.values(), key=lambda tensor: tensor.dim(), default=torch.zeros(()))
    others = sorted({size for _, size in _slots(program)}, reverse=True)
    return [size for size in dict.fromkeys([*leading.shape, *others]) if size > 1]


def _one_size(trials: Trials, size: int) -> bool:
    for slots in _groups([slot for slot, found in _slots(trials.program) if found == size]):
        for numbers_too in (True, False):
            number = size if numbers_too else None
            least = SIZE_IN_ARGUMENTS_MIN if numbers_too else 1
            if fewest(size, partial(_keep_indices, trials, trials.program, slots, number), least):
                return True
    return False


def _keep_entries(trials: Trials, original: Program, at: int, length: int, kept: Sequence[int]) -> bool:
    return trials.takes(_picked(original, at, length, kept))


def _keep_indices(
    trials: Trials, original: Program, slots: Sequence[Slot], number: int | None, kept: Sequence[int]
) -> bool:
    return trials.takes(_cut_to(original, slots, kept, number))


def _indices(trials: Trials) -> bool:
    """Sets integer inputs to 0, because their values may point past the cut data."""
    changed = False
    for name, tensor in trials.program.inputs.items():
        if tensor.dtype in (torch.int64, torch.int32) and bool(tensor.any()):
            changed |= trials.takes(_with(trials.program, name, torch.zeros_like(tensor)))
    return changed


def _dimensions(trials: Trials) -> bool:
    """Drops dimensions of size 1, in all inputs at once or in one."""
    changed = False
    for depth in range(max((tensor.dim() for tensor in trials.program.inputs.values()), default=0)):
        changed |= trials.takes(_dropped(trials.program, list(trials.program.inputs), depth))
        for name in trials.program.inputs:
            changed |= trials.takes(_dropped(trials.program, [name], depth))
    return changed


def _digits(trials: Trials) -> None:
    """Rounds numbers to the fewest significant digits, in all inputs alike, then in each."""
    floating = [n for n, t in trials.program.inputs.items() if t.is_floating_point() and t.numel()]
    if sum(trials.program.inputs[name].numel() for name in floating) > ROUNDED_NUMBERS_MAX:
        return
    for digits in DIGITS:
        fewer = {name: rounded(trials.program.inputs[name], digits) for name in floating}
        if trials.takes(trials.program.given({**trials.program.inputs, **fewer})):
            break
    for name in floating:
        for digits in DIGITS:
            if trials.takes(_with(trials.program, name, rounded(trials.program.inputs[name], digits))):
                break


def fewest(count: int, keep: Callable[[Sequence[int]], bool], least: int = 1) -> bool:
    """Delta debugging over ``count`` positions. ``keep`` tests whether these suffice. True if any could be dropped."""
    kept: list[int] = list(range(count))
    pieces = 2
    while len(kept) > least:
        size = -(-len(kept) // pieces)
        parts = [kept[start : start + size] for start in range(0, len(kept), size)]
        found = next((part for part in parts if least <= len(part) < len(kept) and keep(part)), None)
        if found is not None:
            kept, pieces = found, 2
            continue
        rest = ([place for place in kept if place not in set(part)] for part in parts)
        found = next((one for one in rest if len(one) >= least and len(parts) > 2 and keep(one)), None)
        if found is not None:
            kept, pieces = found, max(pieces - 1, 2)
            continue
        if pieces >= len(kept):
            break
        pieces = min(len(kept), 2 * pieces)
    return len(kept) < count


def _slots(program: Program) -> list[tuple[Slot, int]]:
    return [
        ((name, at), size) for name, tensor in program.inputs.items() for at, size in enumerate(tensor.shape) if size
    ]


def _groups(slots: Sequence[Slot]) -> Iterator[Sequence[Slot]]:
    """The combinations of equally sized dimensions to cut together, the largest first."""
    if len(slots) > SLOTS_TOGETHER_MAX:
        yield slots
        yield from ((slot,) for slot in slots)
        return
    for count in range(len(slots), 0, -1):
        yield from itertools.combinations(slots, count)


def _cut_to(original: Program, slots: Sequence[Slot], kept: Sequence[int], number: int | None) -> Program | None:
    """``original`` with only the indices ``kept`` in these dimensions, and in size arguments that equal ``number``."""
    inputs: dict[str, Tensor] = dict(original.inputs)
    for name, dimension in slots:
        inputs[name] = inputs[name].index_select(dimension, torch.tensor(list(kept))).contiguous()
    steps = original.steps
    if number is not None:
        steps = tuple(_with_sizes(step, number, len(kept)) for step in steps)
        if steps == original.steps:
            return None  # no such sizes: the plain candidate comes next
    return replace(original, steps=steps, inputs=inputs)


def _with_sizes(step: Step, old: int, new: int) -> Step:
    """``step`` with ``new`` for every ``old`` in a list of sizes."""

    def change(name: str, value: Any) -> Any:
        if name in SIZE_ARGUMENTS and isinstance(value, (list, tuple)):
            return [new if entry == old else entry for entry in value]
        return new if name in SIZE_NUMBERS and value == old else value

    names = operation_of(function_of(step.operation)).arguments
    return replace(
        step,
        args=tuple(change(name, value) for name, value in zip(names, step.args, strict=False)),
        kwargs={name: change(name, value) for name, value in step.kwargs.items()},
    )


def _picked(program: Program, at: int, length: int, kept: Sequence[int]) -> Program:
    """Keeps only the entries ``kept`` of the lists of one step and of its results."""
    step = program.steps[at]

    def pick(value: Any) -> Any:
        return [value[place] for place in kept] if isinstance(value, (list, tuple)) and len(value) == length else value

    args = tuple(pick(value) for value in step.args)
    left = {leaf.name for value in args if isinstance(value, list) for leaf in value if isinstance(leaf, Ref)}
    fewer = replace(
        step,
        args=args,
        kwargs={key: pick(value) for key, value in step.kwargs.items()},
        results=tuple(pick(list(step.results))),
        written=tuple((old, new) for old, new in step.written if old in left),
    )
    return replace(program, steps=(*program.steps[:at], fewer, *program.steps[at + 1 :]))


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(entry, Ref) for entry in value)


def _with(program: Program, name: str, tensor: Tensor) -> Program | None:
    return program.given({**program.inputs, name: tensor})


def _dropped(program: Program, names: Sequence[str], depth: int) -> Program | None:
    changed: Mapping[str, Tensor] = {
        name: program.inputs[name].select(depth, 0)
        for name in names
        if program.inputs[name].dim() > depth and program.inputs[name].shape[depth] == 1
    }
    return program.given({**program.inputs, **changed}) if changed else None


def rounded(tensor: Tensor, digits: int) -> Tensor:
    """Rounds each number to so many significant digits in its dtype. Numbers that would overflow stay."""
    flat = [float(f"{number:.{digits - 1}e}") for number in tensor.flatten().tolist()]
    rounded = torch.tensor(flat, dtype=torch.float64).to(tensor.dtype).reshape(tensor.shape)
    return torch.where(torch.isfinite(rounded), rounded, tensor)
