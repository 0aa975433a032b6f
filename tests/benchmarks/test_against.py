"""The benchmark of fixes against rules of practice: when a run is mended, what is worse, and what the rules do."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import against  # noqa: E402
import rules_of_practice  # noqa: E402

MENDED = against.Ran(100, 100, 100, 2.0, 0.5, "")
OTHER_SEED = against.Ran(100, 100, 100, 2.0, 0.6, "")
SICK = against.Ran(100, 100, 40, 2.0, math.nan, "")


def ran(end: float = 0.5, *, trained: int = 100, finite: int = 100, error: str = "") -> against.Ran:
    return against.Ran(100, trained, min(finite, trained), 2.0, end, error)


def test_the_tolerance_is_what_seeds_differ_and_a_tenth_of_the_progress() -> None:
    assert against.tolerance(MENDED, OTHER_SEED) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("run", "mended"),
    [
        (ran(0.74), True),
        (ran(0.2), True),
        (ran(0.76), False),
        (ran(math.nan, finite=40), False),
        (ran(0.5, trained=80), False),  # it left out a fifth of the batches
        (ran(0.5, error="ValueError: x"), False),
    ],
)
def test_a_run_is_mended_if_it_ends_by_itself_as_low(run: against.Ran, mended: bool) -> None:
    assert against.is_mended(run, MENDED, 0.25) == mended


@pytest.mark.parametrize(
    ("run", "sick", "worse"),
    [
        (ran(1.9), ran(1.5), True),
        (ran(1.6), ran(1.5), False),
        (ran(math.nan, finite=90), ran(1.5), True),
        (ran(math.nan, finite=20), SICK, True),
        (ran(math.nan, finite=60), SICK, False),
        (ran(0.9), SICK, False),
    ],
)
def test_a_rule_does_harm_if_the_run_ends_higher_or_fails_sooner(
    run: against.Ran, sick: against.Ran, worse: bool
) -> None:
    assert against.is_worse(run, sick, 0.25) == worse


def test_batches_that_were_left_out_count_for_nothing() -> None:
    losses: list[Any] = [4.0] + [2.0] * 19 + [math.inf] + [1.0] * 20
    run = against.ran_of({"losses": losses, "left_out": [20], "error": ""})
    assert (run.batches, run.trained, run.finite, run.start, run.end) == (41, 40, 40, 3.0, 1.0)
    assert run.is_sound


def test_the_table_gives_the_coin_its_expected_value() -> None:
    by_two = frozenset(("learning rate / 3", "skip bad batches"))
    one = against.Judged("s01_a", True, by_two, frozenset(("clip gradients at 1.0",)), {})
    other = against.Judged("s02_b", True, frozenset((against.FIRST,)), frozenset(), {})
    hidden = against.Judged("s03_c", False, frozenset(), frozenset(), {})
    table = against.table([one, other, hidden])
    assert "| a coin: one of the four rules | 0.50 of 2 | 0.25 | |" in table
    assert "| learning rate / 3 | 1 of 2 | 0 | s01 |" in table
    assert "By ours alone: s02. Not visible in the loss: s03." in table


def test_an_outlier_or_a_value_that_is_not_finite_is_left_out() -> None:
    rule = rules_of_practice.Rule("skip")
    losses = [2.0 + 0.1 * (-1) ** step for step in range(20)] + [9.0, 2.1, math.nan, 1.9]
    assert [place for place, loss in enumerate(losses) if rule.leaves_out(loss)] == [20, 22]


@pytest.mark.long
def test_a_rule_changes_the_update_and_nothing_else(tmp_path: Path) -> None:
    script, result = tmp_path / "train.py", tmp_path / "result.json"
    script.write_text(
        "import torch\n"
        "weight = torch.zeros(1, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([weight], lr=1.0)\n"
        "for _ in range(3):\n"
        "    optimizer.zero_grad()\n"
        "    (3.0 - weight).sum().backward()\n"
        "    optimizer.step()\n"
        "    assert optimizer.param_groups[0]['lr'] == 1.0\n"
    )
    runner = [sys.executable, str(BENCHMARKS / "rules_of_practice.py")]
    losses = {}
    for rule in ("none", "rate:0.5", "clip:0.1", "drop:2-2"):
        subprocess.run([*runner, rule, "0", str(result), str(script)], check=True, timeout=120)
        document = json.loads(result.read_text())
        assert document["error"] == ""
        losses[rule] = [round(loss, 4) for loss in document["losses"]]
    assert losses == {
        "none": [3.0, 2.0, 1.0],
        "rate:0.5": [3.0, 2.5, 2.0],
        "clip:0.1": [3.0, 2.9, 2.8],
        "drop:2-2": [3.0, 2.0, 2.0],
    }
