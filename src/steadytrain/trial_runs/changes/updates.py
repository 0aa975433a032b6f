"""Changes to gradients, moments and updates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from steadytrain.core.torch_private import SCALE, SCALER_STATES
from steadytrain.trial_runs.changes import LiveChange, at_least, more_than
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched, named

SECOND_MOMENTS = ("exp_avg_sq", "max_exp_avg_sq", "square_avg")
MOMENTS = ("exp_avg", *SECOND_MOMENTS, "momentum_buffer", "grad_avg", "sum", "acc_delta", "exp_inf")


@final
@dataclass
class ClipGradients(LiveChange):
    """Clips the global gradient norm at ``max_norm``, after everything that the script does."""

    max_norm: float
    nothing = "no gradient norm was above the limit"

    def check(self) -> None:
        more_than("max_norm", self.max_norm, 0.0)

    @torch.no_grad()
    def gate(self, process: Launched) -> None:
        gradients = [parameter.grad for parameter in process.parameters if parameter.grad is not None]
        total = math.sqrt(sum(float(gradient.float().norm()) ** 2 for gradient in gradients))
        scale = _scale_in_gradients(process)
        if total / scale > self.max_norm:
            for gradient in gradients:
                gradient.mul_(self.max_norm * scale / total)
            self.touch()


@final
@dataclass
class ClipUpdates(LiveChange):
    """Divides each tensor's update by the root mean square of (update / learning rate) if that exceeds 1.

    This is the update clipping of Adafactor and StableAdamW, applied to any optimizer.
    """

    nothing = "no update was larger than the learning rate"
    _before: list[tuple[Tensor, Tensor, float]] = field(default_factory=list, init=False, repr=False)

    def gate(self, process: Launched) -> None:
        self._before = [
            (parameter, parameter.detach().clone(), float(group["lr"]))
            for group in process.groups
            for parameter in group["params"]
            if parameter.grad is not None and float(group.get("lr") or 0.0) > 0
        ]

    @torch.no_grad()
    def updated(self, process: Launched) -> None:
        for parameter, before, rate in self._before:
            update = parameter.detach() - before
            size = float(update.float().square().mean().sqrt()) / rate
            if size > 1.0:
                parameter.copy_(before + update / size)
                self.touch()
        self._before = []


@final
@dataclass
class ResetMoments(LiveChange):
    """Once at the start, all moments and step counters of the optimizer become zero.

    A state that the script loads during the trial is cleared too, because it may not match the weights.
    """

    nothing = "the optimizer has no moments"

    def begin(self, process: Launched) -> None:
        for optimizer in process.optimizers:
            self._clear(optimizer)
            optimizer.register_load_state_dict_post_hook(self._clear)

    @torch.no_grad()
    def _clear(self, optimizer: Optimizer) -> None:
        for values in optimizer.state.values():
            for name, value in list(values.items()):
                if name in MOMENTS and isinstance(value, Tensor):
                    value.zero_()
                    self.touch()
                elif name == "step":
                    values[name] = value.zero_() if isinstance(value, Tensor) else 0


@final
@dataclass
class FreezeLayer(LiveChange):
    """No update of the parameters in ``layers`` (names of modules or parameters; ``*`` is a wildcard)."""

    layers: list[str]

    def check(self) -> None:
        if not self.layers:
            raise ValueError("layers: give at least one name")

    def gate(self, process: Launched) -> None:
        chosen = named(process.names(), process.parameters, self.layers)
        if not chosen:
            raise CannotApplyError(f"no parameter is called {', '.join(self.layers)}")
        if any(parameter.grad is not None for parameter in chosen):
            self.touch()
        process.drop_gradients(chosen)


@final
@dataclass
class ShrinkGradients(LiveChange):
    """Multiplies the gradients of ``layers`` by ``factor``."""

    layers: list[str]
    factor: float
    nothing = "no parameter with such a name has a gradient"

    def check(self) -> None:
        at_least("factor", self.factor, 0.0)

    @torch.no_grad()
    def gate(self, process: Launched) -> None:
        for parameter in named(process.names(), process.parameters, self.layers):
            if parameter.grad is not None:
                parameter.grad.mul_(self.factor)
                self.touch()


@final
@dataclass
class ZeroGradients(LiveChange):
    """Clears the gradients before the first forward of each step, whether or not the script does."""

    nothing = "gradients were clear at the beginning of each step"

    def step_begins(self, process: Launched) -> None:
        held = [parameter for parameter in process.parameters if parameter.grad is not None]
        if any(bool(parameter.grad.any()) for parameter in held if parameter.grad is not None):
            self.touch()
        process.drop_gradients(held)


@final
@dataclass
class OptimizeAll(LiveChange):
    """Every parameter of the model gets gradients and updates: frozen ones are thawed, missing ones added."""

    nothing = "every parameter of the model is trained already"

    def begin(self, process: Launched) -> None:
        if not process.optimizers:
            raise CannotApplyError("the optimizer is not known before the first update")
        held = {id(parameter) for group in process.groups for parameter in group["params"]}
        for root in process.roots:
            for parameter in root.parameters():
                if not parameter.is_floating_point():
                    continue
                if not parameter.requires_grad:
                    parameter.requires_grad_(True)
                    self.touch()
                if id(parameter) not in held:
                    held.add(id(parameter))
                    process.optimizers[0].param_groups[0]["params"].append(parameter)
                    self.touch()


@final
@dataclass
class Thaw(LiveChange):
    """Parameters of the optimizer with ``requires_grad`` False get a gradient."""

    nothing = "no parameter of the optimizer is frozen"

    def begin(self, process: Launched) -> None:
        for parameter in process.parameters:
            if parameter.is_floating_point() and not parameter.requires_grad:
                parameter.requires_grad_(True)
                self.touch()


@final
@dataclass
class LossScale(LiveChange):
    """Once at the start, multiplies the scale of every gradient scaler by ``factor``, or sets it to ``value`` if
    given."""

    factor: float = 1.0
    value: float = 0.0
    nothing = "there is no gradient scaler"

    def check(self) -> None:
        more_than("factor", self.factor, 0.0)
        at_least("value", self.value, 0.0)

    def begin(self, process: Launched) -> None:
        for scaler in process.scalers.values():
            scale: Any = SCALE.of(scaler)
            if isinstance(scale, Tensor):
                with torch.no_grad():
                    scale.fill_(self.value or float(scale) * self.factor)
                self.touch()


@final
@dataclass
class UnscaleFirst(LiveChange):
    """Clipping uses unscaled gradients: the script's clipping of scaled ones is skipped, and the gradients are clipped
    at
    ``max_norm`` after unscaling.
    """

    max_norm: float
    nothing = "the script does not clip while a loss scale is in its gradients"
    _kept: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False, repr=False)
    _original: Any = field(default=None, init=False, repr=False)

    def check(self) -> None:
        more_than("max_norm", self.max_norm, 0.0)

    def begin(self, process: Launched) -> None:
        clip = torch.nn.utils.clip_grad
        original = self._original = clip.clip_grad_norm_

        def unclipped(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            if _still_scaled(process):
                self.touch()
                return torch.nn.utils.get_total_norm([one.grad for one in tensors if one.grad is not None])
            return original(tensors, *args, **kwargs)

        clip.clip_grad_norm_ = unclipped
        torch.nn.utils.clip_grad_norm_ = unclipped

    @torch.no_grad()
    def gate(self, process: Launched) -> None:
        if not self.touched:
            return
        gradients = [parameter.grad for parameter in process.parameters if parameter.grad is not None]
        total = math.sqrt(sum(float(gradient.float().norm()) ** 2 for gradient in gradients))
        if total > self.max_norm:
            for gradient in gradients:
                gradient.mul_(self.max_norm / total)


def _still_scaled(process: Launched) -> bool:
    """Whether a scaler has scaled the loss, but not yet unscaled this step's gradients."""
    for scaler in process.scalers.values():
        states = SCALER_STATES.of(scaler)
        stages = [str(states[id(one)]["stage"]) for one in process.optimizers if id(one) in states]
        if scaler.is_enabled() and not any("UNSCALED" in stage for stage in stages):
            return True
    return False


def _scale_in_gradients(process: Launched) -> float:
    """The scale in the gradients at the gate. A fused optimizer unscales only inside its step."""
    for optimizer in process.optimizers:
        scale = getattr(optimizer, "grad_scale", None)
        if isinstance(scale, Tensor):
            return float(scale)
    return 1.0
