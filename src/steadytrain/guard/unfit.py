"""Why an intervention cannot be made with the optimizers and scalers of a training, as far as they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadytrain.guard.live import Live

NO_SETTING = "{optimizer} has no {setting} to change"
NO_SCALER = "the training has no gradient scaler"


def no_setting(live: Live, what: str, *names: str) -> str | None:
    """No group of the optimizers has one of the settings ``names``. None while no optimizer is known."""
    groups = list(live.groups)
    if not groups or any(group.get(name) for group in groups for name in names):
        return None
    kinds = " and ".join(dict.fromkeys(type(one).__name__ for one in live.optimizers))
    return NO_SETTING.format(optimizer=kinds, setting=what)


def no_scaler(live: Live) -> str | None:
    """No gradient scaler has scaled a loss. None before the first step, when none can have."""
    if live.stream is None or any(scaler.is_enabled() for scaler in live.scalers.values()):
        return None
    return NO_SCALER
