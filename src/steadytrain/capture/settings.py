"""How a run is watched, and when it began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from steadytrain.capture.step.pacing import Pace
from steadytrain.capture.step.steering import Steering
from steadytrain.core.incident import MAX_SKIPS_DEFAULT, Policy
from steadytrain.core.levels import LEVEL_DEFAULT, LEVELS, Level

STATE_BYTES_MAX_DEFAULT = 4 << 30
REWIND_BYTES_DEFAULT = 4096 * 1_000_000
"""Disk space for the tape and the snapshots of a run, while it runs."""


CHECKPOINT_BYTES_DEFAULT = 4096 * 1_000_000
"""Disk space for the last good checkpoints of the script, once it has removed them itself."""


@dataclass(frozen=True)
class Settings:
    """How to watch. ``run_dir`` is written at the first step, not before. ``shares_folder``: a launcher told the ranks
    of the run to share it. ``made_folder``: this process made it. ``in_graph``: compiled graphs measure the
    outputs of their modules (``Activations``). ``continues``: the run that this run continues (``earlier_run``).
    ``rewind_bytes_max``: disk space for tape and snapshots, 0 for neither. ``keep_rewind``: keep them although the run
    ended well. ``checkpoint_bytes_max``: disk space for pinned checkpoints, 0 for none. ``max_skips``: how many
    updates in a row the policy ``skip`` skips. ``steering`` decides about updates; None: only ``policy`` does.
    ``pace``: when a long run of short steps rests, None for never."""

    run_dir: Path
    run_name: str
    policy: Policy = "stop"
    max_skips: int = MAX_SKIPS_DEFAULT
    level: Level = LEVELS[LEVEL_DEFAULT]
    state_bytes_max: int = STATE_BYTES_MAX_DEFAULT
    in_graph: bool = False
    continues: Mapping[str, Any] | None = None
    rewind_bytes_max: int = REWIND_BYTES_DEFAULT
    keep_rewind: bool = False
    checkpoint_bytes_max: int = CHECKPOINT_BYTES_DEFAULT
    steering: Steering | None = None
    pace: Pace | None = field(default_factory=Pace)
    description: dict[str, Any] = field(default_factory=dict)
    diff: str | None = None
    shares_folder: bool = True
    made_folder: bool = False
    joined: bool = False
    """Whether this process joined the run of another one, which reports for both."""

    def move_to(self, run_dir: Path) -> None:
        """Record in ``run_dir``, the folder of another process of the same run. Call it before anything is written."""
        object.__setattr__(self, "run_dir", run_dir)
        object.__setattr__(self, "run_name", run_dir.name)
        object.__setattr__(self, "shares_folder", True)
        object.__setattr__(self, "joined", True)
        self.description["name"] = run_dir.name


def utc_now() -> str:
    """The current time in the format of all documents: ISO 8601, UTC, whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def started_at(settings: Settings) -> float:
    """When the run began, in seconds since the epoch; 0 if its description does not have the time."""
    started = settings.description.get("started")
    return datetime.fromisoformat(started).timestamp() if isinstance(started, str) else 0.0
