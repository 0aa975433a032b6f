"""What a diagnosis is doing now, for a reader in another process: one small file beside its trials while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steadytrain.core.bounded_files import read_json
from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.experiments.specs import Verdict
from steadytrain.storage.bundle import write_json
from steadytrain.storage.processes import process_mark, process_start, state_of

FILE = "progress.json"
PROGRESS_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class Going:
    """A diagnosis that is running: what it does now, and its verdicts so far."""

    doing: str
    verdicts: tuple[Verdict, ...]


class Progress:
    """Writes what a diagnosis of ``source`` is doing. A disk that takes no file ends no diagnosis."""

    def __init__(self, source: Path) -> None:
        self._file = trials_folder(source) / FILE
        self._verdicts: tuple[Verdict, ...] = ()

    def doing(self, what: str) -> None:
        document = {
            "process": process_mark(),
            "process_start": process_start(),
            "doing": what,
            "verdicts": [verdict.to_json() for verdict in self._verdicts],
        }
        with suppress(OSError, ValueError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file, document)

    def judged(self, verdicts: Iterable[Verdict]) -> None:
        self._verdicts = tuple(verdicts)
        self.doing("choosing the next trials")

    def ended(self) -> None:
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


def going_on(source: Path) -> Going | None:
    """The diagnosis of a bundle or run that is running now on this machine. None if there is none, or it was killed."""
    try:
        read = read_json(trials_folder(source) / FILE, bytes_max=PROGRESS_BYTES_MAX)
        if state_of(read["process"], read["process_start"]) != "running":
            return None
        return Going(str(read["doing"]), tuple(Verdict.from_json(one) for one in read["verdicts"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
