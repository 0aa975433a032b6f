"""GPUs that the tests of machine readings share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.machine import MachineSampler
from waiting import until

MIB = 1 << 20


def cells(sample: Any, row: str) -> dict[str, float]:
    """The cells of a row that were measured."""
    values = sample.reading.values[sample.reading.rows.index(row)]
    return {name: float(value) for name, value in zip(sample.reading.columns, values, strict=True) if value == value}


# -- torch's allocator -------------------------------------------------------------------------------------------------


def properties(name: str = "NVIDIA H200", uuid: str = "1111", bus: int | None = None) -> Any:
    address = {} if bus is None else {"pci_domain_id": 0, "pci_bus_id": bus, "pci_device_id": 0}
    return SimpleNamespace(name=name, uuid=uuid, **address)


def statistics(allocated: int, reserved: int) -> dict[str, int]:
    return {
        "allocated_bytes.all.current": allocated,
        "allocated_bytes.all.peak": 2 * allocated,
        "reserved_bytes.all.current": reserved,
        "reserved_bytes.all.peak": reserved,
        "active_bytes.all.current": allocated + 1,
        "num_alloc_retries": 4,
        "num_ooms": 1,
    }


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets ``torch.cuda`` tell of GPUs: the properties and statistics of each."""

    def pretend(*gpus: tuple[Any, dict[str, int] | None]) -> None:
        def stats(index: int) -> dict[str, int]:
            known = gpus[index][1]
            if known is None:
                raise RuntimeError("this allocator keeps no statistics")
            return known

        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "memory_stats", stats)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpus[index][0])

    return pretend


# -- the thread --------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., MachineSampler]]:
    made: list[MachineSampler] = []

    def start(every_s: float = 0.01, tell: Callable[[str], None] = print) -> MachineSampler:
        made.append(MachineSampler(tmp_path, every_s=every_s, guard=Guard(tell)))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.close()
    until(lambda: not any(thread.name.startswith("steadytrain") for thread in threading.enumerate()))
