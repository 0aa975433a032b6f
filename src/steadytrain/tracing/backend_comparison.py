"""Compares the failing step between eager, aot_eager and the script's own backend, from the same state.

Each backend reruns the step: the model alone if it returns its loss, else the script's lines. Then every compiled graph
of the step runs alone on its recorded inputs, and its outputs and gradients are compared with eager. The tolerance is
ten times eager's own distance from float64. A value that is non-finite with a backend and finite in eager is called
compiled-only; ``graph_search`` then looks for the operation.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.incident.context import IncidentContext
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.loss import LossTerm
from steadytrain.core.incident import Finding, Located
from steadytrain.storage.step_look import BackendRow, Backends
from steadytrain.tracing.compiled_graphs import AOT_EAGER, EAGER, INDUCTOR, GraphCall, by_backend, is_used
from steadytrain.tracing.graph_search import (
    Apart,
    Outcome,
    apart,
    first_operation,
    in_float64,
    module_of,
    name_of,
    outcome_of,
)
from steadytrain.tracing.investigator import autocast_as, untouched
from steadytrain.tracing.line_rerun import CannotRunAgainError, compile_lines, run_lines
from steadytrain.tracing.loss_places import loss_places
from steadytrain.tracing.places import code_at

BACKENDS_S_MAX = 240.0
"""Time limit in seconds, after which the search for the operation stops. A compilation takes 5 to 60 s on a CPU."""

METHOD = "compiled graphs were run alone, cut shorter and compared with eager, on the inputs of the step"


@dataclass(frozen=True)
class _Step:
    """The step with one backend."""

    loss: float | None
    gradient_norm: float | None
    bad: tuple[str, ...]
    failed: str | None

    @property
    def finite(self) -> bool:
        return not self.bad and (self.loss is None or math.isfinite(self.loss))


def compare_backends(incident_context: IncidentContext) -> tuple[Backends | None, Finding | None]:
    """The table, and the finding if an operation is to blame. Both are None if the step runs no compiled code."""
    if not is_used():
        return None, None
    deadline = time.monotonic() + BACKENDS_S_MAX
    calls: list[GraphCall] = []
    steps: dict[str, _Step] = {}
    with by_backend(EAGER, calls):
        steps[EAGER] = _do(incident_context)
    if not calls:
        return None, None
    used = [call.graph.backend for call in calls]
    own = INDUCTOR if INDUCTOR in used else used[-1]
    others = list(dict.fromkeys([AOT_EAGER, own]))
    for backend in others:
        with by_backend(backend):
            steps[backend] = _do(incident_context)
    names = _names(incident_context)
    found = {backend: _first_apart(calls, backend, names) for backend in others}
    rows = [_row(EAGER, steps[EAGER], None), *(_row(backend, steps[backend], found[backend]) for backend in others)]
    to_blame = next((backend for backend in others if found[backend] is not None or _worse(steps, backend)), None)
    compiled_only = to_blame is not None and _worse(steps, to_blame)
    finding = None
    place = found[to_blame] if to_blame is not None else None
    if compiled_only and place is not None and to_blame is not None:
        finding = _search(place, to_blame, steps[to_blame], deadline)
    why = _why(to_blame, steps, place, compiled_only=compiled_only)
    notes = [] if steps[EAGER].loss is not None else ["the loss is computed outside the code that could be rerun"]
    return Backends(tuple(rows), to_blame, compiled_only, why, tuple(notes)), finding


@dataclass(frozen=True)
class _Place:
    """The graph call with the first difference, and that difference."""

    call: GraphCall
    apart: Apart
    name: str


def _do(incident_context: IncidentContext) -> _Step:
    """Reruns the step with the current backend and measures losses and gradients."""
    losses: list[float] = []
    try:
        with untouched(incident_context), torch.enable_grad():
            for loss, factor in _losses(incident_context):
                losses.append(float(loss.detach()) / factor)
                loss.backward()
            gradients = {name: p.grad for name, p in incident_context.parameters.items() if p.grad is not None}
            bad = tuple(name for name, gradient in gradients.items() if not bool(torch.isfinite(gradient).all()))
            total = math.sqrt(sum(float(gradient.to(torch.float64).square().sum()) for gradient in gradients.values()))
    except Exception as error:  # a backend that fails, or lines that cannot run twice
        return _Step(None, None, (), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    mean = math.fsum(losses) / len(losses) if losses else None
    return _Step(mean, total if gradients else None, bad, None)


def _losses(incident_context: IncidentContext) -> Any:
    """Yields each recomputed loss of the step, with the factor that multiplies it."""
    roots = loss_places(incident_context.micro_batches, incident_context.losses)
    if roots is not None:
        for batch, term, place in roots:
            loss = _pick(_call(batch), place)
            factor = _factor(term)
            yield loss * factor, factor
        return
    if incident_context.loop is None:
        raise CannotRunAgainError("the function that computed the loss has ended")
    batch = incident_context.micro_batches[-1]
    lines = compile_lines(incident_context.loop)
    if lines.from_further_up and batch.random_before is not None:
        batch.random_before.restore()
    with contextlib.nullcontext() if lines.own_context else autocast_as(batch.autocast):
        handle = batch.module.register_forward_pre_hook(_feeding(batch), with_kwargs=True)
        try:
            yield run_lines(incident_context.loop, lines), _factor(incident_context.losses[-1])
        finally:
            handle.remove()


def _feeding(batch: MicroBatch) -> Any:
    def feed(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        batch.random.restore()
        return batch.args, batch.kwargs

    return feed


def _call(batch: MicroBatch) -> Any:
    """Calls the module as the script did, compiled code included."""
    batch.random.restore()
    with autocast_as(batch.autocast):
        return batch.module(*batch.args, **batch.kwargs)


def _pick(output: Any, place: Sequence[Any]) -> Tensor:
    for key in place:
        output = output[key]
    assert isinstance(output, Tensor)
    return output


def _factor(term: LossTerm) -> float:
    """The product of the loss's factors (accumulation, loss scale)."""
    factor = 1.0
    for one in term.factors:
        factor = factor * one.value.item() if one.power == 1 else factor / one.value.item()
    return factor


def _names(incident_context: IncidentContext) -> Mapping[int, str]:
    return {id(parameter): name for name, parameter in incident_context.parameters.items()}


def _first_apart(calls: Sequence[GraphCall], backend: str, names: Mapping[int, str]) -> _Place | None:
    """The first difference: outputs in forward order, then gradients in backward order."""
    outcomes: list[tuple[GraphCall, Outcome, Outcome, Outcome]] = []
    for call in calls:
        gradients = call.output_gradients
        try:
            eager = outcome_of(call.graph.module, call, gradients, inputs=call.inputs)
            exact = in_float64(call.graph.module, call, gradients)

            def run(*inputs: Any, call: GraphCall = call) -> Any:
                return call.graph.run(backend, inputs)

            other = outcome_of(run, call, gradients, inputs=call.inputs)
        except Exception:
            continue
        outcomes.append((call, eager, exact, other))
    for call, eager, exact, other in outcomes:
        seen = apart(Outcome(eager.outputs, ()), Outcome(exact.outputs, ()), Outcome(other.outputs, ()))
        if seen is not None:
            return _Place(call, seen, _output_name(call, seen.number))
    for call, eager, exact, other in reversed(outcomes):
        seen = apart(Outcome((), eager.gradients), Outcome((), exact.gradients), Outcome((), other.gradients))
        if seen is not None:
            name = names.get(call.originals[seen.number], f"input {seen.number} of graph {call.graph.number}")
            return _Place(call, seen, f"gradient of {name}")
    return None


def _output_name(call: GraphCall, number: int) -> str:
    output = next(node for node in call.graph.module.graph.nodes if node.op == "output")
    nodes = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
    node = nodes[number]
    where = f" of {module_of(node)}" if module_of(node) else ""
    return f"output {number} of graph {call.graph.number} ({name_of(node)}{where})"


def _row(backend: str, step: _Step, place: _Place | None) -> BackendRow:
    first = f"{place.name}: {place.apart.text}" if place is not None else None
    return BackendRow(backend, step.loss, step.gradient_norm, len(step.bad), first, step.failed)


def _worse(steps: Mapping[str, _Step], backend: str) -> bool:
    return steps[EAGER].failed is None and steps[EAGER].finite and not steps[backend].finite


def _search(place: _Place, backend: str, step: _Step, deadline: float) -> Finding | None:
    found = first_operation(place.call, backend, place.apart, place.call.output_gradients, deadline=deadline)
    if found is None:
        return None
    file, line = found.line or (None, None)
    reached = f"gradient of {step.bad[0]}" if step.loss is None or math.isfinite(step.loss) else "loss"
    located = Located(
        phase="backward" if place.apart.what == "gradient" else "forward",
        operation=found.name,
        produced="nan" if found.produced == "nan" else "inf",
        module=found.module,
        file=file,
        line=line,
        code=code_at(found.line),
        inputs=found.inputs,
        chain=(),
        reached=reached,
        method=f"{METHOD} ({found.compiles} compilations by {backend})",
    )
    word = {"nan": "NaN", "inf": "Inf"}[found.produced]
    return Finding(
        located, f"compiled-only: {found.name} gives {word} when {backend} compiles it, and is finite in eager"
    )


def _why(to_blame: str | None, steps: Mapping[str, _Step], place: _Place | None, *, compiled_only: bool) -> str:
    if to_blame is None:
        bad = "" if steps[EAGER].finite else ", and not finite in eager either: compilation is not to blame"
        failed = [backend for backend, step in steps.items() if step.failed]
        if failed:
            return f"no comparison: it failed with {', '.join(failed)}"
        return f"all agree within ten times eager's own rounding{bad}"
    where = f"; the first tensor that differs is the {place.name}" if place is not None else ""
    if compiled_only:
        return f"compiled-only: finite in eager, not finite with {to_blame}{where}"
    return f"{to_blame} differs from eager beyond ten times eager's own rounding{where}"
