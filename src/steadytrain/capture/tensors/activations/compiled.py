"""Which modules may carry a hook for the length of one forward, in a process that compiles.

torch.compile does not look at hooks that are put on after it traced, and such hooks do not run. But a hook that is on
while it traces belongs to the graph: taking it off, or putting another one beside it, makes it trace again. Hence:

- modules known to lie inside compiled code get no hook, and what they put out is absent;
- once anything was compiled, a module that already carries somebody's hook gets none of ours;
- where a graph was traced while our hooks were on, they stay, and do nothing.

Why a module gets no hook is kept with it, so that the run can say what it did not see.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.jit import ScriptModule

from steadytrain.capture.hooks.model_discovery import plain_name
from steadytrain.core.torch_private import (
    BACKENDS_USED,
    CALL,
    CHILDREN,
    COMPILED_CALL,
    COUNTERS,
    FORWARD_HOOKS,
    FORWARD_PRE_HOOKS,
    HOOK_GUARDS,
    ORIGINAL_MODULE,
)

MODULES_MAX = 4096
"""Modules that are looked at; of a larger model the first ones."""


Hidden = Literal["compiled", "compiled-before", "traced", "scripted", "hooked", "guarded"]
"""Inside code that was compiled under our eyes, or before we came; a hook of ours became part of a graph; TorchScript;
somebody's hook is on it in a process that compiles; the compiler was told to look at hooks."""


@dataclass(frozen=True)
class Place:
    """A module, where it stands in its root ('' is the root), and why it may carry no hook for one forward."""

    path: str
    module: nn.Module
    hidden: Hidden | None = None


class CompiledCode:
    """What is known of compilation in this process."""

    def __init__(self) -> None:
        self._compiled: set[int] = set()
        self._with_compiled_method: set[int] = set()

    def compile_called(self, subject: Any) -> None:
        """``torch.compile(subject)``: a module, a method of one, or a function."""
        module = compiled_module(subject)
        if module is not None:
            called = module is subject or getattr(subject, "__name__", "") == CALL.attribute
            (self._compiled if called else self._with_compiled_method).add(id(module))

    def survey(self, roots: Sequence[nn.Module], *, traced: Collection[int] = ()) -> list[Place]:
        """Every module, a shared one by its first path, parents first; ``traced`` are ids of those with a stuck hook.

        Where there are several roots, the path is led by the root's class, as in names of parameters.
        """
        lead = [type(root).__name__ if len(roots) > 1 else "" for root in roots]
        waiting: list[tuple[nn.Module, str, Hidden | None]] = []
        waiting += [(root, path, None) for root, path in zip(roots, lead, strict=True)][::-1]
        careful, guarded = something_was_compiled(), guards_on_hooks()
        seen: set[int] = set()
        found: list[Place] = []
        while waiting and len(found) < MODULES_MAX:
            module, path, around = waiting.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            closed = around or self._closed(module)
            hooked = careful and bool(FORWARD_HOOKS.of(module) or FORWARD_PRE_HOOKS.of(module))
            own: Hidden | None = "guarded" if guarded else "hooked" if hooked else None
            hidden = closed or ("traced" if id(module) in traced else own)
            found.append(Place(plain_name(path + ".").rstrip("."), module, hidden))
            closed = closed or self._hides_children(module)
            children = [(_join(path, name), child) for name, child in CHILDREN.of(module).items() if child is not None]
            waiting += [(child, path, closed) for path, child in reversed(children)]
        return found

    def _closed(self, module: nn.Module) -> Hidden | None:
        """Why its call is no Python that runs our hooks."""
        if id(module) in self._compiled:
            return "compiled"
        if COMPILED_CALL.on(module) is not None:
            return "compiled-before"
        return "scripted" if isinstance(module, ScriptModule) else None

    def _hides_children(self, module: nn.Module) -> Hidden | None:
        """Hooks of its own run outside of the compiled code that it calls."""
        if id(module) in self._with_compiled_method:
            return "compiled"
        if not is_wrapper(module):
            return None
        return "compiled" if id(ORIGINAL_MODULE.of(module)) in self._compiled else "compiled-before"


def compiled_module(subject: Any) -> nn.Module | None:
    """The module behind what ``torch.compile`` was called with: itself, or whose method it is."""
    module = subject if isinstance(subject, nn.Module) else getattr(subject, "__self__", None)
    return module if isinstance(module, nn.Module) else None


def can_be_called(module: nn.Module) -> bool:
    """A list of modules, say, is only there to hold them."""
    return getattr(type(module), "forward", None) is not nn.Module.forward  # a ScriptModule's class has none to show


def is_wrapper(module: nn.Module) -> bool:
    """Whether it is what ``torch.compile(module)`` gives."""
    return type(module).__name__ == "OptimizedModule" and ORIGINAL_MODULE.on(module) is not None


def something_was_compiled() -> bool:
    """Whether ``torch.compile`` was called in this process, also before we came."""
    backends = BACKENDS_USED.loaded() or {}
    return any(backend is not None for backend in list(backends.values())) or graphs_traced() > 0


def graphs_traced() -> int:
    """A number that grows with every graph that is traced in this process."""
    counters = COUNTERS.loaded() or {}
    stats = counters.get("stats") or {}
    frames = counters.get("frames") or {}
    return int(stats.get("unique_graphs", 0)) + int(frames.get("total", 0))


def guards_on_hooks() -> bool:
    """Whether the script made torch.compile look at hooks in every call: then none may come and go."""
    return HOOK_GUARDS.loaded() is False


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
