"""Which modules carry a hook of ours: all that could be the script's model at first, only those that it calls later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from steadytrain.capture.hooks.model_discovery import Model
from steadytrain.capture.hooks.patches import Events, hook_module


class HookedModules:
    """Puts hooks on modules and takes them off again. Compiled code guards on hooks, so inside it there are none."""

    def __init__(self, events: Events) -> None:
        self.called: dict[int, nn.Module] = {}
        """The modules that the script itself called with gradients on."""
        self._events = events
        self._hooks: dict[int, tuple[nn.Module, Callable[[], None]]] = {}
        self._tops: set[int] = set()
        self._outermost: set[int] = set()
        self._inside: set[int] = set()
        self._compile_used = False

    def watch_model(self, model: Model) -> None:
        """Hook every module of the model: which of them the script calls is not known yet."""
        self._tops |= {id(root) for root in model.roots}
        for root in model.roots:
            for module in [root] if self._compile_used else root.modules():
                self.watch(module)

    def watch(self, module: nn.Module) -> None:
        if id(module) not in self._hooks and getattr(module, "_compiled_call_impl", None) is None:
            self._hooks[id(module)] = (module, hook_module(module, self._events))

    def note_call(self, module: nn.Module, *, outermost: bool) -> None:
        (self._outermost if outermost else self._inside).add(id(module))

    def compile_called(self, subject: Any, result: Any) -> None:
        """``torch.compile(subject)`` gave ``result``: hooks that would go after the first step go before the trace."""
        self._compile_used = True
        inner = getattr(subject, "__self__", subject)
        for key in [key for key in self._hooks if key not in self._tops]:
            self._unhook(key)
        if isinstance(inner, nn.Module) and id(inner) in self._hooks:
            self._unhook(id(inner))
        if isinstance(subject, nn.Module) and isinstance(result, nn.Module):
            self.watch(result)

    def settle(self) -> None:
        """After the first step it is known which modules are only called by others: those are left alone."""
        for key in (self._inside - self._outermost) & set(self._hooks):
            self._unhook(key)

    def remove(self) -> None:
        for key in list(self._hooks):
            self._unhook(key)

    def _unhook(self, key: int) -> None:
        self._hooks.pop(key)[1]()
