"""Delimited text: its separator, its header, and its numbers one block at a time.

Blocks of plain numbers go through ``numpy.loadtxt`` (0.4 s for a million rows of four columns). The csv module reads
blocks with anything else (text, quotes with thousands separators, short lines), in about 2 s.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.model import IntArray
from steadytrain.logs.column_names import role_of
from steadytrain.logs.log_rows import COLUMNS_MAX, Column, Rows, RowsBuilder
from steadytrain.logs.numerals import ABSENT, NotANumberError, counted, number_of, numbers_of
from steadytrain.logs.reader import Tell
from steadytrain.logs.text_files import blocks, head_of, text_of

SEPARATORS = (",", "\t", ";", "|", " ")
SAMPLE_LINES = 200
EXAMPLES_MAX = 40
_EMPTY = -2.718281828459045e303
"""Marks an empty cell while NumPy reads a block."""


@dataclass(frozen=True)
class Header:
    """Where the table begins, and its columns. ``line`` is the position of the header among the lines."""

    names: tuple[str, ...]
    separator: str
    line: int


@dataclass
class _Told:
    """Cells that could not be read as numbers: their count per column, and the first one."""

    cells: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    short: int = 0
    left_out: int = 0


def header_of(head: bytes, suffix: str) -> Header | None:
    """The header of delimited text that begins with ``head``, None if it has none."""
    lines = text_of(head).lstrip("\ufeff").split("\n")
    separators = ("\t", *SEPARATORS) if suffix == ".tsv" else SEPARATORS
    for place, line in enumerate(lines[:SAMPLE_LINES]):
        if not line.strip():
            continue
        below = [other for other in lines[place + 1 : place + 1 + SAMPLE_LINES] if other.strip()]
        for separator in separators:
            names = _cells(line.lstrip("# ") if separator != " " else line.lstrip("# ").strip(), separator)
            if len(names) >= (2 if suffix != ".csv" or below else 1) and _is_header(names, below, separator):
                return Header(_distinct(names), separator, place)
        if not line.startswith("#"):
            return None
    return None


def read_delimited(path: Path, header: Header, wanted: Sequence[str], tell: Tell) -> Rows:
    """Read the numbers below ``header``.

    Raises:
        UsageError: the file cannot be read.
    """
    label = _label(header)
    numeric = _numeric_places(path, header, label, wanted)
    places = sorted(numeric[:COLUMNS_MAX])
    builder, told = RowsBuilder(), _Told(left_out=len(numeric) - len(places))
    skip = header.line + 1
    for lines in blocks(path, tell):
        body = lines[skip:]
        skip = max(0, skip - len(lines))
        if body and not _by_numpy(body, header, places, label, builder):
            _by_csv(body, header, places, label, builder, told)
    return builder.build(*_notes(told))


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return []


def _is_header(names: Sequence[str], below: Sequence[str], separator: str) -> bool:
    """Whether ``names`` are neither numbers nor sentences, over a line with as many cells and at least one number."""
    if any(_is_number(name) or not name.strip() for name in names[1:]) or _is_number(names[0]):
        return False
    if any(re.search(r"[:=]\s*\S*\d|\s[-+]?\d+(\.\d+)?$", name) for name in names):
        return False  # `step 1, loss 2.3` has commas but is not a table
    if not below:
        return separator != " " and any(role_of(name).what == "loss" for name in names)
    cells = _with_points(_cells(below[0].strip() if separator == " " else below[0], separator), separator)
    return len(cells) == len(names) and any(map(_is_number, cells))


def _is_number(cell: str) -> bool:
    try:
        return number_of(cell) is not None
    except NotANumberError:
        return False


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Column names, with a number appended to repeated ones."""
    seen: dict[str, int] = {}
    found = []
    for place, name in enumerate(names):
        name = name or f"column {place + 1}"
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(found)


def _label(header: Header) -> int | None:
    """The column with the run of each row, None if there is none."""
    places = [place for place, name in enumerate(header.names) if role_of(name).what == "run"]
    return min(places, key=lambda place: role_of(header.names[place]).tier, default=None)


def _numeric_places(path: Path, header: Header, label: int | None, wanted: Sequence[str]) -> list[int]:
    """The columns that are not clearly text: those that the user named and signals come first."""
    lines = text_of(head_of(path)).lstrip("\ufeff").split("\n")[header.line + 1 :][:SAMPLE_LINES]
    rows = [_cells(line, header.separator) for line in lines[:-1] or lines if line.strip()]
    numeric = []
    for place, name in enumerate(header.names):
        cells = _with_points([row[place] for row in rows if place < len(row)], header.separator)
        texts = sum(not _is_number(cell) and cell.lower() not in ABSENT for cell in cells)
        if place != label and (name in wanted or texts <= len(cells) / 2):
            numeric.append(place)
    numeric.sort(key=lambda place: header.names[place] not in wanted and role_of(header.names[place]).what == "other")
    return numeric


def _by_numpy(
    lines: Sequence[str], header: Header, places: Sequence[int], label: int | None, builder: RowsBuilder
) -> bool:
    """Read a block of only numbers and empty cells. False if it contains anything else."""
    separator = header.separator
    if separator in (" ", ";") or not places:
        return False
    text = "\n".join(lines)
    empty = f"{separator}{_EMPTY!r}"
    if f"{separator}{separator}" in text:
        text = text.replace(separator * 2, f"{empty}{separator}").replace(separator * 2, f"{empty}{separator}")
    if f"{separator}\n" in text or text.endswith(separator):
        text = text.replace(f"{separator}\n", f"{empty}\n")
        text = text + empty[1:] if text.endswith(separator) else text
    if f"\n{separator}" in text or text.startswith(separator):
        text = text.replace(f"\n{separator}", f"\n{empty[1:]}{separator}")
        text = empty[1:] + text if text.startswith(separator) else text
    used = sorted({*places, *([label] if label is not None else [])})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for a block of empty lines
            numbers = np.loadtxt(
                io.StringIO(text), delimiter=separator, usecols=used, ndmin=2, comments=None, quotechar='"'
            )
    except (ValueError, IndexError):
        return False
    if not len(numbers):
        return True
    every = np.arange(len(numbers))
    columns = {}
    for place in places:
        values = numbers[:, used.index(place)]
        missing = values == _EMPTY
        if missing.all():
            continue
        columns[header.names[place]] = Column(
            *((every[~missing], values[~missing]) if missing.any() else (every, values.copy()))
        )
    run_of = _numbered(numbers[:, used.index(label)], header.names[label], builder) if label is not None else None
    builder.add_block(len(numbers), columns, run_of)
    return True


def _numbered(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], name: str, builder: RowsBuilder) -> IntArray:
    distinct, places = np.unique(values, return_inverse=True)
    numbers = [builder.run_number("" if value == _EMPTY else f"{name} {value:g}") for value in distinct.tolist()]
    return np.array(numbers, np.int64)[places]


def _by_csv(
    lines: Sequence[str],
    header: Header,
    places: Sequence[int],
    label: int | None,
    builder: RowsBuilder,
    told: _Told,
) -> None:
    """Read any block. A cell that is not a number is absent and is counted in ``told``."""
    rows = _rows(lines, header)
    width = len(header.names)
    named = [row for row in rows if row and tuple(cell.strip() for cell in row) != header.names]
    told.short += sum(len(row) < width for row in named)
    whole = [row if len(row) >= width else [*row, *[""] * (width - len(row))] for row in named]
    if not whole:
        return
    cells_of = list(zip(*(row[:width] for row in whole), strict=True))
    columns = {}
    for place in places:
        cells = _with_points(cells_of[place], header.separator)
        values, present, text = numbers_of(cells)
        name = header.names[place]
        if text:
            told.cells[name] = told.cells.get(name, 0) + len(text)
            told.first.setdefault(name, cells[text[0]][:EXAMPLES_MAX])
        if present.any():
            columns[name] = Column(np.flatnonzero(present), values[present])
    run_of = None
    if label is not None:
        run_of = np.array(
            [builder.run_number(_run_name(cell, header.names[label])) for cell in cells_of[label]], np.int64
        )
    builder.add_block(len(whole), columns, run_of)


def _with_points(cells: Sequence[str], separator: str) -> Sequence[str]:
    """Cells with decimal points: in a table separated by semicolons, the comma is the decimal sign."""
    if separator != ";":
        return cells
    return [cell.replace(",", ".") if "." not in cell else cell for cell in cells]


def _run_name(cell: str, name: str) -> str:
    try:
        number = float(cell)
    except ValueError:
        return cell.strip()[:200]
    return f"{name} {number:g}"


def _rows(lines: Sequence[str], header: Header) -> list[list[str]]:
    if header.separator == " ":
        return [line.split() for line in lines]
    cleaned = (line.replace("\x00", "") for line in lines)
    found: list[list[str]] = []
    reader = csv.reader(cleaned, delimiter=header.separator)
    while True:
        try:
            found.extend(reader)
        except csv.Error:  # an oversized field: continue after it
            continue
        return found


def _notes(told: _Told) -> list[str]:
    notes = [
        f"{counted(count, 'cell')} of {name!r} with text treated as not logged; the first is {told.first[name]!r}."
        for name, count in told.cells.items()
    ]
    if told.left_out:
        notes.append(f"More than {COLUMNS_MAX} columns: {told.left_out} of them were left out.")
    if told.short:
        notes.append(f"{counted(told.short, 'line')} cut short: the missing cells were treated as not logged.")
    return notes


def require_header(path: Path) -> Header:
    """The header of a file that is read as delimited text.

    Raises:
        UsageError: it has no header.
    """
    header = header_of(head_of(path), path.suffix.lower())
    if header is None:
        raise UsageError(
            f"{path}: its first line does not name columns over rows of numbers; add one, as `step,loss,grad_norm`"
        )
    return header
