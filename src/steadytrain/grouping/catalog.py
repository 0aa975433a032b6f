"""Every detector that can be used, and the name of each."""

from __future__ import annotations

from steadytrain.core.plugins import Broken, kebab
from steadytrain.detectors import DETECTORS, Detector


def detectors() -> tuple[Detector, ...]:
    """Every usable detector with its default thresholds: the shipped ones by name, then those of other packages."""
    return tuple(cls() for cls in DETECTORS.classes())


def broken() -> tuple[Broken, ...]:
    """The detectors of other packages that :func:`detectors` left out."""
    return DETECTORS.broken()


def detector_name(cls: type[Detector]) -> str:
    """The kebab name that every place derives: ``LossSpike`` is ``loss-spike`` in ``detectors/loss_spike.py``."""
    return kebab(cls)
