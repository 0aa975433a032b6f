from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from steadytrain.core.model import Window
from steadytrain.detectors.lost_updates import LostUpdates
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")
NAMES = ("emb", "w.0", "w.1", "norm")
BFLOAT16 = {"emb": 0.0703125, "w.0": 0.4375, "w.1": 0.3125, "norm": 1.0}
FLOAT32 = {"emb": 0.0712345, "w.0": 0.4311117, "w.1": 0.3123457, "norm": 1.0}


def window(
    shares: Sequence[Sequence[float]], weights: dict[str, float], rate: Sequence[float] | None = None, every: int = 50
) -> Window:
    at = range(every, every * len(shares[0]) + 1, every)
    readings = table(
        "tensors",
        at=at,
        unchanged_share=dict(zip(NAMES, shares, strict=True)),
        weight_min={name: [-value] * len(at) for name, value in weights.items()},
        weight_max={name: [value] * len(at) for name, value in weights.items()},
    )
    return steps(learning_rate=rate or [1e-5] * at[-1], tables={"tensors": readings})


NONE, SOME, MOST = [0.01] * 8, [0.45] * 8, [0.85] * 8
NEVER = [NAN] * 8
TO_ZERO = [*np.linspace(1e-3, 1e-6, 300).tolist(), *[1e-7] * 100]
LATE = [0.0] * 6 + [0.9] * 2

HEALTHY = (
    window([NONE] * 4, BFLOAT16),
    window([NEVER] * 4, BFLOAT16),
    window([[NAN] * 7 + [1.0]] * 4, BFLOAT16),  # measured once
    window([[0.01, 0.9, 0.01, 0.9, 0.01, 0.01, 0.9, 0.01]] * 4, BFLOAT16),  # readings with a tiny gradient
    window([MOST] * 4, FLOAT32),  # float32 and tiny gradients: a run that has learned what there is
    window([LATE] * 4, BFLOAT16, rate=TO_ZERO),  # the end of a schedule
    window([[1.0] * 3] * 4, BFLOAT16, every=1),  # three steps in a row are one reading of a slow fault
)
SICK = (
    window([MOST, MOST, MOST, MOST], BFLOAT16),
    window([NONE, NONE, NONE, [1.0] * 8], BFLOAT16),
    window([SOME, NONE, NONE, NONE], {name: float(np.float16(value)) for name, value in FLOAT32.items()}),
)


def test_quiet() -> None:
    quiet = (*HEALTHY[:4], *HEALTHY[5:])
    assert [LostUpdates().check(sight) for sight in quiet] == [()] * len(quiet)


def test_in_float32_it_is_a_note() -> None:
    symptom = newest(LostUpdates(), HEALTHY[4])
    assert symptom is not None
    assert symptom.severity == "note"


def test_half_of_the_tensors_is_critical() -> None:
    symptom = newest(LostUpdates(), window([MOST, MOST, MOST, NONE], BFLOAT16))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("critical", 50, 400)
    assert symptom.tensors == ("emb", "w.0", "w.1")
    assert symptom.numbers["unchanged_share_median"] > 0.5


def test_a_gain_that_stays_at_one_is_a_warning() -> None:
    symptom = newest(LostUpdates(), window([NONE, NONE, NONE, [1.0] * 8], BFLOAT16))
    assert symptom is not None
    assert (symptom.severity, symptom.tensors) == ("warning", ("norm",))


def test_it_begins_where_it_began() -> None:
    symptom = newest(LostUpdates(), window([NONE, [0.0] * 3 + [0.9] * 5, NONE, NONE], BFLOAT16))
    assert symptom is not None
    assert (symptom.first_step, symptom.tensors) == (200, ("w.0",))


def test_what_an_optimizer_keeps_and_adds_later_is_a_note() -> None:
    def read(share: float) -> Window:
        sick = SICK[0]
        rows = table("script", at=[17], value={"remainders-kept:KahanAdam": [share]})
        return replace(sick, tables={**sick.tables, "script": rows})

    kept, half_kept = newest(LostUpdates(), read(1.0)), newest(LostUpdates(), read(0.25))
    assert kept is not None
    assert kept.severity == "note"
    assert kept.message.endswith("; KahanAdam keeps what was rounded away, and adds it later")
    assert half_kept is not None
    assert half_kept.severity == "critical"


def test_weights_that_move_over_many_updates_are_a_note() -> None:
    def read(*shares: float) -> Window:
        sick = SICK[0]
        rows = table(
            "script", at=[81 + 64 * number for number in range(len(shares))], value={"unmoved:SrAdam": list(shares)}
        )
        return replace(sick, tables={**sick.tables, "script": rows})

    at_random, lost = newest(LostUpdates(), read(0.3, 0.05)), newest(LostUpdates(), read(0.05, 0.3))
    assert at_random is not None
    assert at_random.severity == "note"
    assert at_random.message.endswith("all except 5% of the elements move: they are rounded at random")
    assert lost is not None
    assert lost.severity == "critical"
