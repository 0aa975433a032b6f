"""The one live object: it follows the training loop, guards the update, and freezes an incident.

::

      data loader        root module            loss             optimizer.step
    ──► fetch ──────► forward_begins ──► backward_begins ──► step_begins ──► (update) ──► step_ends ──┐
    ▲   remember       record inputs,     remember the        THE GATE:                   record the  │
    │   the batch      RNG, buffers       loss (no sync)      one look at loss            step, run   │
    │                  forward_ends       backward_ends       and gradients               detectors   │
    └─────────────────────────────────────────────────────────────────────────────────────────────────┘

At the gate a loss or gradient that is not finite becomes an incident: the bundle is written, and under the policy
``stop`` the update is refused and the process ends with status 70. Everything is called on the training thread, and
every entry point is guarded: an error of ours is told once and training goes on.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture import environment, freeze, ranks
from steadytrain.capture.discover import Model, find_model, name_parameters, optimizer_parameters, plain_name
from steadytrain.capture.failopen import Guard, Tell
from steadytrain.capture.frames import loop_lines
from steadytrain.capture.history import History
from steadytrain.capture.loss import LossTerm, loss_term, unscaled
from steadytrain.capture.message import stop_message
from steadytrain.capture.patches import MISSING, Patches, hook_module
from steadytrain.capture.recorder import BatchRing, BufferKeeper, MicroBatch, RandomState, Schedule, record_call
from steadytrain.capture.scene import Investigator, Lap, Rehearsal, Scene
from steadytrain.capture.tensorstats import (
    OVERFLOWED,
    TensorState,
    dense_values,
    exact_state,
    fetch,
    global_norm,
    l2_norms,
    recorded_norm,
)
from steadytrain.catalog import detector_name
from steadytrain.model import (
    GRADIENT_ABSENT,
    SEVERITIES,
    SIGNALS,
    Action,
    BadTensor,
    Finding,
    Incident,
    Policy,
    Symptom,
)
from steadytrain.store.bundle import update_incident
from steadytrain.store.folder import RUN_FILE, RunWriter
from steadytrain.store.segments import SegmentWriter, StepRecord
from steadytrain.symptoms import Detector

STOPPED_STATUS = 70
DETECT_EVERY_STEPS = 16
MICRO_BATCHES_MAX = 256
MICRO_BYTES_MAX = 1 << 30
LOSSES_MAX = 4096
FETCHED_MAX = 64
OBSERVED_INCIDENTS_MAX = 3
LAP_S_MAX = 120.0
STATE_BYTES_MAX_DEFAULT = 4 << 30
HAND_WRITTEN_AFTER_BACKWARDS = 200


class RunStopped(SystemExit):
    """Raised at the gate to end the process with status 70; the update was not applied.

    A ``SystemExit``, so that ``except Exception`` in a training loop does not swallow it and ``finally`` still runs.
    """

    def __init__(self, message: str) -> None:
        super().__init__(STOPPED_STATUS)
        self.message = message

    def __str__(self) -> str:
        return self.message


class LapTooLong(SystemExit):
    """Raised in the training thread when one more lap takes too long; the update has been refused before."""

    def __init__(self) -> None:
        super().__init__(STOPPED_STATUS)


@dataclass(frozen=True)
class Settings:
    """How to watch: ``run_dir`` is made when the first step is seen, not before."""

    run_dir: Path
    run_name: str
    policy: Policy = "stop"
    state_bytes_max: int = STATE_BYTES_MAX_DEFAULT
    description: dict[str, Any] = field(default_factory=dict)
    diff: str | None = None


@dataclass
class Measurement:
    """One look at the gate."""

    losses: tuple[float, ...]
    record: StepRecord
    tensor_names: tuple[str, ...]
    bad: tuple[BadTensor, ...]
    elsewhere: bool
    committed: bool = False

    @property
    def loss_finite(self) -> bool:
        return all(math.isfinite(loss) for loss in self.losses)

    @property
    def is_incident(self) -> bool:
        return not self.record.skipped and (not self.loss_finite or bool(self.bad) or self.elsewhere)


@dataclass
class Stream:
    """The steps of one optimizer, or of several that step together after the same backward."""

    name: str
    history: History
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    parameters: list[Tensor] = field(default_factory=list)
    signature: tuple[int, ...] = ()
    model: Model | None = None
    tensor_names: tuple[str, ...] = ()
    writer: SegmentWriter | None = None
    step: int = 0
    pending: Measurement | None = None
    together: bool = False
    since_detect: int = 0


class Watcher:
    """Follows one process's training. ``close`` takes every patch and hook out again."""

    def __init__(
        self,
        settings: Settings,
        *,
        tell: Tell,
        detectors: Sequence[Detector] = (),
        investigator: Investigator | None = None,
        rehearsal: Rehearsal | None = None,
        on_finished: Callable[[Path], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.guard = Guard(tell)
        self.incidents: list[Path] = []
        self.symptoms: dict[tuple[str, str, int], Symptom] = {}
        self.backward_calls = 0
        self._told_symptoms: dict[tuple[str, str, int], str] = {}
        self.stopped: RunStopped | None = None
        self.streams: list[Stream] = []
        self.notes: list[str] = []
        self._tell = tell
        self._detectors = list(detectors)
        self._investigator = investigator
        self._rehearsal = rehearsal
        self._clock = clock
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._closed = False
        self._run: RunWriter | None = None
        self._recording = rehearsal is None
        self._stream_of: dict[int, Stream] = {}
        self._datasets: dict[int, int] = {}
        self._models: list[Model] = []
        self._compile_used = False
        self._hooked: dict[int, tuple[nn.Module, Callable[[], None]]] = {}
        self._roots_called: dict[int, nn.Module] = {}
        self._called_outermost: set[int] = set()
        self._called_inside: set[int] = set()
        self._calls: list[tuple[nn.Module, MicroBatch | None]] = []
        self._micro: list[MicroBatch] = []
        self._micro_used = 0
        self._micro_stale = 0
        self._losses: list[LossTerm] = []
        self._fetched: list[tuple[int, Any]] = []
        self._scalers: dict[int, Any] = {}
        self._scaler_step: tuple[int, bool] | None = None
        self._clip_norms: dict[int, Tensor] = {}
        self._clip_states: dict[int, TensorState] = {}
        self._ring = BatchRing()
        self._buffers = BufferKeeper()
        self._random_after: RandomState | None = None
        self._in_backward = False
        self._saw_loss = False
        self._busy = False
        self._early: Finding | None = None
        self._step_end = time.perf_counter()
        self._lap: Lap | None = None
        self._lap_finish: Callable[[Finding], RunStopped] | None = None
        self._lap_deadline: threading.Timer | None = None
        self._schedule: Schedule | None = None
        self._told_hand_written = False
        self._patches = Patches(self)

    # -- what the script does --------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        if self._mine():
            with self.guard.part("finding the model"):
                self._hook_model(find_model(optimizer_parameters([optimizer])))

    def compile_called(self, subject: Any, result: Any) -> None:
        """Compiled code guards on the hooks that it was traced with: inner modules must have none that will go."""
        if not self._mine():
            return
        with self.guard.part("watching compiled code"):
            self._compile_used = True
            inner = getattr(subject, "__self__", subject)
            tops = {id(root) for model in self._models for root in model.roots}
            for key, (_, remove) in list(self._hooked.items()):
                if key not in tops:
                    remove()
                    del self._hooked[key]
            if isinstance(inner, nn.Module) and id(inner) in self._hooked:
                self._hooked.pop(id(inner))[1]()
            if isinstance(subject, nn.Module) and isinstance(result, nn.Module):
                self._hook(result)

    def fetch_begins(self, iterator: Any) -> Any:
        if self._lap is None or not self._mine():
            return MISSING
        batch = MISSING
        with self.guard.part("one more lap"):
            batch = self._lap.fetch(self._dataset_number(iterator))
        return batch  # noqa: RET504 (a guarded part may end without it)

    def fetch_ends(self, iterator: Any, batch: Any) -> None:
        if self._mine() and len(self._fetched) < FETCHED_MAX:
            self._fetched.append((self._dataset_number(iterator), batch))

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if not self._mine() or self._in_backward:
            return None
        outermost, training = not self._calls, torch.is_grad_enabled()
        (self._called_outermost if outermost else self._called_inside).add(id(module))
        call: MicroBatch | None = None
        changed = None
        if outermost and self._lap is None:
            with self.guard.part("keeping the buffers"):
                self._buffers.keep(module)
        if outermost and training:
            with self.guard.part("recording the batch"):
                if self._lap is not None:
                    changed = self._lap.forward_begins(module, args, kwargs)
                else:
                    call = record_call(module, args, kwargs, self._random_after)
        self._calls.append((module, call))
        return changed

    def forward_ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not self._mine() or self._in_backward or not self._calls:
            return
        while self._calls:  # a call that never came back (an exception without always_call) is dropped on the way
            called, call = self._calls.pop()
            if called is module:
                break
        if self._calls:
            return
        with self.guard.part("recording the batch"):
            if call is not None:
                self._roots_called.setdefault(id(module), module)
                call.scalar_outputs.update(_scalar_outputs(output))
                waiting = sum(batch.size_bytes for batch in self._micro)
                if len(self._micro) < MICRO_BATCHES_MAX and waiting < MICRO_BYTES_MAX:
                    self._micro.append(call)
            elif self._lap is not None and not torch.is_grad_enabled():
                self._lap.other_forward_ends()
            if self._lap is None:
                self._random_after = RandomState.take()

    def backward_begins(self, roots: Any, *, accumulates: bool) -> bool:
        if not self._mine() or self._in_backward:
            return False
        self._in_backward = True
        self.backward_calls += 1
        if len(self._micro) > self._micro_stale:
            del self._micro[: self._micro_stale]
            self._micro_stale = 0
        self._micro_used = len(self._micro)
        with self.guard.part("reading the loss"):
            scalars = [root for root in _as_tensors(roots) if root.numel() == 1 and root.is_floating_point()]
            if self._lap is not None and scalars:
                self._lap.backward_begins(scalars[0])
            elif accumulates and len(scalars) == 1 and len(self._losses) < LOSSES_MAX:
                self._losses.append(loss_term(scalars[0]))
                self._saw_loss = True
                self._look_at_loss(scalars[0])
            if not self._stream_of and self.backward_calls >= HAND_WRITTEN_AFTER_BACKWARDS:
                self._tell_hand_written()
                self._forget_step()
        return True

    def _look_at_loss(self, root: Tensor) -> None:
        """On the CPU a look at the loss costs nothing, and here the lines that made it still have their variables."""
        if root.device.type != "cpu" or math.isfinite(root.item()) or self._early is not None:
            return
        if self.settings.policy != "stop" or self._scalers or self._investigator is None or not self._micro:
            return
        batch, term = self._micro[-1], self._losses[-1]
        parameters = {
            plain_name(name): parameter
            for root in self._roots_called.values()
            for name, parameter in root.named_parameters()
        }
        scene = Scene(
            step=0,
            micro_batches=[batch],
            losses=[term],
            loss_finite=False,
            parameters=parameters,
            roots=list(self._roots_called.values()),
            buffers=self._buffers,
            fetched=(),
            loop=loop_lines(batch.frames, term.frames),
            alone=not any(stream.together for stream in self.streams),
            no_lap="the loss is looked at before backward",
        )
        with self._ourselves():
            self._early = self._investigator.look_at_loss(scene)

    def backward_ends(self) -> None:
        self._in_backward = False

    def gradients_zeroed(self, owner: torch.optim.Optimizer | nn.Module) -> None:
        """What was accumulated is thrown away: a script that skips a bad step by itself is left alone."""
        if not self._mine() or self._lap is not None or len(self.streams) != 1:
            return
        stream = self.streams[0]
        with self.guard.part("forgetting gradients that are thrown away"):
            if [owner] != stream.optimizers and (stream.model is None or (owner,) != stream.model.roots):
                return
            del self._micro[: self._micro_used]
            # A call of the model that no backward followed may be the one before backward, or one that was given up.
            self._micro_used, self._micro_stale = 0, len(self._micro)
            self._losses, self._early = [], None
            self._clip_norms, self._clip_states = {}, {}

    def scaler_scales(self, scaler: Any) -> None:
        if self._mine():
            self._scalers[id(scaler)] = scaler

    def scaler_step_begins(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        if self._mine():
            self._scaler_step = (id(optimizer), False)

    def scaler_step_ends(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """A scaler that found Inf does not call the optimizer: the step is recorded as skipped."""
        if not self._mine() or self._scaler_step is None:
            return
        seen, self._scaler_step = self._scaler_step[1], None
        if seen or not scaler.is_enabled():
            return
        if self._lap is not None:  # the lap's gradients made the scaler skip: this is as far as the lap comes
            raise self._finish_lap(self._lap.gate)
        with self.guard.part("recording a skipped step"):
            stream = self._lead(optimizer)
            if stream is not None:
                stream.pending = self._measure(stream, optimizer, skipped=True)
                self._finish_step(stream)

    def clip_begins(self, parameters: Any) -> None:
        if self._mine() and self._lap is None:
            with self.guard.part("reading the gradients before clipping"), torch.no_grad():
                self._read_before_clip([parameters] if isinstance(parameters, Tensor) else parameters)

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if not self._mine():
            return None
        if self._scaler_step is not None and self._scaler_step[0] == id(optimizer):
            self._scaler_step = (id(optimizer), True)
        if self.stopped is not None:
            with self.guard.part("restoring buffers"):
                self._buffers.restore()
            raise self.stopped
        if self._lap is not None:
            raise self._finish_lap(self._lap.gate)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # args[0] is the optimizer itself
        if not callable(closure):
            self._gate(optimizer, can_lap=True)
            return None

        micro_batches, losses = len(self._micro), len(self._losses)

        def watched_closure() -> Any:
            # LBFGS evaluates several times in a step, and the last stands for it. What was accumulated before stays.
            del self._micro[micro_batches:], self._losses[losses:]
            loss = closure()
            self._gate(optimizer, can_lap=False)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched_closure}
        return (args[0], watched_closure, *args[2:]), kwargs

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        stream = self._stream_of.get(id(optimizer))
        if self._mine() and stream is not None and stream.pending is not None:
            with self.guard.part("recording a step"):
                self._finish_step(stream)

    # -- the gate --------------------------------------------------------------------------------------------------

    def _gate(self, optimizer: torch.optim.Optimizer, *, can_lap: bool) -> None:
        """Look at the loss and the gradients that ``optimizer`` is about to apply; may raise :class:`RunStopped`."""
        looked: list[tuple[Stream, Measurement]] = []
        whole = False
        with self.guard.part("the gate"):
            looked += self._look(optimizer, can_lap=can_lap)
            whole = True
        if not whole:
            self._forget_step()  # or the batches of every step to come would pile up
        for stream, measured in looked:
            if stream.pending is not None and stream.pending.committed:
                continue  # a closure is evaluated again, in a step that is on record as an incident
            stream.pending = measured
            if not measured.is_incident or self._rehearsal is not None:
                continue
            if self.settings.policy == "observe":
                with self.guard.part("writing an incident"):
                    self._observe(stream, measured)
                continue
            stream.pending = None
            try:
                self._stop(stream, optimizer, measured, can_lap=can_lap)
            except Exception as error:  # the update must not be applied, whatever of ours broke on the way
                self.guard.report("handling the incident", error)
                self.stopped = RunStopped(f"steadytrain refused the update of step {measured.record.step}")
                raise self.stopped from None

    def _look(self, optimizer: torch.optim.Optimizer, *, can_lap: bool) -> Iterator[tuple[Stream, Measurement]]:
        """The stream and the measurement of this step, if ``optimizer`` leads it."""
        stream = self._lead(optimizer)
        if stream is None:
            return
        if self._rehearsal is not None and self._rehearsal.begins_after(stream.step + 1):
            self._rehearse(self._rehearsal, stream, optimizer, can_lap=can_lap)
            return
        yield stream, self._measure(stream, optimizer, skipped=False)

    def _lead(self, optimizer: torch.optim.Optimizer) -> Stream | None:
        """The stream that ``optimizer`` steps for; None when another optimizer already led this step."""
        stream = self._stream_of.get(id(optimizer))
        fresh = bool(self._losses)
        if stream is None:
            newest = self.streams[-1] if self.streams else None
            if newest is not None and not fresh and newest.step <= 1:
                newest.optimizers.append(optimizer)
                self._stream_of[id(optimizer)] = newest
                return None
            stream = Stream(
                name="main" if not self.streams else f"optimizer-{len(self.streams) + 1}",
                history=History(stream="main" if not self.streams else f"optimizer-{len(self.streams) + 1}"),
                optimizers=[optimizer],
            )
            self.streams.append(stream)
            self._stream_of[id(optimizer)] = stream
            return stream
        followed = self._saw_loss or optimizer is not stream.optimizers[0]
        if len(stream.optimizers) > 1 and not fresh and followed:
            return None  # no new backward: the first optimizer's look covered this one's gradients
        return stream

    def _measure(self, stream: Stream, optimizer: torch.optim.Optimizer, *, skipped: bool) -> Measurement:
        """One look: norms and losses in one device-to-host copy, an exact count only where that is not finite."""
        with torch.no_grad():
            return self._measure_quietly(stream, optimizer, skipped=skipped)

    def _measure_quietly(self, stream: Stream, optimizer: torch.optim.Optimizer, *, skipped: bool) -> Measurement:
        self._refresh(stream)
        gradients, parameters = _gradients(stream.parameters), _dense(stream.parameters)
        found_inf, grad_scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
        extras = [value for value in (found_inf, grad_scale) if isinstance(value, Tensor)]
        clipped = [self._clip_norms.get(id(p)) for p in stream.parameters]
        numbers = iter(
            fetch(
                [
                    *(term.root for term in self._losses),
                    *(factor.value for term in self._losses for factor in term.factors),
                    *(scale for scaler in self._scalers.values() if (scale := scaler._scale) is not None),
                    *extras,
                    *l2_norms([gradient for _, gradient in gradients]),
                    *(norm for norm in clipped if norm is not None),
                    *l2_norms(parameters),
                ]
            )
        )
        roots = [next(numbers) for _ in self._losses]
        factors = [[(next(numbers), factor.power) for factor in term.factors] for term in self._losses]
        scales = {next(numbers) for scaler in self._scalers.values() if scaler._scale is not None}
        scaler_skips = isinstance(found_inf, Tensor) and next(numbers) > 0
        scale = next(numbers) if isinstance(grad_scale, Tensor) else 1.0
        applied = {position: next(numbers) / scale for position, _ in gradients}
        before = {position: next(numbers) / scale for position, norm in enumerate(clipped) if norm is not None}
        parameter_norm = global_norm(list(numbers))

        losses = tuple(
            unscaled(root, terms, scales=scales, backward_calls=len(roots))
            for root, terms in zip(roots, factors, strict=True)
        )
        skipped = skipped or scaler_skips
        norms = {position: before.get(position, norm) for position, norm in applied.items()}
        bad = self._exact_look(stream, gradients, applied, norms) if not skipped else ()
        row = torch.full((len(stream.parameters),), GRADIENT_ABSENT).numpy()
        for position, norm in norms.items():
            row[position] = norm
        is_bad = bool(bad) or (not skipped and not all(math.isfinite(loss) for loss in losses))
        elsewhere = stream.together and ranks.agree(float(is_bad), self._device(stream)) > 0 and not is_bad
        tokens = [batch.tokens for batch in self._micro if batch.tokens is not None]
        now = time.perf_counter()
        record = StepRecord(
            step=stream.step + 1,
            time=self._clock(),
            scalars={
                "loss": math.fsum(losses) / len(losses) if losses else None,
                "gradient_norm": global_norm(list(norms.values())) if norms else None,
                "gradient_norm_applied": global_norm(list(applied.values())) if applied else None,
                "parameter_norm": parameter_norm,
                "learning_rate": _learning_rate(optimizer),
                "samples": float(sum(batch.samples for batch in self._micro)) if self._micro else None,
                "tokens": float(sum(tokens)) if tokens else None,
                "step_s": now - self._step_end,
            },
            gradient_norms=row,
            skipped=skipped,
        )
        return Measurement(losses, record, stream.tensor_names, bad, elsewhere)

    def _exact_look(
        self, stream: Stream, gradients: list[tuple[int, Tensor]], applied: dict[int, float], norms: dict[int, float]
    ) -> tuple[BadTensor, ...]:
        """The tensors that are really not finite; writes their exact norm into ``norms``.

        Clipping by a norm that is NaN makes every gradient NaN. Where the norms before clipping are known, only the
        tensors that were bad by then are named.
        """
        for position, norm in norms.items():
            if not math.isfinite(norm) and math.isfinite(applied[position]):  # clipped: only the norm had overflowed
                norms[position] = recorded_norm(self._clip_states.get(id(stream.parameters[position]), OVERFLOWED))
        suspects = [(position, gradient) for position, gradient in gradients if not math.isfinite(applied[position])]
        if not suspects:
            return ()
        before = {at: self._clip_states.get(id(stream.parameters[at])) for at, _ in gradients}
        clip_seen = any(id(stream.parameters[at]) in self._clip_norms for at, _ in gradients)
        bad = []
        for position, gradient in suspects:
            state = exact_state(gradient)
            if state.finite:  # only the norm overflowed
                norms[position] = recorded_norm(state)
                continue
            if clip_seen and math.isfinite(norms[position]):
                continue
            state = before[position] or state
            if state.finite:
                continue
            norms[position] = recorded_norm(state)
            parameter = stream.parameters[position]
            bad.append(
                BadTensor(
                    name=stream.tensor_names[position],
                    shape=tuple(parameter.shape),
                    dtype=str(gradient.dtype),
                    nan=state.nan,
                    inf=state.inf,
                    count=state.count,
                )
            )
        if not bad and any(not exact_state(gradient).finite for _, gradient in suspects):
            # The norm overflowed before clipping and the clip turned finite gradients into NaN: name what is bad now.
            for position, gradient in suspects:
                state = exact_state(gradient)
                if not state.finite:
                    norms[position] = recorded_norm(state)
                    name, shape = stream.tensor_names[position], tuple(gradient.shape)
                    bad.append(BadTensor(name, shape, str(gradient.dtype), state.nan, state.inf, state.count))
        return tuple(bad)

    def _read_before_clip(self, parameters: Sequence[Tensor]) -> None:
        gradients = [
            (p, values) for p in parameters if p.grad is not None and (values := dense_values(p.grad)) is not None
        ]
        for (parameter, values), norm in zip(gradients, l2_norms([values for _, values in gradients]), strict=True):
            self._clip_norms.setdefault(id(parameter), norm)
            # On the CPU a look costs no synchronisation; the counts are lost once clipping has spread the NaN.
            if norm.device.type == "cpu" and not math.isfinite(norm.item()):
                self._clip_states.setdefault(id(parameter), exact_state(values))

    # -- a step ends -----------------------------------------------------------------------------------------------

    def _finish_step(self, stream: Stream) -> None:
        measured, stream.pending = stream.pending, None
        assert measured is not None
        batches, stream.step = self._micro, measured.record.step
        self._forget_step()
        self._ring.add(stream.step, batches)
        self._commit(stream, measured)
        stream.since_detect += 1
        if stream.since_detect >= DETECT_EVERY_STEPS:
            self._tell_symptoms(self._detect(stream))
        if stream.step == 1:
            self._unhook_inner_modules()

    def _forget_step(self) -> None:
        self._micro, self._losses, self._fetched = [], [], []
        self._micro_used = self._micro_stale = 0
        self._early = None
        self._clip_norms, self._clip_states = {}, {}
        self._buffers.step_ends()
        self._step_end = time.perf_counter()

    def _commit(self, stream: Stream, measured: Measurement) -> None:
        """Put a step into memory and on disk, once."""
        if measured.committed:
            return
        measured.committed = True
        stream.history.append(measured.record, measured.tensor_names)
        if not self._recording:
            return
        try:
            run = self._open_run()
            if stream.writer is None:
                stream.writer = SegmentWriter(run.path / "steps" / stream.name, stream=stream.name)
            stream.writer.append(measured.record, measured.tensor_names)
        except Exception as error:
            self._recording = False
            self.guard.report("recording to the run folder", error)

    def _detect(self, stream: Stream) -> list[Symptom]:
        """Run every detector and record what is new or has grown. Worst first; at the same severity the loss leads."""
        stream.since_detect = 0
        found = []
        for detector in list(self._detectors):
            window = stream.history.recent() if "gradient_norms" in detector.needs else stream.history.window()
            try:
                symptom = detector.check(window)
            except Exception as error:
                self._detectors.remove(detector)
                self.guard.report(f"the detector {type(detector).__name__}", error)
                continue
            if symptom is not None:
                found.append(replace(symptom, stream=stream.name))
        for symptom in found:
            key = (symptom.name, symptom.stream, symptom.first_step)
            if self.symptoms.get(key) != symptom:
                self.symptoms[key] = symptom
                with self.guard.part("recording a symptom"):
                    self._open_run().raise_symptom(symptom)
        return sorted(found, key=_by_weight)

    def _tell_symptoms(self, found: Sequence[Symptom]) -> None:
        """Say each once, and again when it has become graver. A note is for the report only."""
        for symptom in found:
            key = (symptom.name, symptom.stream, symptom.first_step)
            if symptom.severity != "note" and self._told_symptoms.get(key) != symptom.severity:
                self._told_symptoms[key] = symptom.severity
                self._tell(f"{symptom.severity}: {symptom.message}")

    # -- an incident -----------------------------------------------------------------------------------------------

    def _observe(self, stream: Stream, measured: Measurement) -> None:
        seen_before = self._is_bad_already(stream)
        self._commit(stream, measured)
        symptoms = self._detect(stream)
        self._tell_symptoms(symptoms)
        if seen_before or len(self.incidents) >= OBSERVED_INCIDENTS_MAX:
            return
        action = Action(measured.record.step, "observe", "observed", "policy observe: the update was applied")
        why = "policy observe: nothing was re-run inside the process; `steadytrain locate` re-runs it in a new one"
        self._freeze(stream, measured, symptoms, action, Finding(None, why))

    def _stop(self, stream: Stream, optimizer: torch.optim.Optimizer, measured: Measurement, *, can_lap: bool) -> None:
        """Refuse the update: write what there is, find the first bad operation, end the process."""
        step = measured.record.step
        measured.record = replace(measured.record, refused=True)
        frozen: tuple[Path, Incident] | None = None
        symptoms: list[Symptom] = []
        with self.guard.part("restoring buffers"):
            self._buffers.restore()
        action = Action(step, "stop", "refused-update", self._reason(measured))
        with self.guard.part("recording the refused step"):
            self._commit(stream, measured)
            symptoms = self._detect(stream)
        with self.guard.part("writing the incident bundle"):
            unfinished = Finding(None, "the search for the first bad operation was cut off")
            frozen = self._freeze(stream, measured, symptoms, action, unfinished)
        with self.guard.part("writing the ledger"):
            self._open_run().add_action(action)

        def finish(finding: Finding) -> RunStopped:
            return self._finish_stop(measured, frozen, finding)

        answer: Finding | Lap = Finding(None, "no search for the first bad operation was made")
        if self._investigator is not None:
            answer = Finding(None, "the re-run failed by itself; see the warning above")
            with self.guard.part("re-running the step"), self._ourselves():
                step, loss_finite = measured.record.step, measured.loss_finite
                scene = self._scene(stream, optimizer, step=step, loss_finite=loss_finite, can_lap=can_lap)
                answer = self._early or self._investigator.investigate(scene)
        if isinstance(answer, Finding):
            raise finish(answer)
        self._begin_lap(answer, stream, finish)

    def _finish_stop(self, measured: Measurement, frozen: tuple[Path, Incident] | None, finding: Finding) -> RunStopped:
        step = measured.record.step
        self.stopped = RunStopped(f"steadytrain refused the update of step {step}")
        if frozen is not None:
            with self.guard.part("adding the located operation to the bundle"):
                update_incident(frozen[0], replace(frozen[1], finding=finding))
        with self.guard.part("telling of the incident"):
            reason = self._reason(measured)
            self._tell(stop_message(step, reason, measured.bad, finding, frozen[0] if frozen else None))
            self.stopped = RunStopped(f"steadytrain refused the update of step {step}: {reason}")
        return self.stopped

    def _freeze(
        self,
        stream: Stream,
        measured: Measurement,
        symptoms: Sequence[Symptom],
        action: Action,
        finding: Finding,
    ) -> tuple[Path, Incident]:
        run = self._open_run()
        step = measured.record.step
        name = f"step-{step:06d}" if stream.name == "main" else f"{stream.name}-step-{step:06d}"
        path = run.path / "incidents" / name
        model = stream.model
        roots = list(self._roots(stream))
        state_note, keep_state = self._state_plan(run.path, roots, stream)
        batches = [*self._ring.steps(), (step, self._micro)]
        incident = Incident(
            run=self.settings.run_name,
            step=step,
            stream=stream.name,
            created=_utc_now(),
            symptoms=tuple(symptoms),
            parameters=measured.bad,
            action=action,
            finding=finding,
            losses=measured.losses,
            loss_origin=self._losses[-1].origin if self._losses else None,
            micro_batches=len(self._micro),
            batch_note=_batch_note(self._micro),
            state_note=state_note,
        )
        before = self._micro[0].random_before if self._micro else None
        random_states = {"before_step": before} if before is not None else {}
        freeze.write_bundle(
            path,
            incident=incident,
            window=stream.history.recent(),
            environment=self._environment(stream, roots),
            batches=batches,
            fetched=self._fetched,
            random_states=random_states,
            diff=self.settings.diff,
        )
        self.incidents.append(path)
        with self.guard.part("recording the incident"):
            run.add_incident(path, step)
        if keep_state:
            kept = False
            with self.guard.part("writing model and optimizer state"):
                freeze.write_state(path, roots, stream.optimizers, model.names if model else {})
                kept = True
            if not kept:
                incident = replace(incident, state_note="not kept: it could not be written")
                with self.guard.part("noting what the bundle lacks"):
                    update_incident(path, incident)
        return path, incident

    def _state_plan(self, folder: Path, roots: Sequence[nn.Module], stream: Stream) -> tuple[str, bool]:
        size, bound = freeze.state_bytes(roots, stream.optimizers), self.settings.state_bytes_max
        if size > bound:
            return f"not kept: {size / 1e6:.1f} MB is over the bound of {bound / 1e6:.1f} MB (--state-mb)", False
        free = freeze.free_bytes(folder)
        if 2 * size > free:
            return f"not kept: {size / 1e6:.1f} MB would fill the disk ({free / 1e6:.1f} MB free)", False
        return f"kept as it was before step {stream.step + 1}: {size / 1e6:.1f} MB", True

    def _environment(self, stream: Stream, roots: Sequence[nn.Module]) -> dict[str, Any]:
        main = sys.modules.get("__main__")
        return {
            **environment.command_facts(),
            "argv": self.settings.description.get("argv", environment.command_facts()["argv"]),
            "script": self.settings.description.get("script"),
            "module": self.settings.description.get("module"),
            "versions": environment.versions(),
            "device": environment.devices(),
            "numerics": environment.numerics(),
            "git": self.settings.description.get("git"),
            "configuration": environment.configuration(roots, vars(main) if main else {}),
            "model": {
                **environment.model_facts(roots, stream.parameters),
                "structure": environment.structure(roots),
            },
            "optimizer": [environment.optimizer_facts(optimizer) for optimizer in stream.optimizers],
            "rank": ranks.rank(),
            "world_size": ranks.world_size(),
        }

    def _scene(
        self, stream: Stream, optimizer: torch.optim.Optimizer, *, step: int, loss_finite: bool, can_lap: bool
    ) -> Scene:
        no_lap = None
        if not can_lap:
            no_lap = "the optimizer runs forward and backward inside its own step"
        elif stream.together:
            no_lap = "other ranks would wait for this one"
        elif len(self.streams) > 1 or len(stream.optimizers) > 1:
            no_lap = "several optimizers take turns"
        elif not type(optimizer).__module__.startswith("torch.optim"):
            no_lap = (
                f"the optimizer {type(optimizer).__qualname__} is not known to leave weights without gradient alone"
            )
        return Scene(
            step=step,
            micro_batches=self._micro,
            losses=self._losses,
            loss_finite=loss_finite,
            parameters=dict(zip(stream.tensor_names, stream.parameters, strict=True)),
            roots=list(self._roots(stream)),
            buffers=self._buffers,
            fetched=self._fetched,
            loop=loop_lines(self._micro[-1].frames, self._losses[-1].frames) if self._micro and self._losses else None,
            alone=not stream.together,
            no_lap=no_lap,
        )

    # -- one more lap ----------------------------------------------------------------------------------------------

    def _begin_lap(self, lap: Lap, stream: Stream, finish: Callable[[Finding], RunStopped]) -> None:
        """Let the script round once more: without gradients the optimizer leaves weights and state alone."""
        for parameter in stream.parameters:
            parameter.grad = None
        self._lap, self._lap_finish = lap, finish
        with self.guard.part("keeping the schedule"):
            self._schedule = Schedule.take(stream.optimizers)
        self._tell("the update was refused; going round once more with the same batch to find the operation")
        self._lap_deadline = threading.Timer(LAP_S_MAX, _interrupt, (self._thread,))
        self._lap_deadline.daemon = True
        self._lap_deadline.start()

    def _rehearse(
        self, rehearsal: Rehearsal, stream: Stream, optimizer: torch.optim.Optimizer, *, can_lap: bool
    ) -> None:
        """In a process that was launched to do a recorded step again: this is the step before it."""
        self._refresh(stream)
        with self._ourselves():
            answer = rehearsal.prepare(self._scene(stream, optimizer, step=0, loss_finite=True, can_lap=can_lap))

        def finish(finding: Finding) -> RunStopped:
            rehearsal.done(finding)
            return RunStopped("the recorded step was done again")

        if isinstance(answer, Finding):
            raise finish(answer)
        self._begin_lap(answer, stream, finish)

    def _finish_lap(self, ask: Callable[[], Finding]) -> RunStopped:
        assert self._lap_finish is not None
        if self._lap_deadline is not None:
            self._lap_deadline.cancel()
        self._lap, finish = None, self._lap_finish
        finding = Finding(None, "the lap failed by itself; see the warning above")
        with self.guard.part("one more lap"):
            finding = ask()
        with self.guard.part("restoring buffers"):
            self._buffers.restore()
        with self.guard.part("restoring the schedule"):
            if self._schedule is not None:
                self._schedule.restore()
        ending = RunStopped("steadytrain refused the update")
        with self.guard.part("handling the incident"):
            ending = finish(finding)
        self.stopped = self.stopped or ending
        return ending

    def abandon_lap(self, why: str) -> None:
        """The script ended, failed or was interrupted during the lap: settle the incident without it."""
        if self._lap is not None:
            lap = self._lap
            late = self._lap_deadline is not None and self._lap_deadline.finished.is_set()
            why = f"it did not come to the optimizer again within {LAP_S_MAX:g} s" if late else why
            self._finish_lap(lambda: lap.abandon(why))

    # -- books -----------------------------------------------------------------------------------------------------

    def close(self, *, ended: str, exit_status: int | None = None) -> None:
        """Take everything out and write how the run ended. Idempotent."""
        if self._closed or os.getpid() != self._process:
            return
        self.abandon_lap("the script ended before it came to the optimizer again")
        self._closed = True
        self._patches.remove()
        for _, remove in self._hooked.values():
            remove()
        self._hooked.clear()
        with self.guard.part("the last look of the detectors"):
            for stream in self.streams:
                if stream.since_detect and self.stopped is None:
                    self._tell_symptoms(self._detect(stream))
                if stream.writer is not None:
                    stream.writer.close()
        if self._run is not None:
            with self.guard.part("closing the run folder"):
                self._run.set_fact("ended", "stopped" if self.stopped else ended)
                self._run.set_fact("exit_status", STOPPED_STATUS if self.stopped else exit_status)
                self._run.set_fact("ended_at", _utc_now())
                self._run.set_fact("notes", self.notes)
                self._run.set_fact("warnings", self.guard.warnings)
                self._run.close()

    def forget(self) -> None:
        """In a forked child: this process does not train for us; touch nothing that the parent owns."""
        self._closed = True

    @property
    def detector_names(self) -> list[str]:
        """The detectors that look, by the name that `explain` knows."""
        return [detector_name(type(detector)) for detector in self._detectors]

    @property
    def memory_bytes(self) -> int:
        """What steadytrain itself holds: the ring of batches and the history."""
        waiting = sum(batch.size_bytes for batch in self._micro)
        return waiting + self._ring.size_bytes + sum(stream.history.size_bytes for stream in self.streams)

    def _mine(self) -> bool:
        return not self._closed and not self._busy and threading.get_ident() == self._thread

    @contextmanager
    def _ourselves(self) -> Iterator[None]:
        """What is called meanwhile is our own doing and not the script's."""
        in_backward, self._in_backward, self._busy = self._in_backward, False, True
        try:
            yield
        finally:
            self._in_backward, self._busy = in_backward, False

    def _dataset_number(self, iterator: Any) -> int:
        """Data sets are told apart by the order in which the script first reads from them."""
        dataset = getattr(iterator, "_dataset", None)
        return self._datasets.setdefault(id(dataset), len(self._datasets))

    def _hook_model(self, model: Model) -> None:
        self._models.append(model)
        for root in model.roots:
            for module in [root] if self._compile_used else root.modules():
                self._hook(module)

    def _hook(self, module: nn.Module) -> None:
        if id(module) not in self._hooked and getattr(module, "_compiled_call_impl", None) is None:
            self._hooked[id(module)] = (module, hook_module(module, self))

    def _unhook_inner_modules(self) -> None:
        """After the first step it is known which modules are only called by others: those are left alone."""
        for key in (self._called_inside - self._called_outermost) & set(self._hooked):
            self._hooked.pop(key)[1]()

    def _refresh(self, stream: Stream) -> None:
        """Parameters may be added to an optimizer mid-run; names are looked up only when they change."""
        signature = tuple(
            id(p) for optimizer in stream.optimizers for group in optimizer.param_groups for p in group["params"]
        )
        if signature == stream.signature:
            return
        stream.parameters = optimizer_parameters(stream.optimizers)
        model = name_parameters(list(self._roots_called.values()), stream.parameters)
        if model.nameless or stream.model is None:
            found = find_model(stream.parameters)
            if found.roots:
                model = found
            if not self._roots_called:
                self._hook_model(model)
        stream.model = model
        stream.tensor_names = tuple(model.names[id(parameter)] for parameter in stream.parameters)
        stream.together = ranks.trains_in_step(model.roots, stream.parameters)
        stream.signature = signature
        if model.nameless and not model.roots:
            self._note("no torch.nn.Module holds the parameters: they are named by their position in the optimizer")
        elif model.nameless:
            self._note(f"{model.nameless} parameters belong to no torch.nn.Module and are named by their position")

    def _roots(self, stream: Stream) -> Iterator[nn.Module]:
        """The modules whose state is the model's: those the script calls, else those that hold the parameters."""
        wanted = {id(parameter) for parameter in stream.parameters}
        tops = stream.model.roots if stream.model else ()
        for root in tops:
            if any(id(parameter) in wanted for parameter in root.parameters()):
                yield root

    def _device(self, stream: Stream) -> torch.device:
        return stream.parameters[0].device if stream.parameters else torch.device("cpu")

    def _open_run(self) -> RunWriter:
        if self._run is None:
            run = RunWriter(self._own_folder(), {**self.settings.description, **self._rank_facts()})
            self._run = run
            run.set_fact("torch", torch.__version__)
            run.set_fact("detectors", self.detector_names)
            self._write_model_facts(run)
        return self._run

    def _own_folder(self) -> Path:
        """The run folder for the first process that trains; a folder under ``ranks`` for the others."""
        rank = ranks.rank()
        if rank:
            return self.settings.run_dir / "ranks" / f"{rank:04d}"
        if (self.settings.run_dir / RUN_FILE).exists():
            return self.settings.run_dir / "ranks" / f"process-{os.getpid()}"
        return self.settings.run_dir

    def _rank_facts(self) -> dict[str, Any]:
        return {"rank": ranks.rank(), "world_size": ranks.world_size(), "pid": os.getpid()}

    def _write_model_facts(self, run: RunWriter) -> None:
        for stream in self.streams[:1]:
            run.set_fact("model", environment.model_facts(list(self._roots(stream)), stream.parameters))
            run.set_fact("optimizer", environment.optimizer_facts(stream.optimizers[0]))

    def _reason(self, measured: Measurement) -> str:
        if not measured.loss_finite:
            bad = next(loss for loss in measured.losses if not math.isfinite(loss))
            return f"the loss is {_kind(bad)}"
        if measured.bad:
            first = measured.bad[0]
            more = f" and {len(measured.bad) - 1} more" if len(measured.bad) > 1 else ""
            return f"the gradient of {first.name}{more} holds {_contents(first)}"
        return "another rank's loss or gradient is not finite"

    def _is_bad_already(self, stream: Stream) -> bool:
        """Whether the step before was bad as well: a run that stays NaN is one incident, not one a step."""
        window = stream.history.recent()
        if not len(window):
            return False
        loss_bad = bool(window.present["loss"][-1]) and not math.isfinite(window.signals["loss"][-1])
        return loss_bad or not bool(np.isfinite(window.gradient_norms[-1]).all())

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            self._tell(f"note: {note}")

    def _tell_hand_written(self) -> None:
        if not self._told_hand_written:
            self._told_hand_written = True
            self._note(
                f"{self.backward_calls} backward passes and no torch.optim optimizer step: the weights are updated by "
                "hand, so nothing is recorded or guarded"
            )


def _by_weight(symptom: Symptom) -> tuple[int, int, int]:
    """Gravest first, then the newest, then in the order in which a step computes the signals."""
    order = (
        list(SIGNALS).index(symptom.signals[0]) if symptom.signals and symptom.signals[0] in SIGNALS else len(SIGNALS)
    )
    return -SEVERITIES.index(symptom.severity), -symptom.last_step, order


def _kind(value: float) -> str:
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"


def _contents(tensor: BadTensor) -> str:
    parts = [f"{count} {word}" for count, word in ((tensor.nan, "NaN"), (tensor.inf, "Inf")) if count]
    return f"{' and '.join(parts)} of {tensor.count} values"


def _batch_note(batches: Sequence[MicroBatch]) -> str:
    if not batches:
        return "not kept: no call of a module with gradients was seen in this step"
    changed = sum(batch.changed_since() for batch in batches)
    if changed:
        return f"{len(batches)} kept, but {changed} changed in place after use: not what the step saw"
    return f"{len(batches)} kept as the model got them"


def _scalar_outputs(output: Any) -> dict[int, tuple[Any, ...]]:
    """Graph node of each one-element output, and its place: what tells whether the model returns the loss itself."""
    found: dict[int, tuple[Any, ...]] = {}

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, Tensor):
            if value.numel() == 1 and value.grad_fn is not None:
                found[int(value.grad_fn._sequence_nr())] = path
        elif isinstance(value, dict):
            for key, entry in value.items():
                walk(entry, (*path, key))
        elif isinstance(value, (list, tuple)):
            for key, entry in enumerate(value):
                walk(entry, (*path, key))

    walk(output, ())
    return found


def _gradients(parameters: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    found = []
    for position, parameter in enumerate(parameters):
        if parameter.grad is not None and (values := dense_values(parameter.grad)) is not None:
            found.append((position, values))
    return found


def _dense(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [values for parameter in parameters if (values := dense_values(parameter)) is not None]


def _learning_rate(optimizer: torch.optim.Optimizer) -> float | None:
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(rate, Tensor):
        return float(rate) if rate.device.type == "cpu" else None
    return float(rate) if isinstance(rate, (int, float)) else None


def _as_tensors(roots: Any) -> list[Tensor]:
    found = roots if isinstance(roots, (tuple, list)) else [roots]
    return [root for root in found if isinstance(root, Tensor)]


def _interrupt(thread: int) -> None:
    """End a lap that does not come round: raise :class:`LapTooLong` in the training thread."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LapTooLong))


def _utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
