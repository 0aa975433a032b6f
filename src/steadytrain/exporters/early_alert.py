"""Alerts of a script that is killed before its first step, while no exporter of its run is open yet.

A process of alerts waits from the start of the script on. It is dismissed when the run opens its own exporters, or when
the script ends by itself. If its pipe closes before, the script was killed, and it alerts that the run was lost.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any

from steadytrain.exporters.alerts.settings import AlertSettings
from steadytrain.exporters.exporter import Run
from steadytrain.exporters.exporter_process import EARLY_ALERTS, ChildExporter
from steadytrain.exporters.exporter_queue import Tell
from steadytrain.storage.redaction import redact_tree

_waiting: ChildExporter | None = None
_owner = 0


def begin(folder: Path, run: dict[str, Any], alerts: AlertSettings, tell: Tell) -> None:
    """Start to wait, if anything is to be alerted. ``run`` is the description of the run."""
    global _waiting, _owner
    if alerts.wanted and _waiting is None:
        waiting = ChildExporter(EARLY_ALERTS, tell, alerts.to_json())
        waiting.open(Run(str(run.get("name") or folder.name), str(folder), redact_tree(dict(run))))
        _waiting, _owner = waiting, os.getpid()
        atexit.register(dismiss)


def dismiss() -> None:
    """The run alerts by itself from here on, or needs no alert."""
    global _waiting
    if _owner != os.getpid():
        forget()
    waiting, _waiting = _waiting, None
    if waiting is not None:
        waiting.dismiss()


def forget() -> None:
    """In a forked child: the process belongs to its parent."""
    global _waiting
    waiting, _waiting = _waiting, None
    if waiting is not None:
        waiting.forget()
