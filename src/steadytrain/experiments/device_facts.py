"""What replays on several devices showed (``steadytrain replay --devices``), as a result and as a fact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from steadytrain.experiments.command_results import CommandResult, results_of

COMMAND = "replay --devices"
PERSISTENT: Final = "persistent-device"
REPEATED = "repeated"
"""The effect of replays that all devices made to the last bit."""


def result_of_devices(document: Mapping[str, Any]) -> CommandResult:
    """The ``steadytrain.replay/1`` document of such replays in one line, with the devices that compute wrong."""
    suspects = [one for one in document["devices"] if one["suspect"]]
    what = "; ".join(map(_which, suspects)) + ": " if suspects else ""
    return CommandResult(COMMAND, True, what + str(document["why"]), document["kind"] or REPEATED)


def facts_of_devices(source: Path) -> dict[str, Any]:
    """``faulty_device``, where replays of this bundle or run found one."""
    result = results_of(source).get(COMMAND)
    return {"faulty_device": result.what} if result is not None and result.effect == PERSISTENT else {}


def _which(device: Mapping[str, Any]) -> str:
    known = (device["model"], device["serial"] and f"serial {device['serial']}", device["slot"])
    which = ", ".join(str(text) for text in known if text)
    return f"{device['name']} ({which})" if which else str(device["name"])
