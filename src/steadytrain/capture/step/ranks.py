"""Several processes that train one model: their ranks, and the collective by which they decide together."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

from steadytrain.capture.step.rank_tree import way_of
from steadytrain.core.torch_private import JOIN
from steadytrain.storage.rank_endings import rank_end
from steadytrain.storage.ranks_of_run import launched_rank, launched_ranks, rank_folder, speaks_here

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

AGREE_S_MAX = 10.0
"""Ranks that step together meet within milliseconds, because the backward has just synchronised them."""

ERROR_CHARS_MAX = 120
ASKED_MAX = 64
"""Ranks whose records are read to learn whether one has ended."""

LOST = (
    "the ranks do not make the same steps: each now decides alone, and a bad value that only one of them has no longer "
    "stops the others ({})"
)
LOST_A_RANK = "a rank has ended, so the ranks no longer decide together; each of the others now decides alone ({})"
_PEER_GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
_DATA_PARALLEL = ("DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")


def rank() -> int:
    """The rank of this process: from the initialised process group, else from the launcher's ``RANK``, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return launched_rank()


def world_size() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return launched_ranks()


def speaks(run_dir: Path) -> bool:
    """Whether this process reports on the terminal: of several ranks the first one that is recorded here does."""
    return rank() == 0 or world_size() < 2 or speaks_here(run_dir, rank())


@dataclass(frozen=True)
class JointSteps:
    """Ranks that step together: a data-parallel wrapper around the model, or sharded parameters.

    Other processes may share a group and still step at their own pace (reinforcement learning, pipelines). Our
    collective would hang there, so each of them decides alone.
    """

    wrappers: tuple[nn.Module, ...]
    group: ProcessGroup | None
    """The ranks that step together; None for all ranks."""

    sharded: bool = False
    """Whether a rank holds parts of parameters only."""

    def replicated(self) -> tuple[nn.Module, ...]:
        """The wrappers, if each rank holds the whole model and can run it without the others; else none."""
        whole = not self.sharded and all(map(_is_ddp, self.wrappers)) and self.are_now()
        return self.wrappers if whole else ()

    def are_now(self) -> bool:
        """Whether every rank of the group makes the current step, so all of them would join our collective.

        False under ``join()``: a rank without inputs shadows the wrapper's collectives, but not ours. Also False if the
        last forward with gradients ran under ``no_sync``: the ranks may then step at different times.
        """
        if any(getattr(JOIN.on(module), "enable", False) for module in self.wrappers):
            return False
        synchronised = [
            _synchronised.get(module, module.require_forward_param_sync) for module in self.wrappers if _is_ddp(module)
        ]
        return not synchronised or any(synchronised)


_synchronised: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
"""Of each data-parallel wrapper, whether its last forward with gradients was to be followed by a reduction. The wrapper
itself also forgets it in a forward without gradients, such as an evaluation on one rank."""


def forward_ended(root: nn.Module) -> None:
    """A forward with gradients of this module has ended."""
    for module in _outer_modules(root):
        if _is_ddp(module):
            _synchronised[module] = module.require_forward_param_sync


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
    return JointSteps(tuple(wrappers), group, bool(sharded))


def without_reduction(module: nn.Module) -> nn.Module:
    """The module inside data-parallel wrappers, which runs without the other ranks."""
    while _is_ddp(module):
        module = module.module
    return module


def _is_ddp(module: nn.Module) -> TypeGuard[nn.parallel.DistributedDataParallel]:
    return isinstance(module, nn.parallel.DistributedDataParallel)


def _smaller_group(wrappers: Iterable[nn.Module], world: int) -> ProcessGroup | None:
    """The process group of the model; None if it has all ranks."""
    for module in wrappers:
        if _is_ddp(module) and module.process_group.size() < world:
            return module.process_group
    return None


WENT_WRONG, HAS_BAD_GRADIENT = 2, 1
"""How bad a step is on one rank; 0 is not at all. A bad gradient may have come from another rank."""


@dataclass(frozen=True)
class BadRank:
    """The rank that reports a bad step for all. ``is_origin``: the step is known to have gone wrong there."""

    rank: int
    is_origin: bool


def first_bad_rank(badness: int, joint: JointSteps) -> BadRank | None:
    """The first rank with the greatest ``badness`` of those that step together; None if no rank has anything bad.

    Reduced gradients are bad on all ranks, but a loss is bad only where the fault is. One collective of at most
    ``AGREE_S_MAX`` seconds; of more than 16 ranks, one up and one down for each level of a tree.

    The collective runs in a process group of our own: where ranks do different things (one leaves an update out), it
    cannot be taken for a collective of the script. A rank that waited in vain asks no more, and says so once.
    """
    ranks = ranks_of(joint.group)
    if ranks in _lost:
        return BadRank(rank(), badness == WENT_WRONG) if badness else None
    world = world_size()
    try:
        gravest = _greatest(badness * world + world - 1 - rank() if badness else 0, ranks)
    except Exception as error:
        _lost[ranks] = str(error).partition("\n")[0][:ERROR_CHARS_MAX] or type(error).__name__
        return BadRank(rank(), badness == WENT_WRONG) if badness else None
    return BadRank(world - 1 - gravest % world, gravest // world == WENT_WRONG) if gravest else None


def take_lost(run_dir: Path) -> str | None:
    """Why ranks no longer decide together, once; None if nothing is new. ``run_dir`` has the records of all ranks."""
    for ranks, error in _lost.items():
        if error:
            _lost[ranks] = ""
            others = [one for one in ranks if one != rank()][:ASKED_MAX]
            gone = any(words in error for words in _PEER_GONE)
            gone = gone or any(rank_end(rank_folder(run_dir, one), one).how != "open" for one in others)
            return (LOST_A_RANK if gone else LOST).format(error)
    return None


_groups: dict[tuple[int, ...], ProcessGroup] = {}
_lost: dict[tuple[int, ...], str] = {}
"""Ranks that no longer ask each other, with the error that is still to be reported."""


def _greatest(own: int, ranks: tuple[int, ...]) -> int:
    """The greatest value of all ranks: found group by group up the tree, and handed down the same way."""
    value = torch.tensor([own], dtype=torch.int64, device="cpu")
    for members in way_of(rank(), ranks):
        _reduce(value, members)
    return int(value.item())


def _reduce(value: Tensor, members: tuple[int, ...]) -> None:
    """The greatest value of the ``members``, in place."""
    limit = timedelta(seconds=AGREE_S_MAX)
    if members not in _groups:
        _groups[members] = torch.distributed.new_group(
            list(members), timeout=limit, backend="gloo", use_local_synchronization=True
        )
    work = torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MAX, group=_groups[members], async_op=True)
    if work is not None:
        work.wait(limit)


def ranks_of(group: ProcessGroup | None) -> tuple[int, ...]:
    """The ranks of a process group; all ranks for None."""
    if group is None:
        return tuple(range(torch.distributed.get_world_size()))
    return tuple(sorted(torch.distributed.get_process_group_ranks(group)))


def _outer_modules(root: nn.Module) -> list[nn.Module]:
    return [root, *root.children()]
