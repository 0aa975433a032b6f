"""Reads safetensors files, which contain named weights without an order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from steadytrain.checkpoints.assembling import Loose, assemble
from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.core.bounded_files import check_size
from steadytrain.core.errors import UsageError


def claims(path: Path) -> bool:
    return path.is_file() and path.suffix == ".safetensors"


def read(path: Path, names: Sequence[str] | None) -> CheckpointContents:
    """The weights in one file.

    Raises:
        UsageError: it is damaged.
    """
    loose = Loose(weights=tensors_of(path), notes=["a safetensors file: weights only"])
    return assemble(str(path), "safetensors", loose, names)


def tensors_of(path: Path) -> dict[str, Tensor]:
    """The tensors of one file by name.

    Raises:
        UsageError: it is damaged, or its tensors do not fit in memory.
    """
    from safetensors.torch import load_file  # not above: a script may import it first, and torch with it

    try:
        check_size(path, memory_times=1.0)
        return dict(load_file(path))
    except UsageError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UsageError(f"{path}: not a safetensors file that can be read ({str(error)[:160]})") from None
