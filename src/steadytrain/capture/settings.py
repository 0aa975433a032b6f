"""How a run is watched, and when it began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from steadytrain.core.incident import Policy
from steadytrain.core.levels import LEVEL_DEFAULT, LEVELS, Level

STATE_BYTES_MAX_DEFAULT = 4 << 30
REWIND_BYTES_DEFAULT = 4096 * 1_000_000
"""Disk for the tape and the snapshots of a run, while it runs."""


@dataclass(frozen=True)
class Settings:
    """How to watch: ``run_dir`` is made when the first step is seen, not before. ``in_graph``: compiled graphs compute
    what their modules put out (``Activations``). ``continues``: the run that this one goes on from (``earlier_run``).
    ``rewind_bytes_max``: disk for what makes steps replayable, 0 for no such thing; ``keep_rewind``: it stays although
    the run ended well."""

    run_dir: Path
    run_name: str
    policy: Policy = "stop"
    level: Level = LEVELS[LEVEL_DEFAULT]
    state_bytes_max: int = STATE_BYTES_MAX_DEFAULT
    in_graph: bool = False
    continues: Mapping[str, Any] | None = None
    rewind_bytes_max: int = REWIND_BYTES_DEFAULT
    keep_rewind: bool = False
    description: dict[str, Any] = field(default_factory=dict)
    diff: str | None = None


def utc_now() -> str:
    """The time as it stands in every document."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def started_at(settings: Settings) -> float:
    """When the run began, in seconds since the epoch; 0 where its description does not say."""
    started = settings.description.get("started")
    return datetime.fromisoformat(started).timestamp() if isinstance(started, str) else 0.0
