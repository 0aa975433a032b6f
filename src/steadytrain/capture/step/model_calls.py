"""Follows the script's model calls and backward passes: inputs, random states and losses of the step in progress."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.incident.crash.reused_graph import Backward, newest_of
from steadytrain.capture.step import ranks
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState, record_call, tensors_in
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.loss import LossTerm, loss_term, scalar_outputs
from steadytrain.capture.step.script_guards import ScriptGuards
from steadytrain.capture.step.step_batches import STEP_BATCHES, StepBatches
from steadytrain.capture.tensors.precision import logits_dtype

if TYPE_CHECKING:
    from steadytrain.capture.step.foreign_optimizers import ForeignOptimizers

MICRO_BATCHES_MAX = 256
MICRO_BYTES_MAX = 1 << 30
CALLS_SPARSE = 8
"""Recorded calls per step after a loop has called its model more than :data:`MICRO_BATCHES_MAX` times before one
backward (a policy that acts for a whole episode)."""
LOSSES_MAX = 4096
FORGOTTEN_AFTER_BACKWARDS = 200
"""Backward passes without an update that was seen, after which the step in progress is not kept."""


class ModelCalls:
    """Follows the calls of all hooked modules, and calls ``look_at_loss`` with each loss before its backward runs."""

    def __init__(self, run: LiveRun, guards: ScriptGuards, look_at_loss: Callable[[Tensor], None]) -> None:
        self.backward_calls = 0
        self.step_batches: StepBatches | None = None
        self.logits: str | None = None
        """Dtype of the model's logits, once it is known."""

        self._run = run
        self._guards = guards
        self._look_at_loss = look_at_loss
        self._calls: list[tuple[nn.Module, MicroBatch | None]] = []
        self._random_after: RandomState | None = None
        self.foreign: ForeignOptimizers | None = None
        """Looks for updates that no ``torch.optim`` optimizer makes."""

        self._since_backward = 0
        self._sparse = self._failed = False

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """A module is called. Returns other arguments for the call, or None."""
        run = self._run
        begins = torch.is_grad_enabled() and not self._calls  # replicas of DataParallel are called on threads, inside
        if not (run.calls_here(module) if begins else run.is_script()) or run.in_backward:
            return None
        with run.own_time.unseen:
            if not self._calls and any(tensor.is_meta for tensor in tensors_in((args, kwargs))):
                return None
        outermost, training = not self._calls, torch.is_grad_enabled()
        if outermost and self.foreign is not None and run.rerun is None:
            self.foreign.look()
        if outermost and training:
            self._since_backward += 1
            if self._sparse and self._since_backward > CALLS_SPARSE and run.buffers.knows(module):
                return self._leave_out(module)
        run.modules.note_call(module, outermost=outermost)
        call: MicroBatch | None = None
        changed = None
        if outermost and training:
            with run.own_time:
                self._guards.batch_begins()
            with run.own_time, run.guard.part("loading a state"), run.aside():
                run.steering.first_calls(module)
        if outermost and run.rerun is None:
            with run.own_time, run.guard.part("keeping the buffers"):
                run.buffers.keep(module)
        if outermost and not training and run.rerun is None:
            with run.own_time, run.guard.part("following calls without gradients"):
                run.observer.aside_begins(module, args, kwargs)
        if outermost and training:
            with run.own_time, run.guard.part("letting go of earlier models"):
                run.release_done()
            with run.own_time, run.guard.part("recording the batch"):
                if run.rerun is not None:
                    changed = run.rerun.forward_begins(module, args, kwargs)
                else:
                    if self.step_batches is not None and (batch := self.step_batches.take()) is not MISSING:
                        run.observer.fetched(STEP_BATCHES, batch)
                    run.draws.called()
                    call = record_call(module, args, kwargs, self._random_after)
                    changed = run.observer.call_begins(module, call, args, kwargs)
        self._calls.append((module, call))
        return changed

    @property
    def inside(self) -> bool:
        """Whether a model call is running."""
        return bool(self._calls)

    def rested(self, random: RandomState | None) -> None:
        """Steps have passed that were not followed. ``random`` is the current state, None within a step."""
        self._calls.clear()
        self._random_after, self._since_backward = random, 0

    def _leave_out(self, module: nn.Module) -> None:
        """Record no inputs and no random state of ``module``'s calls until the next backward."""
        run = self._run
        self._random_after = None
        if not run.seen.left_out:
            run.observer.calls_left_out()
        run.seen.left_out += 1
        run.modules.rest(module)

    def _count_calls(self) -> None:
        """At a backward: from now on record fewer calls if this loop calls its model very often."""
        run, calls = self._run, self._since_backward
        self._since_backward = 0
        run.modules.wake()
        if calls > MICRO_BATCHES_MAX and not self._sparse and run.recorder.recording and not run.rehearses:
            self._sparse = True
            run.note(
                f"steps like this one are guarded, but cannot be replayed: the model was called {calls} times before "
                f"one backward (a recurrent cell, a solver, a rollout, an evaluation without no_grad), and of such "
                f"steps only the first {CALLS_SPARSE} calls are recorded from now on"
            )

    def forward_ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        run = self._run
        if not run.is_script() or run.in_backward or not self._calls:
            return
        while self._calls:  # drops calls that never returned (an exception without always_call)
            called, call = self._calls.pop()
            if called is module:
                break
        if run.activations.armed and run.rerun is None:
            with run.own_time:
                run.activations.saw(module, output)
        if self._calls:
            return
        with run.own_time.unseen, run.guard.part("recording the batch"):
            if call is not None:
                if output is None and sys.exc_info()[0] is not None:
                    self._guards.call_raised(call)
                self._keep(module, call, output)
                ranks.forward_ended(module)
            elif run.rerun is not None and not torch.is_grad_enabled():
                run.rerun.other_forward_ends()
            if call is None and run.rerun is None and not torch.is_grad_enabled():
                run.observer.aside_ended(module, output)
            if run.rerun is None:
                self._random_after = RandomState.take()
                run.observer.forward_ended(call, self._random_after)

    def _keep(self, module: nn.Module, call: MicroBatch, output: Any) -> None:
        seen = self._run.seen
        self._run.modules.note_training_call(module)
        call.scalar_outputs.update(scalar_outputs(output))
        self.logits = self.logits or logits_dtype(output)
        if len(seen.micro_batches) < MICRO_BATCHES_MAX and seen.size_bytes < MICRO_BYTES_MAX:
            seen.micro_batches.append(call)
            self._guards.called(call)

    def backward_begins(self, roots: Any, *, accumulates: bool, derives: bool = False) -> bool:
        """Returns whether this is an outermost backward of the script; then ``backward_ends`` follows.

        ``derives``: it leaves no gradients, and gives the script those of parameters.
        """
        run = self._run
        if not run.trains_here() or run.in_backward:
            return False
        with run.own_time.unseen:
            if _is_meta(roots):
                return False
        self._failed = False
        if self.foreign is not None and run.rerun is None:
            with run.own_time, run.guard.part("looking for updates without an optimizer"):
                self.foreign.backward_begins(_as_tensors(roots), accumulates=accumulates)
        run.in_backward = True
        self.backward_calls += 1
        self._count_calls()
        if self.step_batches is not None:
            self.step_batches.backward_begins()
        if run.activations.armed:
            with run.own_time, run.guard.part("measuring the outputs of modules"):
                run.activations.backward_begins()
        if accumulates:  # a derivative that the script takes leaves no gradients that it could discard
            run.seen.backward_begins()
        with run.own_time.unseen, run.guard.part("following backward"):
            run.backwards.append(Backward(run.last_step + 1, newest_of(_as_tensors(roots))))
            run.observer.backward_begins()
        term: LossTerm | None = None
        with run.own_time.unseen, run.guard.part("reading the loss"):
            scalars = [root for root in _as_tensors(roots) if root.numel() == 1 and root.is_floating_point()]
            if run.rerun is not None and scalars:
                run.rerun.backward_begins(scalars[0])
            elif accumulates and len(scalars) == 1 and len(run.seen.losses) < LOSSES_MAX:
                term = loss_term(scalars[0], run.seen.last_call())
                run.seen.backpropagated(term)
                run.saw_loss = True
                run.observer.loss_seen(scalars[0])
            elif derives and len(scalars) == 1 and len(run.seen.losses) < LOSSES_MAX:
                run.saw_loss |= run.seen.derived(loss_term(scalars[0], run.seen.last_call()))
        with run.guard.part("reading the loss"):
            if term is not None:
                self._look_at_loss(term.root)
            if not run.streams and self.backward_calls >= FORGOTTEN_AFTER_BACKWARDS:
                run.forget_step()
        self._guards.backward_begins(term)
        return True

    def backward_failed(self, error: Exception) -> None:
        """An outermost backward has raised."""
        self._failed = True
        if self._run.rerun is None:
            self._guards.torch_raised(error)

    def backward_ends(self) -> None:
        run = self._run
        run.in_backward = False
        with run.own_time.unseen, run.guard.part("following backward"):
            run.observer.backward_ends()
        if self.foreign is not None and run.rerun is None and not self._failed:
            with run.guard.part("looking for updates without an optimizer"):
                self.foreign.backward_ended()

    def loss_given(self, loss: Tensor) -> None:
        """The script passes its loss to us before an update that it makes without an optimizer."""
        run = self._run
        if run.is_script() and run.rerun is None:
            with run.own_time.unseen, run.guard.part("reading the loss"):
                run.seen.losses[:] = [loss_term(loss)]
                run.saw_loss = True


def _is_meta(roots: Any) -> bool:
    """Whether a backward runs on the meta device: such a probe of shapes or operations trains nothing."""
    return any(root.is_meta for root in _as_tensors(roots))


def _as_tensors(roots: Any) -> list[Tensor]:
    found = roots if isinstance(roots, (tuple, list)) else [roots]
    return [root for root in found if isinstance(root, Tensor)]
