"""``torch.load`` without running code, with one-line errors."""

from __future__ import annotations

import argparse
import pathlib
import re
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError

_ASKED = re.compile(r"GLOBAL (\S+)|Unsupported (?:global|class) (\S+)|class (\S+) that is not an allowed")


def load(source: Path | BinaryIO, told: Path) -> Any:
    """The content of a ``torch.save`` file on the CPU. Files are memory-mapped if possible.

    Raises:
        UsageError: the file is of another kind or damaged, or would run code. The message names the path ``told``.
    """
    how: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    if isinstance(source, Path) and _is_zip(source):
        how["mmap"] = True
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_harmless()):
            warnings.simplefilter("ignore")
            return torch.load(source, **how)
    except OSError:
        raise
    except Exception as error:
        text = str(error)
        asked = _ASKED.search(text)
        if asked:
            name = next(filter(None, asked.groups())).strip("`'.,")
            raise UsageError(
                f"{told}: refused: loading it would run or build {name}; only plain state is read"
            ) from None
        if "weights_only" in text.lower() or "Weights only load failed" in text:
            reason = text.split("WeightsUnpickler error:")[-1].strip().splitlines()[0][:160]
            raise UsageError(f"{told}: refused: not plain state ({reason or 'a pickle with code in it'})") from None
        reason = (text.strip().splitlines() or [type(error).__name__])[0][:160]
        raise UsageError(f"{told}: not a checkpoint that can be read ({reason})") from None


def _is_zip(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(4) == b"PK\x03\x04"


def _harmless() -> list[Any]:
    """Harmless types that checkpoints contain besides tensors: NumPy arrays and scalars, paths, plain namespaces."""
    core = getattr(np, "_core", None) or np.core
    kinds = {type(np.dtype(name)) for name in ("u4", "u8", "i4", "i8", "f4", "f8", "bool")}
    paths = (pathlib.PosixPath, pathlib.PurePosixPath)
    arrays = (core.multiarray._reconstruct, core.multiarray.scalar, np.ndarray, np.dtype)
    return [*arrays, *kinds, *paths, argparse.Namespace]
