"""Follows what the script does to gradients between backward and the update: zeroing, clipping and scaling."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.clipping import ClipArguments
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_steps import OptimizerSteps
from steadytrain.capture.step.script_guards import ScriptGuards

if TYPE_CHECKING:
    from steadytrain.capture.step.foreign_optimizers import ForeignOptimizers


def _moves_weights(owner: torch.optim.Optimizer | nn.Module) -> list[torch.optim.Optimizer]:
    """The optimizers that ``owner`` is an optimizer around, if it has a state of its own: that of weights it moved."""
    if not isinstance(owner, torch.optim.Optimizer) or not owner.state:
        return []
    within = [one for one in vars(owner).values() if isinstance(one, torch.optim.Optimizer)]
    return [one for one in within if one is not owner and one.state is not owner.state]


class GradientEvents:
    """Follows these events. If a gradient scaler skips a step, ``steps`` records it."""

    def __init__(self, run: LiveRun, steps: OptimizerSteps, guards: ScriptGuards) -> None:
        self._run = run
        self._guards = guards
        self._steps = steps
        self._scaled: int | None = None
        self.foreign: ForeignOptimizers | None = None
        """Looks for updates that no ``torch.optim`` optimizer makes."""

    def gradients_zeroed(self, owner: torch.optim.Optimizer | nn.Module) -> None:
        """The script discards its gradients. If they were not finite, it has skipped the update on purpose."""
        run = self._run
        if not run.is_script() or run.rerun is not None:
            return
        moved = _moves_weights(owner)
        if self.foreign is not None:
            self.foreign.gradients_zeroed(between_passes=bool(moved))
        with run.own_time, run.guard.part("looking at gradients that are thrown away"):
            run.observer.gradients_zeroed()
        if len(run.streams) < 2 and moved:
            known = [id(one) for stream in run.streams for one in stream.optimizers]
            if not known or any(id(one) in known for one in moved):
                run.seen.second_pass_begins()
                return
        if len(run.streams) != 1:
            return
        stream = run.streams[0]
        with run.guard.part("forgetting gradients that are thrown away"):
            if stream.optimizers != [owner] and (stream.model is None or (owner,) != stream.model.roots):
                return
            self._guards.gradients_zeroed()
            run.seen.gradients_zeroed()

    def scaler_scales(self, scaler: Any) -> None:
        if self._run.is_script() and scaler.is_enabled():  # a disabled scaler has no scale
            self._run.scaling.scalers[id(scaler)] = scaler

    def scaler_step_begins(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        run = self._run
        if run.is_script():
            self._scaled = id(optimizer)
            self._steps.begun.clear()
            with run.guard.part("following the gradient scaler"):
                run.scaling.scaler_step_begins(scaler, optimizer)
                if scaler.is_enabled():
                    run.recorder.set_fact("loss_scale_growth_interval", scaler.get_growth_interval())

    def scaler_step_ends(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """If the scaler found Inf, it did not call the optimizer. Then record the step as skipped."""
        run = self._run
        if not run.is_script() or self._scaled is None:
            return
        stepped, self._scaled = self._scaled in self._steps.begun, None
        if not stepped and scaler.is_enabled():
            self._steps.skip(optimizer)
        with run.guard.part("following the gradient scaler"):
            run.scaling.scaler_step_ends()
            note = run.scaling.take_note()
            if note is not None:
                run.note(note)

    def clip(self, original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The script clips by norm. Calls ``original``, torch's own function, exactly once."""
        return self._clip(original, parameters, args, kwargs, ClipArguments.of)

    def clip_by_value(self, original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The script clips by value."""
        return self._clip(original, parameters, args, kwargs, ClipArguments.of_value)

    def _clip(
        self,
        original: Callable[..., Any],
        parameters: Any,
        args: Any,
        kwargs: Any,
        read: Callable[[Any, Any], ClipArguments],
    ) -> Any:
        run = self._run
        if not run.is_script() or run.rerun is not None:
            return original(parameters, *args, **kwargs)
        if self.foreign is not None:
            self.foreign.look()
        clipping, reading = run.seen.clipping, None
        with run.guard.part("reading the gradients before clipping"):
            tensors = [parameters] if isinstance(parameters, Tensor) else parameters
            arguments = read(args, kwargs)
            run.scaling.clip_begins(tensors, run.scaling.scalers.values(), limit=arguments.limit)
            reading = clipping.begin(tensors, arguments, run.guard)
        try:
            with reading or nullcontext():
                total = original(parameters, *args, **kwargs)
        except Exception as error:
            self._guards.torch_raised(error)
            raise
        with run.guard.part("reading the gradients before clipping"):
            clipping.end(total)
        return total
