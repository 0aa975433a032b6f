from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from steadytrain.core.model import GRADIENT_ABSENT
from steadytrain.detectors.nonfinite_gradient import NonfiniteGradient
from steadytrain.testing import newest, steps

NAN, INF = math.nan, math.inf
Norms = Mapping[str, Sequence[float]]

QUIET: dict[str, tuple[Norms, Sequence[int]]] = {
    "finite": ({"a": [1.0, 1e30], "b": [0.0, 2.0]}, []),
    "a parameter without a gradient": ({"a": [1.0, GRADIENT_ABSENT]}, []),
    "skipped by a scaler": ({"a": [1.0, INF]}, [2]),
    "skipped many times": ({"a": [NAN] * 20}, range(1, 21)),
}

SICK = (steps(gradient_norm=[1.0, NAN], gradient_norms={"a": [1.0, NAN], "b": [1.0, 1.0]}),)
HEALTHY = tuple(steps(gradient_norms=norms, skipped=skipped) for norms, skipped in QUIET.values())


@pytest.mark.parametrize(("norms", "skipped"), QUIET.values(), ids=QUIET)
def test_quiet(norms: Norms, skipped: Sequence[int]) -> None:
    assert newest(NonfiniteGradient(), steps(gradient_norms=norms, skipped=skipped)) is None


def test_quiet_without_any_gradient() -> None:
    assert newest(NonfiniteGradient(), steps(loss=[NAN, NAN])) is None
    assert newest(NonfiniteGradient(), steps()) is None
    assert newest(NonfiniteGradient(), steps(gradient_norm=[1.0, None])) is None
    assert newest(NonfiniteGradient(), steps(gradient_norm=[1.0, NAN], skipped=[2])) is None


BAD: dict[str, tuple[Norms, Sequence[int], tuple[int, int], tuple[str, ...], str]] = {
    "one tensor NaN": ({"a": [1, 1], "b": [1, NAN]}, [], (2, 2), ("b",), "the gradient of b holds NaN at step 2"),
    "one tensor Inf": ({"a": [1, INF], "b": [1, 1]}, [], (2, 2), ("a",), "the gradient of a holds Inf at step 2"),
    "both": (
        {"a": [1, INF], "b": [1, NAN], "c": [1, 1]},
        [],
        (2, 2),
        ("a", "b"),
        "the gradient of 2 of 3 tensors (a first) holds NaN or Inf at step 2",
    ),
    "the first bad step names the tensors": (
        {"a": [1, 1, NAN], "b": [1, NAN, NAN]},
        [],
        (2, 3),
        ("b",),
        "the gradient of b holds NaN from step 2 to 3",
    ),
    "a skipped step between does not end it": (
        {"a": [1, NAN, NAN, NAN]},
        [3],
        (2, 4),
        ("a",),
        "the gradient of a holds NaN from step 2 to 4",
    ),
    "a skipped step before does not begin it": (
        {"a": [1, NAN, NAN]},
        [2],
        (3, 3),
        ("a",),
        "the gradient of a holds NaN at step 3",
    ),
}


@pytest.mark.parametrize(("norms", "skipped", "span", "tensors", "message"), BAD.values(), ids=BAD)
def test_bad(
    norms: Norms, skipped: Sequence[int], span: tuple[int, int], tensors: tuple[str, ...], message: str
) -> None:
    symptom = newest(NonfiniteGradient(), steps(gradient_norms=norms, skipped=skipped))
    assert symptom is not None
    assert (symptom.name, symptom.severity, symptom.tensors) == ("nonfinite-gradient", "critical", tensors)
    assert (symptom.first_step, symptom.last_step) == span
    assert symptom.message == message


def test_the_global_norm_alone_is_enough() -> None:
    symptom = newest(NonfiniteGradient(), steps(gradient_norm=[1.0, INF]))
    assert symptom is not None
    assert symptom.message == "the global gradient norm is not finite at step 2"
    overflowed = newest(NonfiniteGradient(), steps(gradient_norm=[1.0, INF], gradient_norms={"a": [1.0, 1e30]}))
    assert overflowed is not None
    assert "though that of every tensor is finite" in overflowed.message
    assert overflowed.tensors == ()


def test_a_refused_step_counts_because_it_was_refused_for_this() -> None:
    assert newest(NonfiniteGradient(), steps(gradient_norms={"a": [1.0, NAN]}, refused=[2])) is not None


def test_the_list_of_tensors_is_bounded_and_their_count_is_kept() -> None:
    symptom = newest(NonfiniteGradient(), steps(gradient_norms={f"layer.{i}": [1.0, NAN] for i in range(40)}))
    assert symptom is not None
    assert symptom.tensors == tuple(f"layer.{i}" for i in range(16))
    assert symptom.numbers["tensors"] == symptom.numbers["nan_tensors"] == 40.0


def test_a_run_that_stays_nan_for_ever_is_not_a_new_symptom_at_every_look() -> None:
    norms = {"a": [NAN] * 512}
    looks = [newest(NonfiniteGradient(), steps(gradient_norms=norms, first_step=at)) for at in range(5000, 5200, 16)]
    assert len({symptom.first_step for symptom in looks if symptom is not None}) <= 2


def test_two_faults_apart_are_two_and_one_that_comes_and_goes_is_one() -> None:
    apart = NonfiniteGradient().check(steps(gradient_norms={"a": [NAN] + [1.0] * 17 + [NAN]}))
    assert [(symptom.first_step, symptom.last_step) for symptom in apart] == [(1, 1), (19, 19)]
    (once,) = NonfiniteGradient().check(steps(gradient_norms={"a": [1.0, NAN] * 40}))
    assert (once.first_step, once.last_step, once.numbers["steps"]) == (2, 80, 40.0)
