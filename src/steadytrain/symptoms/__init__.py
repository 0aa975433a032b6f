"""One file per symptom detector, found by walking this package.

A detector is a frozen dataclass: its fields are its thresholds, ``needs`` names the signals it reads, and
``check(window)`` is a pure function of the window. It has no memory; history belongs to the window. Its docstring
is its documentation: first sentence, then ``Means``, ``Causes`` and ``Next`` (``steadytrain explain NAME``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from steadytrain.model import Symptom, Window


@dataclass(frozen=True)
class Detector(ABC):
    """The contract of a symptom detector. Subclasses are final."""

    needs: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def check(self, window: Window) -> Symptom | None:
        """The symptom as it stands at the end of ``window``, or None."""
