"""Hashes the script's own source files with SHA-256. A replay compares the hashes to detect changed files.

Own files are those imported from neither the standard library, nor an installed package, nor steadytrain. Files are
read from disk now, so the hash is that of the imported code unless the file was edited since its import.
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

from steadytrain.core.own_errors import own

FILES_MAX = 2000
PATHS_MAX = 16_384
FILE_BYTES_MAX = 4 << 20
"""Larger files are generated, and nobody edits them between two runs."""

_INSTALLED = ("site-packages", "dist-packages")
_COMPILED = "torchinductor_"
"""How torch.compile names the folder of the code that it writes; another compilation writes other files."""
_OWN_FOLDER = str(Path(__file__).parents[2]) + os.sep


def source_digests() -> dict[str, str]:
    """SHA-256 of each imported own source file, by absolute path; at most ``FILES_MAX``."""
    digests = {}
    for path in sorted(set(_own_files()))[:FILES_MAX]:
        digest = file_digest(path)
        if digest is not None:
            digests[path] = digest
    return digests


def file_digest(path: str) -> str | None:
    """SHA-256 of a source file; None if it does not exist, cannot be read or is too large."""
    try:
        if os.path.getsize(path) > FILE_BYTES_MAX:
            return None
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except own(OSError):
        return None


def is_library(file: str) -> bool:
    """Whether a source file belongs to Python, an installed package or steadytrain."""
    return _is_library(os.path.abspath(file))


@lru_cache(maxsize=PATHS_MAX)  # thousands of modules are asked for again with each incident
def _is_library(path: str) -> bool:
    installed = any(part in _INSTALLED or part.startswith(_COMPILED) for part in path.split(os.sep))
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if cache and path.startswith(os.path.abspath(cache) + os.sep):
        return True
    return installed or path.startswith((_OWN_FOLDER, *_library_folders()))


def _own_files() -> Iterator[str]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        if not is_library(file):
            yield os.path.abspath(file)


@cache
def _library_folders() -> tuple[str, ...]:
    """The folders of Python's own modules and of installed packages."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {*(sysconfig.get_paths().get(name, "") for name in names), *site.getsitepackages()}
    return tuple(os.path.abspath(folder) + os.sep for folder in folders if folder)
