"""The attack by relaunched scripts: what it says of a script that had no incident to launch again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ATTACK = Path(__file__).parents[2] / "benchmarks" / "attack_relaunched.py"


def test_a_script_whose_library_is_not_installed_is_called_skipped(tmp_path: Path) -> None:
    (tmp_path / "needs.py").write_text("print('SKIP tensorboard is not installed')\n")
    command = [sys.executable, str(ATTACK), "--programs", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert found.returncode == 1, "nothing was tried"
    assert found.stdout.splitlines()[2].endswith("| skip tensorboard is not installed |")
    assert "| all | 0 scripts | 0 |" in found.stdout
