"""The contract of a log reader: its inputs and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from steadytrain.core.model import Window
from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind

Tell = Callable[[Path, int, int], None]
"""Progress callback: the file, the bytes read so far, and its size."""

ANY_TEXT, ANY_ROWS, MARKED = 2, 1, 0
"""How general a format is: any text, rows that all look alike, or files with a distinctive mark."""


@dataclass(frozen=True)
class Columns:
    """Column names from the user. None means that the reader guesses."""

    loss: str | None = None
    step: str | None = None
    gradient_norm: str | None = None
    learning_rate: str | None = None


@dataclass(frozen=True)
class Log:
    """One run of a log. ``notes`` say in sentences what was guessed, skipped or left out."""

    name: str
    source: Path
    kind: str
    window: Window
    notes: tuple[str, ...]


class Reader(ABC):
    """The contract of a format. Subclasses are final and have no state.

    ``kind`` is its name. Of the readers that claim a file, the least ``general`` one reads it. ``in_folders`` are file
    name patterns that mark logs of this format in a folder. If ``whole_folder`` is set, nothing inside a claimed folder
    is a log of its own.
    """

    kind: ClassVar[str]
    general: ClassVar[int] = MARKED
    in_folders: ClassVar[tuple[str, ...]] = ()
    whole_folder: ClassVar[bool] = False

    @abstractmethod
    def claims(self, path: Path, head: bytes) -> bool:
        """Whether ``path`` looks like this format. ``head`` is the file's beginning, empty for a folder."""

    @abstractmethod
    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        """Read the runs in ``path``, at least one.

        Raises:
            UsageError: the file cannot be read, or holds no loss.
        """

    def repeated(self, paths: Sequence[Path]) -> frozenset[Path]:
        """Those of ``paths``, all found under one folder, whose content others already contain."""
        return frozenset()


LOG_READERS = Kind("reader", Reader, "steadytrain.logs.formats", "steadytrain.readers")

LOG_READER_PAGES = Pages(
    kind=LOG_READERS,
    noun="reader of logs",
    key="readers",
    heading="Logs that steadytrain analyze reads",
    schema="steadytrain.reader-explanation/1",
    document=("name", "summary", "means", "next", "kind", "in_folders"),
    traits=lambda reader: {"kind": reader.kind, "in_folders": list(reader.in_folders)},
    closing=lambda page: ["A reader of logs: `steadytrain analyze PATH` (docs/analyze.md)"],
    headings=("Means", "Next"),
    title="Logs",
    intro="What `steadytrain analyze` reads (`analyze.md`).",
    columns=("kind",),
)
