"""The contracts of a data check and of a data format: their inputs and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from steadytrain.checks.data.tokenizing import Tokenizer
from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import FloatArray, IntArray
from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind

Status: TypeAlias = Literal["pass", "warn", "fail", "not-run"]
STATUSES: tuple[Status, ...] = ("fail", "warn", "not-run", "pass")

IGNORED = -100
"""The label that all PyTorch losses ignore by default."""

EXAMPLES_MAX = 5
"""Rows that a finding shows: enough to see a pattern, few enough to read."""

EXCERPT_CHARACTERS_MAX = 160

Tell: TypeAlias = Callable[[str, int, int], None]
"""Progress callback: the file's name, the bytes read, and its size (0: unknown)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as its format yields it. ``number`` counts from 0 over the whole source, ``place`` names its position.

    ``fields`` is None if the row could not be read; ``broken`` then says why. ``odd_bytes``: it was not UTF-8.
    """

    number: int
    place: str
    fields: Mapping[str, Any] | None
    broken: str = ""
    odd_bytes: bool = False


@dataclass(frozen=True)
class Ragged:
    """Concatenated rows of different lengths: row *i* is ``values[offsets[i]:offsets[i + 1]]``."""

    values: IntArray
    offsets: IntArray

    @staticmethod
    def of(rows: Sequence[Any]) -> Ragged:
        arrays = [np.asarray(row, np.int64).reshape(-1) for row in rows]
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        return Ragged(np.concatenate(arrays) if arrays else np.zeros(0, np.int64), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        return np.diff(self.offsets)

    def row(self, place: int) -> IntArray:
        return self.values[self.offsets[place] : self.offsets[place + 1]]

    def counts(self, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> IntArray:
        """How many of the ``chosen`` values each row holds."""
        sums = np.zeros(len(self.values) + 1, np.int64)
        np.cumsum(chosen, out=sums[1:])
        return sums[self.offsets[1:]] - sums[self.offsets[:-1]]


@dataclass(frozen=True)
class Numbers:
    """The numbers of a field, concatenated over all rows. ``owners`` holds the position of each number's row."""

    values: FloatArray
    owners: IntArray


@dataclass(frozen=True)
class Part:
    """Some rows, as columns. A column that the source lacks is None (``features``: empty).

    ``texts``, ``tokens``, ``labels`` (one per token), ``attention``, ``classes`` (one per row) and ``features`` belong
    to ``rows``, the readable rows. ``prompts`` is the number of tokens at the start of each row that do not count in
    the loss.
    """

    every: Sequence[Row]
    rows: Sequence[Row]
    texts: Sequence[str] | None = None
    tokens: Ragged | None = None
    labels: Ragged | None = None
    attention: Ragged | None = None
    prompts: IntArray | None = None
    classes: Sequence[Any] | None = None
    sources: Sequence[Any] | None = None
    features: Mapping[str, Numbers] = field(default_factory=dict)
    identity: str | None = None
    tokenizer: Tokenizer | None = None

    def has(self, what: str) -> bool:
        value = getattr(self, what)
        return value is not None and (what != "features" or bool(value))

    def example(self, place: int, why: str = "", *, tokens: IntArray | None = None) -> Example:
        """The row at ``place`` of ``rows``, with its text or the decoded ``tokens`` (by default its own)."""
        row = self.rows[place]
        if tokens is None and self.texts is not None:
            text = self.texts[place]
        else:
            ids = tokens if tokens is not None else self.tokens.row(place) if self.tokens is not None else None
            text = self._decoded(ids) if ids is not None else str(row.fields)
        return Example(row.number, row.place, excerpt(text), why, self._identity(row))

    def _decoded(self, ids: IntArray) -> str:
        shown = [int(value) for value in ids[:EXCERPT_CHARACTERS_MAX]]
        if self.tokenizer is None:
            return " ".join(map(str, shown))
        return self.tokenizer.shown(shown)

    def _identity(self, row: Row) -> str | None:
        if self.identity is None or row.fields is None or self.identity not in row.fields:
            return None
        return excerpt(str(row.fields[self.identity]))


@dataclass(frozen=True)
class Example(JsonValue, keys="row place id:identity text why"):
    """A row that illustrates a finding: its number, its position, its text (cut), and its id if it has one."""

    row: int
    place: str
    text: str
    why: str = ""
    identity: str | None = None


@dataclass(frozen=True)
class Judgement:
    """A check's result over all rows."""

    status: Status
    message: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    examples: Sequence[Example] = ()


@dataclass(frozen=True)
class Finding:
    """A judgement with the name of its check, its meaning and the next step."""

    check: str
    judgement: Judgement
    means: str
    next: str

    def to_json(self) -> dict[str, Any]:
        judgement = self.judgement
        return {
            "check": self.check,
            "status": judgement.status,
            "message": judgement.message,
            "numbers": {name: finite(value) for name, value in judgement.numbers.items()},
            "rows": [example.to_json() for example in judgement.examples],
            "means": self.means,
            "next": self.next,
        }


@dataclass(frozen=True)
class Circumstances:
    """What a check knows besides the rows. ``vocabulary`` is the number of ids, ``length`` the context length."""

    tokenizer: Tokenizer | None = None
    vocabulary: int | None = None
    length: int | None = None


OfLoader = Literal["no", "fault", "oddity", "order"]


class DataCheck(ABC):
    """The contract of a data check. Subclasses are final; each pass makes a new instance, which gathers what it needs.

    ``reads`` names the columns of a ``Part`` that it requires; the check is skipped if the source lacks one. A check
    that ``compares`` first sees the split of ``--against``, if given. Memory is bounded for any number of rows. The
    docstring is the documentation: its first sentence, then ``Means`` and ``Next``.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    compares: ClassVar[bool] = False

    of_loader: ClassVar[OfLoader] = "no"
    """How ``steadytrain preflight`` treats a finding in the rows of a script's loader: as a ``fault``; only as an
    ``oddity`` (small synthetic tasks repeat rows by nature); as about their ``order`` (a fault if the loader does
    not shuffle); ``no``: it skips this check there."""

    def __init__(self, circumstances: Circumstances) -> None:
        self.circumstances = circumstances

    def cannot(self) -> str | None:
        """Why this check does not apply here, apart from columns in ``reads``; None if it does."""
        return None

    def compare_with(self, name: str, parts: Iterable[Part]) -> None:  # noqa: B027 (most checks compare nothing)
        """Gather from the rows of the split called ``name``, before anything else."""

    @abstractmethod
    def look(self, part: Part) -> None:
        """Gather from a part. It has every column in ``reads``."""

    @abstractmethod
    def judge(self) -> Judgement:
        """The result over all rows. Called once, after the last part."""


DATA_CHECKS = Kind(
    "data check",
    DataCheck,
    "steadytrain.checks.data.checks",
    "steadytrain.data_checks",
    attempt=lambda cls: cls(Circumstances()),
)

DATA_CHECK_PAGES = Pages(
    kind=DATA_CHECKS,
    noun="check of data",
    key="data_checks",
    heading="Checks of steadytrain check-data",
    schema="steadytrain.data-check-explanation/1",
    document=("name", "summary", "means", "next", "needs"),
    traits=lambda check: {"needs": check.reads},
    closing=lambda page: ["A check of data: `steadytrain check-data PATH` (docs/check-data.md)"],
    headings=("Means", "Next"),
    flows=True,
    title="Checks of data",
    intro="What `steadytrain check-data` checks (`check-data.md`). `steadytrain explain NAME` prints the same in a "
    "terminal.",
    markdown_closing=lambda page: (
        [f"Reads: {', '.join(f'`{column}`' for column in page.traits['needs'])}."] if page.traits["needs"] else []
    ),
)


@dataclass(frozen=True)
class Options:
    """The user's settings for files that do not describe themselves."""

    dtype: str | None = None
    length: int | None = None


class DataFormat(ABC):
    """The contract of a data format. Subclasses are final and have no state.

    ``suffixes`` are the file name endings that a search in a folder of shards accepts.
    """

    kind: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    whole_folder: ClassVar[bool] = False
    """Whether it reads a folder as one unit, and no single files."""

    @abstractmethod
    def claims(self, path: Path, head: bytes) -> bool:
        """Whether ``path`` has this format. ``head`` is the file's decompressed beginning, empty for a folder."""

    @abstractmethod
    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        """Yield the rows of one file in parts, numbered from 0.

        Raises:
            UsageError: the file cannot be read at all. An unreadable row is a ``Row`` that says so.
        """

    def notes(self, path: Path) -> tuple[str, ...]:
        """Assumptions about the file, in sentences."""
        return ()

    def reads_dtype(self, path: Path) -> bool:
        """Whether ``rows`` looks at ``options.dtype``. Where it does not, ``--dtype`` is refused."""
        return False


DATA_FORMATS = Kind("data format", DataFormat, "steadytrain.checks.data.formats", "steadytrain.data_formats")

DATA_FORMAT_PAGES = Pages(
    kind=DATA_FORMATS,
    noun="format of data",
    key="data_formats",
    heading="Data that steadytrain check-data reads",
    schema="steadytrain.data-format-explanation/1",
    document=("name", "summary", "means", "next", "kind", "suffixes"),
    traits=lambda reading: {"kind": reading.kind, "suffixes": list(reading.suffixes)},
    closing=lambda page: ["A format of data: `steadytrain check-data PATH` (docs/check-data.md)"],
    headings=("Means", "Next"),
    title="Formats of data",
    intro="What `steadytrain check-data` reads (`check-data.md`).",
    columns=("kind",),
)


def graded(share: float, *, warn: float, fail: float) -> Status:
    """The status of a fault in this share of the rows."""
    return "fail" if share >= fail else "warn" if share >= warn else "pass"


def excerpt(text: str) -> str:
    """The beginning of a text as one line, with non-printing characters made visible."""
    cut = text[: EXCERPT_CHARACTERS_MAX + 1]
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)
    return shown if len(shown) <= EXCERPT_CHARACTERS_MAX else shown[: EXCERPT_CHARACTERS_MAX - 3] + "..."


def finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


class Examples:
    """Collects the first few rows that show something."""

    def __init__(self) -> None:
        self.kept: list[Example] = []

    def add(self, part: Part, places: Sequence[int] | IntArray, why: str = "") -> None:
        for place in places[: EXAMPLES_MAX - len(self.kept)]:
            self.kept.append(part.example(int(place), why))
