"""Reads ``torch.save`` files: a bare ``state_dict``, a training loop's own dictionary, or a Lightning checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from steadytrain.checkpoints.assembling import Loose, assemble
from steadytrain.checkpoints.loading import load
from steadytrain.compare.checkpoint_contents import CheckpointContents, plain_state
from steadytrain.core.errors import UsageError

MODEL_KEYS = ("model", "state_dict", "model_state_dict", "model_state", "module", "net", "network", "weights", "params")
STEP_KEYS = ("global_step", "step", "steps", "iteration", "iter", "iter_num", "n_iter", "num_updates", "update")
DATA_KEYS = ("sampler", "data", "loader")
LIGHTNING_KEY = "pytorch-lightning_version"


def claims(path: Path) -> bool:
    return path.is_file()


def read(path: Path, names: Sequence[str] | None) -> CheckpointContents:
    """The contents of a ``torch.save`` file.

    Raises:
        UsageError: it has neither model nor optimizer, or would run code.
    """
    content = load(path, path)
    if not isinstance(content, Mapping):
        raise UsageError(f"{path}: holds a {type(content).__name__}, not the state of a training")
    if LIGHTNING_KEY in content:
        return assemble(str(path), "lightning", lightning(content), names)
    return assemble(str(path), "torch.save", sorted_out(content, path, names), names)


def sorted_out(content: Mapping[Any, Any], path: Path, names: Sequence[str] | None = None) -> Loose:
    """The parts of a training loop's dictionary, recognised by their form.

    Raises:
        UsageError: it has neither model nor optimizer.
    """
    if is_state(content):
        return Loose(weights=content, notes=["a bare state dict: weights only"])
    if is_optimizer(content):
        return Loose(optimizer=content, notes=["an optimizer's state only, without weights"])
    states = {str(key): value for key, value in content.items() if is_state(value)}
    optimizers = {str(key): first for key, value in content.items() if (first := _optimizer_in(value)) is not None}
    if not states and not optimizers:
        listed = ", ".join(sorted(map(str, content))[:6]) or "nothing"
        raise UsageError(f"{path}: neither a model nor an optimizer in it; it holds: {listed[:200]}")
    loose = Loose(weights={}, optimizer={}, schedulers=(), random={}, position={})
    if states:
        known = next((key for key in MODEL_KEYS if key in states), max(states, key=lambda key: len(states[key])))
        loose.weights = states.pop(known)
        random = ("rng", "random")
        left = [key for key in states if not any(word in key.lower() for word in random)]
        loose.notes += [f"{key!r} looks like a model too and was not compared" for key in left]
    if optimizers:
        # Of several, choose the optimizer with as many parameters as the run's first one.
        chosen = next((key for key in optimizers if names and _parameters(optimizers[key]) == len(names)), None)
        chosen = chosen or next(iter(optimizers))
        more = [key for key in optimizers if key != chosen]
        loose.optimizer = optimizers[chosen]
        loose.notes += [f"{key!r} is a further optimizer and was not compared" for key in more]
    loose.schedulers = [value for value in content.values() if _is_scheduler(value)]
    loose.scaler = next((value for value in content.values() if _is_scaler(value)), {})
    words = ("rng", "random", "generator")
    loose.random = {
        str(key): value for key, value in content.items() if any(word in str(key).lower() for word in words)
    }
    loose.position = _position(content)
    return loose


def lightning(content: Mapping[str, Any]) -> Loose:
    """The parts of a Lightning checkpoint, which has fixed keys for them."""
    optimizers = content.get("optimizer_states") or []
    precision = content.get("MixedPrecision") or content.get("native_amp_scaling_state")
    loose = Loose(
        weights=content.get("state_dict") or {},
        optimizer=optimizers[0] if optimizers else {},
        schedulers=list(content.get("lr_schedulers") or ()),
        scaler=precision if isinstance(precision, Mapping) else {},
        position=_lightning_position(content),
    )
    if len(optimizers) > 1:
        loose.notes.append(f"{len(optimizers)} optimizers: the first was compared")
    return loose


def is_state(value: Any) -> bool:
    """Whether it maps names to tensors."""
    return (
        isinstance(value, Mapping)
        and any(isinstance(entry, Tensor) for entry in value.values())
        and all(isinstance(key, str) for key in value)
        and all(isinstance(entry, Tensor) or key.endswith("_extra_state") for key, entry in value.items())
    )


def is_optimizer(value: Any) -> bool:
    """Whether it has the form of an optimizer's ``state_dict``."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("param_groups"), (list, tuple)) and isinstance(value.get("state"), Mapping):
        return True
    heads = {str(key).split(".", 1)[0] for key in value}
    return "state" in heads and heads <= {"state", "param_groups"} and "state" not in value


def _optimizer_in(value: Any) -> Mapping[str, Any] | None:
    entries = value if isinstance(value, (list, tuple)) else [value]
    return next((entry for entry in entries if is_optimizer(entry)), None)


def _parameters(optimizer: Mapping[str, Any]) -> int:
    return sum(len(group.get("params", ())) for group in optimizer.get("param_groups", ()))


def _is_scheduler(value: Any) -> bool:
    return isinstance(value, Mapping) and "last_epoch" in value and not is_optimizer(value)


def _is_scaler(value: Any) -> bool:
    return isinstance(value, Mapping) and "scale" in value and "growth_interval" in value


def _position(content: Mapping[Any, Any]) -> dict[str, Any]:
    position: dict[str, Any] = {}
    for key in STEP_KEYS:
        value = content.get(key)
        value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if isinstance(value, int) and not isinstance(value, bool):
            position["global_step"] = value
            break
    if isinstance(content.get("epoch"), (int, float)):
        position["epoch"] = content["epoch"]
    for key, value in content.items():
        if isinstance(value, Mapping) and any(word in str(key).lower() for word in DATA_KEYS):
            position |= {f"{key}.{name}": entry for name, entry in plain_state(value).items()}
    return position


def _lightning_position(content: Mapping[str, Any]) -> dict[str, Any]:
    position = {key: content[key] for key in ("global_step", "epoch") if isinstance(content.get(key), int)}
    loops = content.get("loops")
    fit = loops.get("fit_loop", {}) if isinstance(loops, Mapping) else {}
    for name, place in (("batches", "epoch_loop.batch_progress"), ("scheduler_steps", "epoch_loop.scheduler_progress")):
        progress = fit.get(place)
        if isinstance(progress, Mapping) and isinstance(progress.get("total"), Mapping):
            position[name] = progress["total"].get("completed" if name == "scheduler_steps" else "ready")
    current = fit.get("epoch_loop.batch_progress")
    if isinstance(current, Mapping) and isinstance(current.get("current"), Mapping):
        position["batches_of_epoch"] = current["current"].get("ready")
    return position
