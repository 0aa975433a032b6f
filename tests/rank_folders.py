"""Folders of the ranks of one run, each of which ended in its own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders
from steadytrain.storage.processes import process_mark
from steadytrain.storage.ranks_of_run import rank_folder

GONE = f"{process_mark().rpartition('-')[0]}-99999999"
STACK = """Stack (most recent call first):
  File "/home/me/steadytrain/capture/step/ranks.py", line 187 in _greatest
  File "/site-packages/torch/optim/optimizer.py", line 520 in wrapper
  File "/home/me/steadytrain/examples/train.py", line 35 in <module>
  File "<frozen runpy>", line 198 in _run_module_as_main
"""
PEER = "ended by RuntimeError in step {} at train.py:25: [gloo/transport/tcp/pair.cc:553] Connection closed by peer"
FINISHED, SIGNALLED, VANISHED = "finished", "signalled", "vanished"


def rank(run: Path, number: int, how: str, steps: int) -> None:
    """The folder of a rank. ``how`` is one of the constants above, or the error that ended it."""
    facts: dict[str, Any] = {"ended": "finished"} if how == FINISHED else {}
    if how not in (FINISHED, SIGNALLED, VANISHED):
        facts = {"ended": "failed", "failure": how}
    folder = rank_folder(run, number)
    described = {"rank": number, "world_size": 4, "process": GONE, "process_start": 1}
    builders.write_run(folder, steps=builders.records(steps), facts=facts, **described)
    if how == SIGNALLED:
        (folder / "signals").mkdir()
        (folder / "signals" / "SIGTERM-ends.txt").write_text(STACK)


def run_of(folder: Path, *ranks: tuple[str, int]) -> Path:
    for number, (how, steps) in enumerate(ranks):
        rank(folder, number, how, steps)
    return folder
