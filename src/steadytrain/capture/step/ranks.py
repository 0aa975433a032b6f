"""Several processes training one model: who they are, and how they decide together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

from steadytrain.core.torch_private import JOIN

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

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


@dataclass(frozen=True)
class JointSteps:
    """Ranks that step together: a data-parallel wrapper around the model, or sharded parameters.

    Processes may share a group and yet step at their own pace (reinforcement learning, pipelines). A collective of ours
    would hang there, so those decide alone.
    """

    wrappers: tuple[nn.Module, ...]
    group: ProcessGroup | None
    """The ranks that step together; None: all of them."""

    def are_now(self) -> bool:
        """Whether every rank of the group makes the step that is under way, so that each can be asked about it.

        Not under ``join()``: a rank that is out of inputs shadows the wrapper's collectives and knows none of ours.
        Nor where the last forward was under ``no_sync``: ranks may then step as often as they like.
        """
        if any(getattr(JOIN.on(module), "enable", False) for module in self.wrappers):
            return False
        synchronised = [module.require_forward_param_sync for module in self.wrappers if _is_ddp(module)]
        return not synchronised or any(synchronised)


def joint_steps(roots: Iterable[nn.Module], parameters: Iterable[Tensor]) -> JointSteps | None:
    """How the ranks step together; None where each steps by itself."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    world = torch.distributed.get_world_size()
    if world < 2:
        return None
    wrappers = [module for root in roots for module in _outer_modules(root) if type(module).__name__ in _DATA_PARALLEL]
    sharded = [parameter for parameter in parameters if hasattr(parameter, "to_local")]
    if not wrappers and not sharded:
        return None
    group = None if sharded else _smaller_group(wrappers, world)
    return JointSteps(tuple(wrappers), group)


def _is_ddp(module: nn.Module) -> TypeGuard[nn.parallel.DistributedDataParallel]:
    return isinstance(module, nn.parallel.DistributedDataParallel)


def _smaller_group(wrappers: Iterable[nn.Module], world: int) -> ProcessGroup | None:
    """The group of the model, where that is not all ranks."""
    for module in wrappers:
        if _is_ddp(module) and module.process_group.size() < world:
            return module.process_group
    return None


def largest(flag: Tensor, joint: JointSteps) -> Tensor:
    """The largest ``flag`` over the ranks that step together, 0-d: one collective of at most ``WAIT_S_MAX`` seconds.

    With NCCL the answer stays on the device and the host waits for nothing: who fetches it reads it. A rank that does
    not answer is then found by NCCL's own watchdog.
    """
    on_device = torch.distributed.get_backend(joint.group) == "nccl"
    value = flag.detach().float().reshape(1).clone()
    value = value if on_device else value.cpu()
    work = torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX, group=joint.group, async_op=True)
    if work is not None:
        if on_device:
            work.wait()  # with a time limit NCCL would make the host wait
        else:
            work.wait(timedelta(seconds=WAIT_S_MAX))
    return value[0]


def _outer_modules(root: nn.Module) -> list[nn.Module]:
    return [root, *root.children()]
