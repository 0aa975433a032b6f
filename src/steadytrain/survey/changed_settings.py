"""Plain numbers that the script uses, and those that changed near the onset.

Options of the optimizer, numbers that modules hold (a dropout's ``p``), and numbers that stand in an operation of the
script (a temperature that divides logits, the weight of a loss). The learning rate is left out: it has its own facts.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.survey.script_lines import line_of

NEAR_STEPS, LATE_STEPS = 8, 1
"""A change this many steps before the onset, or after it (an onset may be dated a step early), belongs to it."""

FACTOR_MIN, OTHERWISE_MAX = 1.5, 0.2
"""How much a number changed, at least, and how far it moved in the steps before, at most, as a share of that."""

CALM_MIN = 2
UNEVEN_MAX, PLANNED_MIN = 0.25, 0.6
"""A schedule moves evenly: from step to step by nearly the same, in so many of the steps at least. Where it changes
from one stage to the next, two in three steps around are uneven."""

GROWN_STEPS, EACH_MIN, EACH_APART_MAX, GROWN_MIN = 5, 1.003, 0.05, 10.0
"""A number grows by a factor (or shrinks) if it did so in that many steps at the onset, each time by the same one up to
a share of its logarithm; and by so much since the first step, at least, if it did so all the time."""

VALUES_MAX, FOUND_MAX, MODULES_MAX = 4096, 16, 4096
OPTIONS_LEFT_OUT = frozenset({"lr", "initial_lr", "max_lr", "min_lr"})
SIZES = frozenset(
    {
        *("in_features", "out_features", "in_channels", "out_channels", "num_features", "num_embeddings"),
        *("embedding_dim", "input_size", "hidden_size", "num_heads", "embed_dim"),
    }
)
"""Sizes of a layer. They change where another layer takes its place."""

ARITHMETIC = frozenset(
    {
        *("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", "div", "div_", "divide", "true_divide"),
        *("__truediv__", "__rtruediv__", "__rdiv__", "__itruediv__", "pow", "__pow__", "__rpow__"),
        *("add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "rsub"),
    }
)
_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parents[1])
THIN = ("functional.py", "overrides.py", "_tensor.py")
"""Files of torch between a call of the script and its function. Other files make calls of their own."""

Key = tuple[str, ...]
"""Kind, then what tells one number from another."""


class Settings:
    """The numbers of each surveyed step, without the numbers that are alike in all of them."""

    def __init__(self) -> None:
        self._values: dict[Key, dict[int, float]] = {}
        self._names: dict[Key, str] = {}
        self._counts: dict[Key, int] = {}
        self._rows: dict[int, int] = {}
        self._step = 0

    def gate(self, step: int, groups: Sequence[Mapping[str, Any]]) -> None:
        """The options of the optimizer's groups before the update of ``step``."""
        for place, group in enumerate(groups):
            for option, value in group.items():
                if option in OPTIONS_LEFT_OUT:
                    continue
                inside = value if isinstance(value, (tuple, list)) and option != "params" else (value,)
                for at, one in enumerate(inside):
                    self._keep(("optimizer", option, str(place), str(at)), step, one, option)

    def called(self, step: int, root: nn.Module, given: Any = ()) -> None:
        """The numbers that modules hold at a model call with the arguments ``given``."""
        first = next((one for one in tensors_in(given) if one.dim()), None)
        if first is not None:
            self._rows.setdefault(step, first.shape[0])
        for place, (name, module) in enumerate(root.named_modules()):
            if place >= MODULES_MAX:
                break
            for attribute, value in vars(module).items():
                if isinstance(value, (int, float)) and not attribute.startswith("_") and attribute not in SIZES:
                    self._keep(("module", name, attribute, type(module).__name__), step, value, attribute)

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], step: int) -> None:
        """A torch function with plain numbers among its arguments. Only those that the script itself calls count."""
        kinds = (int, float) if name in ARITHMETIC else (float,)
        numbers = [(str(at), one) for at, one in enumerate(args) if type(one) in kinds]
        numbers += [(at, one) for at, one in given.items() if type(one) in kinds]
        frame = _direct_frame() if numbers else None
        if frame is None:
            return
        if step != self._step:
            self._step = step
            self._counts.clear()
        line = line_of(frame)
        for place, value in numbers:
            call: Key = ("operand", line, name, place)
            number = self._counts[call] = self._counts.get(call, 0) + 1
            label = _label(frame, value) or (place if not place.isdigit() else "")
            self._keep((*call, str(number)), step, value, label)

    def _keep(self, key: Key, step: int, value: Any, name: str) -> None:
        number = type(value) in (int, float) or (
            isinstance(value, Tensor) and value.numel() == 1 and key[0] != "operand"
        )
        if not number or (key not in self._values and len(self._values) >= VALUES_MAX):
            return
        self._values.setdefault(key, {})[step] = float(value)
        self._names[key] = name or self._names.get(key, "")

    def changed(self, onset: int) -> list[dict[str, Any]]:
        """The numbers that changed near ``onset``: what they were and became, at which step, and where they stand.

        ``each`` is the factor of a number that grew or shrank by a factor in each step; ``before`` is then its value in
        the first surveyed step.
        """
        found: list[dict[str, Any]] = []
        for key, values in self._values.items():
            row = sorted(values.items())
            change = _change(row, onset) or _growth(row, onset)
            if change is not None and self._counts_rows(change, values):
                continue
            if change is not None and len(found) < FOUND_MAX:
                where = dict(zip(_FIELDS[key[0]], key[1:], strict=True))
                found.append({"kind": key[0], "name": self._names[key], **change, **where})
        return found

    def _counts_rows(self, change: Mapping[str, float], values: Mapping[int, float]) -> bool:
        """Whether a number is the number of rows of the model's input, or differs from it by the same in every step:
        ``len(batch) - 1`` of a smaller batch is no setting that somebody changed."""
        apart = {value - self._rows[step] for step, value in values.items() if step in self._rows}
        seen = {self._rows[step] for step in values if step in self._rows}
        return change["step"] in self._rows and len(apart) == 1 < len(seen)


_FIELDS = {
    "optimizer": ("option", "group", "place"),
    "module": ("module", "attribute", "of"),
    "operand": ("line", "function", "argument", "number"),
}


def _change(values: Sequence[tuple[int, float]], onset: int) -> dict[str, float] | None:
    """The step, the old and the new value of a change near the onset; None without one.

    A number that moves all the time (a counter, a smooth schedule) has changed little there against its other steps.
    One that jitters is no setting: the script measures it (a norm, an average of the loss).
    """
    for at in range(CALM_MIN, len(values)):
        step, after = values[at]
        last, before = values[at - 1]
        if step - last > NEAR_STEPS or not onset - NEAR_STEPS <= step <= onset + LATE_STEPS:
            continue
        if _size(before, after) < math.log(FACTOR_MIN) or not _is_planned(values[:at]):
            continue
        pairs = itertools.pairwise(values[max(0, at - NEAR_STEPS) : at])
        near = [_size(one, other) for (early, one), (_, other) in pairs if early >= last - NEAR_STEPS]
        moved = max(near, default=math.inf)
        if math.isfinite(moved) and moved <= OTHERWISE_MAX * _size(before, after):
            return {"step": step, "before": before, "after": after}
    return None


def _growth(values: Sequence[tuple[int, float]], onset: int) -> dict[str, float] | None:
    """The change of a number that grew or shrank by one factor in each step up to the
    onset; None without one.
    """
    near = [(step, value) for step, value in values if step <= onset + LATE_STEPS][-(GROWN_STEPS + 1) :]
    if len(near) <= GROWN_STEPS or near[-1][0] < onset - LATE_STEPS or near[-1][0] - near[0][0] != GROWN_STEPS:
        return None
    signs = [math.copysign(1.0, value) for _, value in near if value and math.isfinite(value)]
    if len(signs) != len(near) or len(set(signs)) > 1:
        return None
    moves = [math.log(after / before) for (_, before), (_, after) in itertools.pairwise(near)]
    each = sum(moves) / len(moves)
    if abs(each) < math.log(EACH_MIN) or abs(each) * near[-1][0] < math.log(GROWN_MIN):
        return None
    if max(abs(move - each) for move in moves) > EACH_APART_MAX * abs(each):
        return None
    return {"step": near[-1][0], "before": values[0][1], "after": near[-1][1], "each": math.exp(each)}


def _is_planned(values: Sequence[tuple[int, float]]) -> bool:
    """Whether a number stays as it is, or moves evenly, in most of the neighbouring steps."""
    rows = zip(values, values[1:], values[2:], strict=False)
    moves = [(b - a, c - b) for (first, a), (_, b), (last, c) in rows if last - first == 2]
    even = sum(abs(two - one) <= UNEVEN_MAX * max(abs(one), abs(two)) for one, two in moves)
    return even >= PLANNED_MIN * len(moves)


def _size(before: float, after: float) -> float:
    """How far one number is from another: the logarithm of their ratio; large if either is zero or the sign differs."""
    if before == after:
        return 0.0
    if not (math.isfinite(before) and math.isfinite(after)) or before * after <= 0:
        return math.inf
    return abs(math.log(after / before))


def _direct_frame() -> FrameType | None:
    """The frame of the script if it called the function itself, not through a module or an optimizer of torch."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OWN, _TORCH)):
            return None if name.startswith("<frozen") else frame
        if name.startswith(_TORCH) and not name.endswith(THIN):
            return None
        if name.startswith(_OWN) and not name.startswith(str(Path(__file__).parent)):
            return None
        frame = frame.f_back
    return None


def _label(frame: FrameType, value: float) -> str:
    """The variable of the line that holds the number, "" if none or several do."""
    _, _, code = line_of(frame).partition(": ")
    held = set()
    for name in re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", code):
        first, *rest = name.split(".")
        found: Any = frame.f_locals.get(first, frame.f_globals.get(first))
        for part in rest:
            found = getattr(found, "__dict__", {}).get(part)
        if type(found) in (int, float) and found == value:
            held.add(name)
    return held.pop() if len(held) == 1 else ""
