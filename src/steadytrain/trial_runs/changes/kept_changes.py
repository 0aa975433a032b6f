"""Changes of copies that nobody reads, written back into what was copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.survey.discarded_writes import place_of
from steadytrain.survey.script_lines import runs_at
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched

HELD_MAX = 64


@dataclass
class _Copied:
    """``made`` holds what the function ``name`` copied out of ``source``, with these arguments."""

    name: str
    source: Tensor
    made: Tensor
    args: tuple[Any, ...]


@final
@dataclass
class KeptChanges(LiveChange):
    """Writes back what ``lines`` changed in a copy: each by a function of ``by``, in a copy that the function of
    ``copied`` made at the line of ``copy_lines``."""

    lines: list[str]
    by: list[str]
    copied: list[str]
    copy_lines: list[str]
    of_functions = True
    nothing = "none of these lines changes a copy"

    def __post_init__(self) -> None:
        self._copied: dict[int, _Copied] = {}

    def begin(self, process: Launched) -> None:
        for name in sorted(set(self.copied)):
            process.functions.replace(_functions(name), self._copying(name))
        for name in sorted(set(self.by)):
            process.functions.replace(_functions(name), self._writing(name))

    def _copying(self, name: str) -> Any:
        lines = [line for line, copied in zip(self.copy_lines, self.copied, strict=True) if copied == name]

        def copying(original: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            source = args[0] if args else None
            if not (isinstance(source, Tensor) and isinstance(made, Tensor)) or place_of(source) == place_of(made):
                return made
            if any(map(runs_at, lines)):
                if len(self._copied) >= HELD_MAX:
                    self._copied.pop(next(iter(self._copied)))
                self._copied[place_of(made)] = _Copied(name, source, made, args)
            return made

        return copying

    def _writing(self, name: str) -> Any:
        lines = [line for line, by in zip(self.lines, self.by, strict=True) if by == name]

        def writing(original: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            target = args[0] if args else None
            copied = self._copied.get(place_of(target)) if isinstance(target, Tensor) else None
            if copied is not None and any(map(runs_at, lines)):
                self.touch()
                _write_back(copied)
            return result

        return writing


def _functions(name: str) -> list[Any]:
    found = [getattr(place, name, None) for place in (torch, Tensor)]
    return [one for one in found if callable(one)]  # torch.float is a type


@torch.no_grad()
def _write_back(copied: _Copied) -> None:
    source, made = copied.source.detach(), copied.made.detach()
    if copied.name == "__getitem__":
        source[copied.args[1]] = made
    elif copied.name == "index_select":
        source.index_copy_(copied.args[1], copied.args[2], made)
    elif copied.name == "masked_select":
        source.masked_scatter_(copied.args[1], made)
    else:
        source.copy_(made.reshape(source.shape))
