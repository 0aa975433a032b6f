"""Reads folders of ``torch.distributed.checkpoint``: a ``.metadata`` file locates each piece of each tensor.

torch reads that file as a pickle, which may run code. This reader accepts only the dozen classes that it consists of,
and
reads the pieces with the weights-only loader.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadytrain.checkpoints.assembling import assemble
from steadytrain.checkpoints.loading import load
from steadytrain.checkpoints.single_files import sorted_out
from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.core.bounded_files import check_memory, check_size, open_regular
from steadytrain.core.errors import UsageError

METADATA = ".metadata"
METADATA_BYTES_MAX = 1 << 30
METADATA_MEMORY_TIMES = 4.0
"""Memory that unpickled metadata take, as a multiple of their file (measured: 2 to 3)."""

TENSOR_BYTES_MAX = 64 << 30
"""Bound on the claimed size of one tensor, so that a forged header cannot exhaust memory."""

_KNOWN = {
    "torch.distributed.checkpoint.metadata": (
        *("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties"),
        *("MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo", "_StoragePrefix"),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size", "device"),
    "pathlib": ("PosixPath", "PurePosixPath", "Path"),
    "pathlib._local": ("PosixPath", "PurePosixPath", "Path"),
    "collections": ("OrderedDict",),
    "builtins": ("set", "frozenset", "slice"),
}


def claims(path: Path) -> bool:
    return path.is_dir() and (path / METADATA).is_file()


def read(path: Path, names: Sequence[str] | None) -> CheckpointContents:
    """The contents of a folder, with the pieces of all ranks combined.

    Raises:
        UsageError: it is damaged, a piece is missing, or it would run code.
    """
    metadata = _metadata(path / METADATA)
    content: dict[Any, Any] = {}
    for name, entry in metadata.state_dict_metadata.items():
        if hasattr(entry, "chunks"):
            value: Any = _tensor(path, name, entry, metadata.storage_data)
        else:
            value = _value(path, name, metadata.storage_data)
        where = metadata.planner_data.get(name) if isinstance(metadata.planner_data, Mapping) else None
        _put(content, tuple(where) if isinstance(where, (tuple, list)) else (name,), value)
    return assemble(str(path), "distributed", sorted_out(_listed(content), path, names), names)


class _KnownClasses(pickle.Unpickler):
    """Builds the classes of ``.metadata`` and refuses all others by name."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if name in _KNOWN.get(module, ()):
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _member
        raise UsageError(f"refused: loading it would run or build {module}.{name}; only plain state is read")


def _member(owner: Any, name: str) -> Any:
    """A member of an enumeration. Before Python 3.11.4 it is pickled as a ``getattr`` on its class."""
    if isinstance(owner, type) and issubclass(owner, Enum) and name in owner.__members__:
        return owner[name]
    raise UsageError(f"refused: loading it would get {name} from {owner!r}; only plain state is read")


def _metadata(file: Path) -> Any:
    from torch.distributed.checkpoint.metadata import Metadata

    check_size(file, bytes_max=METADATA_BYTES_MAX, memory_times=METADATA_MEMORY_TIMES)
    try:
        with open_regular(file) as opened:
            metadata = _KnownClasses(opened).load()
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    except OSError:
        raise
    except Exception as error:  # a pickle can fail in any way
        raise UsageError(f"{file}: not readable ({type(error).__name__}: {str(error)[:120]})") from None
    if not isinstance(metadata, Metadata) or not isinstance(metadata.state_dict_metadata, Mapping):
        raise UsageError(f"{file}: not the metadata of a torch.distributed.checkpoint")
    if not isinstance(metadata.storage_data, Mapping):
        raise UsageError(f"{file}: does not locate the tensors")
    return metadata


def _tensor(path: Path, name: str, entry: Any, storage: Mapping[Any, Any]) -> Tensor:
    """One tensor, combined from its pieces."""
    from torch.distributed.checkpoint.metadata import MetadataIndex

    whole = torch.empty(0, dtype=entry.properties.dtype)
    size = tuple(int(length) for length in entry.size)
    claimed = whole.element_size()
    for length in size:
        claimed *= max(length, 0)
    if claimed > TENSOR_BYTES_MAX:
        raise UsageError(f"{path}: {name} claims {claimed >> 30} GiB; refused")
    check_memory(path, claimed)
    whole = torch.zeros(size, dtype=entry.properties.dtype)
    for piece in entry.chunks:
        found = storage.get(MetadataIndex(name, piece.offsets))
        value = _piece(path, name, found if found is not None else storage.get(MetadataIndex(name)))
        if not isinstance(value, Tensor) or value.shape != piece.sizes:
            raise UsageError(f"{path}: a piece of {name} has another shape than {METADATA} says; damaged")
        at = tuple(slice(start, start + length) for start, length in zip(piece.offsets, piece.sizes, strict=True))
        whole[at] = value
    return whole


def _value(path: Path, name: str, storage: Mapping[Any, Any]) -> Any:
    from torch.distributed.checkpoint.metadata import MetadataIndex

    return _piece(path, name, storage.get(MetadataIndex(name)))


def _piece(path: Path, name: str, info: Any) -> Any:
    if info is None:
        raise UsageError(f"{path}: {METADATA} does not say where {name} lies; damaged")
    transforms = getattr(info, "transform_descriptors", None)  # torch 2.6 has no such field
    if transforms:
        raise UsageError(f"{path}: {name} is compressed ({transforms[0]}), which is not read")
    file = path / str(info.relative_path)
    if Path(info.relative_path).name != str(info.relative_path):
        raise UsageError(f"{path}: {METADATA} names {info.relative_path!r}, a path outside the folder; refused")
    if not file.is_file():
        raise UsageError(f"{path}: {file.name}, which holds {name}, is missing")
    with open_regular(file) as opened:
        opened.seek(info.offset)
        length = min(info.length, file.stat().st_size)
        check_memory(file, 2 * length)
        data = opened.read(length)
    return load(io.BytesIO(data), file)


def _put(content: dict[Any, Any], where: tuple[Any, ...], value: Any) -> None:
    for key in where[:-1]:
        content = content.setdefault(key, {})
    content[where[-1]] = value


def _listed(value: Any) -> Any:
    """Turns mappings with consecutive integer keys back into lists."""
    if not isinstance(value, dict):
        return value
    inner = {key: _listed(entry) for key, entry in value.items()}
    if inner and all(isinstance(key, int) for key in inner) and sorted(inner) == list(range(len(inner))):
        return [inner[key] for key in sorted(inner)]
    return inner
