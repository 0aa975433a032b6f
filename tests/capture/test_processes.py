"""Scripts of several processes: children that train, workers that load, ranks of torchrun, another sitecustomize."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import Started, bare, recorded, watched, write

LOADS = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset
from fingerprint import Training, seed

class Noisy(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return torch.randn(8) + index, torch.utils.data.get_worker_info().id

def main(context):
    torch.set_num_threads(1)
    seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training = Training()
    training.owns(model, optimizer)
    loader = DataLoader(Noisy(), 4, shuffle=True, num_workers=2, multiprocessing_context=context)
    for epoch in range(2 if context == "fork" else 1):
        for step, (batch, worker) in enumerate(loader):
            loss = model(batch).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            training.went_back(step, loss)
            optimizer.step()
            training.updated(step)
    print(*training.lines, sep="\\n")

if __name__ == "__main__":
    main(sys.argv[1])
"""

SPAWNS = """
import sys
import torch

def train(number, bad):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 6):
        inputs = torch.randn(8, 4)
        if step == 3 and number == bad:
            inputs[0] = float("inf")
        optimizer.zero_grad()
        (model(inputs) - model(inputs).detach() + 1).pow(2).mean().backward()
        optimizer.step()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (int(sys.argv[1]),), nprocs=2)
    print("joined")
"""

RANKS = """
import os, sys
import torch
from fingerprint import Training, seed
from torch.nn.parallel import DistributedDataParallel

def main(bad):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training = Training(nan_at=3 if rank == bad else None)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 8, 4)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        if rank == 0:
            with torch.no_grad():
                model(torch.ones(8, 4))  # an evaluation of one rank: the ranks still step together
        optimizer.step()
        training.updated(step)
    with open(f"rank{rank}.txt", "w") as file:
        print(*training.lines, sep="\\n", file=file)
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    main(int(sys.argv[1]))
"""

AT_THEIR_OWN_PACE = """
import torch
from fingerprint import Training, seed
from torch.nn.parallel import DistributedDataParallel

def trained(rank, steps, around, left_out=None, **options):
    seed(rank)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model = DistributedDataParallel(layers, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training = Training()
    training.owns(model, optimizer)
    with around(model):
        for step in range(steps):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).pow(2).mean()
            loss.backward()
            training.went_back(step, loss)
            if step == left_out:
                continue
            optimizer.step()
            training.updated(step)
    return training.lines

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    alone = [torch.distributed.new_group([one]) for one in range(2)][rank]
    lines = trained(rank, 5 + 3 * rank, lambda model: model.join())
    torch.distributed.barrier()
    lines += trained(rank, 4 + 2 * rank, lambda model: model.no_sync())
    torch.distributed.barrier()
    lines += trained(rank, 6 - 2 * rank, lambda model: torch.enable_grad(), process_group=alone)
    torch.distributed.barrier()
    lines += trained(rank, 4, lambda model: torch.enable_grad(), left_out=2 if rank else None)
    torch.distributed.barrier()
    with open(f"rank{rank}.txt", "w") as file:
        print(*lines, sep="\\n", file=file)
    torch.distributed.destroy_process_group()
"""

OUTSIDE = [
    pytest.param(False, id="run-inside-torchrun"),
    pytest.param(True, id="torchrun-inside-run", marks=pytest.mark.long),
]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


@pytest.mark.slow
@pytest.mark.parametrize(("context", "steps"), [("fork", 12), pytest.param("spawn", 6, marks=pytest.mark.long)])
def test_data_loader_workers_give_the_same_batches(context: str, steps: int, tmp_path: Path) -> None:
    write(tmp_path, LOADS)
    plain = Started(bare("script.py", context), tmp_path)
    ours = Started(watched("script.py", context), tmp_path)
    plain, ours = plain.end(), ours.end()
    assert plain.status == 0, plain.err
    assert (ours.status, ours.out, ours.own) == (0, plain.out, plain.own)
    assert f"{steps} steps seen" in ours.told
    assert not ours.warnings
    assert recorded(tmp_path).ranks == ()


@pytest.mark.slow
@pytest.mark.long
def test_ranks_that_make_different_numbers_of_steps_are_not_asked_together(tmp_path: Path) -> None:
    # With join(), with no_sync(), where the model is wrapped for a part of the ranks, and where one rank leaves an
    # update out: there a collective of ours, taken for one of the script's, would abort the process.
    texts = []
    for name, command in (("bare", bare("script.py")), ("watched", watched("script.py"))):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, AT_THEIR_OWN_PACE)
        ended = Started([sys.executable, *TORCHRUN, *command[1:]], folder).end()
        assert ended.status == 0, ended.err
        assert not ended.warnings
        texts.append([(folder / f"rank{rank}.txt").read_text() for rank in range(2)])
    assert texts[0] == texts[1]
    assert ended.told.count("the ranks do not make the same steps") == 1  # the first rank reports for all


@pytest.mark.long
@pytest.mark.slow
def test_children_that_train_are_recorded(tmp_path: Path) -> None:
    write(tmp_path, SPAWNS)
    ended = Started(watched("script.py", "-1"), tmp_path).end()
    assert (ended.status, ended.out, ended.own) == (0, "joined\n", "")
    assert "recorded by the processes that the script started" in ended.told
    assert not ended.warnings
    run = recorded(tmp_path)
    assert len(run.ranks) == 1
    assert run.window().steps.tolist() == [1, 2, 3, 4, 5]
    assert run.ended == "finished"


@pytest.mark.slow
@pytest.mark.long
def test_a_refused_update_in_a_child_is_the_status_of_the_whole(tmp_path: Path) -> None:
    write(tmp_path, SPAWNS)
    ended = Started(watched("script.py", "1"), tmp_path).end()
    assert ended.status == 70
    assert ended.told.count("STOPPED before the update of step 3") == 1
    assert "warning:" not in ended.told


@pytest.mark.slow
@pytest.mark.parametrize("outside", OUTSIDE)
def test_ranks_train_the_same_under_watch(outside: bool, tmp_path: Path) -> None:
    ours = torchrun(tmp_path / "ours", ranks_command(outside, "-1"))
    plain = torchrun(tmp_path / "plain", bare(*TORCHRUN, "script.py", "-1")).end()
    if plain.status and ABORTED_AT_EXIT in plain.err:
        plain = torchrun(tmp_path / "plain", bare(*TORCHRUN, "script.py", "-1")).end()
    ours = ours.end()
    assert (plain.status, ours.status) == (0, 0), plain.err + ours.err
    for name in ("rank0.txt", "rank1.txt"):
        assert (tmp_path / "ours" / name).read_text() == (tmp_path / "plain" / name).read_text()
    assert not ours.warnings
    run = recorded(tmp_path / "ours")
    assert [path.name for path in run.ranks] == ["0001"]
    assert run.window().steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.description["world_size"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("outside", OUTSIDE)
def test_all_ranks_stop_when_one_has_a_nan(outside: bool, tmp_path: Path) -> None:
    ended = torchrun(tmp_path / "ours", ranks_command(outside, "1")).end()
    assert ended.status == (70 if outside else 1), ended.err
    assert not list((tmp_path / "ours").glob("rank*.txt"))
    assert "warning:" not in ended.told
    assert ended.told.count("STOPPED") == 1
    assert "STOPPED before the update of step 3: the loss is NaN on rank 1." in ended.told
    run = recorded(tmp_path / "ours")
    assert run.ended == "stopped"
    assert run.window().steps[run.window().refused].tolist() == [3]
    assert [path.name for path in run.ranks] == ["0001"]


@pytest.mark.slow
def test_a_sitecustomize_further_down_the_path_still_runs(tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    write(tmp_path / "path", "print('sitecustomize', __name__, __file__)", "sitecustomize.py")
    write(tmp_path, "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1)'])")
    environment = {"PYTHONPATH": str(tmp_path / "path"), "PYTHONUNBUFFERED": "1"}
    plain = Started(bare("script.py"), tmp_path, environment=environment).end()
    ours = Started(watched("script.py"), tmp_path, environment=environment).end()
    assert plain.out.count("sitecustomize sitecustomize") == 2
    assert (ours.status, ours.out, ours.own) == (plain.status, plain.out, plain.own)


ABORTED_AT_EXIT = "terminate called without an active exception"
"""Of gloo, now and then, in a bare run: a thread of it outlives the group."""


def torchrun(folder: Path, command: list[str]) -> Started:
    folder.mkdir(exist_ok=True)
    write(folder, RANKS)
    return Started(command, folder)


def ranks_command(outside: bool, bad: str) -> list[str]:
    if outside:
        return watched(*TORCHRUN, "script.py", bad)
    inside = watched("script.py", bad)
    return [sys.executable, *TORCHRUN, *inside[1:]]
