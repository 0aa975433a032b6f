"""Which rows were seen before: a table of digests whose size is fixed.

64 bits of a digest stand for a row, with the number of the row that was first. Among *n* rows about n² / 2^65 pairs
are taken for equal that are not: one in ten thousand passes over 60 million rows. A table that is full keeps no more;
what found no place is counted, so that a report can say how much was not compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from steadytrain.checks.data.data_check import Part
from steadytrain.core.model import IntArray

SLOTS = 1 << 23
"""128 MiB at the most, which the system gives as they are written; eight million different rows fit."""

PROBES_MAX = 32

Digests = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


def digests_of(contents: Sequence[bytes]) -> Digests:
    """A digest for each, never 0."""
    joined = b"".join([hashlib.blake2b(content, digest_size=8).digest() for content in contents])
    return np.maximum(np.frombuffer(joined, np.uint64), np.uint64(1))


class Seen:
    """Digests and the rows that had them first."""

    def __init__(self, slots: int = SLOTS) -> None:
        assert slots & (slots - 1) == 0, "a power of two"
        self._digests = np.zeros(slots, np.uint64)
        self._rows = np.zeros(slots, np.int64)
        self.kept = 0
        self.without_place = 0

    def first_rows(self, digests: Digests, rows: IntArray) -> IntArray:
        """For each row the one before it with the same digest, or -1. Remembers what is new."""
        unique, firsts, inverse = np.unique(digests, return_index=True, return_inverse=True)
        found = self._find(unique, rows[firsts], remember=True)
        known = found[inverse]
        # Within these rows: all but the first of equal ones repeat it.
        repeats = (known < 0) & (np.arange(len(digests)) != firsts[inverse])
        return np.where(repeats, rows[firsts[inverse]], known)

    def lookup(self, digests: Digests) -> IntArray:
        """For each the row that was remembered, or -1. Remembers nothing."""
        return self._find(digests, np.full(len(digests), -1, np.int64), remember=False)

    def _find(self, digests: Digests, rows: IntArray, *, remember: bool) -> IntArray:
        mask = np.uint64(len(self._digests) - 1)
        found = np.full(len(digests), -1, np.int64)
        open_ = np.arange(len(digests))
        for probe in range(PROBES_MAX):
            slots = ((digests[open_] + np.uint64(probe)) & mask).astype(np.int64)
            there = self._digests[slots]
            same, empty = there == digests[open_], there == 0
            found[open_[same]] = self._rows[slots[same]]
            if remember and empty.any():
                # Of several that want one slot the last writer has it; the others go on to the next.
                self._digests[slots[empty]] = digests[open_[empty]]
                won = empty & (self._digests[slots] == digests[open_])
                self._rows[slots[won]] = rows[open_[won]]
                self.kept += int(won.sum())
                open_ = open_[~same & ~won]
            else:
                open_ = open_[~same & ~empty]
            if not len(open_):
                return found
        self.without_place += len(open_)
        return found


def row_contents(part: Part) -> list[bytes]:
    """What makes a row what it is, as bytes: its text, else its tokens, else all of its fields but its own id."""
    if part.texts is not None:
        extra = part.classes or [None] * len(part.texts)
        return [
            f"{text}\x00{label}".encode("utf-8", "surrogatepass") if text else b""
            for text, label in zip(part.texts, extra, strict=True)
        ]
    if part.tokens is not None:
        labels = part.labels
        return [
            part.tokens.row(place).tobytes() + (labels.row(place).tobytes() if labels is not None else b"")
            for place in range(len(part.tokens))
        ]
    contents = []
    for row in part.rows:
        fields = {name: value for name, value in (row.fields or {}).items() if name != part.identity}
        contents.append(
            b"\x00".join(
                name.encode() + (value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
                for name, value in sorted(fields.items())
            )
        )
    return contents
