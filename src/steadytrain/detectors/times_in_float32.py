"""Times become float32 before a phase or a difference is taken of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class TimesInFloat32(SourceRule):
    """Times become float32 before a phase, a remainder or a difference is taken of them.

    Means:
        A float32 has 24 bits: of a time near 1.7e9 seconds it keeps multiples of 128 seconds, of milliseconds multiples
        of 131,072. The source of the script converts a time as it is, and computes with periods or gaps. What is finer
        than two minutes is rounded away before the model sees it. coarse-inputs reports such an input of the model
        itself.

    Causes:
        - `.float()`, `astype(np.float32)` or a `dtype` on unix times, before an offset is taken off
        - a table that is read as float32 as a whole
        - no fault: periods of some hours and more

    Next:
        1. Take the offset off first, in integers or float64: `(time - time[0]).float()`.
        2. Compute phases and differences in float64, and convert the result.
    """

    kind: ClassVar[str] = "time-in-float32"
    says: ClassVar[str] = (
        "converts a time to float32 as it is, and a phase or difference is taken of it: near 1.7e9 seconds float32 "
        "holds multiples of 128"
    )
