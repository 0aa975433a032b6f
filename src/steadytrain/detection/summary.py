"""What is said when a watched script is over. Plain words; silence is never called health."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.grouping.stories import Story
from steadytrain.storage.run_folder import RUN_FILE

if TYPE_CHECKING:
    from steadytrain.capture.step.watcher import Watcher


NAMES_MAX = 6
STORIES_MAX = 4


def summary(watcher: Watcher | None, run_dir: Path) -> list[str]:
    """A few lines: number of steps, symptoms (as stories if more than one), and the run folder."""
    recorded = (run_dir / RUN_FILE).is_file()
    look = f"steadytrain show {shlex.quote(str(run_dir))}"
    if watcher is None or not watcher.streams:
        if recorded and (watcher is None or not watcher.has_folder):
            return [f"recorded by the processes that the script started; look: {look}"]
        return [_nothing_seen(watcher)]
    if watcher.stopped is not None:
        return []
    steps = max(stream.own_steps for stream in watcher.streams)
    raised = list(dict.fromkeys(symptom.name for symptom in watcher.symptoms))
    seen = f"{steps} steps seen"
    told = _told(watcher.stories) if len(watcher.symptoms) > 1 else []
    if raised:
        verdict = f"symptoms: {', '.join(raised)}"
    else:
        names = watcher.detector_names
        which = ", ".join(names) if 0 < len(names) <= NAMES_MAX else f"{len(names) or 'no'} detectors"
        verdict = f"no symptom from {which} (everything it checks for)"
    lines = [f"{seen}; {verdict}", *told]
    if recorded:
        lines.append(f"look: {look}")
    return lines


def _told(stories: Sequence[Story]) -> list[str]:
    """The stories above a note in the order in which they came."""
    grave = [story for story in stories if story.severity != "note"]
    lines = [f"{story.severity}: {story.text}" for story in grave[:STORIES_MAX]]
    return [*lines, f"and {len(grave) - STORIES_MAX} more stories"] if len(grave) > STORIES_MAX else lines


def _nothing_seen(watcher: Watcher | None) -> str:
    if watcher is None:
        reason = (
            "the script never imported torch" if "torch" not in sys.modules else "torch was there, the watch was not"
        )
    elif watcher.backward_calls:
        reason = (
            f"{watcher.backward_calls} backward passes and no torch.optim optimizer step: the weights are updated by "
            "hand (or inside compiled code)"
        )
    else:
        reason = "torch was imported, but no backward pass and no optimizer step was seen"
    return f"no PyTorch training was seen: {reason}; nothing was recorded or guarded"
