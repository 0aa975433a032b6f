"""What a live view shows of a run, as one frozen value: it converts to JSON, and is drawn by ``drawing.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steadytrain.core.json_values import number_to_json
from steadytrain.core.model import Severity, Symptom
from steadytrain.live.layer_readings import LayerState, LayerStates
from steadytrain.live.stretches import Stretched

RUNNING = "running"


@dataclass(frozen=True)
class CurveShown:
    """A signal: ``whole`` covers the run, ``recent`` its last steps."""

    signal: str
    title: str
    newest: float
    whole: Stretched
    recent: Stretched


@dataclass(frozen=True)
class Pace:
    """How fast the run goes. ``step`` is the last recorded one, ``total`` what was planned; None: not known."""

    step: int | None = None
    recorded: int = 0
    total: int | None = None
    steps_per_s: float | None = None
    eta_s: float | None = None
    silent_s: float | None = None
    """Seconds since the last step, while the run is going on."""

    stalled: bool = False
    """The last step is much longer ago than a step took so far."""

    data_wait_share: float | None = None


@dataclass(frozen=True)
class Precision:
    """The newest measurements that concern number formats, None if they were not made."""

    loss_scale: float | None = None
    scaler_skips: int | None = None
    overflow_share: float | None = None
    underflow_share: float | None = None
    clip_coefficient: float | None = None
    clip_count: int | None = None


@dataclass(frozen=True)
class Device:
    """The newest reading of the host or of an accelerator, by the names of the table ``machine``."""

    name: str
    values: dict[str, float]


@dataclass(frozen=True)
class SymptomShown:
    """A symptom, and the rank whose folder has it (empty: the first process)."""

    symptom: Symptom
    rank: str = ""


@dataclass(frozen=True)
class Picture:
    """A run at one moment. Symptoms are the newest first."""

    name: str
    path: str
    command: str
    policy: str
    started: str
    state: str
    exit_status: int | None
    stream: str
    streams: tuple[str, ...]
    ranks: int
    pace: Pace
    curves: tuple[CurveShown, ...]
    learning_rate: float | None
    precision: Precision
    layers: LayerStates
    devices: tuple[Device, ...]
    symptoms: tuple[SymptomShown, ...]
    counts: dict[Severity, int]
    incidents: tuple[str, ...]
    actions: int
    last_action: str
    notes: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come: the run recorded its end, or its process is gone."""
        return self.state not in (RUNNING, "not recorded")

    def to_json(self) -> dict[str, Any]:
        """The document ``steadytrain.top/1``."""
        return {
            "schema": "steadytrain.top/1",
            "run": self.name,
            "path": self.path,
            "command": self.command,
            "policy": self.policy or None,
            "started": self.started or None,
            "state": self.state,
            "exit_status": self.exit_status,
            "stream": self.stream,
            "streams": list(self.streams),
            "ranks": self.ranks,
            "step": self.pace.step,
            "steps_recorded": self.pace.recorded,
            "steps_planned": self.pace.total,
            "steps_per_s": _number(self.pace.steps_per_s),
            "eta_s": _number(self.pace.eta_s),
            "silent_s": _number(self.pace.silent_s),
            "stalled": self.pace.stalled,
            "data_wait_share": _number(self.pace.data_wait_share),
            "signals": {curve.signal: _curve(curve) for curve in self.curves},
            "learning_rate": _number(self.learning_rate),
            "precision": {name: _number(value) for name, value in vars(self.precision).items()},
            "layers": [_layer(layer) for layer in self.layers.layers],
            "layers_total": self.layers.total,
            "layers_step": self.layers.step,
            "machine": {
                device.name: {name: _number(value) for name, value in device.values.items()} for device in self.devices
            },
            "symptoms": [{"rank": shown.rank or None, **shown.symptom.to_json()} for shown in self.symptoms],
            "counts": dict(self.counts),
            "incidents": list(self.incidents),
            "actions": self.actions,
            "notes": list(self.notes),
        }


def _curve(curve: CurveShown) -> dict[str, Any]:
    whole = curve.whole
    finite = [value for value in (*whole.smallest.tolist(), *whole.largest.tolist()) if value == value]
    return {
        "newest": _number(curve.newest),
        "smallest": _number(min(finite, default=None)),
        "largest": _number(max(finite, default=None)),
        "not_finite": int(whole.bad.sum()),
    }


def _layer(layer: LayerState) -> dict[str, Any]:
    return {
        "name": layer.name,
        "gradient_norm": _number(layer.gradient_norm),
        "peak_over_usual": _number(layer.peak),
        "update_ratio": _number(layer.update_ratio),
        "not_finite": layer.nonfinite,
    }


def _number(value: float | None) -> Any:
    return None if value is None else number_to_json(value)
