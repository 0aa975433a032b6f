"""What happens in a step that is not recorded, because the run rests (``pacing``).

A rest begins and ends between two steps. In it the entry points count the optimizer's steps, hold the inputs of the
step's model calls by reference, and on the CPU read the loss before its backward and one small gradient before the
update. If one of them is not finite, the rest ends within the step: the gate then sees it with what was held, before
the update. An accelerator is not waited for, so there such a value is found in the next recorded step. A new optimizer,
a loaded state or an exception end a rest too. Optimizers that take turns rest together (``resting_streams``).
"""

from __future__ import annotations

import math
from collections import Counter
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
from steadytrain.capture.step.own_threads import own_threads_s
from steadytrain.capture.step.pacing import ALIGNED, SHARE_TOLD, Pacing, aligned
from steadytrain.capture.step.resting_streams import RestingStreams, Turns, UsualLoss
from steadytrain.capture.step.script_frames import FrameLine, user_frames
from steadytrain.core.torch_private import VERSION

HELD_MAX = 8
"""Model calls of a resting step that are held."""

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

        self._turns, self._usual = Turns(), UsualLoss()
        self._streams: RestingStreams | None = None
        self._held: list[_Held] = []
        self._root: Tensor | None = None
        self._left = self._backwards = 0
        self._frames: dict[int, tuple[FrameLine, ...]] = {}
        self._has_closure = False
        self._rests = self._first_ever = 0
        self._rested_steps: Counter[str] = Counter()

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
        streams = self._run.streams
        with self._run.own_time.unseen:
            waits = any(one.device.type != "cpu" for one in streams)
        if not waits:
            return self._steps.step_begins(optimizer, args, kwargs)
        began = self._pacing.own_clock()
        try:
            return self._steps.step_begins(optimizer, args, kwargs)
        finally:
            self._pacing.leave_out(self._pacing.own_clock() - began)

    def _end_recorded(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._steps.step_ends(optimizer, args, kwargs)
        stream = self._run.leading.stream_of(optimizer)
        if stream is not None and optimizer is stream.optimizers[-1]:
            with self._run.guard.part("resting"):
                self._recorded(stream)

    def _recorded(self, stream: Stream) -> None:
        """A recorded step of ``stream`` has ended. A rest may follow if that ends a turn of the optimizers."""
        streams = self._run.streams
        last: Stream | None = stream
        if len(streams) > 1:
            self._turns.stepped(stream)
            last = self._turns.last_of(streams)
            self._pacing.updates = self._turns.steps_in_a_turn(stream)
        if last is None or (last is stream and not self._may_rest()):
            self._pacing.counted()
        elif last is stream and (steps := self._pacing.recorded(stream.step)):
            self._begin(stream, aligned(stream.step, steps))

    def _may_rest(self) -> bool:
        """Whether all optimizers are of torch's kind, without closure, scaler and other ranks, between two steps."""
        run = self._run
        return (
            run.is_script()
            and run.stopped is None
            and run.rerun is None
            and not (self._has_closure or run.scaling.scalers or run.in_backward)
            and not (run.rehearses or run.observer.replays or self._model_calls.inside)
            and not any(one.together or one.pending is not None or _by_hand(one) for one in run.streams)
        )

    def _begin(self, stream: Stream, steps: int) -> None:
        run = self._run
        streams = self._streams = RestingStreams(run.streams, stream, reads=not self._pacing.tiny)
        self._frames = {id(call.module): call.frames for call in run.kept_batches()}
        self._first_ever = self._first_ever or stream.step + 1
        self._rests += 1
        run.activations.disarm()
        for one in streams:
            run.observer.rest_begins(one)
        run.recorder.set_fact(FACT, self.fact(stream))
        losses = stream.history.window().applied("loss").values
        self._usual.learn(losses if len(run.streams) == 1 else losses[:0])  # those of several optimizers lie apart
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
        pacing, burst, first = self._pacing, self._pacing.pace.burst_steps, self._first_ever
        if self._rests == 1:
            self._run.note(
                f"a step takes {1e3 * pacing.step_s:.2g} ms and recording it {1e3 * pacing.recording_s:.2g} ms more: "
                f"from step {first:,} on steadytrain records {burst} steps at a time and rests in between, so "
                f"that it takes less than {SHARE_TOLD:.0%} of the time (--every-step records all)"
            )

    def fact(self, stream: Stream) -> dict[str, int]:
        """The fact of the run: the number of rests, the first resting step, and the steps so far that rested."""
        return {
            "first_step": self._first_ever,
            "rests": self._rests,
            "steps": stream.own_steps,
            "rested": self._rested_steps[stream.name],
        }

    # -- a resting step --------------------------------------------------------------------------------------------

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The script calls a module."""
        if torch.is_grad_enabled() and len(self._held) < HELD_MAX:
            first = args[0] if args else None
            self._held.append((module, args, kwargs, VERSION.on(first, 0) if type(first) is Tensor else 0))

    def ignores(self, roots: Any, how: Mapping[str, Any]) -> bool:
        """False if the loss is not finite, or far above those on record: then the rest is over, and this is the
        backward of a recorded step."""
        if not how.get("accumulate_grad") or len(roots) != 1 or type(root := roots[0]) is not Tensor:
            return True
        if root.is_cpu and root.numel() == 1 and not self._usual.allows(root.item()) and self._run.is_script():
            self._wake_within()
            return False
        self._root = root
        self._backwards += 1
        if self._backwards > BACKWARDS_MAX and self._run.is_script():
            self._wake_within()
            return False
        return True

    def backward_begins(self, roots: Any, *, accumulates: bool, derives: bool = False) -> bool:
        return False

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """The optimizer is about to update. The rest ends here if a gradient is not finite."""
        streams = self._streams
        checked = streams.checked.get(id(optimizer)) if streams is not None else None
        if streams is None or checked is None:
            return None
        try:
            gradient = checked.grad
            bad = gradient is not None and not math.isfinite(gradient.sum().item()) and not _is_finite(gradient)
        except Exception as error:
            self._run.guard.report("reading a gradient", error)
            streams.checked, bad = {}, False
        if bad and self._run.is_script():
            self._wake_within()
            return self._steps.step_begins(optimizer, args, kwargs)
        return None

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """The update has been made: the step counts, and the rest may be over."""
        streams = self._streams
        if streams is None:
            return
        if not streams.knows(optimizer):
            if self._run.is_script():
                self._let_go()
                self._end()  # another optimizer: its next step is recorded
            return
        self._let_go()
        streams.count(optimizer)
        if not streams.ends_turn(optimizer):
            return
        self._left -= 1
        if self._left > LEAD_FETCHES + ALIGNED and self._pacing.rests_long:
            self._left = aligned(streams.last.step, LEAD_FETCHES)
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
        if self._streams is not None:
            with self._run.guard.part("counting the steps on record"):
                self._run.recorder.set_fact(FACT, self.fact(self._streams.last))
        cost = self._pacing.cost
        if cost is not None:
            with self._run.guard.part("counting what recording cost"):
                self._run.recorder.set_fact(COST, {**cost, "threads_s": round(own_threads_s(), 3)})

    @property
    def recorded_steps(self) -> int | None:
        """The number of recorded steps; None if the run did not rest."""
        if self._streams is None:
            return None
        last = self._streams.last
        return last.own_steps - self._rested_steps[last.name]

    def _end(self) -> None:
        run, streams = self._run, self._counted()
        with run.guard.part("ending a rest"):
            run.forget_step()
            self._loaders.take_wait_s()
            self._model_calls.rested(RandomState.take())
            for one in streams:
                # The step of another one may have begun before the last one's ended.
                run.observer.rest_ends(one, within=one is not streams.last)
            run.recorder.set_fact(FACT, self.fact(streams.last))
            self._tell()

    def _counted(self) -> RestingStreams:
        """The rest is over: its steps are on the account, and the hooks call the entry points again."""
        streams = self._streams
        assert streams is not None
        self._pacing.wake(streams.passed(streams.last))
        self._rested_steps.update({one.name: streams.passed(one) for one in streams})
        self._redirect(None)
        streams.checked = {}
        return streams

    def _wake_within(self) -> None:
        """End the rest within a step, whose calls and loss so far are those held."""
        run, streams = self._run, self._counted()
        run.forget_step()
        self._loaders.take_wait_s()
        self._model_calls.rested(None)
        held, root = self._held, self._root
        self._let_go()
        seen = run.seen = StepInProgress(rested=streams.unrecorded())
        with run.guard.part("ending a rest"):
            for one in streams:
                run.observer.rest_ends(one, within=True)
            run.recorder.set_fact(FACT, self.fact(streams.last))
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


def _by_hand(stream: Stream) -> bool:
    """Whether an optimizer of steadytrain stands for updates that the script makes by hand."""
    return any(type(one).__module__.startswith("steadytrain.") for one in stream.optimizers)


def _is_finite(gradient: Tensor) -> bool:
    return bool(torch.isfinite(gradient).all())


def _script_fetches(iterator: Any) -> Any:
    return MISSING


def _clip(original: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
    return original(parameters, *args, **kwargs)
