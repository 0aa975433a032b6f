"""What ``locate`` measured besides the first bad operation: activation maxima, a float64 run, the backends.

A launched process makes these plain values and stores them as ``locate.json`` in the bundle; a report reads them. A
ladder holds the largest absolute value of each module's output, in forward order, with the largest number of its dtype.
The second opinion is the same step in float64. The backends are eager, aot_eager and the script's own compiler backend,
on the same batch and state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import JsonValue
from steadytrain.core.own_errors import own
from steadytrain.storage.staged_bundle import change_document

LOOK_FILE = "locate.json"
LOOK_BYTES_MAX = 8 << 20

Verdict = Literal["number-format", "mathematics", "input", "both-finite", "unknown"]

VERDICTS: Mapping[Verdict, str] = {
    "number-format": "finite in float64: the number format is at fault",
    "mathematics": "non-finite in float64 too: the mathematics is at fault",
    "input": "the step's input was not finite: no number format helps",
    "both-finite": "finite in the run's number format and in float64",
    "unknown": "the float64 result is unknown",
}


@dataclass(frozen=True)
class ModuleMaximum(JsonValue):
    """The output of one module: its ``largest`` absolute value in each step of the ladder, None if it was not called.

    Values may be NaN or Inf. ``limit`` is the largest number of ``dtype``. ``headroom_bits`` is the distance in binary
    digits from the last finite value to ``limit``.
    """

    module: str
    kind: str
    dtype: str
    limit: float
    largest: tuple[float | None, ...]

    @property
    def last_finite(self) -> float | None:
        return next((value for value in reversed(self.largest) if value is not None and math.isfinite(value)), None)

    @property
    def headroom_bits(self) -> float | None:
        value = self.last_finite
        return None if not value else math.log2(self.limit) - math.log2(value)

    @property
    def broke(self) -> bool:
        """Whether the output was not finite in the last step."""
        last = self.largest[-1] if self.largest else None
        return last is not None and not math.isfinite(last)

    def to_json(self) -> dict[str, Any]:
        bits = self.headroom_bits
        return {**super().to_json(), "headroom_bits": None if bits is None else round(bits, 2)}


@dataclass(frozen=True)
class ActivationMaxima(JsonValue):
    """Module outputs in forward order, over consecutive ``steps`` that end with the analysed one."""

    steps: tuple[int, ...]
    rungs: tuple[ModuleMaximum, ...]


@dataclass(frozen=True)
class SecondOpinion(
    JsonValue,
    keys="verdict text loss loss_float64 relative_error bad_gradients bad_gradients_float64 not_cast why",
):
    """The step in float64, from the same state, with counts of non-finite gradients.

    ``not_cast`` names operations that have no float64 form (custom kernels, collectives). Their results were used as
    they are.
    """

    verdict: Verdict
    loss: float | None
    loss_float64: float | None
    bad_gradients: int
    bad_gradients_float64: int
    not_cast: tuple[str, ...] = ()
    why: str = ""

    @property
    def relative_error(self) -> float | None:
        """Relative error of the loss against float64, None if either is not finite."""
        if self.loss is None or self.loss_float64 is None:
            return None
        if not math.isfinite(self.loss) or not math.isfinite(self.loss_float64):
            return None
        scale = abs(self.loss_float64)
        return abs(self.loss - self.loss_float64) / scale if scale else abs(self.loss - self.loss_float64)

    @property
    def text(self) -> str:
        return f"{VERDICTS[self.verdict]}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True)
class BackendRow(JsonValue, closed=True):
    """The step with one backend. ``first_difference`` names the first tensor that differs from eager beyond
    rounding.
    """

    backend: str
    loss: float | None
    gradient_norm: float | None
    bad_gradients: int
    first_difference: str | None
    failed: str | None = None


@dataclass(frozen=True)
class Backends(JsonValue):
    """The same step with each backend. ``to_blame`` is the first backend that differs. ``compiled_only`` is a value
    that is non-finite there but finite in eager."""

    rows: tuple[BackendRow, ...]
    to_blame: str | None
    compiled_only: bool
    why: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepLook(JsonValue, keys="step ladder float64:opinion compiled:backends notes"):
    """All measurements of a step. A part is None if it was not made; ``notes`` say why."""

    step: int
    ladder: ActivationMaxima | None = None
    opinion: SecondOpinion | None = None
    backends: Backends | None = None
    notes: tuple[str, ...] = ()


def keep_look(bundle: Path, look: StepLook) -> None:
    """Store the measurements in the bundle. Replaces older ones."""
    document = {"format": "steadytrain.step-look", "version": 1, **look.to_json()}
    change_document(bundle, LOOK_FILE, document)


def read_look(bundle: Path) -> StepLook | None:
    """The measurements stored in a bundle, None if there are none.

    Raises:
        UsageError: damaged, or of a newer format.
    """
    path = bundle / LOOK_FILE
    if not path.is_file():
        return None
    try:
        data = read_json(path, bytes_max=LOOK_BYTES_MAX)
        if data["format"] != "steadytrain.step-look" or data["version"] != 1:
            raise ValueError(f"format {data['format']}, version {data['version']}")
        look = StepLook.from_json(data)
    except own(OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not readable ({error!r}); `steadytrain locate` makes it again") from None
    return look
