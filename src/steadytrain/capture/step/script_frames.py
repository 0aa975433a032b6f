"""Finds the script's running functions and lines at the model call and at backward, and whether they still run.

Between calls this keeps only frame ids and line numbers, never a frame: a frame would keep all its tensors alive.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from steadytrain.core.torch_private import IS_FUNCTORCH, SEQUENCE

ASSIGNMENTS = ("STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF")

FRAMES_MAX = 64
USER_FRAMES_MAX = 12
ENTRIES_MAX = 32
_TORCH_FOLDER = str(Path(torch.__file__).parent)
_OWN_FOLDER = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class FrameLine:
    """A running function at one moment: its frame's id, its code and its current line."""

    frame_id: int
    code: CodeType
    line: int

    @property
    def place(self) -> str:
        """Such as ``train.py:17``."""
        return f"{Path(self.code.co_filename).name}:{self.line}"


@dataclass(frozen=True)
class LoopLines:
    """A function of the script that called the model at ``first_line`` and backward at ``last_line``.

    If there was no backward, ``loss`` is an expression of the function's variables for the loss; else None.
    """

    frame: FrameType
    first_line: int
    last_line: int
    loss: str | None = None


@dataclass(frozen=True)
class LossVariable:
    """A one-element tensor with a graph among a function's variables; ``sequence`` is its graph node's number."""

    name: str
    value: Tensor
    sequence: int


def user_frames() -> tuple[FrameLine, ...]:
    """The script's running functions, innermost first, without the frames of torch and steadytrain."""
    found: list[FrameLine] = []
    frame: FrameType | None = sys._getframe(1)
    left = FRAMES_MAX
    while frame is not None and left:
        code = frame.f_code
        if _is_of_user(code.co_filename):
            found.append(FrameLine(id(frame), code, frame.f_lineno))
            if len(found) == USER_FRAMES_MAX:
                break
        frame = frame.f_back
        left -= 1
    return tuple(found)


def innermost_place() -> str:
    """The innermost line of the script, such as ``train.py:17``."""
    frames = user_frames()
    return frames[0].place if frames else "the loss"


def assigned_names(code: CodeType) -> set[str]:
    """The variables that a function assigns or deletes.

    Python 3.13 has instructions for two variables. Their argument is a pair of names; the second may only be read.
    """
    found: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname.startswith(ASSIGNMENTS):
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            found.update(names[:1] if step.opname == "STORE_FAST_LOAD_FAST" else names)
    return found


def local_of(name: str) -> Any:
    """The value of the variable ``name`` in the innermost running function that has one."""
    for frame in running_frames():
        if name in frame.f_code.co_varnames and (value := frame.f_locals.get(name)) is not None:
            return value
    return None


def loop_lines(forward: tuple[FrameLine, ...], backward: tuple[FrameLine, ...]) -> LoopLines | None:
    """The innermost function that made both calls and is still running; None if there is none."""
    alive = {id(frame): frame for frame in running_frames()}
    forward_lines = {(line.frame_id, line.code): line.line for line in forward}
    for line in backward:
        frame = alive.get(line.frame_id)
        first_line = forward_lines.get((line.frame_id, line.code))
        if frame is not None and frame.f_code is line.code and first_line is not None:
            return LoopLines(frame, first_line, line.line)
    return None


def frame_of(line: FrameLine) -> FrameType | None:
    """The frame of a running function; None if the function has ended."""
    frames = (frame for frame in running_frames() if id(frame) == line.frame_id and frame.f_code is line.code)
    return next(frames, None)


def losses_in(frame: FrameType, newer_than: int) -> list[LossVariable]:
    """Variables of ``frame``, and entries of its mappings, with one element and a graph node after ``newer_than``."""
    variables = frame.f_locals
    found = []
    for name, value in list(variables.items()):
        for expression, tensor in _tensors_of(name, value):
            if IS_FUNCTORCH(tensor):  # it may have escaped from its transform
                continue
            if tensor.numel() == 1 and tensor.is_floating_point() and tensor.grad_fn is not None:
                sequence = int(SEQUENCE.of(tensor.grad_fn)())
                if sequence > newer_than:
                    found.append(LossVariable(expression, tensor.detach().reshape(()), sequence))
    _let_go(frame, variables)
    return found


def _let_go(frame: FrameType, variables: Mapping[str, Any]) -> None:
    """Empty the variables that were read from ``frame``: up to Python 3.12 they are a copy, which would keep the values
    alive."""
    if isinstance(variables, dict) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()


def _tensors_of(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping) and name not in ("__builtins__",) and len(value) <= ENTRIES_MAX:
        yield from ((f"{name}[{key!r}]", one) for key, one in value.items() if isinstance(one, Tensor))


def variable_of(value: object) -> str:
    """The name under which the script's running functions hold ``value``: ``optimizer_d``, ``self.critic_optimizer``;
    "" if none does. Installed packages are not asked: their names mean nothing to the script's author."""
    for frame in running_frames():
        if not is_user(frame) or "-packages" in frame.f_code.co_filename:
            continue
        variables = frame.f_locals
        found = next((name for name, held in variables.items() if held is value), "")
        if not found and (owner := getattr(variables.get("self"), "__dict__", None)) is not None:
            found = next((f"self.{name}" for name, held in owner.items() if held is value), "")
        found = found or next((name for name, held in frame.f_globals.items() if held is value), "")
        _let_go(frame, variables)
        if found:
            return found
    return ""


def variables_of(frame: FrameType) -> list[tuple[str, Any]]:
    """The variables of ``frame`` by name, the innermost scope only; the list is all that keeps them."""
    variables = frame.f_locals
    found = list(variables.items())
    _let_go(frame, variables)
    return found


def is_of_script(file: str) -> bool:
    """Whether ``file`` is the script's own: neither torch's nor ours, nor that of an installed package."""
    return _is_of_user(file) and "-packages" not in file


def running_frames() -> Iterator[FrameType]:
    """The frames of this thread, innermost first, beginning with the caller's."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def is_user(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the script, and not to torch or steadytrain."""
    return _is_of_user(frame.f_code.co_filename)


@lru_cache(maxsize=4096)
def _is_of_user(file: str) -> bool:
    return not file.startswith((_TORCH_FOLDER, _OWN_FOLDER, "<frozen"))
