"""Several processes that train one model: their ranks, and the collective by which they decide together."""

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
    """The rank of this process: from the initialised process group, else from the launcher's ``RANK``, else 0."""
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

    Other processes may share a group and still step at their own pace (reinforcement learning, pipelines). Our
    collective would hang there, so each of them decides alone.
    """

    wrappers: tuple[nn.Module, ...]
    group: ProcessGroup | None
    """The ranks that step together; None for all ranks."""

    def are_now(self) -> bool:
        """Whether every rank of the group makes the current step, so all of them would join our collective.

        False under ``join()``: a rank without inputs shadows the wrapper's collectives, but not ours. Also False if the
        last forward ran under ``no_sync``: the ranks may then step at different times.
        """
        if any(getattr(JOIN.on(module), "enable", False) for module in self.wrappers):
            return False
        synchronised = [module.require_forward_param_sync for module in self.wrappers if _is_ddp(module)]
        return not synchronised or any(synchronised)


def joint_steps(roots: Iterable[nn.Module], parameters: Iterable[Tensor]) -> JointSteps | None:
    """How the ranks step together; None if each steps alone."""
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
    """The process group of the model; None if it has all ranks."""
    for module in wrappers:
        if _is_ddp(module) and module.process_group.size() < world:
            return module.process_group
    return None


def largest(flag: Tensor, joint: JointSteps) -> Tensor:
    """The largest ``flag`` over the ranks that step together, 0-d: one collective of at most ``WAIT_S_MAX`` seconds.

    With NCCL the result stays on the device and the host does not wait until it is fetched. NCCL's own watchdog then
    finds a rank that does not answer.
    """
    on_device = torch.distributed.get_backend(joint.group) == "nccl"
    value = flag.detach().float().reshape(1).clone()
    value = value if on_device else value.cpu()
    work = torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX, group=joint.group, async_op=True)
    if work is not None:
        if on_device:
            work.wait()  # a time limit would make NCCL block the host
        else:
            work.wait(timedelta(seconds=WAIT_S_MAX))
    return value[0]


def _outer_modules(root: nn.Module) -> list[nn.Module]:
    return [root, *root.children()]
