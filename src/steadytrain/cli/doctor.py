"""``steadytrain doctor``: what is installed on this machine, what works, and what does not."""

from __future__ import annotations

import importlib.util
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from steadytrain.cli._next import say_next
from steadytrain.cli._output import say, say_document, say_lines
from steadytrain.cli._settings_shown import settings_here, settings_lines
from steadytrain.core.errors import UsageError
from steadytrain.core.version import __version__

SCHEMA = "steadytrain.doctor/1"

TORCH_MIN = (2, 6)
"""The oldest torch version that passes the test suite (docs/versions.md)."""

FRAMEWORKS = (
    *("transformers", "accelerate", "trl", "peft", "lightning", "pytorch-lightning", "ray", "datasets"),
    *("deepspeed", "triton", "torchvision", "tokenizers"),
)

OPTIONAL = {
    "bokeh": "the zoomable charts of `steadytrain report`",
    "duckdb": "`steadytrain query`",
    "pyarrow": "Parquet and Arrow files in `steadytrain check-data`, the tables of `steadytrain query`",
    "tokenizers": "`steadytrain check-data` with a tokenizer",
    "nvidia-ml-py": "temperature, power and errors of GPUs",
    "tensorboard": "`--to tensorboard`",
    "wandb": "`--to wandb`",
    "mlflow": "`--to mlflow`",
    "prometheus-client": "`--to prometheus`",
    "opentelemetry-sdk": "`--to otel`",
    "apprise": "`--notify`",
    "fsspec": "`steadytrain runs --root` with an address",
}
"""Packages of the extras, and their purpose."""


@click.command()
@click.argument("script", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document (docs/schemas.md) and nothing else.")
def command(script: Path | None, as_json: bool) -> int:
    """Show what is installed here, what works with it, and which settings of `run` hold.

    The settings are those of the environment and of the settings file above SCRIPT's folder or this one. Exits with 1
    if steadytrain cannot watch a training run here, or if a setting is wrong; else with 0 (also without torch).
    """
    if script is not None and not script.exists():
        raise UsageError(f"{script}: no such file")
    found = examine(script)
    if as_json:
        say_document(found)
    else:
        say_lines("\n".join(_lines(found)))
        if found["torch"]["version"] is None or found["torch"]["too_old"]:
            needed = f"torch>={'.'.join(map(str, TORCH_MIN))}"
            say(f"\nnext  {shlex.join([sys.executable, '-m', 'pip', 'install', needed])}")
        elif found["works"]:
            say_next("run", "--help", why="watch a training")
    return 0 if found["works"] and not found["settings"]["problems"] else 1


def examine(script: Path | None = None) -> dict[str, Any]:
    """The document. Imports torch and its compiler if installed."""
    torch, names = _torch(), []
    if torch["version"] is not None and torch["error"] is None:
        names = _private_names()
    too_old = torch["version"] is not None and _numbers(torch["version"]) < TORCH_MIN
    protected = _files_are_protected()
    return {
        "schema": SCHEMA,
        "works": not too_old and torch["error"] is None and all(one["works"] for one in names if one["needed"]),
        "steadytrain": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()},
        "torch": {**torch, "too_old": too_old},
        "frameworks": {name: version for name in FRAMEWORKS if (version := _version(name)) is not None},
        "optional": [
            {"package": name, "version": _version(name), "used_for": used_for} for name, used_for in OPTIONAL.items()
        ],
        "names": names,
        "settings": settings_here(script),
        "file_protection": {
            "kernel": protected,
            "lost": None if protected else "a replayed script's writes are redirected in Python only, not in C or C++",
        },
    }


def _torch() -> dict[str, Any]:
    facts: dict[str, Any] = {"version": _version("torch"), "error": None, "cuda": None, "driver": None, "gpus": []}
    if importlib.util.find_spec("torch") is None:
        return {**facts, "version": None}
    try:
        import torch

        facts["version"], facts["cuda"] = torch.__version__, torch.version.cuda
        if torch.cuda.is_available():
            facts["gpus"] = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
            facts["driver"] = _driver()
    except Exception as error:  # this command must report a torch that fails to load
        facts["error"] = f"{type(error).__name__}: {error}"
    return facts


def _driver() -> str | None:
    """The version of the GPU driver, from NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # not installed, or no NVIDIA driver
        return None


def _private_names() -> list[dict[str, Any]]:
    from steadytrain.core import torch_private  # noqa: F401 - its names enter the list when it is imported
    from steadytrain.core.torch_names import NAMES

    return [{"name": one.full, "works": one.works(), "needed": one.needed, "lost": one.lost} for one in NAMES]


def _files_are_protected() -> bool:
    from steadytrain.replay.landlock import kernel_version

    return kernel_version() > 0


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())


def _lines(found: dict[str, Any]) -> list[str]:
    torch = found["torch"]
    lines = [_row("steadytrain", found["steadytrain"]), _row("Python", found["python"]["version"])]
    lines.append(_row("torch", torch["version"] or "not installed"))
    if torch["version"] is not None:
        lines.append(_row("CUDA", torch["cuda"] or "this build has none"))
        lines.append(_row("GPU", ", ".join(torch["gpus"]) or "none that torch can use"))
        lines += [_row("GPU driver", torch["driver"])] if torch["driver"] else []
    lines += [_row(name, version) for name, version in found["frameworks"].items()]
    lines += ["", *_verdict(found), ""]
    lines.append("File protection: " + ("by the kernel (Landlock)" if found["file_protection"]["kernel"] else "partly"))
    if found["file_protection"]["lost"]:
        lines.append(f"  {found['file_protection']['lost']}")
    lines += ["", *settings_lines(found["settings"])]
    lines += ["", "Optional packages:"]
    lines += [
        _row(f"  {one['package']}", f"{one['version'] or '-':<12} {one['used_for']}") for one in found["optional"]
    ]
    return lines


def _verdict(found: dict[str, Any]) -> list[str]:
    """What works with this torch, as sentences."""
    torch, missing = found["torch"], [one for one in found["names"] if not one["works"]]
    if torch["version"] is None:
        return ["torch is not installed: logs, data, checkpoints and recorded runs can be read, no training watched."]
    if torch["error"] is not None:
        return [f"torch cannot be imported ({torch['error']}): no training can be watched."]
    if torch["too_old"]:
        return [f"torch {torch['version']} is too old: install {'.'.join(map(str, TORCH_MIN))} or newer."]
    if not found["works"]:
        head = "A training cannot be watched with this torch. It lacks:"
    elif missing:
        head = "A training can be watched. This torch lacks what some extras use:"
    else:
        return [f"A training can be watched: torch has all {len(found['names'])} private names that we use."]
    return [head, *(f"  {one['name']}: {one['lost']}{' (needed)' if one['needed'] else ''}" for one in missing)]


def _row(name: str, value: str) -> str:
    return f"{name:<20} {value}"
