"""Where an operation was asked for: the module that was running, the line of Python, forward or backward.

A backward operation belongs to the forward operation that it differentiates. Autograd numbers its nodes as the
forward makes them, so the numbers between a module's entry and exit are that module's nodes; and anomaly mode has
each node remember the Python stack that made it. Full backward hooks would say the same but break in-place code.
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
"""A longer line of source is cut: it is generated code, and no person reads it."""

CALLS_MAX = 200_000
"""Module calls remembered in one re-run (a thousand modules in two hundred micro-batches)."""

PARENTS_MAX = 8
"""How often a backward node may itself have been made by a backward (double backward and beyond)."""

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[1]) + os.sep
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)')
_ENGINE = ENGINE.attribute
_OPTIMIZER = os.path.join(_TORCH, "optim", "optimizer.py")
_STEP = "wrapper"
"""The function in that file that stands around the ``step`` of every optimizer, a hand-written one too."""


Line = tuple[str, int]


@dataclass(frozen=True)
class Place:
    """Where one operation ran. ``sequence`` is the number of the autograd node for what runs inside a backward.

    ``in_update`` tells that an optimizer's ``step`` was running.
    """

    inside: Literal["module", "outside", "backward", "recomputation"]
    module: str | None
    sequence: int | None
    line: Line | None
    losses_before: int
    in_update: bool = False


@dataclass
class _Call:
    """One call of a module: its nodes are numbered from ``first`` up to, not including, ``end``."""

    path: str
    task: int
    first: int
    end: int | None = None


@dataclass
class ModuleCalls:
    """Follows which module is running, by hooks on the given modules, and remembers which nodes it made."""

    open: list[_Call] = field(default_factory=list)
    past: list[_Call] = field(default_factory=list)
    handles: list[RemovableHandle] = field(default_factory=list)

    def watch(self, modules: Mapping[torch.nn.Module, str]) -> None:
        """Hook every module that allows it (a scripted module does not)."""
        for module, path in modules.items():
            try:
                self._hook(module, path)
            except (RuntimeError, AttributeError):
                continue

    def unwatch(self) -> None:
        """Remove every hook."""
        while self.handles:
            self.handles.pop().remove()
        self.past += self.open
        self.open = []

    def join(self, modules: Mapping[torch.nn.Module, str]) -> None:
        """Take up the calls of ``modules`` that are under way: the hooks set meanwhile come to them only at the end."""
        for path in _running_calls(modules):
            if all(call.path != path for call in self.open):
                self.enter(path)

    def enter(self, path: str) -> None:
        self.open.append(_Call(path, _graph_task(), _next_sequence_number()))

    def leave(self, path: str) -> None:
        """Close the innermost open call of ``path`` and whatever an exception left open inside it."""
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
        """The path of the module whose forward is running now, None outside (and in a backward, unless recomputed)."""
        task = _graph_task()
        return self.open[-1].path if self.open and self.open[-1].task == task else None

    def made(self, sequence: int) -> str | None:
        """The path of the module whose forward made the node with this number, None for one made outside."""
        inside = [
            call
            for call in (*self.past, *self.open)
            if call.first <= sequence and (call.end is None or sequence < call.end)
        ]
        # Of nested calls the innermost starts last; where two start together, the inner one is the first to end.
        return min(inside, key=lambda call: (-call.first, call.end or sys.maxsize)).path if inside else None

    def _hook(self, module: torch.nn.Module, path: str) -> None:
        def enter(_module: torch.nn.Module, _args: object) -> None:
            self.enter(path)

        def leave(_module: torch.nn.Module, _args: object, _output: object) -> None:
            self.leave(path)

        # always_call: a forward that raises, or that checkpointing cuts short, must close its call too.
        self.handles.append(module.register_forward_hook(leave, always_call=True))
        self.handles.append(module.register_forward_pre_hook(enter, prepend=True))


def place_here(calls: ModuleCalls, *, losses_before: int) -> Place:
    """The place of the operation that is being dispatched in this thread right now."""
    line, recomputing = _asked_for_here()
    running = calls.running()
    if running is not None:
        return Place("module", running, None, line, losses_before)
    if _graph_task() == -1:
        return Place("outside", None, None, line, losses_before, _in_update())
    sequence, forward_line = _forward_of(BACKWARD_NODE())
    if recomputing:
        return Place("recomputation", None, sequence, line, losses_before)
    # A line found here is a hook or the user's own backward function: nearer than the forward it differentiates.
    return Place("backward", None, sequence, line or forward_line, losses_before)


def _running_calls(modules: Mapping[torch.nn.Module, str]) -> list[str]:
    """The paths of those of ``modules`` whose call is on the Python stack of this thread, outermost first."""
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
    """The text of a line of source, None where the source is not to be had."""
    text = linecache.getline(*line).strip() if line else ""
    return text[:CODE_CHARACTERS_MAX] or None


def _asked_for_here() -> tuple[Line | None, bool]:
    """The innermost line of other people's Python, up to the autograd engine; and whether checkpointing recomputes."""
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
    """The number of the node that a forward made for ``node``, and its line.

    That is ``node`` itself, unless a backward made it (double backward): then it is the one which that backward was
    running. A node made by a recomputation inside a backward has a line of its own before the engine's.
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
    """The innermost line of other people's Python in a formatted stack, up to the autograd engine."""
    for frame in reversed(list(_FRAME.finditer(stack))):
        if frame["function"] == _ENGINE:
            return None
        if _is_foreign(frame["file"]):
            return frame["file"], int(frame["line"])
    return None


def _is_foreign(file: str) -> bool:
    return not file.startswith((_TORCH, _OURS, "<frozen "))


def _graph_task() -> int:
    """The number of the backward that this thread is inside of, -1 for none."""
    return int(GRAPH_TASK())


def _next_sequence_number() -> int:
    return int(NEXT_SEQUENCE())
