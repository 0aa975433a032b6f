"""The observer of an onset search: replays, and measures every step with the instruments of a watched run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.model import GRADIENT_ABSENT, Table
from steadytrain.onset.batch_statistics import Batches
from steadytrain.onset.departures import Course
from steadytrain.onset.measures import HALF_HEADROOM, MODULE_COLUMNS, TENSOR_COLUMNS, Key
from steadytrain.replay.engine import Replayer
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.replay.verdict import Replayed
from steadytrain.storage.tape_files import Recording, Snapshot


class Measuring(Replayer):
    """``finished`` gets the measurements, the replay's result or the reason why there is none, and the learning rates.

    It does not return.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        snapshot: Snapshot,
        until: int,
        own_steps: OwnSteps,
        batches: Batches,
        finished: Callable[[Course, Replayed | str, list[tuple[int, float]]], None],
    ) -> None:
        super().__init__(
            recording, snapshot=snapshot, until=until, own_steps=own_steps, final=None, done=self._measured_all
        )
        self._batches = batches
        self._finished = finished
        self._rows: dict[int, dict[Key, float]] = {}
        self._rates: list[tuple[int, float]] = []

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        given = super().call_begins(module, call, args, kwargs)
        if self._jumped:
            self._batches.call(*(given or (args, kwargs)))
            self._batches.active = True
        return given

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if self._jumped and stream is self._stream:
            self._batches.active = False
            row = self._rows.setdefault(self._now, {})
            row |= self._batches.take()
            scalars = measured.record.scalars
            row |= {
                Key(name, ""): value
                for name in ("loss", "gradient_norm", "parameter_norm")
                if (value := scalars.get(name)) is not None
            }
            for name, norm in zip(measured.tensor_names, measured.record.gradient_norms.tolist(), strict=True):
                if norm != GRADIENT_ABSENT:
                    row[Key("gradient_norm", name)] = norm
            rate = scalars.get("learning_rate")
            if rate is not None:
                self._rates.append((self._now, rate))
        super().gate(stream, seen, measured)

    def updated(self, stream: Stream) -> None:
        if not self._jumped or stream is not self._stream or self._now == self._first:
            return
        tables = stream.history.window().tables
        row = self._rows.setdefault(self._now - 1, {})
        for name, columns in (("tensors", TENSOR_COLUMNS), ("modules", MODULE_COLUMNS)):
            table = tables.get(name)
            if table is None or int(table.steps[-1]) != stream.step:
                continue
            if name == "tensors":
                row |= _whole_update(table)
            for column, quantity in columns.items():
                if column in table.columns:
                    values = table.values[-1, :, table.columns.index(column)].tolist()
                    row |= {
                        Key(quantity, tensor): value
                        for tensor, value in zip(table.rows, values, strict=True)
                        if not math.isnan(value) and not (quantity == "headroom" and value < HALF_HEADROOM)
                    }

    def _measured_all(self, outcome: Replayed | str, trace: object) -> None:
        self._finished(self._course(), outcome, self._rates)

    def _course(self) -> Course:
        keys = tuple(dict.fromkeys(key for row in self._rows.values() for key in row))
        place = {key: at for at, key in enumerate(keys)}
        steps = np.array(sorted(self._rows), np.int64)
        values = np.full((len(steps), len(keys)), np.nan)
        for number, step in enumerate(steps.tolist()):
            for key, value in self._rows[step].items():
                values[number, place[key]] = value if math.isfinite(value) else math.inf
        return Course(steps, keys, values)


def _whole_update(table: Table) -> dict[Key, float]:
    """The update ratio over all weights together, which is less noisy than that of single tensors."""
    columns = [table.columns.index(name) for name in ("update_norm", "weight_norm")]
    update, weight = (
        math.sqrt(float(np.nansum(np.square(table.values[-1, :, at], dtype=np.float64)))) for at in columns
    )
    return {Key("update_ratio", ""): update / weight} if weight > 0 else {}
