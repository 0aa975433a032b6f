"""Reads checkpoints of every framework into one type, with one file for each format.

A reader runs no code from a checkpoint and judges nothing.

Pickles are read by torch's weights-only loader, or by one that knows a dozen torch classes (``distributed.py``). A
checkpoint that needs more is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from steadytrain.checkpoints import distributed, folders, own_states, safetensors_files, sharded, single_files
from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.core.errors import UsageError


class Form(Protocol):
    """The contract of a checkpoint format."""

    def claims(self, path: Path) -> bool: ...
    def read(self, path: Path, names: Sequence[str] | None) -> CheckpointContents: ...


FORMATS: tuple[Form, ...] = (sharded, own_states, distributed, folders, safetensors_files, single_files)
"""The first format that claims a path reads it."""


def read_checkpoint(path: Path, *, names: Sequence[str] | None = None) -> CheckpointContents:
    """The contents of the checkpoint at ``path``.

    ``names`` are the parameter names in the order of the saved optimizer, if a run knows them. Without them, optimizer
    state is named by position, unless the checkpoint has names.

    Raises:
        UsageError: the format is unknown, or the checkpoint is damaged or would run code.
    """
    try:
        if not path.exists():
            raise UsageError(f"{path}: no such checkpoint")
        if path.is_file() and not path.stat().st_size:
            raise UsageError(f"{path}: an empty file, no checkpoint; writing it was interrupted")
        for form in FORMATS:
            if form.claims(path):
                return form.read(path, names)
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        # Untrusted content can be malformed anywhere, so no list of checks would be complete.
        told = f"{type(error).__name__}: {str(error)[:120]}".replace("\n", " ")
        raise UsageError(f"{path}: not in the form of such checkpoints ({told})") from None
    raise UsageError(
        f"{path}: no checkpoint here; known are files of torch.save and safetensors, Lightning checkpoints, and "
        "folders of the Hugging Face Trainer, Accelerate and torch.distributed.checkpoint"
    )
