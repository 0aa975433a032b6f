"""The trail of a traced run: every operation, its input and output values, and its backward node.

A *value* is what a tensor holds between two writes: the same memory, read the same way, not written in between. So a
tensor that autograd saved and unpacked is the same value as in the forward. The trail knows the non-finite kinds in
each
value, and holds the operations' inputs within a bound. If a run exceeds the bound and needs more than the inputs of
broken operations, a second capture names the operations that it needs (``wanted``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from steadytrain.core.torch_private import BACKWARD_NODE, LOCAL_TENSOR, SEQUENCE, STORAGE_ADDRESS
from steadytrain.repro.arguments import Ref, map_leaves
from steadytrain.repro.held_values import HeldValues
from steadytrain.tracing.operation_facts import operands_of, operation_of, written_by
from steadytrain.tracing.tensor_summary import Kinds, kinds_of, storage_of, unseen
from steadytrain.tracing.tracer import Observer

OPERATIONS_MAX = 500_000
"""A step of a large model has some ten thousand operations. Nothing is recorded beyond this bound."""

PRUNE_FROM = 4096
"""Dead storages are pruned from this number on, then at every doubling."""


@dataclass(frozen=True)
class Value:
    """``producer`` is the number of the operation that made it; None if it existed before the run."""

    producer: int | None
    kinds: Kinds


@dataclass(frozen=True)
class Entry:
    """One operation. ``args`` and ``kwargs`` hold a :class:`Ref` for each tensor.

    ``results`` are the names of the returned tensors, None for one of its inputs. ``written`` pairs the name of each
    overwritten value with that of the new one. ``node`` is the backward node in which it ran.
    """

    number: int
    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[str | None, ...]
    written: tuple[tuple[str, str], ...]
    node: int | None


@dataclass(frozen=True)
class Wanted:
    """What a capture must keep: the inputs of these operations, and the gradients that enter these nodes.

    With ``sources`` also everything that existed before the run: weights, batches, buffers.
    """

    operations: frozenset[int] = frozenset()
    nodes: frozenset[int] = frozenset()
    sources: bool = False


@dataclass
class _Storage:
    alive: Any  # a StorageWeakRef, which torch leaves untyped
    names: dict[Any, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Open:
    """A running operation. ``read`` holds its inputs by name, as copies if they will be overwritten."""

    function: Any
    read: Mapping[str, torch.Tensor]
    written: Sequence[torch.Tensor]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    node: int | None


class Trail(Observer):
    """Follows one traced run. ``entries`` are its operations by number, in order.

    ``held`` are the values by name, as far as they are available. ``made_by`` maps a backward node to the operation
    that it
    differentiates, ``incoming`` to its incoming gradients.
    """

    def __init__(self, wanted: Wanted | None = None) -> None:
        self.entries: dict[int, Entry] = {}
        self.values: dict[str, Value] = {}
        self.held = HeldValues(bounded=wanted is None)
        self.made_by: dict[int, int] = {}
        self.incoming: dict[int, tuple[str | None, ...]] = {}
        self._wanted = wanted
        self._sources = wanted is not None and wanted.sources
        self._storages: dict[int, _Storage] = {}
        self._prune_at = PRUNE_FROM
        self._open: _Open | None = None
        self._made_last: list[tuple[int, torch.Tensor]] = []

    def before(self, number: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._open = None
        if number >= OPERATIONS_MAX:
            return
        with unseen():
            self._follow_backward()
            keep = self._wanted is None or number in self._wanted.operations
            read: dict[str, torch.Tensor] = {}

            def refer(value: Any) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                name = self._read(value, keep=keep)
                read[name] = value
                return Ref(name)

            references = tuple(map_leaves(list(args), refer)), map_leaves(dict(kwargs), refer)
            written = _written(function, args, kwargs)
            for tensor in written:
                self._about_to_write(tensor, read)
            node = BACKWARD_NODE()
            sequence = None if node is None else int(SEQUENCE.of(node)())
            self._open = _Open(function, read, written, *references, sequence)

    def after(self, number: int, result: object) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        with unseen():
            written = self._overwrite(number, opened.written)
            mine = {id(tensor) for _, _, tensor in written}
            results = []
            for tensor in tensors_of(result):
                known = id(tensor) in mine or self._known(tensor) is not None
                results.append(None if known else self._name(tensor, number))
                self._made_last.append((number, tensor))
            made = [*(name for name in results if name), *(new for _, new, _ in written)]
            if self._wanted is None and any(self.values[name].kinds for name in made):
                for name, tensor in opened.read.items():
                    self.held.copy(name, tensor)
        self.entries[number] = Entry(
            number,
            opened.function,
            opened.args,
            opened.kwargs,
            tuple(results),
            tuple((old, new) for old, new, _ in written),
            opened.node,
        )

    def _about_to_write(self, tensor: torch.Tensor, read: dict[str, torch.Tensor]) -> None:
        """Keeps the present values of ``tensor`` and of everything that shares its memory."""
        storage = storage_of(tensor)
        known = None if storage is None else self._storages.get(STORAGE_ADDRESS.of(storage))
        if known is None:
            return
        names = set(known.names.values())
        self.held.overwritten(names)
        for name in names & read.keys():
            kept = self.held.get(name)
            read[name] = read[name].detach().clone() if kept is None else kept

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """The name of the present value of ``tensor``; None if the run did not use it."""
        with unseen():
            return self._known(tensor)

    def _overwrite(self, number: int, tensors: Sequence[torch.Tensor]) -> list[tuple[str, str, torch.Tensor]]:
        """Gives new names to the tensors that the operation wrote in place."""
        pairs = []
        for tensor in tensors:
            storage = storage_of(tensor)
            old = self._known(tensor)
            if storage is None or old is None:
                continue
            self._storages[STORAGE_ADDRESS.of(storage)].names.clear()
            pairs.append((old, self._name(tensor, number), tensor))
        return pairs

    def _read(self, tensor: torch.Tensor, *, keep: bool) -> str:
        name = self._known(tensor) or self._name(tensor, None)
        if keep or (self._sources and self.values[name].producer is None):
            self.held.refer(name, tensor)
        return name

    def _known(self, tensor: torch.Tensor) -> str | None:
        storage = storage_of(tensor)
        held = None if storage is None else self._storages.get(STORAGE_ADDRESS.of(storage))
        return None if held is None else held.names.get(_geometry(tensor))

    def _name(self, tensor: torch.Tensor, producer: int | None) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = Value(producer, kinds_of(tensor))
        storage = storage_of(tensor)
        if storage is not None:
            if len(self._storages) >= self._prune_at:
                self._storages = {key: held for key, held in self._storages.items() if not held.alive.expired()}
                self._prune_at = max(PRUNE_FROM, 2 * len(self._storages))
            held = self._storages.get(STORAGE_ADDRESS.of(storage))
            if held is None:
                held = self._storages[STORAGE_ADDRESS.of(storage)] = _Storage(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            held.names[_geometry(tensor)] = name
        return name

    def _follow_backward(self) -> None:
        """Registers hooks on the autograd nodes of the last operation's results, which are attached by now."""
        for number, tensor in self._made_last:
            node: Any = tensor.grad_fn
            if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
                continue  # a custom function's backward is Python: its operations are traced themselves
            sequence = int(SEQUENCE.of(node)())
            if sequence not in self.made_by:
                self.made_by[sequence] = number
                node.register_prehook(partial(self._gradients_come, sequence))
        self._made_last = []

    def _gradients_come(self, sequence: int, gradients: Sequence[torch.Tensor | None]) -> None:
        with unseen():
            keep = self._wanted is None or sequence in self._wanted.nodes
            self.incoming[sequence] = tuple(
                None if gradient is None else self._read(gradient, keep=keep) for gradient in gradients
            )


def _written(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call is about to write, each once."""
    operation = operation_of(function)
    operands = operands_of(operation, args, kwargs)
    names = written_by(operation, operands)
    values = (operand.value for operand in operands if operand.argument in names)
    return list({id(value): value for value in values if isinstance(value, torch.Tensor)}.values())


def tensors_of(result: object) -> Iterator[torch.Tensor]:
    """The tensors that an operation returned, with lists flattened, in order."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for entry in result:
            yield from tensors_of(entry)


def _geometry(tensor: torch.Tensor) -> Any:
    """How a tensor addresses its memory."""
    local: Any = LOCAL_TENSOR.on(tensor, tensor)
    if local.layout != torch.strided:
        return (tuple(local.shape), local.dtype, "sparse")
    return (
        local.storage_offset(),
        tuple(local.shape),
        local.stride(),
        local.dtype,
        local.is_conj(),
        local.is_neg(),
    )
