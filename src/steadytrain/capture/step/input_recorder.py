"""Keeps what a rerun needs, in bounded memory: micro-batches, random state, autocast state and buffers.

Small inputs are copied, so the script may reuse or change its tensors. Large inputs are held by reference with their
version counter, which shows later changes. Buffers (such as BatchNorm statistics) are copied before a module's first
call in a step.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from steadytrain.capture.step.numpy_states import NumpyStates
from steadytrain.capture.step.script_frames import FrameLine, user_frames
from steadytrain.core.living_objects import living
from steadytrain.core.torch_private import BUFFERS, FOREACH_COPY, VERSION

COPIED_BYTES_MAX = 16 << 20
RING_STEPS = 4
RING_BYTES_MAX = 64 << 20
BUFFER_BYTES_MAX = 256 << 20
DEPTH_MAX = 8

_NUMPY = NumpyStates()


@dataclass(frozen=True)
class RandomState:
    """The states of all global random generators: Python's, NumPy's, and torch's on the CPU and on each GPU.

    ``size_bytes``: memory for what differs from the states that were taken before.
    """

    python: Any
    numpy: Any
    torch: Tensor
    cuda: tuple[Tensor, ...]
    size_bytes: int = field(default=0, compare=False)

    @staticmethod
    def take() -> RandomState:
        cuda: tuple[Tensor, ...] = ()
        if torch.cuda.is_initialized() and torch.cuda.is_available():  # type: ignore[no-untyped-call]
            cuda = tuple(torch.cuda.get_rng_state_all())
        python, of_torch, before = random.getstate(), torch.get_rng_state(), _newest[0] if _newest else None
        if before is not None:  # states that stayed the same are kept once: a tape has some of each call
            python = before.python if before.python == python else python
            of_torch = before.torch if torch.equal(before.torch, of_torch) else of_torch
        drawn = [of_torch] if before is None or of_torch is not before.torch else []
        size = sum(state.nbytes for state in (*drawn, *cuda))
        size += PYTHON_STATE_BYTES if before is None or python is not before.python else 0
        found = RandomState(python=python, numpy=_NUMPY.take(), torch=of_torch, cuda=cuda, size_bytes=size)
        _newest[:] = [found]
        return found

    def restore(self) -> None:
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)
            _NUMPY.forget()
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))


PYTHON_STATE_BYTES = 25_000
"""625 numbers, each an object."""

_newest: list[RandomState] = []
"""The last states that were taken."""


@dataclass(frozen=True)
class AutocastState:
    """The autocast state at the model call: the device types checked, and those that had autocast enabled."""

    devices: tuple[str, ...]
    enabled: tuple[tuple[str, torch.dtype], ...]
    cache: bool

    @staticmethod
    def take(devices: Iterable[str]) -> AutocastState:
        looked_at = tuple(sorted(set(devices)))
        enabled = tuple(
            (device, torch.get_autocast_dtype(device)) for device in looked_at if torch.is_autocast_enabled(device)
        )
        return AutocastState(looked_at, enabled, torch.is_autocast_cache_enabled())


@dataclass
class MicroBatch:
    """One call of a root module with gradients on: enough to call it again."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: RandomState
    random_before: RandomState | None
    autocast: AutocastState
    size_bytes: int
    samples: int
    tokens: int | None
    frames: tuple[FrameLine, ...]
    references: tuple[tuple[Tensor, int], ...] = ()
    scalar_outputs: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Sequence number of the graph node of each one-element output -> its path in the output."""

    def changed_since(self) -> bool:
        """Whether the script modified an input held by reference in place after it was recorded."""
        return any(VERSION.of(tensor) != version for tensor, version in self.references)


def record_call(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], random_before: RandomState | None
) -> MicroBatch:
    """Record the call of ``module`` that is about to run.

    ``random_before`` is the random state at the end of the previous forward: a script that draws its own batches draws
    them after that state.
    """
    tensors = list(tensors_in((args, dict(kwargs))))
    size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    references: list[tuple[Tensor, int]] = []

    def keep(tensor: Tensor) -> Tensor:
        if size_bytes <= COPIED_BYTES_MAX and type(tensor) is Tensor and not tensor.requires_grad:
            return tensor.clone()
        references.append((tensor, VERSION.of(tensor)))
        return tensor

    kept_args, kept_kwargs = map_tensors((tuple(args), dict(kwargs)), keep)
    first = next((tensor for tensor in tensors if tensor.dim() > 0), None)
    ids = [t for t in tensors if t.dim() == 2 and not t.is_floating_point() and t.dtype != torch.bool]
    return MicroBatch(
        module=module,
        args=kept_args,
        kwargs=kept_kwargs,
        random=RandomState.take(),
        random_before=random_before,
        autocast=AutocastState.take({"cpu", *(tensor.device.type for tensor in tensors)}),
        size_bytes=size_bytes,
        samples=_samples(module, first),
        tokens=int(ids[0].numel()) if ids else None,
        frames=user_frames(),
        references=tuple(references),
    )


def _samples(module: nn.Module, first: Tensor | None) -> int:
    """The rows of a call. A vector that a linear layer gets is one row: its entries are features."""
    if first is None:
        return 0
    return 1 if isinstance(module, nn.Linear) and first.dim() == 1 else int(first.size(0))


class BatchRing:
    """The micro-batches of the last ``RING_STEPS`` steps, at most ``RING_BYTES_MAX``. The newest step always stays."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, list[MicroBatch]]] = deque()

    def add(self, step: int, batches: list[MicroBatch]) -> None:
        self._steps.append((step, batches))
        while len(self._steps) > 1 and (len(self._steps) > RING_STEPS or self.size_bytes > RING_BYTES_MAX):
            self._steps.popleft()

    def release(self, roots: Collection[nn.Module]) -> None:
        """Forget the steps that called one of ``roots``: the script has dropped its optimizer."""
        gone = {id(root) for root in roots}
        kept = [(step, calls) for step, calls in self._steps if not any(id(call.module) in gone for call in calls)]
        self._steps = deque(kept)

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for _, batches in self._steps for batch in batches)

    def steps(self) -> list[tuple[int, list[MicroBatch]]]:
        return list(self._steps)


@dataclass
class KeptBuffer:
    """A buffer of ``owner`` and a copy of its values. ``restore`` also undoes a replacement by a new tensor."""

    owner: nn.Module
    name: str
    buffer: Tensor
    version: int
    values: Tensor

    @staticmethod
    def take(owner: nn.Module, name: str, buffer: Tensor) -> KeptBuffer:
        return KeptBuffer(owner, name, buffer, VERSION.of(buffer), buffer.detach().clone())

    def restore(self) -> None:
        BUFFERS.of(self.owner)[self.name] = self.buffer
        if not torch.equal(self.buffer, self.values):
            # ``.data`` leaves the version counter alone, so a graph that saved the buffer still accepts it.
            self.buffer.data.copy_(self.values)


WALK_EVERY = 8
"""Steps in which the modules with buffers are taken to be the same."""


class BufferKeeper:
    """Keeps the buffers of the called modules as they were before their first call in the step.

    Constant integer buffers are copied once. Floating-point buffers are copied in every step, because their version
    counter is not reliable: batch normalisation and writes through ``.data`` do not raise it.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], KeptBuffer] = {}
        self._owners: dict[int, tuple[list[nn.Module], int]] = {}
        self._roots: set[int] = set()
        self._this_step: dict[tuple[int, str], KeptBuffer] = {}
        self._size_bytes = 0

    def knows(self, root: nn.Module) -> bool:
        """Whether the script has called ``root`` in this step."""
        return id(root) in self._roots

    def keep(self, root: nn.Module) -> None:
        """Copy the buffers of ``root``, which is about to be called, if this is its first call in the step."""
        if id(root) in self._roots:
            return
        self._roots.add(id(root))
        moving: list[KeptBuffer] = []
        for owner in self._owners_in(root):
            for name, buffer in BUFFERS.of(owner).items():
                key = (id(owner), name)
                if buffer is None or key in self._this_step or not _can_be_kept(buffer):
                    continue
                self._size_bytes += buffer.numel() * buffer.element_size()
                if self._size_bytes > BUFFER_BYTES_MAX:
                    continue
                kept = self._kept.get(key)
                if kept is None or kept.buffer is not buffer or kept.values.shape != buffer.shape:
                    kept = self._kept[key] = KeptBuffer.take(owner, name, buffer)
                elif buffer.is_floating_point() or kept.version != VERSION.of(buffer):
                    moving.append(kept)
                self._this_step[key] = kept
        if moving:
            FOREACH_COPY([kept.values for kept in moving], [kept.buffer.detach() for kept in moving])
        for kept in moving:
            kept.version = VERSION.of(kept.buffer)

    def _owners_in(self, root: nn.Module) -> list[nn.Module]:
        """The modules with buffers, looked for in every eighth step: to walk a model takes as long as a layer of it."""
        owners, left = self._owners.get(id(root), ([], 0))
        if not left:
            owners = [owner for owner in root.modules() if BUFFERS.of(owner)]
        self._owners[id(root)] = owners, (left or WALK_EVERY) - 1
        return owners

    def step_ends(self) -> None:
        """The next call of a module begins a new step."""
        if len(self._owners) > len(self._roots):
            self._owners = {root: self._owners[root] for root in self._roots if root in self._owners}
        if len(self._kept) > len(self._this_step):
            self._kept = dict(self._this_step)  # do not keep dropped modules alive
        self._roots, self._this_step, self._size_bytes = set(), {}, 0

    def release(self) -> None:
        """Forget the buffers of modules without a call in this step."""
        self._kept = dict(self._this_step)
        self._owners.clear()

    def as_now(self) -> list[KeptBuffer]:
        """The current values of the same buffers, for a later restore."""
        # A scripted module's table has no ``get``.
        now = ((kept, dict(BUFFERS.of(kept.owner).items()).get(kept.name)) for kept in self._this_step.values())
        return [KeptBuffer.take(kept.owner, kept.name, buffer) for kept, buffer in now if buffer is not None]

    def restore(self) -> None:
        """Restore the buffers' values from the beginning of the step."""
        for kept in self._this_step.values():
            kept.restore()


@dataclass(frozen=True)
class Schedule:
    """A copy of the optimizers' hyper-parameters and of the learning-rate schedulers' state."""

    groups: tuple[tuple[dict[str, Any], dict[str, Any]], ...]
    schedulers: tuple[tuple[Any, dict[str, Any]], ...]

    @staticmethod
    def take(optimizers: Sequence[torch.optim.Optimizer]) -> Schedule:
        """Copy both. Finds the schedulers among all objects of the process, about 50 ms in a large one."""
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        kinds = (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        found = living(*kinds)
        return Schedule(
            tuple(
                (group, {key: _copied(value) for key, value in group.items() if key != "params"}) for group in groups
            ),
            tuple((one, {key: _copied(value) for key, value in vars(one).items()}) for one in found),
        )

    def restore(self) -> None:
        for group, before in self.groups:
            for key, value in before.items():
                if isinstance(value, Tensor) and isinstance(group[key], Tensor):
                    group[key].copy_(value)
                else:
                    group[key] = value
        for scheduler, before in self.schedulers:
            vars(scheduler).update(before)


def _copied(value: Any) -> Any:
    """A copy of ``value`` if it is of a kind that changes in place."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if type(value) in (list, dict) else value


def _can_be_kept(buffer: Tensor) -> bool:
    if is_lazy(buffer):  # it has no shape before its module's first call
        return False
    return buffer.layout == torch.strided and buffer.device.type != "meta" and not buffer.is_quantized


def tensors_in(value: Any) -> Iterable[Tensor]:
    """Every tensor in nested lists, tuples, mappings and dataclasses."""
    found: list[Tensor] = []
    _collect(value, found, 0)
    return found


def ids_of(call: MicroBatch | None) -> list[Tensor]:
    """The two-dimensional integer inputs of a call."""
    given = tensors_in((call.args, call.kwargs)) if call is not None else ()
    return [each for each in given if each.dim() == 2 and not each.is_floating_point()]


def frames_of(call: MicroBatch | None) -> list[Tensor]:
    """The floating-point inputs of a call with three dimensions: rows, places and features."""
    given = tensors_in((call.args, call.kwargs)) if call is not None else ()
    return [each for each in given if not each.is_nested and each.dim() == 3 and each.is_floating_point()]


def _collect(value: Any, found: list[Tensor], depth: int) -> None:
    """Add the tensors that :func:`map_tensors` would replace, in the same order."""
    if isinstance(value, Tensor):
        found.append(value)
        return
    kind = type(value)
    if depth >= DEPTH_MAX:
        return
    if kind is dict:
        value = value.values()
    elif kind is not list and not (isinstance(value, tuple) and (kind is tuple or hasattr(value, "_fields"))):
        return
    for entry in value:
        _collect(entry, found, depth + 1)


def named_tensors_in(value: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested lists, tuples and mappings, with its path: keys and indices, joined by dots."""
    if isinstance(value, Tensor):
        yield place, value
        return
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    for key, part in parts if depth < DEPTH_MAX else ():
        yield from named_tensors_in(part, f"{place}.{key}" if place else str(key), depth + 1)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor], depth: int = 0) -> Any:
    """``value`` with each tensor replaced; containers other than list, tuple, named tuple and dict stay as they are."""
    if isinstance(value, Tensor):
        return change(value)
    if depth >= DEPTH_MAX:
        return value
    if type(value) is list:
        return [map_tensors(entry, change, depth + 1) for entry in value]
    if type(value) is tuple:
        return tuple([map_tensors(entry, change, depth + 1) for entry in value])
    if type(value) is dict:
        return {key: map_tensors(entry, change, depth + 1) for key, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(entry, change, depth + 1) for entry in value))
    return value
