"""What the ranks of a run disagree on, as sentences. Imports the comparison only for a run of several ranks."""

from __future__ import annotations

from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import RANKS_FOLDER

SENTENCES_MAX = 3


def collective_sentences(run: Path) -> list[str]:
    """What the records of a run's ranks disagree on; none if fewer than two ranks left one."""
    if not (run / RANKS_FOLDER).is_dir():
        return []
    from steadytrain.compare.collectives import compare_records
    from steadytrain.storage.flight_records import read_records

    try:
        records = read_records([run])
    except UsageError:
        return []
    if len(records) < 2:
        return []
    compared = compare_records(records)
    return [one.sentence for one in compared.disagreements[:SENTENCES_MAX]]
