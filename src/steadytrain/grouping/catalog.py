"""Every usable detector, and its name."""

from __future__ import annotations

from functools import lru_cache

from steadytrain.core.model import Symptom
from steadytrain.core.plugins import Broken, kebab
from steadytrain.detectors import DETECTORS, Detector

NAMES_MAX = 1024
"""Names of symptoms whose detectors are remembered. A file of a stranger may hold any number."""


def detectors() -> tuple[Detector, ...]:
    """The run detectors with their default thresholds: the shipped ones by name, then those of other packages."""
    return tuple(detector for detector in log_detectors() if not detector.of_logs)


def log_detectors() -> tuple[Detector, ...]:
    """Like :func:`detectors`, plus the detectors that judge whole logs only."""
    return tuple(cls() for cls in DETECTORS.classes())


def broken() -> tuple[Broken, ...]:
    """The detectors of other packages that :func:`detectors` left out."""
    return DETECTORS.broken()


def declared(name: str) -> type[Detector]:
    """The detector class of the symptom called ``name``, for its traits. Unknown names get the contract's defaults.

    Only its own file is imported: `show` asks about a few of more than a hundred.
    """
    return _named(name)


def is_nonfinite(symptom: Symptom) -> bool:
    """Whether the symptom is about non-finite values."""
    return declared(symptom.name).nonfinite_rank is not None


def spoils_weights(symptom: Symptom) -> bool:
    """Whether weights that were saved during the symptom are not to be trusted."""
    return declared(symptom.name).spoils_weights and symptom.severity != "note"


def needed_tables(name: str) -> set[str]:
    """The signals and tables that the detector called ``name`` reads: ``ranks`` of ``ranks.value``."""
    return {need.partition(".")[0] for need in declared(name).needs}


@lru_cache(maxsize=NAMES_MAX)
def _named(name: str) -> type[Detector]:
    try:
        return DETECTORS.one(name)
    except LookupError:
        return Detector


def detector_name(cls: type[Detector]) -> str:
    """The kebab name used everywhere: ``LossSpike`` in ``detectors/loss_spike.py`` is ``loss-spike``."""
    return kebab(cls)
