"""A loop of two functions as a command: for loops that cannot be launched again, such as those of a notebook.

``build()`` returns model and optimizer, ``step_fn(model, batch)`` the loss. :mod:`steadytrain.replay.function_loop` is
the loop, and the batches are those on the tape. A watch in a notebook records this command; ``--step-fn`` and
``--build`` of a command put it in the place of the recorded one, for this process and those that it launches.
Torch-free.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.interactive import is_kernel

LOOP_MODULE = "steadytrain.replay.function_loop"
LOOP_VARIABLE = "STEADYTRAIN_LOOP"
"""Two functions, separated by a space, that replace the recorded command in the launched processes."""

HOW = (
    "write both into a module (in a notebook: a cell that begins with %%writefile parts.py) and give them to "
    "watch(..., step_fn=parts.loss_of, build=parts.build), which also records the batches"
)
MAIN = "__main__"


def loop_command(step_fn: str, build: str) -> list[str]:
    """The command line, without the interpreter. Each function is ``MODULE:NAME``."""
    return ["-m", LOOP_MODULE, step_fn, build]


def with_loop(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """The environment of a run, with the loop in place of its command if one was named."""
    named = os.environ.get(LOOP_VARIABLE)
    if not named:
        return environment
    command = loop_command(*named.split(" "))
    return {**environment, "script": None, "module": LOOP_MODULE, "argv": command, "cwd": os.getcwd()}


@contextmanager
def replacing_the_command(loop: tuple[str, str] | None) -> Iterator[None]:
    """Launch ``loop`` instead of the recorded command within the block, if there is one."""
    if loop is None:
        yield
        return
    before = os.environ.get(LOOP_VARIABLE)
    os.environ[LOOP_VARIABLE] = " ".join(loop)
    try:
        yield
    finally:
        os.environ.pop(LOOP_VARIABLE)
        if before is not None:
            os.environ[LOOP_VARIABLE] = before


def check_typed(environment: Mapping[str, Any]) -> None:
    """Refuse at once to launch what was typed in: its kernel would wait for cells that never come.

    Raises:
        UsageError: the run was made in a notebook or at a prompt and names no functions; the text says what is missing.
    """
    typed = environment.get("typed_into") or ("notebook" if is_kernel(environment.get("script")) else None)
    if typed is None or environment.get("module") == LOOP_MODULE:
        return
    raise UsageError(
        f"this run was made in a {typed}, which cannot be launched again: its steps need a function "
        f"f(model, batch) that returns the loss, and one that returns (model, optimizer); {HOW}"
    )


def parse_loop(step_fn: object, build: object) -> tuple[str, str] | None:
    """The two functions as ``MODULE:NAME``, None if neither is given. Functions may be given themselves.

    Raises:
        UsageError: only one is given, or a new process could not import one.
    """
    if step_fn is None and build is None:
        return None
    if step_fn is None or build is None:
        raise UsageError("--step-fn and --build go together: one returns the loss, the other model and optimizer")
    return _name(step_fn, "--step-fn"), _name(build, "--build")


def importable(function: Callable[..., Any]) -> str | None:
    """``MODULE:NAME`` of a function that a new process can import; None if it is typed in, or made in a function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if not module or module == MAIN or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function else None


def _name(given: object, option: str) -> str:
    if callable(given):
        name = importable(given)
        if name is None:
            shown = getattr(given, "__qualname__", repr(given))
            raise UsageError(f"{option}: {shown} is not in a module, so a new process cannot import it; {HOW}")
        return name
    parts = str(given).partition(":")
    if not all(parts) or " " in str(given):
        raise UsageError(f"{option} {given}: must be MODULE:NAME")
    return str(given)
