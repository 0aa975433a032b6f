"""The hooks: on while a measurement is asked for, off when the first backward begins.

::

    arm(roots) ── forward of the first micro-batch ── backward_begins() ── ... ── take() -> Taken
       hooks on       every output is looked at          hooks off,                 one row a module
                      when its module returns        numbers on their way to the host

What counts is a training call: gradients are on when the script calls the model, and no backward is running, so
evaluations and the recomputations of activation checkpointing are left out. Parts that run without gradients inside a
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
from steadytrain.capture.hooks.module_hooks import ModuleHook
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
from steadytrain.capture.tensors.activations.measurement import Measurement, Taken
from steadytrain.capture.tensors.activations.outputs import first_floating
from steadytrain.capture.tensors.activations.unseen_modules import FUNCTIONS_LEFT, NOTHING_SEEN, Unseen
from steadytrain.capture.tensors.statistics import Readback
from steadytrain.capture.tensors.statistics.quiet import quiet
from steadytrain.core.torch_private import DISPATCH_DEPTH, GRAPH_TASK, NO_TORCH_FUNCTION, TRACE_STATE

PART = "measuring the outputs of modules"


class Activations:
    """Measures the outputs of modules in the steps for which it is armed.

    Every call comes from the training thread; what other threads do with the modules is not looked at.

    Args:
        guard: is told of our own errors.
        in_graph: have compiled graphs compute the statistics of what their modules put out, in every step. Then the
            script's own numbers may change in their last bits (see ``in_graph``).
        own_time: is told of the time that looking takes, which is none of the script's.
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
        self._outermost = ""
        self._thread = 0
        self._looking = False

    @property
    def armed(self) -> bool:
        return self._measurement is not None

    def compile_called(self, subject: Any, how: Mapping[str, Any] = MappingProxyType({})) -> None:
        """``torch.compile(subject, **how)`` is called, and nothing traced yet: what is on comes off."""
        self._code.compile_called(subject)
        self._functions.take_out()
        self._take_hooks_off()
        inside = compiled_module(subject)
        if self._slots is not None and inside is not None:
            slots = self._slots
            self._ours(lambda: slots.put_on(inside, how))

    def arm(self, roots: Sequence[nn.Module], *, histograms: bool = False) -> None:
        """Measure the training calls of these models from now until the first backward. Call it between steps."""
        self._disarm()
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
        """A call ended that was seen from outside: of a compiled module, which can carry no hook of ours."""
        if self._measurement is None or self._sent is not None or id(module) not in self._paths:
            return
        if id(module) in self._hooks or id(module) in self._traced:
            return
        training = self._calls[-1][1] if self._calls else torch.is_grad_enabled()
        if training and not self._is_foreign():
            self._see(module, output, outermost=not self._calls)

    def backward_begins(self) -> None:
        """The first micro-batch of the step is through if anything was seen: hooks come off."""
        if self._measurement is None or self._sent is not None or not self._measurement.saw_something:
            return
        self._functions.take_out()
        self._take_hooks_off()
        self._ours(self._send)

    def take(self) -> Readback[Taken] | None:
        """What was measured since :meth:`arm`, on its way to the host; None if nothing was."""
        self.backward_begins()
        sent = self._sent
        if sent is None and self._measurement is not None and something_was_compiled():
            if all(place.hidden is None for place in self._places):
                self._unseen.note("nothing", NOTHING_SEEN)
            self._unseen.note_hidden(self._places, (), in_graph=self._slots is not None)
        self._disarm()
        return sent

    def take_notes(self) -> list[str]:
        """What was not seen, for the run's notes; each kind once."""
        return self._unseen.take()

    def remove(self) -> None:
        """Take everything out for good; what was measured is dropped."""
        self._disarm()
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
        """A stand-in was called, with what the script called it with."""
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
        before = module.register_forward_pre_hook(ModuleHook(self._call_begins))
        after = module.register_forward_hook(ModuleHook(self._call_ends), always_call=True)

        def remove() -> None:
            before.remove()
            after.remove()

        self._hooks[id(module)] = remove

    def _take_hooks_off(self) -> None:
        if graphs_traced() != self._graphs:
            # A graph was traced meanwhile and may hold them: taking them off would have it traced again.
            self._traced |= self._hooks
            self._hooks = {}
        for remove in self._hooks.values():
            remove()
        self._hooks = {}

    def _disarm(self) -> None:
        self._functions.take_out()
        self._take_hooks_off()
        self._measurement = None
        self._sent = None
        self._calls = []

    def _watch_functions(self, put_in: Callable[[], None]) -> None:
        """Code that is compiled already looks at which functions it was traced with: there nothing is stood in for."""
        self._functions.take_out()
        if not something_was_compiled():
            put_in()

    def _is_foreign(self) -> bool:
        """Another thread, a backward that recomputes, a tracer of operations, a capture: none of them is a training
        call whose numbers are there to be read."""
        return (
            threading.get_ident() != self._thread
            or GRAPH_TASK() != -1
            or DISPATCH_DEPTH() > 0
            or TRACE_STATE() is not None
            or _capturing()
        )

    def _ours(self, work: Callable[[], None], *values: Any) -> None:
        """Work of our own: an error is told and goes no further, and no stand-in, mode or subclass of the script's
        takes part. ``values`` tell on which device."""
        self._looking = True
        try:
            with self._own_time, self._guard.part(PART), NO_TORCH_FUNCTION(), quiet(_first(values)):
                work()
        finally:
            self._looking = False


def _capturing() -> bool:
    """Whether a CUDA graph is being recorded: our kernels would become part of it."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def _first(values: Any) -> list[Tensor]:
    tensor = first_floating(values)
    return [] if tensor is None else [tensor]
