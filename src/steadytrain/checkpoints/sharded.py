"""Recognises sharded checkpoints that cannot be read, and names a readable alternative."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steadytrain.checkpoints.folders import ADAPTER, WEIGHTS
from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.core.errors import UsageError

DEEPSPEED_FILES = ("*_model_states.pt", "*_optim_states.pt")
DEEPSPEED_FOLDERS = "global_step*"
FSDP_PIECES = "*_fsdp_rank*"
FSDP_FOLDERS = ("pytorch_model_fsdp_0", "optimizer_0")


def claims(path: Path) -> bool:
    return _why(path) is not None


def read(path: Path, names: Sequence[str] | None) -> CheckpointContents:
    """Never returns contents.

    Raises:
        UsageError: always, with the kind of the shards and a form that can be audited instead.
    """
    raise UsageError(f"{path}: {_why(path)}")


def _why(path: Path) -> str | None:
    if path.is_file():
        if any(path.match(pattern) for pattern in DEEPSPEED_FILES):
            return "one rank's piece of a DeepSpeed checkpoint, not read; " + _DEEPSPEED_INSTEAD
        return "one rank's piece of an FSDP checkpoint, not read; " + _FSDP_INSTEAD if path.match(FSDP_PIECES) else None
    if not path.is_dir() or any((path / name).is_file() for name in (*WEIGHTS, ADAPTER)):
        return None  # the weights are whole; a note says that the optimizer's shards were not read
    shards = [path, *path.glob(DEEPSPEED_FOLDERS)]
    if any(folder.is_dir() and any(folder.glob(pattern)) for folder in shards for pattern in DEEPSPEED_FILES):
        return "a DeepSpeed checkpoint, whose pieces are not read; " + _DEEPSPEED_INSTEAD
    if any(path.glob(FSDP_PIECES)):
        return "an FSDP checkpoint with a piece for each rank, which are not read; " + _FSDP_INSTEAD
    inside = [name for name in FSDP_FOLDERS if (path / name / ".metadata").is_file()]
    if inside:
        return (
            f"an FSDP checkpoint in shards; audit {' and '.join(inside)} in it alone, "
            "a folder of torch.distributed.checkpoint"
        )
    return None


_DEEPSPEED_INSTEAD = "its zero_to_fp32.py combines the weights into a file that can be audited"
_FSDP_INSTEAD = "saved as FULL_STATE_DICT or SHARDED_STATE_DICT it can be audited"
