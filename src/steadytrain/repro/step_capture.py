"""Captures the steps of a replay: how weights and batch become a loss, and the state from which the update starts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.observers import CompositeObserver, StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.torch_private import compiler_is_loaded
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.repro.arguments import CannotWriteError, Ref, map_leaves, refs_in
from steadytrain.repro.held_values import on_host
from steadytrain.repro.operation_cone import portable
from steadytrain.repro.program import Program, Step, check_operation, program_to_json
from steadytrain.repro.trail import Trail, Wanted
from steadytrain.tracing.dispatch_mode import EachOperation
from steadytrain.tracing.tensor_summary import Kinds

PLAIN = (bool, int, float, str, type(None))


class LooksAfter(CompositeObserver):
    """Runs the capture after the replay has put everything in place, and at the gate before the replay ends."""

    def __init__(self, first: StepObserver, guest: StepCapture) -> None:
        super().__init__(first, guest)
        self._capture = guest

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        changed = self._first.call_begins(module, call, args, kwargs)
        self._capture.call_begins(module, call, args, kwargs)
        return changed

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._capture.forward_and_backward_ended(stream, seen, measured)
        self._first.gate(stream, seen, measured)
        self._capture.gate(stream, seen, measured)


class StepCapture(StepObserver):
    """Captures the steps of ``window`` during a replay."""

    def __init__(self, *, own_steps: OwnSteps, replayed_from: int, window: range) -> None:
        self._before = replayed_from - own_steps.wanted
        self._now = self._before
        self._window = window
        self._trail: Trail | None = None
        self._mode: EachOperation | None = None
        self._eager: AbstractContextManager[Any] = nullcontext()
        self._roots: list[Tensor] = []
        self._stream: Stream | None = None
        self._steps: list[dict[str, Any]] = []
        self._tensors: dict[str, Tensor] = {}
        self._start: dict[str, Any] = {}

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> None:
        if self._now not in self._window or self._mode is not None:
            return
        self._trail, self._roots = Trail(Wanted(sources=True)), []
        if compiler_is_loaded():
            self._eager = torch.compiler.set_stance("force_eager")
            self._eager.__enter__()
        self._mode = TrailMode(self._trail)
        self._mode.__enter__()
        return

    def loss_seen(self, root: Tensor) -> None:
        if self._mode is not None:
            self._roots.append(root)

    def forward_and_backward_ended(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._stream = self._stream or stream
        if stream is not self._stream or self._mode is None:
            return
        self._mode.__exit__(None, None, None)
        self._eager.__exit__(None, None, None)
        self._mode = None
        assert self._trail is not None
        lead = f"{self._now}."
        step: dict[str, Any] = {
            "step": self._now,
            "losses": [float(one) for one in measured.losses if math.isfinite(one)],
            "why": None,
            "program": None,
        }
        try:
            program, weights = loss_program(self._trail, self._roots, stream.parameters)
            step |= {"program": program_to_json(program), "weights": weights}
        except CannotWriteError as refusal:
            step["why"] = str(refusal)
        else:
            kept = program.inputs if not self._steps else {n: t for n, t in program.inputs.items() if n not in weights}
            self._tensors |= {lead + name: tensor for name, tensor in kept.items()}
        if not self._steps:
            gradients = [(at, parameter.grad) for at, parameter in enumerate(stream.parameters)]
            self._tensors |= {f"gradient.{at}": on_host(one) for at, one in gradients if one is not None}
        step["clip"] = seen.clipping.limit
        self._steps.append(step)
        self._trail, self._roots = None, []

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """Records the hyper-parameters, which are now those of the recorded step. The update follows."""
        if stream is not self._stream or not self._steps or self._steps[-1]["step"] != self._now:
            return
        places = {id(parameter): at for at, parameter in enumerate(stream.parameters)}
        self._steps[-1]["groups"] = [
            [
                {**_plain(group), "parameters": [places[id(one)] for one in group["params"] if id(one) in places]}
                for group in optimizer.param_groups
            ]
            for optimizer in stream.optimizers
        ]
        if not self._start:
            self._start = {"optimizers": [_name(optimizer) for optimizer in stream.optimizers], "state": {}}
            for optimizer in stream.optimizers:
                for parameter, values in optimizer.state.items():
                    self._keep_state(places[id(parameter)], values)

    def calls_forgotten(self) -> None:
        self._now += 1

    def step_ended(self, stream: Stream, folder: Any) -> None:
        if self._stream is None or stream is self._stream:
            self._now += 1

    def left(self, why: str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that was captured, or the reason ``why`` there is nothing."""
        names = {} if self._stream is None or self._stream.model is None else self._stream.model.names
        parameters = [] if self._stream is None else self._stream.parameters
        named = [names.get(id(parameter), f"parameter {at}") for at, parameter in enumerate(parameters)]
        return {"why": why, "parameters": named, "steps": self._steps, **self._start}, self._tensors

    def _keep_state(self, place: int, values: Mapping[str, Any]) -> None:
        plain: dict[str, Any] = {}
        for name, value in values.items():
            if isinstance(value, Tensor):
                self._tensors[f"state.{place}.{name}"] = on_host(value)
            elif isinstance(value, PLAIN):
                plain[name] = value
        self._start["state"][str(place)] = plain


def loss_program(trail: Trail, roots: Sequence[Tensor], parameters: Sequence[Tensor]) -> tuple[Program, dict[str, int]]:
    """The roots of backward as a program, and the positions of the parameters among its inputs.

    Raises:
        CannotWriteError: an operation or an input cannot go into a script.
    """
    names = [name for root in roots if (name := trail.name_of(root)) is not None]
    if not names or len(names) != len(roots):
        raise CannotWriteError("no loss was seen at the root of a backward")
    chosen = _behind(trail, names)
    steps = [_step(trail.entries[number]) for number in sorted(chosen)]
    total = names[0]
    for number, name in enumerate(names[1:]):
        steps.append(Step("aten.add.Tensor", (Ref(total), Ref(name)), {}, (f"total{number}",)))
        total = f"total{number}"
    made = {name for step in steps for name in [*step.results, *(new for _, new in step.written)] if name}
    read = [name for step in steps for name in refs_in([list(step.args), dict(step.kwargs)]) if name not in made]
    inputs: dict[str, Tensor] = {}
    for name in dict.fromkeys(read):
        value = trail.held.get(name)
        if value is None:
            raise CannotWriteError("an input is no plain tensor (sparse, quantized or sharded), so it was not kept")
        inputs[name] = value
    device = next((place for place in trail.held.devices.values() if place != "cpu"), "cpu")
    places = {name: at for at, parameter in enumerate(parameters) if (name := trail.name_of(parameter)) in inputs}
    subject = steps[-1].operation
    program = Program(subject, tuple(steps), inputs, (total,), (), total, Kinds.NONE, frozenset(), device)
    return program, {name: at for name, at in places.items() if name is not None}


def _behind(trail: Trail, names: Sequence[str]) -> set[int]:
    """The numbers of the operations behind these values."""
    chosen: set[int] = set()
    waiting = list(names)
    while waiting:
        producer = trail.values[waiting.pop()].producer
        if producer is None or producer in chosen:
            continue
        if producer not in trail.entries:
            raise CannotWriteError("an operation behind the loss could not be recorded")
        chosen.add(producer)
        entry = trail.entries[producer]
        waiting += refs_in([list(entry.args), dict(entry.kwargs)])
    return chosen


def _step(entry: Any) -> Step:
    args = tuple(map_leaves(list(entry.args), portable))
    kwargs = map_leaves(dict(entry.kwargs), portable)
    return Step(check_operation(entry.function), args, kwargs, entry.results, entry.written)


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters of a group that fit into JSON. A tensor learning rate becomes a number."""
    return {name: value for name, value in _numbers(group) if name != "params"}


def _numbers(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in group.items():
        if isinstance(value, Tensor) and value.numel() == 1:
            yield name, float(value)
        elif isinstance(value, PLAIN) or (
            isinstance(value, (list, tuple)) and all(isinstance(v, PLAIN) for v in value)
        ):
            yield name, list(value) if isinstance(value, tuple) else value


def _name(optimizer: torch.optim.Optimizer) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


class TrailMode(EachOperation):
    """Reports every operation to a trail, in order."""

    def __init__(self, trail: Trail) -> None:
        super().__init__()
        self._trail = trail
        self._number = 0

    def operation(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        number, self._number = self._number, self._number + 1
        self._trail.before(number, func, args, kwargs)
        result = func(*args, **kwargs)
        self._trail.after(number, result)
        return result
