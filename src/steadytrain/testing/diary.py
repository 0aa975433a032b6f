"""Record what a training loop does, bit for bit, and plant a fault in it, through torch's public hooks.

Nothing here uses the parts of torch that steadytrain relies on, except the two global optimizer hooks, which are
public. Loops that update their weights without a ``torch.optim`` optimizer leave no line here: their tests compare what
the loop returns.
"""

from __future__ import annotations

import gc
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from steadytrain.core.torch_private import CHILDREN, ORIGINAL_MODULE, PARAMETERS, SPARSE_INDICES, SPARSE_VALUES

_WRAPPERS = (ORIGINAL_MODULE.attribute, "module")


@dataclass(frozen=True)
class Fault:
    """A NaN in one element of a gradient, in one step of the optimizer that owns the parameter.

    With ``skipped``, a gradient scaler is expected to skip the optimizer's step.
    """

    step: int
    parameter: str
    skipped: bool = False


class Diary:
    """A line before and after every optimizer step inside the block. Plants ``fault`` on the way."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.lines: list[str] = []
        self.planted = 0
        self._fault = fault
        self._seen: dict[int, _Seen] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Diary:
        self._hooks = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        for seen in self._seen.values():
            seen.unplant()

    def note(self, *values: Any) -> None:
        """Add a line for any other values that must be equal."""
        self.lines.append(f"noted {digest(values)} random {random_digest()}")

    def moved_by_refused(self, step: int) -> list[str]:
        """The optimizers whose parameters or state changed although ``step`` was refused.

        To find the cause, steadytrain may have rerun the loop once, through an optimizer without gradients. So the
        refused optimizer is compared with its state before that step, and others with their last recorded state.
        """
        alone = len(self._seen) == 1
        return [
            type(seen.optimizer).__name__
            for seen in self._seen.values()
            if state_digest(seen.optimizer) != seen.states[step - 1 if alone or seen.at_fault else -1]
        ]

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        seen = self._seen.get(id(optimizer))
        if seen is None:
            seen = self._seen[id(optimizer)] = _Seen(optimizer, len(self._seen), [state_digest(optimizer)])
        fault = self._fault
        begins = fault is not None and seen.steps == fault.step - 1 and not fault.skipped
        if fault is not None and begins and (self.planted or fault.step == 1):
            # The first step has planted nothing yet; in a later one the loop may have discarded it (a GAN does).
            for parameter in find_parameter(fault.parameter, optimizer):
                seen.at_fault = True
                if parameter.grad is None:
                    raise AssertionError(f"{fault.parameter} has no gradient when step {fault.step} begins")
                if not bool(parameter.grad.isnan().any()):
                    self._spoil(parameter)
        gradients = [parameter.grad for parameter in _parameters(optimizer)]
        self.lines.append(f"{seen} gradients {digest(gradients)} random {random_digest()}")

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        seen = self._seen[id(optimizer)]
        seen.steps += 1
        seen.states.append(state_digest(optimizer))
        # An optimizer with a closure computes its gradients inside its step.
        gradients = [parameter.grad for parameter in _parameters(optimizer)]
        self.lines.append(f"{seen} update {seen.states[-1]} gradients {digest(gradients)} random {random_digest()}")
        if self._fault is not None and seen.steps == self._fault.step - 1:
            for parameter in find_parameter(self._fault.parameter, optimizer):
                seen.at_fault = True
                seen.plant = parameter.register_post_accumulate_grad_hook(self._spoil)  # type: ignore[no-untyped-call]

    def _spoil(self, parameter: Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        values = gradient.detach()
        values = SPARSE_VALUES.of(values)() if values.is_sparse else values
        with torch.no_grad():
            values.view(-1)[0] = float("nan")
        self.planted += 1
        for seen in self._seen.values():
            seen.unplant()


@dataclass
class _Seen:
    """One optimizer, with its state before its first step and after each."""

    optimizer: torch.optim.Optimizer
    number: int
    states: list[str]
    steps: int = 0
    at_fault: bool = False
    plant: Any = None

    def unplant(self) -> None:
        """Plant a fault only once: later steps fail only by its effect."""
        if self.plant is not None:
            self.plant.remove()
            self.plant = None

    def __str__(self) -> str:
        return f"{type(self.optimizer).__name__} {self.number} step {self.steps}"


def find_parameter(name: str, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The parameter of ``optimizer`` that a module in this process knows as ``name``; empty if there is none.

    Raises:
        AssertionError: several parameters of the optimizer have this name.
    """
    owned = {id(parameter): parameter for parameter in _parameters(optimizer)}
    found: dict[int, Tensor] = {}
    for module in [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]:
        path = name.split(".")
        # If several models are trained, parameter names begin with the model's class.
        for tensor in (_follow(module, path), _follow(module, path[1:]) if path[0] == type(module).__name__ else None):
            if id(tensor) in owned:
                found[id(tensor)] = owned[id(tensor)]
    if len(found) > 1:
        raise AssertionError(f"{len(found)} parameters of {type(optimizer).__name__} are called {name}: name another")
    return list(found.values())


def state_digest(optimizer: torch.optim.Optimizer) -> str:
    """A digest of an optimizer's parameters and state."""
    parameters = _parameters(optimizer)
    state = [optimizer.state.get(parameter) for parameter in parameters]
    return digest([parameters, state])


def digest(value: Any) -> str:
    """A hash over every byte of tensors, modules and plain values in nested containers.

    Raises:
        AssertionError: it contains a value of another kind, which could differ unnoticed.
    """
    sha = hashlib.sha256()
    _feed(sha, value)
    return sha.hexdigest()[:16]


def random_digest() -> str:
    """The global random states: Python's, NumPy's, torch's and those of its devices."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return digest([repr(random.getstate()), np.random.get_state(), torch.get_rng_state(), cuda])


def _feed(sha: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        sha.update(f"{value.dtype}{tuple(value.shape)}".encode())
        if value.layout != torch.strided:
            _feed(sha, [SPARSE_INDICES.of(value)(), SPARSE_VALUES.of(value)()])
        elif value.device.type != "meta":
            data = value.detach().int_repr() if value.is_quantized else value.detach()
            sha.update(data.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif hasattr(value, "state_dict"):
        _feed(sha, value.state_dict())
    elif isinstance(value, Mapping):
        _feed(sha, list(value.items()))
    elif isinstance(value, (list, tuple)):
        sha.update(f"[{len(value)}".encode())
        for entry in value:
            _feed(sha, entry)
    elif isinstance(value, (np.ndarray, np.generic)):
        sha.update(value.tobytes())
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
        sha.update(repr(value).encode())
    else:
        raise AssertionError(f"a {type(value).__name__} cannot be compared bit for bit: return its values instead")


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _follow(module: Any, path: list[str]) -> Any:
    """The object at ``path`` under ``module``, with or without wrappers on the way."""
    if not path:
        return module
    modules = module.__dict__.get(CHILDREN.attribute) or {}
    parameters = module.__dict__.get(PARAMETERS.attribute) or {}
    if len(path) == 1 and path[0] in parameters:
        return parameters[path[0]]
    if path[0] in modules and modules[path[0]] is not None:
        return _follow(modules[path[0]], path[1:])
    for wrapper in _WRAPPERS:
        if modules.get(wrapper) is not None:
            return _follow(modules[wrapper], path)
    return None
