"""Reads the numbers that a script passes to its model, such as a share of fed back truth or a temperature."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from steadytrain.capture.step.input_recorder import MicroBatch

EVERY_STEPS = 16
SETTINGS_MAX = 4
"""Numbers of a call that are read."""


def setting_rows(calls: Sequence[MicroBatch]) -> Iterator[tuple[str, float]]:
    """``setting:NAME`` is a plain number that the first call of a step passes, by the name of its parameter."""
    given = arguments_of(calls)
    numbers = {name: value for name, value in given.items() if type(value) in (int, float) and math.isfinite(value)}
    for name in list(numbers)[:SETTINGS_MAX]:
        yield f"setting:{name}", float(numbers[name])


def arguments_of(calls: Sequence[MicroBatch]) -> dict[str, Any]:
    """The arguments of the first call of a step by the names of its parameters; empty of a scripted model."""
    if not calls or isinstance(calls[0].module, torch.jit.ScriptModule):
        return {}
    call = calls[0]
    return {**dict(zip(_parameters_of(type(call.module).forward), call.args, strict=False)), **call.kwargs}


@functools.lru_cache(maxsize=64)
def _parameters_of(forward: Any) -> tuple[str, ...]:
    """The parameters of a module's ``forward`` that take positional arguments, without ``self``."""
    try:
        found = list(inspect.signature(forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return ()
    return tuple(one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))
