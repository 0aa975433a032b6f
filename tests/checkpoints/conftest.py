"""The fixture of these tests: a run that has saved checkpoints."""

from __future__ import annotations

from checkpoint_runs import home

__all__ = ["home"]
