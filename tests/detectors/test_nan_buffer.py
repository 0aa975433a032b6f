from __future__ import annotations

from steadytrain.core.model import Window
from steadytrain.detectors.nan_buffer import NanBuffer
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")


def read(**rows: list[float]) -> Window:
    at = [17, 33, 49, 65]
    values = {name.replace("__", ":", 1).replace("nan_buffer", "nan-buffer"): one for name, one in rows.items()}
    return steps(loss=[1.0] * 70, tables={"script": table("script", at=at, value=values)})


SICK = (
    read(nan_buffer__norm=[NAN, 8.0, 8.0, 8.0]),
    read(nan_buffer__mean=[NAN, 8.0, 8.0, 8.0], nan_buffer__var=[NAN, 8.0, 8.0, 8.0]),
)
HEALTHY = (steps(loss=[1.0] * 70), read(nan_buffer__norm=[8.0, NAN, NAN, NAN]), read(decay__norm=[1.0] * 4))


def test_quiet() -> None:
    """Nothing was found, or it is over."""
    assert [NanBuffer().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_buffer_is_named() -> None:
    symptom = newest(NanBuffer(), SICK[1])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 33)
    ends = "hold NaN since step 33 or shortly before: in evaluation mode the outputs are NaN"
    assert symptom.message == f"mean and 1 more buffers {ends}"
