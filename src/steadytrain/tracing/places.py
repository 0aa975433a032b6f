"""The place of an operation: the running module, the Python line, forward or backward.

A backward operation belongs to the forward operation that it differentiates. Autograd numbers its nodes in creation
order, so a module's nodes are those between its entry and exit. Anomaly mode stores in each node the Python stack that
created it. Full backward hooks would give the same, but break in-place code.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from torch.utils.hooks import RemovableHandle

from steadytrain.core.torch_private import BACKWARD_NODE, CALL, ENGINE, GRAPH_TASK, NEXT_SEQUENCE, SEQUENCE

CODE_CHARACTERS_MAX = 200
"""Longer source lines are cut: they are generated code."""

CALLS_MAX = 200_000
"""Bound on the module calls of one rerun (a thousand modules in two hundred micro-batches)."""

PARENTS_MAX = 8
"""Bound on nested backwards: a backward node may itself come from a backward (double backward and beyond)."""

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[1]) + os.sep
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)')
_ENGINE = ENGINE.attribute
_OPTIMIZER = os.path.join(_TORCH, "optim", "optimizer.py")
_STEP = "wrapper"
"""The function in that file that wraps the ``step`` of every optimizer, custom ones included."""


Line = tuple[str, int]


@dataclass(frozen=True)
class Place:
    """Where one operation ran. ``sequence`` is the number of the autograd node inside a backward.

    ``in_update``: an optimizer's ``step`` was running. ``before_model``: no watched module had been called yet.
    """

    inside: Literal["module", "outside", "backward", "recomputation"]
    module: str | None
    sequence: int | None
    line: Line | None
    losses_before: int
    in_update: bool = False
    before_model: bool = False


@dataclass
class _Call:
    """One call of a module. Its nodes are numbered from ``first`` up to, not including, ``end``."""

    path: str
    task: int
    first: int
    end: int | None = None


@dataclass
class ModuleCalls:
    """Tracks through hooks which module is running, and which autograd nodes it made."""

    open: list[_Call] = field(default_factory=list)
    past: list[_Call] = field(default_factory=list)
    handles: list[RemovableHandle] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether a module was called."""
        return bool(self.open or self.past)

    def watch(self, modules: Mapping[torch.nn.Module, str]) -> None:
        """Hooks every module that allows it (a scripted module does not)."""
        for module, path in modules.items():
            try:
                self._hook(module, path)
            except (RuntimeError, AttributeError):
                continue

    def unwatch(self) -> None:
        while self.handles:
            self.handles.pop().remove()
        self.past += self.open
        self.open = []

    def join(self, modules: Mapping[torch.nn.Module, str]) -> None:
        """Adds the running calls of ``modules``: hooks that were added meanwhile would see only their end."""
        for path in _running_calls(modules):
            if all(call.path != path for call in self.open):
                self.enter(path)

    def enter(self, path: str) -> None:
        self.open.append(_Call(path, _graph_task(), _next_sequence_number()))

    def leave(self, path: str) -> None:
        """Closes the innermost open call of ``path`` and all calls that an exception left open inside it."""
        if not any(call.path == path for call in self.open):
            return
        while True:
            call = self.open.pop()
            call.end = _next_sequence_number()
            if len(self.past) < CALLS_MAX:
                self.past.append(call)
            if call.path == path:
                return

    def running(self) -> str | None:
        """The path of the running module; None outside of modules and in a backward, unless a module is recomputed."""
        task = _graph_task()
        return self.open[-1].path if self.open and self.open[-1].task == task else None

    def made(self, sequence: int) -> str | None:
        """The path of the module whose forward created the node with this number; None if created outside."""
        inside = [
            call
            for call in (*self.past, *self.open)
            if call.first <= sequence and (call.end is None or sequence < call.end)
        ]
        # Of nested calls the innermost starts last. If two start together, the inner one ends first.
        return min(inside, key=lambda call: (-call.first, call.end or sys.maxsize)).path if inside else None

    def _hook(self, module: torch.nn.Module, path: str) -> None:
        def enter(_module: torch.nn.Module, _args: object) -> None:
            self.enter(path)

        def leave(_module: torch.nn.Module, _args: object, _output: object) -> None:
            self.leave(path)

        # always_call: a forward that raises, or that checkpointing stops early, must close its call too.
        self.handles.append(module.register_forward_hook(leave, always_call=True))
        self.handles.append(module.register_forward_pre_hook(enter, prepend=True))


def place_here(calls: ModuleCalls, *, losses_before: int) -> Place:
    """The place of the operation that this thread is dispatching."""
    line, recomputing = _asked_for_here()
    running = calls.running()
    if running is not None:
        return Place("module", running, None, line, losses_before)
    if _graph_task() == -1:
        return Place("outside", None, None, line, losses_before, _in_update(), not calls.any)
    sequence, forward_line = _forward_of(BACKWARD_NODE())
    if recomputing:
        return Place("recomputation", None, sequence, line, losses_before)
    # A line found here is a hook or the user's own backward function, which is nearer than the differentiated forward.
    return Place("backward", None, sequence, line or forward_line, losses_before)


def _running_calls(modules: Mapping[torch.nn.Module, str]) -> list[str]:
    """The paths of the ``modules`` whose call is on this thread's Python stack, outermost first."""
    paths: list[str] = []
    call = CALL.now().__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is call:
            path = modules.get(frame.f_locals["self"])
            paths += [] if path is None else [path]
        frame = frame.f_back
    return paths[::-1]


def code_at(line: Line | None) -> str | None:
    """The text of a source line; None if the source is unavailable."""
    text = linecache.getline(*line).strip() if line else ""
    return text[:CODE_CHARACTERS_MAX] or None


def _asked_for_here() -> tuple[Line | None, bool]:
    """The innermost line outside torch and steadytrain, up to the autograd engine, and whether checkpointing
    recomputes."""
    frame: FrameType | None = sys._getframe(1)
    line: Line | None = None
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if function == _ENGINE:
            return line, False
        if file == _CHECKPOINT and _graph_task() != -1:
            return line, True
        if line is None and _is_foreign(file):
            line = (file, frame.f_lineno)
            if _graph_task() == -1:
                return line, False
        frame = frame.f_back
    return line, False


def _in_update() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _STEP and frame.f_code.co_filename == _OPTIMIZER:
            return True
        frame = frame.f_back
    return False


def _forward_of(node: Any) -> tuple[int | None, Line | None]:
    """The number and the line of the forward node that belongs to ``node``.

    Usually that is ``node`` itself. If a backward created it (double backward), it is the node which that backward was
    running. A node of a recomputation inside a backward has its own line before the engine's.
    """
    sequence: int | None = None
    for _ in range(PARENTS_MAX):
        if node is None:
            break
        sequence, line = int(SEQUENCE.of(node)()), line_in("".join(node.metadata.get("traceback_", ())))
        if line is not None:
            return sequence, line
        node = node.metadata.get("parent_")
    return sequence, None


def line_in(stack: str) -> Line | None:
    """The innermost line outside torch and steadytrain in a formatted stack, up to the autograd engine."""
    for frame in reversed(list(_FRAME.finditer(stack))):
        if frame["function"] == _ENGINE:
            return None
        if _is_foreign(frame["file"]):
            return frame["file"], int(frame["line"])
    return None


def _is_foreign(file: str) -> bool:
    return not file.startswith((_TORCH, _OURS, "<frozen "))


def _graph_task() -> int:
    """The number of the backward in which this thread runs, -1 for none."""
    return int(GRAPH_TASK())


def _next_sequence_number() -> int:
    return int(NEXT_SEQUENCE())
