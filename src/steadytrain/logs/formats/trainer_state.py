"""``trainer_state.json`` of Hugging Face's Trainer (and of TRL, LLaMA-Factory, ms-swift, Axolotl, which build on it).

Its ``log_history`` holds a row for each logging step and evaluation, and a last row that summarizes the training. A
loss of 0.0 with a gradient norm of NaN is kept as logged: the detectors recognize it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.logs.column_names import name_of
from steadytrain.logs.json_rows import RowList, flat
from steadytrain.logs.log_rows import Column, Rows, RowsBuilder
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.numerals import counted
from steadytrain.logs.reader import Columns, Log, Reader, Tell
from steadytrain.logs.text_files import document_text, text_of

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_PLANNED = re.compile(r'"max_steps"\s*:\s*(\d{1,15})\b')


@final
class TrainerState(Reader):
    """The file ``trainer_state.json`` of Hugging Face's Trainer and of trainers built on it."""

    kind = "trainer-state"
    in_folders: ClassVar[tuple[str, ...]] = ("trainer_state.json",)

    def claims(self, path: Path, head: bytes) -> bool:
        if not head.lstrip().startswith(b"{"):
            return False
        return path.name == "trainer_state.json" or '"log_history"' in text_of(head)

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        text = document_text(path)
        begin = _HISTORY.search(text)
        if begin is None:
            raise UsageError(f"{path}: {_why_no_rows(text)}")
        history, builder = RowList(text, begin.end()), RowsBuilder()
        for entry in history:
            # The summary of the training is not a step.
            builder.add({} if "train_runtime" in entry else flat(entry))
        if not builder.seen:
            raise UsageError(f"{path}: {_why_no_rows(text)}")
        cut = f"The file is cut off or damaged; its first {counted(builder.seen, 'row')} were read."
        rows = builder.build(*([] if history.is_whole else [cut]))
        planned = _PLANNED.search(text, history.place) or _PLANNED.search(text, 0, begin.start())
        if planned and int(planned[1]) and rows.columns and "max_steps" not in rows.columns:
            rows = replace(rows, columns={**rows.columns, "max_steps": _in_last_row(rows, int(planned[1]))})
        parent = path.absolute().parent
        name = f"{parent.parent.name}/{parent.name}" if _CHECKPOINT.fullmatch(parent.name) else name_of(path)
        return logs_of(rows, columns, path=path, kind=self.kind, name=name)

    def repeated(self, paths: Sequence[Path]) -> frozenset[Path]:
        """Every checkpoint holds the history so far, so a run's newest one suffices, or the run's own file."""
        newest: dict[Path, tuple[int, Path]] = {}
        own = {path.parent for path in paths if not _CHECKPOINT.fullmatch(path.parent.name)}
        for path in paths:
            match = _CHECKPOINT.fullmatch(path.parent.name)
            if match:
                newest[path.parent.parent] = max(newest.get(path.parent.parent, (-1, path)), (int(match[1]), path))
        kept = {path for run, (_, path) in newest.items() if run not in own}
        return frozenset(path for path in paths if _CHECKPOINT.fullmatch(path.parent.name) and path not in kept)


def _why_no_rows(text: str) -> str:
    """Why the ``log_history`` of ``text`` has no row."""
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"truncated or not JSON ({error}); an older checkpoint's file may be complete"
    if isinstance(state, dict) and state.get("log_history") == []:
        return "its log_history is empty; nothing had been logged yet"
    return "it has no log_history; a trainer_state.json of Hugging Face's Trainer does"


def _in_last_row(rows: Rows, value: float) -> Column:
    return Column(np.array([rows.count - 1], np.int64), np.array([float(value)]))
