"""The answer on disk, beside the incident and never in it. The one file of this package that knows files."""

from __future__ import annotations

import json
from pathlib import Path

from steadytrain.diagnosing.model import Answer
from steadytrain.store.bundle import write_json
from steadytrain.trials.store import trials_folder

FILE = "diagnosis.json"
DOCUMENT_BYTES_MAX = 16 << 20


def keep(source: Path, answer: Answer) -> None:
    """Store the answer of a bundle or run.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    folder = trials_folder(source)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, answer.to_json())


def read(source: Path) -> Answer | None:
    """The stored answer, None where there is none or its file is damaged."""
    path = trials_folder(source) / FILE
    try:
        if path.stat().st_size > DOCUMENT_BYTES_MAX:
            return None
        return Answer.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
