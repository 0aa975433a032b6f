"""The fixtures of the tests of retention: both formats of a compacted table, and small segments."""

from __future__ import annotations

from retained_tables import form, small

__all__ = ["form", "small"]
