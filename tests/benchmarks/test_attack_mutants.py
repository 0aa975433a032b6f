"""A short form of the attack with mutants: every one is answered or refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ATTACK = Path(__file__).parents[2] / "benchmarks" / "attack_mutants.py"


@pytest.mark.long
def test_mutants_are_answered_or_refused() -> None:
    done = subprocess.run([sys.executable, str(ATTACK), "--quick"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    assert "| all | 60 | 60 |" in done.stdout
