"""Records the losses of evaluations that the script makes itself: values of the metric ``evaluation-loss``.

An evaluation is a burst of calls of a trained model in evaluation mode, without gradients, between two updates. What
counts is a loss of torch's that the script computes meanwhile from something as large as an output, or the model in its
call. Each line of the script, each loss and each set is a metric of its own (``evaluation-loss 2``). It is read when
the next training call begins. While the run rests, hooks are off: then a loss without gradients counts while the model
is in evaluation mode.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.hooks.loss_calls import listen, stop_listening
from steadytrain.capture.step.evaluated_losses import (
    OTHER,
    counts,
    divisor_of,
    kind_of,
    kind_of_training,
    mean_of,
    total_of,
)
from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.loss import Lines, lines_of
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import local_of, user_frames
from steadytrain.core.metric_names import EVALUATION_LOSS, OF_PART, OF_SCALE, TRAINING_LEVEL, is_of_script
from steadytrain.core.model import Window
from steadytrain.core.torch_private import IS_FUNCTORCH
from steadytrain.statistics.medians import median

LINES_MAX = 8
"""Metrics of one stream."""

DENSE_VALUES = 64
SPACED_SHARE = 0.02
"""After so many values of a metric, the next one is so much of the run later: a history keeps 256."""

FIRST_LOSSES, LAST_LOSSES = 3, 16
"""Training losses whose median is the level at the start, and the one of an evaluation."""

TRAINING_LOSSES = 64
"""Backward passes whose loss is compared with that of the evaluation."""

SPLIT_NAMES = ("split", "phase", "mode", "subset", "name", "task", "domain", "partition")
"""Variables by which a function that evaluates several sets knows them apart."""

FACT = "evaluation_losses"


@dataclass(frozen=True)
class _Line:
    """One loss of an evaluation. ``dataset`` counts the data sets of the burst in their order. ``inside``: the model
    computes it in its call."""

    lines: Lines
    kind: str
    model: str
    split: str
    dataset: int
    inside: bool


@dataclass
class _Sum:
    """``tied``: a loss of an output itself, or of a view of it, and not only of something of its size."""

    tied: bool = False
    total: Tensor | float = 0.0
    number: Tensor | float = 0.0


@dataclass
class _Burst:
    """The losses between two updates; those inside of a model's call wait until it returns them."""

    model: weakref.ref[nn.Module] | None = None
    step: int = -1
    sums: dict[_Line, _Sum] = field(default_factory=dict)
    datasets: dict[Lines, list[int]] = field(default_factory=dict)
    inside: list[tuple[_Line, int, Tensor | float, Tensor | float]] = field(default_factory=list)
    elements: int = 0
    storages: set[int] = field(default_factory=set)


@dataclass
class _Metric:
    name: str
    values: int = 0
    last_step: int = 0


class ScriptEvaluations(StepObserver):
    """Follows the evaluations of one run. Off for good once the script, or a trainer, reports evaluations itself."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._works = True
        self._burst = _Burst()
        self._waiting: list[tuple[weakref.ref[nn.Module], _Line, float, bool, int]] = []
        self._trained: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._metrics: dict[int, dict[_Line, _Metric]] = {}
        self._levels: dict[int, int] = {}
        self._kinds: set[str] = set()
        self._divisors: set[float] = set()
        self._most_losses = 1
        self._backwards = 0
        self._dataset = -1
        self._rests = self._calling = False
        self._listener = self._loss_called

    # -- what the script does --------------------------------------------------------------------------------------

    def aside_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not self._works or module.training or not self._is_trained(module):
            return
        self._burst.model = weakref.ref(module)
        self._calling = True
        if self._run.modules.compile_used:
            stop_listening(self._listener)  # compiled code guards on the functions that it calls
        else:
            listen(self._listener)

    def aside_ended(self, module: nn.Module, output: Any) -> None:
        if not self._works or not self._calling:
            return
        self._calling = False
        listen(self._listener)
        outputs = [one for one in tensors_in(output) if one.is_floating_point() and not IS_FUNCTORCH(one)]
        burst = self._burst
        burst.elements = max((one.numel() for one in outputs), default=0)
        burst.storages = {one.untyped_storage().data_ptr() for one in outputs if type(one) is Tensor}
        returned = {one.data_ptr() for one in outputs if one.numel() == 1} if burst.inside else set()
        for line, place, total, number in burst.inside:
            if place in returned:
                self._add(line, total, number, tied=True)
        burst.inside.clear()

    def fetched(self, dataset: int, batch: Any) -> Any:
        self._dataset = dataset
        return MISSING

    def passed_over(self, dataset: int, batch: Any, *, keep: bool) -> None:
        self._dataset = dataset

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> None:
        if self._works:
            self._ends()

    def loss_seen(self, root: Tensor) -> None:
        losses = self._run.seen.losses
        if self._works and losses and self._backwards < TRAINING_LOSSES:
            self._backwards += 1
            self._kinds.add(kind_of_training(losses[-1], root))
            self._divisors.add(divisor_of(losses[-1], scaled=bool(self._run.scaling.scalers)))
            self._most_losses = max(self._most_losses, len(losses))

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        if self._waiting:
            self._tell()

    def rest_begins(self, stream: Stream) -> None:
        self._rests = self._works and not self._run.modules.compile_used
        if self._rests:
            root = next(iter(stream.roots()), None)
            self._burst = _Burst(weakref.ref(root) if root is not None else None)
            listen(self._listener)

    def rest_ends(self, stream: Stream, *, within: bool) -> None:
        self._rests = False
        if self._works:
            self._ends()

    def script_ended(self) -> None:
        if self._works:
            self._ends()

    def stream_done(self, stream: Stream) -> None:
        if self._works:
            self._ends()
        for known in (self._metrics, self._levels):
            known.pop(id(stream), None)

    def close(self, *, finished: bool, noted: bool) -> None:
        self._works = self._rests = False
        stop_listening(self._listener)
        self._burst, self._waiting = _Burst(), []

    def forget(self) -> None:
        self.close(finished=False, noted=False)

    # -- a loss ----------------------------------------------------------------------------------------------------

    def _loss_called(self, name: str, args: Any, result: Any) -> None:
        run = self._run
        if not self._works or not run.is_script() or run.in_backward or run.rerun is not None or not counts(result):
            return
        try:
            with run.own_time, run.aside():
                self._count(name, args, result)
        except Exception as error:
            self.close(finished=False, noted=False)
            run.guard.report("reading the loss of an evaluation", error)

    def _count(self, name: str, args: Any, result: Tensor) -> None:
        model = self._burst.model() if self._burst.model is not None else None
        if model is None or model.training or any(isinstance(one, Tensor) and IS_FUNCTORCH(one) for one in args[:2]):
            return
        if self._rests and self._burst.step != self._run.last_step:
            self._ends()
            self._burst = _Burst(weakref.ref(model), self._run.last_step)
        burst = self._burst
        if not self._rests and not self._calling and args[0].numel() > burst.elements:
            return
        lines = lines_of(user_frames())
        datasets = burst.datasets.setdefault(lines, [])
        if self._dataset not in datasets:
            datasets.append(self._dataset)
        split = next((str(one)[:40] for one in map(local_of, SPLIT_NAMES) if isinstance(one, str)), "")
        line = _Line(
            lines, kind_of(name, args), type(model).__name__, split, datasets.index(self._dataset), self._calling
        )
        total, number = total_of(name, args, result)
        if self._calling:
            burst.inside.append((line, result.data_ptr(), total, number))
        else:
            places = {one.untyped_storage().data_ptr() for one in args[:2] if type(one) is Tensor}
            self._add(line, total, number, tied=bool(places & burst.storages))

    def _add(self, line: _Line, total: Tensor | float, number: Tensor | float, *, tied: bool) -> None:
        known = self._burst.sums
        if line in known or len(known) < LINES_MAX:
            one = known.setdefault(line, _Sum())
            one.tied = one.tied or tied
            one.total, one.number = one.total + total, one.number + number

    # -- the end of a burst ----------------------------------------------------------------------------------------

    def _ends(self) -> None:
        """Read the sums: the evaluation is over."""
        burst = self._burst
        if burst.model is None:
            return
        self._dataset = -1
        self._burst = _Burst(burst.model, burst.step) if self._rests else _Burst()
        if not self._rests:
            stop_listening(self._listener)
        if not burst.sums:
            return
        known = {line for each in self._metrics.values() for line in each} if burst.step >= 0 else set()
        tied = any(one.tied for one in burst.sums.values())  # then another loss is that of a baseline
        sums = {
            line: one for line, one in burst.sums.items() if (one.tied or not tied) and (line in known or not known)
        }
        with self._run.own_time.unseen:
            means = mean_of((one.total, one.number) for one in sums.values())
        parted = len({line.lines[:1] for line in sums}) > 1
        at = burst.step if self._run.streams else 0  # before the first update
        self._waiting += [(burst.model, line, mean, parted, at) for line, mean in zip(sums, means, strict=True)]
        if self._run.streams and self._backwards:
            self._tell()

    def _tell(self) -> None:
        """Give the values that wait to the histories, and the level of the training loss beside them."""
        waiting, self._waiting = self._waiting, []
        for model, line, value, parted, step in waiting:
            module = model()
            stream = self._stream_of(module) if module is not None else None
            if stream is None:
                continue
            at = step if step >= 0 else stream.step
            window = stream.history.window()
            if not all(map(is_of_script, window.metrics)):
                self.close(finished=False, noted=False)
                return
            metric = self._metric_of(stream, line, parted=parted)
            if metric is None or (
                metric.values >= DENSE_VALUES and at < metric.last_step + max(1.0, SPACED_SHARE * metric.last_step)
            ):
                continue
            metric.values, metric.last_step = metric.values + 1, at
            self._tell_level(stream, window, at)
            stream.history.evaluated(at, {metric.name: value})

    def _tell_level(self, stream: Stream, window: Window, at: int) -> None:
        """The median of the last training losses; first that of the first ones, the level of an untrained model."""
        told = self._levels.get(id(stream), -1)
        losses = window.applied("loss")
        if at <= told or not len(losses):
            return
        if told < 0 and stream.began == 0 and losses.steps[0] == 1:
            stream.history.evaluated(min(at, 1), {TRAINING_LEVEL: median(losses.values[:FIRST_LOSSES])})
        if at > 0:
            stream.history.evaluated(at, {TRAINING_LEVEL: median(losses.values[-LAST_LOSSES:])})
        self._levels[id(stream)] = at

    def _metric_of(self, stream: Stream, line: _Line, *, parted: bool) -> _Metric | None:
        known = self._metrics.setdefault(id(stream), {})
        if line not in known:
            same = line.kind != OTHER and self._kinds == {line.kind} and self._is_mean_of_parts()
            if len(known) >= LINES_MAX or (line.inside and not same):
                return None  # what a model computes beside its loss (a penalty) may rise
            scale = "" if same else f" {OF_PART if parted else OF_SCALE}"
            number = 1 + sum(one.name.startswith(EVALUATION_LOSS) for one in known.values())
            known[line] = _Metric(f"{EVALUATION_LOSS}{scale}{f' {number}' if number > 1 else ''}")
            self._run.recorder.set_fact(FACT, self._fact())
        return known[line]

    def _is_mean_of_parts(self) -> bool:
        """Whether the loss of a step is the mean of its micro-batches: each is divided by their number, or none is."""
        parts = {1.0, float(self._most_losses)}
        return any(all(math.isclose(one, part, rel_tol=1e-3) for one in self._divisors) for part in parts)

    def _fact(self) -> dict[str, dict[str, str]]:
        """The fact of the run: the line, the loss and the set of each metric of the first stream."""
        first = self._metrics.get(id(self._run.streams[0]), {}) if self._run.streams else {}
        return {
            one.name: {
                "line": f"{Path(line.lines[0][0].co_filename).name}:{line.lines[0][1]}" if line.lines else "",
                "loss": line.kind,
                "model": line.model,
                "split": line.split,
            }
            for line, one in first.items()
        }

    # -- whose it is -----------------------------------------------------------------------------------------------

    def _is_trained(self, module: nn.Module) -> bool:
        """Whether an optimizer trains a parameter of the module. Before the first step any model may be trained."""
        streams = len(self._run.streams)
        if not streams:
            return True
        known = self._trained.get(module)
        if known is None or abs(known) != streams:
            known = self._trained[module] = streams if self._stream_of(module) is not None else -streams
        return known > 0

    def _stream_of(self, module: nn.Module) -> Stream | None:
        own = {id(one) for one in module.parameters()}
        return next((one for one in self._run.streams if any(id(each) in own for each in one.parameters)), None)
