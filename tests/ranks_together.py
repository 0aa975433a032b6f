"""Runs of two ranks, launched as torchrun would: scripts, and the launch itself by warm processes."""

from __future__ import annotations

import socket
from pathlib import Path

from scripts import Ended, Started, watched, write

WORLD = 2

DATA_PARALLEL = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = torch.randn(120, 4)
    target = data.sum(dim=1, keepdim=True)
    data[40] = float("nan")
    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    order = [row for row in range(120) if row % 2 == rank]
    order.remove(40) if rank == 0 else order.insert(40, 40)
    parts = torch.utils.data.Subset(torch.utils.data.TensorDataset(data, target), order)
    torch.manual_seed(rank)
    for step, (inputs, wanted) in enumerate(torch.utils.data.DataLoader(parts, 2), 1):
        if step == 4 and rank == 1 and os.path.exists("dies"):
            os._exit(3)
        if step == 4 and rank == 1 and os.path.exists("hangs"):
            time.sleep(600)
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
"""Row 40, of rank 1, is NaN: its step is 21."""

NAN_STEP, NAN_RANK = 21, 1

REDUCED_IN_16_BITS = """
import torch
import torch.distributed as dist

def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = torch.randn(80, 4)
    data[41] = data[40] = torch.tensor([210.0, -100.0, 50.0, 150.0])
    target = torch.zeros(80, 1)
    model = torch.nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    parts = torch.utils.data.Subset(torch.utils.data.TensorDataset(data, target), range(rank, 80, 2))
    for inputs, wanted in torch.utils.data.DataLoader(parts, 2):
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        half = model.weight.grad.half()
        dist.all_reduce(half)
        model.weight.grad = half.float() / dist.get_world_size()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
"""No rank's gradient exceeds 16 bits, 210 times 310; their sum does, in step 11."""

SUM_STEP = 11


def launched(folder: Path, source: str) -> list[Ended]:
    """Records a run ``runs/run`` of the script on two ranks, as torchrun launches them."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, source)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    processes = [Started(watched("script.py"), folder, environment=variables(rank, port)) for rank in range(WORLD)]
    return [process.end() for process in processes]


def variables(rank: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(WORLD),
        "LOCAL_WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
