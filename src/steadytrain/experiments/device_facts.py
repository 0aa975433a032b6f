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
    names = [f"{one['name']} ({which})" if (which := described(one)) else str(one["name"]) for one in suspects]
    what = "; ".join(names) + ": " if names else ""
    return CommandResult(COMMAND, True, what + str(document["why"]), document["kind"] or REPEATED)


def facts_of_devices(source: Path) -> dict[str, Any]:
    """``faulty_device``, where replays of this bundle or run found one."""
    result = results_of(source).get(COMMAND)
    return {"faulty_device": result.what} if result is not None and result.effect == PERSISTENT else {}


def described(device: Mapping[str, Any]) -> str:
    """Model, serial number and slot of a device of the document, as far as they are known."""
    known = (device["model"], device["serial"] and f"serial {device['serial']}", device["slot"])
    return ", ".join(str(text) for text in known if text)
