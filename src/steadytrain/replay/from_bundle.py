"""Replays the step of an incident in a new process from its bundle alone, for incidents without a tape.

The launched script computes its own first steps. Then the bundle's weights, random state and batches are put in place,
and the script's loop runs once, up to the optimizer. Loss and gradients are compared with the incident's. The process
ends right there, without the script's exit code.

Run as ``python -m steadytrain.replay.from_bundle BUNDLE RESULT.json OLD=NEW|- trace|plain``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.hooks.model_discovery import module_names
from steadytrain.capture.incident.context import IncidentContext, LoopRerun
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.loss import LossTerm, loss_term, unscaled
from steadytrain.capture.tensors.statistics import exact_state
from steadytrain.core.incident import Finding, Incident
from steadytrain.replay.bundle_state import BundleRehearsal
from steadytrain.replay.command_runner import as_program, leave, run_recorded, watch_with
from steadytrain.replay.moved_files import Moved, moved_bundle
from steadytrain.replay.result_files import write_output
from steadytrain.replay.step_trace import StepTrace
from steadytrain.replay.verdict import Difference, Replayed
from steadytrain.storage.bundle import Bundle, open_bundle
from steadytrain.tracing.input_values import same_inputs
from steadytrain.tracing.investigator import plain_module

ONE_STEP = "only the incident's own step was replayed: no snapshot with a tape after it is available"


class StepReplay:
    """Replays the step of a bundle. ``done`` gets the result, or the reason why there is none, and the trace if
    requested."""

    def __init__(
        self, bundle: Bundle, done: Callable[[Replayed | str, StepTrace | None], None], *, traced: bool
    ) -> None:
        self.rehearsal = BundleRehearsal(bundle, self._finish, rerun=self._begin)
        self._incident = bundle.incident
        self._done = done
        self._traced = traced
        self._rerun: BundleRerun | None = None

    def _begin(self, incident_context: IncidentContext) -> LoopRerun:
        self._rerun = BundleRerun(incident_context, self._incident, traced=self._traced)
        return self._rerun

    def _finish(self, finding: Finding) -> None:
        if self._rerun is None or self._rerun.result is None:
            self._done(finding.why.removeprefix("not searched: "), None)
        else:
            self._done(self._rerun.result, self._rerun.trace)


class BundleRerun(LoopRerun):
    """Runs the script's own loop once with the recorded batch and random state, up to the optimizer."""

    def __init__(self, incident_context: IncidentContext, incident: Incident, *, traced: bool) -> None:
        self.result: Replayed | None = None
        self.trace: StepTrace | None = None
        self._incident_context = incident_context
        self._incident = incident
        self._calls = deque(incident_context.micro_batches)
        self._feed: dict[int, deque[Any]] = {}
        for dataset, batch in incident_context.fetched:
            self._feed.setdefault(dataset, deque()).append(batch)
        self._losses: list[LossTerm] = []
        self._same_batches = True
        self._restore_random()
        if traced:
            self.trace = StepTrace(module_names(plain_module(root) for root in incident_context.roots))
            self.trace.begin()

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if not self._calls:
            return None
        call: MicroBatch = self._calls.popleft()
        call.random.restore()
        self._same_batches &= same_inputs((args, kwargs), (call.args, call.kwargs))
        if self.trace is not None:
            self.trace.enter_module(plain_module(module))
        return call.args, call.kwargs

    def other_forward_ends(self) -> None:
        self._restore_random()

    def backward_begins(self, root: Tensor) -> None:
        self._losses.append(loss_term(root))
        if self.trace is not None:
            self.trace.backward_begins()

    def fetch(self, dataset: int) -> Any:
        waiting = self._feed.get(dataset)
        return waiting.popleft() if waiting else MISSING

    def gate(self) -> Finding:
        self.end()
        step, recorded = self._incident.step, self._incident
        scales = {factor.value.item() for term in self._losses for factor in term.factors if factor.power == 1}
        losses = [_value(term, scales, len(self._losses)) for term in self._losses]
        bad = {
            name
            for name, parameter in self._incident_context.parameters.items()
            if parameter.grad is not None and not exact_state(parameter.grad).finite
        }
        finite = all(abs(loss) < float("inf") for loss in losses)
        self.result = Replayed(
            from_step=step,
            until_step=step,
            steps=1,
            first_difference=_compare(recorded, losses, bad),
            symptom=bool(bad) or not finite,
            script_batches_equal=self._same_batches,
            notes=(ONE_STEP,),
        )
        return Finding(None, "the step was replayed")

    def abandon(self, why: str) -> Finding:
        self.end()
        return Finding(None, why)

    def end(self) -> None:
        if self.trace is not None:
            self.trace.end()

    def _restore_random(self) -> None:
        before = self._incident_context.micro_batches[0].random_before if self._incident_context.micro_batches else None
        if before is not None:
            before.restore()


def _value(term: LossTerm, scales: set[float], backward_calls: int) -> float:
    factors = [(factor.value.item(), factor.power) for factor in term.factors]
    return unscaled(term.root.item(), factors, scales=scales, backward_calls=backward_calls)


def _compare(recorded: Incident, losses: list[float], bad: set[str]) -> Difference | None:
    """Compares losses bit for bit. Of the gradients, those recorded as non-finite must be non-finite again."""
    if len(losses) != len(recorded.losses):
        return Difference(recorded.step, "forward", "number of losses", str(len(recorded.losses)), str(len(losses)))
    for number, (then, now) in enumerate(zip(recorded.losses, losses, strict=True)):
        name = f"loss {number}" if len(losses) > 1 else "loss"
        if _bits(then) != _bits(now):
            return Difference(recorded.step, "forward", name, _bits(then), _bits(now))
    for tensor in recorded.parameters:
        if tensor.name not in bad:
            return Difference(recorded.step, "backward", f"gradient of {tensor.name}", "not finite", "finite")
    return None


def _bits(value: float) -> str:
    """The exact text of a value. All NaNs are equal, whatever their sign and payload."""
    return "nan" if value != value else float(value).hex() if abs(value) == float("inf") else f"{value!r}"


def main(bundle_path: str, result_path: str, moved: str, trace: str) -> int:
    place = Moved.parse(moved)
    bundle = moved_bundle(open_bundle(Path(bundle_path)), place)
    place.put_on_path()

    def done(result: Replayed | str, trace: StepTrace | None) -> None:
        write_output(Path(result_path), result, trace)
        leave()

    def attach() -> None:
        watch_with(
            "replay", Path(result_path).parent, rehearsal=StepReplay(bundle, done, traced=trace == "trace").rehearsal
        )

    return run_recorded(bundle, attach, scratch=Path(result_path).parent)


if __name__ == "__main__":
    as_program(main)
