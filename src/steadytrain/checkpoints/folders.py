"""Reads checkpoint folders of the Hugging Face Trainer (``checkpoint-500/``) and of Accelerate's ``save_state``.

``training_args.bin``, the pickle of a class, is not opened; ``trainer_state.json`` suffices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from steadytrain.checkpoints.assembling import Loose, assemble
from steadytrain.checkpoints.loading import load
from steadytrain.checkpoints.safetensors_files import tensors_of
from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER = "adapter_model.safetensors"
OPTIMIZER = ("optimizer.pt", "optimizer.bin")
SCHEDULER = ("scheduler.pt", "scheduler.bin")
SCALER = ("scaler.pt",)
RANDOM = ("rng_state.pth", "rng_state_0.pth", "random_states_0.pkl")
STATE = "trainer_state.json"
JSON_BYTES_MAX = 64 << 20


def claims(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in (*WEIGHTS, ADAPTER, *OPTIMIZER, STATE))


def read(path: Path, names: Sequence[str] | None) -> CheckpointContents:
    """The contents of a folder. Absent files make empty parts.

    Raises:
        UsageError: a file in it is damaged, or would run code.
    """
    state = _json(path / STATE) if (path / STATE).is_file() else {}
    loose = Loose(in_model_order=False, schedulers=(), position=_position(state))
    adapter = (path / ADAPTER).is_file() and not _first(path, WEIGHTS)
    loose.weights = _adapter(tensors_of(path / ADAPTER)) if adapter else _weights(path)
    if adapter:
        loose.notes.append("an adapter: the weights of the model under it are not in the checkpoint")
    loose.optimizer = _state(path, OPTIMIZER) or {}
    scheduler = _state(path, SCHEDULER)
    loose.schedulers = [scheduler] if scheduler else []
    loose.scaler = _state(path, SCALER) or {}
    loose.random = _state(path, RANDOM) or {}
    if (path / "optimizer").is_dir() or (path / "optimizer_0").is_dir() or list(path.glob("global_step*")):
        loose.optimizer = None
        loose.notes.append("the optimizer's state is in a sharded folder, which was not read")
    kind = "hf-trainer" if state else "accelerate"
    if loose.position is not None and kind == "hf-trainer":
        loose.position["scheduler_steps"] = state.get("global_step")
    return assemble(str(path), kind, loose, names, partial=adapter)


def _first(path: Path, names: Sequence[str]) -> Path | None:
    return next((path / name for name in names if (path / name).is_file()), None)


def _state(path: Path, names: Sequence[str]) -> Mapping[str, Any] | None:
    file = _first(path, names)
    if file is None:
        return None
    if not file.stat().st_size:
        raise UsageError(f"{file}: an empty file; writing it was interrupted")
    content = load(file, file)
    if not isinstance(content, Mapping):
        raise UsageError(f"{file}: holds a {type(content).__name__}, a dictionary was expected")
    return content


def _weights(path: Path) -> dict[str, Any]:
    file = _first(path, WEIGHTS)
    if file is None:
        return {}
    if file.name.endswith(".index.json"):
        found: dict[str, Any] = {}
        for name in _shards(file):
            found |= _tensors(path / name)
        return found
    return _tensors(file)


def _shards(index: Path) -> list[str]:
    """The files that an index names, all in its folder."""
    listed = _json(index).get("weight_map")
    shards = sorted(set(map(str, listed.values()))) if isinstance(listed, Mapping) else []
    for name in shards:
        if Path(name).name != name:
            raise UsageError(f"{index}: names {name!r}, a path outside the folder; refused")
        if not (index.parent / name).is_file():
            raise UsageError(f"{index.parent}: the shard {name} that {index.name} names is missing")
    return shards


def _tensors(file: Path) -> dict[str, Any]:
    if file.suffix == ".safetensors":
        return dict(tensors_of(file))
    content = load(file, file)
    return {str(key): value for key, value in content.items()} if isinstance(content, Mapping) else {}


def _adapter(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An adapter's tensors under their names in a model; the file omits the adapter's name."""
    named = {}
    for name, tensor in tensors.items():
        for part in ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector"):
            name = name.replace(f".{part}.weight", f".{part}.default.weight")
        named[name] = tensor
    return named


def _json(file: Path) -> dict[str, Any]:
    try:
        data = read_json(file, bytes_max=JSON_BYTES_MAX)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not readable as JSON ({str(error)[:160]})") from None
    if not isinstance(data, dict):
        raise UsageError(f"{file}: a JSON object was expected")
    return data


def _position(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: state[key] for key in ("global_step", "epoch") if isinstance(state.get(key), (int, float))}
