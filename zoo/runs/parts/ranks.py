"""Two processes that train together, started by the script itself; they meet over gloo on this machine."""

import os
import subprocess
import sys
import tempfile

import torch.distributed as dist

RANKS = 2


def start() -> int:
    """The rank of this process. Called without one, the script is started once for each, and this process ends."""
    if "RANK" not in os.environ:
        with tempfile.TemporaryDirectory() as meeting:
            place = {"WORLD_SIZE": str(RANKS), "MEETING": os.path.join(meeting, "place")}
            started = [
                subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **place, "RANK": str(rank)})
                for rank in range(RANKS)
            ]
            sys.exit(max(one.wait() for one in started))
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=RANKS)
    return rank


def average(tensors) -> None:
    """Each tensor becomes its mean over the ranks."""
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor /= RANKS
