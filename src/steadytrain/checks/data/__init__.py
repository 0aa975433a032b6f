"""Checks of training data by itself, before any training: streaming, in bounded memory, and without torch.

``look_at`` (``data_pass``) reads a source once and hands its rows, some thousand at a time, to every check. A check is
one file in ``checks`` and a format one in ``formats``; both are found by being there, and ``contract`` says what they
are held to. Beside them stand what they share: ``opening`` (files of a path, an object of a module), ``columns`` (which
field is the text), ``parts`` (rows as columns), ``tokenizing``, ``seen`` (a table of digests that never grows) and
``spread`` (a distribution in a fixed number of bins).

Not here: anything that needs the model. That is ``steadytrain.checks.model``, which shares these checks for what a
loader gives.
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
