"""The launched side of ``steadytrain locate`` with a tape: a replay that traces its last step.

The recorded steps are replayed from a snapshot. The last few of them record activation maxima. The update before the
last step is traced. The last step runs under the tracer with float64 shadows. Then its compiled graphs, if any, are
compared between backends. The process ends at the gate of that step.

Run as ``python -m steadytrain.locate.traced_replay SOURCE RESULT.json OLD=NEW|- FROM STEP LEAD_S``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import module_names
from steadytrain.capture.incident.context import IncidentContext
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import BufferKeeper, MicroBatch, RandomState
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.script_frames import loop_lines
from steadytrain.core.incident import WEIGHTS_ARE_BAD, Finding
from steadytrain.locate.locate_failure import LADDER_STEPS, TAPE
from steadytrain.replay.command_runner import as_program, leave, run_followed
from steadytrain.replay.engine import Replayer
from steadytrain.replay.from_script import open_source
from steadytrain.replay.moved_files import Moved
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.replay.recorded_steps import RecordedSteps
from steadytrain.replay.step_bound import gates_bound
from steadytrain.replay.step_trace import StepTrace
from steadytrain.replay.verdict import Replayed
from steadytrain.storage.bundle import write_json
from steadytrain.storage.step_look import SecondOpinion, StepLook
from steadytrain.storage.tape_files import Recording, Snapshot
from steadytrain.tracing.activation_maxima import ActivationMaximaTaker, StepRungs, ladder_of
from steadytrain.tracing.backend_comparison import compare_backends
from steadytrain.tracing.compiled_graphs import intercept, is_used
from steadytrain.tracing.float64_shadow import Float64Shadows
from steadytrain.tracing.input_names import named_tensors
from steadytrain.tracing.input_values import is_bad, same_inputs
from steadytrain.tracing.investigator import plain_module
from steadytrain.tracing.second_looks import SecondLook, opinion_of
from steadytrain.tracing.tensor_summary import kinds_of, unseen
from steadytrain.tracing.tracer import OperationTracer

COMPILED_LADDER = "the ladder has only the last step: compiled code bypasses module hooks"
NO_CALL = "no call of a module with gradients was seen in the recorded step"


class Locator(StepObserver):
    """Delegates to a replay and measures.

    Args:
        weights_were_bad: whether the recorded step began with a weight that is not finite.
        done: gets the document and does not return.
    """

    replays = True

    def __init__(
        self,
        recording: Recording,
        *,
        snapshot: Snapshot,
        step: int,
        own_steps: OwnSteps,
        weights_were_bad: bool = False,
        done: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._weights_were_bad = weights_were_bad
        self._replayer = Replayer(
            recording, snapshot=snapshot, until=step, own_steps=own_steps, final=None, done=self._replayed
        )
        self._recording = recording
        self._from_batch = False
        self._first = snapshot.step + 1
        self._step = step
        self._done = done
        self._looked_at_start = False
        self._notes: list[str] = []
        self._rungs: list[StepRungs] = []
        self._ladder: ActivationMaximaTaker | None = None
        self._stream: Stream | None = None
        self._buffers = BufferKeeper()
        self._calls: list[MicroBatch] = []
        self._seen: StepInProgress | None = None
        self._tracer: OperationTracer | None = None
        self._second: SecondLook | None = None
        self._update: tuple[OperationTracer, Float64Shadows] | None = None
        self._updated: tuple[Finding, SecondOpinion] | None = None
        self._own_gates = 0
        self._losses_seen = 0
        self._over = False
        self._bad_at_start = False
        self._bad_after: int | None = None

    @property
    def scalers(self) -> Mapping[int, Any]:
        return self._replayer.scalers

    @scalers.setter
    def scalers(self, scalers: Mapping[int, Any]) -> None:
        self._replayer.scalers = scalers

    # -- while the step forms --------------------------------------------------------------------------------------

    def fetch_begins(self, dataset: int) -> Any:
        return self._replayer.fetch_begins(dataset)

    def fetched(self, dataset: int, batch: Any) -> Any:
        return self._replayer.fetched(dataset, batch)

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._over:
            return None  # a backend comparison reruns the step: the calls are ours
        with unseen():
            given = self._replayer.call_begins(module, call, args, kwargs)
        step = self._replayer.step_now
        if step is None:
            return given
        if step == self._first and not self._looked_at_start:
            self._looked_at_start = True
            self._bad_at_start = bool(self._bad_weights())
        if step == self._step:
            is_traced = self._from_batch or bool(self._calls)  # what the script computed for this call
            own = is_traced and (given is None or same_inputs(given, (args, kwargs)))
            given = None if own else given
            args, kwargs = given or (args, kwargs)
            self._buffers.keep(module)
            self._calls.append(replace(call, args=tuple(args), kwargs=dict(kwargs), random=RandomState.take()))
            if self._tracer is None:
                self._begin_look()
            assert self._tracer is not None
            self._tracer.enter_module(plain_module(module))
            named = named_tensors(args, kwargs)
            (self._tracer.note_inputs if own else self._tracer.note_sources)(named)
        elif step > self._step - LADDER_STEPS and self._ladder is None and self._stream is not None:
            self._begin_ladder()
        return given

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        if self._over:
            return
        self._replayer.forward_ended(call, random)
        if call is not None and self._calls:
            # Only the watcher's own record knows where the loss is in the outputs.
            self._calls[-1] = replace(self._calls[-1], scalar_outputs=call.scalar_outputs)

    def backward_begins(self) -> None:
        if not self._over:
            self._replayer.backward_begins()

    def loss_seen(self, root: Tensor) -> None:
        if self._tracer is not None and self._second is not None and not self._over:
            self._losses_seen += 1
            self._tracer.mark_loss(root)
            self._second.loss_seen(root)

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if stream.name == self._replayer.stream:
            self._stream = stream
        step = self._replayer.step_now
        if stream is self._stream and step is not None:
            self._end_ladder(step)
            if step == self._step:
                self._seen = seen
                self._end_look()
        self._replayer.gate(stream, seen, measured)
        if stream is not self._stream:
            return
        self._own_gates += step is None
        if (self._own_gates if step is None else step) == self._step - 1:
            self._begin_update()

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if not self._over and self._replayer.awaits_let_go:
            for term in seen.losses[self._losses_seen :]:
                self.loss_seen(term.root)  # no backward began with it
            self.gate(stream, seen, measured)

    def calls_forgotten(self) -> None:
        self._replayer.calls_forgotten()
        self._begin_at_batch()

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        step = self._replayer.step_now
        self._replayer.step_ended(stream, folder)
        if stream is self._stream:
            self._end_update(self._own_gates if step is None else step)
            self._begin_at_batch()

    # -- measurements ----------------------------------------------------------------------------------------------

    def _begin_ladder(self) -> None:
        if is_used():
            if COMPILED_LADDER not in self._notes:
                self._notes.append(COMPILED_LADDER)
            return
        self._ladder = ActivationMaximaTaker(self._modules())
        self._ladder.begin()

    def _end_ladder(self, step: int) -> None:
        if self._ladder is not None:
            self._rungs.append(self._ladder.end(step))
            self._ladder = None

    def _begin_look(self) -> None:
        parameters = self._parameters()
        self._second = SecondLook(self._modules(), parameters, step=self._step)
        self._tracer = OperationTracer(
            modules=self._modules(), parameters=parameters, method=TAPE, observer=self._second.shadows
        )
        self._second.begin()
        self._tracer.__enter__()

    def _end_look(self) -> None:
        if self._tracer is not None and self._second is not None:
            self._tracer.__exit__(None, None, None)
            if not self._losses_seen:
                self._tracer.mark_newest()
            self._second.end()
            if self._second.rungs is not None:
                self._rungs.append(self._second.rungs)

    def _begin_at_batch(self) -> None:
        """If the recorded step called a model with a bad input, or with bad weights that the last update left finite,
        its look begins with what the script does before."""
        if self._replayer.step_now == self._step and self._tracer is None and self._stream is not None:
            if self._weights_were_bad and not self._bad_weights():
                self._begin_look()
                return
            recorded = RecordedSteps(self._recording).step(self._step)
            calls = recorded.calls if recorded is not None else ()
            if recorded is not None and any(is_bad(recorded.value(call["inputs"])) for call in calls):
                self._from_batch = True
                self._begin_look()

    def _begin_update(self) -> None:
        """Traces the update before the step: in the step itself, its fault shows only as a bad weight."""
        shadows = Float64Shadows()
        tracer = OperationTracer(parameters=self._parameters(), method=TAPE, observer=shadows)
        tracer.__enter__()
        self._update = (tracer, shadows)

    def _end_update(self, step: int) -> None:
        bad = self._bad_weights()
        if self._update is not None:
            (tracer, shadows), self._update = self._update, None
            tracer.__exit__(None, None, None)
            for name, parameter in bad.items():
                tracer.mark_target(f"{name} after the update of step {step}", parameter)
            if bad and self._bad_after is None:
                finding = tracer.finding()
                weights = list(self._parameters().values())
                self._updated = finding, opinion_of(finding, weights, shadows, loss=None, loss64=None)
            shadows.close()
        if bad and self._bad_after is None:
            self._bad_after = step

    def _bad_weights(self) -> dict[str, Tensor]:
        return {name: parameter for name, parameter in self._parameters().items() if kinds_of(parameter)}

    # -- results ---------------------------------------------------------------------------------------------------

    def _replayed(self, result: Replayed | str, trace: StepTrace | None) -> None:
        self._over = True
        if isinstance(result, str):
            self._done({"cannot": result})
        elif self._tracer is None or self._second is None:
            self._done({"cannot": NO_CALL})
        else:
            self._done(self._document(result, self._tracer, self._second))

    def _document(self, result: Replayed, tracer: OperationTracer, second: SecondLook) -> dict[str, Any]:
        finding = tracer.finding()
        opinion = second.opinion(finding) if self._losses_seen else None
        second.shadows.close()
        backends = None
        if self._updated is not None:
            finding, opinion = self._updated
        else:
            backends, blamed = compare_backends(self._incident_context())
            if blamed is not None and finding.located is None:
                finding = blamed
        look = StepLook(self._step, ladder_of(self._rungs), opinion, backends, tuple(self._notes))
        return {
            "finding": finding.to_json(),
            "look": look.to_json(),
            "replayed": asdict(result),
            "weights_bad_after": self._bad_after,
            "weights_bad_at_start": self._bad_at_start,
        }

    def _incident_context(self) -> IncidentContext:
        assert self._seen is not None
        assert self._stream is not None
        calls, losses = self._calls, self._seen.losses
        return IncidentContext(
            step=self._step,
            micro_batches=calls,
            losses=losses,
            loss_finite=True,
            parameters=self._parameters(),
            roots=list(self._stream.roots()),
            buffers=self._buffers,
            fetched=self._seen.fetched,
            loop=loop_lines(calls[-1].frames, losses[-1].frames) if calls and losses else None,
            alone=not self._stream.together,
            no_lap="the step runs in a replay",
        )

    def _modules(self) -> dict[nn.Module, str]:
        assert self._stream is not None
        roots = [plain_module(root) for root in self._stream.roots()]
        if len(roots) == 1:
            return module_names(roots)
        # Like the parameter names: with the root's class as prefix.
        names: dict[nn.Module, str] = {}
        for root in roots:
            for module, path in module_names([root]).items():
                names.setdefault(module, f"{type(root).__name__}.{path}".rstrip("."))
        return names

    def _parameters(self) -> dict[str, Tensor]:
        stream = self._stream
        if stream is None:
            return {}
        named: dict[str, Tensor] = {}
        for number, (name, parameter) in enumerate(zip(stream.tensor_names, stream.parameters, strict=True)):
            named[f"{name} ({number})" if name in named else name] = parameter  # models of one class share their names
        return named


def main(source: str, result: str, moved: str, first: str, step: str, lead_s: str) -> int:
    place = Moved.parse(moved)
    opened = open_source(Path(source), place)
    last = int(step)
    snapshot, _ = opened.recording.choose(first=int(first), until=last)
    place.put_on_path()

    def done(document: Mapping[str, Any]) -> None:
        write_json(Path(result), dict(document))
        leave()

    def locator() -> StepObserver:
        intercept()
        own_steps = opened.own_steps(snapshot.step, float(lead_s))
        incident = opened.incident
        made = Locator(
            opened.recording,
            snapshot=snapshot,
            step=last,
            own_steps=own_steps,
            weights_were_bad=incident is not None
            and incident.step == last
            and incident.finding.came_in.startswith(WEIGHTS_ARE_BAD),
            done=done,
        )
        made.gates_max = gates_bound(last)
        return made

    return run_followed(opened, locator, name="locate", scratch=Path(result).parent)


if __name__ == "__main__":
    as_program(main)
