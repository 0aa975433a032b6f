"""What the rules of a watch read in the source of the running script, before any step has been made."""

from __future__ import annotations

import numpy as np

from steadytrain.capture.looks.script_reading import reading_rows
from steadytrain.core.model import SEVERITIES, Table, Window
from steadytrain.detectors import ScriptRule
from steadytrain.grouping.catalog import detectors


def mistakes_read() -> list[dict[str, str]]:
    """``name`` of the symptom, ``severity`` and ``message`` of each mistake, the gravest first."""
    rows = dict(reading_rows())
    if not rows:
        return []
    values = np.array([[[value] for value in rows.values()]], np.float32)
    table = Table("script", np.ones(1, np.int64), np.zeros(1), tuple(rows), ("value",), values)
    none = np.zeros(1, np.bool_)
    window = Window(np.ones(1, np.int64), np.zeros(1), {}, {}, none, none, tables={"script": table})
    rules = [one for one in detectors() if isinstance(one, ScriptRule)]
    found = [symptom for rule in rules for symptom in rule.check(window)]
    found.sort(key=lambda one: -SEVERITIES.index(one.severity))
    return [{"name": one.name, "severity": one.severity, "message": one.message} for one in found]
