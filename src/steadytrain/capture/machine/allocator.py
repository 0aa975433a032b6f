"""Reads from torch which GPUs this process uses, and the state of torch's memory allocator on them.

Nothing here initialises CUDA, synchronises, or touches the current device.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

_STATISTICS = {
    "allocated_bytes": "allocated_bytes.all.current",
    "reserved_bytes": "reserved_bytes.all.current",
    "active_bytes": "active_bytes.all.current",
    "allocated_peak_bytes": "allocated_bytes.all.peak",
    "allocation_retries": "num_alloc_retries",
    "out_of_memory_errors": "num_ooms",
}


@dataclass(frozen=True)
class CudaDevice:
    """A GPU or a MIG instance, with torch's index. ``uuid`` has no prefix ``GPU-`` or ``MIG-``.

    ``values`` are the columns that come from the allocator.
    """

    index: int
    name: str
    uuid: str | None
    bus_id: str | None
    values: dict[str, float] = field(default_factory=dict)

    @property
    def row(self) -> str:
        return f"cuda:{self.index}"


def devices_in_use() -> list[CudaDevice]:
    """The GPUs in which this process holds memory; none before the script has used one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        statistics = _statistics(torch, index)
        if statistics is not None and not statistics.get("reserved_bytes.all.peak"):
            continue  # visible, but another rank uses it
        properties = torch.cuda.get_device_properties(index)
        uuid = getattr(properties, "uuid", None)
        found.append(
            CudaDevice(
                index,
                str(properties.name),
                str(uuid) if uuid else None,
                _bus_id(properties),
                allocator_values(statistics or {}),
            )
        )
    return found


def allocator_values(statistics: dict[str, Any]) -> dict[str, float]:
    """Columns from the result of ``torch.cuda.memory_stats``; unknown ones are left out."""
    values = {name: float(statistics[key]) for name, key in _STATISTICS.items() if key in statistics}
    if "reserved_bytes" in values and "allocated_bytes" in values:
        values["unused_reserved_bytes"] = values["reserved_bytes"] - values["allocated_bytes"]
    return values


def _statistics(torch: Any, index: int) -> dict[str, Any] | None:
    """The allocator's statistics; None if it keeps none (a pluggable allocator)."""
    try:
        return dict(torch.cuda.memory_stats(index))
    except RuntimeError:
        return None


def _bus_id(properties: Any) -> str | None:
    """The PCI address, such as ``00000000:65:00.0``; None if this version of torch does not have it."""
    try:
        domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    except AttributeError:
        return None
    return f"{domain:08x}:{bus:02x}:{slot:02x}.0"
