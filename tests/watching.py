"""A watcher in the test's own process, put together as ``steadytrain run`` does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steadytrain.capture.settings import Settings
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.incident import Policy
from steadytrain.detection.run_recorder import recording
from steadytrain.grouping.catalog import detectors
from steadytrain.tracing.investigator import StepInvestigator


@contextmanager
def watching(run_dir: Path, policy: Policy) -> Iterator[Watcher]:
    """Watch what trains inside the block."""
    watcher = Watcher(
        Settings(run_dir=run_dir, run_name=run_dir.name, policy=policy),
        tell=lambda text: None,
        record=recording(detectors()),
        investigator=StepInvestigator(),
    )
    try:
        yield watcher
    finally:
        watcher.close(ended="finished")
