"""What a rank says of the others when the run is over: which ended first, their symptoms, and how they ended."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.storage.rank_endings import UNEVEN, first_end_of, rank_end
from steadytrain.storage.ranks_of_run import launched_ranks, rank_folder, rank_name, recorded_ranks
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.run_news import News, NewsReader

END_S_MAX = 3.0
"""How long the first rank waits for the records of the others: they end within moments of each other."""

RANKS_MAX = 64
LINES_MAX = 8
_PAUSE_S = 0.05
UNEVEN_RANKS = "uneven-ranks"
"""The symptom that names the rank with fewer steps already."""


def of_other_ranks(run_dir: Path, own: Collection[str]) -> list[str]:
    """The rank that ended first, and a line for each with a symptom that is not one of ``own``, or that did not finish;
    none for one process."""
    known = {*range(1, launched_ranks()), *recorded_ranks(run_dir)}
    folders = [rank_folder(run_dir, rank) for rank in sorted(known)[: RANKS_MAX - 1]]
    readers = {folder: NewsReader(folder) for folder in folders if (folder / RUN_FILE).is_file()}
    until = time.monotonic() + END_S_MAX
    news: dict[Path, News] = {}
    while readers:
        for folder, reader in list(readers.items()):
            try:
                news[folder] = reader.read()
            except UsageError:
                del readers[folder]
                continue
            over = "ended" in news[folder].facts or rank_end(folder, 1).is_bad
            if over or time.monotonic() > until:
                del readers[folder]
        time.sleep(_PAUSE_S if readers else 0.0)
    first = first_end_of(run_dir)
    lines = [first.sentence] if first is not None and not (first.kind == UNEVEN and UNEVEN_RANKS in own) else []
    known_ends = () if first is None else [first.end.rank, *(one.rank for one in first.others if one.is_bad)]
    for folder in (one for one in folders if one in news):
        named = folder in [rank_folder(run_dir, rank) for rank in known_ends]
        lines += _lines(rank_name(folder), news[folder], own, named=named)
    return [*lines[:LINES_MAX], f"and {len(lines) - LINES_MAX} more ranks"] if len(lines) > LINES_MAX else lines


def _lines(name: str, news: News, own: Collection[str], *, named: bool) -> Iterator[str]:
    """``named``: that how it ended is reported already."""
    found = dict.fromkeys(
        f"{one.name} ({one.severity})" for one in news.symptoms if one.severity != "note" and one.name not in own
    )
    ended = news.facts.get("ended")
    parts = [f"symptoms: {', '.join(found)}"] if found else []
    if ended and ended != "finished" and not named:
        parts.append(f"it {ended}")
    if parts:
        yield f"{name}: {'; '.join(parts)}"
