"""Inspects the results of each traced operation and explains non-finite ones.

An explanation is a :class:`~steadytrain.tracing.value_origins.Record`: the operation made the value (a birth), set it
on purpose (a constant), or carried it from an input. An input counts only for the kinds that it holds at that moment.
So a value that was absorbed (by ``where``, ``max``, the softmax of a mask) is never inherited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from steadytrain.core.incident import NOT_MADE_HERE, UNKNOWN_OWNER, OperandRange
from steadytrain.core.torch_private import STORAGE_ADDRESS
from steadytrain.tracing.operation_facts import (
    C10D,
    Operand,
    Operation,
    kinds_in_numbers,
    operands_of,
    operation_of,
    selected_part,
    unread_by,
    written_by,
)
from steadytrain.tracing.places import ModuleCalls, Place, place_here
from steadytrain.tracing.tensor_summary import WORDS, Kinds, count_kind, kinds_of, storage_of, summarize, unseen
from steadytrain.tracing.value_origins import Holdings, Record, Target, ancestry, each_kind

CARRIERS_MAX = 20_000
"""Bound on the records of operations that only carried a value. Beyond it, chains get shorter."""

COPY_BYTES_MAX = 256 * 2**20
"""Bound on the bytes copied before an in-place operation. Larger tensors are summarised beforehand instead."""

OPERANDS_MAX = 16
"""Bound on described arguments. Only list operations over many tensors have more."""

OTHER_SIGN = {Kinds.POSITIVE_INF: Kinds.NEGATIVE_INF, Kinds.NEGATIVE_INF: Kinds.POSITIVE_INF}

INFINITY_IS_MEANT = frozenset({UNKNOWN_OWNER, "the buffer"})
"""Places of ready-made masks. In a batch, parameter or gradient an Inf is a fault like a NaN."""

BATCH = "the batch"
"""The owner of what a model is called with."""


@dataclass(frozen=True)
class _Before:
    """A tensor before it was overwritten: a copy, or for a very large one a summary."""

    copy: torch.Tensor | None
    kinds: Kinds
    summary: OperandRange | None


@dataclass(frozen=True)
class Call:
    """One dispatched operation with its arguments. ``before`` is keyed by position in ``operands``."""

    number: int
    operation: Operation
    operands: Sequence[Operand]
    written: frozenset[str]
    unread: frozenset[str]
    before: Mapping[int, _Before]


@dataclass(frozen=True)
class _Held:
    """An input of an operation: the kinds that it holds, and the records behind them."""

    position: int | None
    origins: Mapping[Kinds, tuple[Record, ...]]


@dataclass(frozen=True)
class _Made:
    """A result of an operation: its ``position`` in a list, and whether it was written in place."""

    tensor: torch.Tensor
    position: int | None
    written: bool


def call_of(number: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Operation ``number`` before it runs, with copies of what it will overwrite."""
    operation = operation_of(function)
    operands = operands_of(operation, args, kwargs)
    written, unread = written_by(operation, operands), unread_by(operation, operands)
    before: dict[int, _Before] = {}
    room = COPY_BYTES_MAX
    if written - unread:
        with unseen():
            for position, operand in enumerate(operands):
                if operand.argument in written - unread and isinstance(operand.value, torch.Tensor):
                    before[position] = _keep(operand, room)
                    room -= operand.value.nbytes
    return Call(number, operation, operands, written, unread, before)


class Watch:
    """The state of a trace: origins of non-finite values, marked losses, module calls. ``from_batch``: it began before
    the script made the input of its model. ``newest``: behind the last NaN that an operation gave."""

    def __init__(self) -> None:
        self.calls = ModuleCalls()
        self.holdings = Holdings()
        self.losses: list[Target] = []
        self.losses_marked = 0
        self.from_batch = False
        self.newest: tuple[Record, ...] = ()
        self.records = 0
        self.trouble: str | None = None

    def guarded(self, look: Callable[[], object]) -> None:
        """Runs our own code. An error is noted and never reaches the run."""
        try:
            look()
        except Exception as error:
            self.trouble = self.trouble or f"{type(error).__name__}: {error}"

    def note(self, tensors: Mapping[str, torch.Tensor], owner: str, *, traced: bool = False) -> None:
        """Records which of ``tensors`` hold non-finite values before the run. ``traced``: but for those of known
        origin."""
        with unseen():
            for name, tensor in tensors.items():
                kinds = each_kind(kinds_of(tensor))
                if traced:
                    kinds = tuple(kind for kind in kinds if not self.holdings.origins(tensor, kind))
                if kinds:
                    self.holdings.write(tensor, [self._source(tensor, kind, owner, name) for kind in kinds])

    def note_inputs(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Records which of ``tensors`` hold non-finite values that no traced operation made."""
        self.from_batch = True
        for name, tensor in tensors.items():
            if not self._is_made_here(tensor):
                with unseen():
                    kinds = each_kind(kinds_of(tensor))
                    made = [self._source(tensor, kind, BATCH, name, NOT_MADE_HERE) for kind in kinds]
                    if made:
                        self.holdings.write(tensor, made)

    def _is_made_here(self, tensor: torch.Tensor) -> bool:
        """Whether traced operations made all non-finite values of ``tensor``, out of what did not hold them."""
        with unseen():
            kinds = each_kind(kinds_of(tensor))
            behind = [self.holdings.origins(tensor, kind) for kind in kinds]
        reached = ancestry([Target("", records) for records in behind])
        return bool(behind) and all(behind) and not any(one.source and not one.constant for one in reached)

    def mark_loss(self, loss: torch.Tensor) -> None:
        """Registers ``loss`` as the root of the next backward."""
        self.losses_marked += 1
        records = self.behind(loss, "the loss")
        if records:
            self.losses.append(Target("loss", records))

    def mark_target(self, name: str, tensor: torch.Tensor) -> None:
        """Registers a tensor that must be finite, like a loss or a gradient."""
        records = self.behind(tensor, name)
        if records:
            self.losses.append(Target(name, records))

    def behind(self, tensor: torch.Tensor, reader: str) -> tuple[Record, ...]:
        """The records behind the non-finite values that ``tensor`` holds now; empty if it is finite."""
        with unseen():
            kinds = each_kind(kinds_of(tensor))
            return tuple(record for kind in kinds for record in self._origins(tensor, kind, reader))

    def look(self, call: Call, result: object) -> None:
        """Inspects the results of an operation, which are finite nearly always."""
        if call.operation.only_a_view:
            return
        if call.operation.name.startswith(C10D):
            _wait_for(result)
        with unseen():
            found = [(made, kinds_of(made.tensor)) for made in _made(call, result)]
            bad = [(made, kinds) for made, kinds in found if kinds]
            if bad:
                self._explain_all(call, bad)
            if len(self.holdings):  # last, because overwritten values may explain the others
                for made, kinds in found:
                    if made.written and not kinds:
                        self.holdings.write(made.tensor, ())

    def _explain_all(self, call: Call, bad: Sequence[tuple[_Made, Kinds]]) -> None:
        place = place_here(self.calls, losses_before=self.losses_marked)
        held = [self._held(call, number, place) for number in range(len(call.operands))]
        inputs = {_address(operand.value) for operand in call.operands if operand.argument not in call.written}
        explained: dict[tuple[int | None, Kinds], tuple[Record, ...]] = {}
        for made, kinds in bad:
            if not made.written and not call.operation.fills and _address(made.tensor) in inputs - {None}:
                continue  # a view that the schema does not declare
            position = made.position if call.operation.pairs_lists else None
            for kind in each_kind(kinds):
                if (position, kind) not in explained:
                    explained[position, kind] = self._explain(call, kind, _paired_with(position, held), place)
            records = _distinct(explained[position, kind] for kind in each_kind(kinds))
            self.holdings.write(made.tensor, records)
            self.newest = tuple(record for record in records if record.kind is Kinds.NAN) or self.newest

    def _explain(self, call: Call, kind: Kinds, held: Sequence[_Held], place: Place) -> tuple[Record, ...]:
        """The record behind the values of ``kind`` in a result; past ``CARRIERS_MAX`` the older records."""
        operation = call.operation
        same = _distinct(one.origins.get(kind, ()) for one in held)
        if not same and operation.keeps_infinities and kind is not Kinds.NAN:
            same = _distinct(one.origins.get(OTHER_SIGN[kind], ()) for one in held)
        if kind in kinds_in_numbers(call.operands) or (operation.fills and not same):
            shapes = tuple(_shape_only(operand) for operand in call.operands[:OPERANDS_MAX])
            constant = Record(
                self._next(),
                kind,
                operation.name,
                constant=True,
                parents=same,
                place=place,
                inputs=shapes,
                number=call.number,
            )
            return (constant,)
        if same and self.records >= CARRIERS_MAX:
            return same
        if same:
            contracted = any(record.contracted for record in same)
            carrier = Record(
                self._next(),
                kind,
                operation.name,
                contracted=contracted,
                parents=same,
                place=place,
                number=call.number,
            )
            return (carrier,)
        behind = _distinct(
            _passed_on(call.operation, other, one.origins[other]) for one in held for other in one.origins
        )
        birth = Record(
            self._next(),
            kind,
            operation.name,
            born=True,
            contracted=operation.contracts or any(record.contracted for record in behind),
            parents=behind,
            place=place,
            inputs=_describe(call),
            number=call.number,
        )
        return (birth,)

    def _held(self, call: Call, number: int, place: Place) -> _Held:
        operand = call.operands[number]
        if not isinstance(operand.value, torch.Tensor) or operand.argument in call.unread:
            return _Held(operand.position, {})
        before = call.before.get(number)
        if before is None:
            kinds = kinds_of(selected_part(call.operation, operand, call.operands))
        elif before.copy is None:
            kinds = before.kinds
        else:
            kinds = kinds_of(selected_part(call.operation, replace(operand, value=before.copy), call.operands))
        reader = f"{call.operation.name} as {operand.name}"
        if place.line is not None:
            reader += " at {}:{}".format(*place.line)
        return _Held(operand.position, {kind: self._origins(operand.value, kind, reader) for kind in each_kind(kinds)})

    def _origins(self, tensor: torch.Tensor, kind: Kinds, reader: str) -> tuple[Record, ...]:
        known = self.holdings.origins(tensor, kind)
        if known:
            return known
        name = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}, first read by {reader}"
        record = Record(self._next(), kind, "", source=f"{UNKNOWN_OWNER} held {WORDS[kind]}: {name}")
        record = replace(record, constant=kind is not Kinds.NAN)
        self.holdings.add(tensor, [record])
        return (record,)

    def _source(self, tensor: torch.Tensor, kind: Kinds, owner: str, name: str, when: str = "") -> Record:
        count, first = count_kind(tensor, kind)
        when = when or ("when the model got it" if owner == BATCH else "before any operation")
        where = f"{count} of {tensor.numel()} values, first at {first}, {when}"
        meant = kind is not Kinds.NAN and owner in INFINITY_IS_MEANT
        text = f"{owner} already holds {WORDS[kind]}: {name}, {where}"
        return Record(self._next(), kind, "", constant=meant, source=text)

    def _next(self) -> int:
        self.records += 1
        return self.records


def _wait_for(result: object) -> None:
    """Waits for a c10d collective, whose tensors are complete only then."""
    for value in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(value, torch.ScriptObject):
            torch.distributed.Work.unbox(value).wait()


def _keep(operand: Operand, room: int) -> _Before:
    tensor: torch.Tensor = operand.value
    if tensor.nbytes <= room:
        return _Before(tensor.clone(), Kinds.NONE, None)
    return _Before(None, kinds_of(tensor), summarize(operand.name, tensor))


def _made(call: Call, result: object) -> Iterator[_Made]:
    """Every tensor that the operation returned or wrote, once."""
    written = {
        id(operand.value): operand
        for operand in call.operands
        if operand.argument in call.written and isinstance(operand.value, torch.Tensor)
    }
    for operand in written.values():
        yield _Made(operand.value, operand.position, written=True)
    results = result if isinstance(result, (list, tuple)) else [result]
    for position, value in enumerate(results):
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(tensor, torch.Tensor) and id(tensor) not in written:
                yield _Made(tensor, position, written=False)


def _paired_with(position: int | None, held: Sequence[_Held]) -> Sequence[_Held]:
    """The inputs behind the result at ``position`` of a list operation; all inputs of an ordinary one."""
    return [one for one in held if position is None or one.position in {None, position}]


def _passed_on(operation: Operation, kind: Kinds, records: tuple[Record, ...]) -> tuple[Record, ...]:
    """The ``records`` of an input from which a new kind of value can come. The -Inf of a mask is excluded."""
    if not operation.absorbs_negative_inf or kind is not Kinds.NEGATIVE_INF:
        return records
    return tuple(record for record in records if record.contracted)


def _describe(call: Call) -> tuple[OperandRange, ...]:
    described = []
    for number, operand in enumerate(call.operands[:OPERANDS_MAX]):
        before = call.before.get(number)
        if operand.argument in call.unread:
            described.append(_shape_only(operand))
        elif before is not None and before.summary is not None:
            described.append(before.summary)
        else:
            described.append(summarize(operand.name, before.copy if before is not None else operand.value))
    return tuple(described)


def _shape_only(operand: Operand) -> OperandRange:
    """Describes an argument by its shape only, because its values explain nothing."""
    value = operand.value
    if not isinstance(value, torch.Tensor):
        return summarize(operand.name, value)
    dtype = str(value.dtype).removeprefix("torch.")
    return OperandRange(name=operand.name, shape=tuple(value.shape), dtype=dtype, device=str(value.device))


def _distinct(groups: Iterable[Sequence[Record]]) -> tuple[Record, ...]:
    return tuple(dict.fromkeys(record for group in groups for record in group))


def _address(value: object) -> int | None:
    storage = storage_of(value) if isinstance(value, torch.Tensor) else None
    return None if storage is None else int(STORAGE_ADDRESS.of(storage))
