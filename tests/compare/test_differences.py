"""Holdings against each other: every kind of difference, and what is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steadytrain.compare.audit import audit
from steadytrain.compare.checkpoint_contents import CheckpointContents, Held, plain_state
from steadytrain.compare.differences import compare
from steadytrain.compare.tensor_differences import compare_tensors

SHAPE = (4, 4)


def held(digest: str, norm: float = 1.0, **more: Any) -> Held:
    return Held(more.pop("shape", SHAPE), more.pop("dtype", "float32"), digest, norm, **more)


WEIGHTS = {name: held(f"w-{name}", norm) for name, norm in (("a", 1.0), ("b", 2.0), ("c", 3.0))}
MOMENTS = {f"{name}/{kind}": held(f"{kind}-{name}", 0.1) for name in "abc" for kind in ("exp_avg", "exp_avg_sq")}
WHOLE = CheckpointContents(
    source="x",
    kind="torch.save",
    step=4,
    weights=WEIGHTS,
    moments=MOMENTS,
    counters=dict.fromkeys("abc", 4.0),
    settings=({"lr": 0.1, "betas": [0.9, 0.999], "parameters": ["a", "b", "c"]},),
    scheduler=({"last_epoch": 4, "_last_lr": [0.1]},),
    random={"torch": "1", "python": "2"},
    position={"global_step": 4},
)


def told(found: CheckpointContents, expected: CheckpointContents = WHOLE, **more: Any) -> set[tuple[str, str, str]]:
    return {(d.kind, d.part, d.name) for d in audit(found, expected, **more).differences}


def test_the_same_has_no_difference() -> None:
    assert told(WHOLE) == set()
    assert CheckpointContents.from_json(WHOLE.to_json()) == replace(WHOLE, settings=WHOLE.settings)


def test_of_another_step_values_may_differ() -> None:
    later = replace(
        WHOLE,
        step=9,
        weights={name: held(f"later-{name}") for name in "abc"},
        moments={name: held(f"later-{name}") for name in MOMENTS},
        counters=dict.fromkeys("abc", 9.0),
        scheduler=({"last_epoch": 9, "_last_lr": [0.01]},),
        random={"torch": "8", "python": "9"},
        position={"global_step": 9},
        settings=({"lr": 0.01, "betas": (0.9, 0.999), "parameters": ["a", "b", "c"]},),
    )
    assert {entry for entry in told(later) if entry[1] != "scheduler"} == set()


def test_a_tied_weight_that_is_saved_once_is_not_missing() -> None:
    tied = {**WEIGHTS, "head": WEIGHTS["a"]}
    assert compare_tensors("weights", WEIGHTS, tied) == []
    assert compare_tensors("weights", tied, WEIGHTS) == []


def test_a_prefix_is_no_difference() -> None:
    assert compare_tensors("weights", {f"model.{name}": value for name, value in WEIGHTS.items()}, WEIGHTS) == []


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("a", None, "missing"),
        ("a", held("w-a", shape=(16,)), "reshaped"),
        ("a", held("z", dtype="bfloat16"), "cast"),
        ("a", held("z", rounded="bfloat16"), "cast"),
        ("a", WEIGHTS["b"], "swapped"),
        ("a", held("old", 1.5), "stale"),
        ("a", held("z", 7.0), "changed"),
        ("a", held("z", 0.0), "missing"),
        ("a", held("z", 1.0, nonfinite=3), "changed"),
        ("d", held("z"), "unexpected"),
    ],
)
def test_each_kind(name: str, value: Held | None, kind: str) -> None:
    weights = {other: tensor for other, tensor in {**WEIGHTS, name: value}.items() if tensor is not None}
    found = compare(replace(WHOLE, weights=weights), WHOLE, others=(older := replace(WHOLE, step=2),))
    if kind == "stale":
        older = replace(WHOLE, step=2, weights={**WEIGHTS, "a": held("old", 1.5)})
        found = compare(replace(WHOLE, weights=weights), WHOLE, others=(older,))
    assert [(difference.kind, difference.name) for difference in found.differences] == [(kind, name)]
    assert found.parts[0].agree == (3 if kind == "unexpected" else 2)


def test_moments_of_two_parameters_in_each_others_place() -> None:
    swapped = {**MOMENTS, "a/exp_avg": MOMENTS["b/exp_avg"], "b/exp_avg": MOMENTS["a/exp_avg"]}
    assert told(replace(WHOLE, moments=swapped)) == {
        ("swapped", "moments", "a/exp_avg"),
        ("swapped", "moments", "b/exp_avg"),
    }


def test_a_first_moment_is_not_mistaken_for_a_second_one() -> None:
    mixed = {**MOMENTS, "a/exp_avg": MOMENTS["b/exp_avg_sq"]}
    assert told(replace(WHOLE, moments=mixed)) == {("changed", "moments", "a/exp_avg")}


def test_settings_counters_scheduler_and_position() -> None:
    betas = ({**WHOLE.settings[0], "betas": [0.9, 0.95]},) if WHOLE.settings else None
    assert told(replace(WHOLE, settings=betas)) == {("changed", "settings", "betas")}
    order = ({**WHOLE.settings[0], "parameters": ["b", "a", "c"]},) if WHOLE.settings else None
    assert told(replace(WHOLE, settings=order)) == {("swapped", "settings", "parameters")}
    assert told(replace(WHOLE, counters={"a": 4.0, "b": 2.0, "c": 4.0})) == {("stale", "counters", "b")}
    assert ("stale", "scheduler", "last_epoch") in told(
        replace(WHOLE, scheduler=({"last_epoch": 3, "_last_lr": [0.1]},))
    )
    assert told(replace(WHOLE, random={"torch": "1", "python": "0"})) == {("changed", "random", "python")}


@pytest.mark.parametrize(
    ("step", "later", "expected"),
    [
        (9, {"betas": [0.87, 0.999]}, set()),
        (9, {"momentum": 0.87}, set()),
        (9, {"betas": [0.87, 0.95]}, {("changed", "settings", "betas")}),
        (4, {"betas": [0.87, 0.999]}, {("changed", "settings", "betas")}),
    ],
)
def test_a_cycle_of_momentum_moves_it_from_step_to_step(
    step: int, later: dict[str, Any], expected: set[tuple[str, str, str]]
) -> None:
    group = {"betas": [0.95, 0.999], "momentum": 0.95, "base_momentum": 0.85, "max_momentum": 0.95}
    ours, theirs = (
        CheckpointContents(source="x", kind="lightning", settings=(one,)) for one in ({**group, **later}, group)
    )
    assert told(replace(ours, step=step), replace(theirs, step=4)) == expected


def test_a_random_state_that_is_not_there_is_a_note() -> None:
    result = audit(replace(WHOLE, random={"torch": "1"}), WHOLE)
    assert result.clean
    assert any("python" in note for note in result.notes)


def test_whole_parts_that_are_not_there() -> None:
    without = replace(WHOLE, moments={}, counters={}, scheduler=())
    assert {kind for kind, _, _ in told(without)} == {"missing"}
    assert {part for _, part, _ in told(without)} == {"moments", "counters", "scheduler"}


def test_parts_that_a_format_has_no_place_for_are_not_missing() -> None:
    assert told(replace(WHOLE, moments=None, counters=None, settings=None, scheduler=None, random=None)) == set()


def test_by_itself_only_contradictions_are_told() -> None:
    assert audit(WHOLE).clean
    two_less = replace(WHOLE, counters=dict.fromkeys("abc", 2.0))
    assert [d.kind for d in audit(two_less).differences] == ["inconsistent"]
    no_state = replace(WHOLE, moments={}, counters={})
    assert [(d.kind, d.part) for d in audit(no_state).differences] == [("missing", "moments")]
    rate = replace(WHOLE, scheduler=({"last_epoch": 4, "_last_lr": [0.2]},))
    assert [(d.kind, d.part) for d in audit(rate).differences] == [("inconsistent", "scheduler")]
    lost = {name: value for name, value in MOMENTS.items() if name != "b/exp_avg_sq"}
    assert [d.name for d in audit(replace(WHOLE, moments=lost)).differences] == ["b/exp_avg_sq"]


def test_a_loop_that_counts_from_zero_does_not_contradict_itself() -> None:
    assert audit(replace(WHOLE, step=3, position={"global_step": 3})).clean
    assert not audit(replace(WHOLE, kind="hf-trainer", step=3, position={"global_step": 3})).clean


def test_plain_state_keeps_what_json_can_say() -> None:
    state = {"last_epoch": 3, "base_lrs": [0.1], "f": print, 2: {"x": float("inf")}, "mixed": [1, print]}
    assert plain_state(state) == {"last_epoch": 3, "base_lrs": [0.1], "2": {"x": "inf"}}
