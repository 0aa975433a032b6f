"""Traces one step: the inputs and outputs of every operation, as digests of their bits.

Two traces from two processes show which operation gave other bits for the same input
(``replay/trace_comparison.py``). Tracing does not change results, gradients or random numbers. Compiled code runs
eagerly instead, and may differ from the compiled step in its last bits (see ``StepTrace.compiled``). A kernel outside
torch's dispatcher (Triton, a C extension) leaves no entry. Its output shows as a tensor that no operation changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from steadytrain.capture.hooks import module_hooks, patches
from steadytrain.capture.snapshots.digests import digest
from steadytrain.capture.tensors.activations.compiled import graphs_traced
from steadytrain.core.torch_private import COMPILED_CALL, STORAGE_ADDRESS, compiler_is_loaded
from steadytrain.replay.determinism import FROM_MEMORY, base_name
from steadytrain.replay.trace_comparison import TracedOperation, Value
from steadytrain.tracing.anomaly_mode import BackwardStacks
from steadytrain.tracing.dispatch_mode import EachOperation
from steadytrain.tracing.operation_facts import Operand, Operation, operands_of, operation_of, unread_by, written_by
from steadytrain.tracing.places import ModuleCalls, code_at, place_here
from steadytrain.tracing.tensor_summary import storage_of, unseen

OPERATIONS_MAX = 200_000
"""About a hundred times the operations of a step of a 12-layer model. Tracing stops there."""

TEXT_CHARACTERS_MAX = 200

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[1]) + os.sep
_PATCHES = frozenset({patches.__file__, module_hooks.__file__})
"""The frames between the script and the function that it calls: backward runs under one of these."""

LOOKED_PAST = ("profiler", "prim")
"""Operations of these namespaces compute nothing."""

TAKES_IN = frozenset({"lift", "lift_fresh", "lift_fresh_copy"})
"""They create a tensor from Python numbers: they read their argument, whatever their schema says."""

ATTENTION = "_scaled_dot_product_"
"""Fused attention returns the seed and the offset of its dropout as integers. Without dropout nobody writes them, and
with it the output shows them."""

PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)


class StepTrace:
    """Traces the training thread from :meth:`begin` to :meth:`end`. ``modules`` maps modules to their paths."""

    def __init__(self, modules: Mapping[torch.nn.Module, str]) -> None:
        self.operations: list[TracedOperation] = []
        self.trouble: str | None = None
        self.compiled = False
        self._modules = dict(modules)
        self._calls = ModuleCalls()
        self._mode = _Mode(self)
        self._stacks = BackwardStacks()
        self._stance: AbstractContextManager[Any] = nullcontext()
        self._made: dict[int, _Memory] = {}
        self._backwards = 0
        self._running = False

    def begin(self) -> None:
        self._backwards = 0
        self._stacks.begin()
        if compiler_is_loaded():
            called = any(COMPILED_CALL.on(module) is not None for module in self._modules)
            self.compiled = called or graphs_traced() > 0
            self._stance = torch.compiler.set_stance("force_eager")
            self._stance.__enter__()
        self._calls.watch(self._modules)
        self._mode.__enter__()
        self._running = True

    def enter_module(self, module: torch.nn.Module) -> None:
        """Registers a call of ``module`` that began before tracing. Does nothing if its hooks saw the call."""
        path = self._modules.get(module)
        if path is not None:
            self._calls.join({module: path})

    def backward_begins(self) -> None:
        """Marks the start of a backward. Later operations outside modules no longer belong to the loss."""
        self._backwards += 1

    def end(self) -> None:
        """Ends tracing. A second call does nothing."""
        if not self._running:
            return
        self._running = False
        try:
            self._mode.__exit__(None, None, None)
        finally:
            self._stance.__exit__(None, None, None)
            self._stacks.end()
            self._calls.unwatch()

    def before(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Call | None:
        """Records the inputs of an operation; None for one that only makes a view."""
        operation = operation_of(function)
        if operation.only_a_view or len(self.operations) >= OPERATIONS_MAX or operation.name.startswith(LOOKED_PAST):
            return None
        operands = operands_of(operation, args, kwargs)
        takes_in = base_name(operation.name) in TAKES_IN
        unread = frozenset[str]() if takes_in else unread_by(operation, operands)
        drawing = torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
        inputs = [value for operand in operands for value in self._value(operand, unread)]
        own = any(isinstance(operand.value, torch.Generator) for operand in operands)
        device = _device(operands)
        if drawing and not own:
            inputs.append(Value("generator", "generator", _default_generator(device)))
        return _Call(operation, operands, tuple(inputs), device, drawing)

    def after(self, call: _Call, result: object) -> None:
        written = [
            operand.value
            for operand in call.operands
            if operand.argument in written_by(call.operation, call.operands) and isinstance(operand.value, torch.Tensor)
        ]
        made = [*written, *(tensor for tensor in _tensors(result) if all(tensor is not other for other in written))]
        from_memory = base_name(call.operation.name) in FROM_MEMORY
        attends = base_name(call.operation.name).startswith(ATTENTION)
        outputs = []
        for number, tensor in enumerate(made):
            is_seed = attends and not tensor.is_floating_point()
            self._remember(tensor, unwritten=from_memory, is_seed=is_seed)
            # Uninitialised memory is no result. Its digest is recorded where an operation reads it.
            text = f"{tensor.dtype}{list(tensor.shape)}" if from_memory or is_seed else _digest(tensor)
            outputs.append(Value(f"result {number}" if len(made) > 1 else "result", "tensor", text))
        place = self._place()
        entry = TracedOperation(call.operation.name, call.inputs, tuple(outputs), call.device, call.random, place)
        self.operations.append(entry)

    def _value(self, operand: Operand, unread: frozenset[str]) -> list[Value]:
        value = operand.value
        if isinstance(value, torch.Tensor):
            if operand.argument in unread:
                return []
            memory = self._memory(value)
            if memory is not None and memory.is_seed:
                return []
            unwritten = memory is not None and memory.unwritten
            return [Value(operand.name, "tensor", _digest(value), memory is not None, unwritten)]
        if isinstance(value, torch.Generator):
            return [Value(operand.name, "generator", _digest(value.get_state()))]
        return [Value(operand.name, "number", _text(value))]

    def _memory(self, tensor: torch.Tensor) -> _Memory | None:
        storage = storage_of(tensor)
        known = self._made.get(STORAGE_ADDRESS.of(storage)) if storage is not None else None
        return known if known is not None and not known.reference.expired() else None

    def _remember(self, tensor: torch.Tensor, *, unwritten: bool, is_seed: bool) -> None:
        """Memory counts as written after the first operation that writes any part of it."""
        storage = storage_of(tensor)
        if storage is not None:
            reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            self._made[STORAGE_ADDRESS.of(storage)] = _Memory(reference, unwritten, is_seed)

    def _place(self) -> dict[str, Any]:
        place = place_here(self._calls, losses_before=self._backwards)
        module = place.module
        if place.inside == "module":
            phase = "forward"
        elif place.inside == "outside":
            phase = "optimizer" if self._backwards else "loss"
        else:
            phase = "backward"
            module = self._calls.made(place.sequence) if place.sequence is not None else None
        file, line = place.line or (None, None)
        return {"phase": phase, "module": module or "", "file": file, "line": line, "code": code_at(place.line)}


class _Memory:
    """A storage that a traced operation created or wrote."""

    def __init__(self, reference: Any, unwritten: bool, is_seed: bool) -> None:
        self.reference = reference
        self.unwritten = unwritten
        self.is_seed = is_seed


class _Call:
    """An operation before it ran."""

    def __init__(
        self,
        operation: Operation,
        operands: Sequence[Operand],
        inputs: tuple[Value, ...],
        device: str,
        random: bool,
    ) -> None:
        self.operation = operation
        self.operands = operands
        self.inputs = inputs
        self.device = device
        self.random = random


class _Mode(EachOperation):
    """Runs each operation unchanged and records it before and after."""

    def __init__(self, trace: StepTrace) -> None:
        super().__init__()
        self._trace = trace

    def operation(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if _asked_by_us():
            return func(*args, **kwargs)
        call = None
        try:
            with unseen():
                call = self._trace.before(func, args, kwargs)
        except Exception as error:
            self._trouble(error)
        result = func(*args, **kwargs)
        if call is not None:
            try:
                with unseen():
                    self._trace.after(call, result)
            except Exception as error:
                self._trouble(error)
        return result

    def _trouble(self, error: Exception) -> None:
        self._trace.trouble = self._trace.trouble or f"{type(error).__name__}: {error}"


def _asked_by_us() -> bool:
    """Whether steadytrain itself runs the operation (to inspect losses or gradients)."""
    frame: FrameType | None = sys._getframe(3)  # above are the mode and its base class
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_TORCH) and file not in _PATCHES:
            return file.startswith(_OURS)
        frame = frame.f_back
    return False


def _tensors(result: object) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [tensor for entry in result for tensor in _tensors(entry)]
    return []


def _device(operands: Sequence[Operand]) -> str:
    for operand in operands:
        if isinstance(operand.value, torch.Tensor):
            return operand.value.device.type
        if isinstance(operand.value, torch.device):
            return operand.value.type
    return "cpu"


def _default_generator(device: str) -> str:
    if device == "cuda" and torch.cuda.is_available():
        return _digest(torch.cuda.get_rng_state())
    return _digest(torch.get_rng_state())


def _digest(tensor: torch.Tensor) -> str:
    """The digest of the values; for a tensor without values (meta) its dtype and shape."""
    plain = tensor.detach()
    if storage_of(plain) is None:
        return f"{plain.dtype}{list(plain.shape)}"
    return digest(plain)


def _text(value: object) -> str:
    """The exact text of a number. Other values by their type, because an address differs between processes."""
    if isinstance(value, (list, tuple)):
        text = f"[{', '.join(_text(entry) for entry in value)}]"
    else:
        text = repr(value) if isinstance(value, PLAIN) or value is None else type(value).__qualname__
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX]
