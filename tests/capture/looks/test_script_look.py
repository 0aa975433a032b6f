"""What a look at real loops finds, and what it leaves alone: loops with a fault, and loops that look like them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from looked_loops import (
    STEPS,
    Found,
    Step,
    accumulated,
    all_data_at_once,
    all_rows_of_the_loader,
    cleared_to_zeros,
    closure,
    copies_in_float64,
    experts_now_and_then,
    features_are_frozen,
    features_stay,
    found,
    four_updates_a_batch,
    head_replaced,
    model_replaced,
    teacher_in_a_list,
    two_that_play_against_each_other,
    unfrozen,
)
from looked_losses import (
    NOT_SPREAD,
    SICK,
    WELL_USED,
    back_to_training,
    both_at_zero,
    ends_count,
    evaluation_from_the_start,
    filled_up,
    given_labels,
    hidden,
    next_ones,
    normalisation_stays,
    reads,
    resumed,
    same,
    scheduled,
    tied,
    weight_average,
    with_a_head,
)
from looked_scores import sliced, translated

from parameters import long
from steadytrain.core.model import Severity
from steadytrain.diagnosis.case_with_run import open_story
from steadytrain.statistics.script_rows import script_rows

QUANTILES = "quantiles"
ALIKE = ("log softmax", "log of softmax", QUANTILES, "row")
"""Losses whose neighbours say the same: cross entropy, distillation, pairs on purpose, a column."""

HEALTHY = [
    (features_stay, {"parameters-outside-optimizer": "note"}),
    *(
        (begin, {"left-in-evaluation": "warning"} if begin is evaluation_from_the_start else {})
        for begin in (
            features_are_frozen,
            teacher_in_a_list,
            two_that_play_against_each_other,
            copies_in_float64,
            cleared_to_zeros,
            accumulated,
            closure,
            all_data_at_once,
            four_updates_a_batch,
            *(WELL_USED[name] for name in WELL_USED if name not in ALIKE),
            *(NOT_SPREAD[name] for name in NOT_SPREAD if name not in ALIKE),
            reads(next_ones),
            sliced(front=True),
            translated,
            given_labels(same),
            reads(hidden, causal=False),
            reads(lambda ids: filled_up(ids, ignored=True)),
            with_a_head(tied),
            resumed(moments=True, schedule=True),
            resumed(moments=False, schedule=False),
            back_to_training,
            evaluation_from_the_start,
            normalisation_stays,
            scheduled(every=1),
            scheduled(every=0, kind=weight_average),
        )
    ),
    *(long(each[QUANTILES], {"broadcast-loss": "note"}) for each in (WELL_USED, NOT_SPREAD)),
    *(
        long(begin, {})
        for begin in (
            all_rows_of_the_loader,
            *(WELL_USED[name] for name in WELL_USED if name in ALIKE and name != QUANTILES),
            *(NOT_SPREAD[name] for name in NOT_SPREAD if name in ALIKE and name != QUANTILES),
            reads(next_ones, by_hand=True),
            reads(ends_count),
            with_a_head(both_at_zero),
            scheduled(every=4),
        )
    ),
]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(("begin", "name", "severity"), SICK)
def test_a_fault_is_told(begin: Callable[[], Step], name: str, severity: Severity, tmp_path: Path) -> None:
    assert found(tmp_path / "run", begin) == {name: severity}


@pytest.mark.parametrize(("begin", "expected"), HEALTHY)
def test_what_looks_like_one_is_not(begin: Callable[[], Step], expected: Found, tmp_path: Path) -> None:
    assert found(tmp_path / "run", begin, steps=2 * STEPS) == expected


LATER = 41
"""A step in which no look is due, and the first of a second stage."""


@pytest.mark.parametrize("frozen", [True, False])
def test_a_head_that_is_replaced_in_the_middle_is_told(frozen: bool, tmp_path: Path) -> None:
    begin = head_replaced(LATER, frozen=frozen, given=False)
    assert found(tmp_path / "run", begin, steps=2 * LATER)["parameters-outside-optimizer"] == "warning"


def test_a_model_that_is_replaced_in_the_middle_is_told(tmp_path: Path) -> None:
    begin = model_replaced(LATER, given=False)
    assert found(tmp_path / "run", begin, steps=2 * LATER)["parameters-outside-optimizer"] == "warning"


def test_scores_without_their_last_place_are_not_those_of_the_next(tmp_path: Path) -> None:
    assert found(tmp_path / "run", sliced(front=False)) == {"misplaced-labels": "warning"}


def test_a_network_whose_optimizer_got_the_parameters_of_another_is_told(tmp_path: Path) -> None:
    begin = functools.partial(two_that_play_against_each_other, mixed_up=True)
    assert found(tmp_path / "run", begin, steps=2 * STEPS)["parameters-outside-optimizer"] == "warning"


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_a_part_that_is_unfrozen_without_the_optimizer_is_told(given: bool, apart: bool, tmp_path: Path) -> None:
    told = found(tmp_path / "run", unfrozen(LATER, given=given, apart=apart), steps=2 * LATER)
    assert told.get("parameters-outside-optimizer") == (None if given else "warning")


def test_parameters_that_join_in_the_middle_are_counted(tmp_path: Path) -> None:
    begin = head_replaced(LATER, frozen=True, given=True)
    found(tmp_path / "run", begin, steps=2 * LATER)
    case = open_story(tmp_path / "run", onset=LATER)
    assert case.facts["optimizer"] in {"SGD", "Adam", "AdamW"}, "fixes are written for the optimizer of the run"
    (row,) = script_rows(case.window, "joined-parameters")
    told = np.isfinite(row.values)
    assert (row.steps[told].tolist(), row.values[told].tolist()) == ([LATER], [2.0])


@pytest.mark.parametrize(
    "begin",
    [
        model_replaced(LATER, given=True),
        head_replaced(LATER, frozen=True, given=True),
        head_replaced(LATER, frozen=False, given=True),
        experts_now_and_then,
    ],
    ids=["a new model", "given, the rest frozen", "given", "experts"],
)
def test_other_parameters_with_a_gradient_are_no_fault(begin: Callable[[], Step], tmp_path: Path) -> None:
    assert "parameters-outside-optimizer" not in found(tmp_path / "run", begin, steps=2 * LATER)
