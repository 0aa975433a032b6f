"""Notes of the signals that came during a run: a file for each in ``signals/``, a traceback by faulthandler.

The file says by its name whether the signal ended the process, as it does where the script has no handler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from steadytrain.core.own_errors import unless_it_fails

FOLDER = "signals"
NOTES_MAX = 16
NOTE_BYTES_MAX = 1 << 16
_NAME = re.compile(r"(SIG[A-Z0-9]{1,12})(-ends)?\.txt")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in ', re.M)
_OURS = (
    "__main__.py",
    "__init__.py",
    *(f"{room}/" for room in ("attach", "capture", "cli", "core", "detection", "detectors", "exporters", "grouping")),
    *(f"{room}/" for room in ("guard", "integrations", "onset", "preflight_runs", "replay", "statistics", "storage")),
    *(f"{room}/" for room in ("survey", "tracing", "trial_runs")),
)
"""Of this package, what runs inside a training: a script may lie below a folder of its name."""

_LIBRARY = re.compile(
    rf"/(site|dist)-packages/|/lib/python\d|/steadytrain/({'|'.join(map(re.escape, _OURS))})|<(?!string|stdin)"
)


@dataclass(frozen=True)
class SignalNote:
    """A signal that came last at ``time`` (seconds since the epoch). ``place`` is ``file:line`` of the script, empty if
    none of its lines ran then."""

    signal: str
    ended: bool
    time: float
    place: str

    @property
    def when(self) -> str:
        return datetime.fromtimestamp(self.time, timezone.utc).isoformat(timespec="seconds")


def note_name(signal: str, *, ends: bool) -> str:
    return f"{signal}{'-ends' if ends else ''}.txt"


def signals_of(run: Path) -> tuple[SignalNote, ...]:
    """The signals that came during the run, the last one last."""
    found = []
    with unless_it_fails(OSError):
        for path in sorted((run / FOLDER).iterdir())[:NOTES_MAX]:
            named = _NAME.fullmatch(path.name)
            if named is None or path.is_symlink() or not path.is_file() or not (size := path.stat().st_size):
                continue
            with path.open("rb") as file:
                file.seek(max(0, size - NOTE_BYTES_MAX))
                text = file.read(NOTE_BYTES_MAX).decode("utf-8", errors="replace")
            found.append(SignalNote(named[1], named[2] is not None, path.stat().st_mtime, _place(text)))
    return tuple(sorted(found, key=lambda note: note.time))


def ended_by(run: Path) -> SignalNote | None:
    """The signal that ended the process of the run, None if none is noted."""
    return next((note for note in reversed(signals_of(run)) if note.ended), None)


def _place(text: str) -> str:
    """Where the script was when the last signal came: its innermost own line."""
    last = text.rpartition("(most recent call first)")[2]
    frames = [(match["file"], match["line"]) for match in _FRAME.finditer(last)]
    file, line = next((frame for frame in frames if not _LIBRARY.search(frame[0])), ("", ""))
    return f"{Path(file).name}:{line}" if file else ""
