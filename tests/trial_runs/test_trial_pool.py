"""Trials in processes of their own: shared launches, killed and slow ones, broken-off ones, and the incident intact."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import warm

pytest.importorskip("torch")

from scripts import run_script
from steadytrain.api.targets import incident_or_run_of
from steadytrain.cli.trial import command as trial_command
from steadytrain.cli.verify import command as verify_command
from steadytrain.core.errors import UsageError
from steadytrain.experiments.case import Case
from steadytrain.experiments.case_files import open_case
from steadytrain.experiments.outcome_files import Finished, trials_folder
from steadytrain.experiments.specs import NO_TIME_LEFT, Change, Outcome, Spec
from steadytrain.experiments.trial_catalog import trial
from steadytrain.trial_runs import close_pools
from steadytrain.trial_runs.pool import Pool

pytestmark = [pytest.mark.slow, pytest.mark.long]

ONSET = 70
SCRIPT = """
    import os, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = torch.randn(8 * 120, 4)
    targets = rows.sum(1, keepdim=True) + 0.1 * torch.randn(len(rows), 1)
    targets[8 * 69 : 8 * 70] *= 60  # the batch of step 70
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, (x, y) in enumerate(DataLoader(TensorDataset(rows, targets), 8), 1):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for flag in ("kill-once", "kill", "sleep"):
            if step == 72 and os.path.exists(flag):
                if flag == "kill-once":
                    open(flag).read()  # a pipe, which the test takes away: what a trial writes is gone with it
                time.sleep(100) if flag == "sleep" else os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    outcome = run_script(folder, SCRIPT, "--keep-rewind")
    assert outcome.status == 0, outcome.err
    return outcome.run_dir


@pytest.fixture
def case(run: Path) -> Case:
    return open_case(run, onset=ONSET).following(10)


@pytest.fixture
def flags(run: Path) -> Iterator[Path]:
    """The folder in which the script runs, without flags afterwards."""
    folder = run.parent.parent
    yield folder
    for name in ("kill-once", "kill", "sleep"):
        (folder / name).unlink(missing_ok=True)


def specs_of(case: Case, *names: str) -> list[Spec]:
    plans = [trial(name).plan(case) for name in names]
    return [spec for plan in plans if isinstance(plan, tuple) for spec in plan]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "trials" not in file.parts
    }


def test_the_control_is_exact_and_trials_share_a_launch(run: Path, case: Case) -> None:
    wanted = specs_of(case, "unchanged", "drop-batch", "beta2-lower", "learning-rate-tenth")
    before = digests(run)
    with Pool(run, workers=1, keep=False) as pool:
        assert len({pool.launch_key(spec) for spec in wanted}) == 1
        outcomes = {outcome.spec.trial: outcome for outcome in pool.run(wanted)}
        again = list(pool.run([replace(wanted[0], repeat=7)]))
    assert all(outcome.ran for outcome in outcomes.values()), outcomes
    control = outcomes["unchanged"]
    assert control.exact is True
    assert control.steps == again[0].steps
    assert control.probes == again[0].probes
    assert len(control.probes) > 8
    verdicts = {name: trial(name).judge(case, [control], [outcome]).effect for name, outcome in outcomes.items()}
    assert verdicts["unchanged"] == "persists"
    assert verdicts["drop-batch"] == "removed"
    assert digests(run) == before


def test_finished_trials_are_not_run_again(run: Path, case: Case) -> None:
    wanted = specs_of(case, "unchanged", "rewarm")
    with Pool(run, workers=2) as pool:
        first = {outcome.spec: outcome for outcome in pool.run(wanted)}
    said: list[str] = []
    with Pool(run, workers=1) as pool:
        second = {outcome.spec: outcome for outcome in pool.run(wanted, budget_s=0.0, tell=said.append)}
    assert first == second
    assert said == ["unchanged: finished earlier", "rewarm: finished earlier"]
    folder = trials_folder(run)
    kept = sorted(folder.glob("*.json"))
    kept[0].write_text(kept[0].read_text(encoding="utf-8")[:100], encoding="utf-8")  # cut off
    damaged = [Finished(run, open_case(run, onset=ONSET).environment).read(spec) for spec in wanted]
    assert sum(outcome is None for outcome in damaged) == 1


def test_a_killed_process_is_run_again_once(run: Path, case: Case, flags: Path) -> None:
    wanted = specs_of(case, "unchanged")
    flag = flags / "kill-once"
    os.mkfifo(flag)

    def take_away() -> None:
        with flag.open("w"):  # until the script reads it
            flag.unlink()

    threading.Thread(target=take_away, daemon=True).start()
    with Pool(run, keep=False) as pool:
        (outcome,) = pool.run(wanted)
    assert not flag.exists()
    assert outcome.ran, outcome.why_not
    assert outcome.exact is True
    (flags / "kill").touch()
    with Pool(run, keep=False) as pool:
        (outcome,) = pool.run(wanted)
    assert (outcome.ran, outcome.why_not) == (False, "its process was killed 2 times")


def test_bounds_of_time_memory_and_budget(run: Path, case: Case, flags: Path) -> None:
    wanted = specs_of(case, "unchanged")
    with Pool(run, keep=False, memory_bytes_max=1) as pool:
        (outcome,) = pool.run(wanted)
    assert outcome.ran or "GB of memory" in str(outcome.why_not)  # it may be over before anybody looks
    (flags / "sleep").touch()
    with Pool(run, keep=False, memory_bytes_max=1) as pool:
        (outcome,) = pool.run(wanted)
    assert (outcome.ran, outcome.why_not) == (False, "it took more than 1e-09 GB of memory")
    with Pool(run, keep=False, trial_s_max=1.0) as pool:
        (outcome,) = pool.run(wanted)
        assert (outcome.ran, outcome.why_not) == (False, "it took more than 1 s")
        (outcome,) = pool.run(wanted, budget_s=0.0)
        assert (outcome.ran, outcome.why_not) == (False, "the budget of time was spent before it was finished")


def test_a_script_that_fails_says_so(run: Path, case: Case) -> None:
    (spec,) = specs_of(case, "unchanged")
    broken = replace(spec, changes=(Change("retie", {"pairs": ["0.weight", "2.weight"]}),))
    with Pool(run, keep=False) as pool:
        (outcome,) = pool.run([broken])
    assert not outcome.ran
    assert str(outcome.why_not).startswith("the script failed: RuntimeError")


def test_a_script_that_leaves_in_its_own_way_has_ended_and_was_not_killed(tmp_path: Path) -> None:
    source = SCRIPT.replace("8 * 120", "8 * 75") + "    os._exit(3)\n"
    outcome = run_script(tmp_path, source, "--keep-rewind")
    assert outcome.status == 3
    (spec,) = specs_of(open_case(outcome.run_dir, onset=ONSET).following(20), "unchanged")
    with Pool(outcome.run_dir, workers=1) as pool:
        (found,) = pool.run([spec])
    assert (found.ran, found.ended) == (True, "the script's loop was over after 75 of 90 steps")


def test_a_full_disk_costs_the_kept_outcome_and_nothing_else(
    run: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Finished, outcome: Outcome) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Finished, "write", full)
    said: list[str] = []
    with Pool(run) as pool:
        outcomes = list(pool.run(specs_of(case, "epsilon-up", "epsilon-down"), tell=said.append))
    assert all(outcome.ran for outcome in outcomes)
    assert said.count("finished trials cannot be stored: No space left on device") == 1


def test_a_script_that_is_gone_is_told(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    other.mkdir()
    for name in ("run.json", "index.sqlite"):
        (other / name).write_bytes((run / name).read_bytes())
    description = json.loads((other / "run.json").read_text(encoding="utf-8"))
    (other / "run.json").write_text(json.dumps({**description, "script": str(tmp_path / "gone.py")}), encoding="utf-8")
    with pytest.raises(UsageError, match="the script is gone"):
        Pool(other)


@pytest.fixture
def _no_process_is_left() -> Iterator[None]:
    yield
    close_pools()


@pytest.mark.usefixtures("_no_process_is_left")
def test_the_commands(run: Path, case: Case) -> None:
    where = [str(run), "--onset", str(ONSET), "--workers", "1", "--json"]
    tried = CliRunner().invoke(trial_command, [*where, "drop-batch"])
    assert tried.exit_code == 0, tried.output
    document = json.loads(tried.stdout)
    assert document["schema"] == "steadytrain.trials/1"
    assert document["control"]["shown"] is True
    assert document["control"]["exact"] is True
    effects = {row["trial"]: row["effect"] for row in document["trials"]}
    assert effects == {
        "unchanged": "persists",
        "perturbed": "persists",
        "other-seed": "persists",
        "drop-batch": "removed",
    }
    again = CliRunner().invoke(verify_command, [*where, "--with", "drop-batch", "--steps", "10"])
    assert again.exit_code == 0, again.output
    verified = json.loads(again.stdout)
    assert (verified["schema"], verified["result"], verified["steps_followed"]) == (
        "steadytrain.verify/1",
        "removed",
        10,
    )
    other = CliRunner().invoke(
        verify_command, [*where, "--with", "epsilon-up=10", "--steps", "10"], standalone_mode=False
    )
    assert json.loads(other.stdout)["result"] == "no effect"
    assert other.return_value == 1
    short = CliRunner().invoke(trial_command, [str(run), "--onset", str(ONSET)])
    assert "drop-batch" in short.stdout
    assert "(does not apply" not in short.stdout
    assert "do not apply here; --all says why" in short.stdout
    listed = CliRunner().invoke(trial_command, [str(run), "--onset", str(ONSET), "--all"])
    assert "(does not apply: no broken tie is known)" in listed.stdout
    for arguments, said in (
        ([*where, "no-such-trial"], "no trial is called"),
        ([str(run), "--onset", "0", "clip"], "steps count from 1"),
        ([*where, "--budget", "0", "clip"], "must be a time above 0"),
    ):
        with pytest.raises(UsageError, match=said):
            CliRunner().invoke(trial_command, arguments, catch_exceptions=False)
    for arguments, said in (
        ([*where, "--with", "no-such"], "no trial or fix is called so"),
        ([*where, "--with", "clip=much"], "is not a number"),
        ([*where, "--with", "clean-data"], "made by hand"),
        ([*where, "--with", "clip", "--steps", "0"], "between 1 and"),
    ):
        with pytest.raises(UsageError, match=said):
            CliRunner().invoke(verify_command, arguments, catch_exceptions=False)


@pytest.mark.long
def test_kill_9_leaves_the_incident_intact_and_finished_trials_usable(run: Path, flags: Path) -> None:
    before = recorded(run)
    command = [warm.python(), "-m", "steadytrain", "trial", str(run), "--onset", str(ONSET), "--json"]
    names = ["learning-rate-third", "update-clipping", "weight-decay-none"]
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
    folder = trials_folder(incident_or_run_of(str(run), run.parent))  # beside the bundle of the run
    kept = set(folder.glob("*.json"))
    first = subprocess.Popen([*command, *names], **how)
    deadline = time.monotonic() + 100
    while set(folder.glob("*.json")) == kept and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    finished = set(folder.glob("*.json")) - kept
    assert finished
    assert recorded(run) == before
    stamps = {file: file.stat().st_mtime_ns for file in finished}
    second = subprocess.run([*command, *names], **how, check=True, timeout=200)
    rows = {row["trial"]: row for row in json.loads(second.stdout)["trials"]}
    assert rows.keys() >= {*names, "unchanged"}
    assert {file: file.stat().st_mtime_ns for file in finished} == stamps
    assert recorded(run) == before


def recorded(run: Path) -> dict[str, str]:
    """Digests of what was recorded: all files but the answers, which trials add."""
    return {name: digest for name, digest in digests(run).items() if "/answer/" not in name}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_a_cluster_runs_the_same_specs_and_gives_the_same_outcomes(
    run: Path, case: Case, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    elif shutil.which("srun") is None:
        stand_in_for_srun(tmp_path, monkeypatch)
    wanted = specs_of(case, "unchanged", "drop-batch")
    with Pool(run, keep=False) as pool:
        here = {outcome.spec.trial: outcome for outcome in pool.run(wanted)}
    with Pool(run, keep=False, engine=engine) as pool:
        there = {outcome.spec.trial: outcome for outcome in pool.run(wanted)}
        (late,) = pool.run(wanted[:1], budget_s=-1.0)
    assert not late.ran
    for name, outcome in here.items():
        assert there[name].ran, there[name].why_not
        assert (there[name].steps, there[name].probes) == (outcome.steps, outcome.probes)


def stand_in_for_srun(folder: Path, monkeypatch: pytest.MonkeyPatch, runs: str = 'exec "$@"') -> None:
    """An ``srun`` that runs its command here, without its options."""
    script = folder / "bin" / "srun"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nwhile [ "${{1#--}}" != "$1" ]; do shift; done\n{runs}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


def test_job_steps_that_end_are_told(run: Path, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_srun(tmp_path, monkeypatch, "echo 'srun: error: invalid partition specified: gpu' >&2; exit 1")
    with Pool(run, keep=False, engine="slurm", workers=2) as pool:
        outcomes = list(pool.run(specs_of(case, "unchanged", "drop-batch")))
    (why,) = {outcome.why_not for outcome in outcomes}
    assert why == "SLURM lost it: srun: error: invalid partition specified: gpu"


def test_a_job_that_waits_past_the_budget_is_given_up(
    run: Path, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_for_srun(tmp_path, monkeypatch, "exec sleep 600")
    with Pool(run, keep=False, engine="slurm") as pool:
        (outcome,) = pool.run(specs_of(case, "unchanged"), budget_s=0.2)
    assert outcome.why_not == NO_TIME_LEFT


def test_without_srun_the_engine_is_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs the command srun"):
        Pool(run, keep=False, engine="slurm")
