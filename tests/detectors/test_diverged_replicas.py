"""Replicas with equal gradients and other weights."""

from __future__ import annotations

import pytest

from rank_windows import alone, ranked
from steadytrain.core.model import Symptom
from steadytrain.detectors.diverged_replicas import DivergedReplicas
from steadytrain.testing import newest

HEALTHY = (alone(), ranked(), ranked(gradients_apart__1=17, weights_apart__1=33))
SICK = (ranked(weights_apart__1=33, weights_together__all=17),)


def found(**rows: float) -> Symptom | None:
    return newest(DivergedReplicas(), ranked(**rows))


def test_quiet() -> None:
    assert [DivergedReplicas().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_replicas_that_drift_and_replicas_that_began_apart() -> None:
    symptom = found(weights_apart__1=33, weights_together__all=17)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 33)
    assert "at step 33 (last seen equal at step 17)" in symptom.message
    began = found(weights_apart__1=1, weights_together__all=0)
    assert began is not None
    assert began.message == "the weights of rank 1 differed from rank 0 from the start, although gradients are shared"
    state = found(weights_apart__1=2, weights_together__all=1, state_apart__1=1)
    assert state is not None
    assert state.message.endswith("; its optimizer state differed before step 1")


@pytest.mark.parametrize(
    "rows",
    [
        {"gradients_apart__1": 17},  # another fault
        {"rate_apart__1": 16},
        {"setting_apart__1": 1},
        {"rate_first__1": 30, "rate_steps__1": 1},
        {"wrapped__all": 0, "gradients_together__all": 3},  # nobody knows that it is one model
    ],
    ids=str,
)
def test_weights_that_differ_for_a_reason(rows: dict[str, float]) -> None:
    assert found(weights_apart__1=33, weights_together__all=17, **rows) is None


def test_all_ranks_that_differ_are_named() -> None:
    rows = {"weights_together__all": 17, "ranks__all": 4}
    some = found(**rows, weights_apart__1=33, weights_apart__3=33)
    assert some is not None
    assert some.message.startswith("the weights on ranks 1 and 3 differ from the other ranks at step 33")
    tensor = found(**rows, weights_apart__1=33, weights_apart__3=33, weights_apart__1___a=33, weights_apart__3___a=33)
    assert tensor is not None
    assert tensor.message.startswith("a on ranks 1 and 3 differs from the other ranks at step 33")
    each = {f"weights_apart__{rank}": 1 for rank in (1, 2, 3)}
    every = found(ranks__all=4, weights_together__all=0, **each, weights_unlike__all=1)
    assert every is not None
    assert every.message == "the weights differed on all 4 ranks from the start, although gradients are shared"


def test_many_ranks_are_counted() -> None:
    symptom = found(ranks__all=32, weights_together__all=17, **{f"weights_apart__{rank}": 33 for rank in range(1, 13)})
    assert symptom is not None
    assert "on ranks 1, 2, 3, 4, 5, 6, 7, 8 and 4 more differ from the other ranks" in symptom.message


def test_a_part_of_a_split_model_that_drifts_is_named() -> None:
    rows = {"weights_together__all": 17, "ranks__all": 4, "sharded__all": 1, "wrapped__all": 1, "weights_apart__3": 33}
    symptom = found(**rows, weights_apart__3___a=33, weights_count__3=1, beside__3=1, state_apart__3=33)
    assert symptom is not None
    assert symptom.message == (
        "a on rank 3 differs from rank 1 at step 33 (last seen equal at step 17), although it is replicated"
    )
    many = found(**rows, weights_apart__3___a=33, weights_apart__3___b=33, weights_count__3=9, beside__3=-1)
    assert many is not None
    assert many.message.startswith("a, b and 7 more on rank 3 differ from the other ranks that hold it at step 33")


def test_a_buffer_is_a_warning() -> None:
    symptom = found(weights_together__all=33, buffers_apart__1=17, buffers_apart__1___mask=17)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("the buffer mask on rank 1 differs from rank 0 at step 17, although")
