"""Decides which modules may carry a hook during one forward, in a process that uses torch.compile.

Compiled code does not run hooks that were added after its trace. A hook that exists during the trace belongs to the
graph: its removal, or another hook next to it, causes a recompile. Therefore:

- modules known to be inside compiled code get no hook, and their outputs are absent;
- after any compilation, a module that already has a hook of other code gets none of ours;
- if a graph was traced with our hooks in place, they stay and do nothing.

The reason for a missing hook is kept with its module, so the run can report what it could not measure.
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
"""Modules measured; of a larger model the first ones."""


Hidden = Literal["compiled", "compiled-before", "traced", "scripted", "hooked", "guarded"]
"""Why a module gets no hook: it is inside code compiled during the watch, or before; one of our hooks became part of a
graph; TorchScript; it has a hook of other code in a process that compiles; the compiler is set to guard on hooks."""


@dataclass(frozen=True)
class Place:
    """A module, its path in its root ('' is the root), and the reason if it may carry no hook during one forward."""

    path: str
    module: nn.Module
    hidden: Hidden | None = None


class CompiledCode:
    """Keeps what is known about compilation in this process."""

    def __init__(self) -> None:
        self._compiled: set[int] = set()
        self._with_compiled_method: set[int] = set()

    def compile_called(self, subject: Any) -> None:
        """The script calls ``torch.compile(subject)`` with a module, a method of one, or a function."""
        module = compiled_module(subject)
        if module is not None:
            called = module is subject or getattr(subject, "__name__", "") == CALL.attribute
            (self._compiled if called else self._with_compiled_method).add(id(module))

    def survey(self, roots: Sequence[nn.Module], *, traced: Collection[int] = ()) -> list[Place]:
        """Every module, parents first, a shared one by its first path. ``traced`` are the ids of modules whose hook is
        part of a graph.

        With several roots, a path begins with the root's class, as in names of parameters.
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
        """Why a call of the module does not run Python hooks; None if it does."""
        if id(module) in self._compiled:
            return "compiled"
        if COMPILED_CALL.on(module) is not None:
            return "compiled-before"
        return "scripted" if isinstance(module, ScriptModule) else None

    def _hides_children(self, module: nn.Module) -> Hidden | None:
        """Why hooks on the module's children do not run, although hooks on the module itself do; None if they run."""
        if id(module) in self._with_compiled_method:
            return "compiled"
        if not is_wrapper(module):
            return None
        return "compiled" if id(ORIGINAL_MODULE.of(module)) in self._compiled else "compiled-before"


def compiled_module(subject: Any) -> nn.Module | None:
    """The module behind the argument of ``torch.compile``: the module itself, or the one whose method it is."""
    module = subject if isinstance(subject, nn.Module) else getattr(subject, "__self__", None)
    return module if isinstance(module, nn.Module) else None


def can_be_called(module: nn.Module) -> bool:
    """Whether the module has a forward; a container such as ``ModuleList`` has none."""
    return getattr(type(module), "forward", None) is not nn.Module.forward  # the class of a ScriptModule has none


def is_wrapper(module: nn.Module) -> bool:
    """Whether the module is a result of ``torch.compile(module)``."""
    return type(module).__name__ == "OptimizedModule" and ORIGINAL_MODULE.on(module) is not None


def something_was_compiled() -> bool:
    """Whether this process has called ``torch.compile``, even before the watch."""
    backends = BACKENDS_USED.loaded() or {}
    return any(backend is not None for backend in list(backends.values())) or graphs_traced() > 0


def graphs_traced() -> int:
    """A number that grows with every graph traced in this process."""
    counters = COUNTERS.loaded() or {}
    stats = counters.get("stats") or {}
    frames = counters.get("frames") or {}
    return int(stats.get("unique_graphs", 0)) + int(frames.get("total", 0))


def guards_on_hooks() -> bool:
    """Whether the script made torch.compile guard on hooks in every call; then hooks must not change."""
    return HOOK_GUARDS.loaded() is False


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
