"""Where many runs lie: a folder of a shared file system, or a place that fsspec reaches, such as a bucket.

Only what a listing needs: which folders are runs, and small JSON documents in them. Nothing is written, and a link is
not followed. Not here: what the documents mean (``fleet``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.run_folder import RUN_FILE

FOLDERS_MAX = 50_000
"""Folders that are listed in search of runs."""

DEPTH_MAX = 8
"""Folders between the root and a run, at most."""

REMOTE_BYTES_MAX = 1 << 20
"""The largest document that is read from elsewhere."""

SCHEME = "://"


class Root(Protocol):
    """A place with run folders. Paths in it are relative, with slashes."""

    name: str
    """The place as text, without secrets."""

    is_local: bool
    too_many: bool
    """Whether the search ended at its bound."""

    def runs(self) -> Iterator[str]:
        """The run folders; ``""`` is the root itself. What lies in a run folder is not searched.

        Raises:
            UsageError: the root is not there, or cannot be listed.
        """

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder; empty if there is none."""

    def read(self, path: str) -> Any:
        """The JSON document at ``path``.

        Raises:
            OSError, ValueError, UsageError: there is none, or it is damaged or too large.
        """


def root_at(where: str) -> Root:
    """The root that a user names: a folder, or an address such as ``s3://bucket/runs``.

    Raises:
        UsageError: no such folder, or no package here reaches such an address.
    """
    return _Remote(where) if SCHEME in where else _Folder(Path(where))


class _Folder:
    """A folder of this machine, which may be shared with others."""

    is_local = True

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise UsageError(f"--root {redact_text(str(path))}: no such folder; name one that holds runs, or s3://...")
        self.path, self.name, self.too_many = path, redact_text(str(path)), False

    def runs(self) -> Iterator[str]:
        level, listed = [""], 0
        for _ in range(DEPTH_MAX + 2):
            below: list[str] = []
            for folder in level:
                if (listed := listed + 1) > FOLDERS_MAX:
                    self.too_many = True
                    return
                if os.path.isfile(self.path / folder / RUN_FILE):
                    yield folder
                else:
                    below += [f"{folder}/{name}" if folder else name for name in self.folders(folder)]
            level = below

    def folders(self, path: str) -> list[str]:
        try:
            with os.scandir(self.path / path) as entries:
                found = (one for one in entries if one.is_dir(follow_symlinks=False))
                return sorted(one.name for one in found if not one.name.startswith("."))
        except OSError:
            return []

    def read(self, path: str) -> Any:
        return read_json(self.path / path, bytes_max=REMOTE_BYTES_MAX)


class _Remote:
    """What fsspec reaches. Any exception of a file system becomes one of ours: each has its own kinds."""

    is_local = False

    def __init__(self, where: str) -> None:
        self.name, self.too_many = redact_text(where), False
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise UsageError(f"--root {self.name}: an address needs fsspec: {install('remote')}") from None
        try:
            self._files, base = url_to_fs(where)
        except Exception as error:  # an unknown protocol, a package that is missing, no access
            raise self._refused(error) from None
        self._base = str(base).rstrip("/")

    def runs(self) -> Iterator[str]:
        listed = 0
        try:
            if not self._files.isdir(self._base):
                raise UsageError(f"--root {self.name}: no such folder there")
            for at, folders, names in self._files.walk(self._base, maxdepth=DEPTH_MAX + 2):
                if (listed := listed + 1) > FOLDERS_MAX:
                    self.too_many = True
                    return
                if RUN_FILE in names:
                    yield str(at)[len(self._base) :].strip("/")
                    _prune(folders, ())
                else:
                    _prune(folders, [name for name in folders if not name.startswith(".")])
        except UsageError:
            raise
        except Exception as error:
            raise self._refused(error) from None

    def folders(self, path: str) -> list[str]:
        try:
            found = self._files.ls(f"{self._base}/{path}", detail=True)
            return sorted(
                str(one["name"]).rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory"
            )
        except Exception:
            return []

    def read(self, path: str) -> Any:
        place = f"{self._base}/{path}"
        try:
            content = self._files.cat_file(place, start=0, end=REMOTE_BYTES_MAX + 1)
        except Exception as error:
            raise OSError(f"{redact_text(place)}: cannot be read ({_one_line(error)})") from None
        if len(content) > REMOTE_BYTES_MAX:
            raise UsageError(f"{redact_text(place)}: larger than {REMOTE_BYTES_MAX >> 20} MiB")
        return json.loads(content)

    def _refused(self, error: Exception) -> UsageError:
        return UsageError(f"--root {self.name}: cannot be read ({_one_line(error)})")


def _prune(folders: Any, kept: Sequence[str]) -> None:
    """Let a walk go on in ``kept`` alone: fsspec gives names as a list or as the keys of a dict."""
    if isinstance(folders, dict):
        for name in set(folders).difference(kept):
            del folders[name]
    else:
        folders[:] = kept


def _one_line(error: Exception) -> str:
    return redact_text(" ".join(f"{type(error).__name__}: {error}".split())[:200])
