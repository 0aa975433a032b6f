"""Checks of training data: streaming, in bounded memory, without torch.

Checks that need a model are in ``checks.model``.

``look_at`` (``data_pass``) reads a source once and passes its rows, in parts of some thousand, to every check.
"""

from __future__ import annotations

from steadytrain.checks.data.data_check import DataCheck, DataFormat, Example, Finding, Row
from steadytrain.checks.data.data_pass import Report, look_at
from steadytrain.checks.data.sources import Source, Wanted, open_source

__all__ = [
    "DataCheck",
    "DataFormat",
    "Example",
    "Finding",
    "Report",
    "Row",
    "Source",
    "Wanted",
    "look_at",
    "open_source",
]
