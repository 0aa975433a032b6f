"""Further measurements of a rerun step, besides the first bad operation: activation maxima and the float64 comparison.

:class:`SecondLook` does not depend on how the step is rerun. A replay (``locate/traced_replay.py``) and a loop rerun
(:class:`RerunWithSecondLooks`, if there is no tape) report the events to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import module_names
from steadytrain.capture.incident.context import IncidentContext
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.loss import LossTerm, loss_term, unscaled
from steadytrain.capture.step.script_frames import loop_lines, user_frames
from steadytrain.core.incident import Finding
from steadytrain.storage.step_look import SecondOpinion, StepLook, Verdict
from steadytrain.tracing.activation_maxima import ActivationMaximaTaker, StepRungs, ladder_of
from steadytrain.tracing.backend_comparison import compare_backends
from steadytrain.tracing.float64_shadow import Float64Shadows
from steadytrain.tracing.investigator import ScriptLoopRerun, plain_module
from steadytrain.tracing.tensor_summary import kinds_of
from steadytrain.tracing.tracer import OperationTracer

NO_TAPE = "without a tape of the steps before, only the bad step itself was examined"


class SecondLook:
    """Accompanies a tracer that has ``shadows`` as its observer. Results are available after :meth:`end`."""

    def __init__(self, modules: Mapping[nn.Module, str], parameters: Mapping[str, Tensor], *, step: int) -> None:
        self.shadows = Float64Shadows()
        self.rungs: StepRungs | None = None
        self._ladder = ActivationMaximaTaker(modules)
        self._parameters = parameters
        self._step = step
        self._losses: list[tuple[LossTerm, float]] = []

    def begin(self) -> None:
        self._ladder.begin()

    def loss_seen(self, root: Tensor) -> None:
        """Reports that backward is about to run from ``root``."""
        exact = self.shadows.value(root)
        self._losses.append((loss_term(root), math.nan if exact is None else float(exact)))

    def end(self) -> None:
        """A second call does nothing."""
        if self.rungs is None:
            self.rungs = self._ladder.end(self._step)

    @property
    def terms(self) -> list[LossTerm]:
        """The losses from which backward ran."""
        return [term for term, _ in self._losses]

    def opinion(self, finding: Finding) -> SecondOpinion:
        """The verdict of the float64 comparison. Call it while the gradients exist."""
        gradients = [parameter.grad for parameter in self._parameters.values() if parameter.grad is not None]
        loss, loss64 = self._loss()
        return opinion_of(finding, gradients, self.shadows, loss=loss, loss64=loss64)

    def _loss(self) -> tuple[float | None, float | None]:
        """The mean of the step's losses without their factors, in the run's format and in float64."""
        if not self._losses:
            return None, None
        scales = {factor.value.item() for term, _ in self._losses for factor in term.factors if factor.power == 1}
        calls = len(self._losses)
        ours, exact = 0.0, 0.0
        for term, root64 in self._losses:
            factors = [(factor.value.item(), factor.power) for factor in term.factors]
            ours += unscaled(term.root.item(), factors, scales=scales, backward_calls=calls)
            exact += unscaled(root64, factors, scales=scales, backward_calls=calls)
        return ours / calls, exact / calls


def opinion_of(
    finding: Finding, tensors: Sequence[Tensor], shadows: Float64Shadows, *, loss: float | None, loss64: float | None
) -> SecondOpinion:
    """Compares a loss and ``tensors`` (gradients, or weights after an update) with their float64 values."""
    values = [(tensor, shadows.value(tensor)) for tensor in tensors]
    bad = sum(bool(kinds_of(tensor)) for tensor, _ in values)
    bad64 = sum(bool(kinds_of(tensor if exact is None else exact)) for tensor, exact in values)
    verdict, why = _judge(
        finding, shadows, bad=bool(bad) or not _finite(loss), bad64=bool(bad64) or not _finite(loss64)
    )
    return SecondOpinion(verdict, loss, loss64, bad, bad64, shadows.names, why)


def _judge(finding: Finding, shadows: Float64Shadows, *, bad: bool, bad64: bool) -> tuple[Verdict, str]:
    if shadows.stopped is not None:
        return "unknown", shadows.stopped
    if not bad:
        return ("both-finite", "") if not bad64 else ("unknown", "finite in the run's format, and not in float64")
    if not bad64:
        return "number-format", ""
    if finding.located is None and "already h" in finding.why:
        return "input", ""
    if shadows.names:
        return "unknown", f"{', '.join(shadows.names)} could not be done in float64"
    return "mathematics", ""


def _finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)


class RerunWithSecondLooks(ScriptLoopRerun):
    """The loop rerun of ``steadytrain locate`` without a tape. ``look`` is set at its end."""

    def __init__(self, incident_context: IncidentContext, *, step: int, method: str) -> None:
        self.look: StepLook | None = None
        self._step = step
        modules = module_names(plain_module(root) for root in incident_context.roots)
        self._second = SecondLook(modules, incident_context.parameters, step=step)
        self._made: list[MicroBatch] = []
        super().__init__(incident_context, method=method, observer=self._second.shadows, from_batch=True)

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        waiting = self._calls[0] if self._calls else None
        given = super().forward_begins(module, args, kwargs)
        if waiting is not None and given is not None:
            # The lines that call the model are known from this rerun only, not from the bundle.
            self._made.append(replace(waiting, module=module, frames=user_frames()))
        return given

    def backward_begins(self, root: Tensor) -> None:
        super().backward_begins(root)
        self._second.loss_seen(root)

    def gate(self) -> Finding:
        finding = super().gate()
        opinion = self._second.opinion(finding)
        self._second.shadows.close()
        ladder = ladder_of([self._second.rungs]) if self._second.rungs is not None else None
        backends, blamed = compare_backends(self._again())
        self.look = StepLook(self._step, ladder, opinion, backends, (NO_TAPE,))
        return blamed if blamed is not None and finding.located is None else finding

    def _again(self) -> IncidentContext:
        """The step as this rerun made it."""
        losses = self._second.terms
        loop = loop_lines(self._made[-1].frames, losses[-1].frames) if self._made and losses else None
        return replace(self._incident_context, micro_batches=self._made, losses=losses, loop=loop)

    def end(self) -> None:
        super().end()
        self._second.end()

    def _start(self) -> OperationTracer:
        self._second.begin()
        return super()._start()
