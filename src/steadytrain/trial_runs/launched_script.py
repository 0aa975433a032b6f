"""The launched script's objects that a change may modify, and the state to restore after a refused step."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.manual_updates import HandWritten
from steadytrain.capture.hooks.model_discovery import module_names, plain_name
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import COMPILED_CALL, ORIGINAL_MODULE
from steadytrain.experiments.specs import Role
from steadytrain.trial_runs.function_stand_ins import Functions


class CannotApplyError(Exception):
    """A change does not apply to this script; the text says why."""


class Launched:
    """The script's model, optimizers and scalers, as far as they are known so far.

    ``role`` is that of the current entry. With it, a replaced loss can leave probes on the script's own loss.
    """

    def __init__(self) -> None:
        self.roots: list[nn.Module] = []
        self.stream: Stream | None = None
        self.others: Sequence[Stream] = ()
        """The streams of other optimizers that take turns with it."""

        self.scalers: Mapping[int, Any] = {}
        self.role: Role = "train"
        self.entry = 0
        self.trained = 0
        """The number of earlier entries that are no probes."""

        self.functions = Functions()
        self._undo: list[Callable[[], None]] = []

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return self.stream.optimizers if self.stream is not None else []

    @property
    def groups(self) -> Iterator[dict[str, Any]]:
        for optimizer in self.optimizers:
            yield from optimizer.param_groups

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters of the optimizers; before the first gate those of the model."""
        if self.stream is not None:
            return self.stream.parameters
        found = {id(parameter): parameter for root in self.roots for parameter in root.parameters()}
        return list(found.values())

    def names(self) -> dict[int, str]:
        """The name of each parameter by its id."""
        if self.stream is not None and self.stream.model is not None:
            return self.stream.model.names
        return {id(one): plain_name(name) for root in self.roots for name, one in root.named_parameters()}

    def modules(self) -> dict[nn.Module, str]:
        return module_names(self.roots)

    def modules_called(self, pattern: str) -> list[tuple[str, nn.Module]]:
        """The modules with a dotted name, or a parent's, that matches ``pattern`` (``*`` is a wildcard)."""
        return [(name, module) for module, name in self.modules().items() if fnmatch.fnmatchcase(name, pattern)]

    def compiled(self) -> str | None:
        """The name of a compiled module of the model; None if none is. New hooks and modes may not reach its code."""
        for module, name in self.modules().items():
            if ORIGINAL_MODULE.on(module) is not None or COMPILED_CALL.on(module) is not None:
                return name or type(module).__name__
        return None

    # -- gradients, at the gate ------------------------------------------------------------------------------------

    @property
    def gradient_scale(self) -> float:
        """The loss scale that the gradients still carry at the gate. A fused optimizer unscales inside its step."""
        scales = (getattr(optimizer, "grad_scale", None) for optimizer in self.optimizers)
        return next((float(scale) for scale in scales if isinstance(scale, Tensor)), 1.0)

    def applied_norm(self) -> float | None:
        """The global norm of the gradients as they are now, without the loss scale; None if there are none."""
        norms = [parameter.grad.float().norm() for parameter in self.parameters if parameter.grad is not None]
        if not norms:
            return None
        return float(torch.stack([one.to(norms[0].device) for one in norms]).norm()) / self.gradient_scale

    def usual_norm(self) -> float:
        """A level that nine of ten healthy steps before the onset stayed below; 0 if it is not known."""
        return 0.0

    def norms_seen(self) -> list[float]:
        """The norms of the healthy steps before the change, the oldest first, as far as they are known."""
        return []

    @torch.no_grad()
    def scale_gradients(self, factor: float) -> None:
        """Multiply every gradient by ``factor``."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    # -- hyper-parameters ------------------------------------------------------------------------------------------

    def set_group(self, group: dict[str, Any], key: str, value: Any) -> None:
        """Sets a hyper-parameter for this update only. The value that a scheduler continues from stays."""
        before = group[key]
        if isinstance(before, Tensor) and not isinstance(value, Tensor):
            kept = before.clone()
            with torch.no_grad():
                before.fill_(value)
            self._undo.append(lambda: _fill(before, kept))
            return
        group[key] = value

        def undo() -> None:
            group[key] = before

        self._undo.append(undo)

    def undo_groups(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def drop_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Removes the gradients, so that an optimizer leaves weights and state unchanged; an update by hand reads
        zeros."""
        by_hand = any(isinstance(one, HandWritten) for one in self.optimizers)
        for parameter in parameters:
            zeros = by_hand and parameter.grad is not None
            parameter.grad = torch.zeros_like(parameter) if zeros else None

    def rated(self) -> Iterator[dict[str, Any]]:
        """The groups with a learning rate.

        Raises:
            CannotApplyError: the script updates by hand, with a number of its own.
        """
        for group in self.groups:
            if "lr" in group:
                if group["lr"] is None:
                    raise CannotApplyError("the learning rate is the script's own number: it updates by hand")
                yield group


class Kept:
    """Copies of parameters, buffers, optimizer state and scalers, to be restored.

    Scalers are restored separately, because the script updates them after the optimizer step.
    """

    def __init__(self, process: Launched) -> None:
        tensors: dict[int, Tensor] = {}
        for root in (*process.roots, *(root for one in process.others for root in one.roots())):
            for tensor in (*root.parameters(), *root.buffers()):
                tensors[id(tensor)] = tensor
        optimizers = [*process.optimizers, *(optimizer for one in process.others for optimizer in one.optimizers)]
        for tensor in (*process.parameters, *_state_tensors(optimizers)):
            tensors[id(tensor)] = tensor
        with torch.no_grad():
            self._tensors = [(tensor, tensor.detach().clone()) for tensor in tensors.values()]
        self._scalers = [(scaler, scaler.state_dict()) for scaler in process.scalers.values()]

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, values in self._tensors:
            tensor.data.copy_(values)

    def restore_scalers(self) -> None:
        for scaler, values in self._scalers:
            if values:
                scaler.load_state_dict(values)


def named(names: Mapping[int, str], parameters: Sequence[Tensor], patterns: Collection[str]) -> list[Tensor]:
    """The parameters with a name, or a parent module's, that matches one of ``patterns``."""

    def fits(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, one) or name.startswith(one.rstrip(".") + ".") for one in patterns)

    return [parameter for parameter in parameters if fits(names.get(id(parameter), ""))]


def _state_tensors(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[Tensor]:
    for optimizer in optimizers:
        for values in optimizer.state.values():
            if isinstance(values, Mapping):
                yield from (value for value in values.values() if isinstance(value, Tensor))


@torch.no_grad()
def _fill(tensor: Tensor, values: Tensor) -> None:
    tensor.copy_(values)
