"""Shrinks a training while the rise remains: fewer rows, no optimizer state, only the last part of the model.

Every pass tries its candidates in a fixed order and takes the first that still shows the rise, as in
``shrink_program``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from steadytrain.repro.arguments import refs_in
from steadytrain.repro.program import Program, Step, run_step
from steadytrain.repro.rise_search import SHARE_MIN, Rise
from steadytrain.repro.shrink_program import fewest
from steadytrain.repro.training_program import Batch, Group, Training, loss_number

LINES_WANTED, BYTES_WANTED = 40, 100_000
"""A larger script is cut to the last part of its model, if that shows the same."""

SHARE_MAX = 4.0
"""Maximum share of the original rise. A single row may have several times the loss of its batch."""

CUTS_MAX = 24
"""Number of positions to try as cuts of a model, from its end."""

SIZED = frozenset({"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default"})

Lines = Callable[[Rise], int]


def smaller(rise: Rise, expired: Callable[[], bool], lines_of: Lines) -> tuple[Rise, tuple[str, ...]]:
    """The smallest training that the passes find, and texts that say which parts of the model were left out."""
    rise = _fewer_rows(rise, expired)
    rise = _without_state(rise)
    left_out: tuple[str, ...] = ()
    if lines_of(rise) > LINES_WANTED or size_bytes(rise) > BYTES_WANTED:
        cut = _last_part(rise, expired)
        if cut is not None:
            rise, operations = cut
            left_out = (f"the first {operations} operations of the model: their recorded results are inputs",)
            rise = _fewer_rows(rise, expired)
    return rise, left_out


def size_bytes(rise: Rise) -> int:
    """The size in bytes of all tensors that the script needs."""
    tensors = [*rise.training.weights.values(), *(one for batch in rise.training.batches for one in batch.values())]
    if rise.shape != "batch":
        states = (value for values in rise.training.rule.state.values() for value in values.values())
        tensors += [value for value in states if isinstance(value, Tensor)]
    return sum(tensor.nbytes for tensor in tensors)


def shows(rise: Rise, candidate: Training) -> Rise | None:
    """``rise`` with the candidate if that shows about the same rise and starts below the limit; else None.

    A much larger rise (updates on a single row) would be a different fault.
    """
    low, high = rise.measured(candidate)
    if rise.shape == "batch":
        return _stands_out(rise, candidate, low, high)
    rose = rise.high - rise.low
    if low <= rise.limit and rose * SHARE_MIN <= high - low <= rose * SHARE_MAX:
        return replace(rise, training=candidate, low=low, high=high)
    return None


def _stands_out(rise: Rise, candidate: Training, low: float, high: float) -> Rise | None:
    """Like ``shows`` for a batch: its loss must exceed that of every equally large piece of the batch before."""
    ordinary, cut = candidate.batches
    rows, kept = rows_of(ordinary), rows_of(cut)
    ordinary_high = low
    if rows and kept and kept < rows:
        pieces = [list(range(start, start + kept)) for start in range(0, rows - kept + 1, kept)]
        losses = (loss_number(candidate.program, candidate.weights, _cut(ordinary, rows, piece)) for piece in pieces)
        ordinary_high = max(losses)
    if not high - ordinary_high >= (rise.high - rise.low) * SHARE_MIN:
        return None
    return replace(rise, training=candidate, low=low, high=high, ordinary_high=ordinary_high)


def _fewer_rows(rise: Rise, expired: Callable[[], bool]) -> Rise:
    """Keeps the fewest batch rows in all tensors: the same rows in several batches, those of the second in a pair."""
    original = replace(rise, training=_with_free_sizes(rise.training))
    if shows(rise, original.training) is None:
        original = rise
    sizes = [
        tensor.shape[0] for tensor in original.training.batches[0].values() if tensor.dim() and tensor.shape[0] > 1
    ]
    best = original
    for size in dict.fromkeys(sizes):

        def keep(start: Rise, rows: int, kept: Sequence[int]) -> bool:
            nonlocal best
            found = (
                None
                if expired()
                else shows(start, _with_rows(start.training, rows, kept, only_last=rise.shape == "batch"))
            )
            best = found or best
            return found is not None

        if fewest(size, partial(keep, best, size)):
            break
    return best if best is not original else rise


def _with_rows(training: Training, rows: int, kept: Sequence[int], *, only_last: bool) -> Training:
    whole = training.batches[:-1] if only_last else ()
    batches = (*whole, *(_cut(batch, rows, kept) for batch in training.batches[len(whole) :]))
    program = training.program.given({**training.program.inputs, **batches[0]})
    return replace(training, program=program, batches=batches)


def _cut(batch: Batch, rows: int, kept: Sequence[int]) -> dict[str, Tensor]:
    """The rows ``kept`` of every tensor whose first size is a multiple of ``rows``."""

    def cut(tensor: Tensor) -> Tensor:
        if not tensor.dim() or not tensor.shape[0] or tensor.shape[0] % rows:
            return tensor
        blocks = tensor.reshape(rows, tensor.shape[0] // rows, *tensor.shape[1:])[list(kept)]
        return blocks.reshape(-1, *tensor.shape[1:]).contiguous()

    return {name: cut(tensor) for name, tensor in batch.items()}


def rows_of(batch: Batch) -> int | None:
    """The first size of the first tensor in a batch that has dimensions."""
    return next((tensor.shape[0] for tensor in batch.values() if tensor.dim()), None)


def _with_free_sizes(training: Training) -> Training:
    """Replaces the first size in views by -1, so that it may change."""
    return replace(training, program=replace(training.program, steps=tuple(map(_free, training.program.steps))))


def _free(step: Step) -> Step:
    if step.operation not in SIZED or len(step.args) < 2 or not isinstance(step.args[1], (list, tuple)):
        return step
    sizes = list(step.args[1])
    return replace(step, args=(step.args[0], [-1, *sizes[1:]], *step.args[2:])) if sizes and -1 not in sizes else step


def _without_state(rise: Rise) -> Rise:
    if rise.shape == "batch":
        return rise
    return shows(rise, replace(rise.training, rule=replace(rise.training.rule, state={}))) or rise


def _last_part(rise: Rise, expired: Callable[[], bool]) -> tuple[Rise, int] | None:
    """The shortest end of the model that shows the rise alone, and the number of operations before it."""
    if rise.shape == "updates":
        return None  # the part before the cut would change with every update
    steps = rise.training.program.steps
    places = sorted(
        {len(steps) - 1 - round(at * (len(steps) - 2) / CUTS_MAX) for at in range(1, CUTS_MAX)}, reverse=True
    )
    for place in places:
        if place <= 0 or expired():
            continue
        candidate = _from_place(rise.training, place)
        found = None if candidate is None else shows(rise, candidate)
        if found is not None:
            return found, place
    return None


def _from_place(training: Training, place: int) -> Training | None:
    """The operations from ``place`` on. The results of the earlier ones become part of the batch."""
    program = training.program
    later = program.steps[place:]
    made = {name for step in later for name in [*step.results, *(new for _, new in step.written)] if name}
    read = {name for step in later for name in refs_in([list(step.args), dict(step.kwargs)])} - made
    names = [name for name in training.rule.weights if name in read]
    if not names:
        return None
    batches = []
    for batch in training.batches:
        values: dict[str, Tensor] = {**program.inputs, **batch}
        with torch.no_grad():
            for step in program.steps[:place]:
                run_step(step, values, program.device)
        batches.append({name: values[name].clone() for name in sorted(read - set(names))})
    groups = tuple(
        Group(kept, group.settings)
        for group in training.rule.groups
        if (kept := tuple(name for name in group.weights if name in names))
    )
    at = [number for number, group in enumerate(training.rule.groups) if set(group.weights) & set(names)]
    rates = tuple(tuple(one[number] for number in at) for one in training.rates)
    state = {name: values for name, values in training.rule.state.items() if name in names}
    inputs = {**{name: program.inputs[name] for name in names}, **batches[0]}
    short: Program = replace(program, steps=later, inputs=inputs)
    return replace(
        training,
        program=short,
        rule=replace(training.rule, groups=groups, state=state),
        batches=tuple(batches),
        rates=rates,
    )
