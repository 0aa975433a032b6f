"""Follows one run folder: each poll reads what is new, and returns the picture of that moment.

Memory does not grow with the run: curves are kept as stretches, the last steps in a ring, and of the index the newest
entries. Nothing is written into the folder.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action
from steadytrain.core.model import Severity
from steadytrain.live.layer_readings import LayerFollower, LayerStates
from steadytrain.live.picture import RUNNING, CurveShown, Device, Pace, Picture, Precision, SymptomShown
from steadytrain.live.recent_steps import RecentSteps
from steadytrain.live.stretches import STRETCHES_MAX, Stretches
from steadytrain.report.wording import clean
from steadytrain.storage.left_overs import ended_or_state
from steadytrain.storage.run_folder import RUN_FILE, read_description
from steadytrain.storage.run_news import News, NewsReader
from steadytrain.storage.step_tail import StepTail
from steadytrain.storage.stopped_recording import stopped_sentence
from steadytrain.storage.table_tail import TableTail

CURVES = {"loss": "loss", "gradient_norm": "gradient norm"}
RANKS_MAX = 64
SYMPTOMS_MAX = 200
STALLED_TIMES = 20
"""A run counts as stalled when its last step is this many usual steps ago, and ``STALLED_S_MIN``: evaluations and
checkpoints between two steps take as long as some steps."""

STALLED_S_MIN = 30.0


class RunFollower:
    """The run in the folder ``path``.

    Args:
        path: the run folder.
        stream: the stream to show; by default the first one.
        total: the number of steps that the run will make, if it does not record that itself.
        stretches_max: how finely curves of the whole run are kept.
    """

    def __init__(
        self,
        path: Path,
        *,
        stream: str | None = None,
        total: int | None = None,
        stretches_max: int = STRETCHES_MAX,
    ) -> None:
        self._path = path
        self._description = read_description(path)
        self._wanted = stream
        self._total = total
        self._news = NewsReader(path)
        self._rank_news: dict[Path, NewsReader] = {}
        self._stream: str | None = None
        self._curves = {signal: Stretches(stretches_max) for signal in CURVES}
        self._recent = RecentSteps()
        self._recorded = 0
        self._notes: dict[str, str] = {}
        self._layer_states = LayerStates()
        self._devices: tuple[Device, ...] = ()

    def poll(self, now: float) -> Picture:
        """Read what is new. ``now`` is the wall-clock time in seconds since 1970.

        Raises:
            UsageError: the folder is gone or damaged.
        """
        if not (self._path / RUN_FILE).is_file():
            raise UsageError(f"{self._path}: the run folder is gone; it was moved or deleted while it was shown")
        news = self._news.read()
        streams = self._find_stream()
        if self._stream is not None:
            self._read_steps()
            self._read_tables()
        return self._picture(news, streams, now)

    def _find_stream(self) -> tuple[str, ...]:
        """The streams there are now; the first time that there is one, begin to follow it."""
        folder = self._path / "steps"
        names = [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
        names.sort(key=lambda name: (name != "main", name))
        if self._stream is None and names:
            if self._wanted is not None and self._wanted not in names:
                raise UsageError(f"{self._path}: no stream {self._wanted!r}; it has: {', '.join(names)}")
            self._stream = self._wanted or names[0]
            self._steps = StepTail(folder / self._stream)
            tables = self._path / "tables" / self._stream
            self._layers = LayerFollower(tables)
            self._machine = TableTail(tables / "machine", readings_max=1)
        return tuple(names)

    def _read_steps(self) -> None:
        for window in self._steps.read():
            self._recorded += len(window)
            self._recent.add(window)
            for signal, stretches in self._curves.items():
                if signal in window.signals:
                    here = window.present[signal]
                    stretches.add(window.steps[here], window.signals[signal][here])

        if self._steps.damaged is not None:
            self._notes["steps"] = f"{clean(self._steps.damaged)} is damaged: steps behind the damage are not shown"

    def _read_tables(self) -> None:
        """A table that cannot be read is a note: the steps are still worth showing."""
        try:
            self._layer_states = self._layers.read()
            machine = self._machine.read()
            if machine is not None:
                self._devices = tuple(
                    Device(row, _measured(machine.columns, machine.values[-1, place]))
                    for place, row in enumerate(machine.rows)
                )
        except UsageError as error:
            self._notes["tables"] = clean(error)

    def _picture(self, news: News, streams: tuple[str, ...], now: float) -> Picture:
        ended = news.facts.get("ended")
        state = ended_or_state(ended if isinstance(ended, str) else None, self._description)
        ranks = sorted(entry for entry in (self._path / "ranks").glob("*") if (entry / RUN_FILE).is_file())
        symptoms, counts = self._symptoms(news, ranks)
        argv = self._description.get("argv")
        status = news.facts.get("exit_status")
        return Picture(
            name=clean(self._description.get("name") or self._path.absolute().name),
            path=str(self._path),
            command=clean(" ".join(map(str, argv)) if isinstance(argv, list) else ""),
            policy=clean(self._description.get("policy") or ""),
            started=clean(self._description.get("started") or ""),
            state=clean(state),
            exit_status=status if isinstance(status, int) else None,
            stream=clean(self._stream or ""),
            streams=tuple(map(clean, streams)),
            ranks=len(ranks),
            pace=self._pace(news, state, now),
            curves=self._drawn(),
            learning_rate=self._recent.newest("learning_rate"),
            precision=self._precision(),
            layers=self._layer_states,
            devices=self._devices,
            symptoms=symptoms,
            counts=counts,
            incidents=tuple(str(bundle) for bundle in news.incidents),
            actions=news.actions,
            last_action=_action(news.last_action),
            notes=(*map(clean, stopped_sentence(self._path)), *self._notes.values()),
        )

    def _drawn(self) -> tuple[CurveShown, ...]:
        found = []
        for signal, title in CURVES.items():
            whole, recent, newest = (
                self._curves[signal].held(),
                self._recent.stretched(signal),
                self._recent.newest(signal),
            )
            if whole is not None and recent is not None and newest is not None:
                found.append(CurveShown(signal, title, newest, whole, recent))
        return tuple(found)

    def _pace(self, news: News, state: str, now: float) -> Pace:
        recent = self._recent
        if recent.step is None:
            return Pace(total=self._planned(news))
        running = state in (RUNNING, "not recorded")
        silent = max(0.0, now - recent.time) if running else None
        usual = recent.usual_step_s()
        stalled = silent is not None and silent > max(STALLED_S_MIN, STALLED_TIMES * (usual or 0.0))
        total, rate = self._planned(news), recent.steps_per_s()
        left = total - recent.step if total is not None else None
        eta = left / rate if running and not stalled and left is not None and left >= 0 and rate else None
        return Pace(recent.step, self._recorded, total, rate, eta, silent, stalled, recent.data_wait_share())

    def _planned(self, news: News) -> int | None:
        planned = news.facts.get("planned_steps")
        if self._total is not None:
            return self._total
        return int(planned) if isinstance(planned, (int, float)) and 0 < planned < 1e15 else None

    def _precision(self) -> Precision:
        newest = self._recent.newest
        skips, clips = newest("scaler_skips"), newest("clip_count")
        return Precision(
            newest("loss_scale"),
            _whole(skips),
            newest("overflow_share"),
            newest("underflow_share"),
            newest("clip_coefficient"),
            _whole(clips),
        )

    def _symptoms(self, news: News, ranks: list[Path]) -> tuple[tuple[SymptomShown, ...], dict[Severity, int]]:
        """Those of all processes, the newest first."""
        found = [SymptomShown(symptom) for symptom in news.symptoms]
        counts: Counter[Severity] = Counter(news.counts)
        for rank in ranks[:RANKS_MAX]:
            try:
                own = self._rank_news.setdefault(rank, NewsReader(rank)).read()
            except UsageError as error:
                self._notes[rank.name] = clean(error)
                continue
            found += [SymptomShown(symptom, clean(rank.name)) for symptom in own.symptoms]
            counts.update(own.counts)
        found.sort(key=lambda shown: (shown.symptom.last_step, shown.symptom.first_step), reverse=True)
        return tuple(found[:SYMPTOMS_MAX]), dict(counts)


def _measured(columns: tuple[str, ...], values: Any) -> dict[str, float]:
    return {name: float(value) for name, value in zip(columns, values, strict=True) if not np.isnan(value)}


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and np.isfinite(value) else None


def _action(action: Action | None) -> str:
    return clean(f"{action.what} at step {action.step:,}") if action is not None else ""
