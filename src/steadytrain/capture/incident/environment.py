"""Collects what a bug report needs about machine and run: versions, commit, devices, configuration.

Everything is read without a network and redacted before it is passed on.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.core.own_errors import own
from steadytrain.storage.redaction import redact_arguments, redact_environment, redact_text, redact_tree

_OWN_FOLDER = str(Path(__file__).parents[2])
STRUCTURE_CHARACTERS_MAX = 200_000
CONFIGURATION_ENTRIES_MAX = 400
VALUE_CHARACTERS_MAX = 2_000

PACKAGES = (
    *("torch", "numpy", "transformers", "accelerate", "peft", "trl", "datasets", "tokenizers", "safetensors"),
    *("lightning", "pytorch-lightning", "deepspeed", "bitsandbytes", "flash-attn", "xformers", "triton", "torchao"),
    *("torchtitan", "liger-kernel", "unsloth", "apex", "transformer-engine", "timm", "torchvision", "torchaudio"),
    *("diffusers", "sentence-transformers", "wandb", "mlflow", "tensorboard", "steadytrain"),
)


def versions() -> dict[str, str]:
    """Versions of the installed training libraries."""
    return {**_installed_versions(), "torch": torch.__version__}


@functools.cache  # a process keeps what it has imported, and looking all of them up takes 10 ms
def _installed_versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def devices() -> dict[str, Any]:
    """CPU, threads, and each GPU with its memory and driver."""
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        "gpus": [],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            facts["gpus"].append(
                {"name": gpu.name, "memory_bytes": gpu.total_memory, "capability": f"{gpu.major}.{gpu.minor}"}
            )
        facts["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        facts["driver"] = _driver_version()
    return facts


def numerics() -> dict[str, Any]:
    """The settings of torch that affect numerical results."""
    return {
        "default_dtype": str(torch.get_default_dtype()),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def configuration(roots: Iterable[nn.Module], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The visible settings: plain values among the script's globals, argparse results, the model's ``config``."""
    settings: dict[str, Any] = {}
    for name, value in list(namespace.items())[:CONFIGURATION_ENTRIES_MAX]:
        if name.startswith("_"):
            continue
        if isinstance(value, argparse.Namespace):
            settings[name] = {key: _plain(entry) for key, entry in vars(value).items()}
        elif isinstance(value, (bool, int, float, str)):
            settings[name] = _plain(value)
    for root in roots:
        config: Any = getattr(root, "config", None)
        entries = config.to_dict() if hasattr(config, "to_dict") else getattr(config, "__dict__", None)
        if isinstance(entries, Mapping):
            settings["model.config"] = {str(key): _plain(entry) for key, entry in entries.items()}
    redacted: dict[str, Any] = redact_tree(settings)
    return redacted


def model_facts(roots: Sequence[nn.Module], parameters: Sequence[Tensor]) -> dict[str, Any]:
    """The model's class, and its parameter counts by dtype."""
    by_dtype: Counter[str] = Counter()
    for parameter in parameters:
        by_dtype[str(parameter.dtype)] += parameter.numel()
    return {
        "class": ", ".join(type(root).__name__ for root in roots) or None,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "tensors": len(parameters),
        "dtypes": dict(by_dtype),
        "devices": sorted({str(parameter.device) for parameter in parameters}),
    }


def structure(roots: Sequence[nn.Module]) -> str:
    """The modules as torch prints them. If torch cannot print one (a cycle, for example), its paths and classes."""
    text = "\n".join(_printed(root) for root in roots)
    for name in {type(module).__name__ for root in roots for module in root.modules()}:
        if not name.isidentifier():  # before brackets, ``credential: NAME()`` reads as code
            text = text.replace(name, redact_text(name))
    return text[:STRUCTURE_CHARACTERS_MAX]


def _printed(root: nn.Module) -> str:
    # If the script has raised the recursion limit, printing a cycle overflows the stack, so do not try.
    if not _has_cycle(root):
        with contextlib.suppress(Exception):  # a script's own extra_repr
            return str(root)
    return "\n".join(f"({path}): {type(module).__name__}" for path, module in root.named_modules())


def _has_cycle(root: nn.Module) -> bool:
    """Whether a module is among its own descendants."""
    began, done = {id(root)}, set[int]()
    path = [(root, root.children())]
    while path:
        module, children = path[-1]
        child = next(children, None)
        if child is None:
            done.add(id(module))
            path.pop()
        elif id(child) not in began:
            began.add(id(child))
            path.append((child, child.children()))
        elif id(child) not in done:
            return True
    return False


def optimizer_facts(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's class and the hyper-parameters of each group, without the parameters."""
    groups = [
        {name: _plain(value) for name, value in group.items() if name != "params"}
        | {"parameters": len(group["params"])}
        for group in optimizer.param_groups
    ]
    return {"class": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}", "groups": groups}


def command_facts() -> dict[str, Any]:
    """How the process was started, redacted."""
    return {
        "argv": redact_arguments(sys.argv),
        "cwd": _folder(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "environment": redact_environment({**os.environ, "PYTHONPATH": _python_path()}),
    }


def _python_path() -> str:
    """``PYTHONPATH`` as the user set it: without the folder that lets the script's children find the watch."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(one for one in entries if one and not one.startswith(_OWN_FOLDER))


def _folder() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # the script has deleted its working folder
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 and value.device.type == "cpu" else f"tensor{tuple(value.shape)}"
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, (list, tuple)) and len(value) <= 64:
        return [_plain(entry) for entry in value]
    return str(value)[:VALUE_CHARACTERS_MAX]


def _driver_version() -> str | None:
    path = Path("/proc/driver/nvidia/version")
    try:
        return path.read_text(encoding="utf-8").splitlines()[0]
    except own(OSError, IndexError):
        return None
