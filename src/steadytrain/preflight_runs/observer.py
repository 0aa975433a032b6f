"""Follows the first steps of a script on the training thread and keeps what checks need.

The weights are copied before the first forward, and each micro-batch at the start of its backward: the function that
computed the loss still runs then, with the batch in its variables. Nothing is changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.clipping import Clipping
from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.loss import LossTerm, unscaled
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.script_frames import LoopLines, loop_lines, running_frames, user_frames
from steadytrain.checks.subject.model_check import Batch, changed_tree, tensors_of
from steadytrain.preflight_runs.carried_gradients import CarriedGradients
from steadytrain.preflight_runs.loss_again import LinesWay, ModelWay, StepWay, Way, names_in, values_of_call
from steadytrain.preflight_runs.model_copies import Values, tensors_of_modules
from steadytrain.preflight_runs.step_facts import StepFacts, optimizer_of
from steadytrain.tracing.line_rerun import CannotRunAgainError, Lines, compile_lines
from steadytrain.tracing.loss_places import loss_places

MICRO_BATCHES_MAX = 32
BATCH_BYTES_MAX = 1 << 30
RAW_MAX = 64
FRAMES_MAX = 64
VARIABLES_MAX = 4096
ONE_STEP_TIMES = 3.0
"""A second step, which shows whether gradients were cleared, may end so many times later than others."""


@dataclass(eq=False)
class Observed:
    """The script's first steps so far. ``dataset`` is the number of the data set that was read first."""

    stream: Stream
    batches: list[Batch]
    why_no_way: str
    initial: Values
    steps: list[StepFacts]
    modules: list[nn.Module]
    owner: Any
    scalers: Sequence[Any]
    clip_norm: float | None
    objects: list[Any]
    variables: Mapping[str, Any]
    accumulation: int
    dataset: int | None


@dataclass(eq=False)
class _Backward:
    """One backward of the current step: the calls before it, and the lines that led to it."""

    calls: list[MicroBatch]
    loop: LoopLines | None
    lines: Lines | None
    variables: dict[str, Any]
    why_no_lines: str
    handed: float | None
    owner: tuple[Any, dict[str, Any]] | None


@dataclass(eq=False)
class _Forming:
    calls: list[MicroBatch] = field(default_factory=list)
    backwards: list[_Backward] = field(default_factory=list)
    owner: tuple[Any, dict[str, Any]] | None = None


class Observer(StepObserver):
    """Calls ``done`` once, at the gate of step ``steps`` or of the first one after ``seconds``.

    Args:
        done: gets the observations, on the training thread before the update of that step.
        replays: see :class:`StepObserver`.
    """

    def __init__(self, *, steps: int, seconds: float, done: Callable[[Observed], None], replays: bool) -> None:
        self.replays = replays
        self.observed: Observed | None = None
        self._steps = steps
        self._seconds = seconds
        self._done = done
        self._over = False
        self._began: float | None = None
        self._forming = _Forming()
        self._initial: dict[int, tuple[Tensor, Tensor]] = {}
        self._modules: dict[int, nn.Module] = {}
        self._batches: list[Batch] = []
        self._raw: list[tuple[int, Any]] = []
        self._facts: list[StepFacts] = []
        self._bytes = 0
        self._objects: dict[int, Any] = {}
        self._variables: Mapping[str, Any] = {}
        self._why = ""
        self._carried = CarriedGradients()

    # -- events of the watcher -------------------------------------------------------------------------------------

    def fetched(self, dataset: int, batch: Any) -> Any:
        if not self._over and len(self._raw) < RAW_MAX:
            self._raw.append((dataset, batch))
        return MISSING

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._over:
            return None
        self._began = self._began if self._began is not None else time.monotonic()
        if id(module) not in self._modules:
            self._modules[id(module)] = module
            self._keep_initial([module])
        self._forming.calls.append(call)
        if self._forming.owner is None:
            self._forming.owner = _training_step()
        return None

    def backward_begins(self) -> None:
        if not self._over:
            self._carried.backward_begins()

    def loss_seen(self, root: Tensor) -> None:
        if self._over or len(self._batches) + len(self._forming.backwards) >= MICRO_BATCHES_MAX:
            return
        forming = self._forming
        taken = sum(len(backward.calls) for backward in forming.backwards)
        calls, frames = forming.calls[taken:], user_frames()
        loop = loop_lines(calls[-1].frames, frames) if calls else None
        handed: float | None = None
        lines, variables, why = None, {}, "no model call preceded backward"
        if calls:
            why = "no running function contains both the model call and backward"
        if loop is not None:
            try:
                lines, why = compile_lines(loop), ""
                variables = _variables(loop, lines)
                handed = _number(loop.frame.f_locals.get(lines.root)) if lines.root is not None else None
            except CannotRunAgainError as refusal:
                why = str(refusal)
            self._variables = self._variables or _named_objects(loop.frame)
        forming.backwards.append(_Backward(calls, loop, lines, variables, why, handed, forming.owner))
        forming.owner = None

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if self._over:
            return
        forming, self._forming = self._forming, _Forming()
        self._keep_initial(list(stream.roots()))
        self._take(forming, stream, seen, measured)
        self.observed = self._summary(stream, seen)
        seconds = self._seconds if len(self._facts) > 1 else ONE_STEP_TIMES * self._seconds
        late = self._began is not None and time.monotonic() - self._began > seconds
        if measured.record.step >= self._steps or late:
            self.finish()

    def finish(self) -> bool:
        """Ends the observation. Returns whether the script reached a step."""
        if not self._over:
            self._over = True
            if self.observed is not None:
                self._done(self.observed)
        return self.observed is not None

    # -- results ---------------------------------------------------------------------------------------------------

    def _keep_initial(self, modules: Sequence[nn.Module]) -> None:
        new = [tensor for tensor in tensors_of_modules(modules) if id(tensor) not in self._initial]
        values = Values.take(new)
        for tensor, copy in zip(values.tensors, values.copies, strict=True):
            self._initial[id(tensor)] = (tensor, copy)

    def _take(self, forming: _Forming, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """Adds one batch for each backward of the step."""
        losses = list(seen.losses) if len(seen.losses) == len(forming.backwards) else []
        scales = {float(s.get_scale()) for s in self.scalers.values() if s.is_enabled()}
        step = measured.record.step
        for number, backward in enumerate(forming.backwards):
            term = losses[number] if losses else None
            if not backward.calls or self._bytes > BATCH_BYTES_MAX:
                continue
            factor = _factor(term, backward.handed, scales, len(forming.backwards)) if term is not None else 1.0
            raw = self._raw[len(self._batches)][1] if len(self._raw) > len(self._batches) else None
            batch = _batch(backward, term, factor, step, raw)
            if batch is None:
                self._why = self._why or backward.why_no_lines
                continue
            self._bytes += sum(tensor.nbytes for tensor in tensors_of(dict(batch.values)))
            self._batches.append(batch)
            for thing in batch.way.objects() if batch.way is not None else ():
                self._objects[id(thing)] = thing
        record = measured.record
        norm = float(sum(n * n for n in record.gradient_norms if n == n and n >= 0.0)) ** 0.5
        loss, rate = record.scalars.get("loss"), record.scalars.get("learning_rate")
        clipping = seen.clipping
        self._facts.append(
            StepFacts(
                step,
                loss,
                rate,
                norm,
                len(forming.backwards),
                _applied_norm(stream),
                clipping.clips,
                clipping.limit,
                _norm_at_clipping(clipping),
                self._carried.gate(stream),
                stream.name,
                optimizer_of(stream),
            )
        )

    def _summary(self, stream: Stream, seen: StepInProgress) -> Observed:
        tensors, copies = zip(*self._initial.values(), strict=True) if self._initial else ((), ())
        way = next((batch.way for batch in self._batches if batch.way is not None), None)
        return Observed(
            stream=stream,
            batches=self._batches,
            why_no_way=self._why,
            initial=Values(list(tensors), list(copies)),
            steps=self._facts,
            modules=list(self._modules.values()),
            owner=getattr(way, "owner", None) or _trainer(self._variables),
            scalers=[scaler for scaler in self.scalers.values() if scaler.is_enabled()],
            clip_norm=seen.clipping.limit,
            objects=list(self._objects.values()),
            variables=self._variables,
            accumulation=max((facts.micro_batches for facts in self._facts), default=1),
            dataset=self._raw[0][0] if self._raw else None,
        )


def _batch(backward: _Backward, term: LossTerm | None, factor: float, step: int, raw: Any) -> Batch | None:
    """The batch of one backward with the best way to recompute its loss; None if there is neither a way nor a
    tensor."""
    calls = backward.calls
    call, modules = calls[-1], [one.module for one in calls]
    places = loss_places(calls, [term]) if term is not None else None
    rows = call.samples or None
    if places is not None and len(calls) == 1:
        values = values_of_call(call.args, call.kwargs)
        way: Way = ModelWay(modules, call.module, call.autocast, places[0][2])
        return Batch(step, values, call.args, call.kwargs, rows, raw, way)
    if backward.owner is not None:
        owner, given = backward.owner
        return Batch(
            step, given, call.args, call.kwargs, rows, raw, StepWay(modules, owner, tuple(given), call.autocast)
        )
    if backward.lines is not None and backward.loop is not None:
        return _batch_of_lines(backward, backward.lines, backward.loop, factor, step, raw)
    if any(tensors_of([list(call.args), dict(call.kwargs)])):
        return Batch(step, values_of_call(call.args, call.kwargs), call.args, call.kwargs, rows, raw, None)
    return None


def _batch_of_lines(backward: _Backward, lines: Lines, loop: LoopLines, factor: float, step: int, raw: Any) -> Batch:
    call = backward.calls[-1]
    modules = [one.module for one in backward.calls]
    given = {name: value for name, value in backward.variables.items() if _is_data(value)}
    fixed = {name: value for name, value in backward.variables.items() if name not in given}
    place = f"{loop.frame.f_code.co_filename.rsplit('/', 1)[-1]}:{loop.first_line}-{loop.last_line}"
    fed = not given
    if fed and len(backward.calls) > 1:
        return Batch(step, values_of_call(call.args, call.kwargs), call.args, call.kwargs, call.samples or None, raw)
    way = LinesWay(modules, lines, {**fixed, **given} if fed else fixed, call.autocast, factor, place, fed)
    if fed:
        given = values_of_call(call.args, call.kwargs)
        return Batch(step, given, call.args, call.kwargs, call.samples or None, raw, way)
    # Both places get the same tensors, so that a change reaches both.
    own = tensors_of(given)

    def same(tensor: Tensor) -> Tensor:
        return next(
            (t for t in own if t.shape == tensor.shape and t.dtype == tensor.dtype and _equal(t, tensor)), tensor
        )

    args, kwargs = changed_tree(call.args, same), changed_tree(dict(call.kwargs), same)
    return Batch(step, given, args, kwargs, call.samples or None, raw, way)


def _variables(loop: LoopLines, lines: Lines) -> dict[str, Any]:
    """The variables that the lines look up. The batch's tensors are copied, because the script may overwrite them."""
    everything = {**loop.frame.f_globals, **loop.frame.f_locals, **lines.arguments}
    copies: dict[int, tuple[Tensor, Tensor]] = {}

    def copied(tensor: Tensor) -> Tensor:
        if tensor.requires_grad:
            return tensor
        if id(tensor) not in copies:
            copies[id(tensor)] = (tensor, tensor.clone())
        return copies[id(tensor)][1]

    names = names_in(lines.code) | {"__builtins__", "__name__"}
    found = {name: everything[name] for name in names if name in everything}
    return {name: changed_tree(value, copied) if _is_data(value) else value for name, value in found.items()}


def _is_data(value: Any) -> bool:
    """Whether the value contains tensors, none of them trainable."""
    if isinstance(value, (nn.Module, torch.optim.Optimizer)):
        return False
    tensors = tensors_of(value)
    return bool(tensors) and not any(tensor.requires_grad for tensor in tensors)


def _named_objects(frame: FrameType) -> Mapping[str, Any]:
    """The script's variables, from the innermost function out, where a tokenizer may be."""
    found: dict[str, Any] = {}
    here: FrameType | None = frame
    for _ in range(FRAMES_MAX):
        if here is None or len(found) > VARIABLES_MAX:
            break
        for name, value in (*here.f_locals.items(), *here.f_globals.items()):
            found.setdefault(name, value)
        here = here.f_back
    return MappingProxyType(found)


def _training_step() -> tuple[Any, dict[str, Any]] | None:
    """The LightningModule with a running ``training_step``, and its arguments."""
    for frame in running_frames():
        if frame.f_code.co_name != "training_step":
            continue
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        owner = frame.f_locals.get(names[0]) if names else None
        if any(base.__name__ == "LightningModule" for base in type(owner).__mro__):
            if not getattr(owner, "automatic_optimization", True):
                return None  # it calls backward and the optimizers itself
            return owner, {name: frame.f_locals[name] for name in names[1:] if name in frame.f_locals}
    return None


def _trainer(variables: Mapping[str, Any]) -> Any:
    owner = variables.get("self")
    return owner if any(base.__name__ == "Trainer" for base in type(owner).__mro__) else None


def _factor(term: LossTerm, handed: float | None, scales: set[float], backward_calls: int) -> float:
    """The factor that turns the value of the script's lines into the loss, without scaling and accumulation.

    A trainer may still scale the value that the script passes to its backward (``handed``).
    """
    factors = [(float(factor.value), factor.power) for factor in term.factors]
    factor = unscaled(1.0, factors, scales=scales, backward_calls=backward_calls)
    return factor * float(term.root) / handed if handed else factor


def _number(value: Any) -> float | None:
    """A loss as a number; None for other values."""
    return float(value.detach()) if isinstance(value, Tensor) and value.numel() == 1 else None


def _norm_at_clipping(clipping: Clipping) -> float | None:
    """The gradient norm at clipping; None if there were no gradients."""
    if clipping.total is not None:
        return float(clipping.total)
    norms = [float(norm) for norm in clipping.norms.values()]
    return math.sqrt(sum(norm * norm for norm in norms)) if norms else None


def _applied_norm(stream: Stream) -> float | None:
    """The norm of the gradients that the optimizer gets; None if the optimizer unscales them itself."""
    if any(getattr(optimizer, "grad_scale", None) is not None for optimizer in stream.optimizers):
        return None
    gradients = [p.grad for p in stream.parameters if p.grad is not None and p.grad.layout == torch.strided]
    squares = sum(float(gradient.detach().double().square().sum()) for gradient in gradients)
    return float(squares**0.5)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and torch.equal(one, other)
