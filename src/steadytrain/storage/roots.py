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
MANY = "the search ended after {:,} folders; name a folder further down"
DEEP = "folders that lie deeper than {} below it were not searched; name a folder further down"


class Root(Protocol):
    """A place with run folders. Paths in it are relative, with slashes."""

    name: str
    """The place as text, without secrets."""

    ended_early: str
    """Why the search did not see all folders; "" if it did."""

    unlisted: list[str]
    """One line for each folder that could not be listed."""

    def runs(self) -> Iterator[str]:
        """The run folders; ``""`` is the root itself. What lies in a run folder is not searched.

        Raises:
            UsageError: the root is not there, or cannot be listed.
        """

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder; empty if there is none."""

    def local(self, path: str) -> Path | None:
        """The folder ``path``, None if it does not lie on this machine."""

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
    if not where.strip():
        raise UsageError("--root '': names no folder; `--root .` is this one")
    return _Remote(where) if SCHEME in where else _Folder(Path(where))


class _Folder:
    """A folder of this machine, which may be shared with others."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.ended_early = path, redact_text(str(path)), ""
        self.unlisted: list[str] = []
        if not path.is_dir():
            what = "this is no folder" if path.exists() else "no such folder"
            raise UsageError(f"--root {self.name}: {what}; name one that holds runs, or s3://...")
        try:
            with os.scandir(path):
                pass
        except OSError as error:
            raise UsageError(f"--root {self.name}: cannot be listed ({error.strerror})") from None

    def runs(self) -> Iterator[str]:
        level, listed = [""], 0
        for _ in range(DEPTH_MAX + 2):
            below: list[str] = []
            for folder in level:
                if (listed := listed + 1) > FOLDERS_MAX:
                    self.ended_early = MANY.format(FOLDERS_MAX)
                    return
                if os.path.lexists(self.path / folder / RUN_FILE):
                    yield folder
                    continue
                try:
                    below += [f"{folder}/{name}" if folder else name for name in self._below(folder)]
                except OSError as error:
                    self.unlisted.append(f"{folder}: cannot be listed ({error.strerror})")
            level = below
        if level:
            self.ended_early = DEEP.format(DEPTH_MAX)

    def folders(self, path: str) -> list[str]:
        try:
            return self._below(path)
        except OSError:
            return []

    def _below(self, path: str) -> list[str]:
        with os.scandir(self.path / path) as entries:
            found = (one for one in entries if one.is_dir(follow_symlinks=False))
            return sorted(one.name for one in found if not one.name.startswith("."))

    def local(self, path: str) -> Path | None:
        return self.path / path

    def read(self, path: str) -> Any:
        return read_json(self.path / path, bytes_max=REMOTE_BYTES_MAX)


class _Remote:
    """What fsspec reaches. Any exception of a file system becomes one of ours: each has its own kinds."""

    def __init__(self, where: str) -> None:
        self.name, self.ended_early = redact_text(where), ""
        self.unlisted: list[str] = []
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
                    self.ended_early = MANY.format(FOLDERS_MAX)
                    return
                folder = str(at)[len(self._base) :].strip("/")
                if RUN_FILE in names:
                    yield folder
                    _prune(folders, ())
                else:
                    _prune(folders, [name for name in folders if not name.startswith(".")])
                    if folders and folder.count("/") >= DEPTH_MAX:
                        self.ended_early = DEEP.format(DEPTH_MAX)
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

    def local(self, path: str) -> Path | None:
        return None

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
