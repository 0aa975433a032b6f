"""Reads the logs of other tools as windows, one file per format.

A reader judges nothing and prints nothing.
"""

from __future__ import annotations

from steadytrain.logs.reader import Columns, Log, Reader, Tell
from steadytrain.logs.search import Found, find_logs, read_logs

__all__ = ["Columns", "Found", "Log", "Reader", "Tell", "find_logs", "read_logs"]
