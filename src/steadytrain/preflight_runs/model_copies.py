"""Gives checks copies of a model's values and restores everything afterwards.

The script's tensors stay the same objects, so that its own code works on them; only their memory is exchanged. Nothing
writes to the original memory, so it returns unchanged.
"""

from __future__ import annotations

import collections
import contextlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture.snapshots.digests import digest, text_digest
from steadytrain.capture.step.input_recorder import RandomState
from steadytrain.core.torch_private import BUFFERS, CHILDREN, PARAMETERS, VERSION

ATTRIBUTE_BYTES_MAX = 16 << 20
"""A tensor that is a plain attribute of a module is copied up to this size and restored if it was modified."""

TREE_DEPTH = 4
_CONTAINERS = (dict, list, set, collections.OrderedDict, collections.defaultdict, collections.deque)
_HELD_ELSEWHERE = frozenset({PARAMETERS.attribute, BUFFERS.attribute, CHILDREN.attribute})


@dataclass(frozen=True, eq=False)
class Values:
    """Copies of tensor values, by ``id`` of the tensor. Tensors that share memory share the copy."""

    tensors: Sequence[Tensor]
    copies: Sequence[Tensor]

    @staticmethod
    def take(tensors: Iterable[Tensor]) -> Values:
        kept = list({id(tensor): tensor for tensor in tensors}.values())
        return Values(kept, _copies([tensor.data for tensor in kept]))

    def fresh(self) -> dict[int, Tensor]:
        """Another copy of each."""
        return {id(tensor): copy for tensor, copy in zip(self.tensors, _copies(self.copies), strict=True)}


def tensors_of_modules(modules: Iterable[nn.Module]) -> list[Tensor]:
    """Parameters and buffers, each tensor once."""
    found: dict[int, Tensor] = {}
    for top in modules:
        for module in top.modules():
            for tensor in (*PARAMETERS.of(module).values(), *BUFFERS.of(module).values()):
                if tensor is not None:
                    found[id(tensor)] = tensor
    return list(found.values())


class Workbench:
    """Lets checks modify modules freely.

    Args:
        modules: the root modules that a check may change.
        initial: starting values, from before the first update. Tensors without one start with their present value.
        objects: other objects that the script's loss code may modify: trainers, random generators, metrics.
    """

    def __init__(self, modules: Sequence[nn.Module], initial: Values | None = None, objects: Iterable[Any] = ()):
        self._modules = list({id(m): m for top in modules for m in top.modules()}.values())
        self._initial = initial
        self._objects = [thing for thing in objects if not isinstance(thing, (nn.Module, Tensor))]

    @contextlib.contextmanager
    def copies(self, *, seed: int) -> Iterator[None]:
        """In the block, the modules hold copies of their initial values without gradients, and generators start at
        ``seed``."""
        tensors = tensors_of_modules(self._modules)
        own = [(tensor, tensor.data, tensor.grad, tensor.requires_grad) for tensor in tensors]
        random_state = RandomState.take()
        kept = [_keep(vars(module), TREE_DEPTH) for module in self._modules]
        kept += [_keep(vars(thing), TREE_DEPTH) for thing in self._objects if hasattr(thing, "__dict__")]
        held: list[tuple[Any, dict[str, Any]]] = [
            (table, dict(table)) for m in self._modules for table in (PARAMETERS.of(m), BUFFERS.of(m), CHILDREN.of(m))
        ]
        generators = [undo for thing in self._objects if (undo := _generator_undo(thing)) is not None]
        threads, grad_mode = torch.get_num_threads(), torch.is_grad_enabled()
        copies = self._copies(tensors)
        try:
            for tensor in tensors:
                tensor.grad = None
                tensor.data = copies[id(tensor)]
            _seed(seed)
            with torch.enable_grad():
                yield
        finally:
            for table, before in held:
                table.clear()
                table.update(before)
            for tensor, data, gradient, trained in own:
                tensor.data = data
                tensor.requires_grad_(trained) if tensor.is_leaf else None
                tensor.grad = gradient
            for undo in (*kept, *generators):
                undo()
            torch.set_num_threads(threads)
            torch.set_grad_enabled(grad_mode)
            random_state.restore()

    def _copies(self, tensors: Sequence[Tensor]) -> dict[int, Tensor]:
        fresh = self._initial.fresh() if self._initial is not None else {}
        rest = [tensor for tensor in tensors if id(tensor) not in fresh]
        return fresh | Values.take(rest).fresh() if rest else fresh


OF_GPU = "random numbers of GPU "


def fingerprint(
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer] = (),
    schedulers: Sequence[Any] = (),
    others: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """A digest, by name, of everything that a preflight must leave unchanged."""
    found: dict[str, str] = {}
    for number, top in enumerate(modules):
        for path, module in top.named_modules():
            lead = f"model {number}: {path}"
            found[f"{lead} mode"] = str(module.training)
            for name, tensor in (*PARAMETERS.of(module).items(), *BUFFERS.of(module).items()):
                if tensor is not None:
                    found[f"{lead}.{name}"] = _digest(tensor)
                    found[f"{lead}.{name} gradient"] = "" if tensor.grad is None else _digest(tensor.grad)
    for number, optimizer in enumerate(optimizers):
        for place, group in enumerate(optimizer.param_groups):
            settings = {key: value for key, value in group.items() if key != "params"}
            found[f"optimizer {number} group {place}"] = _plain_digest(settings)
            for at, parameter in enumerate(group["params"]):
                state = optimizer.state.get(parameter, {})
                found[f"optimizer {number} state {place}.{at}"] = _plain_digest(dict(state))
    for number, scheduler in enumerate(schedulers):
        plain = {key: value for key, value in vars(scheduler).items() if isinstance(value, (int, float, str, list))}
        found[f"scheduler {number}"] = _plain_digest(plain)
    state = RandomState.take()
    found["random numbers of Python"] = text_digest(state.python)
    found["random numbers of NumPy"] = _plain_digest(state.numpy) if state.numpy is not None else ""
    found["random numbers of torch"] = _digest(state.torch)
    for number, cuda in enumerate(state.cuda):
        found[f"{OF_GPU}{number}"] = _digest(cuda)
    for name, value in (others or {}).items():
        found[name] = _plain_digest(value)
    return found


def moved(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The names whose digests differ. The random numbers of a GPU that was not in use before are nobody's."""
    names = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return tuple(sorted(name for name in names if name in before or not name.startswith(OF_GPU)))


# Copy and restore.


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """A copy of each tensor. Tensors that share memory share it in the copy."""
    storages: dict[tuple[str, int], torch.UntypedStorage] = {}
    made = []
    for tensor in tensors:
        if type(tensor) is not Tensor or tensor.layout != torch.strided or tensor.device.type == "meta":
            made.append(tensor.clone())
            continue
        storage = tensor.untyped_storage()
        key = (str(tensor.device), storage.data_ptr() or id(tensor))
        if key not in storages:
            storages[key] = storage.clone()  # type: ignore[no-untyped-call]
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        with torch.no_grad():
            copy.set_(storages[key], tensor.storage_offset(), tensor.shape, tensor.stride())
        made.append(copy)
    return made


def _keep(value: Any, depth: int) -> Callable[[], None]:
    """A function that restores ``value``, a tree of plain containers, to its present content."""
    if isinstance(value, Tensor):
        if isinstance(value, nn.Parameter) or value.nbytes > ATTRIBUTE_BYTES_MAX or value.layout != torch.strided:
            return _nothing
        copy, version = value.detach().clone(), VERSION.of(value)

        def restore_tensor() -> None:
            if VERSION.of(value) != version:
                value.data.copy_(copy)

        return restore_tensor
    if depth == 0 or type(value) not in _CONTAINERS:
        return _nothing
    if isinstance(value, dict):
        skipped = _HELD_ELSEWHERE if PARAMETERS.attribute in value else frozenset()
        entries = dict(value)
        inner = [_keep(entry, depth - 1) for key, entry in entries.items() if key not in skipped]

        def restore_dict() -> None:
            for undo in inner:
                undo()
            if len(value) != len(entries) or any(value.get(k, _nothing) is not v for k, v in entries.items()):
                value.clear()
                value.update(entries)

        return restore_dict
    members = list(value)
    inside = [_keep(member, depth - 1) for member in members]

    def restore_others() -> None:
        for undo in inside:
            undo()
        if len(value) != len(members) or any(one is not other for one, other in zip(value, members, strict=True)):
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(members)

    return restore_others


def _nothing() -> None:
    """Nothing to restore for this kind of value."""


def _generator_undo(thing: Any) -> Callable[[], None] | None:
    """A function that restores the state of a random generator; None for other objects."""
    if isinstance(thing, torch.Generator):
        state = thing.get_state()

        def restore() -> None:
            thing.set_state(state)

        return restore
    if isinstance(thing, random.Random):
        plain = thing.getstate()
        return lambda: thing.setstate(plain)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and isinstance(thing, numpy_random.Generator):
        bits = thing.bit_generator.state
        return lambda: setattr(thing.bit_generator, "state", bits)
    return None


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _digest(tensor: Tensor) -> str:
    try:
        return digest(tensor)
    except (RuntimeError, NotImplementedError, TypeError):
        return f"{tensor.dtype}{list(tensor.shape)}"  # a tensor without plain memory


def _plain_digest(value: Any) -> str:
    tensors: list[str] = []

    def plain(entry: Any, depth: int) -> Any:
        if isinstance(entry, Tensor):
            tensors.append(_digest(entry))
            return f"tensor {len(tensors)}"
        if isinstance(entry, np.ndarray):
            return entry.tobytes()
        if depth < TREE_DEPTH and isinstance(entry, Mapping):
            return {str(key): plain(part, depth + 1) for key, part in entry.items()}
        if depth < TREE_DEPTH and isinstance(entry, (list, tuple)):
            return [plain(part, depth + 1) for part in entry]
        return entry if isinstance(entry, (int, float, str, bytes, bool, type(None))) else type(entry).__name__

    return text_digest(plain(value, 0), *tensors)
