"""Spans that say the same over and over."""

from __future__ import annotations

import math
from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import (
    Circumstances,
    DataCheck,
    Example,
    Examples,
    Judgement,
    OfLoader,
    Part,
    Ragged,
    graded,
)
from steadytrain.core.model import IntArray

LENGTH_MAX = 13
REPEATS_MIN = 32
"""OLMo 2 (2501.00656) masks spans that repeat 1 to 13 tokens 32 times or more: they caused loss spikes."""

WARN_SHARE = 0.001
"""Share of rows. Chosen: web text has about one such row in a thousand; with more, every other batch has one."""

FAIL_SHARE = 0.02
"""Share of tokens. Chosen: a row of dashes in a long text is little; tables of zeros and looping text are much."""

EXCERPT_TOKENS = 64


@final
class RepeatedNgrams(DataCheck):
    """No span repeats the same 1 to 13 tokens 32 times or more.

    Means:
        Such spans (rows of dashes, tables of zeros, text stuck in a loop) are easy to predict after some repeats, and
        give large gradients where they begin and end. OLMo 2 had loss spikes from them that went away when the spans
        were masked. Without a tokenizer, the check counts words.

    Next:
        Drop the rows, or mask these spans in the loss. Then check whether the spikes are gone.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    of_loader: ClassVar[OfLoader] = "fault"

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._hit = self._tokens = self._inside = 0
        self._looked = self._by_words = False
        self._examples = Examples()

    def look(self, part: Part) -> None:
        if part.tokens is not None:
            rows = part.tokens
        elif part.texts is not None:
            self._by_words = True
            rows = Ragged.of([np.fromiter(map(hash, text.split()), np.int64) for text in part.texts])
        else:
            return
        self._looked = True
        self._rows += len(rows)
        found = repeats(rows)
        self._hit += len(found)
        self._tokens += len(rows.values)
        self._inside += sum(length * times for _, length, times in found.values())
        for place, (begin, length, times) in list(found.items())[: 5 - len(self._examples.kept)]:
            self._examples.kept.append(self._example(part, rows, place, begin, length, times))

    def _example(self, part: Part, rows: Ragged, place: int, begin: int, length: int, times: int) -> Example:
        unit = "words" if self._by_words else "tokens"
        why = f"{length} {unit} {times:,} times from {unit[:-1]} {begin} on"
        if self._by_words:
            return part.example(place, why)
        return part.example(place, why, tokens=rows.row(place)[begin : begin + EXCERPT_TOKENS])

    def judge(self) -> Judgement:
        if not self._looked:
            return Judgement("not-run", "no field with text or tokens")
        share = self._hit / max(self._rows, 1)
        inside = self._inside / max(self._tokens, 1)
        numbers = {"rows": float(self._rows), "with_repeats": float(self._hit), "share": share, "inside_share": inside}
        unit = "words" if self._by_words else "tokens"
        if not self._hit:
            return Judgement("pass", f"no row repeats 1 to {LENGTH_MAX} {unit} {REPEATS_MIN} times", numbers)
        status = "fail" if inside >= FAIL_SHARE else graded(share, warn=WARN_SHARE, fail=math.inf)
        message = f"{self._hit:,} of {self._rows:,} rows repeat 1 to {LENGTH_MAX} {unit} {REPEATS_MIN} times or more"
        return Judgement(status, message, numbers, self._examples.kept)


def repeats(rows: Ragged) -> dict[int, tuple[int, int, int]]:
    """Rows with a repeated n-gram, by position: the start of the first one, its length in tokens, and its count."""
    found: dict[int, tuple[int, int, int]] = {}
    values = rows.values
    owner = np.repeat(np.arange(len(rows)), rows.lengths)
    for length in range(1, LENGTH_MAX + 1):
        run = length * (REPEATS_MIN - 1)
        # A run of that many equal pairs covers every position of this stride at least once, so the search checks only
        # these first.
        probes = np.arange(length, len(values), run)
        hits = probes[(values[probes] == values[probes - length]) & (owner[probes] == owner[probes - length])]
        for probe in hits.tolist():
            place = int(owner[probe])
            if place in found:
                continue
            span = _run_around(values, int(rows.offsets[place]), int(rows.offsets[place + 1]), probe, length)
            if span is not None:
                begin, count = span
                found[place] = (begin - int(rows.offsets[place]), length, count // length + 1)
    return found


def _run_around(values: IntArray, low: int, high: int, probe: int, length: int) -> tuple[int, int] | None:
    """Start and number of pairs of the span around ``probe`` that repeats with period ``length``; None if too short."""
    run = length * (REPEATS_MIN - 1)
    # Most hits are chance (the same word twice), so a short check on both sides settles them.
    near_low, near_high = max(low + length, probe - run), min(high, probe + run)
    if _run_in(values, near_low, near_high, probe, length)[1] < run:
        return None
    begin, count = _run_in(values, low + length, high, probe, length)
    return begin - length, count


def _run_in(values: IntArray, low: int, high: int, probe: int, length: int) -> tuple[int, int]:
    differs = values[low:high] != values[low - length : high - length]
    before = np.flatnonzero(differs[: probe - low])
    after = np.flatnonzero(differs[probe - low :])
    begin = low + int(before[-1]) + 1 if len(before) else low
    end = probe + int(after[0]) if len(after) else high
    return begin, end - begin
