"""Plain numbers that keep the values from before they changed."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parents[2])


@final
@dataclass
class OldSettings(LiveChange):
    """Numbers that a survey saw change keep their old values: options of the optimizer, numbers of modules, numbers in
    operations of the script. Each of ``settings`` is a JSON object of the fact ``settings_changed``.
    """

    of_functions = True

    settings: list[str]
    nothing = "none of these numbers has its new value in this trial"
    _all: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False)
    _counts: dict[tuple[str, str, str], int] = field(default_factory=dict, init=False, repr=False)

    def check(self) -> None:
        if not self.settings:
            raise ValueError("settings: give at least one")
        self._all = [_with_numbers(json.loads(one)) for one in self.settings]

    def begin(self, process: Launched) -> None:
        for one in self._all:
            names = (one["function"], f"__{one['function']}__") if one["kind"] == "operand" else ()
            places = [(place, name) for place in (Tensor, torch, functional) for name in names]
            wanted = [getattr(place, name) for place, name in places if hasattr(place, name)]
            if wanted:
                process.functions.replace(wanted, self._operation)

    def step_begins(self, process: Launched) -> None:
        self._counts.clear()

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> None:
        modules = {name: module for root in process.roots for name, module in root.named_modules()}
        for one in self._all:
            module = modules.get(one["module"]) if one["kind"] == "module" else None
            if module is not None and _is_new(one, getattr(module, one["attribute"], None)):
                setattr(module, one["attribute"], one["before"])
                self.touch()

    def gate(self, process: Launched) -> None:
        groups = list(process.groups)
        for one in self._all:
            place = int(one["group"]) if one["kind"] == "optimizer" else len(groups)
            if place >= len(groups) or one["option"] not in groups[place]:
                continue
            group, option = groups[place], one["option"]
            value = group[option]
            if isinstance(value, (tuple, list)):
                at = int(one["place"])
                if _is_new(one, value[at]):
                    process.set_group(group, option, (*value[:at], one["before"], *value[at + 1 :]))
                    self.touch()
            elif _is_new(one, value):
                process.set_group(group, option, one["before"])
                self.touch()

    def _operation(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(original, "__name__", "")
        there = [one for one in self._all if one["kind"] == "operand" and one["function"] == name]
        line = _line() if there else ""
        there = [one for one in there if str(one["line"]).startswith(f"{line}:")]
        given = {str(at): value for at, value in enumerate(args)} | kwargs
        old: dict[str, float] = {}
        for argument in dict.fromkeys(one["argument"] for one in there):
            if type(given.get(argument)) not in (int, float):
                continue
            place = (line, name, argument)
            number = self._counts[place] = self._counts.get(place, 0) + 1
            found = [one["before"] for one in there if _is_of(one, argument, number, given[argument])]
            if found:
                old[argument] = found[0]
        if old:
            self.touch()
            args = tuple(old.get(str(at), value) for at, value in enumerate(args))
            kwargs = {argument: old.get(argument, value) for argument, value in kwargs.items()}
        return original(*args, **kwargs)


def _with_numbers(one: dict[str, Any]) -> dict[str, Any]:
    """A document has "inf" and "nan" as strings."""
    return {
        key: float(value) if key in ("before", "after") and isinstance(value, str) else value
        for key, value in one.items()
    }


def _is_of(one: dict[str, Any], argument: str, number: int, value: float) -> bool:
    """Whether ``value`` is the new value of this setting. One line may hold several: ``a * x + (1 - a) * y``, which the
    ``number`` of the call in a step tells apart."""
    return bool(one["argument"] == argument and int(one["number"]) == number and _is_new(one, value))


def _is_new(one: dict[str, Any], value: Any) -> bool:
    """Whether a number is nearer to what it became than to what it was."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Tensor)):
        return False
    before, after = float(one["before"]), float(one["after"])
    return abs(float(value) - after) < abs(float(value) - before)


def _line() -> str:
    """The innermost line of the script: ``train.py:12``."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OWN, _TORCH, "<frozen")):
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
