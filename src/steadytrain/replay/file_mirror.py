"""A mirror folder for the files that a script changes, and the script's view: the mirror laid over the real files.

Each path of the script also exists below the mirror. A file in the mirror hides the real one. Files that the script
removed are hidden too. A file is copied to the mirror before it is changed in part.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from steadytrain.replay.original_functions import Entry, OriginalFunctions

WRITTEN_BYTES_MAX = 16 << 30
"""Bound on the script's writes. Beyond it they fail as on a full disk."""

LINKS_MAX = 40
"""The kernel's limit: a path with more links is a circle."""

WRITES_BETWEEN_CHECKS = 64
"""The size of the mirror is checked once in this many writes, because it needs a system call a file."""


SHARED_MEMORY = "/dev/shm/"
"""Files that lie here by name are the user's; shared memory without a name in Python's file functions passes."""


class FileMirror:
    """Maps the paths that a script uses to the places of the files.

    Args:
        mirror: folder for changed files.
        writable: resolved folders that the script writes directly.
    """

    def __init__(self, mirror: Path, *, writable: tuple[Path, ...]) -> None:
        self.writable = writable
        self._mirror = os.path.realpath(mirror)
        self.passed = tuple(f"{folder}{os.sep}" for folder in writable)
        self._passed_shared = tuple(folder for folder in self.passed if folder.startswith(SHARED_MEMORY))
        self._gone: set[str] = set()
        self._instead: dict[str, str] = {}
        self._hidden = f"{self._mirror}.hidden"
        self._owner = os.getpid()
        self.is_used = False
        self._writes = 0
        self._kept = ""
        self._kept_states: dict[str, tuple[int, ...]] = {}
        self.real = OriginalFunctions()

    def passes(self, named: str) -> bool:
        """Whether the script reads and writes a resolved path directly."""
        return named.startswith(self.passed if not named.startswith(SHARED_MEMORY) else self._passed_shared)

    def holds(self, descriptor: int) -> bool:
        """Whether an open file is the script's to change: it lies in the mirror or a folder of its own, or nowhere."""
        try:
            named = str(self.real.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            return True
        in_mirror = named.startswith(self._mirror + os.sep)
        return in_mirror or self.passes(named) or not self.real.lexists(named) or self._is_special(named)

    def join(self) -> None:
        """Takes over the view of the process that started this one: its written files, and what it removed."""
        self._owner = 0
        self.is_used = True
        with suppress(OSError), self.real.open(self._hidden, encoding="utf-8", errors="surrogateescape") as file:
            self._gone.update(file.read().split("\0"))
            self._gone.discard("")

    def begin_with(self, hidden: Iterable[str], instead: Mapping[str, str]) -> None:
        """The script does not see ``hidden``, and reads other files ``instead`` of those with these paths, until it
        writes to them."""
        for path in hidden:
            self._hide(os.path.realpath(path))
        self._instead.update({os.path.realpath(path): held for path, held in instead.items()})
        self.is_used = self.is_used or bool(self._gone or self._instead)

    def _hide(self, named: str) -> None:
        self._gone.add(named)
        if os.getpid() == self._owner:  # a forked copy's removals are undone
            with (
                suppress(OSError),
                self.real.open(self._hidden, "a", encoding="utf-8", errors="surrogateescape") as file,
            ):
                file.write(f"{named}\0")

    # -- where a path leads ----------------------------------------------------------------------------------------

    def named(self, path: Any, dir_fd: int | None = None, *, follow: bool = True) -> str:
        """The absolute path from the script's view, with links resolved (the last one only with ``follow``)."""
        text = os.fsdecode(path)
        if dir_fd is not None:
            text = os.path.join(self.real.readlink(f"/proc/self/fd/{dir_fd}"), text)
        if not os.path.isabs(text):
            text = os.path.join(self.real.getcwd(), text)
        return self._resolved(self.outside(text), follow=follow, links=0)

    def outside(self, text: str) -> str:
        """Maps a path in the mirror, such as a working directory that the script created, to the script's view."""
        if text == self._mirror or text.startswith(self._mirror + os.sep):
            return text[len(self._mirror) :] or os.sep
        return text

    def _resolved(self, text: str, *, follow: bool, links: int) -> str:
        done = os.sep
        parts = [part for part in text.split(os.sep) if part not in ("", ".")]
        for number, part in enumerate(parts):
            if part == "..":
                done = os.path.dirname(done)
                continue
            here = os.path.join(done, part)
            is_last = number == len(parts) - 1
            target = self._link(here) if follow or not is_last else None
            if target is None or links > LINKS_MAX:
                done = here
                continue
            rest = os.path.join(os.path.join(done, target), *parts[number + 1 :])
            return self._resolved(self.outside(rest), follow=follow, links=links + 1)
        return done

    def _link(self, named: str) -> str | None:
        try:
            return str(self.real.readlink(self.lies(named)))
        except OSError:
            return None

    def lies(self, named: str) -> str:
        """The place of a resolved path: in the mirror (also if nothing exists there), or the real one."""
        if not self.is_used or self.passes(named):
            return named
        mirrored = self._mirror + named
        if self.is_gone(named) or self.real.lexists(mirrored):
            return mirrored
        return self._instead.get(named, named)

    def is_gone(self, named: str) -> bool:
        while self._gone and len(named) > 1:
            if named in self._gone:
                return True
            named = os.path.dirname(named)
        return False

    def reading(self, path: Any, dir_fd: int | None = None, *, follow: bool = True) -> Any:
        """The place from which to read a path."""
        if isinstance(path, int) or not self.is_used:
            return path
        return self.lies(self.named(path, dir_fd, follow=follow))

    def writing(self, path: Any, dir_fd: int | None = None, *, keep: bool = True, follow: bool = True) -> Any:
        """The place to which to write a path. With ``keep`` an existing file is copied there first."""
        if isinstance(path, int):
            return path
        named = self.named(path, dir_fd, follow=follow)
        lies, mirrored = self.lies(named), self._mirror + named
        if self.passes(named) or self._is_special(lies):
            return lies
        if self.real.isdir(self.lies(os.path.dirname(named))):
            self.is_used = True
            self.real.makedirs(os.path.dirname(mirrored))
            self._check_room()
            if keep and lies != mirrored and self.real.isfile(lies):
                self.real.copy(lies, mirrored)
            elif keep and lies != mirrored and self.real.isdir(lies):
                self.real.makedirs(mirrored)
        else:
            self.is_used = True
        return mirrored

    def _is_special(self, place: str) -> bool:
        """Whether the place is a pipe, socket or device, which is never mirrored."""
        try:
            mode = self.real.stat(place).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))

    def _check_room(self) -> None:
        self._writes += 1
        if self._writes % WRITES_BETWEEN_CHECKS == 0 and self.real.size(self._mirror) > WRITTEN_BYTES_MAX:
            bound = f"the launched script has written more than {WRITTEN_BYTES_MAX >> 30} GiB"
            raise OSError(errno.ENOSPC, bound)

    def keep(self, folder: Path) -> None:
        """Copies all files written so far into ``folder``, for :meth:`restore`."""
        self._kept, self._kept_states = str(folder), self.real.states(self._mirror)
        if self.real.isdir(self._mirror):
            self.real.copytree(self._mirror, self._kept)

    def restore(self) -> None:
        """Undoes what a forked copy of this process wrote since :meth:`keep`.

        Changed files are overwritten in place, because this process may have them open.
        """
        now = self.real.states(self._mirror)
        for path in sorted(now.keys() - self._kept_states.keys(), reverse=True):
            (self.real.rmtree if self.real.isdir(path) and not self.real.islink(path) else self.real.remove)(path)
        for path, state in sorted(self._kept_states.items()):
            kept = self._kept + path[len(self._mirror) :]
            if now.get(path) != state and self.real.isdir(kept) and not self.real.islink(kept):
                self.real.makedirs(path)
            elif now.get(path) != state:
                self.real.copy(kept, path)
        self._kept_states = self.real.states(self._mirror)

    def must_be_new(self, path: Any, dir_fd: int | None = None) -> None:
        if self.real.lexists(self.lies(self.named(path, dir_fd, follow=False))):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))

    def entries(self, path: Any) -> list[Entry]:
        """The entries of a folder from the script's view: those of the mirror and the real ones that were not
        removed."""
        named, shown = self.named(path), os.fsdecode(path)
        names: dict[str, None] = {}
        mirrored = self._mirror + named
        if self.real.isdir(mirrored):
            names.update(dict.fromkeys(self.real.listdir(mirrored)))
        if not self.is_gone(named) and self.real.isdir(named):
            real = (name for name in self.real.listdir(named) if os.path.join(named, name) not in self._gone)
            names.update(dict.fromkeys(real))
            earlier = (path for path in self._instead if os.path.dirname(path) == named and path not in self._gone)
            names.update(dict.fromkeys(map(os.path.basename, earlier)))
        elif not self.real.isdir(mirrored):
            self.real.listdir(self.lies(named))  # raises the fitting error
        return [Entry(name, os.path.join(shown, name)) for name in names]

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._take_away(self.named(path, dir_fd, follow=False), self.real.remove)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        named = self.named(path, dir_fd, follow=False)
        if self.real.isdir(self.lies(named)) and not self.passes(named) and self.entries(named):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), os.fsdecode(path))
        self._take_away(named, self.real.rmdir)

    def _take_away(self, named: str, remove: Callable[[str], Any]) -> None:
        if self.passes(named):
            remove(named)
            return
        lies = self.lies(named)
        is_kept = lies == self._instead.get(named)  # an earlier content, which is not the script's to remove
        if not is_kept and (lies != named or not self.real.lexists(named)):
            remove(lies)
        if is_kept or self.real.lexists(named) or named in self._instead:
            self.is_used = True
            self._hide(named)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        old = self.named(src, src_dir_fd, follow=False)
        new = self.named(dst, dst_dir_fd, follow=False)
        if self.passes(old) and self.passes(new):
            self.real.rename(old, new)
            return
        lies = self.lies(old)
        if not self.real.lexists(lies):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old, None, new)
        is_folder = self.real.isdir(lies) and not self.real.islink(lies)
        if lies == self._mirror + old and not (is_folder and self.real.isdir(old)):
            self.real.rename(lies, self.writing(new, keep=False, follow=False))
            if self.real.lexists(old):
                self._hide(old)
            return
        self._copy_to(old, new)
        if not is_folder:
            self.remove(old)
            return
        self.real.rmtree(self._mirror + old)
        if self.real.lexists(old):
            self._hide(old)

    def link(self, src: Any, dst: Any, **kwargs: Any) -> None:
        self.must_be_new(dst)
        self.real.link(self.writing(src), self.writing(dst, keep=False, follow=False))

    def _copy_to(self, old: str, new: str) -> None:
        lies = self.lies(old)
        target = self.writing(new, keep=False, follow=False)
        if not self.real.isdir(lies) or self.real.islink(lies):
            if self.real.lexists(target):
                self.real.remove(target)  # a new file: a process that has the old one open keeps it
            self.real.copy(lies, target)
            return
        for entry in self.entries(old):
            self.real.makedirs(target)
            self._copy_to(os.path.join(old, entry.name), os.path.join(new, entry.name))
        self.real.makedirs(target)


@contextmanager
def own_words(*paths: Any) -> Iterator[None]:
    """Errors in this block name the paths that the script gave, not their places in the mirror."""
    try:
        yield
    except OSError as error:
        for name, path in zip(("filename", "filename2"), paths, strict=False):
            if getattr(error, name) is not None:
                setattr(error, name, path)
        raise
