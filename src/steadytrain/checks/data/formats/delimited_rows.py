"""CSV and TSV with a header line, plain or compressed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, final

from steadytrain.checks.data.bytes_of import head_of, lines_of
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell
from steadytrain.core.errors import UsageError

SUFFIXES = tuple(f"{name}{packed}" for name in (".csv", ".tsv") for packed in ("", ".gz", ".bz2", ".xz", ".zst"))
QUOTED_LINES_MAX = 10_000
"""Most lines of a quoted cell. A cell that is never closed costs no more than this."""

INTEGER_MAX = (1 << 63) - 1
"""A larger whole number is a float: no column of tokens, labels or features holds it otherwise."""

DIGITS_MAX = 40


@final
class DelimitedRows(DataFormat):
    """Tables with a header line, separated by comma, tab, semicolon or bar."""

    kind = "csv"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def claims(self, path: Path, head: bytes) -> bool:
        return path.name.lower().endswith(SUFFIXES)

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        separator = _separator(path)
        names: list[str] | None = None
        number = 0
        held: list[bytes] = []
        begin = 0
        for lines in lines_of(path, tell):
            rows: list[Row] = []
            for place, line in lines:
                if not held and not line.strip():
                    continue
                begin = begin if held else place
                held.append(line)
                # An odd number of quotes: a cell continues in the next line.
                if sum(part.count(b'"') for part in held) % 2 and len(held) < QUOTED_LINES_MAX:
                    continue
                if names is None:
                    names = [name.strip() for name in _cells(held, separator, odd=[])]
                    if len(set(names)) != len(names):
                        raise UsageError(f"{path}: its first line names a column twice; give each a name of its own")
                else:
                    rows.append(_row(number, f"{path.name}:{begin}", held, separator, names))
                    number += 1
                held = []
            yield rows
        if held and names is not None:
            yield [Row(number, f"{path.name}:{begin}", None, "a quote that is never closed")]


def _row(number: int, place: str, held: Sequence[bytes], separator: str, names: Sequence[str]) -> Row:
    odd: list[bool] = []
    cells = _cells(held, separator, odd)
    if len(cells) != len(names):
        return Row(number, place, None, f"{len(cells)} cells under {len(names)} names", bool(odd))
    return Row(number, place, dict(zip(names, map(_value, cells), strict=True)), "", bool(odd))


def _cells(held: Sequence[bytes], separator: str, odd: list[bool]) -> list[str]:
    raw = b"\n".join(held)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", errors="replace")
        odd.append(True)
    try:
        return next(csv.reader(text.splitlines(keepends=True), delimiter=separator), [])
    except csv.Error:
        return []


def _value(cell: str) -> str | int | float | None:
    """A cell as a number if it is one; None for an empty cell."""
    if not cell:
        return None
    if cell[0] in "+-.0123456789nNiI":
        try:
            whole = int(cell) if len(cell) <= DIGITS_MAX else None
            if whole is not None and -INTEGER_MAX <= whole <= INTEGER_MAX:
                return whole
        except ValueError:
            pass
        try:
            return float(cell)
        except ValueError:
            pass
    return cell


def _separator(path: Path) -> str:
    if ".tsv" in path.name.lower():
        return "\t"
    first = head_of(path).split(b"\n", 1)[0]
    return max(",;\t|", key=lambda letter: first.count(letter.encode()))
