"""Float32 in place of autocast, for the calls of modules or of some functions; it can be taken back.

``precision`` has the changes of a replay that also convert weights and moments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from steadytrain.capture.step.input_recorder import map_tensors
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.function_stand_ins import SOFTMAX
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

HALVES = (torch.float16, torch.bfloat16)
DEVICES = ("cpu", "cuda")
NORMS = (functional.layer_norm, functional.rms_norm, functional.group_norm)
SOFTMAXES = (*SOFTMAX, functional.log_softmax, torch.log_softmax, Tensor.log_softmax)

COMPILED = "{name} is compiled, so its code does not change while it runs"
HALF_WEIGHTS = "{name} is in {dtype}: a run that goes on keeps the format of its weights"


@final
@dataclass
class Float32Calls(LiveChange):
    """Modules that match ``modules`` (``*`` is a wildcard; empty for the whole model) are called without autocast, with
    16-bit inputs widened. Their weights must be in float32 already."""

    modules: list[str] = field(default_factory=list)
    nothing = "these modules compute in float32 already"
    _hooks: list[RemovableHandle] = field(default_factory=list, init=False, repr=False)
    _contexts: list[list[Any]] = field(default_factory=list, init=False, repr=False)

    def begin(self, process: Launched) -> None:
        found = [module for pattern in self.modules for _, module in process.modules_called(pattern)]
        found = found or ([] if self.modules else list(process.roots))
        if not found:
            raise CannotApplyError(f"no module is called {', '.join(self.modules)}")
        compiled = process.compiled()
        if compiled is not None:
            raise CannotApplyError(COMPILED.format(name=compiled))
        for module in found:
            for name, parameter in module.named_parameters():
                if parameter.dtype in HALVES:
                    raise CannotApplyError(HALF_WEIGHTS.format(name=name, dtype=parameter.dtype))
        for module in dict.fromkeys(found):
            self._hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._leave, always_call=True))

    def end(self, process: Launched) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        contexts = _without_autocast()
        self._contexts.append(contexts)
        if contexts:
            self.touch()
        wide: tuple[Any, Any] = _widened((tuple(args), dict(kwargs)))
        return wide

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        for context in reversed(self._contexts.pop() if self._contexts else []):
            context.__exit__(None, None, None)


@final
@dataclass
class Float32Norms(LiveChange):
    """Normalizations and softmaxes of torch's functions compute in float32; their results get the format of their
    first input again."""

    nothing = "no normalization or softmax gets 16 bits"

    def begin(self, process: Launched) -> None:
        process.functions.replace((*NORMS, *SOFTMAXES), self._in_float32)

    def _in_float32(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        if values.dtype not in HALVES:
            return original(values, *args, **kwargs)
        self.touch()
        contexts = _without_autocast()
        try:
            others, named = _widened((tuple(args), dict(kwargs)))
            result = original(values.float(), *others, **named)
        finally:
            for context in reversed(contexts):
                context.__exit__(None, None, None)
        return result if kwargs.get("dtype") is not None else result.to(values.dtype)


def _without_autocast() -> list[Any]:
    """Contexts that were entered: one for each kind of device whose autocast is on."""
    contexts: list[Any] = [torch.autocast(kind, enabled=False) for kind in DEVICES if torch.is_autocast_enabled(kind)]
    for context in contexts:
        context.__enter__()
    return contexts


def _widened(value: Any) -> Any:
    return map_tensors(value, lambda tensor: tensor.float() if tensor.dtype in HALVES else tensor)
