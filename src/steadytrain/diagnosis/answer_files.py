"""Files of a diagnosis: the answer, stored beside the incident with a copy in it.

A bundle also gets a copy in a folder of its own, which its manifest does not list: a bundle that is copied elsewhere
has its answer. Not here: what a diagnosis begins with (``case_with_run``).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from steadytrain.core.bounded_files import read_json
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.experiments.outcome_files import result_file, write_result

FILE = "diagnosis.json"
DOCUMENT_BYTES_MAX = 16 << 20


def keep(source: Path, answer: Diagnosis) -> None:
    """Store the answer of a bundle or run. A patch that was tried for the same verdict is kept with it.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    old = read(source)
    if answer.patch is None and old is not None and old.verdict == answer.verdict:
        answer = replace(answer, patch=old.patch)
    write_result(source, FILE, answer.to_json())


def read(source: Path) -> Diagnosis | None:
    """The stored answer, None if there is none or its file is damaged. Of a bundle that was copied, its own copy."""
    path = result_file(source, FILE)
    try:
        return Diagnosis.from_json(read_json(path, bytes_max=DOCUMENT_BYTES_MAX))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
