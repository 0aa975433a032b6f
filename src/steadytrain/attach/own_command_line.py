"""The command line of a training that called ``watch`` itself: that of its script, or the loop of a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.interactive import NOTEBOOK_SUFFIX, Typed, notebook_name, typed_into
from steadytrain.replay.loop_command import HOW, LOOP_MODULE, importable, loop_command

Function = Callable[..., Any]


@dataclass(frozen=True)
class OwnCommandLine:
    """``script`` is a path, a module, or "" if nothing can be launched again. ``note`` says what is missing then."""

    script: str
    stem: str
    argv: tuple[str, ...]
    is_module: bool
    typed_into: Typed | None
    note: str | None


def own_command_line(step_fn: Function | None, build: Function | None) -> OwnCommandLine:
    """What a replay launches. Of a notebook that is a loop of the two functions, if a new process can import both.

    Raises:
        UsageError: ``build`` is not a function, or there is no ``step_fn`` that it goes with.
    """
    if build is not None and (step_fn is None or not callable(build)):
        raise UsageError(f"watch: build must be a function, and goes with step_fn; got {build!r}")
    typed = typed_into()
    if typed is None:
        script = sys.argv[0] or "python"
        return OwnCommandLine(script, Path(script).stem or "run", tuple(sys.argv), False, None, None)
    stem = notebook_name() if typed == "notebook" else typed
    names = [importable(one) for one in (step_fn, build) if one is not None]
    if len(names) == 2 and all(names):
        step, made = map(str, names)
        return OwnCommandLine(LOOP_MODULE, stem, tuple(loop_command(step, made)), True, typed, None)
    shown = f"{stem}{NOTEBOOK_SUFFIX}" if typed == "notebook" else stem
    return OwnCommandLine("", stem, (shown,), False, typed, _missing(step_fn, build, names))


def _missing(step_fn: Function | None, build: Function | None, names: list[str | None]) -> str | None:
    """What replays lack, if a step function was given. Without one it is said when a replay is asked for."""
    if step_fn is None:
        return None
    if build is None:
        return f"note: step_fn alone is not enough to replay this notebook: {HOW}"
    lost = ", ".join(one.__name__ for one, name in zip((step_fn, build), names, strict=True) if name is None)
    return f"note: {lost}: not in a module, so a replay cannot import it; {HOW}"
