"""Plain text that scripts print. A line with a loss and other named numbers is a row.

Known shapes: ``step 10 | loss 3.21 | lr 1e-4``, ``iter 10: loss 3.2, time 12ms``, ``step:100/2000 train_loss:3.2``,
``{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.01}``, ``Epoch: [3][100/500] Loss 0.34 (0.45)``, lines of Megatron and
torchtitan, progress bars of Keras and tqdm (also after carriage returns), all with or without colours and time stamps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, final

from steadytrain.core.errors import UsageError
from steadytrain.logs.column_names import EVALUATION, PROGRESS_BAR, Role, is_metric, role_of
from steadytrain.logs.log_rows import RowsBuilder
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.numerals import NUMBER, PLAIN_NUMBER, NotANumberError, number_of
from steadytrain.logs.printed_tables import PrintedTables
from steadytrain.logs.reader import ANY_TEXT, Columns, Log, Reader, Tell
from steadytrain.logs.text_files import LINE_LENGTH_MAX, blocks, is_text, without_colours

NAMES_KEPT = 4096
SHAPES_KEPT = 2048
PAIRS_MAX = 200

_WORD = r"(?:(?<=\bof )nan\b|(?!(?:nan|inf|infinity)\b)[A-Za-z_][\w./@-]*)"
_PAIR = re.compile(
    rf"(?<![\w./@-])(?P<name>{_WORD}(?:[ ]{_WORD}){{0,5}}(?:[ ]?\(\w{{1,3}}\))?)['\"]?"
    rf"(?P<between>\s*[:=]+\s*|\s+)['\"(\[]{{0,2}}\s*(?:tensor\()?"
    rf"(?P<value>{NUMBER})(?![\w.]*\d)(?:\s*/\s*(?P<total>\d[\d,]*)|\s?(?P<unit>ms|s|sec)\b)?",
    re.IGNORECASE,
)
_TOKEN = re.compile(rf"(?<![\w./@+-])([-+]?{PLAIN_NUMBER})(?![\w.]*\d)", re.IGNORECASE)
_COUNT = re.compile(r"\[\s*(\d+)\s*/\s*(\d+)\s*(?:\(\s*\d+%\s*\))?\s*\]")
_BAR = re.compile(r"(?<![\w./])(\d+)/(\d+)\s*\[(?=[^\]]*(?:it/s|s/it|<|ETA|[=>.]{3}))")
_EPOCH = re.compile(r"[^\w]*epoch[\s:#\[]*(\d+)", re.IGNORECASE)
_WORTH = re.compile(
    r"loss|nll|norm|\bval|eval|test|entropy|perplexity|ppl|\bacc|return|reward|score|\d/\d+ *\[", re.IGNORECASE
)
_SUMMARY = "train_runtime"
_TOTAL = "total_steps"
_BOUND = frozenset(
    {"of", "nan", "num", "number", "per", "total", "max", "min", "skipped"}
    | {"every", "each", "warmup", "save", "logging"}
)
"""Words that change the meaning of the next one: `max steps` is not a step."""

_STEP, _EPOCH_NAME = "step", "epoch"
_CARRIES = frozenset({"loss", "gradient_norm", "gradient_norm_applied", "evaluation"})


@final
class TextLog(Reader):
    """Text that a script printed."""

    kind = "text"
    general = ANY_TEXT
    in_folders: ClassVar[tuple[str, ...]] = ("*.log", "*.out", "log*.txt", "*log.txt", "train*.txt", "output*.txt")

    def claims(self, path: Path, head: bytes) -> bool:
        return bool(head) and is_text(head)

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        gathering = _Gathering(_Shapes(frozenset(name for name in vars(columns).values() if name is not None)))
        for lines in blocks(path, tell):
            for line in lines:
                gathering.line(line)
        gathering.finish()
        if not gathering.builder.seen:
            raise UsageError(f"{path}: no line of it has a loss and its number (known shapes: docs/analyze.md)")
        return logs_of(gathering.builder.build(), columns, path=path, kind=self.kind)


@dataclass
class _Gathering:
    """Converts lines to rows. ``waiting`` is a row without a step; the next progress bar may supply it, because tqdm
    redraws its bar after a printed line. ``epoch`` comes from the last heading ``Epoch 3/10``."""

    shapes: _Shapes
    builder: RowsBuilder = field(default_factory=RowsBuilder)
    waiting: dict[str, float] | None = None
    bar_total: float = 0.0
    epoch: float | None = None
    tables: PrintedTables = field(default_factory=PrintedTables)

    def line(self, line: str) -> None:
        line = without_colours(line)[:LINE_LENGTH_MAX]
        if self.tables.takes(line):
            self._add_tables()
            return
        heading = _EPOCH.match(line)
        if heading:
            self.epoch = float(heading[1])
        bar = _BAR.search(line) if "[" in line and "/" in line else None
        position = self._position(bar) if bar else None
        row = self.shapes.row(line)
        if row is None:
            if position is not None and self.waiting is not None:
                self.waiting[PROGRESS_BAR] = position
                self.flush()
            return
        self.flush()
        if self.epoch is not None:
            row.setdefault(_EPOCH_NAME, self.epoch)
        if position is not None:
            row[PROGRESS_BAR] = position
        # A row printed above a bar gets its step from the bar that is redrawn after it.
        if "{" in line or position is None:
            self.waiting = row
        else:
            self.builder.add(row)

    def finish(self) -> None:
        self.flush()
        self.tables.finish()
        self._add_tables()

    def _add_tables(self) -> None:
        for row in self.tables.complete:
            if any(role_of(name).what in _CARRIES or is_metric(name) for name in row):
                self.flush()
                self.builder.add(row)
        self.tables.complete.clear()

    def flush(self) -> None:
        if self.waiting is not None:
            self.builder.add(self.waiting)
            self.waiting = None

    def _position(self, bar: re.Match[str]) -> float | None:
        """Position of the longest bar. Shorter bars belong to evaluations."""
        total = float(bar[2])  # thousands of digits are no int
        self.bar_total = max(self.bar_total, total)
        return float(bar[1]) if total == self.bar_total else None


@dataclass(frozen=True)
class _Cell:
    """A number of a row: the line's number at ``token`` times ``factor``, or the same ``value`` in every such line."""

    name: str
    token: int | None
    value: float
    factor: float = 1.0


def _plan(line: str, spans: dict[tuple[int, int], int], wanted: frozenset[str]) -> tuple[tuple[_Cell, ...], bool]:
    """The cells of a line, with ``spans`` as its tokens; none if it is about neither training nor evaluation.

    Also returns whether they hold for all lines of this shape, which is False if a number is only part of a token.
    """
    cells: dict[str, _Cell] = {}
    matched: list[tuple[int, int]] = []
    carries = has_step = False
    holds = True

    def cell(name: str, span: tuple[int, int], factor: float = 1.0) -> None:
        nonlocal holds
        try:
            value = number_of(line[slice(*span)])
        except NotANumberError:  # `5/1,5`: digits and commas that are no number
            value, holds = None, False
        holds = holds and (span in spans or not any(a < span[1] and span[0] < b for a, b in spans))
        if value is not None:
            cells.setdefault(name, _Cell(name, spans.get(span), value * factor, factor))

    for _, match in zip(range(PAIRS_MAX), _PAIR.finditer(line), strict=False):
        name, role = _named(match["name"], wanted)
        unit = (match["unit"] or "").lower()
        if role.what == "time" and unit:
            name, role = "step_time", Role("step_s")
        if role.what == "other" and name not in wanted and match["between"].isspace() and not is_metric(name):
            continue  # `took 3`, `at 2024`: prose
        matched.append(match.span())
        cell(name, match.span("value"), 1e-3 if unit == "ms" and role.what == "step_s" else 1.0)
        carries = carries or role.what in _CARRIES or name in wanted
        if role.what == "step":
            has_step = True
            if match["total"]:
                cell(_TOTAL, match.span("total"))
    # A metric alone makes a row only if the line counts steps or epochs.
    counts = has_step or any(role_of(name).what == "epoch" for name in cells)
    if not (carries or (counts and any(map(is_metric, cells)))) or _SUMMARY in cells:
        return (), holds
    if not has_step:
        counts_of = [c for c in _COUNT.finditer(line) if not any(a <= c.start() < b for a, b in matched)][:2]
        for name, count in zip((_STEP, _EPOCH_NAME), reversed(counts_of), strict=False):  # `[epoch/of][batch/of]`
            cell(name, count.span(1))
        if counts_of:
            cell(_TOTAL, counts_of[-1].span(2))
    return tuple(cells.values()), holds


@dataclass
class _Shapes:
    """Converts lines to rows. A script prints few kinds of lines, so the reader interprets a line once for all lines
    that differ only in their numbers. That halves the time for a long log."""

    wanted: frozenset[str]
    plans: dict[str, tuple[_Cell, ...]] = field(default_factory=dict)

    def row(self, line: str) -> dict[str, float] | None:
        parts = _TOKEN.split(line)
        shape = "\0".join(parts[::2])
        plan = self.plans.get(shape)
        if plan is None:
            plan = self._plan(line, parts, shape)
        if not plan:
            return None
        row = {}
        for cell in plan:
            if cell.token is None:
                row[cell.name] = cell.value
                continue
            text = parts[2 * cell.token + 1]
            row[cell.name] = cell.factor * float(text.replace(",", "") if "," in text else text)
        return row

    def _plan(self, line: str, parts: list[str], shape: str) -> tuple[_Cell, ...]:
        plan: tuple[_Cell, ...] = ()
        holds = True
        if _WORTH.search(line) or any(name in line for name in self.wanted):
            spans = {match.span(): number for number, match in enumerate(_TOKEN.finditer(line))}
            plan, holds = _plan(line, spans, self.wanted)
        if len(self.plans) >= SHAPES_KEPT:
            self.plans.clear()
        if holds:
            self.plans[shape] = plan
        return plan


@lru_cache(maxsize=NAMES_KEPT)
def _named(text: str, wanted: frozenset[str]) -> tuple[str, Role]:
    """The name among the words before a number: `INFO trainer loss` is `loss`, `INFO val loss` is `val loss`."""
    words = text.strip("'\" ").split(" ")
    for begin in range(len(words)):
        name = " ".join(words[begin:])
        if name in wanted:
            return name, role_of(name)
    evaluation = next((n for n, word in enumerate(words) if set(re.findall("[a-z]+", word.lower())) & EVALUATION), None)
    if evaluation is not None:
        return " ".join(words[evaluation:]), Role("evaluation")
    for begin in range(len(words)):
        name = " ".join(words[begin:])
        role = role_of(name)
        if role.what != "other" and not (begin and words[begin - 1].lower() in _BOUND):
            return name, role
    return " ".join(words), Role("other")
