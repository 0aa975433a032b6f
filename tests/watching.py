"""Training loops watched in the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import steadytrain
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.incident import Policy
from steadytrain.detection.run_recorder import recording
from steadytrain.grouping.catalog import detectors
from steadytrain.tracing.investigator import StepInvestigator


@contextmanager
def watching(run_dir: Path, policy: Policy) -> Iterator[Watcher]:
    """Watch what trains inside the block with a watcher that is put together as ``steadytrain run`` does it."""
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


@contextmanager
def stopping(model: Any, optimizer: Any, runs_dir: Path, **how: Any) -> Iterator[None]:
    """Watch the loop in this block as ``run``, and see to it that it is stopped."""
    with (
        pytest.raises(steadytrain.RunStopped),
        steadytrain.watch(model, optimizer, runs_dir=runs_dir, name="run", **how),
    ):
        yield
