"""Lists the differences in machine, libraries and script between the recorded run and now, as text.

Only differences that can change the bits of a result are compared. File locations, users and the number of processors
are not. Both sides are documents; no torch is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from steadytrain.capture.hooks.seeding import hash_variables
from steadytrain.storage.rank_group import world_of
from steadytrain.storage.ranks_of_run import LAUNCHER_VARIABLES

CHANGES_MAX = 100

DEVICE_FACTS = {
    "machine": "processor architecture",
    "torch_threads": "threads of torch",
    "cuda": "CUDA of torch",
    "cudnn": "cuDNN",
    "driver": "GPU driver",
    "cpu_capability": "CPU capability",
}
NOT_COMPARED = frozenset({"steadytrain", "wandb", "mlflow", "tensorboard"})
"""Observing libraries, which take no part in the computation."""

PLACES = ("_DIR", "_PATH", "_HOME")

NUMERIC_VARIABLES = (
    *("CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "TORCH", "PYTORCH_", "OMP_", "MKL_", "KMP_", "TRITON_", "XLA_", "HIP_"),
    *("PYTHONHASHSEED", "WORLD_SIZE"),
)
NO_CHANGE = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "OMP_WAIT_POLICY")
"""scikit-learn sets the first two when it is imported, so they tell the time of the reading, and not of two machines.
The last says how idle threads wait; replays set it themselves (``child_processes.sharing_cores``)."""

LAUNCHER = ("TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
"""What torchrun sets for its ranks, which a replay launches without it."""


def changes(
    recorded: Mapping[str, Any], present: Mapping[str, Any], *, moved: tuple[str, str] | None = None
) -> list[str]:
    """One line a change, the likeliest cause first: files, versions, devices, numerics, variables.

    Both arguments have the form of a bundle's ``environment.json``. Files of ``recorded`` below ``moved[0]`` are
    searched
    below ``moved[1]``.
    """
    found = [
        *_files(recorded, present, moved),
        *_versions(recorded, present),
        *_devices(recorded, present),
        *_numerics(recorded, present),
        *_variables(recorded, present),
    ]
    return found[:CHANGES_MAX]


def _files(recorded: Mapping[str, Any], present: Mapping[str, Any], moved: tuple[str, str] | None) -> Iterator[str]:
    before, now = _mapping(recorded, "sources"), _mapping(present, "sources")
    if not before:
        return  # bundles from older versions contain no sources
    for path, digest in before.items():
        place = path
        if moved is not None and (path == moved[0] or path.startswith(moved[0].rstrip(os.sep) + os.sep)):
            place = moved[1].rstrip(os.sep) + path[len(moved[0].rstrip(os.sep)) :]
        if place not in now:
            yield f"{path}: the script imported this file then, and does not now"
        elif now[place] != digest:
            yield f"{path}: the file has changed"


def _versions(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    yield from _one("Python", recorded.get("python"), present.get("python"))
    before, now = _mapping(recorded, "versions"), _mapping(present, "versions")
    if not before:
        return  # a run without a frozen incident has no versions
    for package in sorted(before.keys() | now.keys()):
        if package not in NOT_COMPARED:
            yield from _one(package, before.get(package, "absent"), now.get(package, "absent"))


def _devices(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    before, now = _mapping(recorded, "device"), _mapping(present, "device")
    for name, words in DEVICE_FACTS.items():
        if name in before and name in now:
            yield from _one(words, before[name], now[name])
    if before:
        yield from _one("GPUs", _gpus(before), _gpus(now))


def _numerics(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    before, now = _mapping(recorded, "numerics"), _mapping(present, "numerics")
    for name in sorted(before.keys() & now.keys()):
        yield from _one(name, before[name], now[name])


def _variables(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    before, now = _mapping(recorded, "environment"), _mapping(present, "environment")
    if "environment" not in recorded:
        return
    given = set(hash_variables(recorded))  # every launched process gets these as the run had them
    if world_of(recorded) > 1:
        given |= set(LAUNCHER_VARIABLES)
    for name in sorted(before.keys() | now.keys()):
        if name in given:
            continue
        if not name.startswith(NUMERIC_VARIABLES) or name.startswith(LAUNCHER):
            continue
        if not name.endswith(PLACES) and name not in NO_CHANGE:
            yield from _one(f"${name}", before.get(name, "unset"), now.get(name, "unset"))


def _one(name: str, before: Any, now: Any) -> Iterator[str]:
    if before is not None and now is not None and before != now:
        yield f"{name}: {before} then, {now} now"


def _gpus(device: Mapping[str, Any]) -> str:
    gpus = device.get("gpus")
    names = [str(gpu.get("name")) for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    return ", ".join(names) or "none"


def _mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A bundle may be malformed: a value that is no mapping counts as absent."""
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}
