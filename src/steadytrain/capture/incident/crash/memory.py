"""Reports what held the memory when it ran out: the live tensors, and on a GPU the state of torch's allocator.

Tensors are found among Python's objects. These do not include tensors that only autograd holds (activations saved for
backward). On a GPU, their size is the allocated memory minus the tensors found.
"""

from __future__ import annotations

import gc
import re
import resource
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.incident.crash.errors import chain, error_facts, live_frames
from steadytrain.capture.machine import Sample
from steadytrain.capture.machine.allocator import devices_in_use
from steadytrain.capture.machine.host import HostProbe
from steadytrain.core.own_errors import own
from steadytrain.core.torch_private import BUFFERS, MEMORY_SNAPSHOT, PARAMETERS

TENSORS_MAX = 50
BLOCKS_MAX = 50
TRACE_MAX = 1_000
FRAMES_MAX = 8
VARIABLE_ENTRIES_MAX = 1_000
SAMPLES_MAX = 120
SUMMARY_CHARACTERS_MAX = 16_000

_SAYS_SO = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|CUDA out of memory|CUDA error: out of memory|"
    r"CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory|MPS backend out of memory|XPU out of memory"
)
_WANTED = re.compile(r"(?:[Tt]ried|Unable) to allocate (\d+(?:\.\d+)?) ?(bytes|KiB|MiB|GiB|TiB|PiB)")
_ON_GPU = re.compile(r"\bGPU (\d+)\b")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
_BEFORE_COLUMNS = ("process_memory_bytes", "available_memory_bytes", "allocated_bytes", "reserved_bytes")


@dataclass(frozen=True)
class LiveTensor:
    """A live tensor and its storage; views of the same storage have equal ``storage``."""

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    storage: tuple[str, int]
    size_bytes: int


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` or one of its causes is an out-of-memory error of torch's allocators or of Python."""
    return any(map(_says_so, chain(error)))


def out_of_memory_document(
    error: BaseException, folder: Path, names: Mapping[int, str], own: Collection[Tensor], samples: Sequence[Sample]
) -> dict[str, Any]:
    """All evidence that needs no work on the device.

    Args:
        folder: the run folder.
        names: names of parameters by ``id``.
        own: tensors that steadytrain keeps; some may be the script's own, held by reference.
        samples: the last readings of the machine.
    """
    first = next(one for one in chain(error) if _says_so(one))
    text = str(first)
    wanted, gpu = _WANTED.search(text), _ON_GPU.search(text)
    cuda = gpu is not None or "CUDA" in text or "CUBLAS" in text
    tensors = live_tensors(names, error=first, own=own)
    host = HostProbe(folder)
    return {
        "device": f"cuda:{gpu[1]}" if gpu else "cuda" if cuda else "cpu",
        "wanted_bytes": round(float(wanted[1]) * _UNITS[wanted[2]]) if wanted else None,
        "error": error_facts(first),
        "tensors": _tensor_facts(tensors),
        "host": {**host.facts(), **host.read(), **_limits()},
        "accelerators": _accelerator_facts(tensors),
        "before": _before(samples),
    }


def live_tensors(names: Mapping[int, str], *, error: BaseException, own: Collection[Tensor]) -> list[LiveTensor]:
    """One tensor per storage, the view about which most is known, largest storage first."""
    objects = gc.get_objects()
    # Certain labels come last and take precedence.
    labels = {
        **{id(tensor): ("steadytrain", "a recorded batch") for tensor in own},
        **_variables(error),
        **_labels(objects, names),
    }
    best: dict[tuple[str, int], LiveTensor] = {}
    for thing in objects:
        if not issubclass(type(thing), Tensor):
            continue
        try:
            found = _live(thing, *labels.get(id(thing), ("other", "")))
        except Exception:
            continue  # a tensor without memory: fake, of a functional transform, on the meta device
        known = best.get(found.storage)
        if known is None or (known.kind == "other" and found.kind != "other"):
            best[found.storage] = found
    return sorted(best.values(), key=lambda tensor: tensor.size_bytes, reverse=True)


def snapshot_facts(snapshot: Mapping[str, Any], device: int) -> dict[str, Any]:
    """The contents of ``MEMORY_SNAPSHOT()`` for one GPU: its largest blocks, and the last events.

    Blocks and events have lines of Python if the script had enabled ``_record_memory_history``.
    """
    segments = [segment for segment in snapshot.get("segments", ()) if segment.get("device", device) == device]
    blocks = sorted((block for one in segments for block in one["blocks"]), key=lambda block: -block["size"])
    free = [block for block in blocks if block["state"] == "inactive"]
    traces = snapshot.get("device_traces") or []
    trace = traces[device][-TRACE_MAX:] if device < len(traces) else []
    return {
        "segments": len(segments),
        "free_in_segments_bytes": sum(block["size"] for block in free),
        "largest_free_block_bytes": free[0]["size"] if free else 0,
        "largest_blocks": [
            {"size_bytes": block["size"], "state": block["state"], "frames": _frames(block)}
            for block in blocks[:BLOCKS_MAX]
        ],
        "last_events": [
            {"action": str(event.get("action")), "size_bytes": event.get("size"), "frames": _frames(event)}
            for event in trace
        ],
    }


def _says_so(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and _SAYS_SO.search(str(error)) is not None


def _variables(error: BaseException) -> dict[int, tuple[str, str]]:
    """Labels of the tensors among the running functions' variables, by ``id``; the innermost function wins."""
    labels: dict[int, tuple[str, str]] = {}
    for frame in live_frames(error):
        for name, value in list(frame.f_locals.items()):
            where = f"{name} in {frame.f_code.co_name}"
            entries = value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,)
            for entry in islice(entries, VARIABLE_ENTRIES_MAX):
                if issubclass(type(entry), Tensor):
                    labels.setdefault(id(entry), ("variable", where))
    return labels


def _labels(objects: Iterable[Any], names: Mapping[int, str]) -> dict[int, tuple[str, str]]:
    """Kind and name of each known tensor, by ``id``: parameter, gradient, buffer or optimizer state."""
    labels: dict[int, tuple[str, str]] = {}
    optimizers = []
    for thing in objects:
        if issubclass(type(thing), nn.Module):
            own = vars(thing)
            for name, parameter in own.get(PARAMETERS.attribute, {}).items():
                if parameter is not None:
                    name = names.get(id(parameter), f"{type(thing).__name__}.{name}")
                    labels[id(parameter)] = ("parameter", name)
            for name, buffer in own.get(BUFFERS.attribute, {}).items():
                if buffer is not None:
                    labels[id(buffer)] = ("buffer", f"{type(thing).__name__}.{name}")
        elif issubclass(type(thing), torch.optim.Optimizer):
            optimizers.append(thing)
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", ()):
            for parameter in group["params"]:
                label = labels.setdefault(id(parameter), ("parameter", names.get(id(parameter), "")))
                if parameter.grad is not None:
                    labels[id(parameter.grad)] = ("gradient", label[1])
        for parameter, state in getattr(optimizer, "state", {}).items():
            of = labels.get(id(parameter), ("", ""))[1]
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, Tensor):
                    labels[id(value)] = ("optimizer state", f"{key} of {of}" if of else str(key))
    return labels


def _live(tensor: Tensor, kind: str, name: str) -> LiveTensor:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    storage = local.untyped_storage()
    return LiveTensor(
        kind,
        name,
        tuple(tensor.shape),
        str(tensor.dtype),
        str(tensor.device),
        (str(storage.device), storage.data_ptr()),
        storage.nbytes(),
    )


def _tensor_facts(tensors: Sequence[LiveTensor]) -> dict[str, Any]:
    by_kind: Counter[str] = Counter()
    by_device: Counter[str] = Counter()
    for tensor in tensors:
        by_kind[tensor.kind] += tensor.size_bytes
        by_device[tensor.device] += tensor.size_bytes
    return {
        "count": len(tensors),
        "bytes_by_kind": dict(by_kind),
        "bytes_by_device": dict(by_device),
        "largest": [
            {
                "kind": tensor.kind,
                "name": tensor.name,
                "shape": list(tensor.shape),
                "dtype": tensor.dtype,
                "device": tensor.device,
                "size_bytes": tensor.size_bytes,
            }
            for tensor in tensors[:TENSORS_MAX]
        ],
    }


def _accelerator_facts(tensors: Sequence[LiveTensor]) -> list[dict[str, Any]]:
    found = []
    devices = devices_in_use()
    snapshot = MEMORY_SNAPSHOT() if devices else {}
    for device in devices:
        seen = sum(tensor.size_bytes for tensor in tensors if tensor.device == device.row)
        allocated = device.values.get("allocated_bytes")
        found.append(
            {
                "device": device.row,
                "name": device.name,
                **device.values,
                "not_held_by_python_bytes": max(0.0, allocated - seen) if allocated is not None else None,
                **snapshot_facts(snapshot, device.index),
                "summary": torch.cuda.memory_summary(device.index, abbreviated=True)[:SUMMARY_CHARACTERS_MAX],
            }
        )
    return found


def _limits() -> dict[str, Any]:
    """Limits on this process, and whether the kernel overcommits memory."""
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    try:
        overcommit = Path("/proc/sys/vm/overcommit_memory").read_text(encoding="ascii").strip()
    except own(OSError):
        overcommit = None
    return {
        "address_space_limit_bytes": address_space if address_space != resource.RLIM_INFINITY else None,
        "overcommit": overcommit,
    }


def _before(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Memory in the last readings of the machine, oldest first."""
    found = []
    for sample in samples[-SAMPLES_MAX:]:
        columns = sample.reading.columns
        for row, values in zip(sample.reading.rows, sample.reading.values, strict=True):
            numbers = {name: float(values[columns.index(name)]) for name in _BEFORE_COLUMNS if name in columns}
            numbers = {name: value for name, value in numbers.items() if value == value}
            found.append({"time": sample.time, "row": row, **numbers})
    return found


def _frames(entry: Mapping[str, Any]) -> list[str]:
    frames = entry.get("frames") or ()
    return [f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in frames[:FRAMES_MAX]]
