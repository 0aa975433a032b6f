"""Keeps the last healthy checkpoints of a script against rotation and overwriting, below the run folder.

A pin is a second name (hard link) of the file that the script wrote, so it costs no time and no space as long as the
script keeps the file. Before the script overwrites a pinned file in place, its own name of it is removed: the script's
write makes a new file, and the pin keeps the old content. What a link cannot hold (another file system, a file that is
written through an open file object) is copied if it is small.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadytrain.core.own_errors import own, unless_it_fails

FOLDER = "checkpoints"
SAVED_FACT, READ_FACT = "saved", "read"
"""The facts of a run that name the checkpoints which the script wrote, and which it read before its first update."""

PINS_MAX = 2
APART_STEPS = 128
"""The older pin is so many steps older than the newer one: a fault is not always seen at once."""

COPY_BYTES_MAX = 64 << 20
FILES_MAX = 256
BESIDE_BYTES_MAX = 1 << 20
"""Small files beside a checkpoint of several files (its configuration, the trainer's state) are kept with it."""


@dataclass(frozen=True)
class Identity:
    """One content of a file: a file that is written again has another size or time."""

    device: int
    inode: int
    size: int
    changed_ns: int

    @staticmethod
    def of(path: str | Path) -> Identity | None:
        try:
            found = os.stat(path)
        except own(OSError):
            return None
        return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def fact(self) -> list[int]:
        """What the facts of a run keep of it."""
        return [self.size, self.changed_ns]


def is_as_recorded(path: str | Path, fact: Any) -> bool:
    """Whether the file has the size and the time of a :meth:`Identity.fact`."""
    now = Identity.of(path)
    return now is not None and now.fact() == fact


@dataclass
class Pin:
    step: int
    folder: Path
    files: dict[str, Identity] = field(default_factory=dict)
    """By path of the pin."""

    size_bytes: int = 0


class Pins:
    """The pins of one run. Every method may raise ``OSError``.

    Args:
        run: the run folder.
        bytes_max: disk space that the pins may take once the script has removed its own files.
    """

    def __init__(self, run: Path, bytes_max: int) -> None:
        self._folder = run / FOLDER
        self._bytes_max = bytes_max
        self.held: list[Pin] = []
        self._read: list[Pin] = []

    def add(self, step: int, files: dict[Path, bool]) -> Pin | None:
        """Pin ``files`` as one checkpoint; True: the script writes it in place, so a link would not hold it.

        Returns None if it is over the bound. Older pins go as :meth:`_keep` says.
        """
        size = sum(path.stat().st_size for path in files)
        free = shutil.disk_usage(next(iter(files)).parent).free
        if not files or size > self._bytes_max or free < size:
            return None
        pin = Pin(step, self._free(f"step-{step:06d}"), size_bytes=size)
        pin.folder.mkdir(parents=True)
        try:
            for path, in_place in files.items():
                _hold(path, pin.folder / path.name, copied=in_place)
                found = Identity.of(pin.folder / path.name)
                assert found is not None
                pin.files[str(pin.folder / path.name)] = found
        except own(OSError):
            self._remove(pin)
            raise
        self._keep(pin)
        return pin

    def add_read(self, path: Path) -> str:
        """Pin a file that the script has read, beside the others; returns where it lies below the run folder.

        It may be a data set: on another file system it is not copied.
        """
        place = self._free("read")
        place.mkdir(parents=True)
        pin = Pin(0, place)
        try:
            os.link(os.path.realpath(path), place / path.name)
            found = Identity.of(place / path.name)
            assert found is not None
        except own(OSError):
            self._remove(pin)
            raise
        pin.files[str(place / path.name)] = found
        self._read.append(pin)
        return str((place / path.name).relative_to(self._folder.parent))

    def drop_unchanged(self, held: dict[str, str], read: Mapping[str, Identity]) -> None:
        """Remove the pins in ``held``, by path, of files that are still what the script ``read``."""
        for path, name in list(held.items()):
            if Identity.of(path) == read[path]:
                shutil.rmtree((self._folder.parent / name).parent, ignore_errors=True)
                del held[path]

    def _free(self, name: str) -> Path:
        number, place = 2, self._folder / name
        while place.exists():
            number, place = number + 1, self._folder / f"{name}-{number}"
        return place

    def _keep(self, new: Pin) -> None:
        """Keep the newest pin, and the newest that is :data:`APART_STEPS` older; without one, the oldest."""
        older = [pin for pin in self.held if pin.step <= new.step - APART_STEPS]
        other = older[-1:] or self.held[:1]
        kept = [*other, new] if sum(pin.size_bytes for pin in (*other, new)) <= self._bytes_max else [new]
        for pin in self.held:
            if pin not in kept:
                self._remove(pin)
        self.held = kept

    def _remove(self, pin: Pin) -> None:
        shutil.rmtree(pin.folder, ignore_errors=True)

    def is_about_to_be_written(self, path: Path) -> int | None:
        """The script is about to write ``path`` from its start: see to it that a pin of it keeps its content.

        Returns the mode of the file whose name was removed, None if nothing was done.
        """
        real = Path(os.path.realpath(path))
        now = Identity.of(real)
        for pin in (*self.held, *self._read):
            for name, known in pin.files.items():
                if now is None or (known.device, known.inode) != (now.device, now.inode):
                    continue
                found = os.stat(real)
                if found.st_nlink > 2 or shutil.disk_usage(real.parent).free < 2 * found.st_size:
                    # Another name of the user's shows the same content, or there is no room for two.
                    self._copy_or_forget(pin, name)
                    return None
                os.unlink(real)
                return found.st_mode & 0o7777
        return None

    def _copy_or_forget(self, pin: Pin, name: str) -> None:
        if pin.files[name].size > COPY_BYTES_MAX or shutil.disk_usage(pin.folder).free < 4 * pin.files[name].size:
            (self.held if pin in self.held else self._read).remove(pin)
            self._remove(pin)
            return
        beside = Path(name).with_name(f".{Path(name).name}")
        shutil.copy2(name, beside)
        os.replace(beside, name)
        copied = Identity.of(name)
        assert copied is not None
        pin.files[name] = copied


def beside(files: list[Path]) -> list[Path]:
    """``files``, which were written into one folder at one step, and the small files beside them."""
    if len(files) < 2 or len({path.parent for path in files}) > 1:
        return files
    with unless_it_fails(OSError), os.scandir(files[0].parent) as entries:
        for entry in entries:
            path = Path(entry.path)
            small = entry.is_file(follow_symlinks=False) and entry.stat().st_size <= BESIDE_BYTES_MAX
            if small and path not in files and len(files) < FILES_MAX:
                files = [*files, path]
    return files


def moved_to(path: str, identity: Identity) -> str | None:
    """Where the content is that was written to ``path``: there, or under another name in this or the next folder."""
    if Identity.of(path) == identity:
        return path
    parent = Path(path).parent
    for folder in (parent, parent.parent):
        with unless_it_fails(OSError), os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(1000), strict=False):
                for found in (Path(entry.path), Path(entry.path) / Path(path).name):
                    if Identity.of(found) == identity:
                        return str(found)
    return None


def _hold(source: Path, target: Path, *, copied: bool) -> None:
    if not copied:
        with unless_it_fails(OSError):
            os.link(os.path.realpath(source), target)
            return
    if source.stat().st_size > COPY_BYTES_MAX:
        raise OSError(f"{source}: too large for a copy")
    beside_it = target.with_name(f".{target.name}")
    shutil.copy2(source, beside_it)
    os.replace(beside_it, target)
