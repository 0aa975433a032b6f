from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers
from steadytrain.guard.setting_jumps import has_jumped, settings_of

if TYPE_CHECKING:
    from steadytrain.guard.live import Live


@final
@dataclass
class HoldSettings(Intervention):
    """Hold momentum, decays of moments and weight decay where they were in the state that the run rolled back to.

    Only those that have jumped since, in the groups in which they have. Each is held until the script itself has set it
    back.
    """

    replayed: ClassVar[bool] = True
    conditional: ClassVar[bool] = True
    _held: dict[tuple[int, str], float] = field(default_factory=dict)

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        for group, then in live.settings_then():
            for name, now in settings_of(group).items():
                if name != "lr" and name in then and has_jumped(name, then[name], now):
                    self._held[id(group), name] = then[name]
                    before[name], after[name] = now, then[name]
        return before, after

    again = apply

    def begins(self, live: Live) -> None:
        for group in live.groups:
            for name, now in settings_of(group).items():
                value = self._held.get((id(group), name))
                if value is not None and has_jumped(name, value, now):
                    _set(live, group, name, value)

    def is_over(self, live: Live) -> bool:
        now = {(id(group), name): value for group in live.groups for name, value in settings_of(group).items()}
        return not any(key in now and has_jumped(key[1], value, now[key]) for key, value in self._held.items())


def _set(live: Live, group: dict[str, Any], name: str, value: float) -> None:
    if name in ("beta1", "beta2"):
        first, second, *rest = group["betas"]
        live.set_group(group, "betas", (value, second, *rest) if name == "beta1" else (first, value, *rest))
    else:
        live.set_group(group, name, value)
