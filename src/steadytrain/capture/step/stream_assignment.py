"""Assigns each optimizer to a stream of steps, and names its parameters.

Each optimizer forms a stream. Optimizers that step after the same backward share one, and the first of them leads it.
A stream is released as soon as the script has dropped its optimizers: a sweep frees every model. It goes on with an
optimizer that takes the place of its own. Not here: the contents of a stream (``optimizer_streams``), which optimizers
may join (``joint_optimizers``), which one replaces another (``replaced_optimizers``), and what is known of an optimizer
that is gone (``dropped_optimizers``).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.hooks.hooked_modules import HookedModules
from steadytrain.capture.hooks.manual_updates import UpdateByHand
from steadytrain.capture.hooks.model_discovery import find_model, name_parameters, optimizer_parameters
from steadytrain.capture.step import ranks
from steadytrain.capture.step.dropped_optimizers import Remains
from steadytrain.capture.step.history import History
from steadytrain.capture.step.joint_optimizers import may_join, rest_of
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.replaced_optimizers import Replacements

IN_BACKWARD = (
    "optimizers step inside of the backward, each for its own parameters: the recorded gradient norm is that of the "
    "first one alone, and each later update is checked by itself"
)


class StreamAssignment:
    """Keeps the streams so far, in the order of their first step."""

    def __init__(
        self,
        begin: Callable[[str], tuple[History, int]],
        modules: HookedModules,
        note: Callable[[str], None],
    ) -> None:
        self.streams: list[Stream] = []
        self._begin = begin
        self._modules = modules
        self._note = note
        self._stream_of: dict[int, tuple[weakref.ref[torch.optim.Optimizer], Stream]] = {}
        self._remains: dict[int, Remains] = {}
        self._done: list[Stream] = []
        self.dropped: Callable[[], None] = lambda: None
        """Called when the script has dropped the last optimizer of a stream, perhaps by the garbage collector."""

        self.replaced: Callable[[Stream, torch.optim.Optimizer | None, torch.optim.Optimizer], None] = lambda *_: None
        """Called when an optimizer takes the place of another one, with both, at the gate of its first step."""

        self.came_back: Callable[[], None] = lambda: None
        """Called when an optimizer steps again whose place was taken."""

        self._replacements = Replacements()
        self._stepped: tuple[Stream, StepInProgress] | None = None

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        """The script has created ``optimizer``."""
        self._replacements.made(optimizer, [one for one in self.streams if one.joined], lambda: self.dropped)

    def stream_of(self, optimizer: torch.optim.Optimizer) -> Stream | None:
        held, stream = self._stream_of.get(id(optimizer), (None, None))
        return stream if held is not None and held() is optimizer else None

    def loosen(self, facts_of: Callable[[Stream], dict[str, Any]]) -> None:
        """The script created another optimizer: drop our last strong references to those that have stepped.

        Only an optimizer without a stand-in has one: a script at its end has often dropped its model when the run
        closes. For the same reason this keeps the current ``facts_of`` its stream.
        """
        for remains in self._remains.values():
            optimizer = remains.loosen()
            stream = self.stream_of(optimizer) if optimizer is not None else None
            if stream is not None:
                stream.last_facts = facts_of(stream)

    def take_done(self) -> list[Stream]:
        """The streams whose optimizers the script has dropped since the last call."""
        done = [one for one in self._done if not self._replacements.awaited(one)]
        if not done:
            return []
        self._done = [one for one in self._done if not any(one is each for each in done)]
        if self._stepped is not None and any(stream is self._stepped[0] for stream in done):
            self._stepped = None
        self._stream_of = {key: (held, stream) for key, (held, stream) in self._stream_of.items() if held() is not None}
        return done

    def close(self) -> None:
        """The watch is over: no optimizer is followed."""
        self._remains.clear()
        self._done.clear()
        self._replacements.clear()

    def _follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep what is needed of ``optimizer`` when the script has dropped it."""
        key = id(optimizer)
        remains = self._remains.get(key)
        if remains is None or not remains.are_of(optimizer):
            self._remains[key] = Remains(optimizer, functools.partial(self._gone, key))
        else:
            remains.renew(optimizer)

    def _gone(self, key: int, reference: weakref.ref[torch.optim.Optimizer]) -> None:
        """An optimizer is gone. With the last one of its stream, stand-ins take their places until its release."""
        held, stream = self._stream_of.get(key, (None, None))
        remains = self._remains.get(key)
        if remains is None or remains.reference is not reference:
            return
        del self._remains[key]
        if stream is None or held is None or held() is not None:
            return
        stream.remains.append(remains)
        if not stream.optimizers:
            stream.joined = [one for gone in stream.remains if (one := gone.stand_in()) is not None]
            stream.remains = []
            self._done.append(stream)
            self.dropped()

    def _put(self, optimizer: torch.optim.Optimizer, stream: Stream) -> None:
        stream.join(optimizer)
        self._stream_of[id(optimizer)] = (weakref.ref(optimizer), stream)

    def _replace(self, optimizer: torch.optim.Optimizer, stream: Stream, *, leads: bool) -> None:
        """``optimizer`` takes the place of another one in ``stream``, which goes on."""
        old = self._replacements.put(optimizer, stream)
        if old is not None and self.stream_of(old) is stream:
            del self._stream_of[id(old)]
            self._remains.pop(id(old), None)
        self._stream_of[id(optimizer)] = (weakref.ref(optimizer), stream)
        self._done = [one for one in self._done if one is not stream]
        stream.last_facts = None
        if leads:
            stream.renewed = stream.own_steps
            self.replaced(stream, old, optimizer)

    def stepped(self, stream: Stream, seen: StepInProgress) -> None:
        """``stream`` has made its step. Another optimizer may still belong to it."""
        self._stepped = (stream, rest_of(seen))

    def lead(
        self,
        optimizer: torch.optim.Optimizer,
        seen: StepInProgress,
        *,
        saw_loss: bool,
        skipped: bool,
        in_backward: bool = False,
    ) -> tuple[Stream | None, StepInProgress]:
        """The stream that ``optimizer`` leads, None if another one already led this step, and the step in progress.

        Inside of a backward, the gate of the first optimizer has not seen the gradients of the later ones.
        """
        self._follow(optimizer)
        self._replacements.stepped(optimizer)
        stream = self.stream_of(optimizer)
        fresh = bool(seen.losses)
        if stream is None:
            led, rest = self._stepped or (None, StepInProgress())
            same_step = saw_loss and not seen.micro_batches
            if led is not None and not fresh and (led.own_steps <= 1 or same_step):
                if skipped or may_join(optimizer):
                    if self._replacements.place_of(optimizer, joins=led) is not None:
                        self._replace(optimizer, led, leads=False)
                    else:
                        self._put(optimizer, led)
                    if in_backward:
                        self._note(IN_BACKWARD)
                    return None, seen
                seen = rest
            elif (stream := self._replacements.place_of(optimizer)) is not None:
                self._replace(optimizer, stream, leads=True)
                return stream, seen
            return self._begin_stream(optimizer), seen
        followed = saw_loss or optimizer is not stream.optimizers[0]
        if len(stream.optimizers) > 1 and not fresh and followed:
            if in_backward and self._stepped is not None and not may_join(optimizer):
                return stream, self._stepped[1]
            return None, seen  # no new backward: the first optimizer's gate covered these gradients
        return stream, seen

    def _begin_stream(self, optimizer: torch.optim.Optimizer) -> Stream:
        if self._replacements.comes_back(optimizer):
            self.came_back()
        name = "main" if not self.streams else f"optimizer-{len(self.streams) + 1}"
        history, step = self._begin(name)
        stream = Stream(name=name, history=history, step=step, began=step)
        if stream.began and begins_anew(optimizer):
            self._note(
                f"the run continues from step {stream.began}, but its {type(optimizer).__name__} has no moments: "
                "its state was not loaded, so they begin at zero"
            )
        if isinstance(optimizer, UpdateByHand):
            stream.updates_before, stream.passed_over = optimizer.updates_before, optimizer.passed_over
            stream.step = stream.began = stream.began + stream.updates_before
        self._put(optimizer, stream)
        self.streams.append(stream)
        return stream

    def refresh(self, stream: Stream) -> None:
        """Update parameters and names if the optimizers' parameters have changed since the last call."""
        groups = [group["params"] for optimizer in stream.optimizers for group in optimizer.param_groups]
        signature = tuple(map(id, chain.from_iterable(groups)))
        if signature == stream.signature:
            return
        stream.parameters = optimizer_parameters(stream.optimizers)
        model = name_parameters(self._modules.called, stream.parameters)
        if model.nameless or stream.model is None:
            found = find_model(stream.parameters)
            if found.roots:
                model = found
            if not self._calls_a_holder_of(stream.parameters):
                self._modules.watch_model(model)
        stream.model = model
        stream.tensor_names = tuple(model.names[id(parameter)] for parameter in stream.parameters)
        stream.joint = ranks.joint_steps(model.roots, stream.parameters)
        stream.signature = signature
        if model.nameless and not model.roots:
            self._note("no torch.nn.Module holds the parameters: they are named by their position in the optimizer")
        elif model.nameless:
            self._note(f"{model.nameless} parameters belong to no torch.nn.Module and are named by their position")

    def _calls_a_holder_of(self, parameters: Sequence[Tensor]) -> bool:
        """Whether a module that the script is known to call holds one of ``parameters``."""
        wanted = {id(parameter) for parameter in parameters}
        return any(id(held) in wanted for module in self._modules.called for held in module.parameters())


def begins_anew(optimizer: torch.optim.Optimizer) -> bool:
    """Whether one of torch's own optimizers has no state, although its kind keeps state after the first step."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return False
    groups = optimizer.param_groups
    keeps_some = not isinstance(optimizer, torch.optim.SGD) or any(group.get("momentum") for group in groups)
    return keeps_some and not any(optimizer.state.get(parameter) for group in groups for parameter in group["params"])
