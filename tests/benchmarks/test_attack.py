"""``make attack``: the tables of the attacks are added up, and a share of the time is kept."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def attack() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attack", BENCHMARKS / "attack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_rows_called_all_count_and_otherwise_each_row(attack: ModuleType) -> None:
    table = ["| place | tried | survived |", "|---|---|---|", "| a | 2 | 2 |", "| all | 1,200 | 1,199 |"]
    assert attack.counted(table) == (1200, 1199)
    assert attack.counted(["| ways (eager) | 3 | 2 | none |", "| ways (ranks) | 4 | 4 | none |", "words"]) == (7, 6)
    assert attack.counted(["no table"]) == (0, 0)


def test_each_attack_is_there_and_takes_a_share_of_the_time_and_a_seed(attack: ModuleType) -> None:
    for part in attack.PARTS:
        text = (BENCHMARKS / part.words[0]).read_text(encoding="utf-8")
        assert '"--seconds"' in text
        assert '"--seed"' in text
    assert sum(part.seconds for part in attack.PARTS) <= 900


def test_an_attack_that_breaks_down_is_no_survival(attack: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("attack_sweep.py", "--only", "no function has this name", "--mode", "none")
    part = attack.Part("broken", words, 1, 1, "broken")
    outcome = attack.run(part, seed=0, seconds=1)
    assert (outcome.tried, outcome.survived) == (1, 0)
    assert outcome.failures == ("FAILED attack_sweep.py ended with 2",)
    assert "invalid choice" in capfd.readouterr().err
