"""What torch knows of the GPUs that this process uses: who they are, and the state of its memory allocator.

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
    """A GPU, or a MIG instance of one, as torch numbers it. ``uuid`` has no ``GPU-`` or ``MIG-`` in front.

    ``values`` are the columns that the allocator knows.
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
            continue  # visible, but of another rank
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
    """Columns from what ``torch.cuda.memory_stats`` gives; those it does not know are left out."""
    values = {name: float(statistics[key]) for name, key in _STATISTICS.items() if key in statistics}
    if "reserved_bytes" in values and "allocated_bytes" in values:
        values["unused_reserved_bytes"] = values["reserved_bytes"] - values["allocated_bytes"]
    return values


def _statistics(torch: Any, index: int) -> dict[str, Any] | None:
    """None for an allocator that keeps none (a pluggable one)."""
    try:
        return dict(torch.cuda.memory_stats(index))
    except RuntimeError:
        return None


def _bus_id(properties: Any) -> str | None:
    """``00000000:65:00.0``, where this version of torch knows it."""
    try:
        domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    except AttributeError:
        return None
    return f"{domain:08x}:{bus:02x}:{slot:02x}.0"
