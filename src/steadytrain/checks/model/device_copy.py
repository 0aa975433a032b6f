"""Whether copies to and between GPUs arrive unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed

COPY_BYTES = 1 << 24
DEVICES_MAX = 16
REPEATS = 3


@final
@dataclass(frozen=True)
class DeviceCopy(Check):
    """Data copied to a GPU, and between GPUs, comes back unchanged.

    Means:
        The check copies random bytes from the host to each GPU and back, and between each pair of GPUs. If they come
        back changed, no result computed there can be trusted: training on several GPUs gives zeros or NaN, most often
        from the first step on.

    Causes:
        - peer-to-peer copies that the board or the hypervisor does not support (IOMMU, ACS)
        - a driver that does not belong to the GPU, or a GPU with faulty memory

    Next:
        1. Set ``NCCL_P2P_DISABLE=1`` and run again; if that helps, the peer-to-peer path is broken.
        2. Look for XID errors (``dmesg``, ``nvidia-smi -q``), and switch the IOMMU off on bare metal.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "nccl-tests #117, transformers #26096: copies between GPUs that arrived as zeros"

    def inspect(self, subject: Subject) -> Outcome:
        if not torch.cuda.is_available():
            return not_run("there is no GPU")
        count = min(torch.cuda.device_count(), DEVICES_MAX)
        host = torch.randint(0, 256, (COPY_BYTES,), dtype=torch.uint8)
        wrong: list[dict[str, Any]] = []
        pairs = 0
        for one in range(count):
            there = host.to(f"cuda:{one}")
            pairs += 1
            wrong += _compared(host, there, f"host -> {one} -> host")
            for other in range(count):
                if other != one:
                    pairs += 1
                    wrong += _compared(host, there.to(f"cuda:{other}"), f"{one} -> {other} -> host")
            del there
        numbers: dict[str, Any] = {"devices": count, "paths": pairs, "bytes": COPY_BYTES, "wrong": wrong}
        if wrong:
            paths = ", ".join(entry["path"] for entry in wrong[:4])
            return failed(f"copies do not arrive as they were: {paths}", **numbers)
        return passed(f"{COPY_BYTES >> 20} MiB came back the same on {pairs} paths of {count} GPUs", **numbers)


def _compared(host: Tensor, device: Tensor, path: str) -> list[dict[str, Any]]:
    """Compare ``device`` with ``host`` several times. Returns an empty list if they are equal."""
    for _ in range(REPEATS):
        back = device.to("cpu")
        if not torch.equal(back, host):
            different = back != host
            zeros = float((back == 0).float().mean())
            return [{"path": path, "wrong_share": float(different.float().mean()), "zeros_share": zeros}]
    return []
