"""The benchmark of what watching costs: its arms, its arithmetic, its table. What it measures is no test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ARMS = "steadytrain standard,steadytrain full,norm().item() loop,stabilityguard"


def benchmark(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


@pytest.mark.slow
@pytest.mark.long
def test_quick_table_of_arms_with_the_same_losses(tmp_path: Path) -> None:
    found = benchmark("overhead.py", "--quick", "--rounds", "6", "--arms", ARMS, "--json", str(tmp_path / "all.json"))
    assert found.returncode == 0, found.stderr
    for row in ("bare again", *ARMS.split(",")):
        assert f"\n| {row} |" in found.stdout
    (case,) = json.loads((tmp_path / "all.json").read_text())
    ran = {arm["name"]: arm for arm in case["arms"] if arm["failed"] is None}
    assert {"bare", "bare again", "steadytrain standard", "steadytrain full", "norm().item() loop"} <= set(ran)
    losses = {name: arm["losses"] for name, arm in ran.items()}
    assert len(losses["bare"]) == 10  # four to warm up
    assert all(of_arm == losses["bare"] for of_arm in losses.values())
    tensors = ran["bare"]["facts"]["tensors"]
    reads = {name: arm["host_reads"]["ordinary"] - ran["bare"]["host_reads"]["ordinary"] for name, arm in ran.items()}
    assert reads["bare again"] == 0
    assert reads["norm().item() loop"] == tensors
    # The gate; free on the CPU: the loss before backward, the clip, the look at the update, two inputs that the first
    # 48 steps compare, and the norms of a model this small one by one.
    assert 1 <= reads["steadytrain standard"] <= 6 + tensors
    assert ran["steadytrain full"]["facts"]["warnings"] == []
    parts = set().union(*ran["steadytrain standard"]["facts"]["own"])
    assert {"gate", "clip", "tensors", "modules", "recorder"} <= parts
    for arm in case["arms"]:
        if arm["failed"]:
            assert arm["name"] == "stabilityguard"
            assert "No module named" in arm["failed"]


@pytest.mark.slow
@pytest.mark.long
def test_gpu_benchmark_runs_its_logic_on_the_cpu() -> None:
    found = benchmark("overhead_gpu.py", "--smoke", "--rounds", "2", "--arms", "steadytrain light")
    assert found.returncode == 0, found.stderr
    assert "| steadytrain light |" in found.stdout
    assert "Synchronisations: absent" in found.stdout
    assert "Statistics kernel: absent" in found.stdout


def test_every_entry_point_that_the_benchmark_times_is_there() -> None:
    made = "import sys; sys.path.insert(0, sys.argv[1]); from cost.accounting import Accounting; Accounting()"
    found = subprocess.run([sys.executable, "-c", made, str(BENCHMARKS)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--arms", "steadytrain ligth"], "overhead: 'steadytrain ligth': no such arm; one of bare, "),
        (["--models", "70"], "overhead: '70': no such model; one of 30, 10, 30-no-clipping"),
        (["--rounds", "0"], "overhead: --rounds 0: at least one"),
    ],
)
def test_wrong_argument_is_one_line(arguments: list[str], line: str) -> None:
    found = benchmark("overhead.py", *arguments)
    assert found.returncode == 2
    assert found.stderr.startswith(line)
    assert found.stderr.count("\n") == 1


def test_cost_is_spread_over_the_cadences_of_an_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from cost.arms import ARMS as ALL
    from cost.referee import Run
    from cost.summary import against, reads_added

    numbers = list(range(1, 21))
    bare = Run(ALL["bare"], numbers=numbers, seconds=[1.0] * 20, reads={"ordinary": 7})
    # Half a second more in every 5th round (its 50th step), two more in every 10th (its 500th).
    seconds = [3.0 if n % 10 == 0 else 1.5 if n % 5 == 0 else 1.0 for n in numbers]
    ours = Run(ALL["steadytrain standard"], numbers=numbers, seconds=seconds, reads={"ordinary": 8, "look": 9})
    compared = against(ours, bare)
    assert compared.ratio.value == pytest.approx(1 + 0.5 * (1 / 50 - 1 / 500) + 2.0 / 500)
    assert compared.ratio.low == compared.ratio.high == compared.ratio.value
    assert compared.added_ms.value == pytest.approx(1000 * (compared.ratio.value - 1))
    assert reads_added(ours, bare) == {"ordinary": 1, "look": 2}
    # The same steps of an arm that knows no cadence: their median.
    plain = Run(ALL["norm().item() loop"], numbers=numbers, seconds=seconds)
    assert against(plain, bare).ratio.value == 1.0
    assert against(plain, bare).look_ratio is None


def test_arms_in_groups_keep_what_they_are_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from cost.arms import ARMS as ALL
    from cost.arms import BARE
    from overhead_gpu import grouped

    groups = grouped(list(ALL.values()), 4)
    assert all([arm.name for arm in group][:2] == list(BARE) for group in groups)
    assert all(len(group) <= 4 for group in groups)
    assert [arm.name for group in groups for arm in group[2:]] == [name for name in ALL if name not in BARE]
    for group in groups:
        assert {arm.against for arm in group} <= {arm.name for arm in group}
