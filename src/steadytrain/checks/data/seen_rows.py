"""Detect repeated rows with a fixed-size table of digests.

A 64-bit digest stands for a row and is stored with the number of its first row. Among *n* rows, about n² / 2^65 pairs
collide: one in ten thousand passes over 60 million rows. A full table stores no more digests and counts the rest, so
that a report can say how much was not compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from steadytrain.checks.data.data_check import Part
from steadytrain.core.model import IntArray

SLOTS = 1 << 23
"""At most 128 MiB, which the system allocates as it is written. Eight million distinct rows fit."""

PROBES_MAX = 32

Digests = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


def digests_of(contents: Sequence[bytes]) -> Digests:
    """A digest of each content, never 0."""
    joined = b"".join([hashlib.blake2b(content, digest_size=8).digest() for content in contents])
    return np.maximum(np.frombuffer(joined, np.uint64), np.uint64(1))


class Seen:
    """Digests, each with the row that had it first."""

    def __init__(self, slots: int = SLOTS) -> None:
        assert slots & (slots - 1) == 0, "a power of two"
        self._digests = np.zeros(slots, np.uint64)
        self._rows = np.zeros(slots, np.int64)
        self.kept = 0
        self.without_place = 0

    def first_rows(self, digests: Digests, rows: IntArray) -> IntArray:
        """For each row the earlier row with the same digest, or -1. Stores new digests."""
        unique, firsts, inverse = np.unique(digests, return_index=True, return_inverse=True)
        found = self._find(unique, rows[firsts], remember=True)
        known = found[inverse]
        # Among these rows, all but the first of equal ones are repeats.
        repeats = (known < 0) & (np.arange(len(digests)) != firsts[inverse])
        return np.where(repeats, rows[firsts[inverse]], known)

    def lookup(self, digests: Digests) -> IntArray:
        """For each digest the stored row, or -1. Stores nothing."""
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
                # If several digests claim one slot, the last writer gets it; the others try the next slot.
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
    """The identity of each row as bytes: its text, else its tokens, else all fields except its id."""
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
