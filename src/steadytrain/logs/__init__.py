"""Reads the logs of other tools as windows, so that the detectors can look at them.

``read_logs`` finds out what a file or a folder is and reads it. A format is one file in ``formats`` (its contract is
``contract.Reader``), found by walking that package. What formats share stands beside it: ``files`` (text of any
encoding, a part at a time), ``numerals`` (what people write for a number), ``names`` (which column is the loss),
``rows`` (columns of numbers, bounded), ``runs`` (rows to runs and windows).

Nothing here imports torch, judges a run, or prints.
"""

from __future__ import annotations

from steadytrain.logs.reader import Columns, Log, Reader, Tell
from steadytrain.logs.search import Found, find_logs, read_logs

__all__ = ["Columns", "Found", "Log", "Reader", "Tell", "find_logs", "read_logs"]
