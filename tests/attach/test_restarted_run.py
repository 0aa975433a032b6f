"""Ranks that torchrun starts again: a folder for each try, which continues the one before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rank_folders import FINISHED, SIGNALLED, VANISHED, run_of
from scripts import Started, watched, write
from steadytrain.attach.restarted_run import earlier_try, elastic_restarts, name_of_try, report_other_number
from steadytrain.storage.run_folder import RunWriter, open_run

SCRIPT = """
import os, torch
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
start = 0
if os.path.exists(f"{rank}.pt"):
    saved = torch.load(f"{rank}.pt")
    model.load_state_dict(saved["model"])
    start = saved["step"]
for step in range(start, 40):
    inputs = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    if step == 19:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 20}, f"{rank}.pt")
    if step == 24 and start == 0:
        raise SystemExit(3)
"""


@pytest.fixture
def second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")


def test_without_torchrun_nothing_was_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert elastic_restarts({}) == 0
    assert elastic_restarts({"TORCHELASTIC_RESTART_COUNT": "2"}) == 0
    assert elastic_restarts({"TORCHELASTIC_RESTART_COUNT": "x", "LOCAL_RANK": "0"}) == 0
    assert elastic_restarts({"TORCHELASTIC_RESTART_COUNT": "2", "LOCAL_RANK": "0"}) == 2
    assert [name_of_try("run", restarts) for restarts in (0, 2)] == ["run", "run-restart2"]


def test_a_try_without_one_before_continues_nothing(tmp_path: Path, second_try: None) -> None:
    assert earlier_try("run", tmp_path) is None


def test_a_try_without_a_checkpoint_says_so(
    tmp_path: Path, second_try: None, capsys: pytest.CaptureFixture[str]
) -> None:
    RunWriter(tmp_path / "run", {"name": "run"}).close()
    assert earlier_try("run", tmp_path) is None
    assert "torchrun has started the ranks again (restart 1); its run run has no checkpoint" in capsys.readouterr().err


def test_a_try_names_the_rank_that_ended_the_one_before(
    tmp_path: Path, second_try: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path / "run", (SIGNALLED, 15), (VANISHED, 14))
    earlier_try("run", tmp_path)
    assert "(restart 1), because rank 1 ended first, after its 14 steps, and left no" in capsys.readouterr().err


def test_another_number_of_ranks_than_before_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path / "run", (FINISHED, 3))  # recorded as one of four ranks
    continues = {"run": "run", "run_dir": str(tmp_path / "run"), "step": 2}
    for world, said in (("3", "note: this run has 3 ranks, and the run run that it continues had 4"), ("4", "")):
        monkeypatch.setenv("WORLD_SIZE", world)
        report_other_number(continues)
        err = capsys.readouterr().err
        assert said in err if said else not err
    monkeypatch.delenv("WORLD_SIZE")
    report_other_number(continues)  # without a launcher the number is not known yet
    assert not capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_the_second_try_continues_the_first(tmp_path: Path) -> None:
    write(tmp_path, SCRIPT)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1")
    ended = Started([*launcher, "--nproc_per_node", "1", *watched("script.py")[1:]], tmp_path).end()
    assert ended.status == 0, ended.err
    assert "note: torchrun has started the ranks again (restart 1): this run continues run from its last" in ended.told
    first, second = open_run(tmp_path / "runs" / "run"), open_run(tmp_path / "runs" / "run-restart1")
    assert first.scalars().steps.tolist() == list(range(1, 26))
    assert second.scalars().steps.tolist() == list(range(21, 41))
    assert (first.ended, second.ended) == ("failed", "finished")
