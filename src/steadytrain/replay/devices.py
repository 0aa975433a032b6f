"""The devices of this machine on which recorded steps can run again: its GPUs of the recorded kind, or its cores.

Torch-free. A GPU becomes the only one that the launched script sees (``CUDA_VISIBLE_DEVICES``), so a script needs no
change. Cores are given to the launched process by its affinity, with as many threads of OpenMP as the recorded run had:
the order of sums depends on the number of threads, not on the cores that they run on.
"""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from steadytrain.core.errors import UsageError

OPTION = "--devices"
GROUPS_MAX = 8
"""A processor of more cores is tried in so many groups."""

VISIBLE, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"
CHOSEN_BY_US = (VISIBLE, THREADS)
ASK = ("nvidia-smi", "--query-gpu=index,name,uuid,serial,pci.bus_id", "--format=csv,noheader")
ASK_S = 30.0
UNKNOWN = ("", "[N/A]", "N/A", "0", "[Not Supported]")


@dataclass(frozen=True)
class Device:
    """A GPU, or a group of cores. ``serial`` and ``slot`` (a PCI address) are None where the machine names none."""

    name: str
    model: str
    serial: str | None = None
    slot: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the launched process."""

    cores: tuple[int, ...] = ()
    """The cores that it may use; empty: all."""


def devices_of(environment: Mapping[str, Any]) -> tuple[Device, ...]:
    """The devices on which the run of ``environment`` (the document of a run or bundle) can run again; at least two.

    Raises:
        UsageError: it used several GPUs, or this machine has one such device only.
    """
    model = environment.get("model")
    used = sorted({str(name) for name in model.get("devices") or ()} if isinstance(model, Mapping) else ())
    if not used:
        raise UsageError(f"{OPTION}: the record does not say on which device the model was")
    if used == ["cpu"]:
        return _cores(environment)
    if len(used) > 1 or not used[0].startswith("cuda"):
        raise UsageError(f"{OPTION}: the model was on {', '.join(used)}; only one GPU, or the CPU, can be exchanged")
    return _gpus(_recorded_name(environment, used[0]))


@contextmanager
def on(device: Device | None) -> Iterator[Mapping[str, str]]:
    """What is launched in this block by this thread runs on ``device``, if it gets the variables that this yields."""
    if device is None or not device.cores:
        yield {} if device is None else device.variables
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, device.cores)
    try:
        yield device.variables
    finally:
        os.sched_setaffinity(0, before)


def as_recorded(present: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """``present`` without the variables by which a device was chosen, which are no change of the environment."""
    before, now = (one.get("environment") if isinstance(one, Mapping) else None for one in (recorded, present))
    if not isinstance(now, Mapping):
        return dict(present)
    kept = {name: value for name, value in now.items() if name not in CHOSEN_BY_US}
    if isinstance(before, Mapping):
        kept |= {name: before[name] for name in CHOSEN_BY_US if name in before}
    return {**present, "environment": kept}


def _cores(environment: Mapping[str, Any]) -> tuple[Device, ...]:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        raise UsageError(f"{OPTION}: this process can choose between {len(cores)} cores; there is no other device")
    facts = environment.get("device")
    threads = facts.get("torch_threads") if isinstance(facts, Mapping) else None
    variables = {THREADS: str(threads)} if threads else {}
    count, model = min(len(cores), GROUPS_MAX), _processor()
    bounds = [len(cores) * number // count for number in range(count + 1)]
    groups = [tuple(cores[first:last]) for first, last in pairwise(bounds)]
    return tuple(Device(_cores_text(group), model, variables=variables, cores=group) for group in groups)


def _cores_text(group: tuple[int, ...]) -> str:
    if len(group) == 1:
        return f"core {group[0]}"
    is_range = group[-1] - group[0] == len(group) - 1
    return f"cores {group[0]} to {group[-1]}" if is_range else f"cores {', '.join(map(str, group))}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return ""


def _recorded_name(environment: Mapping[str, Any], device: str) -> str | None:
    """The name of the board that the model was on; None if it was not recorded."""
    facts = environment.get("device")
    gpus = facts.get("gpus") if isinstance(facts, Mapping) else None
    index = int(number) if (number := device.partition(":")[2]).isdigit() else 0
    if not isinstance(gpus, list) or index >= len(gpus) or not isinstance(gpus[index], Mapping):
        return None
    return str(gpus[index].get("name"))


def _gpus(recorded: str | None) -> tuple[Device, ...]:
    boards = _boards()
    alike = [board for board in boards if recorded in (None, board.model)]
    if len(alike) < 2:
        here = ", ".join(board.model for board in boards) or "none"
        raise UsageError(f"{OPTION}: the run was on a {recorded or 'GPU'}, and this machine has: {here}; it takes two")
    return tuple(alike)


def _boards() -> list[Device]:
    try:
        asked = subprocess.run(ASK, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=ASK_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{OPTION}: nvidia-smi, which lists the GPUs, did not run ({type(error).__name__})") from None
    found = []
    for row in csv.reader(asked.stdout.splitlines(), skipinitialspace=True):
        if len(row) == 5:
            index, name, uuid, serial, slot = (cell.strip() for cell in row)
            found.append(Device(f"GPU {index}", name, _known(serial), _known(slot), {VISIBLE: uuid}))
    return found


def _known(text: str) -> str | None:
    return None if text in UNKNOWN else text
