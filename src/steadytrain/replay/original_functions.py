"""Python's file functions before their replacement, and stand-ins for what ``os.scandir`` returns."""

from __future__ import annotations

import builtins
import os
import shutil
import stat
from contextlib import suppress


class Entry:
    """Stands in for ``os.DirEntry``, which cannot be constructed."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path

    def __fspath__(self) -> str:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def is_symlink(self) -> bool:
        return os.path.islink(self.path)

    def is_junction(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())


class Entries:
    """Stands in for the result of ``os.scandir``."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class OriginalFunctions:
    """Python's file functions before their replacement."""

    def __init__(self) -> None:
        self.open, self.os_open = builtins.open, os.open
        self.stat, self.lstat, self.readlink, self.getcwd = os.stat, os.lstat, os.readlink, os.getcwd
        self.listdir, self.scandir = os.listdir, os.scandir
        self.chdir = os.chdir
        self.mkdir, self.rmdir, self.remove, self.rename = os.mkdir, os.rmdir, os.unlink, os.replace
        self.symlink, self.link, self.mkfifo = os.symlink, os.link, os.mkfifo

    def lexists(self, path: str) -> bool:
        try:
            self.lstat(path)
        except OSError:
            return False
        return True

    def _mode(self, path: str) -> int:
        try:
            return self.stat(path).st_mode
        except OSError:
            return 0

    def isdir(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def isfile(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def islink(self, path: str) -> bool:
        try:
            return stat.S_ISLNK(self.lstat(path).st_mode)
        except OSError:
            return False

    def makedirs(self, path: str) -> None:
        if not self.isdir(path):
            self.makedirs(os.path.dirname(path))
            self.mkdir(path, 0o777)

    def copy(self, source: str, target: str) -> None:
        if self.islink(source) or self.islink(target):
            if self.lexists(target):
                self.remove(target)
            if self.islink(source):
                self.symlink(self.readlink(source), target)
                return
        if not self.isfile(source):
            if stat.S_ISFIFO(self._mode(source)) and not self.lexists(target):
                self.mkfifo(target)
            return  # reading a pipe or socket would block
        with self.open(source, "rb") as given, self.open(target, "wb") as taken:
            shutil.copyfileobj(given, taken, 1 << 20)

    def copytree(self, source: str, target: str) -> None:
        self.makedirs(target)
        for name in self.listdir(source):
            one, other = os.path.join(source, name), os.path.join(target, name)
            if self.isdir(one) and not self.islink(one):
                self.copytree(one, other)
            else:
                self.copy(one, other)

    def rmtree(self, path: str) -> None:
        for name in self.listdir(path) if self.isdir(path) else ():
            below = os.path.join(path, name)
            if self.isdir(below) and not self.islink(below):
                self.rmtree(below)
            else:
                self.remove(below)
        if self.isdir(path):
            self.rmdir(path)

    def states(self, path: str) -> dict[str, tuple[int, ...]]:
        """The state of everything below a folder: mode, size in bytes and modification time in ns; for folders only the
        mode."""
        found: dict[str, tuple[int, ...]] = {}
        for name in self.listdir(path) if self.isdir(path) else ():
            below = os.path.join(path, name)
            with suppress(OSError):
                state = self.lstat(below)
                if stat.S_ISDIR(state.st_mode):
                    found |= {below: (state.st_mode,), **self.states(below)}
                else:
                    found[below] = (state.st_mode, state.st_size, state.st_mtime_ns)
        return found

    def size(self, path: str) -> int:
        return sum(size for _, size, _ in (state for state in self.states(path).values() if len(state) > 1))
