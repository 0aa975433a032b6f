"""What a look at a step found beside its first bad operation: the ladder, the second opinion, the backends.

Plain values, made by the lab in a launched process and kept as ``locate.json`` in the bundle, where a report finds
them. A ladder is the largest absolute value of each module's output, in the order of the forward, against the largest
number of its dtype. The second opinion is the same step in float64. The backends are eager, aot_eager and what the
script compiles with, on the same batch and state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import JsonValue
from steadytrain.storage.bundle import seal, write_json

LOOK_FILE = "locate.json"
LOOK_BYTES_MAX = 8 << 20

Verdict = Literal["number-format", "mathematics", "input", "both-finite", "unknown"]

VERDICTS: Mapping[Verdict, str] = {
    "number-format": "finite in float64: the number format is at fault",
    "mathematics": "non-finite in float64 too: the mathematics is at fault",
    "input": "what came into the step was not finite: no number format helps",
    "both-finite": "finite in the run's number format and in float64",
    "unknown": "it is not known what float64 gives",
}


@dataclass(frozen=True)
class ModuleMaximum(JsonValue):
    """The output of one module: ``largest`` absolute value in each step of the ladder, None where it was not called.

    NaN and Inf are among the values. ``limit`` is the largest number of ``dtype``; ``headroom_bits`` are the binary
    digits between the last finite value and it.
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
    """Module outputs in the order of the forward, over consecutive ``steps`` that end with the one looked at."""

    steps: tuple[int, ...]
    rungs: tuple[ModuleMaximum, ...]


@dataclass(frozen=True)
class SecondOpinion(
    JsonValue,
    keys="verdict text loss loss_float64 relative_error bad_gradients bad_gradients_float64 not_cast why",
):
    """The step in float64, from the same state. Gradients are counted that are not finite.

    ``not_cast`` names operations that float64 could not do (custom kernels, collectives): their results were taken as
    they were.
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
        """Of the loss against float64; None where one of them is not finite."""
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
    """The step by one backend. ``first_difference`` names the first tensor that differs from eager beyond rounding."""

    backend: str
    loss: float | None
    gradient_norm: float | None
    bad_gradients: int
    first_difference: str | None
    failed: str | None = None


@dataclass(frozen=True)
class Backends(JsonValue):
    """The same step side by side. ``to_blame`` is the first backend that differs; ``compiled_only`` a value that is
    not finite there and finite in eager."""

    rows: tuple[BackendRow, ...]
    to_blame: str | None
    compiled_only: bool
    why: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepLook(JsonValue, keys="step ladder float64:opinion compiled:backends notes"):
    """All of it. A part is None where it was not made; ``notes`` say why."""

    step: int
    ladder: ActivationMaxima | None = None
    opinion: SecondOpinion | None = None
    backends: Backends | None = None
    notes: tuple[str, ...] = ()


def keep_look(bundle: Path, look: StepLook) -> None:
    """Put the look into the bundle, in place of an older one."""
    document = {"format": "steadytrain.step-look", "version": 1, **look.to_json()}
    write_json(bundle / LOOK_FILE, document)
    seal(bundle, LOOK_FILE)


def read_look(bundle: Path) -> StepLook | None:
    """The look that is kept in a bundle, None where none was made.

    Raises:
        UsageError: it is damaged, or of a newer format.
    """
    path = bundle / LOOK_FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LOOK_BYTES_MAX:
            raise ValueError("too large")
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != "steadytrain.step-look" or data["version"] != 1:
            raise ValueError(f"format {data['format']}, version {data['version']}")
        look = StepLook.from_json(data)
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not readable ({error!r}); `steadytrain locate` makes it again") from None
    return look
