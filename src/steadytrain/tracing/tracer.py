"""Finds the first bad operation of a rerun: traces every operation and names the one that broke the loss or a gradient.

::

   tracer = OperationTracer(modules=paths, parameters=dict(model.named_parameters()), method="re-run in place")
   tracer.note_sources({"args[0]": batch})
   with tracer:
       loss = criterion(model(batch), target)
       tracer.mark_loss(loss)
       loss.backward()
   finding = tracer.finding()

A dispatch mode below autograd and autocast sees forward, loss and backward as one stream of operations, whoever wrote
the loop. Only an operation that leads to a non-finite loss or gradient can be blamed. Of these, the tracer names the
earliest one whose result held a kind of value that none of its inputs held.

Known limits: values are followed by storage, not by element. If two independent faults share a tensor and only the
later one is used, the earlier one is named. A compiled kernel cannot be traced. torch itself (2.13) cannot
differentiate ``torch.cond`` under any dispatch mode.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import torch

from steadytrain.core.incident import CONSTANT, Finding, Located, Phase
from steadytrain.core.torch_private import BUFFERS, compiler_is_loaded
from steadytrain.tracing.anomaly_mode import BackwardStacks
from steadytrain.tracing.dispatch_mode import EachOperation
from steadytrain.tracing.operation_facts import COLLECTIVES
from steadytrain.tracing.places import ModuleCalls, Place, code_at
from steadytrain.tracing.tensor_summary import WORDS, Kinds
from steadytrain.tracing.value_origins import Record, Target, ancestry, path_to
from steadytrain.tracing.value_watch import BATCH, Call, Watch, call_of

CHAIN_FIRST, CHAIN_LAST = 8, 4
"""A longer chain shows its start, where the cause is, and its end."""

CONVERSIONS = ("aten.lift_fresh", "aten._to_copy")
"""Prefixes of the operations with which values of Python and NumPy become a tensor."""

LITERAL = re.compile(r"(?i)\b(?:nan|inf|infinity)\b")
"""A value that is not finite, as a line of a script spells it."""

LAST_OPERATIONS = "last operations of the step"
NOT_REPRODUCED = "the re-run did not reproduce the fault: loss and gradients came out finite"


class Observer(ABC):
    """Sees every operation of a traced run in order. Its errors end up in the tracer's ``trouble``."""

    @abstractmethod
    def before(self, number: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Called before operation ``number`` (from 0) runs, with the arguments that it will get."""

    @abstractmethod
    def after(self, number: int, result: object) -> None:
        """Called after the operation."""


class OperationTracer:
    """Traces what runs inside ``with tracer:`` and then names the operation that broke a loss or gradient first.

    ``modules`` maps modules to their dotted path in the model ("" for the model itself). ``parameters`` names the
    tensors whose ``.grad`` must be finite. ``method`` goes into the finding. ``observer`` sees every operation. Tracing
    does not change results, gradients or random numbers. Enter the tracer once, in the thread that runs the forward.
    """

    def __init__(
        self,
        *,
        modules: Mapping[torch.nn.Module, str] | None = None,
        parameters: Mapping[str, torch.Tensor],
        method: str,
        observer: Observer | None = None,
    ) -> None:
        self._modules = dict(modules or {})
        self._parameters = dict(parameters)
        self._method = method
        self._watch = Watch()
        self._mode = _Mode(self._watch, observer)
        self._stacks = BackwardStacks()
        self._eager: AbstractContextManager[Any] = nullcontext()

    @property
    def trouble(self) -> str | None:
        """The first error of the tracer itself, which must not disturb the run; None if there was none."""
        return self._watch.trouble

    def __enter__(self) -> OperationTracer:
        self._watch.guarded(self._note_state)
        self._stacks.begin()
        if compiler_is_loaded():
            # Compiled code cannot be traced. With fullgraph=True it refuses to run under a dispatch mode.
            self._eager = torch.compiler.set_stance("force_eager")
        self._watch.calls.watch(self._modules)
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._mode.__exit__(kind, error, traceback)
        finally:
            self._eager.__exit__(None, None, None)
            self._stacks.end()
            self._watch.calls.unwatch()

    def enter_module(self, module: torch.nn.Module) -> None:
        """Registers a call of ``module`` that began before tracing. Call it in one of the module's forward pre-hooks.

        Does nothing if the tracer's own hooks saw the call.
        """
        path = self._modules.get(module)
        if path is not None:
            self._watch.guarded(lambda: self._watch.calls.join({module: path}))

    def note_sources(self, tensors: Mapping[str, torch.Tensor], *, owner: str = BATCH, traced: bool = False) -> None:
        """Registers tensors that come from outside, before the run starts, so that a NaN in one can be named.

        Args:
            traced: whether a traced operation may have made them. What it explains stays as it is.
        """
        self._watch.guarded(lambda: self._watch.note(tensors, owner, traced=traced))

    def note_inputs(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Registers what a model is called with, in a trace that began before the script computed it. A bad value that
        one of its operations made stays explained by that; any other came with the data."""
        self._watch.guarded(lambda: self._watch.note_inputs(tensors))

    def mark_loss(self, loss: torch.Tensor) -> None:
        """Registers a root of backward, right before each backward."""
        self._watch.guarded(lambda: self._watch.mark_loss(loss))

    def mark_target(self, name: str, tensor: torch.Tensor) -> None:
        """Registers another tensor that must be finite now, such as a weight after its update."""
        self._watch.guarded(lambda: self._watch.mark_target(name, tensor))

    def mark_newest(self) -> None:
        """Registers the last NaN of the trace, for a step without a loss: an error of the script ended it."""
        if self._watch.newest:
            self._watch.losses.append(Target(LAST_OPERATIONS, self._watch.newest))

    def culprit(self) -> Record | None:
        """The record that :meth:`finding` blames."""
        targets = self._targets()
        return _blamed(ancestry(targets)) if targets else None

    def finding(self) -> Finding:
        """The first bad operation, or why there is none. Call it after backward, before the gradients change."""
        finding = _judge(self._targets(), self._watch, self._method)
        if self._watch.trouble is None:
            return finding
        return Finding(finding.located, f"{finding.why} (the trace is incomplete: {self._watch.trouble})")

    def _targets(self) -> list[Target]:
        targets = list(self._watch.losses)
        self._watch.guarded(lambda: targets.extend(self._bad_gradients()))
        return targets

    def _note_state(self) -> None:
        """Notes parameters, their accumulated gradients and the buffers before the first operation."""
        gradients = {name: tensor.grad for name, tensor in self._parameters.items() if tensor.grad is not None}
        buffers = {
            f"{path}.{name}" if path else name: buffer
            for module, path in self._modules.items()
            for name, buffer in BUFFERS.of(module).items()
            if buffer is not None
        }
        self._watch.note(self._parameters, "the parameter")
        self._watch.note(buffers, "the buffer")
        self._watch.note(gradients, "the accumulated gradient")

    def _bad_gradients(self) -> Iterator[Target]:
        for name, parameter in self._parameters.items():
            gradient = parameter.grad
            records = () if gradient is None else self._watch.behind(gradient, f"the gradient of {name}")
            if records:
                yield Target(f"gradient of {name}", records)


class _Mode(EachOperation):
    """Runs each operation unchanged and inspects it before and after."""

    def __init__(self, watch: Watch, observer: Observer | None) -> None:
        super().__init__()
        self._watch = watch
        self._observer = observer
        self._number = 0

    def operation(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        number, observer = self._number, self._observer
        self._number += 1
        calls: list[Call] = []
        self._watch.guarded(lambda: calls.append(call_of(number, func, args, kwargs)))
        if observer is not None:
            self._watch.guarded(lambda: observer.before(number, func, args, kwargs))
        result = func(*args, **kwargs)
        for call in calls:
            self._watch.guarded(lambda: self._watch.look(call, result))  # noqa: B023 (called before the next turn)
        if observer is not None:
            self._watch.guarded(lambda: observer.after(number, result))
        return result


def _judge(targets: Sequence[Target], watch: Watch, method: str) -> Finding:
    """Blames a non-finite input first, else the earliest birth, else a constant that spread."""
    if not targets:
        return Finding(None, NOT_REPRODUCED)
    reached = ancestry(targets)
    culprit = _blamed(reached)
    target = reached[culprit]
    if culprit.source is not None:
        return Finding(None, f"{culprit.source}; it reached the {target.name}")
    located = _locate(culprit, target, watch, method)
    word, then = WORDS[culprit.kind], f"it reached the {target.name}"
    if culprit.born:
        return Finding(
            located, f"{culprit.operation} is the first operation to make {word} out of inputs without it; {then}"
        )
    if _is_converted(located):
        at = f"{located.file}:{located.line}"
        return Finding(None, f"{BATCH} already holds {word}: {at} makes a tensor of it ({located.code}); {then}")
    return Finding(located, f"{CONSTANT}: {culprit.operation} put {word} there as a constant; {then}")


def _is_converted(located: Located) -> bool:
    """Whether a value that is not finite came with data that a line makes a tensor of, and stands in no line."""
    made = located.operation.startswith(CONVERSIONS) and located.phase == "preprocessing"
    return made and bool(located.code) and not LITERAL.search(located.code or "")


def _blamed(reached: Mapping[Record, Target]) -> Record:
    """A non-finite input, else the earliest birth, else the first constant."""
    in_order = sorted(reached, key=lambda record: record.order)
    came_in = [record for record in in_order if record.source is not None and not record.constant]
    return next(iter(came_in), None) or next((record for record in in_order if record.born), in_order[0])


def _locate(culprit: Record, target: Target, watch: Watch, method: str) -> Located:
    assert culprit.place is not None, "only a value from before the run has no place"
    phase, module = _phase_and_module(culprit.operation, culprit.place, watch)
    line = culprit.place.line
    return Located(
        phase=phase,
        operation=culprit.operation,
        produced="nan" if culprit.kind is Kinds.NAN else "inf",
        module=module,
        file=line[0] if line else None,
        line=line[1] if line else None,
        code=code_at(line),
        inputs=culprit.inputs,
        chain=_chain(path_to(culprit, target), watch),
        reached=target.name,
        method=method,
    )


def _phase_and_module(operation: str, place: Place, watch: Watch) -> tuple[Phase, str]:
    if operation.startswith(COLLECTIVES):
        return "communication", place.module or ""
    if place.inside == "module":
        return "forward", place.module or ""
    if place.inside == "outside":
        if place.before_model and watch.from_batch:
            return "preprocessing", ""
        # Before the last backward this is loss code, possibly in an optimizer's closure. After it, no loss remains.
        if place.losses_before < watch.losses_marked:
            return "loss", ""
        if place.in_update:
            return "optimizer", ""
        return ("clip" if watch.losses_marked else "loss"), ""
    module = _made_in(place, watch.calls)
    if place.inside == "backward":
        return "backward", module or ""
    return ("loss" if module is None else "forward"), module or ""


def _made_in(place: Place, calls: ModuleCalls) -> str | None:
    return None if place.sequence is None else calls.made(place.sequence)


def _chain(path: Sequence[Record], watch: Watch) -> tuple[str, ...]:
    names = [_link(record, watch) for record in path]
    left_out = len(names) - CHAIN_FIRST - CHAIN_LAST
    if left_out > 1:
        names = [*names[:CHAIN_FIRST], f"... {left_out} more ...", *names[-CHAIN_LAST:]]
    return tuple(names)


def _link(record: Record, watch: Watch) -> str:
    if record.place is None:
        return record.source or record.operation
    phase, module = _phase_and_module(record.operation, record.place, watch)
    where = f" in {module}" if module else ""
    return f"{record.operation}{where} (backward)" if phase == "backward" else f"{record.operation}{where}"
