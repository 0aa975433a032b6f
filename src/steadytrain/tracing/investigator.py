"""Reruns a failing step at the incident and finds the first bad operation.

There are three ways, tried in order of their side effects:

1. **The model alone.** If the model returns the loss, each recorded micro-batch runs through it again, with backward
  from that loss. Only the model's code runs.
2. **The script's own lines.** If the script computes the loss and its function is still running, the statements from
  the model call to backward run again on a copy of their variables.
3. **One loop rerun.** Otherwise the script goes through its own loop once more, with the recorded batch and random
  state, under the tracer. The update was refused before.

A rerun that comes out finite is reported as such: it is a finding, not a failure.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.hooks.model_discovery import module_names
from steadytrain.capture.hooks.script_errors import is_of_script
from steadytrain.capture.incident.context import IncidentContext, Investigator, LoopRerun
from steadytrain.capture.step.input_recorder import AutocastState, MicroBatch, RandomState, tensors_in
from steadytrain.capture.step.loss import LossTerm
from steadytrain.capture.step.script_frames import LoopLines
from steadytrain.core.incident import COMPUTED, UNKNOWN_OWNER, Finding
from steadytrain.core.torch_private import CALL, COMPILED_CALL, KEEP_VERSION, ORIGINAL_MODULE
from steadytrain.tracing.alone_among_ranks import has_whole_model, without_others
from steadytrain.tracing.anomaly_mode import without_stacks_printed
from steadytrain.tracing.gradient_hooks import without_hooks
from steadytrain.tracing.input_names import named_tensors
from steadytrain.tracing.input_values import is_bad, nan_in_data, own_leaves, same_inputs
from steadytrain.tracing.line_rerun import CannotRunAgainError, compile_lines, run_lines
from steadytrain.tracing.loss_places import loss_places
from steadytrain.tracing.tracer import NOT_REPRODUCED, Observer, OperationTracer
from steadytrain.tracing.value_origins import Record

MODEL_RERUN = "the model was run again on the recorded batch, in the same process"
LINES_RERUN = "the script's lines from the model's call to backward were run again, in the same process"
LOOP_RERUN = "the script ran its own loop once more with the recorded batch, in the same process"

CANNOT = "the script's lines cannot be run again: "
_COLLECTIVE_WRAPPERS = ("FullyShardedDataParallel", "DeepSpeedEngine")


class StepInvestigator(Investigator):
    """Reruns the model if that is enough, and otherwise asks for a loop rerun."""

    def look_at_loss(self, incident_context: IncidentContext) -> Finding | None:
        if rerun_obstacle(incident_context) is not None or not has_whole_model(incident_context):
            return None
        roots = loss_places(incident_context.micro_batches, incident_context.losses)
        if roots is not None:
            finding = rerun_model(incident_context, roots, _no_backward)
        elif incident_context.loop is not None:
            finding = rerun_lines(incident_context, incident_context.loop, _no_backward)
        else:
            return None
        return finding if is_answer(finding) else None

    def investigate(self, incident_context: IncidentContext) -> Finding | LoopRerun:
        try:
            return self._investigate(incident_context)
        except CannotRunAgainError as refusal:
            return _with_inputs(incident_context, f"{CANNOT}{refusal}")

    def _investigate(self, incident_context: IncidentContext) -> Finding | LoopRerun:
        roots = loss_places(incident_context.micro_batches, incident_context.losses)
        finding = None
        obstacle = rerun_obstacle(incident_context)
        if obstacle is None and roots is not None:
            finding = rerun_model(incident_context, roots, Tensor.backward)
            if is_answer(finding):
                return finding
        if incident_context.loop is not None and obstacle is None and has_whole_model(incident_context):
            finding = rerun_lines(incident_context, incident_context.loop, Tensor.backward)
            if is_answer(finding):
                return finding
        if incident_context.no_lap is None:
            return ScriptLoopRerun(incident_context)
        if obstacle is None and roots is None:
            finding = rerun_forward(incident_context)
            if is_answer(finding):
                return finding
            finding = Finding(
                None,
                "the model's outputs came out finite when it was run again; what comes after them (the loss code, "
                f"backward) could not be run again: {incident_context.no_lap}",
            )
        return finding or _with_inputs(incident_context, _no_way(incident_context, obstacle))


class ScriptLoopRerun(LoopRerun):
    """Traces one turn of the script's own loop, from the model call to the optimizer.

    ``from_batch``: if a model call got a bad input, also what the script did before it, from the loop's next turn on.
    """

    def __init__(
        self,
        incident_context: IncidentContext,
        *,
        method: str = LOOP_RERUN,
        observer: Observer | None = None,
        from_batch: bool = False,
    ) -> None:
        self._incident_context = incident_context
        self._method = method
        self._observer = observer
        self._calls = deque(incident_context.micro_batches)
        self._feed: dict[int, deque[Any]] = {}
        for dataset, batch in incident_context.fetched:
            self._feed.setdefault(dataset, deque()).append(batch)
        self._tracer: OperationTracer | None = None
        self._tracing = False
        self._other_inputs = False
        self._restore_random()
        calls = incident_context.micro_batches
        self._from_batch = from_batch and any(map(is_bad, ((call.args, call.kwargs) for call in calls)))
        if not calls or self._from_batch:
            self._start()  # no module call marks the start, so tracing starts here

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if not self._calls:
            return None
        call = self._calls.popleft()
        call.random.restore()
        tracer = self._tracer or self._start()
        tracer.enter_module(plain_module(module))
        if call.changed_since():
            return None
        same = same_inputs((args, kwargs), (call.args, call.kwargs))
        self._other_inputs |= not same
        if same and self._from_batch:
            tracer.note_inputs(named_tensors(args, kwargs))
            return args, kwargs
        if same and _computed((args, kwargs)):
            _note_inputs(tracer, args, kwargs)
            return None
        given: tuple[Any, Any] = own_leaves((call.args, call.kwargs))
        _note_inputs(tracer, *given, recorded=call)
        return given

    def other_forward_ends(self) -> None:
        self._restore_random()

    def backward_begins(self, root: Tensor) -> None:
        if self._tracer is not None:
            self._tracer.mark_loss(root)

    def fetch(self, dataset: int) -> Any:
        waiting = self._feed.get(dataset)
        return waiting.popleft() if waiting else MISSING

    def gate(self) -> Finding:
        self.end()
        if self._tracer is None:
            return Finding(None, "the script reached the optimizer again without calling the model: nothing was re-run")
        finding = self._tracer.finding()
        if finding.located is None and self._other_inputs:
            return replace(
                finding,
                why=f"{finding.why} (the loop itself fetched another batch than the recorded one; the model got the "
                "recorded inputs, the loss code may have had other targets)",
            )
        return finding

    def culprit(self) -> Record | None:
        """The record that the tracer blames, after the loop rerun."""
        return self._tracer.culprit() if self._tracer is not None else None

    def abandon(self, why: str) -> Finding:
        self.end()
        return Finding(None, f"the step ran once more to find it, but {why}")

    def _start(self) -> OperationTracer:
        self._tracer = _tracer(self._incident_context, self._method, self._observer)
        self._tracing = True
        return self._tracer.__enter__()

    def end(self) -> None:
        if self._tracer is not None and self._tracing:
            self._tracing = False
            self._tracer.__exit__(None, None, None)

    def _restore_random(self) -> None:
        before = self._incident_context.micro_batches[0].random_before if self._incident_context.micro_batches else None
        if before is not None:
            before.restore()


def is_answer(finding: Finding) -> bool:
    """Whether the rerun reproduced the fault: it names an operation or a non-finite input of the script."""
    return finding.located is not None or not finding.why.startswith((NOT_REPRODUCED, CANNOT, COMPUTED))


def rerun_obstacle(incident_context: IncidentContext) -> str | None:
    """Why the model cannot run again alone; None if it can."""
    if not incident_context.micro_batches:
        return "no call of a model with gradients was seen in this step"
    if any(batch.changed_since() for batch in incident_context.micro_batches):
        return "the script changed its input tensors in place after the model had used them"
    if any(type(root).__name__ in _COLLECTIVE_WRAPPERS for root in incident_context.roots):
        return "the model is sharded over ranks, and one rank cannot run it alone"
    return None


def rerun_model(
    incident_context: IncidentContext,
    roots: Sequence[tuple[MicroBatch, LossTerm, tuple[Any, ...]]],
    then: Callable[[Tensor], None],
) -> Finding:
    """Reruns the model on every micro-batch under the tracer and calls ``then`` (backward) on each loss."""
    tracer = _tracer(incident_context, MODEL_RERUN)
    with untouched(incident_context), torch.enable_grad(), tracer, without_others(incident_context):
        for batch, term, place in roots:
            _note_inputs(tracer, batch.args, batch.kwargs)
            loss = _pick(call_again(batch), place)
            for factor in reversed(term.factors):
                loss = loss * factor.value if factor.power == 1 else loss / factor.value
            tracer.mark_loss(loss)
            then(loss)
        return tracer.finding()


def rerun_lines(incident_context: IncidentContext, loop: LoopLines, then: Callable[[Tensor], None]) -> Finding:
    """Reruns the script's lines for the last micro-batch with recorded model inputs, then calls ``then`` on the
    loss. If they read a NaN that a line further up had made, they run once more from there on."""
    finding = _rerun_lines(incident_context, loop, then)
    if not finding.why.startswith(f"{UNKNOWN_OWNER} held NaN"):
        return finding
    further = _rerun_lines(incident_context, loop, then, above_nan=True)
    return finding if further.located is None else further


def _rerun_lines(
    incident_context: IncidentContext, loop: LoopLines, then: Callable[[Tensor], None], *, above_nan: bool = False
) -> Finding:
    batch = incident_context.micro_batches[-1]
    tracer = _tracer(incident_context, LINES_RERUN)
    fed = []

    def feed(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        fed.append(True)
        batch.random.restore()
        if same_inputs((args, kwargs), (batch.args, batch.kwargs)) and _computed((args, kwargs)):
            _note_inputs(tracer, args, kwargs)
            return args, kwargs
        given: tuple[Any, Any] = own_leaves((batch.args, batch.kwargs))
        _note_inputs(tracer, *given, recorded=batch)
        return given

    try:
        lines = compile_lines(loop, above_nan=above_nan)
        # The lines may have run inside an autocast that is closed by now. If they open their own, use that one.
        context = contextlib.nullcontext() if lines.own_context else autocast_as(batch.autocast)
        with untouched(incident_context), torch.enable_grad(), context:
            if lines.from_further_up and batch.random_before is not None:
                batch.random_before.restore()
            handle = batch.module.register_forward_pre_hook(feed, with_kwargs=True)
            try:
                with tracer, without_others(incident_context):
                    loss = run_lines(loop, lines)
                    if not fed:  # the lines created another model, and the findings would concern that one
                        raise CannotRunAgainError("they did not reach the recorded model")
                    if above_nan and len(fed) > 1:  # which of its calls got the recorded batch is not known
                        raise CannotRunAgainError("they call the recorded model several times")
                    tracer.mark_loss(loss)
                    with without_stacks_printed():
                        then(loss)
                return tracer.finding()
            finally:
                handle.remove()
    except CannotRunAgainError as refusal:
        return Finding(None, f"{CANNOT}{refusal}")
    except Exception as error:  # the script's code may rely on state that a second run does not have
        if is_of_script(error):
            raise
        return Finding(None, f"{CANNOT}{type(error).__name__}: {error}")


def rerun_forward(incident_context: IncidentContext) -> Finding:
    """Reruns only the forward up to the model's outputs, if the loss code cannot run again."""
    tracer = _tracer(incident_context, MODEL_RERUN + " (forward only)")
    with untouched(incident_context), torch.enable_grad(), tracer, without_others(incident_context):
        for batch in incident_context.micro_batches:
            _note_inputs(tracer, batch.args, batch.kwargs)
            for output in tensors_in(call_again(batch)):
                if output.is_floating_point() and bool(torch.isnan(output.detach()).any()):
                    tracer.mark_loss(output)
        return tracer.finding()


def call_again(batch: MicroBatch) -> Any:
    """Calls the module with its recorded inputs, random state and autocast."""
    batch.random.restore()
    module = plain_module(batch.module)
    # Bypass the compiled code of an in-place compiled module: a dispatch mode cannot trace it.
    call = CALL.of(module) if COMPILED_CALL.on(module) is not None else module
    with autocast_as(batch.autocast):
        return call(*batch.args, **batch.kwargs)


@contextlib.contextmanager
def autocast_as(state: AutocastState) -> Iterator[None]:
    """Sets autocast exactly as recorded, whatever is active outside."""
    with contextlib.ExitStack() as stack:
        for device, dtype in state.enabled:
            stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=state.cache))
        for device in state.devices:
            if device not in dict(state.enabled) and torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


@contextlib.contextmanager
def untouched(incident_context: IncidentContext) -> Iterator[None]:
    """Restores gradients, random state and buffers. Inside: buffers as the step began, no hook on a whole gradient."""
    random = RandomState.take()
    buffers = incident_context.buffers.as_now()
    called = (parameter for batch in incident_context.micro_batches for parameter in batch.module.parameters())
    parameters = {id(parameter): parameter for parameter in [*incident_context.parameters.values(), *called]}.values()
    gradients = [(parameter, parameter.grad) for parameter in parameters]
    with contextlib.ExitStack() as versions, without_hooks(parameters):
        # The script's graph may have saved a buffer for a later backward, so values and versions must stay.
        for kept in buffers:
            versions.enter_context(KEEP_VERSION(kept.buffer))
        try:
            for parameter, _ in gradients:
                parameter.grad = None
            incident_context.buffers.restore()
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            for kept in buffers:
                kept.restore()
            random.restore()


def _no_backward(loss: Tensor) -> None:
    """The loss itself is non-finite, so the bad operation has run already."""


def _tracer(incident_context: IncidentContext, method: str, observer: Observer | None = None) -> OperationTracer:
    return OperationTracer(
        modules=module_names(plain_module(root) for root in incident_context.roots),
        parameters=incident_context.parameters,
        method=method,
        observer=observer,
    )


def plain_module(module: nn.Module) -> nn.Module:
    """The model inside wrappers for compilation or gradient reduction."""
    while type(module).__name__ in ("OptimizedModule", "DistributedDataParallel", "DataParallel"):
        inner = ORIGINAL_MODULE.of(module) if type(module).__name__ == "OptimizedModule" else module.module
        assert isinstance(inner, nn.Module)
        module = inner
    return module


def _pick(output: Any, place: tuple[Any, ...]) -> Tensor:
    for key in place:
        output = output[key]
    assert isinstance(output, Tensor)
    return output


def _computed(given: Any) -> bool:
    """Whether the script computed an input by an earlier call of a model (a decoder's, by the encoder). Its own tensor
    knows where a bad value comes from; the recorded one would hide it."""
    return any(tensor.grad_fn is not None for tensor in tensors_in(given))


def _note_inputs(tracer: OperationTracer, args: Any, kwargs: Any, recorded: MicroBatch | None = None) -> None:
    named = named_tensors(args, kwargs)
    known = named if recorded is None else named_tensors(recorded.args, recorded.kwargs)
    later = {name: one for name, one in named.items() if name in known and known[name].grad_fn is not None}
    tracer.note_sources({name: one for name, one in named.items() if name not in later})
    tracer.note_sources(later, owner=COMPUTED, traced=True)


def _with_inputs(incident_context: IncidentContext, why: str) -> Finding:
    """No operation is known, for the reason ``why``; what the model got may have been bad already."""
    given = nan_in_data(incident_context.micro_batches)
    return Finding(None, f"{given} ({why})" if given else why)


def _no_way(incident_context: IncidentContext, obstacle: str | None) -> str:
    reasons = [reason for reason in (obstacle, incident_context.no_lap) if reason]
    return "not searched: " + "; ".join(reasons) if reasons else "not searched"
