"""The library of faults makes the faults that it is asked for, and the checks see what is broken."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import builders

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAMS = BENCHMARKS / "attack_programs" / "kills"
NEEDED = platform.system() == "Linux" and shutil.which("gcc") is not None
pytestmark = pytest.mark.skipif(not NEEDED, reason="the library is for Linux and needs gcc")
sys.path.append(str(BENCHMARKS))

WRITES = """
import os, sys, time
begin = time.monotonic()
for number in range(4):
    if number == 3:
        os.unlink(f"{sys.argv[1]}/0")
    try:
        file = os.open(f"{sys.argv[1]}/{number}", os.O_WRONLY | os.O_CREAT)
        try:
            print(number, os.write(file, bytes(100)))
        finally:
            os.close(file)
    except OSError as error:
        print(number, error.strerror)
print("slow" if time.monotonic() - begin > 0.1 else "done", flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import attack_kills

    return attack_kills.library(tmp_path_factory.mktemp("library"))


def struck(library: Path, folder: Path, plan: str, *, within: str = "") -> tuple[int, list[str], list[str]]:
    """Status, output and counted calls of a small program under a fault."""
    state, trace, under = folder / "state", folder / "trace", folder / "under"
    under.mkdir()
    state.write_bytes(bytes(520))
    variables = {"LD_PRELOAD": str(library), "ATTACK_FAULT": plan, "ATTACK_FAULT_STATE": str(state)}
    variables |= {"ATTACK_FAULT_UNDER": str(folder / "elsewhere") if within else str(under)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", WRITES, str(under)],
        env={**os.environ, **variables, "ATTACK_FAULT_TRACE": str(trace)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), trace.read_text().splitlines() if trace.exists() else []


FULL = "No space left on device"
WANTED = {
    "none 0 0": ["0 100", "1 100", "2 100", "3 100", "done"],
    "full 5 0": ["0 100", "1 " + FULL, "2 " + FULL, "3 " + FULL, "done"],
    "full 5 1": ["0 100", "1 " + FULL, "2 100", "3 100", "done"],
    "quota 5 0": ["0 100", "1 " + FULL, "2 " + FULL, "3 100", "done"],
    "eio 4 0": ["0 100", "1 Input/output error", "2 100", "3 100", "done"],
    "short 5 0": ["0 100", "1 50", "2 100", "3 100", "done"],
    "slow 1 60": ["0 100", "1 100", "2 100", "3 100", "slow"],
}


@pytest.mark.parametrize("plan", WANTED)
def test_a_fault_happens_at_its_call(plan: str, library: Path, tmp_path: Path) -> None:
    status, lines, _ = struck(library, tmp_path, plan)
    assert (status, lines) == (0, WANTED[plan])


@pytest.mark.parametrize(("plan", "files"), [("kill-before 4 0", ["0"]), ("kill-after 4 0", ["0", "1"])])
def test_a_kill_is_before_or_after_the_call(plan: str, files: list[str], library: Path, tmp_path: Path) -> None:
    status, _, calls = struck(library, tmp_path, plan)
    assert status == -9
    assert sorted(os.listdir(tmp_path / "under")) == files
    assert calls[-1] == "4 open 1"


def test_only_files_below_the_folder_count(library: Path, tmp_path: Path) -> None:
    assert struck(library, tmp_path, "kill-before 1 0", within="elsewhere") == (0, WANTED["none 0 0"], [])


def test_the_look_afterwards_sees_a_damaged_bundle_and_what_is_left_over(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    run = builders.bad_run(runs / "run")
    look = [sys.executable, str(PROGRAMS / "after.py"), str(runs), "", "0"]
    whole = json.loads(subprocess.run(look, capture_output=True, text=True, check=True).stdout)
    assert whole["wrong"] == []
    (bundle,) = whole["incidents"]["run"]
    (run / "incidents" / bundle / "incident.json").write_text("{}")
    (run / "tape").mkdir(exist_ok=True)
    (run / "tape" / "000001-000002.json.part").write_text("")
    wrong = json.loads(subprocess.run(look, capture_output=True, text=True, check=True).stdout)["wrong"]
    assert f"bundle {bundle}: incident.json is not what the manifest says" in wrong
    assert "left over: run/tape/000001-000002.json.part" in wrong
