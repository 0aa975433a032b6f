"""Several ranks: watched and bare compute the same, and a NaN of one rank stops all before the update.

Each rank writes a digest of its gradients, losses, weights, moments and random state after every step.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import write_script
from steadytrain.storage.run_folder import open_run

pytestmark = [pytest.mark.slow, pytest.mark.long]  # each test starts two groups of processes
WAIT_S_MAX = 180.0
NAN_STEP = 7

SCRIPT = """
    import contextlib, hashlib, os, sys
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world, way = dist.get_rank(), dist.get_world_size(), sys.argv[1]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16) if way == "batch-norm" else nn.Identity(), nn.GELU())
    net.append(nn.Dropout(0.1)).append(nn.Linear(16, 1))
    if way == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        model = fully_shard(net, mesh=init_device_mesh("cpu", (world,)))
    else:
        model = DistributedDataParallel(net)
    if way == "compile":
        model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=way == "scaler", init_scale=1024.0)
    digest = hashlib.sha256()

    def local(tensor):
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor

    def take(*tensors):
        for one in tensors:
            digest.update(local(one.detach()).reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())

    torch.manual_seed(1 + rank)
    try:
        for step in range(1, 13):
            for part in range(2 if way == "accumulation" else 1):
                rows = torch.randn(8, 8)
                if len(sys.argv) > 2 and step == int(sys.argv[2]) and rank == world - 1:
                    rows[5] = float("nan")
                last = part == (1 if way == "accumulation" else 0)
                with contextlib.nullcontext() if last else model.no_sync():
                    loss = nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))
                    scaler.scale(loss).backward()
                take(loss)
            scaler.unscale_(optimizer)
            take(*(one.grad for one in model.parameters()), torch.get_rng_state())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            take(*model.parameters(), *(one["exp_avg_sq"] for one in optimizer.state.values()))
    finally:
        weights = sum(local(one.detach()).double().sum().item() for one in model.parameters())
        with open(f"rank-{rank}.txt", "w") as file:
            file.write(f"step {step} {digest.hexdigest()} {weights!r}")
        if step == 12:
            dist.destroy_process_group()
"""
WAYS = ["plain", "accumulation", "scaler", "batch-norm", "compile", "fully_shard"]


def ran(folder: Path, world: int, *words: object, watch: bool) -> subprocess.CompletedProcess[str]:
    script = write_script(folder, SCRIPT)
    ours = ["-m", "steadytrain", "run", "--name", "r"] if watch else []
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launcher, *ours, str(script), *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )


def written(folder: Path) -> list[str]:
    """What each rank wrote: its last step, the digest, and the sum of its weights."""
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("rank-*.txt"))]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_watched_ranks_compute_what_bare_ones_do(way: str, world: int, tmp_path: Path) -> None:
    found = []
    for watch in (False, True):
        ended = ran(tmp_path, world, way, watch=watch)
        assert ended.returncode == 0, ended.stderr[-3000:]
        found.append(written(tmp_path))
    assert found[0] == found[1]
    assert len(found[0]) == world
    run = open_run(tmp_path / "steadytrain-runs" / "r")
    assert [len(open_run(one).scalars().steps) for one in (run.path, *run.ranks)] == [12] * world


@pytest.mark.parametrize("way", ["plain", "accumulation", "fully_shard"])
def test_the_nan_of_one_rank_of_four_stops_all_before_the_update(way: str, tmp_path: Path) -> None:
    ended = ran(tmp_path, 4, way, NAN_STEP, watch=True)
    assert ended.returncode != 0
    stopped = written(tmp_path)
    assert [line.split()[1] for line in stopped] == [str(NAN_STEP)] * 4, ended.stderr[-3000:]
    weights = {line.rpartition(" ")[2] for line in stopped}
    assert "nan" not in weights
    assert way == "fully_shard" or len(weights) == 1  # each rank has a part of its own
    assert f"STOPPED before the update of step {NAN_STEP}: the loss is NaN on rank 3" in ended.stderr
