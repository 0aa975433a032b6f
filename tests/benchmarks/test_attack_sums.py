"""The sums of several runs of the attacks: each different try once, and the newest result of it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SUMS = Path(__file__).parents[2] / "benchmarks" / "attack_sums.py"


def kept(folder: Path, name: str, rows: object, *, second: int) -> None:
    (folder / name).write_text(json.dumps(rows))
    os.utime(folder / name, (second, second))


def way(name: str, *, survived: bool) -> dict[str, object]:
    return {"name": name, "survived": survived, "note": "" if survived else "output differs"}


def summed(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SUMS), str(folder)], capture_output=True, text=True, check=False)


def test_a_try_counts_once_and_its_newest_result_holds(tmp_path: Path) -> None:
    kept(tmp_path, "ways-7.json", [way("a", survived=False), way("b", survived=False)], second=1)
    kept(tmp_path, "ways-8.json", [way("a", survived=True), way("c", survived=True)], second=2)
    fault = {"phase": "run", "fault": "eio", "call": 3, "wrong": []}
    kept(tmp_path, "kills-7.json", [fault, fault, {**fault, "call": 4}], second=1)
    mutants = [{"what": "0: run: cut", "why": ""}]
    for seed in (7, 8):  # the same name is another mutant with another seed
        kept(tmp_path, f"mutants-{seed}.json", mutants, second=seed)
    found = summed(tmp_path)
    assert found.returncode == 1
    assert "| ways | 3 | 2 | 1 |" in found.stdout
    assert "| kills | 2 | 2 | 0 |" in found.stdout
    assert "| mutants | 2 | 2 | 0 |" in found.stdout
    assert "| all | 7 | 6 | 1 |" in found.stdout
    assert "FAILED ways: b: output differs" in found.stdout


def test_a_folder_without_results_is_one_line(tmp_path: Path) -> None:
    found = summed(tmp_path)
    assert found.returncode == 2
    assert "no file ATTACK-SEED.json" in found.stderr
