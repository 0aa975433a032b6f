"""Manages our module hooks: at first on all modules that may be the script's model, later only on those that it calls.

Modules are not kept alive: when the script drops one, its hooks and its entry here go too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import nn

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.model_discovery import Model
from steadytrain.capture.hooks.patches import Events, ModuleHooks
from steadytrain.core.torch_private import COMPILED_CALL


class HookedModules:
    """Adds and removes module hooks. Compiled code guards on hooks, so modules inside it get none."""

    def __init__(self, events: Events, guard: Guard) -> None:
        self._events = events
        self._guard = guard
        self._called: dict[int, weakref.ref[nn.Module]] = {}
        self._hooks: dict[int, ModuleHooks] = {}
        self._tops: set[int] = set()
        self._outermost: set[int] = set()
        self._inside: set[int] = set()
        self._known: dict[int, weakref.ref[nn.Module]] = {}
        self._resting: list[weakref.ref[nn.Module]] = []
        self._compile_used = False

    @property
    def called(self) -> list[nn.Module]:
        """The modules that the script itself called with gradients enabled, in the order of their first call."""
        return [module for held in self._called.values() if (module := held()) is not None]

    @property
    def compile_used(self) -> bool:
        """Whether the script compiles a model or function."""
        return self._compile_used

    def watch_model(self, model: Model) -> None:
        """Hook every module of the model, because it is not known yet which ones the script calls."""
        for root in model.roots:
            self._tops.add(self._key(root))
            for module in [root] if self._compile_used else root.modules():
                self.watch(module)

    def watch(self, module: nn.Module) -> None:
        key = self._key(module)
        if key not in self._hooks and COMPILED_CALL.on(module) is None:
            self._hooks[key] = ModuleHooks(module, self._events, self._guard.report)

    def redirect(self, called: Callable[..., None] | None) -> None:
        """Let all current hooks only call ``called`` when a module is called; None undoes that."""
        for hooks in self._hooks.values():
            hooks.redirect(called)

    def note_call(self, module: nn.Module, *, outermost: bool) -> None:
        (self._outermost if outermost else self._inside).add(self._key(module))

    def note_training_call(self, module: nn.Module) -> None:
        """The script itself has called ``module`` with gradients enabled."""
        self._called.setdefault(self._key(module), weakref.ref(module))

    def compile_called(self, subject: object, result: object) -> None:
        """``torch.compile(subject)`` returned ``result``. Remove the inner hooks now, before the trace."""
        self._compile_used = True
        inner = getattr(subject, "__self__", subject)
        for key in [key for key in self._hooks if key not in self._tops]:
            self._unhook(key)
        if isinstance(inner, nn.Module) and id(inner) in self._hooks:
            self._unhook(id(inner))
        if isinstance(subject, nn.Module) and isinstance(result, nn.Module):
            self.watch(result)

    def settle(self) -> None:
        """After the first step: remove the hooks of modules that only other modules call."""
        for key in (self._inside - self._outermost) & set(self._hooks):
            self._unhook(key)

    def rest(self, module: nn.Module) -> None:
        """Remove the hooks of ``module`` until :meth:`wake`: the script calls it so often that they slow it down."""
        key = self._key(module)
        if key in self._hooks and not self._compile_used:
            self._unhook(key)
            self._resting.append(weakref.ref(module))

    def rest_all(self) -> None:
        """The same for all modules."""
        for key in list(self._hooks):
            if (module := self._known[key]()) is not None:
                self.rest(module)

    def wake(self) -> None:
        """Restore the hooks of the resting modules."""
        resting, self._resting = self._resting, []
        for held in resting:
            if (module := held()) is not None:
                self.watch(module)

    def remove(self) -> None:
        self._resting.clear()
        for key in list(self._hooks):
            with self._guard.part("removing a hook"):
                self._unhook(key)

    def _unhook(self, key: int) -> None:
        self._hooks.pop(key).remove()

    def _key(self, module: nn.Module) -> int:
        """The ``id`` of ``module``, after dropping entries of an earlier module with the same ``id``."""
        key = id(module)
        known = self._known.get(key)
        if known is None or known() is not module:
            self._forget(key)
            self._known[key] = weakref.ref(module)
        return key

    def _forget(self, key: int) -> None:
        for ids in (self._tops, self._outermost, self._inside):
            ids.discard(key)
        for held in (self._called, self._hooks):
            held.pop(key, None)
