"""Hooks for module outputs: added for a measurement, removed when the first backward begins.

::

    arm(roots) ── forward of the first micro-batch ── backward_begins() ── ... ── take() -> Taken
       hooks on       every output is looked at          hooks off,                 one row a module
                      when its module returns        numbers on their way to the host

Only training calls are measured: gradients are enabled when the script calls the model, and no backward is running.
This excludes evaluations and the recomputations of activation checkpointing. Parts that run without gradients inside a
training call (a frozen encoder, reentrant checkpointing) are measured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.module_hooks import ModuleHook, hook_after, hook_before
from steadytrain.capture.step.own_time import OwnTime
from steadytrain.capture.tensors.activations.compiled import (
    CompiledCode,
    Place,
    compiled_module,
    graphs_traced,
    something_was_compiled,
)
from steadytrain.capture.tensors.activations.functions import Functions
from steadytrain.capture.tensors.activations.graph_slots import Slots
from steadytrain.capture.tensors.activations.measurement import CALLS_MAX, Measurement, Taken
from steadytrain.capture.tensors.activations.outputs import first_floating
from steadytrain.capture.tensors.activations.unseen_modules import FUNCTIONS_LEFT, NOTHING_SEEN, Unseen
from steadytrain.capture.tensors.gpu_state import is_capturing
from steadytrain.capture.tensors.statistics import Readback
from steadytrain.capture.tensors.statistics.quiet import quiet
from steadytrain.core.torch_private import DISPATCH_DEPTH, GRAPH_TASK, NO_TORCH_FUNCTION, TRACE_STATE

PART = "measuring the outputs of modules"


class Activations:
    """Measures the outputs of modules in the steps for which it is armed.

    Only the training thread calls this; module calls in other threads are not measured.

    Args:
        guard: receives our own errors.
        in_graph: whether compiled graphs compute the statistics of their modules' outputs in every step. Then the
            script's own numbers may change in their last bits (see ``in_graph``).
        own_time: receives the time that measuring takes.
    """

    def __init__(self, guard: Guard, *, in_graph: bool = False, own_time: OwnTime | None = None) -> None:
        self._guard = guard
        self._own_time = own_time or OwnTime()
        self._slots = Slots() if in_graph else None
        self._code = CompiledCode()
        self._places: list[Place] = []
        self._unseen = Unseen()
        self._functions = Functions(self._function_called)
        self._hooks: dict[int, Callable[[], None]] = {}
        self._traced: dict[int, Callable[[], None]] = {}
        self._graphs = 0
        self._measurement: Measurement | None = None
        self._sent: Readback[Taken] | None = None
        self._paths: dict[int, tuple[str, str]] = {}
        self._calls: list[tuple[int, bool]] = []
        self._returns: dict[int, int] = {}
        self._outermost = ""
        self._thread = 0
        self._looking = False

    @property
    def armed(self) -> bool:
        return self._measurement is not None

    def compile_called(self, subject: Any, how: Mapping[str, Any] = MappingProxyType({})) -> None:
        """The script calls ``torch.compile(subject, **how)``. Remove the current hooks before the trace."""
        self._code.compile_called(subject)
        self._functions.take_out()
        self._take_hooks_off()
        inside = compiled_module(subject)
        if self._slots is not None and inside is not None:
            slots = self._slots
            self._ours(lambda: slots.put_on(inside, how))

    def arm(self, roots: Sequence[nn.Module], *, histograms: bool = False) -> None:
        """Measure the training calls of these models from now until the first backward. Call it between steps."""
        self.disarm()
        with self._guard.part(PART):
            self._thread, self._graphs = threading.get_ident(), graphs_traced()
            self._measurement = Measurement(histograms=histograms)
            self._places = self._code.survey(roots, traced=self._traced)
            self._paths = {id(place.module): (place.path, type(place.module).__name__) for place in self._places}
            self._outermost = self._places[0].path if self._places else ""
            for place in self._places:
                if place.hidden is None:
                    self._hook(place.module)
            self._watch_functions(self._functions.put_in_for_loss)
        if self._slots is not None:
            self._ours(self._slots.empty)

    def saw(self, module: nn.Module, output: Any) -> None:
        """The call of a compiled module ended, which cannot carry our hook."""
        if self._measurement is None or self._sent is not None or id(module) not in self._paths:
            return
        if id(module) in self._hooks or id(module) in self._traced:
            return
        training = self._calls[-1][1] if self._calls else torch.is_grad_enabled()
        if training and not self._is_foreign():
            self._see(module, output, outermost=not self._calls)

    def backward_begins(self) -> None:
        """If anything was measured, the first micro-batch of the step is complete: remove the hooks."""
        if self._measurement is None or self._sent is not None or not self._measurement.saw_something:
            return
        self._functions.take_out()
        self._take_hooks_off()
        self._ours(self._send)

    def take(self) -> Readback[Taken] | None:
        """The measurement since :meth:`arm`, in transfer to the host; None if there is none."""
        self.backward_begins()
        sent = self._sent
        if sent is None and self._measurement is not None and something_was_compiled():
            if all(place.hidden is None for place in self._places):
                self._unseen.note("nothing", NOTHING_SEEN)
            self._unseen.note_hidden(self._places, (), in_graph=self._slots is not None)
        self.disarm()
        return sent

    def leave_out(self) -> None:
        """The script made no update with what was measured so far: it belongs to no step."""
        if self._sent is not None:
            self.disarm()
        elif self._measurement is not None:
            self._measurement = Measurement(histograms=self._measurement.histograms)
            if self._slots is not None:
                self._ours(self._slots.empty)

    def take_notes(self) -> list[str]:
        """Notes for the user on what could not be measured; each kind once."""
        return self._unseen.take()

    def remove(self) -> None:
        """Remove all hooks for good and drop the current measurement."""
        self.disarm()
        self._places, self._paths = [], {}
        while self._traced:
            self._traced.popitem()[1]()
        if self._slots is not None:
            self._slots.remove()

    # -- in the forward --------------------------------------------------------------------------------------------

    def _call_begins(self, module: nn.Module, args: Any) -> None:
        if self._measurement is None or self._is_foreign():
            return
        if self._calls:
            self._calls.append((id(module), self._calls[-1][1]))
            return
        training = torch.is_grad_enabled()
        self._calls.append((id(module), training))
        if training:
            self._outermost = self._paths.get(id(module), ("", ""))[0]
            self._watch_functions(self._functions.put_in_for_forward)

    def _call_ends(self, module: nn.Module, args: Any, output: Any) -> None:
        if (id(module), True) not in self._calls and (id(module), False) not in self._calls:
            return
        training = False
        while self._calls:
            key, training = self._calls.pop()
            if key == id(module):
                break
        if not self._calls and training:
            self._watch_functions(self._functions.put_in_for_loss)
        if training and output is not None and not self._is_foreign():
            self._see(module, output, outermost=not self._calls)
            if not self._calls:
                self._returned(module)

    def _returned(self, module: nn.Module) -> None:
        """The script's own call of ``module`` ended. After :data:`CALLS_MAX` of them, a rollout or a recurrence, the
        hooks of it and of its parts have nothing more to measure."""
        self._returns[id(module)] = self._returns.get(id(module), 0) + 1
        if self._returns[id(module)] == CALLS_MAX and graphs_traced() == self._graphs:
            for part in module.modules():
                if id(part) in self._hooks:
                    self._hooks.pop(id(part))()

    def _see(self, module: nn.Module, output: Any, *, outermost: bool) -> None:
        if self._measurement is None or id(module) not in self._paths:
            return
        path = self._paths[id(module)][0]
        measurement = self._measurement

        def work() -> None:
            measurement.see_output(path, id(module), output)
            if outermost:
                measurement.see_model_output(path, output)

        self._ours(work, output)

    def _function_called(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The script called a wrapped function with these arguments."""
        if self._measurement is None or self._looking or self._is_foreign():
            return
        within = self._calls[-1][0] if self._calls else 0
        path, module_class = self._paths.get(within, (self._outermost, ""))
        measurement = self._measurement
        values = args[0] if args else kwargs.get("input")

        def work() -> None:
            if kind == "attention":
                measurement.see_attention(path, *args, **kwargs)
            elif kind == "softmax":
                dimension = args[1] if len(args) > 1 else kwargs.get("dim")
                measurement.see_softmax(path, module_class, values, dimension)
            elif isinstance(values, Tensor) and values.requires_grad:
                measurement.see_loss_input(self._outermost, values)

        self._ours(work, [*args, *kwargs.values()])

    def _send(self) -> None:
        assert self._measurement is not None
        measurement, seen = self._measurement, self._measurement.paths
        if self._slots is not None:
            measurement.see_slots(self._slots.written({key: path for key, (path, _) in self._paths.items()}))
            seen = seen | {place.path for place in self._places if self._slots.reaches(place.module)}
        order = dict.fromkeys(path for path, _ in self._paths.values())
        self._sent = measurement.send(list(order))
        self._unseen.note_hidden(self._places, seen, in_graph=self._slots is not None)
        if something_was_compiled():
            self._unseen.note("functions", FUNCTIONS_LEFT)
        else:
            self._unseen.note_attention(self._places, measurement.paths, measurement.paths_with_heads)

    # -- hooks -----------------------------------------------------------------------------------------------------

    def _hook(self, module: nn.Module) -> None:
        if id(module) in self._traced:
            return
        before = hook_before(module, ModuleHook(self._call_begins, self._guard.report))
        after = hook_after(module, ModuleHook(self._call_ends, self._guard.report), always_call=True)

        def remove() -> None:
            before.remove()
            after.remove()

        self._hooks[id(module)] = remove

    def _take_hooks_off(self) -> None:
        if graphs_traced() != self._graphs:
            # A graph traced meanwhile may contain these hooks; removing them would cause a recompile.
            self._traced |= self._hooks
            self._hooks = {}
        for remove in self._hooks.values():
            remove()
        self._hooks = {}

    def disarm(self) -> None:
        """Drop the current measurement: the next step is not measured."""
        self._functions.take_out()
        self._take_hooks_off()
        self._measurement = None
        self._sent = None
        self._calls, self._returns = [], {}

    def _watch_functions(self, put_in: Callable[[], None]) -> None:
        """Wrap functions, except in a process with compiled code, which guards on the functions of its trace."""
        self._functions.take_out()
        if not something_was_compiled():
            put_in()

    def _is_foreign(self) -> bool:
        """Whether this is no training call with readable values: another thread, a recomputation during backward, a
        tracer, or a CUDA graph capture."""
        return (
            threading.get_ident() != self._thread
            or GRAPH_TASK() != -1
            or DISPATCH_DEPTH() > 0
            or TRACE_STATE() is not None
            or is_capturing()
        )

    def _ours(self, work: Callable[[], None], *values: Any) -> None:
        """Run our own work: an error is reported and suppressed, and no wrapper, mode or tensor subclass of the script
        takes part. ``values`` determine the device."""
        self._looking = True
        try:
            with self._own_time, self._guard.part(PART), NO_TORCH_FUNCTION(), quiet(_first(values)):
                work()
        finally:
            self._looking = False


def _first(values: Any) -> list[Tensor]:
    tensor = first_floating(values)
    return [] if tensor is None else [tensor]
