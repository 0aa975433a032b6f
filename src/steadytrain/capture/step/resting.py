"""What happens in a step that is not recorded, because the run rests (``pacing``).

A rest begins and ends between two steps. In it the entry points count the optimizer's steps, hold the inputs of the
step's model calls by reference, and on the CPU read the loss before its backward and one small gradient before the
update. If one of them is not finite, the rest ends within the step: the gate then sees it with what was held, before
the update. An accelerator is not waited for, so there such a value is found in the next recorded step. A new optimizer,
a loaded state or an exception end a rest too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.hooks.module_hooks import nothing
from steadytrain.capture.hooks.patches import Patches
from steadytrain.capture.step.data_loaders import DataLoaders
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState, record_call
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.loss import loss_term
from steadytrain.capture.step.model_calls import ModelCalls
from steadytrain.capture.step.optimizer_steps import OptimizerSteps
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.pacing import ALIGNED, SHARE_TOLD, Pacing, aligned
from steadytrain.capture.step.script_frames import FrameLine, user_frames
from steadytrain.core.torch_private import VERSION

HELD_MAX = 8
"""Model calls of a resting step that are held."""

CHECKED_ELEMENTS_MAX = 1 << 14
"""Size of the gradient that is read: its sum costs some microseconds."""

BACKWARDS_MAX = 256
"""Backward passes without a step after which a rest ends: the recorded events tell why none comes."""

LEAD_FETCHES = 8
"""Last steps of a rest whose batches go on the tape: loaders and trainers fetch ahead of the steps."""

FACT = "rests"
COST = "cost"


_Held = tuple[nn.Module, Any, Any, int]
"""A model call by reference: module, arguments, keyword arguments, and the version counter of the first argument."""


class Resting:
    """The entry points of a resting step, and the beginning and the end of a rest.

    Args:
        calls, loaders, steps: the parts that handle the events of a recorded step.
    """

    def __init__(
        self,
        run: LiveRun,
        pacing: Pacing,
        calls: ModelCalls,
        loaders: DataLoaders,
        steps: OptimizerSteps,
    ) -> None:
        self._run = run
        self._pacing = pacing
        self._model_calls = calls
        self._loaders = loaders
        self._steps = steps
        self.patches: Patches | None = None
        """The patches of the watcher, which report directly to this object while the run rests."""

        self._stream: Stream | None = None
        self._optimizer = 0
        self._checked: Tensor | None = None
        self._held: list[_Held] = []
        self._root: Tensor | None = None
        self._left = self._backwards = 0
        self._frames: dict[int, tuple[FrameLine, ...]] = {}
        self._has_closure = False
        self._rests = self._rested_steps = 0
        self._first = self._first_ever = 0

    def entry_points(self, events: Any) -> dict[str, Callable[..., Any]]:
        """The entry points of ``events`` that call this object while the run rests, and are on the account."""
        recorded = {"step_begins": self._begin_recorded, "step_ends": self._end_recorded}
        resting: dict[str, Callable[..., Any]] = {
            "forward_begins": self.called,
            "forward_ends": nothing,
            "backward_begins": self.backward_begins,
            "step_begins": self.step_begins,
            "step_ends": self.step_ends,
            "fetch_begins": _script_fetches,
            "fetch_ends": self.fetch_ends,
            "samples_drawn": nothing,
            "gradients_zeroed": nothing,
            "scaler_scales": self.scaler_scales,
            "scaler_step_begins": nothing,
            "scaler_step_ends": nothing,
            "clip": _clip,
            "clip_by_value": _clip,
        }
        timed = self._pacing.timed
        return {name: timed(recorded.get(name, getattr(events, name)), one) for name, one in resting.items()}

    # -- a recorded step -------------------------------------------------------------------------------------------

    def _begin_recorded(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        self._has_closure = self._has_closure or callable(kwargs.get("closure", args[1] if len(args) > 1 else None))
        stream = self._only_stream()
        with self._run.own_time.unseen:
            waits = stream is not None and stream.device.type != "cpu"
        if not waits:
            return self._steps.step_begins(optimizer, args, kwargs)
        began = self._pacing.clock()
        try:
            return self._steps.step_begins(optimizer, args, kwargs)
        finally:
            self._pacing.leave_out(self._pacing.clock() - began)

    def _end_recorded(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._steps.step_ends(optimizer, args, kwargs)
        stream = self._only_stream()
        if stream is None or not self._may_rest(stream, optimizer):
            self._pacing.counted()
        else:
            steps = self._pacing.recorded(stream.step)
            if steps:
                with self._run.guard.part("resting"):
                    self._begin(stream, optimizer, aligned(stream.step, steps))

    def _only_stream(self) -> Stream | None:
        return self._run.streams[0] if len(self._run.streams) == 1 else None

    def _may_rest(self, stream: Stream, optimizer: torch.optim.Optimizer) -> bool:
        """Whether this is one optimizer of torch's kind, without closure, scaler and other ranks, between two steps."""
        run = self._run
        return (
            run.is_script()
            and run.stopped is None
            and run.rerun is None
            and len(stream.joined) == 1
            and stream.pending is None
            and not (self._has_closure or run.scaling.scalers or stream.together or run.in_backward)
            and not (run.rehearses or run.observer.replays or self._model_calls.inside)
            and not type(optimizer).__module__.startswith("steadytrain.")
        )

    def _begin(self, stream: Stream, optimizer: torch.optim.Optimizer, steps: int) -> None:
        run = self._run
        self._stream, self._optimizer, self._first = stream, id(optimizer), stream.step + 1
        self._checked = None if self._pacing.tiny else _small_gradient(stream)
        self._frames = {id(call.module): call.frames for call in run.kept_batches()}
        self._first_ever = self._first_ever or self._first
        self._rests += 1
        run.activations.disarm()
        run.observer.rest_begins(stream)
        run.recorder.set_fact(FACT, self.fact(stream))
        self._left = steps
        self._pacing.rest()
        self._redirect(self)

    def _redirect(self, at_rest: Resting | None) -> None:
        """Let the hooks call ``at_rest`` directly, or the entry points again."""
        modules = self._run.modules
        modules.redirect(at_rest.called if at_rest is not None else None)
        if at_rest is None:
            modules.wake()
        elif self._pacing.tiny:
            modules.rest_all()
        if self.patches is not None:
            self.patches.rest(at_rest)

    def _tell(self) -> None:
        """The first rest is over: now it is known how long a step takes without recording."""
        pacing, burst = self._pacing, self._pacing.pace.burst_steps
        if self._rests == 1:
            self._run.note(
                f"a step takes {1e3 * pacing.step_s:.2g} ms and recording it {1e3 * pacing.recording_s:.2g} ms more: "
                f"from step {self._first:,} on steadytrain records {burst} steps at a time and rests in between, so "
                f"that it takes less than {SHARE_TOLD:.0%} of the time (--every-step records all)"
            )

    def fact(self, stream: Stream) -> dict[str, int]:
        """The fact of the run: the number of rests, the first resting step, and the steps so far that rested."""
        return {
            "first_step": self._first_ever,
            "rests": self._rests,
            "steps": stream.own_steps,
            "rested": self._rested_steps,
        }

    # -- a resting step --------------------------------------------------------------------------------------------

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The script calls a module."""
        if torch.is_grad_enabled() and len(self._held) < HELD_MAX:
            first = args[0] if args else None
            self._held.append((module, args, kwargs, VERSION.on(first, 0) if type(first) is Tensor else 0))

    def ignores(self, roots: Any, how: Mapping[str, Any]) -> bool:
        """False if the loss is not finite: then the rest is over, and this is the backward of a recorded step."""
        if not how.get("accumulate_grad") or len(roots) != 1 or type(root := roots[0]) is not Tensor:
            return True
        if root.is_cpu and root.numel() == 1 and not math.isfinite(root.item()) and self._run.is_script():
            self._wake_within()
            return False
        self._root = root
        self._backwards += 1
        if self._backwards > BACKWARDS_MAX and self._run.is_script():
            self._wake_within()
            return False
        return True

    def backward_begins(self, roots: Any, *, accumulates: bool) -> bool:
        return False

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """The optimizer is about to update. The rest ends here if a gradient is not finite."""
        if self._checked is None or id(optimizer) != self._optimizer:
            return None
        try:
            gradient = self._checked.grad
            bad = gradient is not None and not math.isfinite(gradient.sum().item()) and not _is_finite(gradient)
        except Exception as error:
            self._run.guard.report("reading a gradient", error)
            self._checked, bad = None, False
        if bad and self._run.is_script():
            self._wake_within()
            return self._steps.step_begins(optimizer, args, kwargs)
        return None

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """The update has been made: the step counts, and the rest may be over."""
        stream = self._stream
        if stream is None or (id(optimizer) != self._optimizer and not self._run.is_script()):
            return
        self._let_go()
        if id(optimizer) == self._optimizer:
            stream.step += 1
            self._rested_steps += 1
            self._left -= 1
            if self._left > LEAD_FETCHES + ALIGNED and self._pacing.rests_long:
                self._left = aligned(stream.step, LEAD_FETCHES)
        else:
            self._left = 0  # another optimizer: its next step is recorded
        if self._left <= 0:
            self._end()

    def fetch_ends(self, iterator: Any, batch: Any) -> Any:
        run = self._run
        if run.is_script():
            with run.guard.part("counting what was fetched"):
                number = self._loaders.datasets.number_of(iterator)
                run.observer.passed_over(number, batch, keep=self._left <= LEAD_FETCHES)
        return MISSING

    def scaler_scales(self, scaler: Any) -> None:
        """A gradient scaler: its steps are recorded."""
        if self._run.is_script() and scaler.is_enabled():
            self._run.scaling.scalers[id(scaler)] = scaler
            self.end()

    # -- the end of a rest -----------------------------------------------------------------------------------------

    def end(self) -> None:
        """Something new happens: end the rest now if no step is under way, else when it ends."""
        if not self._pacing.rests:
            return
        self._left = 0
        if not self._held and self._root is None:
            self._end()

    def hand_over(self) -> None:
        """The script is over, or about to end: what is held of the step in progress is its evidence."""
        if self._pacing.rests and self._run.stopped is None:
            if self._held or self._root is not None:
                self._wake_within()
            else:
                self._end()

    def close(self) -> None:
        """The run is over."""
        self.hand_over()
        if self._stream is not None:
            with self._run.guard.part("counting the steps on record"):
                self._run.recorder.set_fact(FACT, self.fact(self._stream))
        cost = self._pacing.cost
        if cost is not None:
            with self._run.guard.part("counting what recording cost"):
                self._run.recorder.set_fact(COST, cost)

    @property
    def recorded_steps(self) -> int | None:
        """The number of recorded steps; None if the run did not rest."""
        return self._stream.own_steps - self._rested_steps if self._stream is not None else None

    def _end(self) -> None:
        run, stream = self._run, self._stream
        assert stream is not None
        self._pacing.wake(stream.step + 1 - self._first)
        self._redirect(None)
        with run.guard.part("ending a rest"):
            run.forget_step()
            self._loaders.take_wait_s()
            self._model_calls.rested(RandomState.take())
            run.observer.rest_ends(stream, within=False)
            run.recorder.set_fact(FACT, self.fact(stream))
            self._tell()

    def _wake_within(self) -> None:
        """End the rest within a step, whose calls and loss so far are those held."""
        run, stream = self._run, self._stream
        assert stream is not None
        self._pacing.wake(stream.step + 1 - self._first)
        self._redirect(None)
        run.forget_step()
        self._loaders.take_wait_s()
        self._model_calls.rested(None)
        held, root = self._held, self._root
        self._let_go()
        seen = run.seen = StepInProgress(rested=(self._first, stream.step + 1))
        with run.guard.part("ending a rest"):
            run.observer.rest_ends(stream, within=True)
            run.recorder.set_fact(FACT, self.fact(stream))
            self._tell()
            seen.micro_batches += self._as_recorded(held)
            if root is not None:
                seen.backward_begins()
                seen.losses.append(loss_term(root, seen.last_call()))

    def _as_recorded(self, held: Sequence[_Held]) -> Iterator[MicroBatch]:
        """The outermost calls, with the lines of the newest recorded call of their module in functions that run."""
        running = {line.code: line for line in reversed(user_frames())}
        inside: set[int] = set()
        for module, args, kwargs, version in held:
            if id(module) in inside:
                continue
            inside |= {id(part) for part in module.modules() if part is not module}
            call = record_call(module, args, kwargs, None)
            first = args[0] if args and type(args[0]) is Tensor else None
            lines = (line for line in self._frames.get(id(module), ()) if line.code in running)
            frames = tuple(replace(line, frame_id=running[line.code].frame_id) for line in lines)
            if first is not None and VERSION.on(first, 0) != version:
                call = replace(call, references=((first, version),))
            yield replace(call, frames=frames)

    def _let_go(self) -> None:
        self._held, self._root, self._backwards = [], None, 0


def _small_gradient(stream: Stream) -> Tensor | None:
    """The first parameter whose gradient can be read in every step: NaN in a backward reaches the first layers."""
    for one in stream.parameters:
        gradient = one.grad
        if type(gradient) is not Tensor or gradient.layout != torch.strided or gradient.device.type != "cpu":
            continue
        if gradient.is_floating_point() and 0 < gradient.numel() <= CHECKED_ELEMENTS_MAX:
            return one
    return None


def _is_finite(gradient: Tensor) -> bool:
    return bool(torch.isfinite(gradient).all())


def _script_fetches(iterator: Any) -> Any:
    return MISSING


def _clip(original: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
    return original(parameters, *args, **kwargs)
