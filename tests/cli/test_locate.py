"""``steadytrain locate``: the failing step is done again in a new process and gives the same operation."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import builders
from steadytrain.store.bundle import open_bundle
from watched import ONE_THREAD, run_script

ZOO = Path(__file__).parents[2] / "zoo" / "nonfinite"
WAIT_S_MAX = 120.0

# One of each kind: forward in a layer, loss in the script, backward only, the second of three micro-batches.
CASES = {
    "half_island_overflow.py": ("forward", "1"),
    "all_targets_ignored.py": ("loss", ""),
    "where_trick.py": ("backward", "2"),
    "accumulation_second.py": ("loss", ""),
}


def locate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "steadytrain", "locate", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("script", CASES)
def test_a_new_process_names_the_same_operation(script: str, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / script, environment=ONE_THREAD)
    assert outcome.status == 70
    done = locate(str(outcome.run_dir), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"]) == (0, "steadytrain.locate/1")
    assert document["verdict"] == "the same in the new process as at the incident"
    assert (document["again"]["located"]["phase"], document["again"]["located"]["module"]) == CASES[script]
    assert document["again"]["located"]["method"].endswith("in a new process")


@pytest.mark.slow
def test_a_bad_batch_is_named_again(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "nan_in_batch.py", environment=ONE_THREAD)
    done = locate(str(outcome.run_dir))
    assert done.returncode == 0
    assert "the batch already holds NaN" in done.stdout


@pytest.mark.slow
def test_what_the_incident_could_not_name_is_kept_when_the_new_process_does(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "log_of_zero.py", "--policy", "observe", environment=ONE_THREAD)
    path = outcome.run.incidents[0]
    assert open_bundle(path).finding.located is None
    assert locate(str(path)).returncode == 0
    located = open_bundle(path).finding.located
    assert located is not None
    assert located.operation == "aten.log.default"


@pytest.mark.slow
def test_a_changed_model_a_gone_script_and_lost_weights_are_told_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    shutil.copy(ZOO / "log_of_zero.py", script)
    outcome = run_script(tmp_path, script, "--state-mb", "4096", environment=ONE_THREAD)
    assert outcome.status == 70

    script.write_text(script.read_text(encoding="utf-8").replace("16", "17"), encoding="utf-8")
    document = json.loads(locate(str(outcome.run_dir), "--json").stdout)
    assert "builds another model" in document["again"]["why"]
    assert document["located"]["operation"] == "aten.log.default"

    script.unlink()
    done = locate(str(outcome.run_dir))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "the script is gone" in done.stderr


@pytest.mark.slow
def test_without_weights_nothing_is_launched(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "log_of_zero.py", "--state-mb", "0", environment=ONE_THREAD)
    done = locate(str(outcome.run_dir))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "not kept" in done.stderr


@pytest.mark.parametrize("arguments", [("nowhere",), ("nowhere", "--json")])
def test_an_unknown_incident_is_one_line(arguments: tuple[str, ...]) -> None:
    done = locate(*arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_run_without_an_incident_is_one_line(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "quiet")
    done = locate(str(path))
    assert done.returncode == 2
    assert "this run has no incident" in done.stderr
