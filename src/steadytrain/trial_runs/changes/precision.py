"""Other number formats: float32 for everything or for some modules, bfloat16 instead of float16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from steadytrain.capture.step.input_recorder import map_tensors
from steadytrain.core.torch_private import BUFFERS
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

HALVES = (torch.float16, torch.bfloat16)


@final
@dataclass
class Float32(LiveChange):
    """Autocast is off. 16-bit weights, moments and inputs become float32 with the same values."""

    nothing = "everything is computed in float32 already"

    def begin(self, process: Launched) -> None:
        _on_autocast(self, lambda context: False if context._enabled else None)
        for kind in _entered():
            torch.set_autocast_enabled(kind, False)
            self.touch()
        torch.set_float32_matmul_precision("highest")
        _convert(self, process, HALVES, torch.float32)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any]:
        other = _cast((tuple(args), dict(kwargs)), HALVES, torch.float32)
        return other[0], other[1]


@final
@dataclass
class Bfloat16ForFloat16(LiveChange):
    """float16 autocast becomes bfloat16, and so do float16 weights, moments and inputs."""

    nothing = "nothing is computed in float16"

    def begin(self, process: Launched) -> None:
        def to_bfloat16(context: Any) -> None:
            if context._enabled and context.fast_dtype == torch.float16:
                context.fast_dtype = torch.bfloat16
                self.touch()

        _on_autocast(self, to_bfloat16)
        for kind in _entered():
            if torch.get_autocast_dtype(kind) == torch.float16:
                torch.set_autocast_dtype(kind, torch.bfloat16)
                self.touch()
        _convert(self, process, (torch.float16,), torch.bfloat16)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any]:
        other = _cast((tuple(args), dict(kwargs)), (torch.float16,), torch.bfloat16)
        return other[0], other[1]


@final
@dataclass
class Float32Island(LiveChange):
    """The modules that match ``modules`` (``*`` is a wildcard) compute in float32: without autocast, with 16-bit inputs
    and
    weights widened. Outputs are narrowed again if the weights were 16-bit.
    """

    modules: list[str]
    nothing = "these modules compute in float32 already"

    def check(self) -> None:
        if not self.modules:
            raise ValueError("modules: give at least one name")

    def begin(self, process: Launched) -> None:
        found = [module for pattern in self.modules for _, module in process.modules_called(pattern)]
        if not found:
            raise CannotApplyError(f"no module is called {', '.join(self.modules)}")
        for module in found:
            self._make_island(module, process)

    def _make_island(self, module: nn.Module, process: Launched) -> None:
        dtypes = {one.dtype for one in (*module.parameters(), *module.buffers()) if one.dtype in HALVES}
        _convert(self, process, HALVES, torch.float32, within=module)
        original = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
            if kinds:
                self.touch()
            args, kwargs = _cast((tuple(args), dict(kwargs)), HALVES, torch.float32)
            contexts = [torch.autocast(kind, enabled=False) for kind in kinds]
            for context in contexts:
                context.__enter__()  # type: ignore[no-untyped-call]
            try:
                output = original(*args, **kwargs)
            finally:
                for context in reversed(contexts):
                    context.__exit__(None, None, None)
            return _cast((output,), (torch.float32,), next(iter(dtypes)))[0] if dtypes else output

        module.forward = forward


@final
@dataclass
class MasterWeights(LiveChange):
    """The optimizer keeps weights and moments in float32; the model gets them rounded to their 16 bits.

    The rounding error of each update carries over to the next one, so that none is lost.
    """

    nothing = "no weight is kept in 16 bits"

    def begin(self, process: Launched) -> None:
        self._masters: dict[int, Tensor] = {
            id(parameter): parameter.detach().float() for parameter in process.parameters if parameter.dtype in HALVES
        }
        self._formats = {id(parameter): parameter.dtype for parameter in process.parameters}
        if self._masters:
            self.touch()

    @torch.no_grad()
    def gate(self, process: Launched) -> None:
        for parameter in process.parameters:
            master = self._masters.get(id(parameter))
            if master is None:
                continue
            gradient = parameter.grad
            parameter.grad = None
            parameter.data = master
            parameter.grad = None if gradient is None else gradient.float()
            for optimizer in process.optimizers:
                values = optimizer.state.get(parameter, {})
                for name, value in list(values.items()):
                    if isinstance(value, Tensor) and value.dtype in HALVES:
                        values[name] = value.float()

    @torch.no_grad()
    def updated(self, process: Launched) -> None:
        for parameter in process.parameters:
            if id(parameter) in self._masters:
                self._masters[id(parameter)] = parameter.data
                parameter.grad = None
                parameter.data = parameter.data.to(self._formats[id(parameter)])


def _entered() -> list[str]:
    """The kinds of device whose autocast is on: a trial may begin at a call that the script makes under autocast."""
    torch.clear_autocast_cache()
    return [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]


def _on_autocast(change: LiveChange, decide: Any) -> None:
    """Calls ``decide`` with every autocast context at its entry; False switches the context off."""
    original = torch.autocast.__enter__

    def enter(self: Any) -> Any:
        if decide(self) is False:
            self._enabled = False
            change.touch()
        return original(self)  # type: ignore[no-untyped-call]

    torch.autocast.__enter__ = enter  # type: ignore[method-assign]


@torch.no_grad()
def _convert(
    change: LiveChange,
    process: Launched,
    formats: tuple[torch.dtype, ...],
    to: torch.dtype,
    *,
    within: nn.Module | None = None,
) -> None:
    """Converts parameters, buffers and moments in one of ``formats`` to ``to``, in place."""
    roots = process.roots if within is None else [within]
    tensors: dict[int, Tensor] = {id(one): one for root in roots for one in root.parameters()}
    if within is None:
        tensors |= {id(parameter): parameter for parameter in process.parameters}
    for parameter in tensors.values():
        if parameter.dtype not in formats:
            continue
        change.touch()
        gradient, parameter.grad = parameter.grad, None
        parameter.data = parameter.data.to(to)
        parameter.grad = None if gradient is None else gradient.to(to)
        for optimizer in process.optimizers:
            values = optimizer.state.get(parameter, {})
            for name, value in list(values.items()):
                if isinstance(value, Tensor) and value.dtype in formats:
                    values[name] = value.to(to)
    for root in roots:
        for module in root.modules():
            for name, buffer in BUFFERS.of(module).items():
                if buffer is not None and buffer.dtype in formats:
                    change.touch()
                    BUFFERS.of(module)[name] = buffer.to(to)


def _cast(value: Any, formats: tuple[torch.dtype, ...], to: torch.dtype) -> Any:
    return map_tensors(value, lambda tensor: tensor.to(to) if tensor.dtype in formats else tensor)
