"""The contents of a checkpoint, or of a run's state when it saved, as an inert value: names, shapes and digests, no
tensors.

The half with torch makes these values (``capture/snapshots/state_fingerprints.py`` from a live run, ``checkpoints``
from files); this half compares them. A part that is None was not read or is unavailable; an empty part was read and is
empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steadytrain.core.json_values import JsonValue, number_to_json

CARD_FORMAT = "steadytrain.card"
CARD_VERSION = 1

PARTS: Mapping[str, str] = {
    "weights": "parameters and persistent buffers of the model",
    "moments": "tensors that the optimizer keeps beside each parameter",
    "counters": "the optimizer's count of updates of each parameter",
    "settings": "hyper-parameters of the optimizer's groups: betas, epsilon, learning rate, weight decay, ...",
    "scheduler": "state of the learning-rate schedulers",
    "scaler": "state of the gradient scaler",
    "random": "states of the random generators",
    "position": "where the run stood in its steps and its data",
}
"""The parts of a checkpoint, in the order of reports."""

ENTRIES_MAX = 256
DEPTH_MAX = 4
TEXT_MAX = 400
_NOT_PLAIN: Any = object()


@dataclass(frozen=True)
class Held(JsonValue):
    """One tensor. ``digest`` changes with every bit and with element order; ``norm`` is its L2 norm in float64.

    ``rounded`` names a shorter float format that represents all its (sampled) values exactly, None if there is none.
    """

    shape: tuple[int, ...]
    dtype: str
    digest: str | None = None
    norm: float | None = None
    rounded: str | None = None
    nonfinite: int = 0


Tensors = Mapping[str, Held]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class CheckpointContents(
    JsonValue,
    keys="source kind step weights moments counters settings scheduler scaler random position named notes",
):
    """All contents of one checkpoint.

    ``moments`` is keyed ``<parameter>/<moment>`` and ``counters`` by parameter. ``settings`` has one entry per
    parameter group, with the names of its parameters under ``parameters``. ``named`` says whether the names of the
    optimizer's parameters are known; if not, they are ``parameter.<n>`` by position. ``partial`` marks an adapter:
    weights that it lacks are not missing. ``step`` is None if unknown.
    """

    source: str
    kind: str
    step: int | None = None
    weights: Tensors | None = None
    moments: Tensors | None = None
    counters: Mapping[str, float] | None = None
    settings: tuple[Values, ...] | None = None
    scheduler: tuple[Values, ...] | None = None
    scaler: Values | None = None
    random: Mapping[str, str] | None = None
    position: Values | None = None
    named: bool = True
    partial: bool = False
    notes: tuple[str, ...] = field(default=())

    def has(self, part: str) -> bool:
        """Whether this part was read."""
        return getattr(self, part) is not None

    def to_json(self) -> dict[str, Any]:
        """The fingerprint document of a saved state, as stored in ``saved/``."""
        return {"format": CARD_FORMAT, "version": CARD_VERSION, **super().to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CheckpointContents:
        """The inverse of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: not such a document, or of a newer version.
        """
        if data["format"] != CARD_FORMAT or not isinstance(data["version"], int) or data["version"] > CARD_VERSION:
            raise ValueError(f"its format is {data['format']!r}, version {data['version']!r}")
        return super().from_json(data)


def plain_state(state: Mapping[Any, Any], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The entries of ``state`` that JSON can represent: numbers, words, one-element tensors, and short lists and
    mappings of these.
    """
    found = {str(name): _plain(value, 0) for name, value in state.items() if str(name) not in without}
    return {name: value for name, value in found.items() if value is not _NOT_PLAIN}


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return number_to_json(value)
    if isinstance(value, str):
        return value[:TEXT_MAX]
    if depth >= DEPTH_MAX:
        return _NOT_PLAIN
    if isinstance(value, Mapping) and len(value) <= ENTRIES_MAX:
        entries = {str(name): _plain(entry, depth + 1) for name, entry in value.items()}
        return {name: entry for name, entry in entries.items() if entry is not _NOT_PLAIN}
    if isinstance(value, (list, tuple)) and len(value) <= ENTRIES_MAX:
        plain = [_plain(entry, depth + 1) for entry in value]
        return _NOT_PLAIN if any(entry is _NOT_PLAIN for entry in plain) else plain
    if hasattr(value, "item") and (value.numel() if hasattr(value, "numel") else getattr(value, "size", 0)) == 1:
        return _plain(value.item(), depth + 1)
    return _NOT_PLAIN
