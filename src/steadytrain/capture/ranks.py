"""Several processes training one model: who they are, and how they decide together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta

import torch
from torch import Tensor, nn

WAIT_S_MAX = 60.0
_DATA_PARALLEL = ("DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")


def rank() -> int:
    """This process's rank: of the initialised process group, else as the launcher says, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    value = os.environ.get("RANK", "0")
    return int(value) if value.isdigit() else 0


def world_size() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    value = os.environ.get("WORLD_SIZE", "1")
    return int(value) if value.isdigit() else 1


def trains_in_step(roots: Iterable[nn.Module], parameters: Iterable[Tensor]) -> bool:
    """Whether the ranks step together: a data-parallel wrapper or sharded parameters.

    Processes may share a group and yet step at their own pace (reinforcement learning, pipelines); a collective
    there would hang, so those decide alone.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    if torch.distributed.get_world_size() < 2:
        return False
    wrapped = any(type(module).__name__ in _DATA_PARALLEL for root in roots for module in _outer_modules(root))
    return wrapped or any(hasattr(parameter, "to_local") for parameter in parameters)


def largest(flag: Tensor) -> Tensor:
    """The largest ``flag`` over all ranks, 0-d: one collective, waiting at most ``WAIT_S_MAX`` seconds.

    With NCCL the answer stays on the device and the host waits for nothing: who fetches it reads it. A rank that does
    not answer is then found by NCCL's own watchdog.
    """
    on_device = torch.distributed.get_backend() == "nccl"
    value = flag.detach().float().reshape(1).clone()
    value = value if on_device else value.cpu()
    work = torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX, async_op=True)
    if work is not None:
        if on_device:
            work.wait()  # with a time limit NCCL would make the host wait
        else:
            work.wait(timedelta(seconds=WAIT_S_MAX))
    return value[0]


def _outer_modules(root: nn.Module) -> list[nn.Module]:
    return [root, *root.children()]
