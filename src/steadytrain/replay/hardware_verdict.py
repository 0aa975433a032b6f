"""Whether a device computes wrong: judged by replays of the same steps on several devices. Pure, torch-free.

Devices of one kind give the same bits for the same steps. So a device whose replays differ from those of all others is
at fault, whichever of them the recording agrees with: a *persistent* fault. If all devices agree with each other and
not with the recording, the recorded run computed something once: a *transient* fault, or a value that was not recorded.
If all repeat the recording, hardware is not the cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steadytrain.core.json_values import JsonValue
from steadytrain.experiments.device_facts import PERSISTENT
from steadytrain.replay.devices import OPTION, Device
from steadytrain.replay.verdict import Difference, Judgement, Replayed, came_to, differ, earliest


@dataclass(frozen=True)
class OnDevice(JsonValue):
    """The replays on one device. ``suspect``: whether it is the one that computes wrong."""

    name: str
    model: str
    serial: str | None
    slot: str | None
    replays: int
    exact: bool
    repeats: bool
    """Whether its replays gave the same bits."""

    symptom: bool | None
    first_difference: Difference | None
    suspect: bool = False

    @classmethod
    def of(cls, device: Device, replays: Sequence[Replayed], *, looked_for: bool, suspect: bool) -> OnDevice:
        """What ``replays`` on ``device`` showed. ``looked_for``: whether they reach the step of the symptom."""
        return cls(
            device.name,
            device.model,
            device.serial,
            device.slot,
            len(replays),
            all(one.exact for one in replays),
            not differ(replays),
            any(one.symptom for one in replays) if looked_for else None,
            earliest(replays),
            suspect,
        )


Replays = Mapping[str, Sequence[Replayed]]
"""The replays by the name of their device."""


def judge_devices(replays: Replays, changed: Sequence[str]) -> tuple[Judgement, tuple[str, ...]]:
    """The judgement, and the names of the devices that compute wrong.

    ``changed``: what differs between the recorded environment and that of the replays.
    """
    unsteady = tuple(name for name, ones in replays.items() if differ(ones))
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, ones in replays.items():
        if name not in unsteady:
            groups[came_to(ones[0])].append(name)
    if unsteady:
        return _of_unsteady(unsteady, list(groups.values()), tuple(changed))
    if len(groups) == 1:
        return _of_agreeing(replays, tuple(changed)), ()
    suspects, why = _odd_ones(sorted(groups.values(), key=len), replays)
    if suspects:
        return _persistent(suspects, why, tuple(changed)), suspects
    return Judgement("unknown", why, changed=tuple(changed)), ()


def _of_unsteady(
    unsteady: tuple[str, ...], steady: Sequence[Sequence[str]], changed: tuple[str, ...]
) -> tuple[Judgement, tuple[str, ...]]:
    if len(steady) == 1 and len(unsteady) < len(steady[0]):
        others = f"those on the other {len(steady[0])} agree"
        why = f"the replays on {_listed(unsteady)} differ from each other, and {others}"
        return _persistent(unsteady, why, changed), unsteady
    why = f"replays on the same device ({_listed(unsteady)}) differ: without {OPTION}, replay names the operation"
    return Judgement("unknown", why, changed=changed), ()


def _persistent(suspects: Sequence[str], why: str, changed: tuple[str, ...]) -> Judgement:
    switch = f"take {_listed(suspects)} out of service, and continue from the last snapshot on another device"
    return Judgement(PERSISTENT, why, switch=switch, changed=changed)


def _of_agreeing(replays: Replays, changed: tuple[str, ...]) -> Judgement:
    devices = "both devices" if len(replays) == 2 else f"all {len(replays)} devices"
    if all(one.exact for ones in replays.values() for one in ones):
        return Judgement(None, f"{devices} repeat the recording to the last bit: hardware is not the cause")
    agree = f"{devices} agree with each other to the last bit, but not with the recording"
    if changed:
        return Judgement("environment-changed", f"{agree}: something changed since", changed=changed)
    return Judgement("transient", f"{agree}: the machine computed something wrong once, or a value was not recorded")


def _odd_ones(groups: Sequence[Sequence[str]], replays: Replays) -> tuple[tuple[str, ...], str]:
    """Of devices that do not agree the ones at fault, and why; none if it is undecided."""
    most, others = groups[-1], [name for group in groups[:-1] for name in group]
    if len(most) > len(others):
        same = "repeats" if all(one.exact for one in replays[others[0]]) else "differs from"
        return tuple(others), f"{_listed(others)} {same} the recording; the other {len(most)} agree on other bits"
    sick = [name for name, ones in replays.items() if any(one.symptom for one in ones)]
    if sick and len(sick) < len(replays) and sick in [list(group) for group in groups]:
        return tuple(sick), f"the symptom comes on {_listed(sick)} alone, with other bits than elsewhere"
    return (), "the devices give other bits, and no majority of them agrees; another device would decide"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
