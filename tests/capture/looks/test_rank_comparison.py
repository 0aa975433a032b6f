"""Several ranks' records side by side: since when which rank differs in what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steadytrain.capture.looks.rank_comparison import RankComparison
from steadytrain.capture.looks.rank_records import RankRecords, Readings

NAMES = ("a", "b", "c", "d", "e")
STEPS = 40


class Recorded(RankRecords):
    """Records that are made here, not read."""

    def __init__(self) -> None:
        self.steps, self.gradients, self.digests, self.probes = {}, {}, {}, {}


Change = Callable[[int, int, dict[str, float]], None]


def compared(change: Change | None = None, *, ranks: int = 2, digests_every: int = 4) -> dict[str, float]:
    """The rows after ``STEPS`` equal steps. ``change(rank, step, values)`` alters what a rank records in a step."""
    records = {rank: Recorded() for rank in range(ranks)}
    comparison = RankComparison(records)
    rows: dict[str, float] = {}
    for step in range(1, STEPS + 1):
        for rank, one in records.items():
            values = {"loss": 1.0 / step + 0.01 * rank, "rate": 0.5, "inputs": 100.0 * step + rank}
            values |= {f"gradient {name}": float(step) for name in NAMES}
            values |= {f"weight {name}": float(step) for name in NAMES} | {"=setting decay": 7.0, "=state": 3.0}
            if change is not None:
                change(rank, step, values)
            one.steps[step] = {"loss": values["loss"], "learning_rate": values["rate"]}
            one.gradients[step] = Readings(NAMES, column(values, "gradient "))
            if step % digests_every == 0:
                rows_of = ("=setting decay", "=state", "=inputs", *NAMES)
                halves = [values["=setting decay"], values["=state"], values["inputs"]]
                weights = [values[f"weight {name}"] for name in NAMES]
                groups = [0.0] * len(halves) + [2.0] * len(weights)
                pairs = zip((*halves, *weights), groups, strict=True)
                digest = np.array([[one, 1.0, group] for one, group in pairs], np.float32)
                one.digests[step] = Readings(rows_of, digest)
            one.probes[step] = Readings(("=probe",), np.array([[values["weight a"], 1.0, 0.0]], np.float32))
        if step % 8 == 0:
            rows = comparison.rows()
    return rows


def column(values: dict[str, float], lead: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array([[values[lead + name]] for name in NAMES], np.float32)


def apart(rows: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in rows.items() if "apart" in name and value}


def test_equal_replicas() -> None:
    rows = compared()
    assert apart(rows) == {}
    assert (rows["gradients-together:all"], rows["weights-together:all"], rows["compared:all"]) == (40, 40, 40)
    assert not [row for row in rows if row.startswith(("same-", "averaged"))]


def test_one_tensor_of_one_rank() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank == 1 and step >= 17:
            values["gradient c"] *= 1.001
        if rank == 1 and step >= 18:
            values["weight c"] += 1

    found = apart(compared(change))
    assert found == {
        "gradients-apart:1": 17,
        "gradients-apart:1 c": 17,
        "weights-apart:1": 20,
        "weights-apart:1 c": 20,
    }


def test_rounding_is_no_difference_of_norms() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        values["gradient a"] *= 1 + rank * 1e-6

    assert apart(compared(change)) == {}


def test_of_three_ranks_the_odd_one_is_named_even_if_it_is_the_first() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank == 0 and step > 8:
            for name in NAMES:
                values[f"weight {name}"] += 1

    assert apart(compared(change, ranks=3)) == {"weights-apart:0": 12}


def test_a_difference_that_is_over_is_none() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank and 5 <= step <= 30:
            values["rate"] = 0.25
            values["weight a"] += 1

    rows = compared(change)
    assert apart(rows) == {}
    assert rows["averaged:all"] == 31


def test_settings_state_and_rates() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank:
            values["=setting decay"] = 8.0
            values["=state"] = 0.0
            values["rate"] = 0.5 if step < 23 else 0.25

    rows = compared(change)
    assert apart(rows) == {"state-apart:1": 4, "rate-apart:1": 23, "setting-apart:1": 4, "setting-apart:1 decay": 4}
    assert (rows["rate:1"], rows["rate:usual"]) == (0.25, 0.5)


def test_the_same_data_and_a_loss_many_times_as_large() -> None:
    def same(rank: int, step: int, values: dict[str, float]) -> None:
        values["inputs"], values["loss"] = 100.0 * step, 1.0 / step

    rows = compared(same)
    assert (rows["same-inputs:all"], rows["same-losses:all"]) == (10, 40)

    def larger(rank: int, step: int, values: dict[str, float]) -> None:
        values["loss"] = 64.0 if rank and step > 10 else 1.0

    rows = compared(larger)
    assert rows["loss-ratio:1"] == 64
    assert rows["loss-ratio-since:1"] == 11
    assert "loss-ratio:0" not in rows


def test_a_batch_that_never_changes_is_not_the_same_data() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        values["inputs"], values["loss"] = 1.0, 1.0

    rows = compared(change)
    assert (rows["same-inputs:all"], rows["same-losses:all"]) == (1, 1)


def test_what_is_not_finite_or_not_there_is_no_difference() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank:
            values["gradient a"] = values["loss"] = float("nan")

    assert apart(compared(change)) == {}


def test_ranks_of_which_no_two_are_equal() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if step >= 13:
            values["gradient c"] += rank
            values["weight c"] += rank

    rows = compared(change, ranks=4)
    assert (rows["gradients-unlike:all"], rows["weights-unlike:all"]) == (13, 16)
    assert {f"gradients-apart:{rank}" for rank in (1, 2, 3)} < set(rows)

    def two(rank: int, step: int, values: dict[str, float]) -> None:
        if step >= 13 and rank > 1:
            values["gradient c"] += rank

    assert "gradients-unlike:all" not in compared(two, ranks=4)


def test_the_last_of_many_ranks_has_its_rows() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank == 39 and step >= 13:
            values["weight c"] += 1
            values["gradient c"] += 1

    rows = compared(change, ranks=40)
    assert (rows["gradients-apart:39"], rows["weights-apart:39"], rows["weights-apart:39 c"]) == (13, 16, 16)


def test_a_rate_that_differs_in_single_steps() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank == 2 and step >= 14 and step % 5 == 4:
            values["rate"] = 0.25
        if rank == 2 and step >= 15:
            values["weight c"] += 1

    rows = compared(change, ranks=4)
    assert (rows["rate-first:2"], rows["rate-steps:2"], rows["rate:2"], rows["rate:usual"]) == (14, 6, 0.25, 0.5)

    def harmless(rank: int, step: int, values: dict[str, float]) -> None:
        if rank == 2 and step == 14:
            values["rate"] = 0.25

    assert "rate-first:2" not in compared(harmless, ranks=4)


def test_the_same_data_on_some_ranks() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        if rank == 3:
            values["inputs"], values["loss"] = 100.0 * step + 1, 1.0 / step + 0.01

    rows = compared(change, ranks=4)
    assert (rows["same-inputs:3 1"], rows["same-losses:3 1"]) == (10, 40)
    assert [row for row in rows if row.startswith("same-")] == ["same-inputs:3 1", "same-losses:3 1"]


def test_equal_losses_of_other_inputs_are_a_loss_over_all_ranks() -> None:
    def change(rank: int, step: int, values: dict[str, float]) -> None:
        values["loss"] = 1.0 / step

    assert compared(change).get("same-losses:all", 0) < 16
