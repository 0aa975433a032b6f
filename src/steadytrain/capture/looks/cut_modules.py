"""Follows the calls of modules that no backward reaches, though the optimizer holds their parameters.

Hooks are on these modules only, and only from the first step to the eighth. Nothing is hooked once code was compiled.
"""

from __future__ import annotations

import inspect
import re
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_places, plain_name
from steadytrain.capture.hooks.module_hooks import ModuleHook, Report, hook_after
from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.activations.compiled import something_was_compiled
from steadytrain.core.own_errors import own
from steadytrain.core.torch_private import PARAMETERS

MODULES_MAX = 8
LAST_STEP = 8

DETACHED, NO_GRAD, CUT_INSIDE, CHECKPOINTED, RETURNED = 1.0, 2.0, 3.0, 4.0, 5.0
"""The output carries a graph that no loss reaches; the module ran under ``no_grad``; its output carries no graph; it
ran under the ``no_grad`` of a reentrant checkpoint, which made no graph, because no input of it needs a gradient; its
output is one of several that the model returns, and carries a graph that no loss reaches."""

OUTPUTS_MAX = 16
"""Tensors of a model's output that are compared with those of the modules."""

CHECKPOINT = "/torch/utils/checkpoint.py"
FRAMES_MAX = 64


class _Followed:
    """One module: the steps in which it was called in training mode, and the way in which its last call was cut."""

    def __init__(self, name: str, module: nn.Module, report: Report, *, of_class: bool) -> None:
        self.name = name
        self.of_class = of_class
        self.steps = 0
        self._called = False
        self.ever_called = False
        self.cut = 0.0
        self.made: list[weakref.ref[Tensor]] = []
        self.parameters = [weakref.ref(one) for one in module.parameters() if one.requires_grad]
        self.handle = hook_after(module, ModuleHook(self._ended, report))

    def _ended(self, module: nn.Module, args: Any, output: Any) -> None:
        if not module.training:
            return
        made = [one for one in tensors_in(output) if isinstance(one, Tensor) and one.is_floating_point()]
        self.ever_called = True
        self.made = [weakref.ref(one) for one in made[:OUTPUTS_MAX]]
        if made:
            self._called = True
            graph = any(one.requires_grad for one in made)
            stopped = CUT_INSIDE if torch.is_grad_enabled() else CHECKPOINTED if _in_checkpoint() else NO_GRAD
            self.cut = DETACHED if graph else stopped

    def returned(self, outputs: set[int]) -> None:
        """The model returns the tensors with these ids."""
        if self.cut == DETACHED and any(
            one is not None and id(one) in outputs for one in (held() for held in self.made)
        ):
            self.cut = RETURNED
        self.made = []

    def step(self) -> None:
        self.steps += self._called
        self._called = False

    def is_reached(self) -> bool:
        return any(one is not None and one.grad is not None for one in (held() for held in self.parameters))


class CutModules:
    """Serves one stream. Create it at the gate of the first step: then backward has left its gradients."""

    def __init__(self, stream: Stream, report: Report) -> None:
        self._followed: list[_Followed] = []
        self._handles: list[Any] = []
        self._since = stream.own_steps + 1
        unreached = {id(one) for one in stream.parameters if one.grad is None and one.requires_grad}
        if not unreached or len(unreached) == len(stream.parameters):
            return
        if is_sharded(stream.parameters) or something_was_compiled():
            return
        names = {id(one): name for one, name in zip(stream.parameters, stream.tensor_names, strict=False)}
        for root in stream.roots():
            self._followed += _cut_in(root, unreached, names, report)
            self._handles.append(hook_after(root, ModuleHook(self._returned, report)))
        for one in self._followed[MODULES_MAX:]:
            one.handle.remove()
        del self._followed[MODULES_MAX:]

    def _returned(self, module: nn.Module, args: Any, output: Any) -> None:
        outputs = {id(one) for one in list(tensors_in(output))[:OUTPUTS_MAX]}
        for one in self._followed:
            one.returned(outputs if len(outputs) > 1 else set())

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``cut-off:MODULE``, at step 8, says how a module is cut that was called in each step since the first.

        1: its output carries a graph, which no loss reaches. 2: it ran under ``no_grad``. 3: it cuts the graph itself.
        4: it ran in a checkpoint of which no input needs a gradient. 5: its output is one of several that the model
        returns, and no loss reaches it. ``uncalled:MODULE`` is 1 for one that its class makes and never calls.
        """
        if not self._followed:
            return
        now = stream.own_steps + 1
        for one in self._followed:
            one.step()
            if now != self._since + LAST_STEP - 1 or one.is_reached():
                continue
            if one.steps == now - self._since:
                yield f"cut-off:{one.name}", one.cut
            if one.of_class and not one.ever_called:
                yield f"uncalled:{one.name}", 1.0
        if now >= self._since + LAST_STEP - 1:
            self.release()

    def release(self) -> None:
        """Take the hooks off."""
        for handle in (*(one.handle for one in self._followed), *self._handles):
            handle.remove()
        self._followed, self._handles = [], []


def _cut_in(root: nn.Module, unreached: set[int], names: dict[int, str], report: Report) -> list[_Followed]:
    """The outermost modules under ``root`` in training mode whose trainable parameters are all unreached."""
    found: list[_Followed] = []
    inside: list[str] = []
    for path, module in named_places(root):
        is_list = isinstance(module, (nn.ModuleList, nn.ModuleDict))  # never called itself
        if not path or is_list or not module.training or any(path.startswith(f"{outer}.") for outer in inside):
            continue
        held = [one for one in module.parameters() if one.requires_grad]
        if held and all(id(one) in unreached for one in held):
            inside.append(path)
            of_class = _is_made_by_class(root, path)
            found.append(_Followed(_name(path, module, names), module, report, of_class=of_class))
    return found


def _is_made_by_class(root: nn.Module, path: str) -> bool:
    """Whether the class of the module above names this attribute. What a script puts there is meant to be used."""
    outer, _, name = path.rpartition(".")
    try:
        source = inspect.getsource(type(root.get_submodule(outer)))
    except own(AttributeError, OSError, TypeError):
        return False
    return re.search(rf"\bself\.{re.escape(name)}\b", source) is not None


def _in_checkpoint() -> bool:
    frame = sys._getframe()
    for _ in range(FRAMES_MAX):
        if frame.f_code.co_filename.replace("\\", "/").endswith(CHECKPOINT):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _name(path: str, module: nn.Module, names: dict[int, str]) -> str:
    """The module's name as it stands in the names of its parameters."""
    for place, part in named_places(module):
        for name, one in PARAMETERS.of(part).items():
            full = names.get(id(one), "")
            local = plain_name(f"{place}.{name}" if place else name)
            if full.endswith(f".{local}"):
                return full[: -len(local) - 1]
    return plain_name(path)
