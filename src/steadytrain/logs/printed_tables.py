"""Tables that scripts print among other lines: rows between bars, frames of names and values, YOLO's epochs.

A table of bars is Markdown's, or one of ``rich`` and ``prettytable``. A frame has one name and its value in a line
(Stable-Baselines). YOLO prints the names of its losses in one line and their values in the next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from steadytrain.logs.numerals import NotANumberError, number_of

NAMES_MAX = 256
_BARS = str.maketrans(dict.fromkeys("│┃║", "|"))
_RULE = re.compile(r"\s*[|+]?\s*[-=_:+|─━═┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┡┩╇╈┳┻╋╞╡╪ ]{3,}\s*")
_LOSSES = re.compile(r"\s*epoch\s.*\b\w*loss\b", re.IGNORECASE)
_CLASSES = re.compile(r"\s*class\s+images\b.*\bmAP", re.IGNORECASE)
_NAMED_NUMBER = re.compile(r"[:=\s][-+]?(?:\d\S*|nan|inf)$", re.IGNORECASE)
"""A cell that names its number itself: `loss 2.3`."""

_OF_EPOCH = re.compile(r"\s*(\d+)/\d+\s")
_EVALUATED = (("map50-95", "val/map_50_95"), ("map50", "val/map_50"), ("p", "val/precision"), ("r", "val/recall"))
_COUNTS = frozenset({"timesteps", "total_timesteps"})


@dataclass
class PrintedTables:
    """Reads a text line by line. ``complete`` has the rows that are whole; the caller takes them away."""

    complete: list[dict[str, float]] = field(default_factory=list)
    _header: tuple[str, ...] = ()
    _frame: dict[str, float] = field(default_factory=dict)
    _losses: tuple[str, ...] = ()
    _classes: tuple[str, ...] = ()
    _epoch: dict[str, float] = field(default_factory=dict)

    def takes(self, line: str) -> bool:
        """Whether ``line`` belongs to a table, which then was read."""
        line = line.translate(_BARS)
        if "|" in line and (text := line.strip()).startswith("|") and text.endswith("|") and len(text) > 2:
            return bool(_RULE.fullmatch(text)) or self._bars([cell.strip() for cell in text[1:-1].split("|")])
        if self._frame and _RULE.fullmatch(line):
            self._close_frame()
            return True
        return self._yolo(line)

    def finish(self) -> None:
        """The text has ended."""
        self._close_frame()
        self._close_epoch()

    def _bars(self, cells: Sequence[str]) -> bool:
        values = [_number(cell) for cell in cells]
        if len(cells) == 2 and len(self._header) != 2 and (values[1] is not None or not cells[1]) and cells[0]:
            return self._named_value(cells[0], values[1])
        if any(_NAMED_NUMBER.search(cell) for cell in cells):
            return False
        if all(cells) and not any(value is not None for value in values):
            self._close_frame()
            self._header = tuple(cells)
            return True
        if len(cells) != len(self._header):
            return False
        row = {name: value for name, value in zip(self._header, values, strict=True) if value is not None}
        if row:
            self.complete.append(row)
        return bool(row)

    def _named_value(self, name: str, value: float | None) -> bool:
        if _number(name) is not None:
            return False
        name = name.rstrip(":")
        if value is not None and len(self._frame) < NAMES_MAX:
            self._frame["global_step" if name.rpartition("/")[2] in _COUNTS else name] = value
        return True

    def _close_frame(self) -> None:
        if self._frame:
            self.complete.append(self._frame)
            self._frame = {}

    def _yolo(self, line: str) -> bool:
        if _LOSSES.match(line) and ":" not in line and not re.search(r"\s\d", line):
            self._losses = tuple(line.split())
            return True
        if self._losses and _CLASSES.match(line):
            self._classes = tuple(name.strip("():").lower().rpartition("(")[2] for name in line.split())
            return True
        if self._losses and (found := _OF_EPOCH.match(line)):
            return self._epoch_row(float(found[1]), line.split())
        if self._classes and self._epoch and line.lstrip().startswith("all "):
            self._evaluation(line.split())
            return True
        return False

    def _epoch_row(self, epoch: float, cells: Sequence[str]) -> bool:
        row = {"epoch": epoch}
        for name, cell in zip(self._losses[1:], cells[1:], strict=False):
            value = _number(cell.rstrip(":"))
            if value is not None and name.lower().endswith("loss"):
                row[name] = value
        if len(row) < 2:
            return False
        if self._epoch.get("epoch") != epoch:  # a bar that was redrawn repeats its epoch: the last line counts
            self._close_epoch()
        self._epoch.update(row)
        return True

    def _evaluation(self, cells: Sequence[str]) -> None:
        for column, name in _EVALUATED:
            place = self._classes.index(column) if column in self._classes else len(cells)
            value = _number(cells[place]) if place < len(cells) else None
            if value is not None:
                self._epoch[name] = value

    def _close_epoch(self) -> None:
        if self._epoch:
            self.complete.append(self._epoch)
            self._epoch = {}


def _number(cell: str) -> float | None:
    try:
        return number_of(cell)
    except NotANumberError:
        return None
