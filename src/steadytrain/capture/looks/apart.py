"""Calls looks apart from each other: one that fails is reported, and left out from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

PLACE = "looking at what the script does"

T = TypeVar("T")


class Apart:
    """Reports each look that fails to ``report``, once."""

    def __init__(self, report: Callable[[str, Exception], None]) -> None:
        self._report = report
        self._failed: set[str] = set()

    def __call__(
        self, look: Callable[..., Iterable[tuple[str, float]] | Mapping[str, float]], *arguments: Any, **options: Any
    ) -> dict[str, float]:
        """The rows of ``look``; none if it failed, now or before."""
        if self._failed and look.__qualname__ in self._failed:
            return {}
        try:
            return dict(look(*arguments, **options))
        except Exception as error:
            self._fails(look.__qualname__, error)
            return {}

    def call(self, look: Callable[..., T], *arguments: Any) -> T | None:
        """What ``look`` returns; None if it failed, now or before."""
        if self._failed and look.__qualname__ in self._failed:
            return None
        try:
            return look(*arguments)
        except Exception as error:
            self._fails(look.__qualname__, error)
            return None

    def _fails(self, name: str, error: Exception) -> None:
        self._failed.add(name)
        self._report(PLACE if len(self._failed) == 1 else f"{PLACE} ({name})", error)
